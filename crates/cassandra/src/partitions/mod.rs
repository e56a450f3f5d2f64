//! Which partitions grow, so that a large one is found before it hurts.
//!
//! Every instance counts what it writes to which partition ([`PartitionMeter`]), as exactly as a bounded memory allows, and
//! writes the largest down in its entity's keyspace (`partition_stats`). [`measure`] adds the instances up, counts the
//! rows of the largest partitions as they are, and asks every node what it knows about the sizes of its own.

mod measure;
mod top;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use mobimir_core::{id, policy::Entity};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use scylla::{
    statement::{Consistency, prepared::PreparedStatement},
    value::CqlTimestamp,
};
use uuid::Uuid;

pub use self::measure::{MeasureError, NodeStat, PartitionReport, PartitionStat, measure};
use self::top::Top;
use crate::{
    cluster::{Cluster, ConnectError},
    stamps,
};

/// What is written down, per table.
const WRITTEN_KEYS_MAX: usize = 32;
const WRITE_EVERY: Duration = Duration::from_secs(30);
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// Longer than the longest month, so that a month's partition is known to its end.
const KEPT_S: i32 = 40 * 24 * 3_600;

/// The counters of one entity, of this instance.
#[derive(Clone, Default)]
pub(crate) struct PartitionMeter(Arc<Mutex<BTreeMap<&'static str, Top<PartitionKey>>>>);

/// What a partition is found by. It becomes text when it is written down, and not at every write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PartitionKey {
    Cart(i8, Uuid),
    OfUser(Uuid, i32),
    OfDay(i32, i32),
    Bucket(i32),
}

/// Those of all entities in a cluster.
pub(crate) struct PartitionMeters {
    instance: Uuid,
    entities: Mutex<BTreeMap<&'static str, Written>>,
}

#[derive(Clone)]
struct Written {
    meter: PartitionMeter,
    write: PreparedStatement,
}

impl Default for PartitionMeters {
    fn default() -> Self {
        Self { instance: id::fresh(stamps::real_now()), entities: Mutex::default() }
    }
}

impl PartitionMeter {
    /// Rows were written to a partition.
    pub(crate) fn wrote(&self, table: &'static str, key: PartitionKey, rows: u64, bytes: u64) {
        locked(&self.0).entry(table).or_default().add(key, rows, bytes);
    }

    /// What has changed since this was last called, of the largest partitions.
    fn take_changed(&self) -> Vec<(&'static str, PartitionKey, u64, u64)> {
        let mut tables = locked(&self.0);
        let changed = |(table, top): (&&'static str, &mut Top<PartitionKey>)| {
            let table = *table;
            top.take_changed(WRITTEN_KEYS_MAX)
                .into_iter()
                .map(move |(key, rows, bytes)| (table, key, rows, bytes))
        };
        tables.iter_mut().flat_map(changed).collect()
    }

    /// It is to be told again.
    fn not_told(&self, table: &'static str, key: &PartitionKey) {
        locked(&self.0).entry(table).or_default().mark_changed(key);
    }
}

/// As literals of CQL, separated by commas.
impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cart(kind, owner) => write!(f, "{kind},{owner}"),
            Self::OfUser(user, month) => write!(f, "{user},{month}"),
            Self::OfDay(day, bucket) => write!(f, "{day},{bucket}"),
            Self::Bucket(bucket) => bucket.fmt(f),
        }
    }
}

impl PartitionMeters {
    /// The meter of an entity, which is the same for all who ask; from the first time on it is written down.
    pub(crate) async fn of(cluster: &Arc<Cluster>, entity: Entity) -> Result<PartitionMeter, ConnectError> {
        let meters = cluster.partitions();
        if let Some(known) = locked(&meters.entities).get(entity.as_str()) {
            return Ok(known.meter.clone());
        }
        let cql = format!(
            "INSERT INTO {}.partition_stats (table_name, key, instance, rows, bytes, measured_at) \
            VALUES (?, ?, ?, ?, ?, ?) USING TTL ?",
            cluster.keyspace(entity)
        );
        let mut write = cluster.prepare("partition_stats", &cql).await?;
        write.set_consistency(Consistency::LocalOne);
        write.set_is_idempotent(true);
        write.set_execution_profile_handle(Some(cluster.local_profile()));
        write.set_request_timeout(Some(WRITE_TIME_MAX));
        let mut entities = locked(&meters.entities);
        if entities.is_empty() {
            write_from_now_on(Arc::downgrade(cluster));
        }
        let written = || Written { meter: PartitionMeter::default(), write };
        Ok(entities.entry(entity.as_str()).or_insert_with(written).meter.clone())
    }

    /// In the OpenMetrics text format, without its end.
    pub(crate) fn text(&self) -> String {
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct OfTable {
            entity: &'static str,
            table: &'static str,
        }
        let (rows, bytes) = (Family::<OfTable, Gauge>::default(), Family::<OfTable, Gauge>::default());
        for (entity, written) in &*locked(&self.entities) {
            for (table, top) in &*locked(&written.meter.0) {
                let labels = OfTable { entity, table };
                let (most_rows, most_bytes) = top.largest();
                rows.get_or_create(&labels).set(most_rows.cast_signed());
                bytes.get_or_create(&labels).set(most_bytes.cast_signed());
            }
        }
        let mut registry = Registry::default();
        registry.register(
            "mobimir_cassandra_partition_written_rows_max",
            "Rows that this instance has written to the partition that got the most",
            rows,
        );
        registry.register(
            "mobimir_cassandra_partition_written_bytes_max",
            "Bytes that this instance has written to the partition that got the most",
            bytes,
        );
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text.trim_end_matches("# EOF\n").to_owned()
    }

    /// Writes down what has changed.
    pub(crate) async fn write(&self, cluster: &Cluster) {
        let entities: Vec<Written> = locked(&self.entities).values().cloned().collect();
        let now = CqlTimestamp(stamps::real_now().as_millis());
        for Written { meter, write } in entities {
            for (table, key, rows, bytes) in meter.take_changed() {
                let [rows, bytes] = [rows, bytes].map(u64::cast_signed);
                let values = (table, key.to_string(), self.instance, rows, bytes, now, KEPT_S);
                if let Err(error) = cluster.session().execute_unpaged(&write, values).await {
                    meter.not_told(table, &key);
                    tracing::debug!(%error, table, "what was written to a partition could not be written down");
                }
            }
        }
    }
}

/// As long as the cluster is connected.
fn write_from_now_on(cluster: Weak<Cluster>) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(WRITE_EVERY).await;
            let Some(cluster) = cluster.upgrade() else { return };
            cluster.partitions().write(&cluster).await;
        }
    });
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
