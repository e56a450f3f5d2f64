//! Carts, orders and sessions as a migration sees them.
//!
//! What is the same for all stands here; what each looks like, in a `moving` beside its port ([`Stored`]). A mark is written in
//! the same batch as the write that it stands for.

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use fjall::{Readable, Snapshot};
use mobimir_core::{
    moving::{
        Backlog, Facts, Found, InTable, Mark, Movable, Movables, Place, Range, Row, Rows, Scanned, Side,
        Unreadable, Whole,
    },
    ports::StoreResult,
    time::{Clock, SystemClock, Timestamp},
};

use crate::{
    EmbeddedStore,
    engine::{Key, KeyBuilder, Table, Txn, after_key, after_prefix},
    error::{damaged, read_failed},
    records::unmirrored::{self, StoredMark},
    store::Shared,
};

/// Entities that one write puts, so that shoppers' writes do not wait long behind it.
const PUT_ENTITIES_PER_WRITE_MAX: usize = 64;

/// Ranges that one table is cut into at most.
const RANGES_PER_TABLE_MAX: usize = 1_024;

/// Whether a write leaves marks.
#[derive(Clone, Copy)]
pub(crate) struct Marking(bool);

impl Marking {
    pub(crate) fn new(is_tracked: bool) -> Self {
        Self(is_tracked)
    }

    /// Marks what the running write changes.
    pub(crate) fn leave(self, shared: &Shared, txn: &mut Txn<'_>, key: Key) -> StoreResult<()> {
        if self.0 {
            let stored = txn.get(&key)?.map(|bytes| unmirrored::decode(&bytes)).transpose()?;
            let since = stored.map_or_else(|| SystemClock.now(), |mark| mark.since);
            let seal = shared.seals.fetch_add(1, Ordering::Relaxed);
            txn.put(key, unmirrored::encode(StoredMark { since, seal }));
        }
        Ok(())
    }
}

/// How an entity lies in the tables.
pub(crate) trait Stored: Whole {
    /// As people call them, with the table; those that hold entities of their own come first.
    const TABLES: &'static [(&'static str, Table)];
    /// Only their names.
    const NAMES: &'static [&'static str];
    /// How many of the tables hold entities, not entries of an index.
    const SCANNED: usize;
    const MARKS: Table;

    fn mark_key(key: Self::Key) -> Key;
    fn read_mark_key(bytes: &[u8]) -> StoreResult<Self::Key>;
    /// Where the entity itself lies.
    fn row_key(key: Self::Key) -> Key;
    /// Whose the row of a table is.
    fn read_key(table: Table, bytes: &[u8]) -> StoreResult<Self::Key>;
    fn read(shared: &Shared, snapshot: &Snapshot, key: Self::Key) -> StoreResult<Option<Self>>;
    /// Writes it over whatever is stored, if that is older; and the entries of all indexes.
    fn put(self, shared: &Shared, txn: &mut Txn<'_>) -> StoreResult<()>;
    /// The entries it should have in the indexes.
    fn entries(&self) -> Vec<(&'static str, Key)>;
    /// What an entry of an index says.
    fn told(table: Table, key: &[u8], value: &[u8]) -> StoreResult<Facts>;
    /// Removes an entity, without its entries in the indexes.
    fn remove(shared: &Shared, txn: &mut Txn<'_>, key: Self::Key) -> StoreResult<()>;
}

impl EmbeddedStore {
    pub fn movables(&self) -> Movables {
        let (plain, tracked) = (Arc::new(self.clone()), Arc::new(self.tracked()));
        Movables {
            orders: Side { port: plain.clone(), tracked: tracked.clone(), moving: plain.clone() },
            carts: Side { port: plain.clone(), tracked: tracked.clone(), moving: plain.clone() },
            sessions: Side { port: plain.clone(), tracked, moving: plain },
        }
    }
}

#[async_trait]
impl<W: Stored> Movable<W> for EmbeddedStore {
    fn tables(&self) -> &'static [&'static str] {
        W::NAMES
    }

    async fn whole(&self, key: W::Key) -> StoreResult<Found<W>> {
        self.read(move |shared| {
            let snapshot = shared.tables.snapshot();
            let Key { space, bytes } = W::mark_key(key);
            let mark = snapshot.get(shared.tables.keyspace(space), &bytes).map_err(read_failed)?;
            let mark = mark.map(|bytes| unmirrored::decode(&bytes)).transpose()?;
            let marks =
                mark.map(|StoredMark { since, seal }| Mark { key, since, seal }).into_iter().collect();
            Ok(Found { whole: W::read(shared, &snapshot, key)?, marks, is_being_written: false })
        })
        .await
    }

    async fn count(&self) -> StoreResult<u64> {
        self.read(|shared| {
            let all = W::TABLES[..W::SCANNED].iter().map(|(_, table)| KeyBuilder::new(*table).end());
            let counts = all.map(|all| shared.tables.keyspace(all.space).prefix(&all.bytes).count() as u64);
            Ok(counts.sum())
        })
        .await
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        // Each range begins where the one before ends; all lie in the order of the keys.
        let inner = self.read(move |shared| borders::<W>(shared, parts)).await?;
        let borders: Vec<Option<Place>> =
            [None].into_iter().chain(inner.into_iter().map(Some)).chain([None]).collect();
        let ranges = borders.windows(2).map(|pair| Range { after: pair[0].clone(), to: pair[1].clone() });
        Ok(ranges.collect())
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<W>> {
        let range = range.clone();
        self.read(move |shared| scan(shared, &range, limit)).await
    }

    async fn put(&self, wholes: Vec<W>, now: Timestamp) -> StoreResult<()> {
        let is_there = |whole: &W| whole.expires_at().is_none_or(|expires_at| expires_at > now);
        let wholes: Vec<W> = wholes.into_iter().filter(is_there).collect();
        for wholes in wholes.chunks(PUT_ENTITIES_PER_WRITE_MAX) {
            let wholes = wholes.to_vec();
            self.write(move |shared, txn| wholes.into_iter().try_for_each(|whole| whole.put(shared, txn)))
                .await?;
        }
        Ok(())
    }

    async fn in_tables(&self, whole: &W) -> StoreResult<Vec<InTable>> {
        let whole = whole.clone();
        self.read(move |shared| {
            let snapshot = shared.tables.snapshot();
            let row = W::row_key(whole.key());
            let (name, _) = table_of::<W>(&row.bytes)?;
            let facts = W::read(shared, &snapshot, whole.key())?.map(|stored| stored.facts());
            let mut found = vec![InTable { table: name, facts }];
            for (table, Key { space, bytes }) in whole.entries() {
                let entry = snapshot.get(shared.tables.keyspace(space), &bytes).map_err(read_failed)?;
                let (_, of) = table_of::<W>(&bytes)?;
                let facts = entry.map(|value| W::told(of, &bytes, &value)).transpose()?;
                found.push(InTable { table, facts });
            }
            Ok(found)
        })
        .await
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<W::Key>> {
        let after = after.cloned();
        self.read(move |shared| {
            let at = W::TABLES.iter().position(|(name, _)| *name == table);
            let at = at.ok_or_else(|| damaged(format!("there is no table {table}")))?;
            rows::<W>(shared, at, after, limit)
        })
        .await
    }

    async fn remove(&self, table: &'static str, row: &Row<W::Key>) -> StoreResult<()> {
        let (key, bytes) = (row.key, row.place.0.clone());
        let is_entry = W::TABLES.iter().skip(W::SCANNED).any(|(name, _)| *name == table);
        self.write(move |shared, txn| {
            if is_entry {
                txn.remove(Key { space: W::row_key(key).space, bytes: bytes.into() });
                return Ok(());
            }
            W::remove(shared, txn, key)
        })
        .await
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<W::Key>>> {
        let mut marks = self.read(|shared| marks::<W>(shared)).await?;
        marks.sort_by_key(|mark| mark.since);
        marks.truncate(limit);
        Ok(marks)
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let marks = self.read(|shared| marks::<W>(shared)).await?;
        Ok(Backlog { entities: marks.len() as u64, oldest: marks.iter().map(|mark| mark.since).min() })
    }

    async fn mirrored(&self, marks: &[Mark<W::Key>], read_at: Timestamp) -> StoreResult<()> {
        let marks: Vec<(Key, u64)> = marks.iter().map(|mark| (W::mark_key(mark.key), mark.seal)).collect();
        self.write(move |_, txn| {
            for (key, seal) in marks {
                let stored = txn.get(&key)?.map(|bytes| unmirrored::decode(&bytes)).transpose()?;
                match stored {
                    Some(mark) if mark.seal == seal => txn.remove(key),
                    Some(mark) if mark.since < read_at => {
                        txn.put(key, unmirrored::encode(StoredMark { since: read_at, ..mark }));
                    }
                    _ => {}
                }
            }
            Ok(())
        })
        .await
    }
}

/// The table that a key belongs to.
fn table_of<W: Stored>(key: &[u8]) -> StoreResult<(&'static str, Table)> {
    let found = W::TABLES.iter().copied().find(|(_, table)| key.first() == Some(&(*table as u8)));
    found.ok_or_else(|| damaged("a key belongs to no table that moves"))
}

/// What divides each table evenly between its first key and its last. Keys grow with time or are spread evenly, and lie
/// close together in both cases.
fn borders<W: Stored>(shared: &Shared, parts: usize) -> StoreResult<Vec<Place>> {
    let parts = (parts / W::SCANNED).clamp(1, RANGES_PER_TABLE_MAX);
    let mut borders = Vec::new();
    for (_, table) in &W::TABLES[..W::SCANNED] {
        let all = KeyBuilder::new(*table).end();
        borders.push(Place(all.bytes.to_vec()));
        let mut keys = shared.tables.keyspace(all.space).prefix(&all.bytes);
        let (Some(first), Some(last)) = (keys.next(), keys.next_back()) else { continue };
        let [first, last] = [first.key().map_err(read_failed)?, last.key().map_err(read_failed)?];
        let [first, last] = [first, last].map(|key| beginning(&key[all.bytes.len()..]));
        for part in 1..parts {
            let at = first
                + u64::try_from(u128::from(last.saturating_sub(first)) * part as u128 / parts as u128)
                    .unwrap_or(0);
            borders.push(Place([all.bytes.to_vec(), at.to_be_bytes().to_vec()].concat()));
        }
    }
    borders.dedup();
    Ok(borders)
}

/// The first bytes as a number that sorts as they do.
fn beginning(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .copied()
        .chain(std::iter::repeat(0))
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(byte))
}

fn scan<W: Stored>(shared: &Shared, range: &Range, limit: usize) -> StoreResult<Scanned<W>> {
    let snapshot = shared.tables.snapshot();
    let mut items = Vec::new();
    for (_, table) in &W::TABLES[..W::SCANNED] {
        let all = KeyBuilder::new(*table).end();
        let after = |place: &Place| after_key(&Key { space: all.space, bytes: place.0.as_slice().into() });
        let start = range.after.as_ref().map_or(all.clone(), |place| after(place).max(all.clone()));
        let end = after_prefix(&all);
        let end = range.to.as_ref().map_or(end.clone(), |place| after(place).min(end));
        if start >= end {
            continue;
        }
        for row in snapshot.range(shared.tables.keyspace(all.space), start.bytes..end.bytes) {
            let bytes = row.key().map_err(read_failed)?;
            if items.len() == limit {
                let next = items.last().map(|(place, _)| Place::clone(place));
                return Ok(Scanned { items: items.into_iter().map(|(_, item)| item).collect(), next });
            }
            let whole = W::read_key(*table, &bytes).and_then(|key| W::read(shared, &snapshot, key));
            let item = match whole {
                Ok(Some(whole)) => Ok(whole),
                Ok(None) => continue,
                Err(error) => Err(Unreadable { key: hexadecimal(&bytes), error }),
            };
            items.push((Place(bytes.to_vec()), item));
        }
    }
    Ok(Scanned { items: items.into_iter().map(|(_, item)| item).collect(), next: None })
}

fn rows<W: Stored>(
    shared: &Shared,
    at: usize,
    after: Option<Place>,
    limit: usize,
) -> StoreResult<Rows<W::Key>> {
    let (_, table) = W::TABLES[at];
    let snapshot = shared.tables.snapshot();
    let all = KeyBuilder::new(table).end();
    let start =
        after.map_or(all.clone(), |place| after_key(&Key { space: all.space, bytes: place.0.into() }));
    let (mut items, end) = (Vec::new(), after_prefix(&all));
    for row in snapshot.range(shared.tables.keyspace(all.space), start.bytes..end.bytes) {
        let (bytes, value) = row.into_inner().map_err(read_failed)?;
        if items.len() == limit {
            let next = items.last().map(|row: &Row<W::Key>| row.place.clone());
            return Ok(Rows { items, nameless: Vec::new(), next });
        }
        let key = W::read_key(table, &bytes)?;
        let facts = if at < W::SCANNED {
            W::read(shared, &snapshot, key)?.map(|whole| whole.facts()).unwrap_or_default()
        } else {
            W::told(table, &bytes, &value)?
        };
        items.push(Row { key, facts, place: Place(bytes.to_vec()) });
    }
    Ok(Rows { items, nameless: Vec::new(), next: None })
}

fn marks<W: Stored>(shared: &Shared) -> StoreResult<Vec<Mark<W::Key>>> {
    let Key { space, bytes } = unmirrored::all(W::MARKS);
    let rows = shared.tables.keyspace(space).prefix(&bytes);
    rows.map(|row| {
        let (key, value) = row.into_inner().map_err(read_failed)?;
        let StoredMark { since, seal } = unmirrored::decode(&value)?;
        Ok(Mark { key: W::read_mark_key(&key)?, since, seal })
    })
    .collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
