//! What goes over the links, counted; and how old the answers were.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    policy::{Entity, ReadOperation},
    reading::Served,
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use super::failure::Failure;
use crate::members::{MemberRole, MemberState};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRequest {
    entity: &'static str,
    request: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFailure {
    entity: &'static str,
    request: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRead {
    operation: &'static str,
    from: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOperation {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    member: String,
}

/// The counters of all links of a deployment.
#[derive(Clone)]
pub(crate) struct Meters {
    seconds: Family<OfRequest, Histogram>,
    failed: Family<OfFailure, Counter>,
    reads: Family<OfRead, Counter>,
    staleness: Family<OfOperation, Histogram>,
    operations: Arc<[Operation]>,
}

/// One operation's counters, at hand without looking them up.
struct Operation {
    operation: ReadOperation,
    primary: Counter,
    secondary: Counter,
    again: Counter,
    staleness: Histogram,
    tally: Tally,
}

/// Where a read was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Primary,
    /// By a secondary whose answer was at most so old.
    Secondary(Duration),
    /// By the primary, after a secondary gave no answer that would do.
    Again,
}

#[derive(Clone)]
pub(crate) struct Meter {
    all: Meters,
    entity: &'static str,
}

const STALENESS_BUCKETS: u16 = 40;
const STALENESS_FIRST_S: f64 = 0.01;
const STALENESS_FACTOR: f64 = 1.3;

impl Default for Meters {
    fn default() -> Self {
        let reads = Family::<OfRead, Counter>::default();
        let staleness =
            Family::<OfOperation, Histogram>::new_with_constructor(|| Histogram::new(staleness_buckets()));
        let operation = |operation: &ReadOperation| {
            let name = operation.as_str();
            let from = |from| reads.get_or_create(&OfRead { operation: name, from }).clone();
            Operation {
                operation: *operation,
                primary: from("primary"),
                secondary: from("secondary"),
                again: from("again"),
                staleness: staleness.get_or_create(&OfOperation { operation: name }).clone(),
                tally: Tally::default(),
            }
        };
        Self {
            operations: ReadOperation::ALL.iter().map(operation).collect(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_25, 2.0, 16))),
            failed: Family::default(),
            reads,
            staleness,
        }
    }
}

impl Meters {
    pub(crate) fn of(&self, entity: Entity) -> Meter {
        Meter { all: self.clone(), entity: entity.as_str() }
    }

    /// Those that were read at all.
    pub(crate) fn served(&self) -> Vec<Served> {
        self.operations.iter().map(Operation::served).filter(|served| served.reads > 0).collect()
    }

    /// In the OpenMetrics text format, without its end.
    pub(crate) fn text(&self, members: &[MemberState]) -> String {
        let mut registry = Registry::default();
        registry.register(
            "mobimir_mongodb_request_seconds",
            "Time until a request was answered or given up",
            self.seconds.clone(),
        );
        registry.register(
            "mobimir_mongodb_requests_failed",
            "Requests that were given up",
            self.failed.clone(),
        );
        registry.register(
            "mobimir_mongodb_reads",
            "Reads by operation and by who answered: again is the primary, after a secondary would not do",
            self.reads.clone(),
        );
        registry.register(
            "mobimir_mongodb_staleness_seconds",
            "How old answers were at most; from the primary counts as 0",
            self.staleness.clone(),
        );
        let lag = Family::<OfMember, Gauge<f64, AtomicU64>>::default();
        let known = Family::<OfMember, Gauge>::default();
        for member in members.iter().filter(|member| member.role != MemberRole::Primary) {
            let labels = OfMember { member: member.address.clone() };
            known.get_or_create(&labels).set(i64::from(member.lag.is_some()));
            if let Some(bound) = member.lag {
                lag.get_or_create(&labels).set(bound.as_secs_f64());
            }
        }
        registry.register(
            "mobimir_mongodb_member_lag_seconds",
            "How old an answer of a secondary is at most",
            lag,
        );
        registry.register("mobimir_mongodb_member_known", "Whether the lag of a secondary is known", known);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text.trim_end_matches("# EOF\n").to_owned()
    }
}

impl Meter {
    pub(super) fn ended(&self, request: &'static str, took: Duration, failure: Option<&Failure>) {
        let labels = OfRequest { entity: self.entity, request };
        self.all.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        if let Some(failure) = failure {
            let labels = OfFailure { entity: self.entity, request, reason: failure.name() };
            self.all.failed.get_or_create(&labels).inc();
        }
    }

    pub(super) fn read(&self, operation: Option<ReadOperation>, from: From) {
        let Some(operation) = operation.and_then(|operation| self.all.operations.get(operation as usize))
        else {
            return;
        };
        let staleness = match from {
            From::Primary => {
                operation.primary.inc();
                Duration::ZERO
            }
            From::Secondary(staleness) => {
                operation.secondary.inc();
                staleness
            }
            From::Again => {
                operation.again.inc();
                Duration::ZERO
            }
        };
        operation.staleness.observe(staleness.as_secs_f64());
        operation.tally.note(staleness);
    }
}

impl Operation {
    fn served(&self) -> Served {
        let (from_secondaries, again) = (self.secondary.get(), self.again.get());
        let (p50, p99) = (self.tally.quantile(0.5), self.tally.quantile(0.99));
        let reads = self.primary.get() + from_secondaries + again;
        Served { operation: self.operation, reads, from_secondaries, again, p50, p99 }
    }
}

fn staleness_buckets() -> impl Iterator<Item = f64> {
    exponential_buckets(STALENESS_FIRST_S, STALENESS_FACTOR, STALENESS_BUCKETS)
}

/// The same histogram, to be read here: `prometheus_client` only writes its own out.
struct Tally {
    /// Zero, one for each bucket, and what is above all of them.
    counts: Box<[AtomicU64]>,
    longest_us: AtomicU64,
}

impl Default for Tally {
    fn default() -> Self {
        let counts = (0..STALENESS_BUCKETS + 2).map(|_| AtomicU64::new(0)).collect();
        Self { counts, longest_us: AtomicU64::new(0) }
    }
}

impl Tally {
    fn note(&self, staleness: Duration) {
        let seconds = staleness.as_secs_f64();
        let place = match staleness.is_zero() {
            true => 0,
            false => 1 + staleness_buckets().take_while(|bound| *bound < seconds).count(),
        };
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(staleness.as_micros()).unwrap_or(u64::MAX);
        self.longest_us.fetch_max(us, Ordering::Relaxed);
    }

    /// The upper end of the bucket that it falls into, and no more than the longest there was.
    fn quantile(&self, share: f64) -> Duration {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let rank = counts.iter().sum::<u64>() as f64 * share;
        let bounds = [0.0].into_iter().chain(staleness_buckets()).chain([f64::MAX]);
        let mut below = 0;
        for (count, bound) in counts.into_iter().zip(bounds) {
            below += count;
            if below as f64 >= rank {
                let longest = Duration::from_micros(self.longest_us.load(Ordering::Relaxed));
                return Duration::try_from_secs_f64(bound).unwrap_or(Duration::MAX).min(longest);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_served_is_counted_by_operation() {
        let meters = Meters::default();
        let meter = meters.of(Entity::Products);
        assert!(meters.served().is_empty());
        for _ in 0..60 {
            meter.read(Some(ReadOperation::ProductPage), From::Secondary(Duration::from_millis(300)));
        }
        for _ in 0..39 {
            meter.read(Some(ReadOperation::ProductPage), From::Primary);
        }
        meter.read(Some(ReadOperation::ProductPage), From::Again);
        meter.read(None, From::Primary);
        let served = meters.served();
        assert_eq!(served.len(), 1);
        let [page] = served[..] else { panic!("one operation was read") };
        assert_eq!((page.reads, page.from_secondaries, page.again), (100, 60, 1));
        assert!((0.3..0.4).contains(&page.p50.as_secs_f64()), "{page:?}");
        assert_eq!(page.p99, Duration::from_millis(300));
    }

    #[test]
    fn the_text_has_every_counter() {
        let meters = Meters::default();
        let meter = meters.of(Entity::Users);
        meter.read(Some(ReadOperation::OrderCard), From::Secondary(Duration::from_secs(1)));
        meter.ended("user", Duration::from_millis(1), Some(&Failure::TooLate));
        let away = MemberState { address: "127.0.0.1:2".into(), role: MemberRole::Secondary, lag: None };
        let text = meters.text(&[MemberState { lag: Some(Duration::from_secs(3)), ..away.clone() }, away]);
        for line in [
            "mobimir_mongodb_requests_failed_total{entity=\"users\",request=\"user\",reason=\"timeout\"} 1",
            "mobimir_mongodb_reads_total{operation=\"order_card\",from=\"secondary\"} 1",
            "mobimir_mongodb_staleness_seconds_count{operation=\"order_card\"} 1",
            "mobimir_mongodb_member_lag_seconds{member=\"127.0.0.1:2\"} 3.0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("# EOF"));
    }
}
