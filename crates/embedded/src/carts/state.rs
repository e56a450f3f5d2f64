//! A cart as it is stored, as a value.

use std::sync::Arc;

use mobimir_core::{
    cart::{self, CartChange, Effect, Owner, StoredCart},
    id::{self, ChangeId, IdSet},
    ports::StoreResult,
    time::{Timestamp, Version},
};

use crate::{
    engine::{Key, Txn},
    records::{
        cart::{self as cart_row, CartTimes},
        cart_change::{self, StoredChange},
    },
};

/// Changes that weigh as much as one entry of the cache.
const CHANGES_PER_CACHE_ITEM: usize = 16;

/// Cheap to clone, since every added change makes a new one: only the last rows are apart, all others are shared.
#[derive(Clone)]
pub(crate) struct CartState {
    pub(super) times: CartTimes,
    /// The time that the cart is listed under among the touched ones, which may lag behind.
    pub(super) listed_at: Timestamp,
    packed: Option<Arc<Sealed>>,
    /// In the order of their slots, and `last_rows` after them.
    sealed_rows: Vec<Arc<Sealed>>,
    last_rows: Vec<Arc<CartChange>>,
    /// How often the cart was packed. Rows of earlier rounds are part of the packed change.
    round: u32,
}

/// Changes that no longer change.
struct Sealed {
    changes: Vec<CartChange>,
    /// The ids that [`cart::is_known`] finds in them.
    known: IdSet<ChangeId>,
}

const ROWS_PER_SEALED: usize = 32;

impl Sealed {
    fn new(changes: Vec<CartChange>) -> Self {
        let mut known = IdSet::default();
        for change in &changes {
            known.insert(change.id);
            if let Effect::Packed(packed) = &change.effect {
                known.extend(packed.parts.iter().map(|part| part.id));
                known.extend(packed.remembered.iter().map(|(id, _)| *id));
            }
        }
        Self { changes, known }
    }
}

impl CartState {
    pub(super) fn new(now: Timestamp, expires_at: Timestamp) -> Self {
        let version = Version::default();
        Self::without_changes(CartTimes { created_at: now, updated_at: now, expires_at, version })
    }

    pub(super) fn without_changes(times: CartTimes) -> Self {
        Self {
            times,
            listed_at: times.updated_at,
            packed: None,
            sealed_rows: Vec::new(),
            last_rows: Vec::new(),
            round: 0,
        }
    }

    /// Puts a cart together from the row with its times and the rows with its changes.
    pub(super) fn decode(
        times: &[u8],
        rows: impl Iterator<Item = StoreResult<StoredChange>>,
    ) -> StoreResult<Self> {
        let mut state = Self::without_changes(cart_row::decode(times)?);
        // The packed change comes first, then the slots in their order; some may hold rows of an earlier round.
        for row in rows {
            let row = row?;
            if row.is_packed {
                state.round = row.round;
                state.packed = Some(Arc::new(Sealed::new(vec![row.change])));
            } else if row.round == state.round {
                state.times.updated_at = state.times.updated_at.max(row.touched_at);
                state.times.expires_at = state.times.expires_at.max(row.expires_at);
                state.times.version = state.times.version.max(row.version);
                state.push(row.change);
            }
        }
        Ok(state)
    }

    pub(crate) fn weight(&self) -> u64 {
        ((self.packed_ids() + self.rows()) / CHANGES_PER_CACHE_ITEM) as u64
    }

    pub(super) fn live(&self, now: Timestamp) -> Option<StoredCart> {
        (self.times.expires_at > now).then(|| self.stored())
    }

    /// Whether it has expired or not.
    pub(super) fn stored(&self) -> StoredCart {
        let CartTimes { created_at, updated_at, expires_at, version: _ } = self.times;
        StoredCart { changes: self.changes(), created_at, updated_at, expires_at }
    }

    /// Adds a change, unless it has had its effect; says whether it did.
    pub(super) fn add(&mut self, txn: &mut Txn<'_>, owner: Owner, change: CartChange) -> bool {
        if self.knows(change.id) {
            return false;
        }
        let slot = self.rows() as u32;
        txn.put(cart_change::key(owner, slot), cart_change::encode(&change, self.times, self.round));
        self.push(change);
        true
    }

    fn push(&mut self, change: CartChange) {
        self.last_rows.push(Arc::new(change));
        if self.last_rows.len() == ROWS_PER_SEALED {
            let rows = self.last_rows.drain(..).map(Arc::unwrap_or_clone).collect();
            self.sealed_rows.push(Arc::new(Sealed::new(rows)));
        }
    }

    /// Changes besides the packed one.
    fn rows(&self) -> usize {
        self.sealed_rows.len() * ROWS_PER_SEALED + self.last_rows.len()
    }

    /// Packing writes all of the packed change again. In a cart with very many changes it waits until that is worth
    /// it, so that adding stays cheap however big the cart.
    pub(super) fn is_to_be_packed(&self) -> bool {
        self.rows() > cart::UNPACKED_CHANGES_MAX.max(self.packed_ids() / 2)
    }

    /// Makes one change of all. The rows stay where they are, out of date, until new ones take their slots: that
    /// spares a removal a change.
    pub(super) fn pack(&mut self, txn: &mut Txn<'_>, owner: Owner, now: Timestamp) {
        let packed = cart::pack(ChangeId(id::fresh(now)), owner, &self.changes(), now);
        self.round += 1;
        self.sealed_rows.clear();
        self.last_rows.clear();
        txn.put(cart_change::packed_key(owner), cart_change::encode(&packed, self.times, self.round));
        self.packed = Some(Arc::new(Sealed::new(vec![packed])));
    }

    fn packed_ids(&self) -> usize {
        self.packed.as_ref().map_or(0, |packed| packed.known.len())
    }

    fn knows(&self, id: ChangeId) -> bool {
        self.sealed().any(|sealed| sealed.known.contains(&id))
            || self.last_rows.iter().any(|row| match row.effect {
                Effect::Packed(_) => cart::is_known(std::slice::from_ref(row), id),
                _ => row.id == id,
            })
    }

    fn changes(&self) -> Vec<CartChange> {
        let sealed = self.sealed().flat_map(|sealed| &sealed.changes);
        sealed.chain(self.last_rows.iter().map(AsRef::as_ref)).cloned().collect()
    }

    fn sealed(&self) -> impl Iterator<Item = &Sealed> {
        self.packed.iter().chain(&self.sealed_rows).map(AsRef::as_ref)
    }
}

/// Removes all rows of a cart but its listing.
pub(super) fn remove_rows(txn: &mut Txn<'_>, owner: Owner) -> StoreResult<()> {
    let prefix = cart_change::packed_key(owner);
    for (bytes, _) in txn.under(&prefix)? {
        txn.remove(Key { space: prefix.space, bytes });
    }
    txn.remove(cart_row::key(owner));
    Ok(())
}
