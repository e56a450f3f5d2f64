//! How long shoppers wait, over the last seconds.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
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
    current: AtomicUsize,
    turned_at: Mutex<Instant>,
}

struct Window([AtomicU32; BUCKETS]);

impl Default for Window {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl Default for Latency {
    fn default() -> Self {
        let (windows, current) = (Default::default(), AtomicUsize::new(0));
        Self { windows, current, turned_at: Mutex::new(Instant::now()) }
    }
}

impl Latency {
    pub(crate) fn answered(&self, is_write: bool, took: Duration) {
        let windows = &self.windows[usize::from(is_write)];
        windows[self.current.load(Ordering::Relaxed)].0[bucket(took)].fetch_add(1, Ordering::Relaxed);
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

    /// Forgets what is longer ago. Whoever asks does this; as long as nobody does, everything is kept.
    fn turn(&self) {
        let mut turned_at = self.turned_at.lock().unwrap_or_else(PoisonError::into_inner);
        let windows_ago = turned_at.elapsed().as_millis() / WINDOW.as_millis();
        for _ in 0..windows_ago.min(2) {
            let next = 1 - self.current.load(Ordering::Relaxed);
            for windows in &self.windows {
                windows[next].0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
            }
            self.current.store(next, Ordering::Relaxed);
        }
        if windows_ago > 0 {
            *turned_at = Instant::now();
        }
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
    fn every_time_has_its_bucket() {
        for us in [0, 1, 2, 50, 1_000, 999_999, 3_600_000_000] {
            let took = Duration::from_micros(us);
            assert!(upper(bucket(took)) >= took.min(upper(BUCKETS - 1)), "{us}");
        }
    }
}
