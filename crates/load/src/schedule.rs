//! When requests are to be sent. That follows from the rate alone, and never from how fast answers come: shoppers who do
//! not know of each other do not wait for each other.

use mobimir_core::random::Random;

use crate::profile::Ramp;

/// The moments of a run, in nanoseconds from its start.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Requests a second, when all ramps are over.
    rate: f64,
    ramps: Vec<Ramp>,
    end_ns: u64,
    requests_max: u64,
    even: bool,
    random: Random,
    at_ns: f64,
    planned: u64,
}

const NS: f64 = 1e9;
/// Below this a ramp would take for ever to send its first request.
const FACTOR_MIN: f64 = 0.001;

impl Schedule {
    pub(crate) fn new(rate: f64, ramps: Vec<Ramp>, end_ns: u64, seed: u64) -> Self {
        Self {
            rate,
            ramps,
            end_ns,
            requests_max: u64::MAX,
            even: false,
            random: Random::new(seed),
            at_ns: 0.0,
            planned: 0,
        }
    }

    /// Ends after this many requests, if the time is not up before.
    pub(crate) fn at_most(self, requests_max: u64) -> Self {
        Self { requests_max, ..self }
    }

    /// One request after the other at the same distance, instead of at random as people come.
    pub(crate) fn even(self, even: bool) -> Self {
        Self { even, ..self }
    }

    /// What share of the rate is due.
    fn factor(&self, at_ns: f64) -> f64 {
        let mut from_ns = 0.0;
        let mut factor = 1.0;
        for ramp in &self.ramps {
            let over_ns = ramp.over.as_ms() as f64 * 1e6;
            if at_ns < from_ns + over_ns {
                return ramp.from + (ramp.to - ramp.from) * (at_ns - from_ns) / over_ns;
            }
            (from_ns, factor) = (from_ns + over_ns, ramp.to);
        }
        factor
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.planned >= self.requests_max {
            return None;
        }
        let rate = self.rate * self.factor(self.at_ns).max(FACTOR_MIN);
        // Gaps between people who know nothing of each other are exponential.
        let gap = if self.even { 1.0 } else { -(1.0 - self.random.unit()).ln() };
        self.at_ns += gap / rate * NS;
        let at_ns = self.at_ns as u64;
        if at_ns >= self.end_ns {
            self.requests_max = self.planned;
            return None;
        }
        self.planned += 1;
        Some(at_ns)
    }
}

#[cfg(test)]
mod tests {
    use mobimir_core::policy::Period;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn as_many_come_as_the_rate_says() {
        let all: Vec<u64> = Schedule::new(1_000.0, Vec::new(), 20 * SECOND, 7).collect();
        assert!((19_500..20_500).contains(&all.len()), "{}", all.len());
        assert!(all.is_sorted() && all.iter().all(|at| *at < 20 * SECOND));
        let gaps: Vec<u64> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Of exponential gaps, 37 of 100 are longer than the mean.
        let long = gaps.iter().filter(|gap| **gap > 1_000_000).count() as f64 / gaps.len() as f64;
        assert!((0.35..0.39).contains(&long), "{long}");
    }

    #[test]
    fn a_ramp_leads_from_one_share_to_another() {
        let ramp = Ramp { over: Period::seconds(10), from: 0.0, to: 1.0 };
        let all: Vec<u64> = Schedule::new(1_000.0, vec![ramp], 20 * SECOND, 7).even(true).collect();
        let within = |from: u64, to: u64| {
            all.iter().filter(|at| (from * SECOND..to * SECOND).contains(at)).count() as f64
        };
        assert!((within(0, 10) - 5_000.0).abs() < 100.0, "{}", within(0, 10));
        assert!((within(10, 20) - 10_000.0).abs() < 100.0, "{}", within(10, 20));
    }

    #[test]
    fn a_number_of_requests_ends_it() {
        assert_eq!(Schedule::new(10.0, Vec::new(), 3_600 * SECOND, 7).at_most(5).count(), 5);
    }
}
