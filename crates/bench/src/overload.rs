//! Too much to do: what is still answered in time at twice the load that the shop can stand, and how soon it is itself again.

use anyhow::{Context, Result};
use mobimir_core::policy::Period;
use mobimir_load::{
    Operation, OperationResult,
    profile::{Profile, Ramp},
    report::Report,
};

use crate::{
    Setting,
    best::Best,
    crowd::{
        BLACK_FRIDAY, Crowd,
        saying::{broken_promises, keeps_limits, limits, ms},
    },
    figures::{Figures, maximum, median, minimum, show_rounds},
    progress,
    server::Server,
};

const GOODPUT_BAR: f64 = 0.8;
const RECOVERY_BAR_S: f64 = 5.0;
/// Shares of the highest rate within the limits, one after the other: all that the shop can stand, too much, and a load under
/// which it is seen whether it is itself again.
const SHARES: [f64; 3] = [1.0, 2.0, 0.7];
const CONNECTIONS: usize = 2_000;
/// So many seconds in a row have to be within the limits.
const CALM_SECONDS: usize = 2;

pub(crate) fn measure(setting: &Setting<'_>, best: &mut Best, figures: &mut Figures) -> Result<()> {
    progress("overload: a shop of 10,000 products");
    let data = setting.scratch.dir("overload")?;
    let server = Server::demo(setting.binary, &data).context("the shop did not start")?;
    let rate = best.found(setting, &Crowd::of_black_friday(setting, server.address)?)?.rate;

    let phase = setting.pace.visit;
    let over = Period::millis(i64::try_from(phase.as_millis())?);
    let mut profile = Profile::built_in(BLACK_FRIDAY)?;
    profile.ramp = SHARES.map(|share| Ramp { over, from: share, to: share }).into();
    // Enough of them to make the shop late: with few, the queue is in the load, where the shop cannot see it.
    profile.shoppers.guests = CONNECTIONS - profile.shoppers.users;
    let crowd = Crowd::new(setting, server.address, profile).with_connections(CONNECTIONS);

    progress("overload: twice the load");
    let (mut goodputs, mut kept, mut recoveries) = (Vec::new(), Vec::new(), Vec::new());
    let (mut broken, mut reports) = (0.0, Vec::new());
    for _ in 0..setting.pace.visits {
        let report = crowd.send(rate, phase * SHARES.len() as u32)?;
        let [most, twice] = goodput(&report, phase.as_secs() as usize)?;
        goodputs.push(twice);
        kept.push(twice / most);
        recoveries.push(recovery_s(&report, phase.as_secs() as usize * 2)?);
        broken += broken_promises(&report);
        progress(&format!("overload: {:.2} of the goodput; {}", twice / most, behind(&report)));
        reports.push(report);
    }
    show_rounds("overload_goodput", &kept);
    show_rounds("overload_recovery", &recoveries);
    figures.at_least("overload_goodput", minimum(&kept), "ratio", GOODPUT_BAR);
    figures.info("overload_goodput_median", median(&kept), "ratio");
    if reports.iter().all(|report| report.shed() == 0) {
        figures.note("nothing was shed at twice the highest rate within the limits: this was no overload");
    }
    figures.at_most("overload_recovery", maximum(&recoveries), "s", RECOVERY_BAR_S);
    figures.info("overload_recovery_median", median(&recoveries), "s");
    figures.at_most("overload_oracle", broken, "broken promises", 0.0);
    figures.info("overload_rate", rate * SHARES[1], "requests/s");
    figures.info("overload_in_time", median(&goodputs), "requests/s");
    let late_ms: Vec<f64> = reports.iter().map(|report| ms(report.late.p99_us)).collect();
    figures.info("overload_sent_late_p99", maximum(&late_ms), "ms");
    let cores: Vec<f64> = reports.iter().map(generator_cores).collect();
    figures.info("overload_generator_cores", maximum(&cores), "cores");
    figures.info("overload_pages_shed", shed_percent(&reports, Operation::ProductPage), "%");
    figures.info("overload_orders_shed", shed_percent(&reports, Operation::Order), "%");
    server.stop()
}

/// Requests a second that were acknowledged in time, at the most that the shop can stand and at twice as
/// much. The first second of each belongs to what was before.
fn goodput(report: &Report, phase: usize) -> Result<[f64; 2]> {
    let of = |first: usize| {
        let seconds = report.seconds.get(first + 1..first + phase).context("the run was too short")?;
        let in_time: u64 = seconds.iter().map(|second| second.goodput).sum();
        anyhow::Ok(in_time as f64 / seconds.len() as f64)
    };
    Ok([of(0)?, of(phase)?])
}

/// Whether a round says something about the shop. A request that leaves later than its limit allows cannot be
/// answered in time, whatever the shop does: then the load had no connection or no user for it, or too little
/// of the processors.
fn behind(report: &Report) -> String {
    format!(
        "{:.1} % of the plan sent, p99 of sending {} ms late, load on {:.2} cores, {} shed",
        report.sent_share * 100.0,
        ms(report.late.p99_us),
        generator_cores(report),
        report.shed(),
    )
}

/// It is one thread: at 1 it can do no more.
fn generator_cores(report: &Report) -> f64 {
    report.generator_cpu_us * report.sent as f64 / 1e6 / report.took_s
}

/// From the end of the overload to the first of some seconds within the limits; infinite when there are none.
fn recovery_s(report: &Report, ended: usize) -> Result<f64> {
    let limits = limits(report)?;
    // Behind the end the last answers are waited for, and nothing is sent.
    let after = report.seconds.get(ended..report.lasts_s as usize).context("the run was too short")?;
    let calm: Vec<bool> = after.iter().map(|second| keeps_limits(second, limits)).collect();
    let first = calm.windows(CALM_SECONDS).position(|seconds| seconds.iter().all(|calm| *calm));
    Ok(first.map_or(f64::INFINITY, |second| second as f64))
}

fn shed_percent(reports: &[Report], operation: Operation) -> f64 {
    let of = |count: fn(&OperationResult) -> u64| -> u64 {
        reports.iter().filter_map(|report| report.operations.get(&operation)).map(count).sum()
    };
    let all = of(|of| of.served() + of.shed + of.failed.values().sum::<u64>());
    100.0 * of(|of| of.shed) as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::sample;

    #[test]
    fn goodput_is_that_of_its_phase_without_the_first_second() {
        let mut report = sample::report();
        for (second, goodput) in report.seconds.iter_mut().zip([7, 100, 200, 7, 30, 50, 7]) {
            second.goodput = goodput;
        }
        assert_eq!(goodput(&report, 3).unwrap(), [150.0, 40.0]);
        assert!(goodput(&report, 6).is_err());
    }

    #[test]
    fn a_shop_has_recovered_when_two_seconds_are_within_the_limits() {
        let mut report = sample::report();
        assert_eq!(recovery_s(&report, 4).unwrap(), 0.0);
        report.seconds[4].shed = 1;
        report.seconds[6].writes.p99_us = 30_001;
        assert_eq!(recovery_s(&report, 4).unwrap(), 3.0);
    }

    /// However short the run: that it ended is no recovery, and neither is silence.
    #[test]
    fn a_shop_that_does_not_recover_never_does() {
        let mut report = sample::report();
        for second in &mut report.seconds[4..] {
            second.shed = 1;
        }
        assert_eq!(recovery_s(&report, 4).unwrap(), f64::INFINITY);
        for second in &mut report.seconds[4..] {
            *second = Default::default();
        }
        assert_eq!(recovery_s(&report, 4).unwrap(), f64::INFINITY);
        assert!(recovery_s(&report, sample::SECONDS + 1).is_err());
    }
}
