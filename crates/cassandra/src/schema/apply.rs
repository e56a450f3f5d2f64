//! Carrying out a plan.

use std::time::Duration;

use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session},
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
};

use super::plan::{Change, Plan, SchemaError};
use crate::Cluster;

/// A change of tables waits for all nodes, and one of them may be busy.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes all changes, or none if there is a conflict. `progress` is told of each before it is made.
///
/// One node is given all of them: it knows what it has done itself, so nothing has to be waited for between two.
pub async fn apply(
    cluster: &Cluster,
    plan: &Plan,
    mut progress: impl FnMut(usize, &Change),
) -> Result<(), SchemaError> {
    if !plan.conflicts.is_empty() {
        return Err(SchemaError::Conflicts(
            plan.conflicts.iter().map(|conflict| conflict.table.clone()).collect(),
        ));
    }
    if plan.changes.is_empty() {
        return Ok(());
    }
    let session = to_one_node(cluster).await?;
    for (done, change) in plan.changes.iter().enumerate() {
        progress(done, change);
        let cql = change.cql();
        session.query_unpaged(cql.as_str(), ()).await.map_err(|error| SchemaError::Refused {
            done,
            of: plan.changes.len(),
            cql,
            source: Box::new(error),
        })?;
    }
    session.await_schema_agreement().await.map_err(|error| SchemaError::Disagreement(Box::new(error)))?;
    // So that this program, too, knows at once where rows of new tables are.
    cluster.session().refresh_metadata().await.map_err(SchemaError::unreadable)
}

async fn to_one_node(cluster: &Cluster) -> Result<Session, SchemaError> {
    let state = cluster.session().get_cluster_state();
    let node = state.get_nodes_info().iter().find(|node| node.is_connected());
    let mut builder = crate::cluster::builder(cluster.config()).auto_await_schema_agreement(false);
    if let Some(node) = node {
        let target =
            NodeIdentifier::NodeAddress(std::net::SocketAddr::new(node.address.ip(), node.address.port()));
        let profile = ExecutionProfile::builder()
            .load_balancing_policy(SingleTargetLoadBalancingPolicy::new(target, None))
            .request_timeout(Some(STATEMENT_TIMEOUT))
            .build();
        builder = builder.default_execution_profile_handle(profile.into_handle());
    }
    builder.build().await.map_err(SchemaError::unreadable)
}
