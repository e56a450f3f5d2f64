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
use crate::{
    link::{Decided, damaged},
    stamps,
};

/// Carts that one instance packs at the same time.
pub(super) const PACKED_AT_ONCE: usize = 4;
/// Rows that go into one packed row at a time.
const PACKED_ROWS_MAX: usize = 200;

/// What was written before this can be removed by every clock of the cluster: a decision has the stamp of its
/// coordinator, and removes no row whose writer's clock was ahead of that. Of an instance that is ahead itself the
/// clock says nothing about that.
pub fn settled_us(own: Timestamp, clusters: Timestamp, packed_after_ms: i64) -> i64 {
    (own.min(clusters).as_millis() - packed_after_ms) * 1_000
}

impl Inner {
    pub(super) async fn settled_us(&self) -> StoreResult<i64> {
        let row = self.link.read(&self.clock, ()).await?;
        let (clusters_ms,) = row.single_row::<(i64,)>().map_err(|error| damaged("the time", error))?;
        let clusters = Timestamp::from_millis(clusters_ms);
        Ok(settled_us(stamps::real_now(), clusters, self.options.packed_after_ms))
    }

    /// Packs the cart in the background, if it is time.
    pub(super) fn pack_later(self: &Arc<Self>, owner: Owner, gathered: &Gathered, now: Timestamp) {
        let own = stamps::real_now();
        let at_most_us = settled_us(own, own, self.options.packed_after_ms);
        let key = PackedOwner::from(owner.uuid());
        if !gathered.is_to_be_packed(self.options.rows_max, at_most_us, now)
            || !self.packing.lock().unwrap_or_else(PoisonError::into_inner).insert(key)
        {
            return;
        }
        let (inner, gathered) = (self.clone(), gathered.clone());
        tokio::spawn(async move {
            // Whoever decided first, the cart folds to the same; a lost answer needs no asking back.
            if let Ok(_turn) = inner.packers.acquire().await
                && let Err(error) = inner.pack(owner, &gathered, now).await
            {
                // The next who reads the cart will try again.
                tracing::debug!(%error, "a cart could not be packed");
            }
            inner.packing.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        });
    }

    async fn pack(&self, owner: Owner, gathered: &Gathered, now: Timestamp) -> StoreResult<()> {
        let settled_us = self.settled_us().await?;
        if !gathered.is_to_be_packed(self.options.rows_max, settled_us, now) {
            return Ok(());
        }
        let plan = gathered.plan(owner, settled_us, PACKED_ROWS_MAX, now, ChangeId(id::fresh(now)));
        match plan {
            Some(plan) => self.carry_out(owner, plan).await.map(drop),
            None => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// It would remove rows by a decision whose stamp is earlier than theirs: they would stay, and what they say
    /// would be sold once more when the packed row has forgotten it.
    #[test]
    fn an_instance_that_is_ahead_packs_nothing_that_is_new_to_the_cluster() {
        let (clusters, off_ms) = (Timestamp::from_millis(1_000_000), 90_000);
        let settled = |own| settled_us(own, clusters, 60_000);
        assert_eq!(settled(clusters), 940_000_000);
        assert_eq!(settled(clusters.plus_ms(off_ms)), 940_000_000);
        assert_eq!(settled(clusters.plus_ms(-off_ms)), 850_000_000);
    }
}
