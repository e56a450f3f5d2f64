//! Whether a rate holds: one lucky step of a search is not enough, so a rate is run several times, and every
//! run counts.

/// So many runs at a rate have to keep all limits, one after the other.
pub(crate) const RUNS: usize = 3;
/// After a run that does not keep them a lower rate is tried.
const STEP_DOWN: f64 = 0.9;
/// So many rates are tried at most: the last is 0.59 of the first.
const RATES_MAX: usize = 6;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    /// One run at this rate.
    Run(f64),
    /// All runs at this rate kept the limits.
    Held(f64),
    /// No rate did. This is the last that was tried.
    GaveUp(f64),
}

pub(crate) struct Hold {
    rate: f64,
    /// Runs at this rate that kept the limits.
    kept: usize,
    /// Rates that did not hold.
    failed: usize,
}

impl Hold {
    pub(crate) fn from(rate: f64) -> Self {
        Self { rate, kept: 0, failed: 0 }
    }

    pub(crate) fn next(&self) -> Next {
        if self.kept == RUNS {
            Next::Held(self.rate)
        } else if self.failed == RATES_MAX {
            Next::GaveUp(self.rate)
        } else {
            Next::Run(self.rate)
        }
    }

    /// Whether the run at the rate of [`Self::next`] kept all limits.
    pub(crate) fn ran(&mut self, kept: bool) {
        if kept {
            self.kept += 1;
            return;
        }
        (self.kept, self.failed) = (0, self.failed + 1);
        if self.failed < RATES_MAX {
            self.rate *= STEP_DOWN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every run until the end, and the end.
    fn run(from: f64, mut keeps: impl FnMut(f64, usize) -> bool) -> (Vec<f64>, Next) {
        let (mut hold, mut runs) = (Hold::from(from), Vec::new());
        while let Next::Run(rate) = hold.next() {
            let kept = keeps(rate, runs.len());
            runs.push(rate);
            hold.ran(kept);
        }
        (runs, hold.next())
    }

    #[test]
    fn a_rate_counts_when_all_runs_keep_the_limits() {
        assert_eq!(run(1_000.0, |_, _| true), (vec![1_000.0; RUNS], Next::Held(1_000.0)));
    }

    /// Two good runs before a bad one are worth nothing, neither for this rate nor for the next.
    #[test]
    fn one_bad_run_of_three_is_a_rate_that_does_not_hold() {
        let (runs, end) = run(1_000.0, |_, run| run != 2);
        assert_eq!(runs, [1_000.0, 1_000.0, 1_000.0, 900.0, 900.0, 900.0]);
        assert_eq!(end, Next::Held(900.0));
    }

    #[test]
    fn the_highest_rate_that_holds_is_found_from_above() {
        let (_, end) = run(1_000.0, |rate, _| rate <= 750.0);
        assert!(matches!(end, Next::Held(rate) if (728.0..730.0).contains(&rate)), "{end:?}");
    }

    #[test]
    fn the_search_ends_when_nothing_holds() {
        let (runs, end) = run(1_000.0, |_, _| false);
        assert_eq!(runs.len(), RATES_MAX);
        assert_eq!(end, Next::GaveUp(runs[RATES_MAX - 1]));
        // Even when every rate has two good runs.
        let (runs, end) = run(1_000.0, |_, run| run % RUNS != 2);
        assert_eq!(runs.len(), RATES_MAX * RUNS);
        assert!(matches!(end, Next::GaveUp(_)));
    }
}
