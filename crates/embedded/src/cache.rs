//! Decoded entities in memory, in step with the committer.
//!
//! Readers may be sure that what they get here is at least as new as every write that was acknowledged, and the
//! committer that it is exactly what was committed last:
//! - the committer first commits a group, then replaces the group's entries here, and only then acknowledges;
//! - a reader that finds nothing takes a placeholder *before* it reads the tables, and fills that. If the committer
//!   has put its entry in the placeholder's place meanwhile, what was read may be old, and the filling fails.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mobimir_core::ports::StoreResult;
use quick_cache::{
    Weighter,
    sync::{Cache, GuardResult},
};

use crate::engine::GroupObserver;

/// Below this a shard of the cache could refuse an entry for its weight alone, which would leave a placeholder
/// standing that ought to be replaced.
const CAPACITY_MIN: u64 = 16_384;
const WEIGHT_MAX: u64 = 16;

pub(crate) struct ReadCache<K, V> {
    entries: Cache<K, Arc<V>, Weight<V>>,
    staged: Mutex<Staged<K, V>>,
}

/// What the running group has changed and not committed yet; `None` for what it removed. Used by the committer only.
struct Staged<K, V> {
    entries: HashMap<K, Option<Arc<V>>>,
    undo: Vec<Undo<K, V>>,
}

struct Undo<K, V> {
    job: u64,
    key: K,
    replaced: Option<Option<Arc<V>>>,
}

struct Weight<V>(fn(&V) -> u64);

impl<V> Clone for Weight<V> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<K, V> Weighter<K, Arc<V>> for Weight<V> {
    fn weight(&self, _: &K, value: &Arc<V>) -> u64 {
        (self.0)(value).clamp(1, WEIGHT_MAX)
    }
}

impl<K, V> ReadCache<K, V>
where
    K: Copy + Eq + Hash + Send + Sync,
    V: Send + Sync,
{
    /// Holds entries that weigh up to `capacity` together, by `weight`.
    pub(crate) fn new(capacity: u64, weight: fn(&V) -> u64) -> Self {
        let capacity = capacity.max(CAPACITY_MIN);
        let items_expected = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self {
            entries: Cache::with_weighter(items_expected, capacity, Weight(weight)),
            staged: Mutex::new(Staged { entries: HashMap::new(), undo: Vec::new() }),
        }
    }

    /// For readers: what is here. Costs no more than a look into memory.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.entries.get(key)
    }

    /// For readers on a thread that may block: what is here, or else what `read` finds in the tables.
    pub(crate) fn get_or_read(
        &self,
        key: &K,
        read: impl FnOnce() -> StoreResult<Option<V>>,
    ) -> StoreResult<Option<Arc<V>>> {
        match self.entries.get_value_or_guard(key, Some(Duration::ZERO)) {
            GuardResult::Value(value) => Ok(Some(value)),
            GuardResult::Guard(placeholder) => {
                let Some(value) = read()?.map(Arc::new) else { return Ok(None) };
                // An error says that the committer was here meanwhile. What was read is fine as an answer, since
                // the question came before the write was acknowledged, but must not stay.
                let _ = placeholder.insert(Arc::clone(&value));
                Ok(Some(value))
            }
            // Somebody else is filling it. To wait could mean to wait for a thread that waits for this one.
            GuardResult::Timeout => Ok(read()?.map(Arc::new)),
        }
    }

    /// For the committer: what the group so far has made of it, else what was committed last.
    pub(crate) fn current(
        &self,
        key: &K,
        read: impl FnOnce() -> StoreResult<Option<V>>,
    ) -> StoreResult<Option<Arc<V>>> {
        if let Some(staged) = self.staged().entries.get(key) {
            return Ok(staged.clone());
        }
        match self.entries.get(key) {
            Some(value) => Ok(Some(value)),
            None => Ok(read()?.map(Arc::new)),
        }
    }

    /// For the committer: the job with this number has written this entity, or removed it.
    pub(crate) fn stage(&self, job: u64, key: K, value: Option<Arc<V>>) {
        let mut staged = self.staged();
        let replaced = staged.entries.insert(key, value);
        staged.undo.push(Undo { job, key, replaced });
    }

    fn staged(&self) -> MutexGuard<'_, Staged<K, V>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> GroupObserver for ReadCache<K, V>
where
    K: Copy + Eq + Hash + Send + Sync,
    V: Send + Sync,
{
    fn job_undone(&self, job: u64) {
        let mut staged = self.staged();
        while let Some(undo) = staged.undo.pop_if(|undo| undo.job == job) {
            match undo.replaced {
                Some(replaced) => staged.entries.insert(undo.key, replaced),
                None => staged.entries.remove(&undo.key),
            };
        }
    }

    fn group_committed(&self) {
        let mut staged = self.staged();
        staged.undo.clear();
        for (key, value) in staged.entries.drain() {
            match value {
                Some(value) => self.entries.insert(key, value),
                // Takes a placeholder away as well.
                None => {
                    self.entries.remove(&key);
                }
            }
        }
    }

    fn group_lost(&self) {
        let mut staged = self.staged();
        staged.undo.clear();
        staged.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        thread,
    };

    use super::*;

    const WRITES: u64 = 1_000;

    /// Readers that miss what was evicted race with the committer, which replaces it. Nobody may see less than what
    /// was acknowledged before they asked, and the committer may never start from anything but its own last value.
    #[test]
    fn nothing_old_is_read_or_kept() {
        let cache = ReadCache::<u32, u64>::new(0, |_| 1);
        let table = AtomicU64::new(0);
        let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let read_table = || Ok(Some(table.load(Ordering::SeqCst)));
        let read_slowly = || {
            let value = read_table();
            thread::yield_now();
            value
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        let least = acknowledged.load(Ordering::SeqCst);
                        let read = match cache.get(&7) {
                            Some(value) => *value,
                            None => *cache.get_or_read(&7, read_slowly).unwrap().unwrap(),
                        };
                        assert!(read >= least, "read {read} after {least} was acknowledged");
                    }
                });
            }
            for value in 1..=WRITES {
                let current = *cache.current(&7, read_table).unwrap().unwrap();
                assert_eq!(current, value - 1, "the committer starts from what it wrote last");
                cache.stage(0, 7, Some(Arc::new(value)));
                table.store(value, Ordering::SeqCst);
                cache.group_committed();
                acknowledged.store(value, Ordering::SeqCst);
                thread::yield_now();
                // As if it had been evicted.
                if value % 2 == 0 {
                    cache.entries.remove(&7);
                    thread::yield_now();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn an_undone_job_leaves_what_the_jobs_before_it_staged() {
        let cache = ReadCache::<u32, u64>::new(0, |_| 1);
        let current = || cache.current(&7, || Ok(None)).unwrap().map(|value| *value);
        cache.stage(0, 7, Some(Arc::new(1)));
        cache.stage(1, 7, Some(Arc::new(2)));
        cache.stage(1, 7, None);
        assert_eq!(current(), None);
        cache.job_undone(1);
        assert_eq!(current(), Some(1));
        cache.group_committed();
        assert_eq!(cache.get(&7).map(|value| *value), Some(1));
        cache.stage(0, 7, Some(Arc::new(3)));
        cache.group_lost();
        assert_eq!(current(), Some(1));
    }
}
