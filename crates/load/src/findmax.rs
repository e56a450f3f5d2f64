//! The highest rate that a shop can stand: steps up until it cannot, then halving what is left between.

use serde::{Deserialize, Serialize};

/// A search that is told after every step whether the shop could.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FindMax {
    could: Option<f64>,
    could_not: Option<f64>,
    next: f64,
    /// The last step was too much, and is tried once more.
    doubted: bool,
}

/// A search, as it is told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Search {
    pub steps: Vec<Step>,
    /// The highest rate that the shop could stand, in requests a second.
    pub found: Option<f64>,
}

/// A rate that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub rate: f64,
    pub sent_share: f64,
    pub read_p99_us: u64,
    pub write_p99_us: u64,
    pub shed: u64,
    pub failed: u64,
    /// Whether the shop could stand it.
    pub could: bool,
}

const STEP_UP: f64 = 1.6;
const STEP_DOWN: f64 = 0.5;
/// As near as it is worth to know.
const NEAR: f64 = 1.05;
/// Below this there is nothing to find.
const RATE_MIN: f64 = 1.0;

impl FindMax {
    pub fn from(rate: f64) -> Self {
        Self { could: None, could_not: None, next: rate, doubted: false }
    }

    /// The rate to try next; `None` when it is known well enough.
    pub fn next(&self) -> Option<f64> {
        let near = self.could.zip(self.could_not).is_some_and(|(low, high)| high <= low * NEAR);
        (!near && self.next >= RATE_MIN).then_some(self.next)
    }

    pub fn tell(&mut self, could: bool) {
        // A machine that stood still for a moment must not end the search: too much is what was so twice.
        self.doubted = !could && !self.doubted;
        if self.doubted {
            return;
        }
        if could {
            self.could = Some(self.could.unwrap_or(0.0).max(self.next));
        } else {
            self.could_not = Some(self.could_not.unwrap_or(f64::INFINITY).min(self.next));
        }
        self.next = match (self.could, self.could_not) {
            (Some(low), Some(high)) => (low * high).sqrt(),
            (Some(low), None) => low * STEP_UP,
            (None, Some(high)) => high * STEP_DOWN,
            (None, None) => self.next,
        };
    }

    /// The highest rate that the shop could stand so far.
    pub fn found(&self) -> Option<f64> {
        self.could
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_limit_wherever_it_begins() {
        for limit in [3.0, 700.0, 12_345.0, 99_999.0] {
            for begin in [1.0, 1_000.0, 50_000.0] {
                let (mut search, mut steps) = (FindMax::from(begin), 0);
                while let Some(rate) = search.next() {
                    search.tell(rate <= limit);
                    steps += 1;
                    assert!(steps < 50, "no end from {begin} to {limit}");
                }
                let found = search.found().expect("it can stand something");
                assert!(found <= limit && found * NEAR >= limit, "{found} instead of {limit}");
            }
        }
    }

    #[test]
    fn a_hiccup_does_not_end_it() {
        let limit = 12_345.0;
        let (mut search, mut steps) = (FindMax::from(1_000.0), 0);
        while let Some(rate) = search.next() {
            // Every third step something else gets in the way.
            search.tell(rate <= limit && steps % 3 != 1);
            steps += 1;
        }
        let found = search.found().expect("it can stand something");
        assert!(found <= limit && found * NEAR >= limit, "{found} instead of {limit}");
    }

    #[test]
    fn a_shop_that_stands_nothing_ends_the_search() {
        let mut search = FindMax::from(100.0);
        while search.next().is_some() {
            search.tell(false);
        }
        assert_eq!(search.found(), None);
    }
}
