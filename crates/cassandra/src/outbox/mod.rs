//! The outbox of a migration, for the entity of one keyspace: what was written while this store decides and
//! has not been copied to the other one since.
//!
//! A tracked write leaves an *entry* before it begins, so that whoever dies in between leaves one too many
//! and never one too few. The entry is told when the write is over. Before that, what is read of the entity
//! says nothing about that write, and the entry does not go by being copied; unless it is so old that nobody
//! can still be at it, or it is known that nobody writes, and then the entity is read after everything that
//! was being decided about it is.
//!
//! Every write has an entry of its own under its own seal, so that removing one never touches that of a later
//! write, or of one at the same time on another instance. The seal says when the entry was left. Nothing else
//! does: a replica may hear that a write is over before it hears that it began, and a read that asks two
//! replicas one after the other may meet no more.
//!
//! An entry stands in two tables. `outbox` has it under the entity's key, for whoever copies the entity.
//! `outbox_slots` has it in a *slot* of the instance that wrote it (see [`slots`]), for whoever looks for all
//! entries: slots that are drained are not read again, so a poll costs what waits now, and not what was
//! removed since the last compaction. A slot is written down (`state`), and its generation listed
//! (`registers`), before a write under one of its entries begins.
//!
//! It is `outbox_slots` that says what waits. An entry is removed there first. What only one of the two
//! tables has was half written, and then its write never began, or half removed, and then it was copied:
//! [`Outbox::of`] leaves out what stands in a drained slot, and gives out an old entry that stands in its
//! slot alone.

mod slots;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use futures_util::{
    future::{join_all, try_join, try_join_all},
    stream::{self, StreamExt, TryStreamExt},
};
use mobimir_core::{
    moving::{Backlog, Found, Mark, Whole},
    ports::{StoreError, StoreResult},
    secret,
    time::{Clock, SystemClock, Timestamp},
};
use quick_cache::sync::Cache;
use scylla::value::CqlTimestamp;
use tokio::{sync::OnceCell, time::Instant};

use self::slots::{
    Closing, GENERATION_FORGOTTEN_AFTER_MS, OpenSlots, Opened, Place, Reading, SlotId, SlotSet,
};
use crate::{
    ConnectError,
    StatementKind::Write,
    link::{DcState, Link, Owed, Statement, damaged},
    stamps,
};

pub(crate) struct Outbox {
    statements: Statements,
    seals: Seals,
    writer: Mutex<Option<Writer>>,
    known: Mutex<Known>,
    /// Entries that stood when nobody wrote. They are over, whether they know it or not.
    abandoned: Mutex<Listed>,
    /// Entries that were listed last, and are so old that nobody can be at their write.
    old: Mutex<Listed>,
    /// In which slot entries stand that were read lately, by key and seal.
    found: Cache<(Vec<u8>, i64), SlotId>,
    /// The beginning of this process's own time.
    started: Instant,
}

/// What can stand in an outbox, as bytes.
pub(crate) trait OutboxKey: Copy + Ord + Send + Sync {
    fn to_bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Option<Self>;

    /// For when the lost data centre is back.
    fn owed(self) -> Owed;
}

/// The entries of one entity that go when it is copied as it is read now.
pub(crate) struct Waiting<K> {
    pub(crate) marks: Vec<Mark<K>>,
    /// The write of one of them was given up, and may have been decided all the same.
    pub(crate) is_in_doubt: bool,
    /// There are others, of writes that have not ended.
    is_being_written: bool,
}

impl<K> Waiting<K> {
    /// What was read of the entity after that.
    pub(crate) fn found<W: Whole<Key = K>>(self, whole: Option<W>) -> Found<W> {
        Found { whole, marks: self.marks, is_being_written: self.is_being_written }
    }
}

struct Statements {
    enter: Statement,
    enter_slot: Statement,
    end: Statement,
    of_key: Statement,
    of_seal: Statement,
    in_slot: Statement,
    is_in_slot: Statement,
    remove: Statement,
    remove_from_slot: Statement,
    list_generation: Statement,
    generations: Statement,
    forget_generation: Statement,
    tell: Statement,
    told: Statement,
    forget: Statement,
}

/// Where this process leaves its entries.
struct Writer {
    slots: OpenSlots,
    /// Whether the current generation is listed, and the current slot is told.
    is_listed: Arc<OnceCell<()>>,
    is_told: Arc<OnceCell<()>>,
    current: SlotId,
}

/// What this process knows of each generation.
///
/// While a data centre was lost, somebody may have read slots where not all of their entries had arrived. So
/// everything is forgotten whenever a data centre is lost, comes back, or has got what it lacked.
struct Known {
    of: HashMap<i64, Generation>,
    dc_state: DcState,
    times_forgotten: u64,
    /// What was written down for others has to be taken back.
    must_unpublish: bool,
}

#[derive(Default)]
struct Generation {
    reading: Reading,
    /// How many slots were drained when that was written down last, and when.
    published: Option<(SlotSet, i64)>,
}

/// Entries by key: their seals, and where they stand.
type Listed = HashMap<Vec<u8>, Vec<(i64, SlotId)>>;

#[derive(Clone, Copy)]
struct Entry<K> {
    mark: Mark<K>,
    at: SlotId,
}

/// Room for entries in a slot, as long as it lives.
struct Reserved<'a> {
    place: Place,
    is_listed: Arc<OnceCell<()>>,
    is_told: Arc<OnceCell<()>>,
    writer: &'a Mutex<Option<Writer>>,
}

/// The list of generations in `registers`, and how rows of `state` begin.
const LIST: &str = "outbox";
const GENERATIONS_AT_ONCE: usize = 4;
const SLOTS_AT_ONCE: usize = 8;
const REMOVED_AT_ONCE: usize = 32;
/// Of an entry that is acknowledged too late for its slot another is left instead, so often.
const ENTER_ATTEMPTS_MAX: usize = 3;
const FOUND_ENTRIES_MAX: usize = 65_536;
/// A process writes down which slots are drained no more often than this, and no more than so many ranges.
const PUBLISHED_EVERY_MS: i64 = 10_000;
const PUBLISHED_RANGES_MAX: usize = 1_000;

/// Milliseconds, and below them a number. An instance counts on from wherever chance puts it, so that two
/// which write one key in one millisecond have the same one in a million times.
struct Seals(AtomicU32);

const SEAL_NUMBER_BITS: u32 = 20;

impl Outbox {
    pub(crate) async fn open(link: &Link) -> Result<Self, ConnectError> {
        Ok(Self {
            statements: Statements::prepare(link).await?,
            seals: Seals::default(),
            writer: Mutex::default(),
            known: Mutex::new(Known {
                of: HashMap::new(),
                dc_state: DcState::Whole,
                times_forgotten: 0,
                must_unpublish: false,
            }),
            abandoned: Mutex::default(),
            old: Mutex::default(),
            found: Cache::new(FOUND_ENTRIES_MAX),
            started: Instant::now(),
        })
    }

    /// Writes, and if it is tracked leaves an entry of what is written.
    pub(crate) async fn tracked<K: OutboxKey, T>(
        &self,
        link: &Link,
        is_tracked: bool,
        keys: &[K],
        write: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        if !is_tracked {
            return write.await;
        }
        let entries = self.enter(link, keys).await?;
        let written = write.await?;
        for outcome in join_all(entries.iter().map(|entry| self.end(link, entry))).await {
            // Then it goes when it is old.
            if let Err(error) = outcome {
                tracing::debug!(%error, "an entry of the outbox does not know that its write is over");
            }
        }
        Ok(written)
    }

    async fn enter<K: OutboxKey>(&self, link: &Link, keys: &[K]) -> StoreResult<Vec<Entry<K>>> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        for _ in 0..ENTER_ATTEMPTS_MAX {
            let reserved = self.reserve(keys.len());
            let (at, now) = (reserved.place.at, stamps::real_now());
            let entries: Vec<Entry<K>> =
                keys.iter().map(|key| Entry { mark: mark_of(*key, self.seals.next(now)), at }).collect();
            let entered = try_join_all(entries.iter().map(|entry| self.enter_one(link, entry)));
            try_join(self.tell(link, &reserved, first.owed()), entered).await?;
            // By now all of it is acknowledged. Nobody may have given the slot up before that.
            if reserved.place.is_in_time(SystemClock.moment(), fence_ms(link)) {
                return Ok(entries);
            }
            drop(reserved);
            let marks: Vec<Mark<K>> = entries.iter().map(|entry| entry.mark).collect();
            if let Err(error) = self.remove(link, &marks).await {
                tracing::debug!(%error, "an entry stays whose write never began");
            }
        }
        Err(StoreError::Unavailable {
            what: format!("an entry of the outbox was acknowledged too late {ENTER_ATTEMPTS_MAX} times"),
            source: None,
        })
    }

    async fn enter_one<K: OutboxKey>(&self, link: &Link, entry: &Entry<K>) -> StoreResult<()> {
        let EntryRow { key, seal, generation, slot, stamp } = EntryRow::of(entry);
        let (by_key, by_slot) =
            ((&key, seal, generation, slot, stamp), (generation, slot, seal, &key, stamp));
        let owed = || entry.mark.key.owed();
        try_join(
            link.write(&self.statements.enter, by_key, owed()),
            link.write(&self.statements.enter_slot, by_slot, owed()),
        )
        .await?;
        Ok(())
    }

    async fn end<K: OutboxKey>(&self, link: &Link, entry: &Entry<K>) -> StoreResult<()> {
        let EntryRow { key, seal, generation, slot, stamp } = EntryRow::of(entry);
        let values = (stamp, key, seal, generation, slot);
        link.write(&self.statements.end, values, entry.mark.key.owed()).await
    }

    fn reserve(&self, entries: usize) -> Reserved<'_> {
        let now = SystemClock.moment();
        let mut writer = locked(&self.writer);
        let writer = writer.get_or_insert_with(|| Writer::new(OpenSlots::new(new_generation(), now)));
        let place = writer.slots.take(entries, now, new_generation);
        if place.at.generation != writer.current.generation {
            writer.is_listed = Arc::default();
        }
        if place.at != writer.current {
            writer.is_told = Arc::default();
            writer.current = place.at;
        }
        let (is_listed, is_told) = (writer.is_listed.clone(), writer.is_told.clone());
        Reserved { place, is_listed, is_told, writer: &self.writer }
    }

    /// Sees to it that every reader knows of the slot. The first who has a place in it writes that down.
    async fn tell(&self, link: &Link, reserved: &Reserved<'_>, owed: Owed) -> StoreResult<()> {
        let SlotId { generation, slot } = reserved.place.at;
        let listed = reserved.is_listed.get_or_try_init(|| async {
            let values = (generation, link.stamps().next());
            link.write(&self.statements.list_generation, values, owed.clone()).await
        });
        let told = reserved.is_told.get_or_try_init(|| async {
            let closed_below = reserved.closed_below();
            let now = CqlTimestamp(stamps::real_now().as_millis());
            let opened = Opened { newest: slot, closed_below }.to_string();
            // The slot is the stamp: the newest wins, in whatever order they arrive.
            let values = (slots_of(generation), opened, now, slot + 1);
            link.write(&self.statements.tell, values, owed.clone()).await
        });
        try_join(listed, told).await?;
        Ok(())
    }

    /// Entries of one entity. What is read of it after that is what they stand for.
    pub(crate) async fn of<K: OutboxKey>(&self, link: &Link, key: K) -> StoreResult<Waiting<K>> {
        let bytes = key.to_bytes();
        let rows = link.read(&self.statements.of_key, (bytes.as_slice(),)).await?;
        let rows = rows.rows::<(i64, i64, i64, Option<bool>)>().map_err(damaged_entry)?;
        let rows: Vec<_> = rows.collect::<Result<_, _>>().map_err(damaged_entry)?;
        let given_up = given_up(link);
        let abandoned = locked(&self.abandoned).get(&bytes).cloned().unwrap_or_default();
        let mut waiting = Waiting { marks: Vec::new(), is_in_doubt: false, is_being_written: false };
        let mut seals = BTreeSet::new();
        for (seal, generation, slot, is_over) in rows {
            let (mark, at) = (mark_of(key, seal), SlotId { generation, slot });
            let (is_over, is_old) = (is_over == Some(true), mark.since < given_up);
            seals.insert(seal);
            if self.is_drained(link, at, is_old).await? {
                if is_old {
                    self.remove_orphan(link, key, seal, at).await;
                }
            } else if is_over || is_old || abandoned.contains(&(seal, at)) {
                waiting.is_in_doubt |= !is_over;
                waiting.marks.push(mark);
                self.found.insert((bytes.clone(), seal), at);
            } else {
                waiting.is_being_written = true;
            }
        }
        let mut alone = abandoned;
        alone.extend(locked(&self.old).get(&bytes).into_iter().flatten());
        alone.sort_unstable();
        alone.dedup();
        for (seal, at) in alone.into_iter().filter(|(seal, _)| !seals.contains(seal)) {
            let row = (at.generation, at.slot, seal, bytes.as_slice());
            if link.read(&self.statements.is_in_slot, row).await?.rows_num() > 0 {
                waiting.is_in_doubt = true;
                waiting.marks.push(mark_of(key, seal));
                self.found.insert((bytes.clone(), seal), at);
            } else {
                self.unlist(&bytes, seal);
            }
        }
        Ok(waiting)
    }

    /// Whether everything of the slot was copied. A generation that is not listed is drained and forgotten,
    /// or its first write has not begun.
    async fn is_drained(&self, link: &Link, at: SlotId, is_old: bool) -> StoreResult<bool> {
        let known = || {
            let known = locked(&self.known);
            known.of.get(&at.generation).map(|generation| generation.reading.is_drained(at.slot))
        };
        match known() {
            Some(is_drained) => Ok(is_drained),
            None if !is_old => Ok(false),
            None => {
                let generations = self.generations(link).await?;
                Ok(!generations.contains(&at.generation))
            }
        }
    }

    /// Nobody looks for it. It would stay for ever.
    async fn remove_orphan<K: OutboxKey>(&self, link: &Link, key: K, seal: i64, at: SlotId) {
        let EntryRow { key: bytes, stamp, .. } = EntryRow::of(&Entry { mark: mark_of(key, seal), at });
        let values = (stamp + 1, bytes, seal, at.generation, at.slot);
        if let Err(error) = link.write(&self.statements.remove, values, key.owed()).await {
            tracing::debug!(%error, "an entry that nobody looks for could not be removed");
        }
    }

    /// The oldest entries first, where not so many wait that the rest has to come later.
    pub(crate) async fn unmirrored<K: OutboxKey>(
        &self,
        link: &Link,
        limit: usize,
    ) -> StoreResult<Vec<Mark<K>>> {
        let entries = self.list::<K>(link, limit).await?;
        let given_up = given_up(link);
        let old = listed(entries.iter().filter(|entry| entry.mark.since < given_up));
        *locked(&self.old) = old;
        Ok(one_of_each(entries, limit))
    }

    pub(crate) async fn backlog<K: OutboxKey>(&self, link: &Link) -> StoreResult<Backlog> {
        let marks = one_of_each(self.list::<K>(link, usize::MAX).await?, usize::MAX);
        Ok(Backlog { entities: marks.len() as u64, oldest: marks.first().map(|mark| mark.since) })
    }

    /// Nobody writes, so no entry that stands now is that of a write under way.
    pub(crate) async fn nobody_writes<K: OutboxKey>(&self, link: &Link) -> StoreResult<()> {
        let entries = self.list::<K>(link, usize::MAX).await?;
        *locked(&self.abandoned) = listed(entries.iter());
        Ok(())
    }

    /// Entries of all generations; of each the oldest, and no more than are needed to have `limit`.
    async fn list<K: OutboxKey>(&self, link: &Link, limit: usize) -> StoreResult<Vec<Entry<K>>> {
        let generations = self.generations(link).await?;
        self.follow_dcs(link, &generations).await?;
        locked(&self.known).of.retain(|generation, _| generations.contains(generation));
        let entries: Vec<Vec<Entry<K>>> = stream::iter(generations)
            .map(|generation| self.in_generation(link, generation, limit))
            .buffer_unordered(GENERATIONS_AT_ONCE)
            .try_collect()
            .await?;
        Ok(entries.concat())
    }

    async fn follow_dcs(&self, link: &Link, generations: &BTreeSet<i64>) -> StoreResult<()> {
        let (must_unpublish, times_forgotten) = {
            let (mut known, dc_state) = (locked(&self.known), link.dc_state());
            if known.dc_state != dc_state {
                (known.dc_state, known.must_unpublish) = (dc_state, true);
                known.times_forgotten += 1;
                known.of.clear();
            }
            (known.must_unpublish, known.times_forgotten)
        };
        if !must_unpublish {
            return Ok(());
        }
        for generation in generations {
            self.write_drained(link, *generation, &SlotSet::default()).await?;
        }
        let mut known = locked(&self.known);
        known.must_unpublish = known.times_forgotten != times_forgotten;
        Ok(())
    }

    async fn generations(&self, link: &Link) -> StoreResult<BTreeSet<i64>> {
        let rows = link.read(&self.statements.generations, ()).await?;
        let rows = rows.rows::<(i64,)>().map_err(|error| damaged("a list of generations", error))?;
        rows.map(|row| row.map(|(generation,)| generation))
            .collect::<Result<_, _>>()
            .map_err(|error| damaged("a list of generations", error))
    }

    async fn in_generation<K: OutboxKey>(
        &self,
        link: &Link,
        generation: i64,
        limit: usize,
    ) -> StoreResult<Vec<Entry<K>>> {
        let Some((slots, opened_at)) = self.hear(link, generation).await? else { return Ok(Vec::new()) };
        let is_drained = slots.is_empty();
        let mut entries = Vec::new();
        {
            let mut read = stream::iter(slots)
                .map(|slot| self.in_slot(link, SlotId { generation, slot }))
                .buffered(SLOTS_AT_ONCE);
            while let Some(more) = read.try_next().await? {
                entries.extend(more);
                if entries.len() >= limit {
                    break;
                }
            }
        }
        if is_drained && stamps::real_now().since(opened_at) > GENERATION_FORGOTTEN_AFTER_MS {
            self.forget(link, generation).await?;
        } else {
            self.publish(link, generation).await?;
        }
        Ok(entries)
    }

    /// Asks which slots a generation has; says which of them have to be read, and when it opened the newest.
    /// `None`: no write has begun in it.
    async fn hear(&self, link: &Link, generation: i64) -> StoreResult<Option<(Vec<i64>, Timestamp)>> {
        let Some((opened, at)) = self.told::<Opened>(link, slots_of(generation)).await? else {
            return Ok(None);
        };
        let is_new = {
            let known = locked(&self.known);
            known.dc_state == DcState::Whole && !known.must_unpublish && !known.of.contains_key(&generation)
        };
        let drained = match is_new {
            true => self.told::<SlotSet>(link, drained_of(generation)).await?,
            false => None,
        };
        let now_ms = self.now_ms();
        let slots = self.with(generation, |of| {
            if let Some((drained, _)) = drained {
                of.reading.drain_all(&drained);
                of.published = Some((drained, now_ms));
            }
            of.reading.heard(opened, now_ms);
            of.reading.slots()
        });
        Ok(Some((slots, at)))
    }

    async fn told<T: std::str::FromStr>(
        &self,
        link: &Link,
        name: String,
    ) -> StoreResult<Option<(T, Timestamp)>> {
        let rows = link.read(&self.statements.told, (&name,)).await?;
        let row = rows.maybe_first_row::<(String, CqlTimestamp)>();
        let Some((value, CqlTimestamp(at))) = row.map_err(|error| damaged(name.clone(), error))? else {
            return Ok(None);
        };
        let parsed = value.parse().map_err(|_| StoreError::Corrupt {
            what: format!("expected the slots of an outbox in state {name}, got {value:?}"),
            source: None,
        })?;
        Ok(Some((parsed, Timestamp::from_millis(at))))
    }

    async fn in_slot<K: OutboxKey>(&self, link: &Link, at: SlotId) -> StoreResult<Vec<Entry<K>>> {
        let (now_ms, given_up_ms) = (self.now_ms(), link.given_up_after_us() / 1_000);
        // Before it is read: an entry that comes after that is in a slot that is not closed.
        let times_forgotten = locked(&self.known).times_forgotten;
        let (closing, seals) = self.with(at.generation, |of| {
            (of.reading.closing(at.slot, now_ms, given_up_ms), of.reading.seals(at.slot))
        });
        let mut entries = self.read_slot(link, at, seals).await?;
        let mut is_closed = closing == Closing::ByWriter;
        if closing == Closing::GivenUp && entries.is_empty() {
            // Of this one nobody says that all there is has arrived where it is looked for.
            let row = (at.generation, at.slot, seals.0, seals.1);
            is_closed = link.read_of_all_replicas(&self.statements.in_slot, row).await.is_ok();
            if is_closed {
                entries = self.read_slot(link, at, seals).await?;
            }
        }
        let seals = entries.iter().map(|entry| entry.mark.seal.cast_signed());
        let seals = seals.clone().min().zip(seals.max());
        let mut known = locked(&self.known);
        if is_closed && known.times_forgotten == times_forgotten {
            known.of.entry(at.generation).or_default().reading.read_closed(at.slot, seals);
        }
        Ok(entries)
    }

    async fn read_slot<K: OutboxKey>(
        &self,
        link: &Link,
        at: SlotId,
        (first, last): (i64, i64),
    ) -> StoreResult<Vec<Entry<K>>> {
        let rows = link.read(&self.statements.in_slot, (at.generation, at.slot, first, last)).await?;
        let mut entries = Vec::new();
        for row in rows.rows::<(i64, &[u8])>().map_err(damaged_entry)? {
            let (seal, key) = row.map_err(damaged_entry)?;
            let key = K::from_bytes(key).ok_or_else(|| StoreError::Corrupt {
                what: format!("expected the key of an entry of the outbox, got {} bytes", key.len()),
                source: None,
            })?;
            entries.push(Entry { mark: mark_of(key, seal), at });
        }
        Ok(entries)
    }

    /// Spares whoever starts later to read it all.
    async fn publish(&self, link: &Link, generation: i64) -> StoreResult<()> {
        let now_ms = self.now_ms();
        if locked(&self.known).dc_state != DcState::Whole {
            return Ok(());
        }
        let drained = self.with(generation, |of| {
            let drained = of.reading.drained().truncated(PUBLISHED_RANGES_MAX);
            let is_due = match &of.published {
                None => drained != SlotSet::default(),
                Some((published, at_ms)) => now_ms - at_ms >= PUBLISHED_EVERY_MS && *published != drained,
            };
            is_due.then(|| {
                of.published = Some((drained.clone(), now_ms));
                drained
            })
        });
        match drained {
            Some(drained) => self.write_drained(link, generation, &drained).await,
            None => Ok(()),
        }
    }

    async fn write_drained(&self, link: &Link, generation: i64, drained: &SlotSet) -> StoreResult<()> {
        let now = CqlTimestamp(stamps::real_now().as_millis());
        let values = (drained_of(generation), drained.to_string(), now, link.stamps().next());
        link.write(&self.statements.tell, values, nothing_owed()).await
    }

    /// Its instance goes on in another generation, if it lives.
    async fn forget(&self, link: &Link, generation: i64) -> StoreResult<()> {
        let Statements { forget, forget_generation, .. } = &self.statements;
        let stamp = link.stamps().next();
        link.write(forget_generation, (stamp, generation), nothing_owed()).await?;
        for name in [slots_of(generation), drained_of(generation)] {
            link.write(forget, (stamp, name), nothing_owed()).await?;
        }
        locked(&self.known).of.remove(&generation);
        Ok(())
    }

    pub(crate) async fn remove<K: OutboxKey>(&self, link: &Link, marks: &[Mark<K>]) -> StoreResult<()> {
        stream::iter(marks.to_vec())
            .map(|mark| self.remove_one(link, mark))
            .buffer_unordered(REMOVED_AT_ONCE)
            .try_collect()
            .await
    }

    async fn remove_one<K: OutboxKey>(&self, link: &Link, mark: Mark<K>) -> StoreResult<()> {
        let (key, seal) = (mark.key.to_bytes(), mark.seal.cast_signed());
        let all_at = match self.found.get(&(key.clone(), seal)) {
            Some(at) => vec![at],
            None => self.slots_of_entry(link, &key, seal).await?,
        };
        for at in all_at {
            let EntryRow { key, seal, generation, slot, stamp } = EntryRow::of(&Entry { mark, at });
            // Later than whatever is written of this entry, and of no other.
            let removed = stamp + 1;
            let Statements { remove_from_slot, remove, .. } = &self.statements;
            let by_slot = (removed, generation, slot, seal, &key);
            link.write(remove_from_slot, by_slot, mark.key.owed()).await?;
            link.write(remove, (removed, &key, seal, generation, slot), mark.key.owed()).await?;
        }
        self.unlist(&key, seal);
        self.found.remove(&(key, seal));
        Ok(())
    }

    async fn slots_of_entry(&self, link: &Link, key: &[u8], seal: i64) -> StoreResult<Vec<SlotId>> {
        let rows = link.read(&self.statements.of_seal, (key, seal)).await?;
        let rows = rows.rows::<(i64, i64)>().map_err(damaged_entry)?;
        let found = rows.map(|row| row.map(|(generation, slot)| SlotId { generation, slot }));
        let mut found: Vec<SlotId> = found.collect::<Result<_, _>>().map_err(damaged_entry)?;
        for listed in [&self.abandoned, &self.old] {
            let listed = locked(listed);
            let of_key = listed.get(key).into_iter().flatten();
            found.extend(of_key.filter(|(listed, _)| *listed == seal).map(|(_, at)| *at));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Reads the entries of an entity from all replicas, which repairs those that lack one.
    pub(crate) async fn settle<K: OutboxKey>(&self, link: &Link, key: K) -> StoreResult<()> {
        let bytes = key.to_bytes();
        let Statements { of_key, generations, told, is_in_slot, .. } = &self.statements;
        link.read_of_all_replicas(of_key, (bytes.as_slice(),)).await?;
        link.read_of_all_replicas(generations, ()).await?;
        let rows = link.read(of_key, (bytes.as_slice(),)).await?;
        for row in rows.rows::<(i64, i64, i64, Option<bool>)>().map_err(damaged_entry)? {
            let (seal, generation, slot, _) = row.map_err(damaged_entry)?;
            link.read_of_all_replicas(told, (slots_of(generation),)).await?;
            let row = (generation, slot, seal, bytes.as_slice());
            link.read_of_all_replicas(is_in_slot, row).await?;
        }
        Ok(())
    }

    fn unlist(&self, key: &[u8], seal: i64) {
        for listed in [&self.abandoned, &self.old] {
            let mut listed = locked(listed);
            if let Some(entries) = listed.get_mut(key) {
                entries.retain(|(listed, _)| *listed != seal);
                if entries.is_empty() {
                    listed.remove(key);
                }
            }
        }
    }

    fn with<T>(&self, generation: i64, work: impl FnOnce(&mut Generation) -> T) -> T {
        work(locked(&self.known).of.entry(generation).or_default())
    }

    /// This process's own time. Nobody sets it, and while the machine is suspended it stands still, so that
    /// nothing is given up too early.
    fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

impl Statements {
    async fn prepare(link: &Link) -> Result<Self, ConnectError> {
        const OF_ENTRY: &str = "key = ? AND seal = ? AND generation = ? AND slot = ?";
        const IN_SLOT: &str = "generation = ? AND slot = ? AND seal = ? AND key = ?";
        Ok(Self {
            enter: link
                .prepare(
                    "enter",
                    Write,
                    "INSERT INTO {}.outbox (key, seal, generation, slot) VALUES (?, ?, ?, ?) \
                    USING TIMESTAMP ?",
                )
                .await?,
            enter_slot: link
                .prepare(
                    "enter_slot",
                    Write,
                    "INSERT INTO {}.outbox_slots (generation, slot, seal, key) VALUES (?, ?, ?, ?) \
                    USING TIMESTAMP ?",
                )
                .await?,
            end: link
                .prepare(
                    "end_entry",
                    Write,
                    &format!("UPDATE {{}}.outbox USING TIMESTAMP ? SET is_over = true WHERE {OF_ENTRY}"),
                )
                .await?,
            of_key: link
                .prepare_seeing(
                    "entries_of_key",
                    "SELECT seal, generation, slot, is_over FROM {}.outbox WHERE key = ?",
                )
                .await?,
            of_seal: link
                .prepare_seeing("entry", "SELECT generation, slot FROM {}.outbox WHERE key = ? AND seal = ?")
                .await?,
            in_slot: link
                .prepare_seeing(
                    "entries_in_slot",
                    "SELECT seal, key FROM {}.outbox_slots \
                    WHERE generation = ? AND slot = ? AND seal >= ? AND seal <= ?",
                )
                .await?,
            is_in_slot: link
                .prepare_seeing(
                    "entry_in_slot",
                    &format!("SELECT seal FROM {{}}.outbox_slots WHERE {IN_SLOT}"),
                )
                .await?,
            remove: link
                .prepare(
                    "remove_entry",
                    Write,
                    &format!("DELETE FROM {{}}.outbox USING TIMESTAMP ? WHERE {OF_ENTRY}"),
                )
                .await?,
            remove_from_slot: link
                .prepare(
                    "remove_from_slot",
                    Write,
                    &format!("DELETE FROM {{}}.outbox_slots USING TIMESTAMP ? WHERE {IN_SLOT}"),
                )
                .await?,
            list_generation: link
                .prepare(
                    "list_generation",
                    Write,
                    &format!(
                        "INSERT INTO {{}}.registers (list, entry) VALUES ('{LIST}', ?) USING TIMESTAMP ?"
                    ),
                )
                .await?,
            generations: link
                .prepare_seeing(
                    "generations",
                    &format!("SELECT entry FROM {{}}.registers WHERE list = '{LIST}'"),
                )
                .await?,
            forget_generation: link
                .prepare(
                    "forget_generation",
                    Write,
                    &format!(
                        "DELETE FROM {{}}.registers USING TIMESTAMP ? WHERE list = '{LIST}' AND entry = ?"
                    ),
                )
                .await?,
            tell: link
                .prepare(
                    "tell_slots",
                    Write,
                    "INSERT INTO {}.state (name, value, at) VALUES (?, ?, ?) USING TIMESTAMP ?",
                )
                .await?,
            told: link.prepare_seeing("told_slots", "SELECT value, at FROM {}.state WHERE name = ?").await?,
            forget: link
                .prepare("forget_slots", Write, "DELETE FROM {}.state USING TIMESTAMP ? WHERE name = ?")
                .await?,
        })
    }
}

impl Writer {
    fn new(slots: OpenSlots) -> Self {
        let current = slots.current();
        Self { slots, is_listed: Arc::default(), is_told: Arc::default(), current }
    }
}

impl Reserved<'_> {
    fn closed_below(&self) -> i64 {
        match &*locked(self.writer) {
            Some(writer) if writer.current.generation == self.place.at.generation => {
                writer.slots.closed_below()
            }
            _ => 0,
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(writer) = locked(self.writer).as_mut() {
            writer.slots.give_back(self.place);
        }
    }
}

impl Default for Seals {
    fn default() -> Self {
        Self(AtomicU32::new(u32::from_le_bytes(secret::random_bytes())))
    }
}

impl Seals {
    fn next(&self, now: Timestamp) -> i64 {
        let number = self.0.fetch_add(1, Ordering::Relaxed) % (1 << SEAL_NUMBER_BITS);
        now.as_millis() << SEAL_NUMBER_BITS | i64::from(number)
    }
}

/// Primary key of an entry in both tables, and the stamp of all that is written of it.
struct EntryRow {
    key: Vec<u8>,
    seal: i64,
    generation: i64,
    slot: i64,
    stamp: i64,
}

impl EntryRow {
    fn of<K: OutboxKey>(entry: &Entry<K>) -> Self {
        let Entry { mark, at: SlotId { generation, slot } } = *entry;
        let stamp = mark.since.as_millis() * 1_000;
        Self { key: mark.key.to_bytes(), seal: mark.seal.cast_signed(), generation, slot, stamp }
    }
}

/// The oldest first. One of each is enough to find the others.
fn one_of_each<K: OutboxKey>(entries: Vec<Entry<K>>, limit: usize) -> Vec<Mark<K>> {
    let mut marks: Vec<Mark<K>> = entries.into_iter().map(|entry| entry.mark).collect();
    marks.sort_by_key(|mark| (mark.since, mark.seal));
    let mut met = BTreeSet::new();
    marks.retain(|mark| met.insert(mark.key));
    marks.truncate(limit);
    marks
}

fn listed<'a, K: OutboxKey + 'a>(entries: impl Iterator<Item = &'a Entry<K>>) -> Listed {
    let mut listed = Listed::new();
    for Entry { mark, at } in entries {
        listed.entry(mark.key.to_bytes()).or_default().push((mark.seal.cast_signed(), *at));
    }
    listed
}

fn mark_of<K>(key: K, seal: i64) -> Mark<K> {
    Mark { key, since: Timestamp::from_millis(seal >> SEAL_NUMBER_BITS), seal: seal.cast_unsigned() }
}

/// Before this, an entry was left so long ago that nobody can be at its write.
fn given_up(link: &Link) -> Timestamp {
    stamps::real_now().plus_ms(-link.given_up_after_us() / 1_000)
}

/// A third of what readers wait, so that neither the time until a reader hears of a slot nor clocks that run
/// at different speeds matter.
fn fence_ms(link: &Link) -> i64 {
    link.given_up_after_us() / 3_000
}

/// No two ever have the same.
fn new_generation() -> i64 {
    i64::from_le_bytes(secret::random_bytes()) & i64::MAX
}

/// Rows of `state`: which slots a generation has opened, and which of them are drained.
fn slots_of(generation: i64) -> String {
    format!("{LIST} {generation}")
}

fn drained_of(generation: i64) -> String {
    format!("{LIST} {generation} drained")
}

/// Whoever has not got it reads a little more.
fn nothing_owed() -> Owed {
    Owed(Vec::new())
}

fn damaged_entry(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    damaged("an entry of the outbox", error)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seal_says_when_and_no_other_entry_has_it() {
        let now = stamps::real_now();
        let instances = [500_000, u32::MAX - 7, 1_000].map(|first| Seals(AtomicU32::new(first)));
        let seals: Vec<i64> = instances.iter().flat_map(|seals| (0..100).map(|_| seals.next(now))).collect();
        assert_eq!(seals.iter().collect::<HashSet<_>>().len(), seals.len());
        assert!(seals.iter().all(|seal| mark_of((), *seal).since == now));
        assert!(instances[0].next(now.plus_ms(1)) > *seals.iter().max().unwrap());
    }
}
