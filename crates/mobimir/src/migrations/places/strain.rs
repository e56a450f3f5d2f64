//! What shoppers and servers feel, against what the policy allows.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use mobimir_core::policy::{Alerts, Period};
use mobimir_http::Latency;
use mobimir_migrate::throttle::Felt;

/// For how long it counts that a cluster could not keep up.
const OVERLOAD_COUNTS: Duration = Duration::from_secs(5);
/// What that counts: well above the limit.
const OVERLOAD_LEVEL: f64 = 2.0;

pub(crate) struct Strain {
    latency: Arc<Latency>,
    read_p99: Duration,
    write_p99: Duration,
    lag: Duration,
    /// Overloads so far, and when there was one more.
    overloads: Mutex<(u64, Option<Instant>)>,
}

impl Strain {
    pub(crate) fn new(latency: Arc<Latency>, alerts: &Alerts) -> Self {
        let of = |period: Period| Duration::from_millis(u64::try_from(period.as_ms()).unwrap_or(u64::MAX));
        Self {
            latency,
            read_p99: of(alerts.latency.read_p99),
            write_p99: of(alerts.latency.write_p99),
            lag: of(alerts.shards.lag),
            overloads: Mutex::new((0, None)),
        }
    }

    /// `overloads` is how many requests Cassandra could not keep up with so far, `lag` how far a secondary of MongoDB is behind.
    pub(crate) fn now(&self, overloads: u64, lag: Option<Duration>) -> Felt {
        let used = |time: Option<Duration>, limit: Duration| {
            time.map_or(0.0, |time| time.as_secs_f64() / limit.as_secs_f64().max(0.001))
        };
        let parts = [
            Felt { level: used(self.latency.read_p99(), self.read_p99), by: "reads of shoppers" },
            Felt { level: used(self.latency.write_p99(), self.write_p99), by: "writes of shoppers" },
            Felt { level: used(lag, self.lag), by: "lag of MongoDB" },
            Felt { level: self.overload(overloads), by: "overload of Cassandra" },
        ];
        parts.into_iter().fold(Felt { level: 0.0, by: "nobody" }, |most, part| {
            if part.level > most.level { part } else { most }
        })
    }

    fn overload(&self, overloads: u64) -> f64 {
        let mut seen = self.overloads.lock().unwrap_or_else(PoisonError::into_inner);
        if overloads > seen.0 {
            *seen = (overloads, Some(Instant::now()));
        }
        let is_recent = seen.1.is_some_and(|at| at.elapsed() < OVERLOAD_COUNTS);
        if is_recent { OVERLOAD_LEVEL } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_feels_most_is_named() {
        let policy = mobimir_core::policy::Policy::built_in("default").unwrap().unwrap();
        let strain = Strain::new(Arc::default(), &policy.alerts);
        assert_eq!(strain.now(0, None), Felt { level: 0.0, by: "nobody" });
        let felt = strain.now(0, Some(Duration::from_secs(5)));
        assert_eq!(felt, Felt { level: 0.5, by: "lag of MongoDB" });
        let felt = strain.now(3, Some(Duration::from_secs(5)));
        assert_eq!(felt, Felt { level: OVERLOAD_LEVEL, by: "overload of Cassandra" });
    }
}
