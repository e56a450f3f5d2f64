//! How long shoppers wait, over the last seconds.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// What was answered in this time and in the one before counts as lately.
const WINDOW: Duration = Duration::from_secs(5);
/// Four to each doubling, from a microsecond to more than an hour.
const BUCKETS: usize = 128;
const PER_DOUBLING: u32 = 4;
/// With fewer answers there is no hundredth that means anything.
const ANSWERS_MIN: u32 = 20;

/// Times of answers, reads and writes apart.
pub struct Latency {
    windows: [[Window; 2]; 2],
    started_at: Instant,
    /// Which window since then the present one is.
    number: AtomicU64,
}

struct Window([AtomicU32; BUCKETS]);

impl Default for Window {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self { windows: Default::default(), started_at: Instant::now(), number: AtomicU64::new(0) }
    }
}

impl Latency {
    pub(crate) fn answered(&self, is_write: bool, took: Duration) {
        let current = self.turn();
        self.windows[usize::from(is_write)][current].0[bucket(took)].fetch_add(1, Ordering::Relaxed);
    }

    /// What ninety-nine of a hundred reads took no longer than, lately; `None` if there were too few to say.
    pub fn read_p99(&self) -> Option<Duration> {
        self.p99(0)
    }

    pub fn write_p99(&self) -> Option<Duration> {
        self.p99(1)
    }

    fn p99(&self, of: usize) -> Option<Duration> {
        self.turn();
        let counts: Vec<u32> = (0..BUCKETS)
            .map(|bucket| {
                self.windows[of].iter().map(|window| window.0[bucket].load(Ordering::Relaxed)).sum()
            })
            .collect();
        let all: u32 = counts.iter().sum();
        if all < ANSWERS_MIN {
            return None;
        }
        let mut left = all / 100;
        for (bucket, count) in counts.iter().enumerate().rev() {
            if left < *count {
                return Some(upper(bucket));
            }
            left -= count;
        }
        None
    }

    /// Forgets what is longer ago, and says which window is the present one.
    fn turn(&self) -> usize {
        self.turn_to(self.started_at.elapsed().as_secs() / WINDOW.as_secs())
    }

    fn turn_to(&self, number: u64) -> usize {
        let before = self.number.fetch_max(number, Ordering::Relaxed);
        // One of all who come first in a window. Who counts meanwhile may be forgotten with the rest.
        for turned in number.saturating_sub(1).max(before + 1)..=number {
            for windows in &self.windows {
                let counts = &windows[(turned % 2) as usize].0;
                counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
            }
        }
        (number % 2) as usize
    }
}

fn bucket(took: Duration) -> usize {
    let us = took.as_micros().max(1) as f64;
    ((us.log2() * f64::from(PER_DOUBLING)) as usize).min(BUCKETS - 1)
}

/// The longest time that falls into a bucket.
fn upper(bucket: usize) -> Duration {
    let us = ((bucket + 1) as f64 / f64::from(PER_DOUBLING)).exp2();
    Duration::from_nanos((us * 1_000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_may_take_longer() {
        let latency = Latency::default();
        assert_eq!(latency.read_p99(), None);
        for n in 0..1_000 {
            latency.answered(false, Duration::from_millis(if n % 100 == 0 { 500 } else { 10 }));
            latency.answered(true, Duration::from_millis(if n % 20 == 0 { 500 } else { 10 }));
        }
        let (read, write) = (latency.read_p99().unwrap(), latency.write_p99().unwrap());
        assert!((10..13).contains(&read.as_millis()), "{read:?}");
        assert!((500..600).contains(&write.as_millis()), "{write:?}");
    }

    #[test]
    fn what_is_longer_ago_than_two_windows_is_forgotten() {
        let latency = Latency::default();
        let count = |latency: &Latency| -> u32 {
            let all = latency.windows[0].iter().flat_map(|window| &window.0);
            all.map(|count| count.load(Ordering::Relaxed)).sum()
        };
        (0..100).for_each(|_| latency.answered(false, Duration::from_millis(10)));
        latency.turn_to(1);
        assert_eq!(count(&latency), 100);
        latency.turn_to(2);
        assert_eq!(count(&latency), 0);
        latency.windows[0][0].0[5].store(7, Ordering::Relaxed);
        latency.turn_to(9);
        assert_eq!(count(&latency), 0);
    }

    #[test]
    fn every_time_has_its_bucket() {
        for us in [0, 1, 2, 50, 1_000, 999_999, 3_600_000_000] {
            let took = Duration::from_micros(us);
            assert!(upper(bucket(took)) >= took.min(upper(BUCKETS - 1)), "{us}");
        }
    }
}
