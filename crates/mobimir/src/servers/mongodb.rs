//! Every kind of data in MongoDB.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use mobimir_core::{
    id::ProductId,
    invariant::InvariantCounters,
    moving::{CartSide, HistorySide, OrderSide, SessionSide},
    notes::NoteStore,
    policy::{Entity, Policy, WriteConcern},
    ports::{ProductStore, UserStore},
    reading::{Position, Served},
    time::Clock,
};
use mobimir_mongodb::{
    Deployment, MongoCarts, MongoConfig, MongoNotes, MongoOrderHistory, MongoOrders, MongoProducts,
    MongoSessions, MongoUsers, schema,
};

use crate::config::MongodbConfig;

/// How often split stock is looked after.
const TEND_PERIOD: Duration = Duration::from_secs(30);

/// A connection to a deployment.
#[derive(Clone)]
pub(crate) struct Mongodb(Arc<Deployment>);

impl Mongodb {
    /// To serve a shop.
    pub(crate) async fn connect(
        config: &MongodbConfig,
        policy: &Policy,
        invariants: Arc<InvariantCounters>,
    ) -> Result<Self> {
        let by_primary = |entity: &Entity| {
            let settings = policy.placement(*entity).and_then(|placement| placement.mongodb.as_ref());
            settings.is_some_and(|settings| settings.write == WriteConcern::Primary)
        };
        let primary_writes = Entity::ALL.iter().copied().filter(by_primary).collect();
        let config = MongoConfig { reads: policy.reads.clone(), primary_writes, invariants, ..config.into() };
        Deployment::connect(config).await.map(Self).map_err(|error| anyhow!("{error}"))
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    pub(crate) fn metrics(&self) -> String {
        self.0.metrics()
    }

    pub(crate) fn written(&self) -> Position {
        self.0.written()
    }

    pub(crate) fn served(&self) -> Vec<Served> {
        self.0.served()
    }

    /// How far the slowest secondary is behind.
    pub(crate) fn lag(&self) -> Option<Duration> {
        self.0.members().iter().filter_map(|member| member.lag).max()
    }

    /// How many of its indexes are not as the policy says.
    pub(crate) async fn schema_differences(&self, policy: &Policy) -> Result<usize> {
        let plan = schema::plan(&self.0, &schema::wanted(policy)).await?;
        Ok(plan.changes.len() + plan.conflicts.len())
    }

    pub(crate) fn products(&self) -> Arc<dyn ProductStore> {
        Arc::new(MongoProducts::new(self.0.clone()))
    }

    /// Splits the stock of these products into stripes, and finishes what was begun with any, until `stopped`.
    pub(crate) async fn tend_stripes(
        self,
        wanted: Vec<(ProductId, u16)>,
        clock: Arc<dyn Clock>,
        stopped: impl Future<Output = ()>,
    ) {
        let products = MongoProducts::new(self.0);
        tokio::pin!(stopped);
        loop {
            if let Err(error) = products.tend_stripes(&wanted, clock.now()).await {
                tracing::warn!(%error, "split stock could not be looked after");
            }
            tokio::select! {
                () = &mut stopped => return,
                () = tokio::time::sleep(TEND_PERIOD) => {}
            }
        }
    }

    pub(crate) fn users(&self) -> Arc<dyn UserStore> {
        Arc::new(MongoUsers::new(self.0.clone()))
    }

    pub(crate) fn carts(&self) -> CartSide {
        MongoCarts::side(self.0.clone())
    }

    pub(crate) fn orders(&self) -> OrderSide {
        MongoOrders::side(self.0.clone())
    }

    pub(crate) fn sessions(&self) -> SessionSide {
        MongoSessions::side(self.0.clone())
    }

    pub(crate) fn order_history(&self) -> HistorySide {
        MongoOrderHistory::side(self.0.clone())
    }

    pub(crate) fn notes(&self) -> Arc<dyn NoteStore> {
        Arc::new(MongoNotes::new(self.0.clone()))
    }
}

impl From<&MongodbConfig> for MongoConfig {
    fn from(config: &MongodbConfig) -> Self {
        Self {
            uri: config.uri.0.clone(),
            database: config.database.clone(),
            connect_timeout: Duration::from_millis(config.connect_timeout_ms),
            timeout: Duration::from_millis(config.timeout_ms),
            connections_max: config.connections_max,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_the_defaults_of_the_store() {
        let (ours, store) = (MongoConfig::from(&MongodbConfig::default()), MongoConfig::default());
        assert_eq!((ours.uri, ours.database), (store.uri, store.database));
        assert_eq!((ours.connect_timeout, ours.timeout), (store.connect_timeout, store.timeout));
        assert_eq!(ours.connections_max, store.connections_max);
    }
}
