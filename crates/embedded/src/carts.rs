//! Carts on the engine: a row with the times, a row a change, and one for the packed changes.
//!
//! A cart has few rows besides the packed one ([`cart::UNPACKED_CHANGES_MAX`]), so it is read and kept in memory as a
//! whole. Adding a change writes its row and nothing else.
//!
//! [`cart::UNPACKED_CHANGES_MAX`]: mobimir_core::cart::UNPACKED_CHANGES_MAX

mod listing;
mod moving;
mod state;

use std::sync::Arc;

use async_trait::async_trait;
use fjall::Readable;
use mobimir_core::{
    cart::{CartChange, CartPosition, Owner, StoredCart},
    page::Page,
    ports::{CartStore, StoreResult},
    time::Timestamp,
};

use crate::{
    EmbeddedStore,
    engine::{Space, Txn, after_key},
    error::read_failed,
    records::{
        self, cart as cart_row, cart_change, cart_touched,
        expiry::{self, Expiring},
        unmirrored,
    },
    store::Shared,
};

pub(crate) use listing::Waiting;
pub(crate) use state::CartState;

/// Carts that one call looks at to find those that have not expired. A page may end here, with a `next`.
const UNTOUCHED_SCAN_CARTS_MAX: usize = 1_000;

/// How often a page is read anew because carts in it stood in the wrong place. Once is enough, unless they are touched
/// again right then.
const UNTOUCHED_ATTEMPTS_MAX: usize = 4;

type CartPage = Page<(Owner, StoredCart), CartPosition>;

#[async_trait]
impl CartStore for EmbeddedStore {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let marking = self.marking();
        self.write(move |shared, txn| {
            marking.leave(shared, txn, unmirrored::cart_key(owner))?;
            shared.append_to_cart(txn, owner, changes, expires_at, now)
        })
        .await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let cart = match self.shared().carts.get(&owner) {
            Some(cart) => Some(cart),
            None => self.read_in_place(move |shared| shared.cart(owner)).await?,
        };
        Ok(cart.and_then(|cart| cart.live(now)))
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        // A store that takes no more writes shows the list as it is.
        let takes_writes = self.engine().takes_writes();
        if takes_writes {
            self.list_waiting_carts().await?;
        }
        let mut attempt = 1;
        loop {
            let read = self.read(move |shared| shared.untouched_carts(untouched_since, after, limit, now));
            let (page, misplaced) = read.await?;
            if misplaced.is_empty() || !takes_writes || attempt == UNTOUCHED_ATTEMPTS_MAX {
                return Ok(page);
            }
            self.list_carts(misplaced).await?;
            attempt += 1;
        }
    }
}

impl Shared {
    fn cart(&self, owner: Owner) -> StoreResult<Option<Arc<CartState>>> {
        self.carts.get_or_read(&owner, || {
            // Both tables as of one moment.
            let snapshot = self.tables.snapshot();
            let keyspace = self.tables.keyspace(Space::Carts);
            let Some(times) = snapshot.get(keyspace, &cart_row::key(owner).bytes).map_err(read_failed)?
            else {
                return Ok(None);
            };
            let rows = snapshot.prefix(keyspace, &cart_change::packed_key(owner).bytes).map(|row| {
                let (key, value) = row.into_inner().map_err(read_failed)?;
                cart_change::decode(&key, &value)
            });
            CartState::decode(&times, rows).map(Some)
        })
    }

    fn cart_to_change(&self, txn: &Txn<'_>, owner: Owner) -> StoreResult<Option<Arc<CartState>>> {
        self.carts.current(&owner, || {
            let Some(times) = txn.get(&cart_row::key(owner))? else { return Ok(None) };
            let rows = txn.under(&cart_change::packed_key(owner))?;
            let rows = rows.into_iter().map(|(key, value)| cart_change::decode(&key, &value));
            CartState::decode(&times, rows).map(Some)
        })
    }

    fn append_to_cart(
        &self,
        txn: &mut Txn<'_>,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let mut stored = self.cart_to_change(txn, owner)?;
        if let Some(expired) = stored.take_if(|stored| stored.times.expires_at <= now) {
            self.remove_cart(txn, owner, &expired)?;
        }
        let mut state = match &stored {
            Some(stored) => CartState::clone(stored),
            None => CartState::new(now, expires_at),
        };
        state.times.updated_at = state.times.updated_at.max(now);
        state.times.expires_at = state.times.expires_at.max(expires_at);
        state.times.version = state.times.version.next(now);
        let mut has_added = false;
        for change in changes {
            has_added |= state.add(txn, owner, change);
        }
        let is_to_be_packed = state.is_to_be_packed();
        if is_to_be_packed {
            state.pack(txn, owner, now);
        }
        if stored.is_none() {
            // When the cart is extended this stays as it is: whoever sweeps looks at the cart again.
            txn.put(expiry::key(state.times.expires_at, Expiring::Cart(owner)), records::nothing());
        }
        if stored.is_some() && has_added && !is_to_be_packed {
            // The times are in the added row.
            self.list_cart_later(txn, owner)?;
        } else {
            listing::put_listed(txn, owner, &mut state);
        }
        self.carts.stage(txn.job(), owner, Some(Arc::new(state)));
        Ok(())
    }

    /// A page of untouched carts, and the carts met that stand too early in the list.
    fn untouched_carts(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<(CartPage, Vec<Owner>)> {
        let mut misplaced = Vec::new();
        let start = after.map_or(cart_touched::all(), |after| after_key(&cart_touched::position_key(&after)));
        let end = cart_touched::start_of(untouched_since.plus_ms(1));
        if start >= end {
            return Ok((Page::empty(), misplaced));
        }
        let position = |(owner, cart): &(Owner, StoredCart)| CartPosition::of(*owner, cart.updated_at);
        let mut carts = Vec::new();
        let rows = self.tables.keyspace(Space::Carts).range(start.bytes..end.bytes);
        for (looked_at, row) in rows.enumerate() {
            let (listed_at, owner) = cart_touched::read_key(&row.key().map_err(read_failed)?)?;
            match self.cart(owner)?.and_then(|cart| cart.live(now)) {
                Some(cart) if cart.updated_at == listed_at => carts.push((owner, cart)),
                Some(cart) if cart.updated_at <= untouched_since => misplaced.push(owner),
                // Touched since, or expired.
                _ => {}
            }
            if carts.len() > limit {
                break;
            }
            if looked_at + 1 == UNTOUCHED_SCAN_CARTS_MAX {
                let next = Some(CartPosition::of(owner, listed_at));
                return Ok((Page { items: carts, next }, misplaced));
            }
        }
        Ok((Page::cut(carts, limit, position), misplaced))
    }

    /// Removes a cart that has expired by `now`; otherwise says until when it lasts.
    pub(crate) fn expire_cart(
        &self,
        txn: &mut Txn<'_>,
        owner: Owner,
        now: Timestamp,
    ) -> StoreResult<Option<Timestamp>> {
        let Some(stored) = self.cart_to_change(txn, owner)? else { return Ok(None) };
        if stored.times.expires_at > now {
            return Ok(Some(stored.times.expires_at));
        }
        self.remove_cart(txn, owner, &stored)?;
        Ok(None)
    }

    fn remove_cart(&self, txn: &mut Txn<'_>, owner: Owner, stored: &CartState) -> StoreResult<()> {
        txn.remove(cart_touched::key(stored.listed_at, owner));
        state::remove_rows(txn, owner)?;
        self.carts.stage(txn.job(), owner, None);
        Ok(())
    }
}
