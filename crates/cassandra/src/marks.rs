//! Marks on what was written and not copied since, for the entity of one keyspace.
//!
//! A mark is there before its write begins, so that whoever dies in between leaves one too many and never one too few. It
//! is told when the write is over. Before that, what is read of the entity says nothing about that write, and the mark
//! does not go by being copied; unless it is so old that nobody can still be at it, or it is known that nobody writes, and
//! then the entity is read after everything that was being decided about it is.
//!
//! Every write has a mark of its own under its own seal, so that removing one never touches that of a later write, or of
//! one at the same time on another instance. The seal says when the mark was left. Nothing else does: a replica may hear that
//! a write is over before it hears that it began, and a read that asks two replicas one after the other may meet no more.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use futures_util::{
    future::try_join_all,
    stream::{self, StreamExt, TryStreamExt},
};
use mobimir_core::{
    moving::{Backlog, Mark},
    ports::{StoreError, StoreResult},
    secret,
    time::Timestamp,
};
use scylla::response::PagingState;

use crate::{
    ConnectError, StatementKind,
    link::{Link, Owed, Statement, damaged},
    stamps,
};

pub(crate) struct Marks {
    leave: Statement,
    close: Statement,
    of_key: Statement,
    all: Statement,
    remove: Statement,
    seals: Seals,
    /// Marks that stood when nobody wrote, by key and seal. They are over, whether they know it or not.
    abandoned: Mutex<HashSet<(Vec<u8>, i64)>>,
}

/// What can be marked, as bytes.
pub(crate) trait MarkedKey: Copy + Ord + Send + Sync {
    fn to_bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Option<Self>;

    /// For when the lost data centre is back.
    fn owed(self) -> Owed;
}

/// The marks of one entity that go when it is copied as it is read now.
pub(crate) struct Marked<K> {
    pub(crate) marks: Vec<Mark<K>>,
    /// The write of one of them was given up, and may have been decided all the same.
    pub(crate) is_in_doubt: bool,
}

/// Partitions of the table.
const SHARDS: u8 = 32;
const SHARDS_AT_ONCE: usize = 8;
const MARKS_AT_ONCE: usize = 32;

/// Milliseconds, and below them a number. An instance counts on from wherever chance puts it, so that two which mark one key
/// in one millisecond have the same one in a million times.
struct Seals(AtomicU32);

const SEAL_NUMBER_BITS: u32 = 20;

impl Marks {
    pub(crate) async fn open(link: &Link) -> Result<Self, ConnectError> {
        use StatementKind::Write;
        Ok(Self {
            leave: link
                .prepare(
                    "mark",
                    Write,
                    "INSERT INTO {}.unmirrored (shard, key, seal) VALUES (?, ?, ?) USING TIMESTAMP ?",
                )
                .await?,
            close: link
                .prepare(
                    "close_mark",
                    Write,
                    "UPDATE {}.unmirrored USING TIMESTAMP ? SET is_over = true WHERE shard = ? AND key = ? AND seal = ?",
                )
                .await?,
            of_key: link
                .prepare_seeing("marks", "SELECT seal, is_over FROM {}.unmirrored WHERE shard = ? AND key = ?")
                .await?,
            all: link
                .prepare_seeing("all_marks", "SELECT key, seal FROM {}.unmirrored WHERE shard = ?")
                .await?,
            remove: link
                .prepare(
                    "remove_mark",
                    Write,
                    "DELETE FROM {}.unmirrored USING TIMESTAMP ? WHERE shard = ? AND key = ? AND seal = ?",
                )
                .await?,
            seals: Seals::default(),
            abandoned: Mutex::default(),
        })
    }

    /// Writes, and if it is tracked marks what is written.
    pub(crate) async fn tracked<K: MarkedKey, T>(
        &self,
        link: &Link,
        is_tracked: bool,
        keys: &[K],
        write: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        if !is_tracked {
            return write.await;
        }
        let marks = self.leave(link, keys).await?;
        let written = write.await?;
        for outcome in futures_util::future::join_all(marks.iter().map(|mark| self.close(link, mark))).await {
            // Then it goes when it is old.
            if let Err(error) = outcome {
                tracing::debug!(%error, "a mark does not know that its write is over");
            }
        }
        Ok(written)
    }

    async fn leave<K: MarkedKey>(&self, link: &Link, keys: &[K]) -> StoreResult<Vec<Mark<K>>> {
        let now = stamps::real_now();
        let marks: Vec<Mark<K>> = keys.iter().map(|key| mark_of(*key, self.seals.next(now))).collect();
        let left = marks.iter().map(|mark| async move {
            let (shard, key, seal) = row_key(mark);
            link.write(&self.leave, (shard, key, seal, stamp(mark)), mark.key.owed()).await
        });
        try_join_all(left).await?;
        Ok(marks)
    }

    async fn close<K: MarkedKey>(&self, link: &Link, mark: &Mark<K>) -> StoreResult<()> {
        let (shard, key, seal) = row_key(mark);
        link.write(&self.close, (stamp(mark), shard, key, seal), mark.key.owed()).await
    }

    pub(crate) async fn of<K: MarkedKey>(&self, link: &Link, key: K) -> StoreResult<Marked<K>> {
        let bytes = key.to_bytes();
        let rows = link.read(&self.of_key, (shard(&bytes), bytes.as_slice())).await?;
        let given_up = stamps::real_now().plus_ms(-link.given_up_after_us() / 1_000);
        let mut marked = Marked { marks: Vec::new(), is_in_doubt: false };
        let abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        let read = rows.rows::<(i64, Option<bool>)>();
        for row in read.map_err(|error| damaged("a mark", error))? {
            let (seal, is_over) = row.map_err(|error| damaged("a mark", error))?;
            let (mark, is_over) = (mark_of(key, seal), is_over == Some(true));
            if is_over || mark.since < given_up || abandoned.contains(&(bytes.clone(), seal)) {
                marked.is_in_doubt |= !is_over;
                marked.marks.push(mark);
            }
        }
        Ok(marked)
    }

    /// The longest marked first, where not so many are marked that the rest has to wait.
    pub(crate) async fn unmirrored<K: MarkedKey>(
        &self,
        link: &Link,
        limit: usize,
    ) -> StoreResult<Vec<Mark<K>>> {
        let mut marks = self.in_all_shards(link, limit).await?;
        marks.sort_by_key(|mark| (mark.since, mark.seal));
        // One of each is enough to find the others.
        let mut met = BTreeSet::new();
        marks.retain(|mark| met.insert(mark.key));
        marks.truncate(limit);
        Ok(marks)
    }

    pub(crate) async fn backlog<K: MarkedKey>(&self, link: &Link) -> StoreResult<Backlog> {
        let marks = self.unmirrored::<K>(link, usize::MAX).await?;
        Ok(Backlog { entities: marks.len() as u64, oldest: marks.first().map(|mark| mark.since) })
    }

    /// Nobody writes, so no mark that stands now is that of a write under way.
    pub(crate) async fn nobody_writes<K: MarkedKey>(&self, link: &Link) -> StoreResult<()> {
        let marks = self.in_all_shards::<K>(link, usize::MAX).await?;
        let stand = marks.iter().map(|mark| (mark.key.to_bytes(), mark.seal.cast_signed())).collect();
        *self.abandoned.lock().unwrap_or_else(PoisonError::into_inner) = stand;
        Ok(())
    }

    async fn in_all_shards<K: MarkedKey>(&self, link: &Link, limit: usize) -> StoreResult<Vec<Mark<K>>> {
        let shards: Vec<Vec<Mark<K>>> = stream::iter(0..SHARDS)
            .map(|shard| self.in_shard(link, shard.cast_signed(), limit))
            .buffer_unordered(SHARDS_AT_ONCE)
            .try_collect()
            .await?;
        Ok(shards.concat())
    }

    async fn in_shard<K: MarkedKey>(
        &self,
        link: &Link,
        shard: i8,
        limit: usize,
    ) -> StoreResult<Vec<Mark<K>>> {
        let mut marks = Vec::new();
        let mut from = PagingState::start();
        loop {
            let (rows, next) = link.read_page(&self.all, (shard,), from).await?;
            for row in rows.rows::<(&[u8], i64)>().map_err(|error| damaged("a mark", error))? {
                let (key, seal) = row.map_err(|error| damaged("a mark", error))?;
                let key = K::from_bytes(key).ok_or_else(|| StoreError::Corrupt {
                    what: format!("expected the key of a mark, got {} bytes", key.len()),
                    source: None,
                })?;
                marks.push(mark_of(key, seal));
            }
            match next {
                Some(state) if marks.len() < limit => from = state,
                _ => return Ok(marks),
            }
        }
    }

    pub(crate) async fn remove<K: MarkedKey>(&self, link: &Link, marks: &[Mark<K>]) -> StoreResult<()> {
        stream::iter(marks.to_vec())
            .map(|mark| async move {
                let (shard, key, seal) = row_key(&mark);
                // Later than whatever is written of this mark, and of no other.
                link.write(&self.remove, (stamp(&mark) + 1, shard, key, seal), mark.key.owed()).await
            })
            .buffer_unordered(MARKS_AT_ONCE)
            .try_collect()
            .await
    }

    /// Reads the marks of an entity from all replicas, which repairs those that lack one.
    pub(crate) async fn settle<K: MarkedKey>(&self, link: &Link, key: K) -> StoreResult<()> {
        let bytes = key.to_bytes();
        link.read_of_all_replicas(&self.of_key, (shard(&bytes), bytes)).await
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

fn mark_of<K>(key: K, seal: i64) -> Mark<K> {
    Mark { key, since: Timestamp::from_millis(seal >> SEAL_NUMBER_BITS), seal: seal.cast_unsigned() }
}

/// Of all that is written of a mark.
fn stamp<K>(mark: &Mark<K>) -> i64 {
    mark.since.as_millis() * 1_000
}

fn row_key<K: MarkedKey>(mark: &Mark<K>) -> (i8, Vec<u8>, i64) {
    let bytes = mark.key.to_bytes();
    (shard(&bytes), bytes, mark.seal.cast_signed())
}

/// Keys are random, down to their last byte.
fn shard(key: &[u8]) -> i8 {
    (key.last().copied().unwrap_or_default() % SHARDS).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_says_when_and_no_other_mark_has_it() {
        let now = stamps::real_now();
        let instances = [500_000, u32::MAX - 7, 1_000].map(|first| Seals(AtomicU32::new(first)));
        let seals: Vec<i64> = instances.iter().flat_map(|seals| (0..100).map(|_| seals.next(now))).collect();
        assert_eq!(seals.iter().collect::<HashSet<_>>().len(), seals.len());
        assert!(seals.iter().all(|seal| mark_of((), *seal).since == now));
        assert!(instances[0].next(now.plus_ms(1)) > *seals.iter().max().unwrap());
    }
}
