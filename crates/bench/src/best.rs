//! The highest rate of the Black Friday mix that holds. Searched once for all who ask.
//!
//! A search with short steps says where to begin. What counts is [`hold`](crate::hold): long runs, all of
//! which keep all limits.

use anyhow::{Result, ensure};
use mobimir_load::report::Report;

use crate::{
    Setting,
    crowd::{Crowd, saying::shortfalls},
    hold::{Hold, Next, RUNS},
    progress,
};

const BEGIN: f64 = 2_000.0;

#[derive(Default)]
pub(crate) struct Best(Option<Found>);

pub(crate) struct Found {
    /// The highest rate of which one short step kept the limits; `None` when none did.
    pub(crate) of_step: Option<f64>,
    /// The highest rate that holds; `None` when none does.
    pub(crate) held: Option<f64>,
    /// The rate that holds, or the last that was tried.
    pub(crate) rate: f64,
    /// The runs at that rate.
    pub(crate) runs: Vec<Report>,
}

impl Best {
    pub(crate) fn found(&mut self, setting: &Setting<'_>, crowd: &Crowd<'_>) -> Result<&Found> {
        let found = match self.0.take() {
            Some(found) => found,
            None => Found::search(setting, crowd)?,
        };
        Ok(self.0.insert(found))
    }
}

impl Found {
    fn search(setting: &Setting<'_>, crowd: &Crowd<'_>) -> Result<Self> {
        progress("the highest rate within the limits, in short steps");
        let begin = BEGIN / setting.pace.divisor as f64;
        let of_step = crowd.find_max(begin, setting.pace.visit)?;
        let (mut hold, mut runs) = (Hold::from(of_step.unwrap_or(begin)), Vec::<(f64, Report)>::new());
        let (held, rate) = loop {
            let rate = match hold.next() {
                Next::Run(rate) => rate,
                Next::Held(rate) => break (Some(rate), rate),
                Next::GaveUp(rate) => break (None, rate),
            };
            let number = runs.iter().filter(|(at, _)| *at == rate).count() + 1;
            progress(&format!("{rate:.0} requests/s for {:?}, run {number} of {RUNS}", setting.pace.friday));
            let report = crowd.send(rate, setting.pace.friday)?;
            let reasons = shortfalls(&report);
            progress(&match reasons.is_empty() {
                true => format!("{rate:.0} requests/s: run {number} of {RUNS} kept all limits"),
                false => format!("{rate:.0} requests/s do not hold: {}", reasons.join("; ")),
            });
            hold.ran(reasons.is_empty());
            runs.push((rate, report));
        };
        let runs: Vec<Report> = runs.into_iter().filter(|(at, _)| *at == rate).map(|(_, run)| run).collect();
        ensure!(!runs.is_empty(), "no run was made at {rate} requests/s");
        Ok(Self { of_step, held, rate, runs })
    }
}
