//! How fast a job goes, measured as it goes.

use std::time::Duration;

use mobimir_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// How often a job is measured.
pub const SAMPLE_PERIOD: Duration = Duration::from_secs(2);
/// Samples that are kept. When there are more, every second one goes.
const SAMPLES_MAX: usize = 240;
/// What counts as now.
const LATELY_MS: i64 = 30_000;
/// A job that was not measured for so long does not run.
const STANDS_AFTER_MS: i64 = 10_000;

/// How a job went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    pub samples: Vec<Sample>,
}

/// A job at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub at: Timestamp,
    pub entities: u64,
    /// How much of what shoppers may feel was used up; from 1 on it is too much.
    pub felt: f64,
}

impl Pace {
    pub(crate) fn add(&mut self, sample: Sample) {
        if self.samples.len() >= SAMPLES_MAX {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.samples.push(sample);
    }

    /// Entities a second in the last half minute; `None` if it does not run.
    pub fn rate(&self, now: Timestamp) -> Option<f64> {
        let last = self.samples.last()?;
        if now.since(last.at) > STANDS_AFTER_MS {
            return None;
        }
        let lately = self.samples.iter().filter(|sample| last.at.since(sample.at) <= LATELY_MS);
        let first = lately.min_by_key(|sample| sample.at)?;
        let (ms, entities) = (last.at.since(first.at), last.entities.saturating_sub(first.entities));
        (ms > 0).then(|| entities as f64 * 1_000.0 / ms as f64)
    }

    /// Seconds until so many are done, if it goes on like this.
    pub fn left_s(&self, entities: u64, expected: u64, now: Timestamp) -> Option<u64> {
        let rate = self.rate(now).filter(|rate| *rate > 0.0)?;
        Some((expected.saturating_sub(entities) as f64 / rate).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(s: i64, entities: u64) -> Sample {
        Sample { at: Timestamp::from_millis(s * 1_000), entities, felt: 0.0 }
    }

    #[test]
    fn the_rate_is_of_the_last_half_minute() {
        let mut pace = Pace::default();
        assert_eq!(pace.rate(Timestamp::from_millis(0)), None);
        // Fast at first, then slow.
        (0..=10).for_each(|n| pace.add(sample(n * 2, n as u64 * 2_000)));
        (1..=30).for_each(|n| pace.add(sample(20 + n * 2, 20_000 + n as u64 * 200)));
        let now = Timestamp::from_millis(81_000);
        assert_eq!(pace.rate(now), Some(100.0));
        assert_eq!(pace.left_s(26_000, 27_000, now), Some(10));
        assert_eq!(pace.left_s(26_000, 20_000, now), Some(0));
        assert_eq!(pace.rate(now.plus_ms(60_000)), None);
    }

    #[test]
    fn a_long_job_keeps_as_many_samples_as_a_short_one() {
        let mut pace = Pace::default();
        (0..5_000).for_each(|n| pace.add(sample(n * 2, n as u64)));
        assert!(pace.samples.len() <= SAMPLES_MAX);
        assert_eq!(pace.samples.first(), Some(&sample(0, 0)));
        assert_eq!(pace.samples.last(), Some(&sample(9_998, 4_999)));
        assert!(pace.samples.is_sorted_by_key(|sample| sample.at));
    }
}
