//! The tables, as data: what a policy makes of them, and how they are written in CQL.
//!
//! A keyspace an entity, because the replication is the keyspace's. Every table serves one query; each is described
//! where its entity is ([`carts`], [`orders`], [`sessions`]). How a cluster gets them stands in [`plan`](plan()).

mod apply;
mod carts;
mod existing;
mod orders;
mod plan;
mod sessions;

use std::fmt::Write;

pub use self::{
    apply::apply,
    plan::{Change, Conflict, OptionChange, Plan, SchemaError, plan},
};

use mobimir_core::policy::{CassandraSettings, Compaction, Entity, Policy, Replication, Store};

/// All tables of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    pub entity: Entity,
    pub name: String,
    pub replication: Replication,
    pub tables: Vec<Table>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    /// What is asked of it.
    pub comment: &'static str,
    pub columns: Vec<Column>,
    pub partition_key: Vec<&'static str>,
    pub clustering: Vec<(&'static str, Sort)>,
    pub options: TableOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub cql_type: &'static str,
    pub is_static: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Ascending,
    Descending,
}

/// What a policy says about a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    pub compaction: Compaction,
    pub gc_grace_s: i64,
    /// For rows that say nothing themselves; 0 is for ever.
    pub default_ttl_s: i64,
    pub blocking_read_repair: bool,
    pub speculative_retry: String,
}

/// An entry that comes back is copied once more, and that is all.
const OUTBOX_GC_GRACE_S_MAX: i64 = 600;

/// The keyspaces of all entities that a policy places in Cassandra, or migrates there.
pub fn keyspaces(policy: &Policy, prefix: &str) -> Vec<Keyspace> {
    let in_cassandra = |entity: &Entity| {
        let placement = policy.placement(*entity)?;
        let settings = placement.cassandra.as_ref().filter(|_| placement.uses(Store::Cassandra))?;
        Some((*entity, settings))
    };
    Entity::ALL
        .iter()
        .filter_map(in_cassandra)
        .map(|(entity, settings)| Keyspace {
            entity,
            name: keyspace_name(prefix, entity),
            replication: settings.replication.clone(),
            tables: tables(entity, settings, policy),
        })
        .collect()
}

pub fn keyspace_name(prefix: &str, entity: Entity) -> String {
    format!("{prefix}_{entity}")
}

/// All statements that make these keyspaces, for somebody who would rather run them himself.
pub fn script(keyspaces: &[Keyspace]) -> String {
    let mut script = String::new();
    for keyspace in keyspaces {
        // Writing to a string does not fail.
        let _ = write!(script, "-- {}\n\n{};\n\n", keyspace.entity, keyspace.create_cql());
        for table in &keyspace.tables {
            let _ = write!(script, "{};\n\n", table.create_cql(&keyspace.name));
        }
    }
    script.truncate(script.trim_end().len());
    script.push('\n');
    script
}

fn tables(entity: Entity, settings: &CassandraSettings, policy: &Policy) -> Vec<Table> {
    let mut tables = match entity {
        Entity::Carts => carts::tables(settings, policy),
        Entity::Orders => orders::tables(settings),
        Entity::OrderHistory => orders::history_tables(settings),
        Entity::Sessions => sessions::tables(settings, policy),
        Entity::Products | Entity::Users => Vec::new(),
    };
    tables.extend(shared(settings));
    tables
}

/// What every keyspace has.
fn shared(settings: &CassandraSettings) -> [Table; 4] {
    let options = TableOptions::of(settings, 0);
    // Small tables that are changed in place.
    let options = TableOptions { compaction: Compaction::Leveled, ..options };
    [
        Table {
            name: "registers",
            comment: "which partitions a list has",
            columns: columns(&[("list", "text"), ("entry", "bigint")]),
            partition_key: vec!["list"],
            clustering: vec![("entry", Sort::Ascending)],
            options: options.clone(),
        },
        Table {
            name: "owed",
            comment: "what a lost data centre has to be given when it is back",
            columns: columns(&[("shard", "tinyint"), ("key", "blob")]),
            partition_key: vec!["shard"],
            clustering: vec![("key", Sort::Ascending)],
            options: options.clone(),
        },
        Table {
            name: "state",
            comment: "what all instances have to know of the entity",
            columns: columns(&[("name", "text"), ("value", "text"), ("at", "timestamp")]),
            partition_key: vec!["name"],
            clustering: Vec::new(),
            options: options.clone(),
        },
        Table {
            name: "partition_stats",
            comment: "how much each instance wrote to the partitions that got the most",
            columns: columns(&[
                ("table_name", "text"),
                ("key", "text"),
                ("instance", "uuid"),
                ("rows", "bigint"),
                ("bytes", "bigint"),
                ("measured_at", "timestamp"),
            ]),
            partition_key: vec!["table_name"],
            clustering: vec![("key", Sort::Ascending), ("instance", Sort::Ascending)],
            options,
        },
    ]
}

/// What every entity has that can be moved. Entries go when what they stand for would have gone.
fn outbox(entity_options: &TableOptions) -> [Table; 2] {
    let options = TableOptions {
        compaction: Compaction::Leveled,
        gc_grace_s: entity_options.gc_grace_s.min(OUTBOX_GC_GRACE_S_MAX),
        ..entity_options.clone()
    };
    [
        Table {
            name: "outbox",
            comment: "what was written during a migration and not copied since, by entity; a row a write",
            columns: columns(&[
                ("key", "blob"),
                ("seal", "bigint"),
                ("generation", "bigint"),
                ("slot", "bigint"),
                ("is_over", "boolean"),
            ]),
            partition_key: vec!["key"],
            clustering: vec![
                ("seal", Sort::Ascending),
                ("generation", Sort::Ascending),
                ("slot", Sort::Ascending),
            ],
            options: options.clone(),
        },
        Table {
            name: "outbox_slots",
            comment: "the same as it was written, in small partitions that are not read once they are drained",
            columns: columns(&[
                ("generation", "bigint"),
                ("slot", "bigint"),
                ("seal", "bigint"),
                ("key", "blob"),
            ]),
            partition_key: vec!["generation", "slot"],
            clustering: vec![("seal", Sort::Ascending), ("key", Sort::Ascending)],
            options,
        },
    ]
}

fn columns(columns: &[(&'static str, &'static str)]) -> Vec<Column> {
    columns.iter().map(|(name, cql_type)| Column { name, cql_type, is_static: false }).collect()
}

impl TableOptions {
    fn of(settings: &CassandraSettings, default_ttl_ms: i64) -> Self {
        Self {
            compaction: settings.compaction,
            gc_grace_s: settings.gc_grace.as_ms() / 1_000,
            default_ttl_s: default_ttl_ms / 1_000,
            blocking_read_repair: settings.read_repair,
            speculative_retry: settings.speculative_retry.to_string(),
        }
    }

    /// Each option as it is written, in the order of names.
    pub fn cql(&self) -> Vec<(&'static str, String)> {
        vec![
            ("compaction", compaction_cql(self.compaction)),
            ("default_time_to_live", self.default_ttl_s.to_string()),
            ("gc_grace_seconds", self.gc_grace_s.to_string()),
            ("read_repair", format!("'{}'", if self.blocking_read_repair { "BLOCKING" } else { "NONE" })),
            ("speculative_retry", format!("'{}'", self.speculative_retry)),
        ]
    }
}

fn compaction_cql(compaction: Compaction) -> String {
    match compaction {
        Compaction::SizeTiered => "{'class': 'SizeTieredCompactionStrategy'}".to_owned(),
        Compaction::Leveled => "{'class': 'LeveledCompactionStrategy'}".to_owned(),
        Compaction::TimeWindow(window) => {
            let minutes = window.as_ms() / 60_000;
            let (size, unit) = match minutes {
                minutes if minutes % 1_440 == 0 => (minutes / 1_440, "DAYS"),
                minutes if minutes % 60 == 0 => (minutes / 60, "HOURS"),
                minutes => (minutes, "MINUTES"),
            };
            format!(
                "{{'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': '{size}', \
                'compaction_window_unit': '{unit}'}}"
            )
        }
    }
}

impl Keyspace {
    pub fn create_cql(&self) -> String {
        format!("CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {}", self.name, self.replication_cql())
    }

    pub fn replication_cql(&self) -> String {
        let dcs = self.replication.iter().map(|(dc, replicas)| format!(", '{dc}': '{replicas}'"));
        format!("{{'class': 'NetworkTopologyStrategy'{}}}", dcs.collect::<String>())
    }
}

impl Table {
    pub fn create_cql(&self, keyspace: &str) -> String {
        let mut cql = format!("CREATE TABLE IF NOT EXISTS {keyspace}.{} (\n", self.name);
        for column in &self.columns {
            let suffix = if column.is_static { " STATIC" } else { "" };
            // Writing to a string does not fail.
            let _ = writeln!(cql, "    {} {}{suffix},", column.name, column.cql_type);
        }
        let clustering: Vec<&str> = self.clustering.iter().map(|(name, _)| *name).collect();
        let key = std::iter::once(format!("({})", self.partition_key.join(", ")))
            .chain(clustering.iter().map(|name| (*name).to_owned()));
        let _ = writeln!(cql, "    PRIMARY KEY ({})", key.collect::<Vec<_>>().join(", "));
        cql.push_str(") WITH ");
        if !self.clustering.is_empty() {
            let order = self.clustering.iter().map(|(name, sort)| format!("{name} {}", sort.cql()));
            let _ = write!(cql, "CLUSTERING ORDER BY ({})\n    AND ", order.collect::<Vec<_>>().join(", "));
        }
        let _ = write!(cql, "comment = '{}'", self.comment.replace('\'', "''"));
        for (name, value) in self.options.cql() {
            let _ = write!(cql, "\n    AND {name} = {value}");
        }
        cql
    }
}

impl Sort {
    pub fn cql(self) -> &'static str {
        match self {
            Self::Ascending => "ASC",
            Self::Descending => "DESC",
        }
    }
}
