//! The tables of the default policy on the ring.

use std::time::Duration;

use anyhow::{Context, Result};
use mobimir_cassandra::schema;
use mobimir_core::policy::{CassandraSettings, Entity, Policy, Replication};
use mobimir_lab::Ring;
use scylla::{
    client::{execution_profile::ExecutionProfile, session_builder::SessionBuilder},
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
};

use super::NODES;

pub(crate) const DC: &str = "dc1";
pub(crate) const PREFIX: &str = "bench";
const CREATE_TIME_MAX: Duration = Duration::from_secs(60);
/// Until all nodes know of all tables, also where others build and test beside it.
const AGREEMENT_TIME_MAX: Duration = Duration::from_secs(300);

/// The default policy, with a copy on each node of the one data centre.
pub(crate) fn policy() -> Result<Policy> {
    let policy = Policy::built_in("default").context("there is no default policy")??;
    let replication = Replication::from([(DC.to_owned(), u8::try_from(NODES)?)]);
    Ok(policy.in_data_centres(&replication))
}

pub(crate) fn settings(policy: &Policy, entity: Entity) -> Result<CassandraSettings> {
    let placement = policy.placement(entity).with_context(|| format!("{entity} have no home"))?;
    placement.cassandra.clone().with_context(|| format!("{entity} do not live in Cassandra"))
}

/// One node does it all, so that no statement has to wait until the others know of the one before.
pub(crate) async fn create(ring: &Ring, policy: &Policy) -> Result<()> {
    let contact_points = ring.contact_points();
    let address = contact_points.first().context("the ring has no nodes")?.parse()?;
    let one_node = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::NodeAddress(address), None);
    let profile = ExecutionProfile::builder()
        .load_balancing_policy(one_node)
        .request_timeout(Some(CREATE_TIME_MAX))
        .build();
    let session = SessionBuilder::new()
        .known_nodes(contact_points)
        .default_execution_profile_handle(profile.into_handle())
        .auto_await_schema_agreement(false)
        .schema_agreement_timeout(AGREEMENT_TIME_MAX)
        .build()
        .await?;
    for keyspace in schema::keyspaces(policy, PREFIX) {
        session.query_unpaged(keyspace.create_cql(), ()).await?;
        for table in &keyspace.tables {
            session.query_unpaged(table.create_cql(&keyspace.name), ()).await?;
        }
    }
    session.await_schema_agreement().await?;
    Ok(())
}
