//! Two data centres of three replicas. What is written to one partition arrives at a replica as a whole, what
//! is written to several arrives one by one; of two writes of a row the one with the later stamp wins.
//! Conditional writes are decided one after the other per partition, in the home data centre.

mod carts;
mod data_centres;
pub mod moving;
mod order_history;
mod orders;
mod outbox;
mod sessions;
mod touched;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use mobimir_cassandra::{Lack, StoredRow};
use mobimir_core::{
    cart::Owner,
    id::{ChangeId, SessionId},
    order::{Order, StatusChange},
    ports::StoreError,
    session::{RefreshToken, Session},
    time::Timestamp,
};
use uuid::Uuid;

pub use self::{
    carts::Carts,
    data_centres::{Debts, Link},
    order_history::OrderHistory,
    orders::Orders,
    sessions::Sessions,
};
use crate::{
    features::Features,
    planted::PlantedFault,
    reach::{Absence, Loss},
    world::{Watched, World, lock},
};

pub const REPLICAS_PER_DC: usize = 3;
const DCS: usize = 2;
const QUORUM: usize = 2;
/// The data centre in which conditional writes are decided, and in which all instances are unless the seed has
/// them in both.
pub const HOME: usize = 0;
/// How long hints are kept for a lost data centre.
const HINTS_KEPT_MS: u64 = 15_000;
const WRITE_WAIT: Duration = Duration::from_millis(1_500);
/// So that all have learnt of one loss before the next.
const BETWEEN_LOSSES_MS: i64 = 15_000;

/// How many replicas have to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    LocalQuorum,
    EachQuorum,
}

/// Table, partition and row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub table: &'static str,
    pub partition: Arc<[u8]>,
    pub row: Arc<[u8]>,
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub stamp: i64,
    /// `None` is a tombstone.
    pub value: Option<Value>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub enum Value {
    CartRow(StoredRow),
    Order(Box<Order>, Vec<StatusChange>),
    /// In a list, or in a note of what is to be listed.
    Listed(Box<Order>),
    Session(Box<Session>, Uuid),
    Token(RefreshToken, Option<Uuid>),
    SessionOf(SessionId),
    /// Which data centre goes on without another.
    Surviving(usize),
    Touched(Owner, Timestamp),
    Nothing,
}

pub type Rows = BTreeMap<Key, Cell>;
/// Cells of one partition.
type Mutation = Vec<(Key, Cell)>;
/// Table and partition.
type Partition = (&'static str, Arc<[u8]>);

#[derive(Clone)]
pub struct Ring {
    world: World,
    state: Arc<Mutex<State>>,
    announced: Arc<Watched<Announced>>,
}

/// That a data centre is about to be lost, for those who want to be there.
#[derive(Default)]
struct Announced {
    losses: usize,
    dc: usize,
    is_over: bool,
}

struct State {
    replicas: Vec<Replica>,
    /// What was decided of a partition, and the turns of those who decide.
    decided: BTreeMap<(usize, &'static str, Vec<u8>), Decided>,
    /// The data centre whose nodes nobody else reaches.
    lost: Option<usize>,
    /// The one that is about to be lost: nothing of it reaches the other any more, and nobody knows yet.
    cut_off: Option<usize>,
    /// What could not be sent because of that.
    kept: Vec<Kept>,
    losses: Vec<Loss>,
    absences: Vec<Absence>,
}

struct Kept {
    from: usize,
    node: usize,
    mutation: Mutation,
    is_owed: bool,
}

/// Why a data centre did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// No node could be asked, or too few replicas were alive: nothing was done.
    TooFew,
    /// Too few replicas answered.
    NoAnswer,
}

impl Failed {
    pub fn lack(self) -> Lack {
        Lack { replicas: true, dc: self == Self::TooFew }
    }
}

#[derive(Default)]
struct Replica {
    /// Shared with whoever reads them just now, who goes on to see what he has read.
    partitions: BTreeMap<Partition, Arc<Rows>>,
    is_down: bool,
    hints: Vec<Mutation>,
}

#[derive(Clone, Default)]
struct Decided {
    rows: Rows,
    last_stamp: i64,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// What became of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Applied,
    Refused,
    Lost,
}

impl Cell {
    pub fn new(stamp: i64, value: Value) -> Self {
        Self { stamp, value: Some(value), expires_at: None }
    }

    pub fn tombstone(stamp: i64) -> Self {
        Self { stamp, value: None, expires_at: None }
    }

    pub fn until(self, expires_at: Timestamp) -> Self {
        Self { expires_at: Some(expires_at), ..self }
    }
}

impl Key {
    pub fn new(table: &'static str, partition: &[u8], row: &[u8]) -> Self {
        Self { table, partition: partition.into(), row: row.into() }
    }
}

impl Replica {
    fn put(&mut self, key: Key, cell: Cell) {
        let of_partition = self.partitions.entry((key.table, key.partition.clone())).or_default();
        put(Arc::make_mut(of_partition), key, cell);
    }
}

fn put(rows: &mut Rows, key: Key, cell: Cell) {
    // Of equal stamps a tombstone wins, as in Cassandra.
    let newer = |stored: &Cell| (cell.stamp, cell.value.is_none()) > (stored.stamp, stored.value.is_none());
    if rows.get(&key).is_none_or(newer) {
        rows.insert(key, cell);
    }
}

/// Whether two replicas have the same cells, as they mostly do.
fn are_same(one: &Rows, other: &Rows) -> bool {
    let is_same = |((key, cell), (other_key, other)): ((&Key, &Cell), (&Key, &Cell))| {
        key == other_key && cell.stamp == other.stamp && cell.value.is_none() == other.value.is_none()
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

impl Ring {
    pub fn new(world: World) -> Self {
        let state = State {
            replicas: (0..DCS * REPLICAS_PER_DC).map(|_| Replica::default()).collect(),
            decided: BTreeMap::new(),
            lost: None,
            cut_off: None,
            kept: Vec::new(),
            losses: Vec::new(),
            absences: Vec::new(),
        };
        Self { world, state: Arc::new(Mutex::new(state)), announced: Arc::default() }
    }

    pub fn features(&self) -> Features {
        self.world.plan().features()
    }

    /// The data centre that an instance is next to.
    pub fn dc_of(&self, instance: usize) -> usize {
        if self.features().loses_data_centres { instance % DCS } else { HOME }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    /// One node at most is down in a data centre, so that a quorum is there.
    pub async fn take_node_down(&self) {
        let node = self.world.below((DCS * REPLICAS_PER_DC) as u64) as usize;
        let dc = node / REPLICAS_PER_DC;
        {
            let mut state = lock(&self.state);
            let of_dc = &state.replicas[dc * REPLICAS_PER_DC..][..REPLICAS_PER_DC];
            if of_dc.iter().any(|replica| replica.is_down) {
                return;
            }
            state.replicas[node].is_down = true;
        }
        self.world.note("node down", node);
        self.world.sleep_ms(500, 40_000).await;
        let hints = {
            let mut state = lock(&self.state);
            state.replicas[node].is_down = false;
            std::mem::take(&mut state.replicas[node].hints)
        };
        self.world.note("node up", (node, hints.len()));
        for mutation in hints {
            // Some hints are never delivered.
            if !self.world.permille(100) {
                self.deliver(dc, node, mutation, false, None);
            }
        }
    }

    fn deliver(
        &self,
        from: usize,
        node: usize,
        mutation: Mutation,
        is_owed: bool,
        arrived: Option<Arc<Watched<Arrivals>>>,
    ) {
        let this = self.clone();
        self.world.spawn(async move {
            this.world.travel().await;
            let mut state = lock(&this.state);
            let dc = node / REPLICAS_PER_DC;
            let is_between = from != dc && state.cut_off.is_some();
            if is_between || state.lost.is_some_and(|lost| lost == dc || lost == from) {
                state.kept.push(Kept { from, node, mutation, is_owed });
                return;
            }
            let replica = &mut state.replicas[node];
            if replica.is_down {
                replica.hints.push(mutation);
                return;
            }
            for (key, cell) in mutation {
                replica.put(key, cell);
            }
            drop(state);
            if let Some(arrived) = arrived {
                arrived.change(|arrivals| arrivals.0[dc] += 1);
            }
        });
    }

    /// A data centre is lost, to the other one and to all instances, and comes back.
    pub async fn lose_data_centre(&self) {
        let dc =
            if self.features().loses_data_centres { self.world.below(DCS as u64) as usize } else { HOME };
        let ms = match self.world.below(2) {
            0 => self.world.between(1_000, HINTS_KEPT_MS),
            _ => self.world.between(HINTS_KEPT_MS + 1, 45_000),
        };
        let from_ms = self.world.elapsed_ms();
        {
            let mut state = lock(&self.state);
            let is_too_soon =
                state.losses.last().is_some_and(|last| from_ms < last.to_ms + BETWEEN_LOSSES_MS);
            if state.lost.is_some() || state.cut_off.is_some() || is_too_soon {
                return;
            }
            state.cut_off = Some(dc);
        }
        self.announced.change(|announced| (announced.losses, announced.dc) = (announced.losses + 1, dc));
        self.world.sleep_ms(0, 40).await;
        let from_ms = self.world.elapsed_ms();
        {
            let mut state = lock(&self.state);
            (state.lost, state.cut_off) = (state.cut_off.take(), None);
        }
        self.world.note("data centre lost", (dc, ms));
        tokio::time::sleep(Duration::from_millis(ms)).await;
        let kept = {
            let mut state = lock(&self.state);
            state.lost = None;
            state.losses.push(Loss { dc, from_ms, to_ms: self.world.elapsed_ms() });
            std::mem::take(&mut state.kept)
        };
        self.world.note("data centre back", dc);
        let mut expired = 0;
        for Kept { from, node, mutation, is_owed } in kept {
            // What was written by somebody who had not noticed the loss is nobody's but the database's, whose
            // repair brings it.
            if from != dc && is_owed && ms > HINTS_KEPT_MS {
                expired += 1;
            } else {
                self.deliver(from, node, mutation, is_owed, None);
            }
        }
        if expired > 0 {
            self.world.note("hints expired", expired);
        }
    }

    /// Waits until another data centre is about to be lost: how many were, and which it is. `None` when no more
    /// will be.
    pub async fn next_loss(&self, losses: usize) -> Option<(usize, usize)> {
        self.announced.wait_for(|announced| announced.is_over || announced.losses > losses).await;
        self.announced.with(|announced| (!announced.is_over).then_some((announced.losses, announced.dc)))
    }

    pub fn nothing_more_is_lost(&self) {
        self.announced.change(|announced| announced.is_over = true);
    }

    pub fn is_lost(&self, dc: usize) -> bool {
        lock(&self.state).lost == Some(dc)
    }

    pub fn is_any_lost(&self) -> bool {
        lock(&self.state).lost.is_some()
    }

    /// An instance could not notice anything from then until now.
    pub fn was_absent(&self, instance: usize, from_ms: i64) {
        let to_ms = self.world.elapsed_ms();
        lock(&self.state).absences.push(Absence { instance, from_ms, to_ms });
    }

    pub fn losses(&self) -> (Vec<Loss>, Vec<Absence>) {
        let state = lock(&self.state);
        (state.losses.clone(), state.absences.clone())
    }

    /// The nodes of a data centre that answer, if they are enough.
    fn up(&self, dc: usize) -> Result<Vec<usize>, Failed> {
        let state = lock(&self.state);
        let nodes = dc * REPLICAS_PER_DC..(dc + 1) * REPLICAS_PER_DC;
        let up: Vec<usize> = nodes.filter(|node| !state.replicas[*node].is_down).collect();
        if state.lost == Some(dc) || up.len() < QUORUM { Err(Failed::TooFew) } else { Ok(up) }
    }

    /// Writes cells, coordinated in a data centre, those of each partition on a way of their own.
    pub async fn write(
        &self,
        from: usize,
        level: Level,
        cells: Vec<(Key, Cell)>,
        is_owed: bool,
    ) -> Result<(), Failed> {
        let dcs: Vec<usize> = match level {
            Level::LocalQuorum => vec![from],
            Level::EachQuorum => (0..DCS).collect(),
        };
        for dc in &dcs {
            self.up(*dc)?;
        }
        let quorum = if self.world.planted(PlantedFault::WrittenToOneReplica) { 1 } else { QUORUM };
        let mut mutations = BTreeMap::<Partition, Mutation>::new();
        for (key, cell) in cells {
            mutations.entry((key.table, key.partition.clone())).or_default().push((key, cell));
        }
        let mut waits = Vec::with_capacity(mutations.len());
        for mutation in mutations.into_values() {
            let arrived = Arc::new(Watched::new(Arrivals::default()));
            waits.push(arrived.clone());
            for node in 0..DCS * REPLICAS_PER_DC {
                self.deliver(from, node, mutation.clone(), is_owed, Some(arrived.clone()));
            }
        }
        let all = async {
            for wait in &waits {
                wait.wait_for(|arrivals| dcs.iter().all(|dc| arrivals.0[*dc] >= quorum)).await;
            }
        };
        tokio::time::timeout(WRITE_WAIT, all).await.map_err(|_| Failed::NoAnswer)
    }

    /// The rows of a partition that a quorum of each of these data centres has, newest cells first. With read
    /// repair who lacks one is given it.
    pub async fn read(
        &self,
        dcs: &[usize],
        table: &'static str,
        partition: &[u8],
        repairs: bool,
    ) -> Result<Rows, Failed> {
        let mut asked = Vec::new();
        for dc in dcs {
            let up = self.up(*dc)?;
            let first = self.world.below(up.len() as u64) as usize;
            let quorum = if self.world.planted(PlantedFault::ReadFromOneReplica) { 1 } else { QUORUM };
            asked.extend((0..quorum).map(|at| up[(first + at) % up.len()]));
        }
        self.read_from(&asked, table, partition, repairs).await
    }

    async fn read_from(
        &self,
        nodes: &[usize],
        table: &'static str,
        partition: &[u8],
        repairs: bool,
    ) -> Result<Rows, Failed> {
        let mut rows = Arc::<Rows>::default();
        let mut answers = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            // Each replica answers at a moment of its own.
            self.world.travel().await;
            if self.is_lost(node / REPLICAS_PER_DC) {
                return Err(Failed::NoAnswer);
            }
            let of_node = self.partition_of(*node, table, partition);
            if at == 0 {
                rows = of_node.clone();
            } else if !are_same(&rows, &of_node) {
                for (key, cell) in &*of_node {
                    put(Arc::make_mut(&mut rows), key.clone(), cell.clone());
                }
            }
            answers.push((*node, of_node));
        }
        for (node, of_node) in answers.into_iter().filter(|(_, of_node)| repairs && !are_same(&rows, of_node))
        {
            for (key, cell) in &*rows {
                if of_node.get(key).is_none_or(|stored| stored.stamp < cell.stamp) {
                    lock(&self.state).replicas[node].put(key.clone(), cell.clone());
                }
            }
        }
        Ok(self.alive(Arc::unwrap_or_clone(rows)))
    }

    /// The time, as a node of a data centre says it. The clocks of nodes agree.
    fn time(&self, dc: usize) -> Result<Timestamp, Failed> {
        self.up(dc).map(|_| self.world.now())
    }

    /// Reads from all replicas everywhere, which repairs those that lack something.
    pub async fn read_of_all_replicas(&self, table: &'static str, partition: &[u8]) -> Result<Rows, Failed> {
        let mut all = Vec::new();
        for dc in 0..DCS {
            all.extend(self.up(dc)?);
        }
        if all.len() < DCS * REPLICAS_PER_DC {
            return Err(Failed::TooFew);
        }
        self.read_from(&all, table, partition, true).await
    }

    /// As conditional writes see it: with everything that was decided.
    pub async fn read_decided(
        &self,
        home: usize,
        table: &'static str,
        partition: &[u8],
    ) -> Result<Rows, Failed> {
        let mut rows = self.read(&[home], table, partition, true).await?;
        let state = lock(&self.state);
        let decided = state.decided.get(&(home, table, partition.to_vec()));
        let decided = decided.map(|decided| decided.rows.clone()).unwrap_or_default();
        drop(state);
        // What was decided and came nowhere is finished by whoever asks.
        let is_missing =
            |(key, cell): &(&Key, &Cell)| rows.get(*key).is_none_or(|stored| stored.stamp < cell.stamp);
        let left: Mutation =
            decided.iter().filter(is_missing).map(|(key, cell)| (key.clone(), cell.clone())).collect();
        if !left.is_empty() {
            for node in 0..DCS * REPLICAS_PER_DC {
                self.deliver(home, node, left.clone(), false, None);
            }
        }
        for (key, cell) in decided {
            put(&mut rows, key, cell);
        }
        Ok(self.alive(rows))
    }

    /// A conditional write: `plan` says what to write when it likes what it sees. Fails where nothing was
    /// decided; a commit that lacked replicas is decided all the same.
    #[expect(clippy::too_many_arguments, reason = "all that a conditional statement says")]
    pub async fn decide(
        &self,
        name: &'static str,
        home: usize,
        level: Level,
        table: &'static str,
        partition: &[u8],
        is_owed: bool,
        plan: impl FnOnce(&Rows) -> Option<Vec<(Key, Cell)>>,
    ) -> Result<(Outcome, Option<Failed>), Failed> {
        let place = (home, table, partition.to_vec());
        let turn = lock(&self.state).decided.entry(place.clone()).or_default().turn.clone();
        let turn =
            if self.world.planted(PlantedFault::DecisionsRace) { None } else { Some(turn.lock().await) };
        let mut seen = self.read_decided(home, table, partition).await?;
        if turn.is_none() {
            seen = self.read(&[home], table, partition, true).await?;
            self.world.travel().await;
        }
        let trouble = self.world.plan().faults.lost_answers && !self.world.is_calm();
        let (is_lost, never_decided) = (trouble && self.world.permille(8), self.world.permille(400));
        if is_lost && never_decided {
            self.world.note("decision lost", (name, false));
            return Ok((Outcome::Lost, None));
        }
        let Some(cells) = plan(&seen) else { return Ok((Outcome::Refused, None)) };
        let stamped: Vec<(Key, Cell)> = {
            let mut state = lock(&self.state);
            let decided = state.decided.entry(place).or_default();
            let now_us = self.world.now().as_millis() * 1_000;
            decided.last_stamp = now_us.max(decided.last_stamp + 1);
            let stamp = decided.last_stamp;
            let stamped: Vec<_> =
                cells.into_iter().map(|(key, cell)| (key, Cell { stamp, ..cell })).collect();
            for (key, cell) in &stamped {
                put(&mut decided.rows, key.clone(), cell.clone());
            }
            stamped
        };
        drop(turn);
        if is_lost {
            self.world.note("decision lost", (name, true));
            let this = self.clone();
            self.world.spawn(async move {
                let _ = this.write(home, level, stamped, is_owed).await;
            });
            return Ok((Outcome::Lost, None));
        }
        match self.write(home, level, stamped, is_owed).await {
            Ok(()) => Ok((Outcome::Applied, None)),
            Err(failed) => Ok((Outcome::Lost, Some(failed))),
        }
    }

    fn partition_of(&self, node: usize, table: &'static str, partition: &[u8]) -> Arc<Rows> {
        let state = lock(&self.state);
        let of_node = state.replicas[node].partitions.get(&(table, partition.into()));
        of_node.cloned().unwrap_or_default()
    }

    fn alive(&self, mut rows: Rows) -> Rows {
        let now = self.world.now();
        rows.retain(|_, cell| cell.expires_at.is_none_or(|end| end > now));
        rows
    }
}

/// How many replicas of each data centre have a cell.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals([usize; DCS]);

/// Stamps of one instance: its clock in microseconds, never twice the same.
#[derive(Clone)]
pub struct Stamps {
    clock: Arc<dyn mobimir_core::time::Clock>,
    last: Arc<Mutex<i64>>,
}

/// As in the adapter: every decision is later than a first write, whatever the clocks say.
const FIRST_WRITE_BACK_US: i64 = 3_600_000_000;

impl Stamps {
    pub fn new(clock: Arc<dyn mobimir_core::time::Clock>) -> Self {
        Self { clock, last: Arc::default() }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn next(&self) -> i64 {
        let mut last = lock(&self.last);
        *last = (self.clock.now().as_millis() * 1_000).max(*last + 1);
        *last
    }

    pub fn first_write(&self) -> i64 {
        self.next() - FIRST_WRITE_BACK_US
    }
}

/// After a lost answer everything that fails leaves the outcome open.
fn open(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { what, source } => StoreError::Unknown { what, source },
        error => error,
    }
}

fn packed_id(rows: &[StoredRow]) -> Option<ChangeId> {
    rows.iter().find(|row| row.is_packed()).and_then(|row| row.change.as_ref()).map(|change| change.id)
}
