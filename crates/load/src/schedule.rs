//! When requests are to be sent. That follows from the rate alone, and never from how fast answers come: shoppers who do
//! not know of each other do not wait for each other.

use mobimir_core::random::Random;

use crate::profile::Ramp;

/// The moments of a run, in nanoseconds from its start.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Requests a second, when all ramps are over.
    rate: f64,
    slopes: Vec<Slope>,
    /// The one of the last request.
    slope: usize,
    end_ns: u64,
    requests_max: u64,
    even: bool,
    random: Random,
    at_ns: f64,
    planned: u64,
}

const NS: f64 = 1e9;

/// A part of the time in which the share of the rate that is due moves along a line.
#[derive(Clone, Copy, Debug)]
struct Slope {
    from_ns: f64,
    to_ns: f64,
    from: f64,
    to: f64,
}

impl Slope {
    /// What share is due.
    fn factor(&self, at_ns: f64) -> f64 {
        if self.to == self.from {
            return self.to;
        }
        self.from + (self.to - self.from) * (at_ns - self.from_ns) / (self.to_ns - self.from_ns)
    }

    /// When the area under the line, counted from `at_ns` on, is as large as `area`; if it is so here at all. Else what is
    /// missing at the end.
    fn reaches(&self, at_ns: f64, area: f64) -> Result<f64, f64> {
        let (here, left_ns) = (self.factor(at_ns), self.to_ns - at_ns);
        let rise = if self.to == self.from { 0.0 } else { (self.to - here) / left_ns };
        // here * t + rise * t^2 / 2 = area, solved so that nothing is divided by a rise of 0.
        let root = here * here + 2.0 * rise * area;
        let after_ns = 2.0 * area / (here + root.max(0.0).sqrt());
        if root >= 0.0 && after_ns < left_ns {
            return Ok(at_ns + after_ns);
        }
        Err(area - (here + self.to) / 2.0 * left_ns)
    }
}

impl Schedule {
    pub(crate) fn new(rate: f64, ramps: Vec<Ramp>, end_ns: u64, seed: u64) -> Self {
        let (mut slopes, mut from_ns, mut last) = (Vec::new(), 0.0, 1.0);
        for Ramp { over, from, to } in ramps {
            let to_ns = from_ns + over.as_ms() as f64 * 1e6;
            slopes.push(Slope { from_ns, to_ns, from, to });
            (from_ns, last) = (to_ns, to);
        }
        // After the last ramp its end stays.
        slopes.push(Slope { from_ns, to_ns: f64::INFINITY, from: last, to: last });
        Self {
            rate,
            slopes,
            slope: 0,
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

    /// When so many requests at the full rate are due, from the last one on. Taking the rate of that moment for the whole
    /// gap would let a ramp that begins at nothing wait for ever.
    fn after(&mut self, requests: f64) -> Option<f64> {
        let mut area = requests / self.rate * NS;
        loop {
            let slope = *self.slopes.get(self.slope)?;
            match slope.reaches(self.at_ns.max(slope.from_ns), area) {
                Ok(at_ns) => return Some(at_ns),
                Err(missing) => {
                    self.slope += 1;
                    self.at_ns = slope.to_ns;
                    area = missing;
                }
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.planned >= self.requests_max {
            return None;
        }
        // Gaps between people who know nothing of each other are exponential.
        let gap = if self.even { 1.0 } else { -(1.0 - self.random.unit()).ln() };
        let next = self.after(gap).filter(|at_ns| *at_ns < self.end_ns as f64);
        let Some(at_ns) = next else {
            self.requests_max = self.planned;
            return None;
        };
        self.at_ns = at_ns;
        self.planned += 1;
        Some(at_ns as u64)
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

    /// At low rates, too: there the first gap is longer than the ramp, if it is taken from how slow it begins.
    #[test]
    fn a_ramp_from_nothing_is_as_long_as_it_says() {
        let ramp = |over, from, to| Ramp { over: Period::seconds(over), from, to };
        let even = |rate, ramps| Schedule::new(rate, ramps, 100 * SECOND, 7).even(true);
        let seconds = |at_ns: u64| at_ns as f64 / 1e9;
        // Half a square: the n-th is due at sqrt(2 n * 10).
        let first: Vec<f64> = even(1.0, vec![ramp(10, 0.0, 1.0)]).take(5).map(seconds).collect();
        for (at, nth) in first.iter().zip(1..) {
            assert!((at - (20.0 * f64::from(nth)).sqrt()).abs() < 1e-6, "{first:?}");
        }
        // Five by the end of the ramp, and then one a second.
        assert_eq!(
            even(1.0, vec![ramp(10, 0.0, 1.0)]).take_while(|at| *at < 60 * SECOND + 1).count(),
            5 + 50
        );
        // Up and down again, and then nothing: the areas are what counts.
        let hill = vec![ramp(10, 0.0, 1.0), ramp(10, 1.0, 0.0)];
        assert!((even(100.0, hill).count() as i64 - 1_000).abs() <= 1);
        // At random as many on the average, the same ones for the same seed.
        let at_random =
            || Schedule::new(50.0, vec![ramp(20, 0.0, 1.0)], 20 * SECOND, 3).collect::<Vec<u64>>();
        assert!((430..570).contains(&at_random().len()), "{}", at_random().len());
        assert_eq!(at_random(), at_random());
        assert!(at_random().is_sorted());
    }

    #[test]
    fn a_pause_in_the_middle_is_one() {
        let ramp = |from, to| Ramp { over: Period::seconds(10), from, to };
        let all: Vec<u64> =
            Schedule::new(10.0, vec![ramp(1.0, 1.0), ramp(0.0, 0.0), ramp(1.0, 1.0)], 30 * SECOND, 7)
                .collect();
        assert!(all.iter().all(|at| !(10 * SECOND..20 * SECOND).contains(at)), "{all:?}");
        assert!(all.iter().any(|at| *at < 10 * SECOND) && all.iter().any(|at| *at > 20 * SECOND));
    }

    #[test]
    fn a_number_of_requests_ends_it() {
        assert_eq!(Schedule::new(10.0, Vec::new(), 3_600 * SECOND, 7).at_most(5).count(), 5);
    }
}
