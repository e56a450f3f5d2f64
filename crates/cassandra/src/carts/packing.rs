//! Packing: many rows of a cart become one, by one decision.

use std::sync::{Arc, PoisonError};

use mobimir_core::{
    cart::Owner,
    id::{self, ChangeId},
    ports::StoreResult,
    time::Timestamp,
};
use scylla::value::CqlTimestamp;

use super::{
    Inner, PackedOwner,
    gather::{Gathered, Plan},
    kept_until, owed,
    rows::{self, Batched, PackRow},
};
use crate::{link::Decided, stamps};

/// Carts that one instance packs at the same time.
pub(super) const PACKED_AT_ONCE: usize = 4;
/// Rows that go into one packed row at a time.
const PACKED_ROWS_MAX: usize = 200;

impl Inner {
    /// What was written before this can be removed by every clock of the cluster.
    pub(super) fn settled_us(&self) -> i64 {
        (stamps::real_now().as_millis() - self.options.packed_after_ms) * 1_000
    }

    /// Packs the cart in the background, if it is time.
    pub(super) fn pack_later(self: &Arc<Self>, owner: Owner, gathered: &Gathered, now: Timestamp) {
        let settled_us = self.settled_us();
        if !gathered.is_to_be_packed(self.options.rows_max, settled_us, now) {
            return;
        }
        let key = PackedOwner::from(owner.uuid());
        let is_first = self.packing.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        let Some(plan) = is_first
            .then(|| gathered.plan(owner, settled_us, PACKED_ROWS_MAX, now, ChangeId(id::fresh(now))))
            .flatten()
        else {
            return;
        };
        let inner = self.clone();
        tokio::spawn(async move {
            // Whoever decided first, the cart folds to the same; a lost answer needs no asking back.
            if let Ok(_turn) = inner.packers.acquire().await
                && let Err(error) = inner.carry_out(owner, plan).await
            {
                // The next who reads the cart will try again.
                tracing::debug!(%error, "a cart could not be packed");
            }
            inner.packing.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        });
    }

    /// Writes the packed row and removes all that goes, or neither. However large that is: what a batch may hold is limited
    /// for those only that decide nothing.
    pub(super) async fn carry_out(&self, owner: Owner, plan: Plan) -> StoreResult<Decided> {
        let (pack, mut rows) = bound(owner, plan);
        let mut statements = vec![&self.remove; rows.len()];
        statements.push(&self.pack);
        rows.push(Batched::Pack(pack));
        self.link.decide_batch(&self.link.batch("pack", &statements), &rows, owed(owner)).await
    }
}

fn bound(owner: Owner, plan: Plan) -> (PackRow, Vec<Batched>) {
    let Plan { expected, packed, touched_at, expires_at, created_at, version, rows, removed } = plan;
    let (kind, id) = rows::key(owner);
    let pack = PackRow {
        ttl_s: stamps::ttl_s(kept_until(touched_at, expires_at)),
        touched_at: CqlTimestamp(touched_at.as_millis()),
        expires_at: CqlTimestamp(expires_at.as_millis()),
        body: mobimir_codec::cart_change::encode(&packed),
        created_at: CqlTimestamp(created_at.as_millis()),
        pack_id: packed.id.0,
        version,
        rows,
        owner: (kind, id),
        expected: expected.map(|id| id.0),
    };
    let remove = |(change, written_us)| Batched::Remove((kind, id, change, written_us));
    (pack, removed.into_iter().map(remove).collect())
}
