//! What has to be done so that a cluster has the tables that a policy asks for. Nothing is ever dropped.

use std::{collections::BTreeMap, fmt};

use mobimir_core::policy::{Compaction, Entity, Period, SpeculativeRetry};
use thiserror::Error;

use super::{
    Column, Keyspace, Sort, Table,
    existing::{self, ExistingKeyspace, ExistingTable, Keyspaces},
    keyspace_name,
};
use crate::Cluster;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they have to be made.
    pub changes: Vec<Change>,
    /// What cannot be changed in place. As long as there is one, nothing is changed.
    pub conflicts: Vec<Conflict>,
    /// What the cluster has and the policy does not know.
    pub left_alone: Vec<String>,
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    CreateKeyspace {
        name: String,
        cql: String,
    },
    /// Rows that are there already are not copied by it.
    AlterReplication {
        keyspace: String,
        from: String,
        to: String,
    },
    CreateTable {
        name: String,
        cql: String,
    },
    AddColumns {
        table: String,
        columns: Vec<Column>,
    },
    AlterOptions {
        table: String,
        options: Vec<OptionChange>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionChange {
    pub name: &'static str,
    pub from: String,
    /// As CQL writes it.
    pub to: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub table: String,
    pub what: String,
}

#[derive(Debug, Error)]
pub enum SchemaError {
    #[error("cannot read what the cluster has: {0}")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("nothing was changed, because {} cannot be changed in place", .0.join(", "))]
    Conflicts(Vec<String>),
    #[error("after {done} of {of} changes the cluster did not take this one: {cql}: {source}")]
    Refused {
        done: usize,
        of: usize,
        cql: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the nodes do not agree about the tables: {0}")]
    Disagreement(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SchemaError {
    pub(super) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Unreadable(Box::new(error))
    }
}

/// Compares what the policy asks for with what the cluster has.
pub async fn plan(cluster: &Cluster, wanted: &[Keyspace]) -> Result<Plan, SchemaError> {
    let prefix = &cluster.config().keyspace_prefix;
    // Also the keyspaces of entities that live elsewhere now.
    let names: Vec<String> = Entity::ALL.iter().map(|entity| keyspace_name(prefix, *entity)).collect();
    let existing = existing::read(cluster.session(), &names).await?;
    Ok(compare(wanted, &existing))
}

fn compare(wanted: &[Keyspace], existing: &Keyspaces) -> Plan {
    let mut plan = Plan::default();
    for keyspace in wanted {
        match existing.get(&keyspace.name) {
            Some(existing) => plan.compare_keyspace(keyspace, existing),
            None => plan.create_keyspace(keyspace),
        }
    }
    for name in existing.keys().filter(|name| wanted.iter().all(|wanted| wanted.name != **name)) {
        plan.left_alone.push(format!("keyspace {name}"));
    }
    plan
}

impl Plan {
    /// Whether the cluster has everything as the policy says.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.conflicts.is_empty()
    }

    fn create_keyspace(&mut self, keyspace: &Keyspace) {
        self.changes.push(Change::CreateKeyspace { name: keyspace.name.clone(), cql: keyspace.create_cql() });
        for table in &keyspace.tables {
            self.create_table(keyspace, table);
        }
    }

    fn create_table(&mut self, keyspace: &Keyspace, table: &Table) {
        let name = format!("{}.{}", keyspace.name, table.name);
        self.changes.push(Change::CreateTable { name, cql: table.create_cql(&keyspace.name) });
    }

    fn compare_keyspace(&mut self, wanted: &Keyspace, existing: &ExistingKeyspace) {
        if !has_replication(wanted, &existing.replication) {
            self.changes.push(Change::AlterReplication {
                keyspace: wanted.name.clone(),
                from: map_cql(&existing.replication),
                to: wanted.replication_cql(),
            });
        }
        for table in &wanted.tables {
            match existing.tables.get(table.name) {
                Some(existing) => self.compare_table(&wanted.name, table, existing),
                None => self.create_table(wanted, table),
            }
        }
        for name in existing.tables.keys() {
            if wanted.tables.iter().all(|table| table.name != name) {
                self.left_alone.push(format!("table {}.{name}", wanted.name));
            }
        }
    }

    fn compare_table(&mut self, keyspace: &str, wanted: &Table, existing: &ExistingTable) {
        let name = format!("{keyspace}.{}", wanted.name);
        let (wanted_key, existing_key) = (key_of(wanted), existing_key_of(existing));
        if wanted_key != existing_key {
            let what = format!("expected the key {wanted_key}, the cluster has {existing_key}");
            self.conflicts.push(Conflict { table: name, what });
            return;
        }
        let mut missing = Vec::new();
        for column in &wanted.columns {
            match existing.columns.get(column.name) {
                None => missing.push(*column),
                Some(existing) => {
                    let is_key = existing.kind == "partition_key" || existing.kind == "clustering";
                    let same_kind = is_key || column.is_static == (existing.kind == "static");
                    if !same_type(column.cql_type, &existing.cql_type) || !same_kind {
                        let is_static = if existing.kind == "static" { " STATIC" } else { "" };
                        let what = format!(
                            "expected the column {}, the cluster has {} {}{is_static}",
                            column_cql(column),
                            column.name,
                            existing.cql_type
                        );
                        self.conflicts.push(Conflict { table: name.clone(), what });
                    }
                }
            }
        }
        for column in existing.columns.keys() {
            if wanted.columns.iter().all(|wanted| wanted.name != column) {
                self.left_alone.push(format!("column {column} of {name}"));
            }
        }
        if !missing.is_empty() {
            self.changes.push(Change::AddColumns { table: name.clone(), columns: missing });
        }
        let options = changed_options(wanted, existing);
        if !options.is_empty() {
            self.changes.push(Change::AlterOptions { table: name, options });
        }
    }
}

impl Change {
    /// The statement, without its semicolon.
    pub fn cql(&self) -> String {
        match self {
            Self::CreateKeyspace { cql, .. } | Self::CreateTable { cql, .. } => cql.clone(),
            Self::AlterReplication { keyspace, to, .. } => {
                format!("ALTER KEYSPACE {keyspace} WITH replication = {to}")
            }
            Self::AddColumns { table, columns } => {
                let columns: Vec<String> = columns.iter().map(column_cql).collect();
                format!("ALTER TABLE {table} ADD ({})", columns.join(", "))
            }
            Self::AlterOptions { table, options } => {
                let options: Vec<String> =
                    options.iter().map(|option| format!("{} = {}", option.name, option.to)).collect();
                format!("ALTER TABLE {table} WITH {}", options.join(" AND "))
            }
        }
    }

    /// What remains to be done by hand when the statement was carried out.
    pub fn afterwards(&self) -> Option<String> {
        match self {
            Self::AlterReplication { keyspace, .. } => Some(format!(
                "what is in {keyspace} already is copied to new replicas by a repair only: nodetool repair --full {keyspace}"
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateKeyspace { name, .. } => write!(f, "create keyspace {name}"),
            Self::AlterReplication { keyspace, from, to } => {
                write!(f, "change the replication of {keyspace} from {from} to {to}")
            }
            Self::CreateTable { name, .. } => write!(f, "create table {name}"),
            Self::AddColumns { table, columns } => {
                let columns: Vec<String> = columns.iter().map(column_cql).collect();
                write!(f, "add to {table}: {}", columns.join(", "))
            }
            Self::AlterOptions { table, options } => {
                let options: Vec<String> = options
                    .iter()
                    .map(|OptionChange { name, from, to }| format!("{name} from {from} to {to}"))
                    .collect();
                write!(f, "change {table}: {}", options.join(", "))
            }
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, what } = self;
        write!(
            f,
            "{table}: {what}, and that cannot be changed in place. Use another keyspace_prefix and bring the data over, or \
             drop the table yourself if its data can go"
        )
    }
}

fn changed_options(wanted: &Table, existing: &ExistingTable) -> Vec<OptionChange> {
    let options = &wanted.options;
    let is_same = |name: &str| match name {
        "compaction" => compaction_of(&existing.compaction) == Some(options.compaction),
        "default_time_to_live" => i64::from(existing.default_ttl_s) == options.default_ttl_s,
        "gc_grace_seconds" => i64::from(existing.gc_grace_s) == options.gc_grace_s,
        "read_repair" => existing.read_repair.eq_ignore_ascii_case(if options.blocking_read_repair {
            "blocking"
        } else {
            "none"
        }),
        "speculative_retry" => {
            let existing = SpeculativeRetry::parse(&existing.speculative_retry);
            existing.is_some() && existing == SpeculativeRetry::parse(&options.speculative_retry)
        }
        _ => false,
    };
    let from = |name: &str| match name {
        "compaction" => map_cql(&existing.compaction),
        "default_time_to_live" => existing.default_ttl_s.to_string(),
        "gc_grace_seconds" => existing.gc_grace_s.to_string(),
        "read_repair" => text_cql(&existing.read_repair),
        "speculative_retry" => text_cql(&existing.speculative_retry),
        _ => String::new(),
    };
    let mut changes: Vec<OptionChange> = Vec::new();
    if wanted.comment != existing.comment {
        let (from, to) = (text_cql(&existing.comment), text_cql(wanted.comment));
        changes.push(OptionChange { name: "comment", from, to });
    }
    let different = options.cql().into_iter().filter(|(name, _)| !is_same(name));
    changes.extend(different.map(|(name, to)| OptionChange { name, from: from(name), to }));
    changes
}

fn has_replication(wanted: &Keyspace, existing: &BTreeMap<String, String>) -> bool {
    let is_by_dc = existing.get("class").is_some_and(|class| class_name(class) == "NetworkTopologyStrategy");
    let wanted = wanted.replication.iter().map(|(dc, replicas)| (dc.as_str(), replicas.to_string()));
    let existing = existing.iter().filter(|(key, _)| *key != "class");
    is_by_dc && wanted.eq(existing.map(|(dc, replicas)| (dc.as_str(), replicas.clone())))
}

/// What is tuned by hand beyond what a policy says is not looked at.
fn compaction_of(options: &BTreeMap<String, String>) -> Option<Compaction> {
    match class_name(options.get("class")?) {
        "SizeTieredCompactionStrategy" => Some(Compaction::SizeTiered),
        "LeveledCompactionStrategy" => Some(Compaction::Leveled),
        "TimeWindowCompactionStrategy" => {
            let size: i64 = options.get("compaction_window_size").map_or(Ok(1), |size| size.parse()).ok()?;
            let unit = match options.get("compaction_window_unit").map_or("DAYS", String::as_str) {
                "DAYS" => Period::days(1),
                "HOURS" => Period::hours(1),
                "MINUTES" => Period::minutes(1),
                _ => return None,
            };
            Some(Compaction::TimeWindow(unit.times(size)))
        }
        _ => None,
    }
}

/// Without its package.
fn class_name(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

fn key_of(table: &Table) -> String {
    let clustering = table.clustering.iter().map(|(name, sort)| format!(", {name} {}", sort.cql()));
    format!("(({}){})", table.partition_key.join(", "), clustering.collect::<String>())
}

fn existing_key_of(table: &ExistingTable) -> String {
    let of_kind = |kind: &str| {
        let mut columns: Vec<_> = table.columns.iter().filter(|(_, column)| column.kind == kind).collect();
        columns.sort_by_key(|(_, column)| column.position);
        columns
    };
    let partition: Vec<&str> = of_kind("partition_key").iter().map(|(name, _)| name.as_str()).collect();
    let sort = |order: &str| if order == "desc" { Sort::Descending } else { Sort::Ascending };
    let clustering = of_kind("clustering")
        .into_iter()
        .map(|(name, column)| format!(", {name} {}", sort(&column.order).cql()));
    format!("(({}){})", partition.join(", "), clustering.collect::<String>())
}

fn same_type(wanted: &str, existing: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace(' ', "").replace("varchar", "text");
    plain(wanted) == plain(existing)
}

fn column_cql(column: &Column) -> String {
    format!("{} {}{}", column.name, column.cql_type, if column.is_static { " STATIC" } else { "" })
}

fn text_cql(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn map_cql(map: &BTreeMap<String, String>) -> String {
    let entries: Vec<String> =
        map.iter().map(|(key, value)| format!("'{key}': '{}'", class_name(value))).collect();
    format!("{{{}}}", entries.join(", "))
}

#[cfg(test)]
mod tests {
    use mobimir_core::policy::{BUILT_IN, Policy};

    use super::{super::keyspaces, existing::ExistingColumn, *};

    fn wanted(policy: &str) -> Vec<Keyspace> {
        let built_in = BUILT_IN.iter().find(|built_in| built_in.name == policy).unwrap();
        keyspaces(&Policy::parse(built_in.text, policy).unwrap(), "mobimir")
    }

    /// A cluster on which these were created, as it tells them.
    fn created(keyspaces: &[Keyspace]) -> Keyspaces {
        let table = |table: &Table| {
            let column = |column: &Column| {
                let partition = table.partition_key.iter().position(|name| *name == column.name);
                let clustering = table.clustering.iter().position(|(name, _)| *name == column.name);
                let position = partition.or(clustering).map_or(-1, |at| i32::try_from(at).unwrap());
                let order = clustering.map_or("none", |at| match table.clustering[at].1 {
                    Sort::Ascending => "asc",
                    Sort::Descending => "desc",
                });
                let kind = match (partition, clustering, column.is_static) {
                    (Some(_), ..) => "partition_key",
                    (_, Some(_), _) => "clustering",
                    (.., true) => "static",
                    _ => "regular",
                };
                let (cql_type, kind, order) = (column.cql_type.to_owned(), kind.to_owned(), order.to_owned());
                (column.name.to_owned(), ExistingColumn { cql_type, kind, position, order })
            };
            let options = &table.options;
            let compaction = match options.compaction {
                Compaction::SizeTiered => vec![
                    ("class", "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy".to_owned()),
                    ("max_threshold", "32".to_owned()),
                ],
                Compaction::Leveled => vec![("class", "LeveledCompactionStrategy".to_owned())],
                Compaction::TimeWindow(window) => vec![
                    ("class", "TimeWindowCompactionStrategy".to_owned()),
                    ("compaction_window_size", (window.as_ms() / 60_000).to_string()),
                    ("compaction_window_unit", "MINUTES".to_owned()),
                ],
            };
            let existing = ExistingTable {
                columns: table.columns.iter().map(column).collect(),
                comment: table.comment.to_owned(),
                compaction: compaction.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
                default_ttl_s: i32::try_from(options.default_ttl_s).unwrap(),
                gc_grace_s: i32::try_from(options.gc_grace_s).unwrap(),
                read_repair: if options.blocking_read_repair { "BLOCKING" } else { "NONE" }.to_owned(),
                speculative_retry: options.speculative_retry.to_uppercase(),
            };
            (table.name.to_owned(), existing)
        };
        let keyspace = |keyspace: &Keyspace| {
            let class =
                ("class".to_owned(), "org.apache.cassandra.locator.NetworkTopologyStrategy".to_owned());
            let dcs = keyspace.replication.iter().map(|(dc, replicas)| (dc.clone(), replicas.to_string()));
            let replication = std::iter::once(class).chain(dcs).collect();
            let tables = keyspace.tables.iter().map(table).collect();
            (keyspace.name.clone(), ExistingKeyspace { replication, tables })
        };
        keyspaces.iter().map(keyspace).collect()
    }

    #[test]
    fn what_was_created_needs_no_change() {
        for built_in in BUILT_IN {
            let wanted = wanted(built_in.name);
            assert_eq!(compare(&wanted, &created(&wanted)), Plan::default(), "{}", built_in.name);
            let anew = compare(&wanted, &Keyspaces::new());
            let tables: usize = wanted.iter().map(|keyspace| keyspace.tables.len()).sum();
            assert_eq!((anew.changes.len(), anew.conflicts.len()), (wanted.len() + tables, 0));
        }
    }

    #[test]
    fn what_differs_is_one_statement_a_table() {
        let wanted = wanted("default");
        let mut existing = created(&wanted);
        let carts = existing.get_mut("mobimir_carts").unwrap();
        carts.replication.remove("dc2");
        let table = carts.tables.get_mut("carts_by_touch").unwrap();
        table.gc_grace_s = 1;
        table.comment = "it's old".to_owned();
        let changes = carts.tables.get_mut("cart_changes").unwrap();
        changes.columns.remove("body");
        changes.columns.remove("pack_id");
        let cql: Vec<String> = compare(&wanted, &existing).changes.iter().map(Change::cql).collect();
        assert_eq!(
            cql[..2],
            [
                "ALTER KEYSPACE mobimir_carts WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': '3', 'dc2': '3'}",
                "ALTER TABLE mobimir_carts.cart_changes ADD (body blob, pack_id uuid)",
            ]
        );
        assert!(
            cql[2].starts_with("ALTER TABLE mobimir_carts.carts_by_touch WITH comment = 'carts by"),
            "{}",
            cql[2]
        );
        assert!(cql[2].contains(" AND gc_grace_seconds = "), "{}", cql[2]);
        assert_eq!(cql.len(), 3);
    }

    #[test]
    fn what_cannot_be_changed_is_a_conflict_and_what_is_unknown_stays() {
        let (shared, each) = (wanted("bucketed"), wanted("default"));
        let mut existing = created(&shared);
        let sessions = existing.get_mut("mobimir_sessions").unwrap();
        sessions.tables.insert("by_hand".to_owned(), ExistingTable::default());
        let column =
            ExistingColumn { cql_type: "text".to_owned(), kind: "regular".to_owned(), ..Default::default() };
        let tokens = sessions.tables.get_mut("refresh_tokens").unwrap();
        tokens.columns.insert("by_hand".to_owned(), column.clone());
        tokens.columns.insert("session_id".to_owned(), column);
        let plan = compare(&each[each.len() - 1..], &existing);
        let conflicts: Vec<String> =
            plan.conflicts.iter().map(|conflict| format!("{}: {}", conflict.table, conflict.what)).collect();
        assert_eq!(
            conflicts,
            [
                "mobimir_sessions.sessions: expected the key ((bucket, session_id)), the cluster has ((bucket), session_id ASC)",
                "mobimir_sessions.refresh_tokens: expected the column session_id uuid, the cluster has session_id text",
            ]
        );
        assert!(plan.left_alone.contains(&"table mobimir_sessions.by_hand".to_owned()));
        assert!(plan.left_alone.contains(&"column by_hand of mobimir_sessions.refresh_tokens".to_owned()));
        assert!(plan.left_alone.contains(&"keyspace mobimir_carts".to_owned()));
    }
}
