//! Carts, orders and sessions in Cassandra.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, anyhow, bail};
use mobimir_cassandra::{
    CartOptions, CassandraCarts, CassandraOrderHistory, CassandraOrders, CassandraSessions, Cluster,
    ClusterConfig, ConnectError, OrderCovers, OrderOptions, schema,
};
use mobimir_core::{
    moving::{CartSide, HistorySide, OrderSide, SessionSide},
    policy::{CassandraSettings, Entity, Placement, Policy},
};
use mobimir_shop::BucketCount;

use crate::config::CassandraConfig;

/// A connection to a cluster.
#[derive(Clone)]
pub(crate) struct Cassandra(Arc<Cluster>);

impl Cassandra {
    pub(crate) async fn connect(config: &CassandraConfig, policy: &Policy) -> Result<Self> {
        match Cluster::connect(config.into(), policy).await {
            Ok(cluster) => Ok(Self(cluster)),
            Err(error @ ConnectError::NoSuchDc { .. }) => {
                bail!("{error}; --data-centres dc1=3 places the policy in other data centres")
            }
            Err(error) => bail!("{error}"),
        }
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.0
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    pub(crate) fn metrics(&self) -> String {
        self.0.metrics()
    }

    /// How many requests it could not keep up with so far.
    pub(crate) fn overloads(&self) -> u64 {
        self.0.overloads()
    }

    /// How many of its tables are not as the policy says.
    pub(crate) async fn schema_differences(&self, policy: &Policy, prefix: &str) -> Result<usize> {
        let plan = schema::plan(&self.0, &schema::keyspaces(policy, prefix)).await?;
        Ok(plan.changes.len() + plan.conflicts.len())
    }

    pub(crate) async fn carts(&self, policy: &Policy) -> Result<CartSide> {
        let settings = settings(policy, Entity::Carts)?;
        let orders = policy.placement(Entity::Orders).and_then(|placement| placement.cassandra.as_ref());
        let options = CartOptions { order_covers: orders.map(OrderCovers::like), ..CartOptions::default() };
        let carts = CassandraCarts::open(self.0.clone(), settings, options).await;
        Ok(carts.map_err(one_line)?.side())
    }

    /// Orders, and over how many buckets all instances have agreed to spread them.
    pub(crate) async fn orders(&self, policy: &Policy) -> Result<(OrderSide, BucketCount)> {
        let (settings, spread) = (settings(policy, Entity::Orders)?, policy.orders.buckets);
        let orders = CassandraOrders::open(self.0.clone(), settings, spread, OrderOptions::default()).await;
        let orders = orders.map_err(one_line)?;
        let plan = orders.buckets();
        Ok((orders.side(), BucketCount::asked(move |now| plan.count_at(now))))
    }

    pub(crate) async fn sessions(&self, policy: &Policy) -> Result<SessionSide> {
        let settings = settings(policy, Entity::Sessions)?;
        let sessions = CassandraSessions::open(self.0.clone(), settings).await;
        Ok(sessions.map_err(one_line)?.side())
    }

    pub(crate) async fn order_history(&self, policy: &Policy) -> Result<HistorySide> {
        let settings = settings(policy, Entity::OrderHistory)?;
        let history = CassandraOrderHistory::open(self.0.clone(), settings).await;
        Ok(history.map_err(one_line)?.side())
    }
}

fn settings(policy: &Policy, entity: Entity) -> Result<CassandraSettings> {
    let of = |placement: &Placement| placement.cassandra.clone();
    let settings = policy.placement(entity).and_then(of);
    settings.ok_or_else(|| anyhow!("the policy says nothing about {entity} in Cassandra"))
}

/// Its message names the cause already.
fn one_line(error: ConnectError) -> anyhow::Error {
    anyhow!("{error}")
}

impl From<&CassandraConfig> for ClusterConfig {
    fn from(config: &CassandraConfig) -> Self {
        Self {
            contact_points: config.contact_points.clone(),
            local_dc: config.local_dc.clone(),
            user: config.user.clone(),
            password: config.password.as_ref().map(|password| password.0.clone()),
            keyspace_prefix: config.keyspace_prefix.clone(),
            connect_timeout: Duration::from_millis(config.connect_timeout_ms),
            log: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_the_defaults_of_the_store() {
        let (ours, store) = (ClusterConfig::from(&CassandraConfig::default()), ClusterConfig::default());
        assert_eq!(ours.contact_points, store.contact_points);
        assert_eq!((ours.local_dc, ours.user), (store.local_dc, store.user));
        assert_eq!(ours.password, store.password);
        assert_eq!(ours.keyspace_prefix, store.keyspace_prefix);
        assert_eq!(ours.connect_timeout, store.connect_timeout);
    }
}
