//! Which store each kind of data lives in, by the policy, and what of it is not in the data directory.

use std::{path::Path, sync::Arc};

use anyhow::{Result, anyhow, bail};
use mobimir_cassandra::{
    CartOptions, CassandraCarts, CassandraOrderHistory, CassandraOrders, CassandraSessions, Cluster,
    ConnectError, OrderOptions, schema,
};
use mobimir_core::{
    invariant::InvariantCounters,
    policy::{CassandraSettings, Entity, Policy, Store},
    ports::{OrderHistoryStore, Stores},
    time::{Clock, SystemClock},
};
use mobimir_embedded::EmbeddedStore;
use mobimir_mongodb::{
    Deployment, MongoCarts, MongoOrderHistory, MongoOrders, MongoProducts, MongoSessions, MongoUsers,
};
use mobimir_shop::{BucketCount, SeparateHistory};

use crate::{
    cluster::{self, apply_command},
    config::Config,
};

/// Where each entity is kept by this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Homes<'a> {
    policy: &'a Policy,
}

/// The servers that something lives on.
#[derive(Clone, Default)]
pub(crate) struct Servers {
    pub(crate) cassandra: Option<Arc<Cluster>>,
    pub(crate) mongodb: Option<Arc<Deployment>>,
}

/// Says in a data directory what of the shop's data is not there.
const ELSEWHERE_FILE: &str = "ELSEWHERE";

impl<'a> Homes<'a> {
    pub(crate) fn new(policy: &'a Policy) -> Self {
        Self { policy }
    }

    pub(crate) fn policy(&self) -> &'a Policy {
        self.policy
    }

    fn home(&self, entity: Entity) -> Option<Store> {
        self.policy.placement(entity).map(|placement| placement.home)
    }

    /// The entities that live in a store.
    pub(crate) fn of(&self, store: Store) -> Vec<Entity> {
        Entity::ALL.iter().copied().filter(|entity| self.home(*entity) == Some(store)).collect()
    }

    /// What is in the data directory, and so belongs to one process; `None` when nothing is.
    pub(crate) fn embedded(&self) -> Option<String> {
        let entities = self.of(Store::Embedded);
        (!entities.is_empty()).then(|| named(&entities))
    }

    /// What is not in the data directory, as a person reads it; `None` when all is there.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        let in_store = |(store, name): (Store, &str)| {
            let entities = self.of(store);
            (!entities.is_empty()).then(|| format!("{} (in {name})", named(&entities)))
        };
        let parts: Vec<String> = [(Store::Mongodb, "MongoDB"), (Store::Cassandra, "Cassandra")]
            .into_iter()
            .filter_map(in_store)
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Connections to where something lives, if everything there is as the policy says.
    pub(crate) async fn connect(
        &self,
        config: &Config,
        invariants: Arc<InvariantCounters>,
    ) -> Result<Servers> {
        let mut servers = Servers::default();
        if !self.of(Store::Mongodb).is_empty() {
            servers.mongodb = Some(cluster::connect_mongodb(&config.mongodb, self.policy, invariants).await?);
        }
        if !self.of(Store::Cassandra).is_empty() {
            servers.cassandra = Some(cluster::connect(&config.cassandra, self.policy).await?);
        }
        self.compare(&servers, config).await?;
        Ok(servers)
    }

    /// Refuses servers that have something otherwise than the policy says.
    async fn compare(&self, servers: &Servers, config: &Config) -> Result<()> {
        if let Some(deployment) = &servers.mongodb {
            let wanted = mobimir_mongodb::schema::wanted(self.policy);
            let plan = mobimir_mongodb::schema::plan(deployment, &wanted).await?;
            self.check("indexes in MongoDB", plan.changes.len() + plan.conflicts.len(), config)?;
        }
        if let Some(cluster) = &servers.cassandra {
            let keyspaces = schema::keyspaces(self.policy, &config.cassandra.keyspace_prefix);
            let plan = schema::plan(cluster, &keyspaces).await?;
            self.check("tables in Cassandra", plan.changes.len() + plan.conflicts.len(), config)?;
        }
        Ok(())
    }

    fn check(&self, what: &str, differences: usize, config: &Config) -> Result<()> {
        if differences > 0 {
            bail!(
                "the {what} are not as the policy {} says ({differences} differences): {}",
                self.policy.name,
                apply_command(config)
            );
        }
        Ok(())
    }

    /// Each entity from its home but for a separate history ([`Homes::open_history`]), and over how many buckets its orders are spread.
    pub(crate) async fn open(
        &self,
        embedded: &EmbeddedStore,
        servers: &Servers,
    ) -> Result<(Stores, BucketCount)> {
        let mut stores = embedded.stores();
        if let Some(deployment) = &servers.mongodb {
            self.open_mongodb(&mut stores, deployment);
        }
        let mut buckets = BucketCount::fixed(self.policy.order_buckets());
        if let Some(cluster) = &servers.cassandra {
            self.open_cassandra(&mut stores, &mut buckets, cluster).await?;
        }
        Ok((stores, buckets))
    }

    fn open_mongodb(&self, stores: &mut Stores, deployment: &Arc<Deployment>) {
        for entity in self.of(Store::Mongodb) {
            let deployment = deployment.clone();
            match entity {
                Entity::Products => stores.products = Arc::new(MongoProducts::new(deployment)),
                Entity::Users => stores.users = Arc::new(MongoUsers::new(deployment)),
                Entity::Carts => stores.carts = Arc::new(MongoCarts::new(deployment)),
                Entity::Orders => stores.orders = Arc::new(MongoOrders::new(deployment)),
                Entity::Sessions => stores.sessions = Arc::new(MongoSessions::new(deployment)),
                // See `open_history`.
                Entity::OrderHistory => {}
            }
        }
    }

    /// Products whose stock can be split, if they live where that is needed.
    pub(crate) fn split_products(&self, servers: &Servers) -> Option<MongoProducts> {
        let deployment =
            servers.mongodb.as_ref().filter(|_| self.home(Entity::Products) == Some(Store::Mongodb));
        deployment.map(|deployment| MongoProducts::new(deployment.clone()))
    }

    async fn open_cassandra(
        &self,
        stores: &mut Stores,
        buckets: &mut BucketCount,
        cluster: &Arc<Cluster>,
    ) -> Result<()> {
        for entity in self.of(Store::Cassandra) {
            let settings = self.settings(entity)?;
            let cluster = cluster.clone();
            match entity {
                Entity::Carts => {
                    let carts = CassandraCarts::open(cluster, settings, CartOptions::default()).await;
                    stores.carts = Arc::new(carts.map_err(one_line)?);
                }
                Entity::Orders => {
                    let spread = self.policy.orders.buckets;
                    let orders =
                        CassandraOrders::open(cluster, settings, spread, OrderOptions::default()).await;
                    let orders = orders.map_err(one_line)?;
                    // What all instances have agreed on.
                    let plan = orders.buckets();
                    *buckets = BucketCount::asked(move |now| plan.count_at(now));
                    stores.orders = Arc::new(orders);
                }
                Entity::Sessions => {
                    let sessions = CassandraSessions::open(cluster, settings).await;
                    stores.sessions = Arc::new(sessions.map_err(one_line)?);
                }
                // The policy does not place the first two here; for the third see `open_history`.
                Entity::Products | Entity::Users | Entity::OrderHistory => {}
            }
        }
        Ok(())
    }

    /// A history with a home of its own stands beside the orders, wherever those are and wherever they move.
    pub(crate) async fn open_history(&self, stores: &mut Stores, servers: &Servers) -> Result<()> {
        let history: Arc<dyn OrderHistoryStore> =
            match (self.home(Entity::OrderHistory), &servers.mongodb, &servers.cassandra) {
                (Some(Store::Mongodb), Some(deployment), _) => {
                    Arc::new(MongoOrderHistory::new(deployment.clone()))
                }
                (Some(Store::Cassandra), _, Some(cluster)) => {
                    let settings = self.settings(Entity::OrderHistory)?;
                    let history = CassandraOrderHistory::open(cluster.clone(), settings).await;
                    Arc::new(history.map_err(one_line)?)
                }
                _ => return Ok(()),
            };
        let orders = SeparateHistory::new(stores.orders.clone(), history);
        orders.catch_up(SystemClock.now()).await?;
        stores.orders = Arc::new(orders);
        Ok(())
    }

    fn settings(&self, entity: Entity) -> Result<CassandraSettings> {
        let settings = self.policy.placement(entity).and_then(|placement| placement.cassandra.clone());
        settings.ok_or_else(|| anyhow!("the policy says nothing about {entity} in Cassandra"))
    }
}

/// Its message names the cause already.
fn one_line(error: ConnectError) -> anyhow::Error {
    anyhow!("{error}")
}

fn named(entities: &[Entity]) -> String {
    let names: Vec<String> = entities.iter().map(|entity| entity.to_string().replace('_', " ")).collect();
    match &names[..] {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        names => names.concat(),
    }
}

/// Leaves a note in the data directory, for whoever copies it or writes to it while no shop runs.
pub(crate) fn note_elsewhere(data: &Path, elsewhere: Option<&str>) -> Result<()> {
    let path = data.join(ELSEWHERE_FILE);
    match elsewhere {
        Some(what) => std::fs::write(&path, format!("{what}\n"))
            .map_err(|error| anyhow!("cannot write {}: {error}", path.display())),
        None => {
            let _ = std::fs::remove_file(path);
            Ok(())
        }
    }
}

/// What of a shop's data is not in its data directory.
pub(crate) fn noted_elsewhere(data: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data.join(ELSEWHERE_FILE)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use mobimir_core::policy::BUILT_IN;

    use super::*;

    fn policy(name: &str) -> Policy {
        let built_in = BUILT_IN.iter().find(|built_in| built_in.name == name).unwrap();
        Policy::parse(built_in.text, name).unwrap()
    }

    #[test]
    fn what_is_elsewhere_is_named_with_its_place() {
        assert_eq!(
            Homes::new(&policy("history-only")).elsewhere().unwrap(),
            "products, users and orders (in MongoDB), carts, order history and sessions (in Cassandra)"
        );
    }

    #[test]
    fn what_is_all_in_one_place_is_nowhere_else() {
        let policy = Policy::embedded();
        assert_eq!(Homes::new(&policy).elsewhere(), None);
        let dir = tempfile::tempdir().unwrap();
        note_elsewhere(dir.path(), Some("carts (in Cassandra)")).unwrap();
        assert_eq!(noted_elsewhere(dir.path()).as_deref(), Some("carts (in Cassandra)"));
        note_elsewhere(dir.path(), None).unwrap();
        assert_eq!(noted_elsewhere(dir.path()), None);
    }
}
