//! What a cluster has.

use std::collections::BTreeMap;

use scylla::{client::session::Session, deserialize::row::DeserializeRow};

use super::plan::SchemaError;

/// By name.
pub(super) type Keyspaces = BTreeMap<String, ExistingKeyspace>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExistingKeyspace {
    pub(super) replication: BTreeMap<String, String>,
    pub(super) tables: BTreeMap<String, ExistingTable>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExistingTable {
    pub(super) columns: BTreeMap<String, ExistingColumn>,
    pub(super) comment: String,
    pub(super) compaction: BTreeMap<String, String>,
    pub(super) default_ttl_s: i32,
    pub(super) gc_grace_s: i32,
    pub(super) read_repair: String,
    pub(super) speculative_retry: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExistingColumn {
    pub(super) cql_type: String,
    /// `partition_key`, `clustering`, `static` or `regular`.
    pub(super) kind: String,
    /// Among those of the same kind.
    pub(super) position: i32,
    /// `asc`, `desc` or `none`.
    pub(super) order: String,
}

/// Those of the named keyspaces that there are.
pub(super) async fn read(session: &Session, names: &[String]) -> Result<Keyspaces, SchemaError> {
    type Texts = BTreeMap<String, String>;
    let mut found = Keyspaces::new();
    let keyspaces: Vec<(String, Texts)> = rows(
        session,
        "SELECT keyspace_name, replication FROM system_schema.keyspaces WHERE keyspace_name IN ?",
        names,
    )
    .await?;
    for (name, replication) in keyspaces {
        found.insert(name, ExistingKeyspace { replication, tables: BTreeMap::new() });
    }
    type Table = (String, String, Option<String>, Texts, i32, i32, String, String);
    let tables: Vec<Table> = rows(
        session,
        "SELECT keyspace_name, table_name, comment, compaction, default_time_to_live, gc_grace_seconds, read_repair, \
        speculative_retry FROM system_schema.tables WHERE keyspace_name IN ?",
        names,
    )
    .await?;
    for (keyspace, name, comment, compaction, default_ttl_s, gc_grace_s, read_repair, speculative_retry) in
        tables
    {
        let table = ExistingTable {
            columns: BTreeMap::new(),
            comment: comment.unwrap_or_default(),
            compaction,
            default_ttl_s,
            gc_grace_s,
            read_repair,
            speculative_retry,
        };
        found.entry(keyspace).or_default().tables.insert(name, table);
    }
    type Column = (String, String, String, String, String, i32, String);
    let columns: Vec<Column> = rows(
        session,
        "SELECT keyspace_name, table_name, column_name, type, kind, position, clustering_order \
        FROM system_schema.columns WHERE keyspace_name IN ?",
        names,
    )
    .await?;
    for (keyspace, table, name, cql_type, kind, position, order) in columns {
        let table = found.get_mut(&keyspace).and_then(|keyspace| keyspace.tables.get_mut(&table));
        if let Some(table) = table {
            table.columns.insert(name, ExistingColumn { cql_type, kind, position, order });
        }
    }
    Ok(found)
}

async fn rows<T>(session: &Session, cql: &str, names: &[String]) -> Result<Vec<T>, SchemaError>
where
    T: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    let result = session.query_unpaged(cql, (names,)).await.map_err(SchemaError::unreadable)?;
    let rows = result.into_rows_result().map_err(SchemaError::unreadable)?;
    let rows = rows.rows::<T>().map_err(SchemaError::unreadable)?;
    rows.collect::<Result<_, _>>().map_err(SchemaError::unreadable)
}
