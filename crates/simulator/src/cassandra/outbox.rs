//! The outbox of a migration: what was written while this store decides, and not copied since.
//!
//! As in the adapter an entry stands under its entity and in a list of whoever wrote it, before its write
//! begins, and is told when the write is over. A process has one list here: slots, which spare readers to
//! read what was drained, are left to the tests on real servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use mobimir_core::{
    cart::Owner,
    id::{OrderId, SessionId},
    moving::{Backlog, Found, Mark, SessionKey, Whole},
    ports::StoreResult,
    secret::SecretHash,
    time::{Clock, Timestamp},
};
use mobimir_shop::environment::Environment;
use uuid::Uuid;

use super::{Cell, Failed, HOME, Key, Level, Ring, Rows, Value};
use crate::{
    network::{Kind, Network, unavailable, unknown},
    planted::PlantedFault,
    world::lock,
};

const ENTRIES: &str = "outbox";
const LISTS: &str = "outbox_slots";
const REGISTERS: &str = "registers";
const LIST: &[u8] = b"outbox";
/// After that nobody can be at the write of an entry, however far the clocks are apart.
const GIVEN_UP_AFTER_MS: i64 = 60_000;
const SEAL_NUMBER_BITS: u32 = 20;
/// Columns of an entry, each with its own cell.
const ENTERED: u8 = 0;
const OVER: u8 = 1;

/// What can stand in an outbox, as bytes.
pub(super) trait OutboxKey: Copy + Ord + Send + Sync {
    fn to_bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// The outbox as one process has it.
#[derive(Clone)]
pub(super) struct Outbox {
    ring: Ring,
    network: Network,
    clock: Arc<dyn Clock>,
    process: Arc<Process>,
}

struct Process {
    generation: i64,
    seals: AtomicU32,
    is_listed: AtomicBool,
    /// Entries that stood when nobody wrote.
    abandoned: Mutex<Listed>,
    /// Entries that were listed last, and are so old that nobody can be at their write.
    old: Mutex<Listed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    seal: i64,
    generation: i64,
}

type Listed = BTreeMap<Vec<u8>, Vec<Entry>>;

/// Entries of one entity that go when it is copied as it is read now.
pub(super) struct Waiting<K> {
    pub(super) marks: Vec<Mark<K>>,
    /// The write of one of them was given up, and may have been decided all the same.
    pub(super) is_in_doubt: bool,
    /// There are others, of writes that have not ended.
    is_being_written: bool,
}

impl<K> Waiting<K> {
    /// What was read of the entity after that.
    pub(super) fn found<W: Whole<Key = K>>(self, whole: Option<W>) -> Found<W> {
        Found { whole, marks: self.marks, is_being_written: self.is_being_written }
    }
}

impl Entry {
    fn since(self) -> Timestamp {
        Timestamp::from_millis(self.seal >> SEAL_NUMBER_BITS)
    }

    fn mark<K>(self, key: K) -> Mark<K> {
        Mark { key, since: self.since(), seal: self.seal.cast_unsigned() }
    }

    /// Of all that is written of it.
    fn stamp(self) -> i64 {
        self.since().as_millis() * 1_000
    }

    fn under_key(self, key: &[u8], column: u8) -> Key {
        let row = [&self.seal.to_be_bytes()[..], &self.generation.to_be_bytes()[..], &[column]].concat();
        Key::new(ENTRIES, key, &row)
    }

    fn in_list(self, key: &[u8]) -> Key {
        let row = [&self.seal.to_be_bytes()[..], key].concat();
        Key::new(LISTS, &self.generation.to_be_bytes(), &row)
    }
}

impl Outbox {
    pub(super) fn open(ring: Ring, network: Network, environment: &Environment) -> Self {
        let process = Process {
            generation: i64::from_be_bytes(environment.entropy.bytes()) & i64::MAX,
            seals: AtomicU32::new(u32::from_be_bytes(environment.entropy.bytes())),
            is_listed: AtomicBool::new(false),
            abandoned: Mutex::default(),
            old: Mutex::default(),
        };
        Self { ring, network, clock: environment.clock.clone(), process: Arc::new(process) }
    }

    /// Writes, and if it is tracked leaves an entry of what is written.
    pub(super) async fn tracked<K: OutboxKey, T>(
        &self,
        is_tracked: bool,
        keys: &[K],
        write: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        if !is_tracked {
            return write.await;
        }
        let entries = self.enter(keys).await?;
        let written = write.await?;
        self.end(&entries).await;
        Ok(written)
    }

    async fn enter<K: OutboxKey>(&self, keys: &[K]) -> StoreResult<Vec<(Vec<u8>, Entry)>> {
        let (now, generation) = (self.clock.now(), self.process.generation);
        let entry = |key: &K| {
            let number = self.process.seals.fetch_add(1, Ordering::Relaxed) % (1 << SEAL_NUMBER_BITS);
            let seal = now.as_millis() << SEAL_NUMBER_BITS | i64::from(number);
            (key.to_bytes(), Entry { seal, generation })
        };
        let entries: Vec<(Vec<u8>, Entry)> = keys.iter().map(entry).collect();
        let mut cells = Vec::new();
        for (key, entry) in &entries {
            let cell = Cell::new(entry.stamp(), Value::Nothing);
            cells.push((entry.under_key(key, ENTERED), cell.clone()));
            cells.push((entry.in_list(key), cell));
        }
        if !self.process.is_listed.load(Ordering::Relaxed) {
            let cell = Cell::new(now.as_millis() * 1_000, Value::Nothing);
            cells.push((Key::new(REGISTERS, LIST, &generation.to_be_bytes()), cell));
        }
        self.write("outbox_enter", cells).await?;
        self.process.is_listed.store(true, Ordering::Relaxed);
        Ok(entries)
    }

    /// If that fails, the entries go when they are old.
    async fn end(&self, entries: &[(Vec<u8>, Entry)]) {
        let over = |(key, entry): &(Vec<u8>, Entry)| {
            (entry.under_key(key, OVER), Cell::new(entry.stamp(), Value::Nothing))
        };
        let _ = self.write("outbox_end", entries.iter().map(over).collect()).await;
    }

    /// Entries of one entity. What is read of it after that is what they stand for.
    pub(super) async fn of<K: OutboxKey>(&self, key: K) -> StoreResult<Waiting<K>> {
        let bytes = key.to_bytes();
        let given_up = self.given_up();
        let abandoned = lock(&self.process.abandoned).get(&bytes).cloned().unwrap_or_default();
        let mut waiting = Waiting { marks: Vec::new(), is_in_doubt: false, is_being_written: false };
        let mut met = BTreeSet::new();
        for (entry, is_over) in self.under_key(&bytes).await? {
            met.insert(entry);
            if is_over || entry.since() < given_up || abandoned.contains(&entry) {
                waiting.is_in_doubt |= !is_over;
                waiting.marks.push(entry.mark(key));
            } else {
                waiting.is_being_written = true;
            }
        }
        // What stands in its list alone was half written.
        let mut alone = abandoned;
        alone.extend(lock(&self.process.old).get(&bytes).into_iter().flatten());
        alone.sort_unstable();
        alone.dedup();
        for entry in alone.into_iter().filter(|entry| !met.contains(entry)) {
            let listed = self.read("outbox_list", LISTS, &entry.generation.to_be_bytes()).await?;
            if listed.get(&entry.in_list(&bytes)).is_some_and(|cell| cell.value.is_some()) {
                waiting.is_in_doubt = true;
                waiting.marks.push(entry.mark(key));
            } else {
                self.unlist(&bytes, entry.seal);
            }
        }
        Ok(waiting)
    }

    async fn under_key(&self, key: &[u8]) -> StoreResult<Vec<(Entry, bool)>> {
        let mut entries = BTreeMap::<Entry, bool>::new();
        for (row, cell) in self.read("outbox_of", ENTRIES, key).await? {
            let Some((entry, column)) = entry_of(&row.row).filter(|_| cell.value.is_some()) else { continue };
            // Either cell makes a row.
            *entries.entry(entry).or_default() |= column == OVER;
        }
        Ok(entries.into_iter().collect())
    }

    pub(super) async fn unmirrored<K: OutboxKey>(&self, limit: usize) -> StoreResult<Vec<Mark<K>>> {
        let entries = self.list::<K>().await?;
        let given_up = self.given_up();
        *lock(&self.process.old) = listed(entries.iter().filter(|(_, entry)| entry.since() < given_up));
        Ok(one_of_each(entries, limit))
    }

    pub(super) async fn backlog<K: OutboxKey>(&self) -> StoreResult<Backlog> {
        let marks = one_of_each(self.list::<K>().await?, usize::MAX);
        Ok(Backlog { entities: marks.len() as u64, oldest: marks.first().map(|mark| mark.since) })
    }

    /// Nobody writes, so no entry that stands now is that of a write under way.
    pub(super) async fn nobody_writes<K: OutboxKey>(&self) -> StoreResult<()> {
        let entries = self.list::<K>().await?;
        *lock(&self.process.abandoned) = listed(entries.iter());
        Ok(())
    }

    /// All entries of all processes.
    async fn list<K: OutboxKey>(&self) -> StoreResult<Vec<(K, Entry)>> {
        let ring = self.ring.clone();
        let lists = async move {
            let mut lists = Vec::new();
            for (key, _) in ring.read_at_home("outbox_lists", REGISTERS, LIST).await? {
                lists.push(ring.read_at_home("outbox_lists", LISTS, &key.row).await?);
            }
            Ok(lists)
        };
        let lists: Vec<Rows> = self.network.call(Kind::Read, "outbox_lists", lists).await?;
        let mut entries = Vec::new();
        for (row, cell) in lists.into_iter().flatten() {
            if cell.value.is_none() {
                continue;
            }
            let (seal, key) = row.row.split_at_checked(8).unwrap_or_default();
            if let (Some(seal), Some(generation), Some(key)) =
                (number(seal), number(&row.partition), K::from_bytes(key))
            {
                entries.push((key, Entry { seal, generation }));
            }
        }
        Ok(entries)
    }

    pub(super) async fn remove<K: OutboxKey>(&self, marks: &[Mark<K>]) -> StoreResult<()> {
        for mark in marks {
            let (key, seal) = (mark.key.to_bytes(), mark.seal.cast_signed());
            let ignores_seals = self.ring.world().planted(PlantedFault::MarkOfLaterWriteRemoved);
            let found = self.under_key(&key).await?.into_iter().map(|(entry, _)| entry);
            let mut entries: BTreeSet<Entry> =
                found.filter(|entry| entry.seal == seal || ignores_seals).collect();
            for list in [&self.process.abandoned, &self.process.old] {
                let list = lock(list);
                let of_key = list.get(&key).into_iter().flatten();
                entries.extend(of_key.filter(|entry| entry.seal == seal));
            }
            for entry in entries {
                // Later than whatever is written of this entry, and of no other.
                let gone = Cell::tombstone(entry.stamp() + 1);
                self.write("outbox_unlist", vec![(entry.in_list(&key), gone.clone())]).await?;
                let columns = [ENTERED, OVER].map(|column| (entry.under_key(&key, column), gone.clone()));
                self.write("outbox_remove", columns.to_vec()).await?;
            }
            self.unlist(&key, seal);
        }
        Ok(())
    }

    fn unlist(&self, key: &[u8], seal: i64) {
        for list in [&self.process.abandoned, &self.process.old] {
            if let Some(entries) = lock(list).get_mut(key) {
                entries.retain(|entry| entry.seal != seal);
            }
        }
    }

    fn given_up(&self) -> Timestamp {
        self.clock.now().plus_ms(-GIVEN_UP_AFTER_MS)
    }

    async fn write(&self, name: &'static str, cells: Vec<(Key, Cell)>) -> StoreResult<()> {
        let ring = self.ring.clone();
        let write = async move { ring.write_at_home(name, cells).await };
        self.network.call(Kind::Write, name, write).await
    }

    async fn read(&self, name: &'static str, table: &'static str, partition: &[u8]) -> StoreResult<Rows> {
        let (ring, partition) = (self.ring.clone(), partition.to_vec());
        let read = async move { ring.read_at_home(name, table, &partition).await };
        self.network.call(Kind::Read, name, read).await
    }
}

/// No data centre is lost while something moves.
impl Ring {
    async fn write_at_home(&self, name: &'static str, cells: Vec<(Key, Cell)>) -> StoreResult<()> {
        let written = self.write(HOME, Level::LocalQuorum, cells, false).await;
        written.map_err(|failed| match failed {
            Failed::TooFew => unavailable(name),
            Failed::NoAnswer => unknown(name),
        })
    }

    async fn read_at_home(
        &self,
        name: &'static str,
        table: &'static str,
        partition: &[u8],
    ) -> StoreResult<Rows> {
        self.read(&[HOME], table, partition, true).await.map_err(|_| unavailable(name))
    }
}

fn number(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

fn entry_of(row: &[u8]) -> Option<(Entry, u8)> {
    let (seal, rest) = row.split_at_checked(8)?;
    let (generation, column) = rest.split_at_checked(8)?;
    Some((Entry { seal: number(seal)?, generation: number(generation)? }, *column.first()?))
}

fn listed<'a, K: OutboxKey + 'a>(entries: impl Iterator<Item = &'a (K, Entry)>) -> Listed {
    let mut listed = Listed::new();
    for (key, entry) in entries {
        listed.entry(key.to_bytes()).or_default().push(*entry);
    }
    listed
}

/// The oldest first. One of each is enough to find the others.
fn one_of_each<K: OutboxKey>(entries: Vec<(K, Entry)>, limit: usize) -> Vec<Mark<K>> {
    let mut marks: Vec<Mark<K>> = entries.into_iter().map(|(key, entry)| entry.mark(key)).collect();
    marks.sort_by_key(|mark| (mark.since, mark.seal));
    let mut met = BTreeSet::new();
    marks.retain(|mark| met.insert(mark.key));
    marks.truncate(limit);
    marks
}

impl OutboxKey for Owner {
    fn to_bytes(self) -> Vec<u8> {
        super::carts::partition(self)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        super::carts::owner_of(bytes)
    }
}

impl OutboxKey for OrderId {
    fn to_bytes(self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Uuid::from_slice(bytes).ok().map(Self)
    }
}

impl OutboxKey for SessionKey {
    fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Session(id) => id.as_bytes().to_vec(),
            Self::Token(hash) => hash.0.to_vec(),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes.len() {
            16 => Uuid::from_slice(bytes).ok().map(|id| Self::Session(SessionId(id))),
            _ => bytes.try_into().ok().map(|hash| Self::Token(SecretHash(hash))),
        }
    }
}
