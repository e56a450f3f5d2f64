//! What a report says that a figure is made of.

use anyhow::{Context, Result};
use mobimir_load::{
    Findings, Latency, Operation, Second,
    report::{Limits, Report},
};

pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

/// Requests with a wrong answer or none, and those that were turned away.
pub(crate) fn errors(report: &Report) -> f64 {
    (report.failed() + report.shed()) as f64
}

/// How often a promise was broken. What could not be looked at counts as broken.
pub(crate) fn broken_promises(report: &Report) -> f64 {
    let Some(findings) = &report.findings else { return 1.0 };
    let Findings { orders, histories, unasked_orders, carts, stock, invariants, .. } = findings;
    let checks = [orders, histories, unasked_orders, carts, stock].into_iter().chain(invariants);
    let wrong: u64 = checks.map(|check| check.wrong).sum();
    (wrong + findings.answers_wrong + findings.unsettled + u64::from(findings.not_looked.is_some())) as f64
}

pub(crate) fn limits(report: &Report) -> Result<Limits> {
    report.limits.context("the shop tells no limits")
}

/// Whether the p99 of reads and of writes is within the limits in this second, and nobody was turned away.
pub(crate) fn keeps_limits(second: &Second, limits: Limits) -> bool {
    let keeps =
        |latency: &Latency, limit_us: Option<u64>| limit_us.is_none_or(|limit| latency.p99_us <= limit);
    second.shed == 0 && keeps(&second.reads, limits.read_p99_us) && keeps(&second.writes, limits.write_p99_us)
}

pub(crate) fn shop_cpu_us(report: &Report) -> Result<f64> {
    report.shop_cpu_us.context("the shop does not tell its processor time")
}

/// Requests a second that were done, or refused by the rules of the shop, when more was asked for than could be done.
///
/// Not the report's own rate: what is due at the end is sent for a second longer. And in the first second not all
/// connections are busy.
pub(crate) fn saturated_rate(report: &Report) -> f64 {
    per_second(&report.seconds, report.lasts_s)
}

fn per_second(seconds: &[Second], lasts_s: f64) -> f64 {
    let whole = (lasts_s as usize).min(seconds.len());
    let seconds = &seconds[1.min(whole.saturating_sub(1))..whole];
    seconds.iter().map(Second::served).sum::<u64>() as f64 / seconds.len() as f64
}

/// Of one kind of request, second by second; a second without any is left out.
pub(crate) fn p99_ms(seconds: &[Second], operation: Operation) -> Vec<f64> {
    let of = |second: &Second| second.operations.get(&operation).copied();
    seconds.iter().filter_map(of).map(|latency: Latency| ms(latency.p99_us)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(served: &[u64]) -> Vec<Second> {
        served.iter().map(|&answered| Second { answered, ..Second::default() }).collect()
    }

    #[test]
    fn reads_and_writes_have_limits_of_their_own() {
        let limits = Limits { read_p99_us: Some(50_000), write_p99_us: Some(30_000) };
        let of = |reads: u64, writes: u64, shed: u64| {
            let latency = |p99_us| Latency { count: 1, p99_us, ..Latency::default() };
            Second { reads: latency(reads), writes: latency(writes), shed, ..Second::default() }
        };
        assert!(keeps_limits(&of(40_000, 30_000, 0), limits));
        assert!(!keeps_limits(&of(30_000, 40_000, 0), limits));
        assert!(!keeps_limits(&of(1, 1, 1), limits));
        assert!(keeps_limits(&of(1, 40_000, 0), Limits { write_p99_us: None, ..limits }));
    }

    #[test]
    fn neither_the_first_second_nor_the_grace_counts() {
        assert_eq!(per_second(&seconds(&[1, 100, 200, 900]), 3.0), 150.0);
        assert_eq!(per_second(&seconds(&[100, 50]), 1.0), 100.0);
    }
}
