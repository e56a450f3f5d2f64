//! The highest rate that a shop can stand: steps up until it cannot, then halving what is left between.

/// A search that is told after every step whether the shop could.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FindMax {
    could: Option<f64>,
    could_not: Option<f64>,
    next: f64,
}

const STEP_UP: f64 = 1.6;
const STEP_DOWN: f64 = 0.5;
/// As near as it is worth to know.
const NEAR: f64 = 1.05;
/// Below this there is nothing to find.
const RATE_MIN: f64 = 1.0;

impl FindMax {
    pub fn from(rate: f64) -> Self {
        Self { could: None, could_not: None, next: rate }
    }

    /// The rate to try next; `None` when it is known well enough.
    pub fn next(&self) -> Option<f64> {
        let near = self.could.zip(self.could_not).is_some_and(|(low, high)| high <= low * NEAR);
        (!near && self.next >= RATE_MIN).then_some(self.next)
    }

    pub fn tell(&mut self, could: bool) {
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
    fn a_shop_that_stands_nothing_ends_the_search() {
        let mut search = FindMax::from(100.0);
        while search.next().is_some() {
            search.tell(false);
        }
        assert_eq!(search.found(), None);
    }
}
