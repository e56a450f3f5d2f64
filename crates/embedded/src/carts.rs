//! Carts on the engine: a row with the times, a row a change, and one for the packed changes.
//!
//! A cart has at most [`cart::UNPACKED_CHANGES_MAX`] rows besides the packed one, so it is read and kept in memory
//! as a whole. Adding to it writes the new row and its place among the touched carts; the row with the times is
//! written only when rows are packed or none is added.

use std::sync::Arc;

use async_trait::async_trait;
use fjall::Readable;
use mobimir_core::{
    cart::{self, CartChange, CartPosition, Effect, Owner, StoredCart},
    id::{self, ChangeId},
    page::Page,
    ports::{CartStore, StoreResult},
    time::Timestamp,
};

use crate::{
    EmbeddedStore,
    engine::{Space, Txn, after_key},
    error::read_failed,
    records::{
        self,
        cart::{self as cart_row, CartTimes},
        cart_change, cart_touched,
        expiry::{self, Expiring},
    },
    store::Shared,
};

/// Carts that one call looks at to find those that have not expired. A page may end here, with a `next`.
const UNTOUCHED_SCAN_CARTS_MAX: usize = 1_000;

/// Changes that weigh as much as one entry of the cache.
const CHANGES_PER_CACHE_ITEM: usize = 16;

/// A cart as it is stored.
#[derive(Clone)]
pub(crate) struct CartState {
    cart: StoredCart,
    /// Whether the first of the changes is the one under the packed key.
    has_packed: bool,
}

impl CartState {
    fn new(now: Timestamp, expires_at: Timestamp) -> Self {
        let cart = StoredCart { changes: Vec::new(), created_at: now, updated_at: now, expires_at };
        Self { cart, has_packed: false }
    }

    pub(crate) fn weight(&self) -> u64 {
        let parts = match self.cart.changes.first().map(|change| &change.effect) {
            Some(Effect::Packed(packed)) => packed.parts.len() + packed.remembered.len(),
            _ => 0,
        };
        ((self.cart.changes.len() + parts) / CHANGES_PER_CACHE_ITEM) as u64
    }

    fn times(&self) -> CartTimes {
        let StoredCart { created_at, updated_at, expires_at, .. } = self.cart;
        CartTimes { created_at, updated_at, expires_at }
    }

    /// The changes that have a row of their own.
    fn rows(&self) -> &[CartChange] {
        &self.cart.changes[usize::from(self.has_packed)..]
    }

    fn live(&self, now: Timestamp) -> Option<StoredCart> {
        (self.cart.expires_at > now).then(|| self.cart.clone())
    }
}

#[async_trait]
impl CartStore for EmbeddedStore {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        self.write(move |shared, txn| shared.append_to_cart(txn, owner, changes, expires_at, now)).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let cart = match self.shared().carts.get(&owner) {
            Some(cart) => Some(cart),
            None => self.read(move |shared| shared.cart(owner)).await?,
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
        self.read(move |shared| {
            let start = after.map_or(cart_touched::all(), |after| after_key(&cart_touched::position_key(&after)));
            let end = cart_touched::start_of(untouched_since.plus_ms(1));
            if start >= end {
                return Ok(Page::empty());
            }
            let position = |(owner, cart): &(Owner, StoredCart)| CartPosition::of(*owner, cart.updated_at);
            let snapshot = shared.tables.snapshot();
            let rows = snapshot.range(shared.tables.keyspace(Space::Carts), start.bytes..end.bytes);
            let mut carts = Vec::new();
            for (looked_at, row) in rows.enumerate() {
                let (updated_at, owner) = cart_touched::read_key(&row.key().map_err(read_failed)?)?;
                // What was touched since the snapshot is no longer untouched.
                let cart = shared.cart(owner)?.and_then(|cart| cart.live(now));
                carts.extend(cart.filter(|cart| cart.updated_at == updated_at).map(|cart| (owner, cart)));
                if carts.len() > limit {
                    break;
                }
                if looked_at + 1 == UNTOUCHED_SCAN_CARTS_MAX {
                    return Ok(Page { items: carts, next: Some(CartPosition::of(owner, updated_at)) });
                }
            }
            Ok(Page::cut(carts, limit, position))
        })
        .await
    }
}

impl Shared {
    fn cart(&self, owner: Owner) -> StoreResult<Option<Arc<CartState>>> {
        self.carts.get_or_read(&owner, || {
            // Both tables as of one moment.
            let snapshot = self.tables.snapshot();
            let keyspace = self.tables.keyspace(Space::Carts);
            let Some(times) = snapshot.get(keyspace, &cart_row::key(owner).bytes).map_err(read_failed)? else {
                return Ok(None);
            };
            let rows = snapshot.prefix(keyspace, &cart_change::packed_key(owner).bytes);
            let rows = rows.map(|row| row.into_inner().map_err(read_failed));
            decode(owner, &times, rows).map(Some)
        })
    }

    fn cart_to_change(&self, txn: &Txn<'_>, owner: Owner) -> StoreResult<Option<Arc<CartState>>> {
        self.carts.current(&owner, || {
            let Some(times) = txn.get(&cart_row::key(owner))? else { return Ok(None) };
            let rows = txn.under(&cart_change::packed_key(owner))?;
            decode(owner, &times, rows.into_iter().map(Ok)).map(Some)
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
        if let Some(expired) = stored.take_if(|stored| stored.cart.expires_at <= now) {
            remove_rows(txn, owner, &expired);
        }
        let mut state = match &stored {
            Some(stored) => CartState::clone(stored),
            None => CartState::new(now, expires_at),
        };
        state.cart.updated_at = state.cart.updated_at.max(now);
        state.cart.expires_at = state.cart.expires_at.max(expires_at);
        let mut times_are_stored = false;
        for change in changes {
            if !cart::is_known(&state.cart.changes, change.id) {
                let row = cart_change::encode(&change, state.cart.updated_at, state.cart.expires_at);
                txn.put(cart_change::key(owner, change.id), row);
                state.cart.changes.push(change);
                times_are_stored = true;
            }
        }
        if state.rows().len() > cart::UNPACKED_CHANGES_MAX {
            pack(txn, owner, &mut state, now);
            times_are_stored = false;
        }
        let was_touched_at = stored.as_ref().map(|stored| stored.cart.updated_at);
        if was_touched_at != Some(state.cart.updated_at) {
            if let Some(was_touched_at) = was_touched_at {
                txn.remove(cart_touched::key(was_touched_at, owner));
            }
            txn.put(cart_touched::key(state.cart.updated_at, owner), records::nothing());
        }
        if stored.is_none() {
            // When the cart is extended this stays as it is: whoever sweeps looks at the cart again.
            txn.put(expiry::key(state.cart.expires_at, Expiring::Cart(owner)), records::nothing());
        }
        if stored.is_none() || !times_are_stored {
            txn.put(cart_row::key(owner), cart_row::encode(state.times()));
        }
        self.carts.stage(txn.job(), owner, Some(Arc::new(state)));
        Ok(())
    }

    /// Removes a cart that has expired by `now`; otherwise says until when it lasts.
    pub(crate) fn expire_cart(
        &self,
        txn: &mut Txn<'_>,
        owner: Owner,
        now: Timestamp,
    ) -> StoreResult<Option<Timestamp>> {
        let Some(state) = self.cart_to_change(txn, owner)? else { return Ok(None) };
        if state.cart.expires_at > now {
            return Ok(Some(state.cart.expires_at));
        }
        remove_rows(txn, owner, &state);
        self.carts.stage(txn.job(), owner, None);
        Ok(None)
    }
}

fn pack(txn: &mut Txn<'_>, owner: Owner, state: &mut CartState, now: Timestamp) {
    let packed = cart::pack(ChangeId(id::fresh(now)), owner, &state.cart.changes, now);
    for change in state.rows() {
        txn.remove(cart_change::key(owner, change.id));
    }
    let row = cart_change::encode(&packed, state.cart.updated_at, state.cart.expires_at);
    txn.put(cart_change::packed_key(owner), row);
    state.cart.changes = vec![packed];
    state.has_packed = true;
}

fn remove_rows(txn: &mut Txn<'_>, owner: Owner, state: &CartState) {
    for change in state.rows() {
        txn.remove(cart_change::key(owner, change.id));
    }
    if state.has_packed {
        txn.remove(cart_change::packed_key(owner));
    }
    txn.remove(cart_touched::key(state.cart.updated_at, owner));
    txn.remove(cart_row::key(owner));
}

/// The packed change, if there is one, comes first in the order of the keys.
fn decode<K, V>(
    owner: Owner,
    times: &[u8],
    rows: impl Iterator<Item = StoreResult<(K, V)>>,
) -> StoreResult<CartState>
where
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    let CartTimes { created_at, updated_at, expires_at } = cart_row::decode(times)?;
    let packed_key = cart_change::packed_key(owner);
    let mut cart = StoredCart { changes: Vec::new(), created_at, updated_at, expires_at };
    let mut has_packed = false;
    for row in rows {
        let (key, value) = row?;
        has_packed |= *key.as_ref() == *packed_key.bytes;
        let stored = cart_change::decode(value.as_ref())?;
        cart.updated_at = cart.updated_at.max(stored.touched_at);
        cart.expires_at = cart.expires_at.max(stored.expires_at);
        cart.changes.push(stored.change);
    }
    Ok(CartState { cart, has_packed })
}
