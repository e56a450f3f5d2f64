//! What is looked at every now and then, while a crowd is in the shop.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow};
use mobimir_core::time::{Clock, SystemClock, Timestamp};
use mobimir_load::report::Report;

const PERIOD: Duration = Duration::from_millis(200);

pub(crate) struct Samples<T>(Vec<(Timestamp, T)>);

impl<T: Send> Samples<T> {
    /// Looks until the visit is over.
    pub(crate) fn during(
        visit: impl FnOnce() -> Result<Report>,
        look: impl Fn() -> Result<T> + Sync,
    ) -> Result<(Report, Self)> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut taken = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    taken.push((SystemClock.now(), look()?));
                    thread::sleep(PERIOD);
                }
                anyhow::Ok(taken)
            });
            let report = visit();
            over.store(true, Ordering::Relaxed);
            let taken = looking.join().map_err(|_| anyhow!("who looked has panicked"))?;
            Ok((report?, Self(taken?)))
        })
    }

    /// Those of a part of the run, from one share of its time to another. Before it everybody came in, and afterwards
    /// everything was looked at: that is not in it.
    pub(crate) fn of_part(&self, report: &Report, from: f64, to: f64) -> Result<Vec<&T>> {
        let (started_at, lasts_ms) = (Timestamp::parse(&report.started_at)?, report.lasts_s * 1e3);
        let at = |share: f64| started_at.plus_ms((lasts_ms * share) as i64);
        let part = at(from)..at(to);
        Ok(self.0.iter().filter(|(taken_at, _)| part.contains(taken_at)).map(|(_, sample)| sample).collect())
    }
}
