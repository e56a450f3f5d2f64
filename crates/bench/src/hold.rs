//! The highest rate that holds: one lucky step of a search is not enough, so a rate is run several times, and
//! every run counts. The search goes down until a rate holds, then halves the gap to the lowest that did not.

/// So many runs at a rate have to keep all limits, one after the other.
pub(crate) const RUNS: usize = 3;
/// While no rate has held, the next is this share of the one before.
const STEP_DOWN: f64 = 0.8;
/// So many rates are tried on the way down at most: the last is a third of the first.
const RATES_MAX: usize = 6;
/// So many rates are tried between one that holds and one that does not: the gap becomes 6 %.
const REFINEMENTS_MAX: usize = 2;

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
    /// The highest rate that holds.
    held: Option<f64>,
    /// The lowest rate that does not.
    failed: Option<f64>,
    /// Rates that did not hold on the way down.
    failures: usize,
    refinements: usize,
}

impl Hold {
    pub(crate) fn from(rate: f64) -> Self {
        Self { rate, kept: 0, held: None, failed: None, failures: 0, refinements: 0 }
    }

    pub(crate) fn next(&self) -> Next {
        match (self.held, self.failed) {
            (Some(held), None) => Next::Held(held),
            (Some(held), Some(_)) if self.refinements == REFINEMENTS_MAX => Next::Held(held),
            (None, _) if self.failures == RATES_MAX => Next::GaveUp(self.rate),
            _ => Next::Run(self.rate),
        }
    }

    /// Whether the run at the rate of [`Self::next`] kept all limits.
    pub(crate) fn ran(&mut self, kept: bool) {
        if kept {
            self.kept += 1;
            if self.kept < RUNS {
                return;
            }
        }
        let refines = self.held.is_some();
        match kept {
            true => self.held = Some(self.rate),
            false => self.failed = Some(self.rate),
        }
        self.kept = 0;
        self.refinements += usize::from(refines);
        self.failures += usize::from(!kept && !refines);
        match (self.held, self.failed) {
            (Some(held), Some(failed)) => self.rate = (held * failed).sqrt(),
            (None, Some(failed)) if self.failures < RATES_MAX => self.rate = failed * STEP_DOWN,
            _ => {}
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
        let (runs, end) = run(1_000.0, |rate, run| run != 2 && rate <= 800.0 || run < 2);
        assert_eq!(runs[..6], [1_000.0, 1_000.0, 1_000.0, 800.0, 800.0, 800.0]);
        assert_eq!(end, Next::Held(800.0));
    }

    #[test]
    fn the_highest_rate_that_holds_is_found_between_one_that_does_and_one_that_does_not() {
        for limit in [500.0, 640.0, 700.0, 799.0, 800.0, 950.0] {
            let (_, end) = run(1_000.0, |rate, _| rate <= limit);
            assert!(
                matches!(end, Next::Held(rate) if rate <= limit && rate > limit * 0.94),
                "{limit}: {end:?}"
            );
        }
    }

    /// A rate that fails while the gap is halved does not take the rate away that has held.
    #[test]
    fn what_has_held_stays() {
        let (runs, end) = run(1_000.0, |rate, _| rate <= 800.0);
        assert_eq!(runs.len(), 1 + RUNS + REFINEMENTS_MAX);
        assert_eq!(end, Next::Held(800.0));
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
