//! All of some tables, piece by piece, in the order of their partitions' tokens.
//!
//! A place in them is a table, the token behind which a piece begins, and where in that piece the cluster left off. So
//! a scan goes on after years and in another process where it was, within a partition, too.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    moving::{Facts, Place, Range, Scanned, Unreadable, Whole},
    ports::{StoreError, StoreResult},
};
use scylla::{
    deserialize::row::DeserializeRow,
    response::{PagingState, query_result::QueryRowsResult},
    value::CqlTimestamp,
};
use uuid::Uuid;

use crate::link::{Link, Statement, damaged};

/// Rows that one step reads at most.
const STEP_ROWS_MAX: usize = 1_000;
/// Entities that are read at the same time, when their keys are known.
pub(crate) const READ_AT_ONCE: usize = 16;
/// Copies of one call that are put at the same time. A backfill makes several calls at a time.
pub(crate) const PUT_AT_ONCE: usize = 16;
/// Rows that are counted one by one to know how many there are.
const COUNTED_ROWS_MAX: u64 = 4_000;
/// Parts of a table of which some are counted.
const COUNTED_PARTS: usize = 256;
/// Parts that a table is cut into at most.
const PARTS_MAX: usize = 65_536;

/// Some rows of one of the tables.
pub(crate) struct Step {
    /// Which of them.
    pub(crate) table: usize,
    /// None where the range ends before there is anything to ask for.
    pub(crate) rows: Option<QueryRowsResult>,
    pub(crate) next: Option<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    table: usize,
    after: i64,
    /// Where the cluster left off behind that; nothing at the beginning.
    state: Vec<u8>,
}

impl Position {
    /// No partition has the least token.
    fn start_of(table: usize) -> Self {
        Self { table, after: i64::MIN, state: Vec::new() }
    }

    fn encode(&self) -> Place {
        let mut bytes = vec![u8::try_from(self.table).unwrap_or(u8::MAX)];
        // So that places sort as tokens do.
        bytes.extend((self.after.cast_unsigned() ^ (1 << 63)).to_be_bytes());
        bytes.extend(&self.state);
        Place(bytes)
    }

    fn decode(place: &Place) -> StoreResult<Self> {
        let mut bytes = KeyBytes(&place.0);
        let [table] = bytes.take()?;
        let after = (u64::from_be_bytes(bytes.take()?) ^ (1 << 63)).cast_signed();
        Ok(Self { table: usize::from(table), after, state: bytes.0.to_vec() })
    }
}

/// About so many ranges that together are everything in so many tables.
pub(crate) fn ranges(tables: usize, parts: usize) -> Vec<Range> {
    let parts = (parts / tables.max(1)).clamp(1, PARTS_MAX);
    let border = |at: usize| {
        let (table, part) = (at / parts, at % parts);
        let share = (1i128 << 64) * part as i128 / parts as i128;
        let after = i64::try_from(i128::from(i64::MIN) + share).unwrap_or(i64::MAX);
        let is_inner = 0 < at && at < tables * parts;
        is_inner.then(|| Position { after, ..Position::start_of(table) }.encode())
    };
    (0..tables * parts).map(|at| Range { after: border(at), to: border(at + 1) }).collect()
}

/// The next rows of a range. Each statement asks for a table's rows with `token(..) > ? AND token(..) <= ?`.
pub(crate) async fn step(
    link: &Link,
    statements: &[&Statement],
    range: &Range,
    limit: usize,
) -> StoreResult<Step> {
    let from = range.after.as_ref().map_or(Ok(Position::start_of(0)), Position::decode)?;
    // The end of all is the beginning of a table that is not there.
    let end = range.to.as_ref().map_or(Ok(Position::start_of(statements.len())), Position::decode)?;
    let Some(statement) = statements.get(from.table) else { return Err(no_place()) };
    let table = from.table;
    let to = if table < end.table { i64::MAX } else { end.after };
    let has_next_table = end.table > table + 1 || (end.table == table + 1 && end.after > i64::MIN);
    let following = || has_next_table.then(|| Position::start_of(table + 1).encode());
    if table > end.table || from.after >= to {
        return Ok(Step { table, rows: None, next: following() });
    }
    let state = if from.state.is_empty() {
        PagingState::start()
    } else {
        PagingState::new_from_raw_bytes(from.state.as_slice())
    };
    let rows_max = i32::try_from(limit.clamp(1, STEP_ROWS_MAX)).unwrap_or(i32::MAX);
    let (rows, next) = link.read_page_of(statement, (from.after, to), state, rows_max).await?;
    let next = next
        .as_ref()
        .and_then(PagingState::as_bytes_slice)
        .map_or_else(following, |state| Some(Position { state: state.to_vec(), ..from.clone() }.encode()));
    Ok(Step { table, rows: Some(rows), next })
}

/// About how many rows the tables have. Small ones are counted; of a large one so many parts are that they stand for the
/// rest, because tokens are spread evenly.
pub(crate) async fn count(link: &Link, statements: &[&Statement]) -> StoreResult<u64> {
    let mut all = 0;
    for statement in statements {
        let (counted, is_whole) = count_in(link, statement, Range::default(), COUNTED_ROWS_MAX).await?;
        if is_whole {
            all += counted;
            continue;
        }
        let (parts, mut met, mut looked_at) = (ranges(1, COUNTED_PARTS), 0, 0);
        let parts_max = parts.len() as u64;
        for part in parts {
            met += count_in(link, statement, part, u64::MAX).await?.0;
            looked_at += 1;
            if met >= COUNTED_ROWS_MAX {
                break;
            }
        }
        all += met * parts_max / looked_at.max(1);
    }
    Ok(all)
}

/// How many rows a range has, and whether these are all of them.
async fn count_in(
    link: &Link,
    statement: &Statement,
    mut range: Range,
    rows_max: u64,
) -> StoreResult<(u64, bool)> {
    let mut counted = 0;
    while counted < rows_max {
        let Step { rows, next, .. } = step(link, &[statement], &range, STEP_ROWS_MAX).await?;
        counted += rows.map_or(0, |rows| rows.rows_num() as u64);
        if next.is_none() {
            return Ok((counted, true));
        }
        range.after = next;
    }
    Ok((counted, false))
}

/// The next rows of one table, from wherever a step before has ended.
pub(crate) async fn step_of_table(
    link: &Link,
    statement: &Statement,
    after: Option<&Place>,
    limit: usize,
) -> StoreResult<(Option<QueryRowsResult>, Option<Place>)> {
    let range = Range { after: after.cloned(), to: None };
    let Step { rows, next, .. } = step(link, &[statement], &range, limit).await?;
    Ok((rows, next))
}

/// Reads what was met, each by its key. What cannot be read is told; what has gone meanwhile is left out.
pub(crate) async fn read_each<W: Whole, F: Future<Output = StoreResult<Option<W>>> + Send>(
    keys: Vec<W::Key>,
    next: Option<Place>,
    read: impl Fn(W::Key) -> F + Sync,
) -> StoreResult<Scanned<W>> {
    let read = &read;
    let items: Vec<Option<Result<W, Unreadable>>> = stream::iter(keys)
        .map(|key| async move {
            match read(key).await {
                Ok(whole) => Ok(whole.map(Ok)),
                Err(error @ StoreError::Corrupt { .. }) => {
                    Ok(Some(Err(Unreadable { key: key.to_string(), error })))
                }
                Err(error) => Err(error),
            }
        })
        .buffered(READ_AT_ONCE)
        .try_collect()
        .await?;
    Ok(Scanned { items: items.into_iter().flatten().collect(), next })
}

/// What an entity says of itself, if it can be read.
pub(crate) fn said<W: Whole>(read: StoreResult<Option<W>>) -> StoreResult<Facts> {
    match read {
        Ok(whole) => Ok(whole.map_or_else(Facts::unreadable, |whole| whole.facts())),
        Err(StoreError::Corrupt { .. }) => Ok(Facts::unreadable()),
        Err(error) => Err(error),
    }
}

/// What can be named, and how to find the rest.
pub(crate) fn apart<T>(items: Vec<Result<T, String>>) -> (Vec<T>, Vec<String>) {
    let (mut named, mut nameless) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Ok(item) => named.push(item),
            Err(place) => nameless.push(place),
        }
    }
    (named, nameless)
}

/// What stands in a table under a key that no entity has.
pub(crate) fn no_entity(table: &str, key: &str) -> Unreadable {
    let error = StoreError::Corrupt {
        what: format!("Cassandra, {table}: expected the key of an entity"),
        source: None,
    };
    Unreadable { key: format!("{key} in {table}"), error }
}

pub(crate) fn decoded<'a, T: DeserializeRow<'a, 'a>, U>(
    rows: &'a QueryRowsResult,
    what: &str,
    decode: impl Fn(T) -> U,
) -> StoreResult<Vec<U>> {
    let rows = rows.rows::<T>().map_err(|error| damaged(what, error))?;
    rows.map(|row| row.map(&decode).map_err(|error| damaged(what, error))).collect()
}

/// The key of a row as a place, column by column.
pub(crate) fn key_place(columns: &[&[u8]]) -> Place {
    Place(columns.concat())
}

/// What is left to read of a key.
pub(crate) struct KeyBytes<'a>(pub(crate) &'a [u8]);

impl KeyBytes<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> StoreResult<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(no_place)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn uuid(&mut self) -> StoreResult<Uuid> {
        self.take().map(Uuid::from_bytes)
    }

    pub(crate) fn i32(&mut self) -> StoreResult<i32> {
        self.take().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> StoreResult<i64> {
        self.take().map(i64::from_be_bytes)
    }

    pub(crate) fn time(&mut self) -> StoreResult<CqlTimestamp> {
        self.i64().map(CqlTimestamp)
    }
}

fn no_place() -> StoreError {
    StoreError::Corrupt { what: "expected a place that this store has given out".to_owned(), source: None }
}

pub(crate) fn no_table(table: &str) -> StoreError {
    StoreError::Corrupt { what: format!("expected one of the tables that move, got {table:?}"), source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_again() {
        for after in [i64::MIN, -1, 0, 7, i64::MAX] {
            let position = Position { table: 1, after, state: vec![1, 2, 3] };
            assert_eq!(Position::decode(&position.encode()).unwrap(), position);
        }
        assert!(Position::decode(&Place(vec![0, 1])).is_err());
    }

    #[test]
    fn ranges_follow_each_other_and_leave_nothing_out() {
        for (tables, parts) in [(1, 1), (1, 4), (2, 1), (2, 7), (2, 100_000)] {
            let ranges = ranges(tables, parts);
            assert!(ranges.len() >= tables);
            assert_eq!(ranges.first().unwrap().after, None);
            assert_eq!(ranges.last().unwrap().to, None);
            for pair in ranges.windows(2) {
                assert!(pair[0].to.is_some() && pair[0].to == pair[1].after);
                assert!(pair[0].after < pair[0].to);
            }
        }
    }
}
