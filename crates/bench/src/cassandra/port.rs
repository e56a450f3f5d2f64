//! Through the ports of the shop.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use mobimir_cassandra::{
    CartOptions, CassandraCarts, CassandraOrders, CassandraSessions, Cluster, ClusterConfig, OrderOptions,
    RequestLog,
};
use mobimir_core::{
    cart::{CartChange, Owner},
    id::{OrderId, SessionId},
    order::Order,
    policy::{Entity, OrderBuckets, Period, Policy},
    ports::{CartStore, OrderStore, SessionStore},
    session::{RefreshToken, Session},
    time::Timestamp,
};
use mobimir_lab::Ring;

use super::ring;
use crate::sides::{CART_TTL_MS, Side};

pub(crate) struct Port {
    pub(crate) carts: CassandraCarts,
    pub(crate) orders: CassandraOrders,
    pub(crate) sessions: CassandraSessions,
}

/// What instances look after every now and then would be counted with what is measured.
const DAY_MS: i64 = 86_400_000;

impl Port {
    pub(crate) async fn connect(ring: &Ring, policy: &Policy, log: Option<Arc<RequestLog>>) -> Result<Self> {
        let config = ClusterConfig {
            contact_points: ring.contact_points(),
            keyspace_prefix: ring::PREFIX.to_owned(),
            log,
            ..ClusterConfig::default()
        };
        let cluster = Cluster::connect(config, policy).await?;
        let of = |entity| ring::settings(policy, entity);
        let buckets = OrderBuckets { refresh: Period::millis(DAY_MS), ..policy.orders.buckets };
        let options = OrderOptions {
            heal_every: Duration::from_millis(DAY_MS.unsigned_abs()),
            ..OrderOptions::default()
        };
        Ok(Self {
            carts: CassandraCarts::open(cluster.clone(), of(Entity::Carts)?, CartOptions::default()).await?,
            orders: CassandraOrders::open(cluster.clone(), of(Entity::Orders)?, buckets, options).await?,
            sessions: CassandraSessions::open(cluster, of(Entity::Sessions)?).await?,
        })
    }
}

impl Side for Port {
    async fn add_to_cart(&self, change: CartChange, now: Timestamp) -> Result<()> {
        let expires_at = now.plus_ms(CART_TTL_MS);
        Ok(self.carts.append(change.origin, vec![change], expires_at, now).await?)
    }

    async fn read_cart(&self, owner: Owner, now: Timestamp) -> Result<usize> {
        Ok(self.carts.read(owner, now).await?.map_or(0, |cart| cart.changes.len()))
    }

    async fn insert_order(&self, order: Order) -> Result<()> {
        ensure!(self.orders.insert(vec![order]).await? == 1, "an order was there before");
        Ok(())
    }

    async fn get_order(&self, id: OrderId) -> Result<bool> {
        Ok(self.orders.get(id).await?.is_some())
    }

    async fn get_session(&self, id: SessionId, now: Timestamp) -> Result<bool> {
        Ok(self.sessions.get(id, now).await?.is_some())
    }

    async fn insert_session(&self, session: Session, refresh: RefreshToken) -> Result<()> {
        Ok(self.sessions.insert(session, Some(refresh)).await?)
    }
}
