//! Which store each kind of data lives in, by the policy, and what of it is not in the data directory.

use std::{path::Path, sync::Arc};

use anyhow::{Result, anyhow, bail};
use mobimir_cassandra::{
    CartOptions, CassandraCarts, CassandraOrderHistory, CassandraOrders, CassandraSessions, Cluster,
    ConnectError, OrderOptions, schema,
};
use mobimir_core::{
    policy::{CassandraSettings, Entity, Policy, Store},
    ports::Stores,
    time::{Clock, SystemClock},
};
use mobimir_embedded::EmbeddedStore;
use mobimir_shop::{BucketCount, SeparateHistory};

use crate::{
    cluster::{self, apply_command},
    config::Config,
};

/// Where each entity is kept by this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Homes<'a> {
    policy: &'a Policy,
    embedded_for_mongodb: bool,
}

/// Says in a data directory what of the shop's data is not there.
const ELSEWHERE_FILE: &str = "ELSEWHERE";

impl<'a> Homes<'a> {
    /// Refuses a policy that needs a store which cannot be reached.
    pub(crate) fn new(policy: &'a Policy, embedded_for_mongodb: bool) -> Result<Self> {
        let homes = Self { policy, embedded_for_mongodb };
        let unreachable = homes.of(Store::Mongodb);
        if !unreachable.is_empty() {
            bail!(
                "the policy {} places {} in MongoDB, which this version cannot reach yet; use --policy embedded, or \
                 --embedded-for-mongodb to keep them in the embedded store instead",
                policy.name,
                named(&unreachable)
            );
        }
        if embedded_for_mongodb {
            let in_mongodb = Self { policy, embedded_for_mongodb: false }.of(Store::Mongodb);
            if !in_mongodb.is_empty() {
                let entities = named(&in_mongodb);
                tracing::warn!(%entities, "kept in the embedded store instead of MongoDB: for a laboratory");
            }
        }
        Ok(homes)
    }

    pub(crate) fn policy(&self) -> &'a Policy {
        self.policy
    }

    fn home(&self, entity: Entity) -> Option<Store> {
        match self.policy.placement(entity)?.home {
            Store::Mongodb if self.embedded_for_mongodb => Some(Store::Embedded),
            home => Some(home),
        }
    }

    /// The entities that live in a store.
    pub(crate) fn of(&self, store: Store) -> Vec<Entity> {
        Entity::ALL.iter().copied().filter(|entity| self.home(*entity) == Some(store)).collect()
    }

    /// What is not in the data directory, as a person reads it; `None` when all is there.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        let elsewhere = self.of(Store::Cassandra);
        (!elsewhere.is_empty()).then(|| format!("{} (in Cassandra)", named(&elsewhere)))
    }

    /// A connection to Cassandra, if something lives there and its tables are as the policy says.
    pub(crate) async fn connect(&self, config: &Config) -> Result<Option<Arc<Cluster>>> {
        if self.of(Store::Cassandra).is_empty() {
            return Ok(None);
        }
        let cluster = cluster::connect(&config.cassandra, self.policy).await?;
        let keyspaces = schema::keyspaces(self.policy, &config.cassandra.keyspace_prefix);
        let plan = schema::plan(&cluster, &keyspaces).await?;
        if !plan.is_empty() {
            let differences = plan.changes.len() + plan.conflicts.len();
            bail!(
                "the tables in Cassandra are not as the policy {} says ({differences} differences): {}",
                self.policy.name,
                apply_command(config)
            );
        }
        Ok(Some(cluster))
    }

    /// Each entity from its home, and over how many buckets its orders are spread.
    pub(crate) async fn open(
        &self,
        embedded: &EmbeddedStore,
        cluster: Option<&Arc<Cluster>>,
    ) -> Result<(Stores, BucketCount)> {
        let mut stores = embedded.stores();
        let mut buckets = BucketCount::fixed(self.policy.order_buckets());
        let Some(cluster) = cluster else { return Ok((stores, buckets)) };
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
                    buckets = BucketCount::asked(move |now| plan.count_at(now));
                    stores.orders = Arc::new(orders);
                }
                Entity::Sessions => {
                    let sessions = CassandraSessions::open(cluster, settings).await;
                    stores.sessions = Arc::new(sessions.map_err(one_line)?);
                }
                Entity::OrderHistory => {
                    let history = CassandraOrderHistory::open(cluster, settings).await.map_err(one_line)?;
                    // Orders live elsewhere, and come before it in the list of entities.
                    let orders = SeparateHistory::new(stores.orders, Arc::new(history));
                    orders.catch_up(SystemClock.now()).await?;
                    stores.orders = Arc::new(orders);
                }
                // The policy does not place them here.
                Entity::Products | Entity::Users => {}
            }
        }
        Ok((stores, buckets))
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
    fn mongodb_is_refused_by_name_or_stood_in_for() {
        let policy = policy("history-only");
        let refused = Homes::new(&policy, false).unwrap_err().to_string();
        assert!(refused.contains("places products, users and orders in MongoDB"), "{refused}");
        assert!(refused.contains("--embedded-for-mongodb"), "{refused}");
        let homes = Homes::new(&policy, true).unwrap();
        assert_eq!(homes.of(Store::Embedded), [Entity::Products, Entity::Users, Entity::Orders]);
        assert_eq!(homes.elsewhere().unwrap(), "carts, order history and sessions (in Cassandra)");
    }

    #[test]
    fn what_is_all_in_one_place_is_nowhere_else() {
        let policy = Policy::embedded();
        assert_eq!(Homes::new(&policy, false).unwrap().elsewhere(), None);
        let dir = tempfile::tempdir().unwrap();
        note_elsewhere(dir.path(), Some("carts (in Cassandra)")).unwrap();
        assert_eq!(noted_elsewhere(dir.path()).as_deref(), Some("carts (in Cassandra)"));
        note_elsewhere(dir.path(), None).unwrap();
        assert_eq!(noted_elsewhere(dir.path()), None);
    }
}
