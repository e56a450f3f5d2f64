//! What goes over a link, counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mobimir_core::policy::Entity;
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStatement {
    entity: &'static str,
    statement: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFailure {
    entity: &'static str,
    statement: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEntity {
    entity: &'static str,
}

/// The counters of all links of a cluster.
#[derive(Clone)]
pub(crate) struct Meters {
    seconds: Family<OfStatement, Histogram>,
    repeated: Family<OfStatement, Counter>,
    failed: Family<OfFailure, Counter>,
    degraded: Family<OfEntity, Gauge>,
    degradations: Family<OfEntity, Counter>,
    /// Requests that the cluster could not keep up with.
    overloads: Arc<AtomicU64>,
}

#[derive(Clone)]
pub(crate) struct Meter {
    all: Meters,
    entity: &'static str,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_25, 2.0, 16))),
            repeated: Family::default(),
            failed: Family::default(),
            degraded: Family::default(),
            degradations: Family::default(),
            overloads: Arc::default(),
        }
    }
}

impl Meters {
    pub(crate) fn of(&self, entity: Entity) -> Meter {
        let meter = Meter { all: self.clone(), entity: entity.as_str() };
        meter.degraded(false);
        meter
    }

    pub(crate) fn overloads(&self) -> u64 {
        self.overloads.load(Ordering::Relaxed)
    }

    /// In the OpenMetrics text format, without its end.
    pub(crate) fn text(&self) -> String {
        let mut registry = Registry::default();
        registry.register(
            "mobimir_cassandra_request_seconds",
            "Time until a request was answered or given up",
            self.seconds.clone(),
        );
        registry.register(
            "mobimir_cassandra_requests_repeated",
            "Requests that were sent once more",
            self.repeated.clone(),
        );
        registry.register(
            "mobimir_cassandra_requests_failed",
            "Requests that were given up",
            self.failed.clone(),
        );
        registry.register(
            "mobimir_cassandra_degraded",
            "Whether an entity is written to fewer data centres than the policy says",
            self.degraded.clone(),
        );
        registry.register(
            "mobimir_cassandra_degradations",
            "How often an entity became degraded",
            self.degradations.clone(),
        );
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text.trim_end_matches("# EOF\n").to_owned()
    }
}

impl Meter {
    pub(super) fn ended(&self, statement: &'static str, took: Duration, failure: Option<&Failure>) {
        let labels = OfStatement { entity: self.entity, statement };
        self.all.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        if let Some(failure) = failure {
            if failure.is_overload() {
                self.all.overloads.fetch_add(1, Ordering::Relaxed);
            }
            let labels = OfFailure { entity: self.entity, statement, reason: failure.name() };
            self.all.failed.get_or_create(&labels).inc();
        }
    }

    pub(super) fn repeated(&self, statement: &'static str) {
        self.all.repeated.get_or_create(&OfStatement { entity: self.entity, statement }).inc();
    }

    pub(super) fn degraded(&self, is_degraded: bool) {
        let labels = OfEntity { entity: self.entity };
        let before = self.all.degraded.get_or_create(&labels).set(i64::from(is_degraded));
        if is_degraded && before == 0 {
            self.all.degradations.get_or_create(&labels).inc();
        }
    }
}
