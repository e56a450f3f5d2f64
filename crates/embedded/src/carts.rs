//! Carts on the engine: a row with the times, a row a change, and one for the packed changes.
//!
//! A cart has few rows besides the packed one ([`cart::UNPACKED_CHANGES_MAX`]), so it is read and kept in memory as a
//! whole. Adding to it writes the new row and its place among the touched carts; the row with the times is
//! written only when rows are packed or none is added.

use std::{collections::HashSet, sync::Arc};

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

/// A cart as it is stored. Cheap to clone, since every added change makes a new one.
#[derive(Clone)]
pub(crate) struct CartState {
    times: CartTimes,
    /// Under the packed key.
    packed: Option<Arc<PackedChange>>,
    /// Under keys of their own.
    rows: Vec<Arc<CartChange>>,
}

struct PackedChange {
    change: CartChange,
    /// The ids that [`cart::is_known`] finds in it.
    known: HashSet<ChangeId>,
}

impl PackedChange {
    fn new(change: CartChange) -> Self {
        let mut known = HashSet::from([change.id]);
        if let Effect::Packed(packed) = &change.effect {
            known.extend(packed.parts.iter().map(|part| part.id));
            known.extend(packed.remembered.iter().map(|(id, _)| *id));
        }
        Self { change, known }
    }
}

impl CartState {
    fn new(now: Timestamp, expires_at: Timestamp) -> Self {
        let times = CartTimes { created_at: now, updated_at: now, expires_at };
        Self { times, packed: None, rows: Vec::new() }
    }

    pub(crate) fn weight(&self) -> u64 {
        ((self.packed_ids() + self.rows.len()) / CHANGES_PER_CACHE_ITEM) as u64
    }

    fn packed_ids(&self) -> usize {
        self.packed.as_ref().map_or(0, |packed| packed.known.len())
    }

    fn knows(&self, id: ChangeId) -> bool {
        self.packed.as_ref().is_some_and(|packed| packed.known.contains(&id))
            || self.rows.iter().any(|row| cart::is_known(std::slice::from_ref(row.as_ref()), id))
    }

    /// Packing writes all of the packed change again. In a cart with very many changes it waits until that is worth
    /// it, so that adding stays cheap however big the cart.
    fn is_to_be_packed(&self) -> bool {
        self.rows.len() > cart::UNPACKED_CHANGES_MAX.max(self.packed_ids() / 2)
    }

    fn changes(&self) -> Vec<CartChange> {
        let packed = self.packed.iter().map(|packed| &packed.change);
        packed.chain(self.rows.iter().map(AsRef::as_ref)).cloned().collect()
    }

    fn live(&self, now: Timestamp) -> Option<StoredCart> {
        let CartTimes { created_at, updated_at, expires_at } = self.times;
        (expires_at > now).then(|| StoredCart { changes: self.changes(), created_at, updated_at, expires_at })
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
        if let Some(expired) = stored.take_if(|stored| stored.times.expires_at <= now) {
            remove_rows(txn, owner, &expired);
        }
        let mut state = match &stored {
            Some(stored) => CartState::clone(stored),
            None => CartState::new(now, expires_at),
        };
        state.times.updated_at = state.times.updated_at.max(now);
        state.times.expires_at = state.times.expires_at.max(expires_at);
        let mut times_are_stored = false;
        for change in changes {
            if !state.knows(change.id) {
                txn.put(cart_change::key(owner, change.id), cart_change::encode(&change, state.times));
                state.rows.push(Arc::new(change));
                times_are_stored = true;
            }
        }
        if state.is_to_be_packed() {
            pack(txn, owner, &mut state, now);
            times_are_stored = false;
        }
        let was_touched_at = stored.as_ref().map(|stored| stored.times.updated_at);
        if was_touched_at != Some(state.times.updated_at) {
            if let Some(was_touched_at) = was_touched_at {
                txn.remove(cart_touched::key(was_touched_at, owner));
            }
            txn.put(cart_touched::key(state.times.updated_at, owner), records::nothing());
        }
        if stored.is_none() {
            // When the cart is extended this stays as it is: whoever sweeps looks at the cart again.
            txn.put(expiry::key(state.times.expires_at, Expiring::Cart(owner)), records::nothing());
        }
        if stored.is_none() || !times_are_stored {
            txn.put(cart_row::key(owner), cart_row::encode(state.times));
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
        if state.times.expires_at > now {
            return Ok(Some(state.times.expires_at));
        }
        remove_rows(txn, owner, &state);
        self.carts.stage(txn.job(), owner, None);
        Ok(None)
    }
}

fn pack(txn: &mut Txn<'_>, owner: Owner, state: &mut CartState, now: Timestamp) {
    let packed = cart::pack(ChangeId(id::fresh(now)), owner, &state.changes(), now);
    for change in state.rows.drain(..) {
        txn.remove(cart_change::key(owner, change.id));
    }
    txn.put(cart_change::packed_key(owner), cart_change::encode(&packed, state.times));
    state.packed = Some(Arc::new(PackedChange::new(packed)));
}

fn remove_rows(txn: &mut Txn<'_>, owner: Owner, state: &CartState) {
    for change in &state.rows {
        txn.remove(cart_change::key(owner, change.id));
    }
    if state.packed.is_some() {
        txn.remove(cart_change::packed_key(owner));
    }
    txn.remove(cart_touched::key(state.times.updated_at, owner));
    txn.remove(cart_row::key(owner));
}

fn decode<K, V>(
    owner: Owner,
    times: &[u8],
    rows: impl Iterator<Item = StoreResult<(K, V)>>,
) -> StoreResult<CartState>
where
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    let packed_key = cart_change::packed_key(owner);
    let mut state = CartState { times: cart_row::decode(times)?, packed: None, rows: Vec::new() };
    for row in rows {
        let (key, value) = row?;
        let stored = cart_change::decode(value.as_ref())?;
        state.times.updated_at = state.times.updated_at.max(stored.touched_at);
        state.times.expires_at = state.times.expires_at.max(stored.expires_at);
        if *key.as_ref() == *packed_key.bytes {
            state.packed = Some(Arc::new(PackedChange::new(stored.change)));
        } else {
            state.rows.push(Arc::new(stored.change));
        }
    }
    Ok(state)
}
