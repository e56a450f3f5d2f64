//! Two data centres of three replicas. What is written to one partition arrives at a replica as a whole, what
//! is written to several arrives one by one; of two writes of a row the one with the later stamp wins. Conditional writes are decided one after the other per
//! partition, in the home data centre.

mod carts;
pub mod moving;
mod orders;
mod outbox;
mod sessions;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use mobimir_cassandra::StoredRow;
use mobimir_core::{
    id::{ChangeId, SessionId},
    order::{Order, StatusChange},
    ports::{StoreError, StoreResult},
    session::{RefreshToken, Session},
    time::Timestamp,
};
use uuid::Uuid;

pub use self::{carts::Carts, orders::Orders, sessions::Sessions};
use crate::{
    network::{unavailable, unknown},
    planted::PlantedFault,
    world::{Watched, World, lock},
};

pub const REPLICAS_PER_DC: usize = 3;
const DCS: usize = 2;
const QUORUM: usize = 2;
/// The data centre in which conditional writes are decided, and in which all instances are.
const HOME: usize = 0;
const WRITE_WAIT: Duration = Duration::from_millis(1_500);

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
    pub partition: Vec<u8>,
    pub row: Vec<u8>,
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
    Nothing,
}

pub type Rows = BTreeMap<Key, Cell>;
/// Cells of one partition.
type Mutation = Vec<(Key, Cell)>;

#[derive(Clone)]
pub struct Ring {
    world: World,
    state: Arc<Mutex<State>>,
}

struct State {
    replicas: Vec<Replica>,
    /// What was decided of a partition, and the turns of those who decide.
    decided: BTreeMap<(&'static str, Vec<u8>), Decided>,
}

#[derive(Default)]
struct Replica {
    rows: Rows,
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
        Self { table, partition: partition.to_vec(), row: row.to_vec() }
    }
}

fn put(rows: &mut Rows, key: Key, cell: Cell) {
    // Of equal stamps a tombstone wins, as in Cassandra.
    let newer = |stored: &Cell| (cell.stamp, cell.value.is_none()) > (stored.stamp, stored.value.is_none());
    if rows.get(&key).is_none_or(newer) {
        rows.insert(key, cell);
    }
}

impl Ring {
    pub fn new(world: World) -> Self {
        let replicas = (0..DCS * REPLICAS_PER_DC).map(|_| Replica::default()).collect();
        Self { world, state: Arc::new(Mutex::new(State { replicas, decided: BTreeMap::new() })) }
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
                self.deliver(node, mutation, None);
            }
        }
    }

    fn deliver(&self, node: usize, mutation: Mutation, arrived: Option<Arc<Watched<Arrivals>>>) {
        let this = self.clone();
        self.world.spawn(async move {
            this.world.travel().await;
            let mut state = lock(&this.state);
            let replica = &mut state.replicas[node];
            if replica.is_down {
                replica.hints.push(mutation);
                return;
            }
            for (key, cell) in mutation {
                put(&mut replica.rows, key, cell);
            }
            drop(state);
            if let Some(arrived) = arrived {
                arrived.change(|arrivals| arrivals.0[node / REPLICAS_PER_DC] += 1);
            }
        });
    }

    fn is_reachable(&self, dc: usize) -> bool {
        let state = lock(&self.state);
        let of_dc = &state.replicas[dc * REPLICAS_PER_DC..][..REPLICAS_PER_DC];
        of_dc.iter().filter(|replica| !replica.is_down).count() >= QUORUM
    }

    /// Writes cells, those of each partition on a way of their own.
    pub async fn write(&self, name: &'static str, level: Level, cells: Vec<(Key, Cell)>) -> StoreResult<()> {
        let dcs: &[usize] = match level {
            Level::LocalQuorum => &[HOME],
            Level::EachQuorum => &[HOME, 1],
        };
        if dcs.iter().any(|dc| !self.is_reachable(*dc)) {
            return Err(unavailable(name));
        }
        let quorum = if self.world.planted(PlantedFault::WrittenToOneReplica) { 1 } else { QUORUM };
        let mut mutations = BTreeMap::<(&'static str, Vec<u8>), Mutation>::new();
        for (key, cell) in cells {
            mutations.entry((key.table, key.partition.clone())).or_default().push((key, cell));
        }
        let mut waits = Vec::with_capacity(mutations.len());
        for mutation in mutations.into_values() {
            let arrived = Arc::new(Watched::new(Arrivals::default()));
            waits.push(arrived.clone());
            for node in 0..DCS * REPLICAS_PER_DC {
                self.deliver(node, mutation.clone(), Some(arrived.clone()));
            }
        }
        let all = async {
            for wait in &waits {
                wait.wait_for(|arrivals| dcs.iter().all(|dc| arrivals.0[*dc] >= quorum)).await;
            }
        };
        tokio::time::timeout(WRITE_WAIT, all).await.map_err(|_| unknown(name))
    }

    /// The rows of a partition that a quorum of the home data centre has, newest cells first; who lacks one is
    /// given it.
    pub async fn read(&self, name: &'static str, table: &'static str, partition: &[u8]) -> StoreResult<Rows> {
        self.read_at(name, table, partition, HOME).await
    }

    async fn read_at(
        &self,
        name: &'static str,
        table: &'static str,
        partition: &[u8],
        dc: usize,
    ) -> StoreResult<Rows> {
        let up: Vec<usize> = {
            let state = lock(&self.state);
            let nodes = dc * REPLICAS_PER_DC..(dc + 1) * REPLICAS_PER_DC;
            nodes.filter(|node| !state.replicas[*node].is_down).collect()
        };
        if up.len() < QUORUM {
            return Err(unavailable(name));
        }
        let first = self.world.below(up.len() as u64) as usize;
        let asked = if self.world.planted(PlantedFault::ReadFromOneReplica) { 1 } else { QUORUM };
        let mut rows = Rows::new();
        let mut answers = Vec::new();
        for at in 0..asked {
            // Each replica answers at a moment of its own.
            self.world.travel().await;
            let node = up[(first + at) % up.len()];
            let of_node = self.partition_of(node, table, partition);
            for (key, cell) in of_node.clone() {
                put(&mut rows, key, cell);
            }
            answers.push((node, of_node));
        }
        for (node, of_node) in answers {
            for (key, cell) in &rows {
                if of_node.get(key).is_none_or(|stored| stored.stamp < cell.stamp) {
                    let mut state = lock(&self.state);
                    put(&mut state.replicas[node].rows, key.clone(), cell.clone());
                }
            }
        }
        Ok(self.alive(rows))
    }

    /// As conditional writes see it: with everything that was decided.
    pub async fn read_decided(
        &self,
        name: &'static str,
        table: &'static str,
        partition: &[u8],
    ) -> StoreResult<Rows> {
        let mut rows = self.read(name, table, partition).await?;
        let state = lock(&self.state);
        if let Some(decided) = state.decided.get(&(table, partition.to_vec())) {
            for (key, cell) in &decided.rows {
                put(&mut rows, key.clone(), cell.clone());
            }
        }
        drop(state);
        Ok(self.alive(rows))
    }

    /// A conditional write: `plan` says what to write when it likes what it sees.
    pub async fn decide(
        &self,
        name: &'static str,
        table: &'static str,
        partition: &[u8],
        plan: impl FnOnce(&Rows) -> Option<Vec<(Key, Cell)>>,
    ) -> StoreResult<Outcome> {
        let place = (table, partition.to_vec());
        let turn = lock(&self.state).decided.entry(place.clone()).or_default().turn.clone();
        let turn =
            if self.world.planted(PlantedFault::DecisionsRace) { None } else { Some(turn.lock().await) };
        let mut seen = self.read_decided(name, table, partition).await?;
        if turn.is_none() {
            seen = self.read(name, table, partition).await?;
            self.world.travel().await;
        }
        let trouble = self.world.plan().faults.lost_answers && !self.world.is_calm();
        let (is_lost, never_decided) = (trouble && self.world.permille(8), self.world.permille(400));
        if is_lost && never_decided {
            self.world.note("decision lost", (name, false));
            return Ok(Outcome::Lost);
        }
        let Some(cells) = plan(&seen) else { return Ok(Outcome::Refused) };
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
                let _ = this.write(name, Level::LocalQuorum, stamped).await;
            });
            return Ok(Outcome::Lost);
        }
        match self.write(name, Level::LocalQuorum, stamped).await {
            Ok(()) => Ok(Outcome::Applied),
            Err(_) => Ok(Outcome::Lost),
        }
    }

    fn partition_of(&self, node: usize, table: &'static str, partition: &[u8]) -> Rows {
        let state = lock(&self.state);
        let from = Key::new(table, partition, &[]);
        let rows = state.replicas[node].rows.range(from..);
        let of_partition = rows.take_while(|(key, _)| key.table == table && key.partition == partition);
        of_partition.map(|(key, cell)| (key.clone(), cell.clone())).collect()
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
