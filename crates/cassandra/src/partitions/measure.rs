//! How large partitions are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    policy::{Entity, Policy},
    time::Timestamp,
};
use scylla::{
    client::execution_profile::{ExecutionProfile, ExecutionProfileHandle},
    cluster::Node,
    errors::ExecutionError,
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
    response::{PagingState, PagingStateResponse, query_result::QueryRowsResult},
    statement::{Consistency, unprepared::Statement},
    value::CqlTimestamp,
};
use serde::Serialize;
use thiserror::Error;
use uuid::Uuid;

use crate::{
    Cluster,
    schema::{self, Keyspace, Table},
};

/// The largest partitions, and what each node says about each table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionReport {
    /// Of each table the largest first.
    pub partitions: Vec<PartitionStat>,
    pub nodes: Vec<NodeStat>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionStat {
    pub entity: Entity,
    pub table: String,
    /// The partition key, column by column as literals of CQL, separated by commas.
    pub key: String,
    /// Rows that are there, counted just now.
    pub rows: u64,
    /// Counting ended there, because there are so many.
    pub has_more_rows: bool,
    /// Rows and bytes that all instances say they wrote, each write counted anew.
    pub written_rows: u64,
    pub written_bytes: u64,
    /// What the rows take at the size they were written with, before the cluster compresses them.
    pub estimated_bytes: u64,
    pub last_written_at: Timestamp,
}

/// What one node knows of its own part of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStat {
    pub node: String,
    pub dc: Option<String>,
    pub entity: Entity,
    pub table: String,
    /// Of what is on its disk; rounded down, so nothing below a mebibyte shows.
    pub largest_partition_mib: Option<i64>,
    /// As it was estimated at most five minutes ago, of the ranges it is the first replica of.
    pub partitions_estimated: i64,
    pub mean_partition_bytes: i64,
}

#[derive(Debug, Error)]
pub enum MeasureError {
    #[error("cannot read {what}: {source}")]
    Read {
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Rows that are counted at most.
const ROWS_COUNTED_MAX: u64 = 200_000;
const PAGE_ROWS: i32 = 5_000;
const COUNTED_AT_ONCE: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Measures the `top` largest partitions of each table, and asks every node about its own.
pub async fn measure(
    cluster: &Cluster,
    policy: &Policy,
    top: usize,
) -> Result<PartitionReport, MeasureError> {
    let mut partitions = Vec::new();
    let keyspaces = cluster.keyspaces(policy);
    for keyspace in &keyspaces {
        for table in &keyspace.tables {
            let written = written(cluster, keyspace, table).await?;
            let mut largest: Vec<(String, Written)> = written.into_iter().collect();
            largest.sort_by(|(key, one), (other_key, other)| (other.rows, key).cmp(&(one.rows, other_key)));
            largest.truncate(top);
            let measured: Vec<PartitionStat> = stream::iter(largest)
                .map(|(key, written)| count(cluster, keyspace, table, key, written))
                .buffered(COUNTED_AT_ONCE)
                .try_collect()
                .await?;
            partitions.extend(measured);
        }
    }
    partitions.sort_by_key(|stat| (stat.entity.as_str(), stat.table.clone(), std::cmp::Reverse(stat.rows)));
    let state = cluster.session().get_cluster_state();
    let mut nodes = Vec::new();
    for node in state.get_nodes_info().iter().filter(|node| node.is_connected()) {
        nodes.extend(of_node(cluster, &keyspaces, node).await?);
    }
    Ok(PartitionReport { partitions, nodes })
}

/// What all instances together wrote to a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    rows: u64,
    bytes: u64,
    last_at: Timestamp,
}

async fn written(
    cluster: &Cluster,
    keyspace: &Keyspace,
    table: &Table,
) -> Result<BTreeMap<String, Written>, MeasureError> {
    let cql = format!(
        "SELECT key, rows, bytes, measured_at FROM {}.partition_stats WHERE table_name = '{}'",
        keyspace.name, table.name
    );
    let mut written = BTreeMap::<String, Written>::new();
    let mut pages = Pages::of(cluster, cql, None);
    while let Some(rows) = pages.next().await? {
        let decoded = rows.rows::<(String, i64, i64, CqlTimestamp)>().map_err(|error| pages.failed(error))?;
        for row in decoded {
            let (key, rows, bytes, at) = row.map_err(|error| pages.failed(error))?;
            let sum = written.entry(key).or_default();
            sum.rows += rows.max(0).cast_unsigned();
            sum.bytes += bytes.max(0).cast_unsigned();
            sum.last_at = sum.last_at.max(Timestamp::from_millis(at.0));
        }
    }
    Ok(written)
}

async fn count(
    cluster: &Cluster,
    keyspace: &Keyspace,
    table: &Table,
    key: String,
    written: Written,
) -> Result<PartitionStat, MeasureError> {
    let mut rows = 0;
    let mut has_more_rows = false;
    if let Some(condition) = condition(table, &key) {
        let column = table.clustering.first().map_or(table.partition_key[0], |(name, _)| name);
        let cql = format!("SELECT {column} FROM {}.{} WHERE {condition}", keyspace.name, table.name);
        let mut pages = Pages::of(cluster, cql, None);
        while let Some(page) = pages.next().await? {
            rows += page.rows_num() as u64;
            if rows >= ROWS_COUNTED_MAX {
                has_more_rows = pages.from.is_some();
                break;
            }
        }
    }
    let row_bytes = written.bytes.checked_div(written.rows).unwrap_or(0);
    Ok(PartitionStat {
        entity: keyspace.entity,
        table: table.name.to_owned(),
        key,
        rows,
        has_more_rows,
        written_rows: written.rows,
        written_bytes: written.bytes,
        estimated_bytes: row_bytes.saturating_mul(rows),
        last_written_at: written.last_at,
    })
}

/// What picks the partition out, if the key is one of this table.
fn condition(table: &Table, key: &str) -> Option<String> {
    let literals: Vec<&str> = key.split(',').collect();
    if literals.len() != table.partition_key.len() {
        return None;
    }
    let parts = table.partition_key.iter().zip(literals).map(|(name, literal)| {
        let column = table.columns.iter().find(|column| column.name == *name)?;
        let is_good = match column.cql_type {
            "tinyint" | "smallint" | "int" | "bigint" => literal.parse::<i64>().is_ok(),
            "uuid" => Uuid::try_parse(literal).is_ok(),
            _ => false,
        };
        is_good.then(|| format!("{name} = {literal}"))
    });
    Some(parts.collect::<Option<Vec<String>>>()?.join(" AND "))
}

async fn of_node(
    cluster: &Cluster,
    keyspaces: &[Keyspace],
    node: &Arc<Node>,
) -> Result<Vec<NodeStat>, MeasureError> {
    let only = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node.clone()), None);
    let profile = ExecutionProfile::builder().load_balancing_policy(only).build().into_handle();
    let mut stats = Vec::new();
    for keyspace in keyspaces {
        let name = &keyspace.name;
        let tables: BTreeSet<&str> = keyspace.tables.iter().map(|table| table.name).collect();
        let estimates = estimates(cluster, name, &profile).await?;
        for table in tables {
            let cql = format!(
                "SELECT mebibytes FROM system_views.max_partition_size \
                WHERE keyspace_name = '{name}' AND table_name = '{table}'"
            );
            let mut pages = Pages::of(cluster, cql, Some(&profile));
            let page = pages.next().await?;
            let largest = page
                .as_ref()
                .and_then(|rows| rows.maybe_first_row::<(Option<i64>,)>().ok().flatten())
                .and_then(|(mebibytes,)| mebibytes);
            let (partitions_estimated, bytes) = estimates.get(table).copied().unwrap_or_default();
            stats.push(NodeStat {
                node: node.address.to_string(),
                dc: node.datacenter.clone(),
                entity: keyspace.entity,
                table: table.to_owned(),
                largest_partition_mib: largest,
                partitions_estimated,
                mean_partition_bytes: bytes.checked_div(partitions_estimated).unwrap_or(0),
            });
        }
    }
    Ok(stats)
}

/// Partitions and bytes of each table, as a node estimates them.
async fn estimates(
    cluster: &Cluster,
    keyspace: &str,
    profile: &ExecutionProfileHandle,
) -> Result<BTreeMap<String, (i64, i64)>, MeasureError> {
    let cql = format!(
        "SELECT table_name, mean_partition_size, partitions_count FROM system.size_estimates \
        WHERE keyspace_name = '{keyspace}'"
    );
    let mut estimates = BTreeMap::<String, (i64, i64)>::new();
    let mut pages = Pages::of(cluster, cql, Some(profile));
    while let Some(rows) = pages.next().await? {
        for row in rows.rows::<(String, i64, i64)>().map_err(|error| pages.failed(error))? {
            let (table, mean_bytes, partitions) = row.map_err(|error| pages.failed(error))?;
            let sum = estimates.entry(table).or_default();
            sum.0 += partitions;
            sum.1 = sum.1.saturating_add(mean_bytes.saturating_mul(partitions));
        }
    }
    Ok(estimates)
}

/// An answer, page by page, from whichever replica is near.
struct Pages<'a> {
    cluster: &'a Cluster,
    statement: Statement,
    from: Option<PagingState>,
}

impl<'a> Pages<'a> {
    fn of(cluster: &'a Cluster, cql: String, profile: Option<&ExecutionProfileHandle>) -> Self {
        let mut statement = Statement::new(cql);
        statement.set_page_size(PAGE_ROWS);
        statement.set_consistency(Consistency::LocalOne);
        statement.set_is_idempotent(true);
        statement.set_request_timeout(Some(TIMEOUT));
        statement
            .set_execution_profile_handle(Some(profile.cloned().unwrap_or_else(|| cluster.local_profile())));
        Self { cluster, statement, from: Some(PagingState::start()) }
    }

    async fn next(&mut self) -> Result<Option<QueryRowsResult>, MeasureError> {
        let Some(from) = self.from.take() else { return Ok(None) };
        let sent = self.cluster.session().query_single_page(self.statement.clone(), (), from).await;
        let (result, next) = sent.map_err(|error: ExecutionError| self.failed(error))?;
        if let PagingStateResponse::HasMorePages { state } = next {
            self.from = Some(state);
        }
        result.into_rows_result().map(Some).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: impl std::error::Error + Send + Sync + 'static) -> MeasureError {
        MeasureError::Read { what: self.statement.contents.clone(), source: Box::new(error) }
    }
}

impl Cluster {
    fn keyspaces(&self, policy: &Policy) -> Vec<Keyspace> {
        schema::keyspaces(policy, self.keyspace_prefix())
    }
}

#[cfg(test)]
mod tests {
    use mobimir_core::policy::BUILT_IN;

    use super::*;

    #[test]
    fn a_key_picks_a_partition_out_of_its_own_table_only() {
        let policy =
            Policy::parse(BUILT_IN.iter().find(|p| p.name == "default").unwrap().text, "default").unwrap();
        let keyspaces = schema::keyspaces(&policy, "m");
        let table =
            |name| keyspaces.iter().flat_map(|keyspace| &keyspace.tables).find(|t| t.name == name).unwrap();
        let by_day = table("orders_by_day");
        assert_eq!(condition(by_day, "20407,3").as_deref(), Some("day = 20407 AND bucket = 3"));
        for bad in ["20407", "20407,3,4", "20407,x", "1,1 OR 1=1", ""] {
            assert_eq!(condition(by_day, bad), None, "{bad}");
        }
        let user = Uuid::from_u128(7);
        let expected = format!("user_id = {user} AND month = 24310");
        assert_eq!(condition(table("orders_by_user"), &format!("{user},24310")), Some(expected));
    }
}
