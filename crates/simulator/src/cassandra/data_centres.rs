//! One entity's way of one instance to the ring, as the adapter's `link` goes it: local means local, and what
//! goes on without a data centre is recorded, noted as owed, and brought over. Which way a statement goes is
//! decided by the adapter's own rules.

use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mobimir_cassandra::{DcLossRules, DcStanding, DcState, Span, StatementKind, Variants};
use mobimir_core::{
    policy::{BUILT_IN, CassandraSettings, Entity, OnDcLoss, Policy},
    ports::{StoreError, StoreResult},
    time::Timestamp,
};
use mobimir_shop::environment::Environment;

use super::{Cell, DCS, Failed, HOME, Key, Level, Outcome, Ring, Rows, Stamps, Value, open};
use crate::{
    network::{Kind, Network, unavailable, unknown},
    planted::PlantedFault,
    world::lock,
};

/// As in the adapter.
const WATCH_PERIOD: Duration = Duration::from_secs(2);
const DEGRADED_MAX: usize = 2;
const LOOKS_PER_SWEEP: u32 = 30;

const STATE: &str = "state";
const OWED: &str = "owed";

/// Who knows how to bring over what is owed.
#[async_trait]
pub trait Debts: Send + Sync {
    async fn settle(&self, key: &[u8]) -> StoreResult<()>;
}

#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    ring: Ring,
    network: Network,
    stamps: Stamps,
    entity: Entity,
    rules: DcLossRules,
    /// Where nothing goes on without a data centre, what was written everywhere is read anywhere.
    is_read_anywhere: bool,
    has_read_repair: bool,
    local: usize,
    standing: Mutex<(DcState, usize)>,
    changing: tokio::sync::Mutex<()>,
    writing: AtomicUsize,
    debts: OnceLock<Weak<dyn Debts>>,
}

/// Somebody who writes while the entity is degraded.
struct Writing<'a>(&'a AtomicUsize);

impl<'a> Writing<'a> {
    fn begin(writing: &'a AtomicUsize) -> Self {
        writing.fetch_add(1, Ordering::SeqCst);
        Self(writing)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the shipped policy says of the entity.
fn settings(entity: Entity) -> CassandraSettings {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    #[expect(clippy::expect_used, reason = "a shipped policy is sound and has these entities in Cassandra")]
    let policy = POLICY.get_or_init(|| {
        let text = BUILT_IN.iter().find(|policy| policy.name == "default").map(|policy| policy.text);
        text.and_then(|text| Policy::parse(text, "default").ok()).expect("the default policy")
    });
    #[expect(clippy::expect_used, reason = "as above")]
    policy.placement(entity).and_then(|placement| placement.cassandra.clone()).expect("in Cassandra")
}

fn span_of(level: Level) -> Span {
    match level {
        Level::LocalQuorum => Span::Local,
        Level::EachQuorum => Span::Every,
    }
}

impl Link {
    pub fn open(
        ring: Ring,
        network: Network,
        environment: &Environment,
        entity: Entity,
        local: usize,
    ) -> Self {
        let goes_on = |entity| {
            let mut settings = settings(entity);
            let goes_on = ring.features().goes_on_without_dc(entity);
            settings.on_dc_loss = if goes_on { OnDcLoss::LocalQuorum } else { OnDcLoss::Refuse };
            settings
        };
        let of_entity = goes_on(entity);
        // What orders take out of carts is written as orders are.
        let watched = match entity {
            Entity::Carts => {
                let orders = goes_on(Entity::Orders);
                CassandraSettings { write: orders.write, on_dc_loss: orders.on_dc_loss, ..of_entity.clone() }
            }
            _ => of_entity.clone(),
        };
        let rules = DcLossRules::of(&of_entity, &watched);
        // A separate history is written and read by the local data centre alone.
        let is_read_anywhere = !ring.features().has_history_apart
            && of_entity.on_dc_loss == OnDcLoss::Refuse
            && of_entity.write.needs_every_dc(&of_entity.replication);
        let inner = Inner {
            stamps: Stamps::new(environment.clock.clone()),
            ring,
            network,
            entity,
            rules,
            is_read_anywhere,
            has_read_repair: of_entity.read_repair,
            local,
            standing: Mutex::new((DcState::Whole, local)),
            changing: tokio::sync::Mutex::default(),
            writing: AtomicUsize::new(0),
            debts: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Looks after lost data centres from now on, as long as `debts` lives.
    pub fn watch(&self, debts: Weak<dyn Debts>, environment: &Environment) {
        let inner = &self.inner;
        if !inner.ring.features().loses_data_centres || !inner.rules.go_on() {
            return;
        }
        let _ = inner.debts.set(debts);
        let inner = Arc::downgrade(inner);
        environment.tasks.spawn(Box::pin(async move {
            let mut looks = 0u32;
            if let Some(inner) = inner.upgrade() {
                let _ = inner.learn().await;
            }
            loop {
                tokio::time::sleep(WATCH_PERIOD).await;
                let Some(inner) = inner.upgrade() else { return };
                // What failed is tried again by the next look.
                let _ = inner.look(looks.is_multiple_of(LOOKS_PER_SWEEP)).await;
                looks = looks.wrapping_add(1);
            }
        }));
    }

    pub async fn write(
        &self,
        name: &'static str,
        level: Level,
        cells: Vec<(Key, Cell)>,
        owed: &[u8],
    ) -> StoreResult<()> {
        let inner = &*self.inner;
        let span = span_of(level);
        let (mut is_lost, mut degraded) = (false, 0);
        loop {
            let of_write = |error| if is_lost { open(error) } else { error };
            let writing = Writing::begin(&inner.writing);
            let Some(variant) = inner.rules.for_writes(inner.standing(), span) else {
                return Err(of_write(inner.refused(name)));
            };
            let writing = Some(writing).filter(|_| variant == Variants::Degraded);
            if writing.is_some() {
                inner.owe(owed).await.map_err(of_write)?;
            }
            let (from, sent) = match variant {
                Variants::Degraded => (inner.surviving(), Level::LocalQuorum),
                Variants::Everywhere => (inner.local, Level::EachQuorum),
                _ => (inner.asked_locally(), level),
            };
            // What is written elsewhere than next to the writer is nobody's but the writer's to bring over.
            let is_owed = writing.is_some() || from != inner.local;
            match inner.send(name, from, sent, cells.clone(), is_owed).await.map_err(of_write)? {
                Ok(()) if writing.is_some() => {
                    inner.ring.world().note("written without a data centre", name);
                    return inner.owe(owed).await.map_err(open);
                }
                Ok(()) => return Ok(()),
                Err(failed) => {
                    degraded += 1;
                    is_lost |= failed == Failed::NoAnswer;
                    let may = inner.rules.may_degrade(failed.lack(), span, StatementKind::Write, variant);
                    if degraded > DEGRADED_MAX || !may {
                        return Err(inner.failed(name, is_lost));
                    }
                    drop(writing);
                    let degraded = inner.degrade(span).await;
                    degraded.map_err(|error| if is_lost { open(error) } else { error })?;
                }
            }
        }
    }

    /// In every data centre, which is how one that was lost gets what it lacks.
    pub async fn write_everywhere(&self, name: &'static str, cells: Vec<(Key, Cell)>) -> StoreResult<()> {
        let inner = &*self.inner;
        let sent = inner.send(name, inner.local, Level::EachQuorum, cells, false).await?;
        sent.map_err(|failed| inner.failed(name, failed == Failed::NoAnswer))
    }

    pub async fn read(&self, name: &'static str, table: &'static str, partition: &[u8]) -> StoreResult<Rows> {
        let inner = &*self.inner;
        let mut degraded = 0;
        loop {
            let Some(variant) = inner.rules.for_reads(inner.standing(), Span::Local) else {
                return Err(inner.refused(name));
            };
            let dcs = match variant {
                Variants::Everywhere => (0..DCS).collect(),
                Variants::Surviving => vec![inner.surviving()],
                _ if inner.is_read_anywhere && inner.ring.is_lost(inner.local) => vec![1 - inner.local],
                _ => vec![inner.asked_locally()],
            };
            let failed = match inner.ask(name, dcs, table, partition).await? {
                Ok(rows) => return Ok(rows),
                Err(failed) => failed,
            };
            degraded += 1;
            let may = inner.rules.may_degrade(failed.lack(), Span::Local, StatementKind::Read, variant);
            if degraded > DEGRADED_MAX || !may {
                return Err(inner.failed(name, false));
            }
            inner.degrade(Span::Local).await?;
        }
    }

    /// The time of the cluster.
    pub async fn time(&self, name: &'static str) -> StoreResult<Timestamp> {
        let (ring, dc) = (self.inner.ring.clone(), self.inner.asked_locally());
        let asked = async move { Ok(ring.time(dc)) };
        self.inner.network.call(Kind::Read, name, asked).await?.map_err(|_| unavailable(name))
    }

    /// What stands in any data centre.
    pub async fn read_everywhere(
        &self,
        name: &'static str,
        table: &'static str,
        partition: &[u8],
    ) -> StoreResult<Rows> {
        let read = self.inner.ask(name, (0..DCS).collect(), table, partition).await?;
        read.map_err(|_| unavailable(name))
    }

    /// Reads from all replicas everywhere, which repairs those that lack something.
    pub async fn read_of_all_replicas(
        &self,
        name: &'static str,
        table: &'static str,
        partition: &[u8],
    ) -> StoreResult<Rows> {
        let (ring, of) = (self.inner.ring.clone(), partition.to_vec());
        let read = async move { Ok(ring.read_of_all_replicas(table, &of).await) };
        self.inner.network.call(Kind::Read, name, read).await?.map_err(|_| unavailable(name))
    }

    pub async fn read_decided(
        &self,
        name: &'static str,
        table: &'static str,
        partition: &[u8],
    ) -> StoreResult<Rows> {
        let inner = &*self.inner;
        let (ring, of, home) = (inner.ring.clone(), partition.to_vec(), inner.decides_in());
        let read = async move { Ok(ring.read_decided(home, table, &of).await) };
        inner.network.call(Kind::Read, name, read).await?.map_err(|_| unavailable(name))
    }

    /// A conditional write: `plan` says what to write when it likes what it sees.
    pub async fn decide(
        &self,
        name: &'static str,
        level: Level,
        table: &'static str,
        partition: &[u8],
        owed: &[u8],
        plan: impl FnOnce(&Rows) -> Option<Vec<(Key, Cell)>> + Send + 'static,
    ) -> StoreResult<Outcome> {
        let inner = &*self.inner;
        let writing = Writing::begin(&inner.writing);
        let standing = inner.standing();
        let may_anywhere = inner.ring.world().planted(PlantedFault::DecidedInSurvivingDc);
        let variant = match inner.rules.for_decisions(standing) {
            Some(variant) => variant,
            None if may_anywhere => Variants::Degraded,
            None => {
                inner.ring.world().note("decision refused without home", name);
                return Err(unavailable(name));
            }
        };
        let writing = Some(writing).filter(|_| variant == Variants::Degraded);
        if standing.state == DcState::Recovering && !standing.is_at_home {
            let debts = inner.debts.get().and_then(Weak::upgrade).ok_or_else(|| unavailable(name))?;
            debts.settle(owed).await?;
        }
        if writing.is_some() {
            inner.owe(owed).await?;
        }
        let sent = match variant {
            Variants::Degraded => Level::LocalQuorum,
            Variants::Everywhere => Level::EachQuorum,
            _ => level,
        };
        let (ring, of, home, is_owed) =
            (inner.ring.clone(), partition.to_vec(), inner.decides_in(), writing.is_some());
        let decide = async move { Ok(ring.decide(name, home, sent, table, &of, is_owed, plan).await) };
        let (outcome, failed) = match inner.network.call(Kind::Write, name, decide).await? {
            Ok(decided) => decided,
            Err(_) => return Err(unavailable(name)),
        };
        // Commit is the last step of a decision: a lack of replicas there leaves it decided.
        if let Some(failed) = failed
            && inner.rules.may_degrade(failed.lack(), span_of(level), StatementKind::Decision, variant)
        {
            let _ = inner.degrade(span_of(level)).await;
        }
        if outcome == Outcome::Applied && writing.is_some() && inner.owe(owed).await.is_err() {
            return Ok(Outcome::Lost);
        }
        Ok(outcome)
    }
}

impl Inner {
    fn standing(&self) -> DcStanding {
        let (state, surviving) = *lock(&self.standing);
        match state {
            DcState::Whole => DcStanding { state, is_in_local_dc: true, is_at_home: true },
            _ => DcStanding { state, is_in_local_dc: surviving == self.local, is_at_home: surviving == HOME },
        }
    }

    fn state(&self) -> DcState {
        lock(&self.standing).0
    }

    fn surviving(&self) -> usize {
        lock(&self.standing).1
    }

    fn set(&self, state: DcState) {
        let before = std::mem::replace(&mut lock(&self.standing).0, state);
        if before != state {
            let event = match state {
                DcState::Whole => "entity whole again",
                DcState::Degraded => "entity degraded",
                DcState::Recovering => "entity recovering",
            };
            self.ring.world().note(event, (self.entity, self.local));
        }
    }

    /// The local data centre, and no other.
    fn asked_locally(&self) -> usize {
        let fails_over = self.ring.world().planted(PlantedFault::LocalFailsOver);
        if fails_over && self.ring.is_lost(self.local) { 1 - self.local } else { self.local }
    }

    fn decides_in(&self) -> usize {
        let elsewhere = self.ring.world().planted(PlantedFault::DecidedInSurvivingDc);
        if elsewhere && self.state() == DcState::Degraded { self.surviving() } else { HOME }
    }

    fn refused(&self, name: &'static str) -> StoreError {
        self.ring.world().note("refused without a data centre", name);
        unavailable(name)
    }

    fn failed(&self, name: &'static str, is_lost: bool) -> StoreError {
        if self.ring.is_any_lost() {
            self.ring.world().note("refused without a data centre", name);
        }
        if is_lost { unknown(name) } else { unavailable(name) }
    }

    async fn send(
        &self,
        name: &'static str,
        from: usize,
        level: Level,
        cells: Vec<(Key, Cell)>,
        is_owed: bool,
    ) -> StoreResult<Result<(), Failed>> {
        let ring = self.ring.clone();
        let write = async move { Ok(ring.write(from, level, cells, is_owed).await) };
        self.network.call(Kind::Write, name, write).await
    }

    async fn ask(
        &self,
        name: &'static str,
        dcs: Vec<usize>,
        table: &'static str,
        partition: &[u8],
    ) -> StoreResult<Result<Rows, Failed>> {
        let (ring, of, repairs) = (self.ring.clone(), partition.to_vec(), self.has_read_repair);
        let read = async move { Ok(ring.read(&dcs, table, &of, repairs).await) };
        self.network.call(Kind::Read, name, read).await
    }

    fn key(&self, table: &'static str, row: &[u8]) -> Key {
        Key::new(table, self.entity.to_string().as_bytes(), row)
    }

    /// Writes at LOCAL_QUORUM in one data centre, or in every.
    async fn note_down(
        &self,
        name: &'static str,
        dc: Option<usize>,
        key: Key,
        cell: Cell,
    ) -> StoreResult<()> {
        let (from, level) = dc.map_or((self.local, Level::EachQuorum), |dc| (dc, Level::LocalQuorum));
        let sent = self.send(name, from, level, vec![(key, cell)], false).await?;
        sent.map_err(|_| unavailable(name))
    }

    async fn owe(&self, owed: &[u8]) -> StoreResult<()> {
        if self.ring.world().planted(PlantedFault::NothingOwed) {
            return Ok(());
        }
        let cell = Cell::new(self.stamps.next(), Value::Nothing);
        self.note_down("owe", Some(self.surviving()), self.key(OWED, owed), cell).await
    }

    async fn record(&self) -> StoreResult<()> {
        let cell = Cell::new(self.stamps.next(), Value::Surviving(self.surviving()));
        self.note_down("record", Some(self.surviving()), self.key(STATE, b"degraded"), cell).await
    }

    async fn degrade(&self, span: Span) -> StoreResult<()> {
        let _changing = self.changing.lock().await;
        match self.state() {
            DcState::Degraded => return Ok(()),
            DcState::Recovering => {}
            DcState::Whole => {
                let here = Some(self.local).filter(|_| span == Span::Every);
                let mut left = None;
                for dc in here.into_iter().chain((0..DCS).filter(|dc| *dc != self.local)) {
                    if matches!(self.recorded_in(dc).await, Ok(Ok(_))) {
                        left = Some(dc);
                        break;
                    }
                }
                let Some(left) = left else { return Err(self.refused("degrade")) };
                lock(&self.standing).1 = left;
            }
        }
        self.record().await?;
        self.set(DcState::Degraded);
        Ok(())
    }

    async fn recorded_in(&self, dc: usize) -> StoreResult<Result<Option<usize>, Failed>> {
        let Key { table, partition, row } = self.key(STATE, b"degraded");
        let rows = self.ask("recorded", vec![dc], table, &partition).await?;
        let recorded = |rows: Rows| {
            rows.into_iter().find(|(key, _)| key.row == row).and_then(|(_, cell)| match cell.value {
                Some(Value::Surviving(dc)) => Some(dc),
                _ => None,
            })
        };
        Ok(rows.map(recorded))
    }

    /// Follows what others have written down.
    async fn learn(&self) -> StoreResult<()> {
        let mut failed = None;
        for dc in 0..DCS {
            match self.recorded_in(dc).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(surviving))) => {
                    let _changing = self.changing.lock().await;
                    if self.state() == DcState::Whole {
                        lock(&self.standing).1 = surviving;
                        self.set(DcState::Recovering);
                    }
                    return Ok(());
                }
                Ok(Err(_)) => failed = Some(unavailable("recorded")),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// One look at how things stand, and the next step.
    async fn look(&self, sweeps: bool) -> StoreResult<()> {
        match self.state() {
            DcState::Whole => {
                self.learn().await?;
                if sweeps && self.state() == DcState::Whole {
                    self.settle_all().await?;
                }
            }
            DcState::Degraded => {
                self.record().await?;
                let probe = Cell::new(self.stamps.next(), Value::Nothing);
                self.note_down("probe", None, self.key(STATE, b"probe"), probe).await?;
                self.set(DcState::Recovering);
            }
            DcState::Recovering => {
                let before = self.stamps.next();
                let nobody_is_late = self.writing.load(Ordering::SeqCst) == 0;
                let is_early = self.ring.world().planted(PlantedFault::WholeBeforeOwedIsBrought);
                let settled = if is_early { 0 } else { self.settle_all().await? };
                let _changing = self.changing.lock().await;
                if settled > 0 || !nobody_is_late || self.state() != DcState::Recovering {
                    return Ok(());
                }
                let (key, cell) = (self.key(STATE, b"degraded"), Cell::tombstone(before));
                self.note_down("clear", None, key, cell).await?;
                self.set(DcState::Whole);
            }
        }
        Ok(())
    }

    /// Brings over what is owed now; says how much that was.
    async fn settle_all(&self) -> StoreResult<usize> {
        let Some(debts) = self.debts.get().and_then(Weak::upgrade) else { return Ok(0) };
        let Key { partition, .. } = self.key(OWED, b"");
        let mut settled = 0;
        for dc in 0..DCS {
            let rows =
                self.ask("owed", vec![dc], OWED, &partition).await?.map_err(|_| unavailable("owed"))?;
            let keys: Vec<Vec<u8>> = rows
                .into_iter()
                .filter(|(_, cell)| cell.value.is_some())
                .map(|(key, _)| key.row.to_vec())
                .collect();
            let before = self.stamps.next();
            for key in keys {
                debts.settle(&key).await?;
                // What is owed again since then stays owed.
                self.note_down("pay", None, self.key(OWED, &key), Cell::tombstone(before)).await?;
                self.ring.world().note("owed brought over", (self.entity, &key));
                settled += 1;
            }
        }
        Ok(settled)
    }
}
