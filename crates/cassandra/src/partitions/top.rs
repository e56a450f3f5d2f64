//! The partitions that get the most, in bounded memory.
//!
//! The "space saving" sketch: a key that is new takes the place of the smallest and counts on from where that one was. So
//! whoever gets a real share is always among those kept. What a key took over is known and not reported.

use std::{collections::HashMap, hash::Hash};

#[derive(Debug)]
pub(super) struct Top<K> {
    counts: HashMap<K, Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Of this key at most: with those taken over.
    rows: u64,
    taken_over: u64,
    bytes: u64,
    is_changed: bool,
}

/// Keys that are kept.
const KEYS_MAX: usize = 256;

impl Count {
    /// Of this key at least.
    fn own_rows(&self) -> u64 {
        self.rows - self.taken_over
    }
}

impl<K> Default for Top<K> {
    fn default() -> Self {
        Self { counts: HashMap::default() }
    }
}

impl<K: Clone + Ord + Hash> Top<K> {
    pub(super) fn add(&mut self, key: K, rows: u64, bytes: u64) {
        if let Some(count) = self.counts.get_mut(&key) {
            count.rows += rows;
            count.bytes += bytes;
            count.is_changed = true;
            return;
        }
        let taken_over = self.make_room();
        self.counts.insert(key, Count { rows: taken_over + rows, taken_over, bytes, is_changed: true });
    }

    /// What the key counted that had to go.
    fn make_room(&mut self) -> u64 {
        if self.counts.len() < KEYS_MAX {
            return 0;
        }
        let smallest = self.counts.iter().min_by_key(|(_, count)| count.rows).map(|(key, _)| key.clone());
        smallest.and_then(|key| self.counts.remove(&key)).map_or(0, |count| count.rows)
    }

    /// The most rows and the most bytes of one key.
    pub(super) fn largest(&self) -> (u64, u64) {
        let rows = self.counts.values().map(Count::own_rows).max().unwrap_or(0);
        let bytes = self.counts.values().map(|count| count.bytes).max().unwrap_or(0);
        (rows, bytes)
    }

    /// Keys with their rows and bytes: those of the `limit` largest that have changed since this was last asked.
    pub(super) fn take_changed(&mut self, limit: usize) -> Vec<(K, u64, u64)> {
        let mut largest: Vec<(&K, &mut Count)> = self.counts.iter_mut().collect();
        largest.sort_by(|(key, count), (other_key, other)| {
            (other.own_rows(), other_key).cmp(&(count.own_rows(), key))
        });
        largest
            .into_iter()
            .take(limit)
            .filter(|(_, count)| count.is_changed)
            .map(|(key, count)| {
                count.is_changed = false;
                (key.clone(), count.own_rows(), count.bytes)
            })
            .collect()
    }

    /// A key that was told is told again.
    pub(super) fn mark_changed(&mut self, key: &K) {
        self.counts.get_mut(key).into_iter().for_each(|count| count.is_changed = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_much_is_kept_among_very_many() {
        let mut top = Top::default();
        for n in 0..100_000 {
            top.add(format!("small {n}"), 1, 10);
            if n % 50 == 0 {
                top.add("large".to_owned(), 1, 1_000);
            }
        }
        assert_eq!(top.counts.len(), KEYS_MAX);
        let (key, rows, bytes) = top.take_changed(1).remove(0);
        assert_eq!(key, "large");
        // Nothing is reported that it did not get.
        assert!(rows <= 2_000 && bytes == rows * 1_000, "{rows} rows, {bytes} bytes");
        assert!(rows > 1_000, "{rows}");
    }

    #[test]
    fn only_what_has_changed_is_told_again() {
        let mut top = Top::default();
        for (key, rows) in [("a", 3), ("b", 5), ("c", 1)] {
            top.add(key.to_owned(), rows, rows * 2);
        }
        let told =
            |top: &mut Top<String>| top.take_changed(2).into_iter().map(|(key, ..)| key).collect::<Vec<_>>();
        assert_eq!(told(&mut top), ["b", "a"]);
        assert!(told(&mut top).is_empty());
        top.add("a".to_owned(), 1, 2);
        assert_eq!(top.take_changed(2), [("a".to_owned(), 4, 8)]);
        assert_eq!(top.largest(), (5, 10));
    }
}
