//! Carts: a row a change. What a cart is, and how it is packed, is the adapter's own code.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use mobimir_cassandra::{Gathered, PackPlan, StoredRow, settled_us};
use mobimir_core::{
    cart::{CartChange, CartPosition, Effect, Owner, StoredCart},
    id::{ChangeId, SessionId, UserId},
    page::Page,
    policy::Entity,
    ports::{CartStore, StoreResult},
    time::Timestamp,
};
use mobimir_shop::environment::Environment;
use uuid::Uuid;

use super::{Cell, Debts, Key, Level, Link, Ring, Rows, Stamps, Value, packed_id};
use crate::{network::Network, planted::PlantedFault, world::lock};

pub(super) const TABLE: &str = "cart_changes";
/// Small, so that carts are packed often.
const ROWS_MAX: usize = 3;
const PACKED_ROWS_MAX: usize = 200;
/// As the adapter has it: more than the clocks of a cluster differ by.
const PACKED_AFTER_MS: i64 = 60_000;

#[derive(Clone)]
pub struct Carts {
    pub(super) ring: Ring,
    pub(super) link: Link,
    pub(super) environment: Environment,
    pub(super) stamps: Stamps,
    packing: Arc<Mutex<BTreeSet<Owner>>>,
    /// When this instance last listed a cart as touched.
    pub(super) listed: Arc<Mutex<BTreeMap<Owner, Timestamp>>>,
}

impl Carts {
    pub fn open(ring: Ring, network: Network, environment: Environment, dc: usize) -> Arc<Self> {
        let stamps = Stamps::new(environment.clock.clone());
        let link = Link::open(ring.clone(), network, &environment, Entity::Carts, dc);
        let carts = Arc::new(Self {
            ring,
            link,
            environment,
            stamps,
            packing: Arc::default(),
            listed: Arc::default(),
        });
        let debts: Arc<dyn Debts> = carts.clone();
        carts.link.watch(Arc::downgrade(&debts), &carts.environment);
        carts
    }

    pub(super) fn planted(&self, fault: PlantedFault) -> bool {
        self.ring.world().planted(fault)
    }

    pub(super) async fn rows(&self, owner: Owner) -> StoreResult<Vec<StoredRow>> {
        Ok(stored(&self.link.read("cart_read", TABLE, &partition(owner)).await?))
    }

    /// As the adapter does it: by the time of the cluster and the own one, whichever is earlier.
    pub(super) async fn settled_us(&self) -> StoreResult<i64> {
        let clusters = self.link.time("cart_clock").await?;
        let own = self.stamps.now();
        if own > clusters.plus_ms(PACKED_AFTER_MS) {
            self.ring.world().note("far ahead and about to pack", own.since(clusters));
        }
        let clusters = if self.planted(PlantedFault::PacksByOwnClock) { own } else { clusters };
        Ok(settled_us(own, clusters, PACKED_AFTER_MS))
    }

    fn pack_later(&self, owner: Owner, gathered: &Gathered, now: Timestamp) {
        let own = self.stamps.now();
        let at_most_us = settled_us(own, own, PACKED_AFTER_MS);
        if !gathered.is_to_be_packed(ROWS_MAX, at_most_us, now) || !lock(&self.packing).insert(owner) {
            return;
        }
        let (this, gathered) = (self.clone(), gathered.clone());
        self.environment.tasks.spawn(Box::pin(async move {
            this.pack(owner, &gathered, now).await;
            lock(&this.packing).remove(&owner);
        }));
    }

    async fn pack(&self, owner: Owner, gathered: &Gathered, now: Timestamp) {
        let Ok(settled_us) = self.settled_us().await else { return };
        if !gathered.is_to_be_packed(ROWS_MAX, settled_us, now) {
            return;
        }
        let id = ChangeId(self.environment.ids.fresh(now));
        if let Some(plan) = gathered.plan(owner, settled_us, PACKED_ROWS_MAX, now, id) {
            self.carry_out(owner, plan).await;
        }
    }

    async fn carry_out(&self, owner: Owner, mut plan: PackPlan) {
        let world = self.ring.world().clone();
        if world.planted(PlantedFault::PackingRenamesParts)
            && let Effect::Packed(packed) = &mut plan.packed.effect
        {
            packed.parts.iter_mut().for_each(|part| part.id = ChangeId(self.environment.ids.fresh(part.at)));
        }
        if world.planted(PlantedFault::PackingForgetsCovered)
            && let Effect::Packed(packed) = &mut plan.packed.effect
        {
            packed.remembered.clear();
        }
        let what = (owner, plan.expected, plan.packed.clone(), plan.removed.clone());
        let (ring, partition) = (self.ring.clone(), partition(owner));
        let decide =
            self.link.decide("cart_pack", Level::LocalQuorum, TABLE, &partition, &partition, move |rows| {
                let takes_all = ring.world().planted(PlantedFault::PackingRemovesUnseenRows);
                let removed = |row: &StoredRow| takes_all || plan.removed.contains(&(row.id, row.written_us));
                let seen = stored(rows);
                if packed_id(&seen) != plan.expected
                    && !ring.world().planted(PlantedFault::PackedUnconditionally)
                {
                    return None;
                }
                let gone = seen.iter().filter(|row| !row.is_packed()).filter(|row| removed(row));
                let mut cells: Vec<(Key, Cell)> =
                    gone.map(|row| (row_key(owner, row.id, row.written_us), Cell::tombstone(0))).collect();
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
            });
        if let Ok(outcome) = decide.await {
            world.note("cart packed", (outcome, what));
        }
    }
}

/// Whose partition it is.
pub(super) fn owner_of(partition: &[u8]) -> Option<Owner> {
    let (kind, id) = partition.split_first()?;
    let id = Uuid::from_slice(id).ok()?;
    Some(if *kind == 0 { Owner::User(UserId(id)) } else { Owner::Guest(SessionId(id)) })
}

pub(super) fn partition(owner: Owner) -> Vec<u8> {
    let kind = match owner {
        Owner::User(_) => 0,
        Owner::Guest(_) => 1,
    };
    [&[kind], owner.uuid().as_bytes().as_slice()].concat()
}

pub(super) fn row_key(owner: Owner, id: Uuid, written_us: i64) -> Key {
    let row = [id.as_bytes().as_slice(), &written_us.to_be_bytes()].concat();
    Key::new(TABLE, &partition(owner), &row)
}

pub(super) fn stored(rows: &Rows) -> Vec<StoredRow> {
    let row = |cell: &Cell| match &cell.value {
        Some(Value::CartRow(row)) => Some(row.clone()),
        _ => None,
    };
    rows.values().filter_map(row).collect()
}

#[async_trait]
impl CartStore for Carts {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let world = self.ring.world();
        // What an order takes out of a cart is as certain as the order.
        let is_cover = |change: &CartChange| matches!(change.effect, Effect::Cover { order: Some(_), .. });
        let is_certain = changes.iter().any(is_cover);
        let level = if is_certain { Level::EachQuorum } else { Level::LocalQuorum };
        let written_us = self.stamps.next();
        world.note("cart written", (owner, written_us, &changes));
        let mut cells: Vec<(Key, Cell)> = changes
            .into_iter()
            .map(|mut change| {
                if world.planted(PlantedFault::SameChangeCountsTwice) {
                    change.id = ChangeId(self.environment.ids.fresh(now));
                }
                let id = change.id.0;
                let row = StoredRow {
                    id,
                    written_us,
                    touched_at: now,
                    expires_at,
                    change: Some(change),
                    created_at: None,
                    version: 0,
                    rows: 0,
                };
                (row_key(owner, id, written_us), Cell::new(written_us, Value::CartRow(row)))
            })
            .collect();
        let touch = self.touch(owner, now, written_us);
        let is_touched = touch.is_some();
        cells.extend(touch);
        let written = self.link.write("cart_append", level, cells, &partition(owner)).await;
        if is_touched && written.is_ok() {
            self.touched(owner, now);
        }
        if written.is_err() && world.planted(PlantedFault::CartWriteAssumed) {
            return Ok(());
        }
        written
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let gathered = Gathered::of(self.rows(owner).await?);
        self.pack_later(owner, &gathered, now);
        Ok(self.live(owner, gathered, now))
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.untouched_since(untouched_since, after, limit, now).await
    }
}

#[async_trait]
impl Debts for Carts {
    async fn settle(&self, key: &[u8]) -> StoreResult<()> {
        self.link.read_of_all_replicas("cart_settle", TABLE, key).await.map(|_| ())
    }
}
