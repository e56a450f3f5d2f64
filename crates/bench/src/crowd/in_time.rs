//! How much was answered within the limits of the p99, from what a report tells of every second: the times that a half, nine
//! of ten and so on were below. Between two of them requests are taken as spread evenly.

use mobimir_load::{Latency, Operation, Second, report::Limits};

/// A second keeps the limits when so many of its reads, and of its writes, are in time.
const KEPT_SHARE: f64 = 0.99;

/// Requests that were answered in time.
pub(crate) fn in_time(seconds: &[Second], limits: Limits) -> f64 {
    seconds
        .iter()
        .map(|second| reads_and_writes(second, limits).iter().map(|class| class.in_time).sum::<f64>())
        .sum()
}

/// Whether the p99 of reads and of writes is within the limits in this second.
pub(crate) fn keeps_limits(second: &Second, limits: Limits) -> bool {
    let kept = |class: &Class| class.in_time >= class.timed * KEPT_SHARE;
    second.shed == 0 && reads_and_writes(second, limits).iter().all(kept)
}

#[derive(Clone, Copy, Default)]
struct Class {
    timed: f64,
    in_time: f64,
}

fn reads_and_writes(second: &Second, limits: Limits) -> [Class; 2] {
    let mut classes = [Class::default(); 2];
    for (operation, latency) in &second.operations {
        let class = &mut classes[usize::from(operation.is_write())];
        class.timed += latency.count as f64;
        class.in_time += latency.count as f64 * share(latency, limit_us(*operation, limits));
    }
    classes
}

fn limit_us(operation: Operation, limits: Limits) -> u64 {
    if operation.is_write() { limits.write_p99_us } else { limits.read_p99_us }
}

/// Of the requests, those that took no longer.
fn share(latency: &Latency, limit_us: u64) -> f64 {
    let known = [
        (latency.p50_us, 0.5),
        (latency.p90_us, 0.9),
        (latency.p99_us, 0.99),
        (latency.p999_us, 0.999),
        (latency.max_us, 1.0),
    ];
    let (mut low_us, mut low) = (0, 0.0);
    for (high_us, high) in known {
        if limit_us < high_us {
            return low + (high - low) * (limit_us - low_us) as f64 / (high_us - low_us) as f64;
        }
        (low_us, low) = (high_us, high);
    }
    1.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const LIMITS: Limits = Limits { read_p99_us: 50_000, write_p99_us: 30_000 };

    fn latency(count: u64, us: [u64; 5]) -> Latency {
        let [p50_us, p90_us, p99_us, p999_us, max_us] = us;
        Latency { count, p50_us, p90_us, p99_us, p999_us, max_us }
    }

    fn second(reads: Latency, writes: Latency) -> Second {
        let operations = BTreeMap::from([(Operation::ProductPage, reads), (Operation::CartAdd, writes)]);
        Second { answered: reads.count + writes.count, operations, ..Second::default() }
    }

    #[test]
    fn between_two_known_times_requests_are_spread_evenly() {
        let slow = latency(100, [10_000, 30_000, 70_000, 80_000, 90_000]);
        assert_eq!(share(&slow, 5_000), 0.25);
        assert_eq!(share(&slow, 10_000), 0.5);
        assert!((share(&slow, 50_000) - 0.945).abs() < 1e-9);
        assert_eq!(share(&slow, 90_000), 1.0);
        assert_eq!(share(&Latency::default(), 1), 1.0);
    }

    #[test]
    fn reads_and_writes_have_limits_of_their_own() {
        let (fast, slow) = ([1_000; 5], [40_000; 5]);
        let of = |reads, writes| second(latency(900, reads), latency(100, writes));
        assert!(keeps_limits(&of(slow, fast), LIMITS));
        assert!(!keeps_limits(&of(fast, slow), LIMITS));
        assert_eq!(in_time(&[of(fast, fast), of(slow, fast)], LIMITS), 2_000.0);
        let turned_away = Second { shed: 1, ..of(fast, fast) };
        assert!(!keeps_limits(&turned_away, LIMITS));
    }
}
