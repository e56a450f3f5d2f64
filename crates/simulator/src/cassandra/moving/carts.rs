//! Carts: a copy becomes the packed row, and all other rows that were read go with it.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use mobimir_cassandra::{Gathered, PackPlan, StoredRow};
use mobimir_core::{
    cart::{CartChange, CartPosition, Owner, StoredCart},
    id::ChangeId,
    moving::{
        Backlog, Found, InTable, Mark, Movable, Place, Range, Row, Rows as MovedRows, Scanned, Whole,
        WholeCart,
    },
    page::Page,
    ports::{CartStore, StoreResult},
    time::Timestamp,
};
use uuid::Uuid;

use super::{
    super::{
        Carts, Cell, Key, Level, Outcome, Rows, Value,
        carts::{TABLE, owner_of, partition, row_key, stored},
        packed_id,
    },
    Moving, PUT_DECISIONS_MAX,
};
use crate::{
    network::{unavailable, unknown},
    planted::PlantedFault,
};

impl Moving<Carts> {
    async fn all(&self) -> StoreResult<Vec<WholeCart>> {
        let rows = self.table("carts", TABLE).await?;
        let mut of_owners = BTreeMap::<Arc<[u8]>, Vec<StoredRow>>::new();
        for (key, cell) in rows {
            if let Some(Value::CartRow(row)) = cell.value {
                of_owners.entry(key.partition).or_default().push(row);
            }
        }
        let carts = of_owners.into_iter().filter_map(|(partition, rows)| {
            let owner = owner_of(&partition)?;
            Gathered::of(rows).whole(owner)
        });
        Ok(carts.collect())
    }

    async fn put_one(&self, copy: &WholeCart, now: Timestamp) -> StoreResult<()> {
        let (owner, world) = (copy.owner, self.ring.world());
        let mut rows = self.store.rows(owner).await?;
        for _ in 0..PUT_DECISIONS_MAX {
            let gathered = Gathered::of(rows);
            let ignores_versions = world.planted(PlantedFault::CopiedWithoutVersion);
            if gathered.version() >= copy.version && !ignores_versions {
                return Ok(());
            }
            let id = ChangeId(self.store.environment.ids.fresh(now));
            let plan = gathered.replacement(copy, now, id);
            if let Outcome::Applied = self.replace(owner, plan).await? {
                return self.remove_fresh(owner, &gathered).await;
            }
            rows = self.rows_decided(owner).await?;
        }
        Err(unknown("cart_put"))
    }

    async fn replace(&self, owner: Owner, plan: PackPlan) -> StoreResult<Outcome> {
        let partition = partition(owner);
        let put = move |rows: &Rows| {
            if packed_id(&stored(rows)) != plan.expected {
                return None;
            }
            let gone = plan.removed.iter().map(|(id, written_us)| row_key(owner, *id, *written_us));
            let mut cells: Vec<(Key, Cell)> = gone.map(|key| (key, Cell::tombstone(0))).collect();
            let packed = StoredRow {
                id: Uuid::nil(),
                written_us: 0,
                touched_at: plan.touched_at,
                expires_at: plan.expires_at,
                change: Some(plan.packed),
                created_at: Some(plan.created_at),
                version: plan.version,
                rows: plan.rows,
            };
            cells.push((row_key(owner, Uuid::nil(), 0), Cell::new(0, Value::CartRow(packed))));
            Some(cells)
        };
        self.store.link.decide("cart_put", Level::LocalQuorum, TABLE, &partition, &partition, put).await
    }

    /// A decision has the stamp of the cluster's clock, which may be behind that of who wrote a row just now.
    async fn remove_fresh(&self, owner: Owner, gathered: &Gathered) -> StoreResult<()> {
        let settled_us = self.store.settled_us().await?;
        let fresh = gathered.unpacked().into_iter().filter(|(_, written_us)| *written_us > settled_us);
        let cells: Vec<(Key, Cell)> = fresh
            .map(|(id, written_us)| (row_key(owner, id, written_us), Cell::tombstone(written_us)))
            .collect();
        if cells.is_empty() {
            return Ok(());
        }
        self.store.link.write("cart_put", Level::LocalQuorum, cells, &partition(owner)).await
    }

    async fn rows_decided(&self, owner: Owner) -> StoreResult<Vec<StoredRow>> {
        Ok(stored(&self.store.link.read_decided("cart_read", TABLE, &partition(owner)).await?))
    }
}

#[async_trait]
impl Movable<WholeCart> for Moving<Carts> {
    fn tables(&self) -> &'static [&'static str] {
        &[TABLE]
    }

    async fn whole(&self, owner: Owner) -> StoreResult<Found<WholeCart>> {
        let waiting = self.outbox.of(owner).await?;
        let whole = Gathered::of(self.store.rows(owner).await?).whole(owner);
        Ok(waiting.found(whole))
    }

    async fn count(&self) -> StoreResult<u64> {
        Ok(self.all().await?.len() as u64)
    }

    async fn ranges(&self, _parts: usize) -> StoreResult<Vec<Range>> {
        Ok(vec![Range::default()])
    }

    async fn scan(&self, _range: &Range, _limit: usize) -> StoreResult<Scanned<WholeCart>> {
        Ok(Scanned { items: self.all().await?.into_iter().map(Ok).collect(), next: None })
    }

    async fn put(&self, wholes: Vec<WholeCart>, now: Timestamp) -> StoreResult<()> {
        for whole in wholes.iter().filter(|whole| whole.cart.expires_at > now) {
            self.put_one(whole, now).await?;
        }
        Ok(())
    }

    async fn in_tables(&self, whole: &WholeCart) -> StoreResult<Vec<InTable>> {
        let stored = Gathered::of(self.store.rows(whole.owner).await?).whole(whole.owner);
        Ok(vec![InTable { table: TABLE, facts: stored.map(|stored| stored.facts()) }])
    }

    async fn rows(
        &self,
        _table: &'static str,
        _after: Option<&Place>,
        _limit: usize,
    ) -> StoreResult<MovedRows<Owner>> {
        let row = |cart: WholeCart| Row { key: cart.owner, facts: cart.facts(), place: Place(Vec::new()) };
        let items = self.all().await?.into_iter().map(row).collect();
        Ok(MovedRows { items, nameless: Vec::new(), next: None })
    }

    async fn remove(&self, _table: &'static str, _row: &Row<Owner>) -> StoreResult<()> {
        Err(unavailable("repairs are not simulated"))
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<Owner>>> {
        self.outbox.unmirrored(limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.outbox.backlog::<Owner>().await
    }

    async fn mirrored(&self, marks: &[Mark<Owner>], _read_at: Timestamp) -> StoreResult<()> {
        self.outbox.remove(marks).await
    }

    async fn nobody_writes(&self) -> StoreResult<()> {
        self.outbox.nobody_writes::<Owner>().await
    }
}

#[async_trait]
impl CartStore for Moving<Carts> {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        self.write(&[owner], self.store.append(owner, changes, expires_at, now)).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        self.store.read(owner, now).await
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.store.untouched(untouched_since, after, limit, now).await
    }
}
