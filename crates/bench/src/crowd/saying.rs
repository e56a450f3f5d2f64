//! What a report says that a figure is made of.

use anyhow::{Context, Result, ensure};
use mobimir_load::{
    Findings, Latency, Operation, Second,
    report::{Limits, Report},
};

pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

/// Requests that were not done: a wrong answer or none, shed, or refused by the rules of the shop.
pub(crate) fn errors(report: &Report) -> f64 {
    (report.failed() + report.shed() + report.refused()) as f64
}

/// How often an invariant was broken. What could not be checked counts as broken.
pub(crate) fn broken_promises(report: &Report) -> f64 {
    let Some(findings) = &report.findings else { return 1.0 };
    let Findings { orders, histories, days, unasked_orders, carts, stock, invariants, .. } = findings;
    let checks = [orders, histories, unasked_orders, carts, stock].into_iter().chain(days).chain(invariants);
    let wrong: u64 = checks.map(|check| check.wrong).sum();
    let counted = wrong + findings.answers_wrong + findings.unsettled;
    // Orders were acknowledged, and nobody read one back.
    let placed = report.operations.get(&Operation::Order).map_or(0, |of| of.fine);
    let not_checked = findings.not_looked.is_some()
        || days.is_none()
        || invariants.is_none()
        || stock.looked_at == 0
        || (placed > 0 && (orders.looked_at == 0 || histories.looked_at == 0));
    // A check that is not among these would otherwise be forgotten.
    let not_right = counted == 0 && !findings.is_right();
    (counted + u64::from(not_checked || not_right)) as f64
}

/// Why a run does not count as one in which the shop kept all its limits; empty when it does.
pub(crate) fn shortfalls(report: &Report) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut expect = |holds: bool, reason: &dyn Fn() -> String| {
        if !holds {
            reasons.push(reason());
        }
    };
    expect(report.is_valid(), &|| format!("{:.2} % of the plan was sent", report.sent_share * 100.0));
    for (what, count) in
        [("failed", report.failed()), ("were shed", report.shed()), ("were refused", report.refused())]
    {
        expect(count == 0, &|| format!("{count} requests {what}"));
    }
    let limits = report.limits.unwrap_or_default();
    for (name, latency, limit_us) in
        [("reads", report.reads, limits.read_p99_us), ("writes", report.writes, limits.write_p99_us)]
    {
        let limit = limit_us.map_or("unknown".to_owned(), |limit_us| format!("{} ms", ms(limit_us)));
        expect(is_within(latency, limit_us), &|| {
            format!("p99 of {} {name} is {} ms (limit {limit})", latency.count, ms(latency.p99_us))
        });
    }
    let broken = broken_promises(report);
    expect(broken == 0.0, &|| format!("{broken} invariants were broken"));
    reasons
}

/// The limits of the policy, of reads and of writes.
pub(crate) fn limits(report: &Report) -> Result<Limits> {
    let limits = report.limits.context("the shop tells no limits")?;
    ensure!(limits.read_p99_us.is_some() && limits.write_p99_us.is_some(), "a limit is missing: {limits:?}");
    Ok(limits)
}

/// Whether the p99 of reads and of writes is within the limits in this second, and nothing was shed or
/// failed. A second without answers is not within them.
pub(crate) fn keeps_limits(second: &Second, limits: Limits) -> bool {
    second.shed == 0
        && second.failed == 0
        && is_within(second.reads, limits.read_p99_us)
        && is_within(second.writes, limits.write_p99_us)
}

/// Nothing is within a limit that is not known, and no answers are within none.
fn is_within(latency: Latency, limit_us: Option<u64>) -> bool {
    latency.count > 0 && limit_us.is_some_and(|limit_us| latency.p99_us <= limit_us)
}

pub(crate) fn shop_cpu_us(report: &Report) -> Result<f64> {
    report.shop_cpu_us.context("the shop does not tell its processor time")
}

/// Requests a second that were acknowledged, when more was asked for than could be done.
///
/// Not the report's own rate: what is due at the end is sent for a second longer. And in the first second not all
/// connections are busy.
pub(crate) fn saturated_rate(report: &Report) -> f64 {
    per_second(&report.seconds, report.lasts_s)
}

fn per_second(seconds: &[Second], lasts_s: f64) -> f64 {
    let whole = (lasts_s as usize).min(seconds.len());
    let seconds = &seconds[1.min(whole.saturating_sub(1))..whole];
    seconds.iter().map(Second::acknowledged).sum::<u64>() as f64 / seconds.len() as f64
}

/// Of one kind of request, second by second; a second without any is left out.
pub(crate) fn p99_ms(seconds: &[Second], operation: Operation) -> Vec<f64> {
    let of = |second: &Second| second.operations.get(&operation).copied();
    seconds.iter().filter_map(of).map(|latency: Latency| ms(latency.p99_us)).collect()
}

#[cfg(test)]
mod tests {
    use mobimir_load::OperationResult;

    use super::{super::sample, *};

    fn seconds(answered: &[u64]) -> Vec<Second> {
        answered.iter().map(|&answered| Second { answered, ..Second::default() }).collect()
    }

    fn spoilt(spoil: impl Fn(&mut Report)) -> Report {
        let mut report = sample::report();
        spoil(&mut report);
        report
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
        assert!(!keeps_limits(&Second { failed: 1, ..of(1, 1, 0) }, limits));
        assert!(!keeps_limits(&of(1, 1, 0), Limits { write_p99_us: None, ..limits }));
        assert!(!keeps_limits(&Second::default(), limits), "a shop that answers nothing is not within them");
    }

    #[test]
    fn neither_the_first_second_nor_the_grace_counts() {
        assert_eq!(per_second(&seconds(&[1, 100, 200, 900]), 3.0), 150.0);
        assert_eq!(per_second(&seconds(&[100, 50]), 1.0), 100.0);
        assert!(per_second(&[], 1.0).is_nan());
    }

    #[test]
    fn what_is_refused_is_no_rate() {
        let second = Second { answered: 100, refused: 30, shed: 10, ..Second::default() };
        assert_eq!(per_second(&[second], 1.0), 60.0);
    }

    #[test]
    fn every_limit_can_be_the_one_that_a_run_does_not_keep() {
        assert_eq!(shortfalls(&sample::report()), [""; 0]);
        let of_pages = |report: &mut Report, change: fn(&mut OperationResult)| {
            change(report.operations.get_mut(&Operation::ProductPage).unwrap());
        };
        for (spoil, reason) in [
            ((|report| report.sent_share = 0.99) as fn(&mut Report), "99.00 % of the plan was sent"),
            (|report| report.interrupted = true, "of the plan was sent"),
            (|report| report.reads.p99_us = 50_001, "p99 of 500 reads is 50.001 ms (limit 50 ms)"),
            (|report| report.writes.p99_us = 30_001, "p99 of 500 writes is 30.001 ms (limit 30 ms)"),
            (|report| report.writes = Latency::default(), "p99 of 0 writes"),
            (|report| report.limits = None, "limit unknown"),
            (|report| report.findings = None, "1 invariants were broken"),
        ] {
            let reasons = shortfalls(&spoilt(spoil));
            assert!(reasons.iter().any(|said| said.contains(reason)), "{reason}: {reasons:?}");
        }
        for (change, reason) in [
            ((|of| of.shed = 1) as fn(&mut OperationResult), "1 requests were shed"),
            (|of| of.refused = 2, "2 requests were refused"),
            (|of| _ = of.failed.insert("status 500".to_owned(), 3), "3 requests failed"),
        ] {
            assert_eq!(shortfalls(&spoilt(|report| of_pages(report, change))), [reason]);
        }
    }

    #[test]
    fn every_check_of_the_oracle_counts() {
        assert_eq!(broken_promises(&sample::report()), 0.0);
        for spoil in [
            (|found| found.orders.wrong = 1) as fn(&mut Findings),
            |found| found.histories.wrong = 1,
            |found| found.days.as_mut().unwrap().wrong = 1,
            |found| found.unasked_orders.wrong = 1,
            |found| found.carts.wrong = 1,
            |found| found.stock.wrong = 1,
            |found| found.invariants.as_mut().unwrap().wrong = 1,
            |found| found.answers_wrong = 1,
            |found| found.unsettled = 1,
            |found| found.not_looked = Some("no connection".to_owned()),
            |found| found.days = None,
            |found| found.invariants = None,
            |found| found.stock.looked_at = 0,
        ] {
            assert_eq!(broken_promises(&spoilt(|report| spoil(report.findings.as_mut().unwrap()))), 1.0);
        }
        let unread = spoilt(|report| {
            let placed = OperationResult { fine: 1, ..OperationResult::default() };
            report.operations.insert(Operation::Order, placed);
            report.findings.as_mut().unwrap().orders.looked_at = 0;
        });
        assert_eq!(broken_promises(&unread), 1.0);
    }
}
