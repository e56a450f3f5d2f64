//! Every alert's threshold.

use serde::Serialize;

use super::{
    reader::Section,
    values::{Bytes, Period},
};

/// What a threshold is written as, and the limits of it.
trait Threshold: Copy + std::fmt::Display {
    fn read(section: &Section<'_>, key: &'static str, default: Self) -> Self;
}

const COUNT_MAX: u64 = 1_000_000_000_000;

impl Threshold for u64 {
    fn read(section: &Section<'_>, key: &'static str, default: Self) -> Self {
        let max = if key.ends_with("_percent") { 1000 } else { COUNT_MAX };
        section.number(key, 0..=max, default)
    }
}

impl Threshold for Period {
    fn read(section: &Section<'_>, key: &'static str, default: Self) -> Self {
        section.get(key, default)
    }
}

impl Threshold for Bytes {
    fn read(section: &Section<'_>, key: &'static str, default: Self) -> Self {
        section.get(key, default)
    }
}

/// A group of thresholds: the struct, its keys, its defaults and what each means, said once.
macro_rules! alert_group {
    ($(#[$meta:meta])* $name:ident { $($key:ident: $type:ty = $default:expr, $meaning:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        pub struct $name { $(#[doc = $meaning] pub $key: $type),* }

        impl $name {
            fn read(section: &Section<'_>) -> Self {
                Self { $($key: <$type as Threshold>::read(section, stringify!($key), $default)),* }
            }

            fn rows(&self, group: &str) -> Vec<AlertRow> {
                vec![$(AlertRow {
                    key: format!("{group}.{}", stringify!($key)),
                    threshold: self.$key.to_string(),
                    meaning: $meaning,
                }),*]
            }
        }
    };
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alerts {
    pub latency: LatencyAlerts,
    pub promises: PromiseAlerts,
    pub shards: ShardAlerts,
    pub cassandra: CassandraAlerts,
    pub migration: MigrationAlerts,
}

/// One threshold, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRow {
    pub key: String,
    pub threshold: String,
    pub meaning: &'static str,
}

impl Alerts {
    pub(super) fn read(section: &Section<'_>) -> Self {
        Self {
            latency: LatencyAlerts::read(&section.section("latency")),
            promises: PromiseAlerts::read(&section.section("promises")),
            shards: ShardAlerts::read(&section.section("shards")),
            cassandra: CassandraAlerts::read(&section.section("cassandra")),
            migration: MigrationAlerts::read(&section.section("migration")),
        }
    }

    pub fn rows(&self) -> Vec<AlertRow> {
        let Self { latency, promises, shards, cassandra, migration } = self;
        [
            latency.rows("latency"),
            promises.rows("promises"),
            shards.rows("shards"),
            cassandra.rows("cassandra"),
            migration.rows("migration"),
        ]
        .concat()
    }
}

alert_group! {
    /// How slow a store may be.
    LatencyAlerts {
        read_p99: Period = Period::millis(50), "one read of a store in a hundred takes longer";
        write_p99: Period = Period::millis(30), "one write of a store in a hundred takes longer";
        query: Period = Period::millis(200), "one query of a shard takes longer";
    }
}

alert_group! {
    /// What the shop itself promises.
    PromiseAlerts {
        violations: u64 = 0, "more broken invariants than this";
        reconcile_late: Period = Period::seconds(30), "a checkout is unfinished this long after its deadline";
    }
}

alert_group! {
    /// A MongoDB shard against the others.
    ShardAlerts {
        cpu_hot_percent: u64 = 70, "one shard's processor is busier while the others stay under cpu_idle_percent";
        cpu_idle_percent: u64 = 30, "what counts as idle beside a hot shard";
        cpu_percent: u64 = 85, "a shard's processor is busier for cpu_for";
        cpu_for: Period = Period::minutes(10), "how long cpu_percent has to last";
        disk_percent: u64 = 80, "a shard's disk is busier";
        ops_ratio: u64 = 3, "times the operations a second of the least busy shard";
        latency_ratio: u64 = 3, "times the 95th percentile of the fastest shard";
        chunks_percent: u64 = 30, "number of chunks further from the mean";
        size_percent: u64 = 50, "size further above the mean of the others";
        connections_percent: u64 = 50, "open connections further above the mean of the others";
        traffic_percent: u64 = 50, "network bytes further above the mean of the others";
        jumbo_chunks: u64 = 0, "more jumbo chunks than this";
        chunk_size: Bytes = Bytes::mebi(64), "a shard's mean chunk is larger";
        unsharded: Bytes = Bytes::gibi(256), "an unsharded collection is larger: time for its grown_shard_key";
        lag: Period = Period::seconds(10), "a secondary is further behind";
    }
}

alert_group! {
    /// Cassandra's replicas.
    CassandraAlerts {
        hints_pending: u64 = 1000, "more hints were created than delivered to a peer";
        hints_size: Bytes = Bytes::gibi(1), "more bytes of hints wait for a peer";
        hints_age: Period = Period::minutes(30), "the oldest hint for a peer is older";
        hints_dropped: u64 = 0, "more hints than this were not stored at all";
        repair_time: Period = Period::hours(4), "a repair runs longer";
        repair_late: Period = Period::hours(12), "a repair is overdue by more";
        partition_size: Bytes = Bytes::mebi(100), "a partition is larger";
        partition_rows: u64 = 100_000, "a partition has more rows";
        disk_percent: u64 = 70, "a node's disk is fuller";
    }
}

alert_group! {
    /// A live migration.
    MigrationAlerts {
        mirror_pending: u64 = 1000, "more entities wait to be mirrored";
        mirror_age: Period = Period::minutes(1), "the oldest write that waits to be mirrored is older";
        handover_time: Period = Period::seconds(10), "writes wait longer in a handover";
    }
}
