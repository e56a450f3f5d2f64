//! Which store each kind of data lives in, by the policy, and what of it is not in the data directory.

use std::{path::Path, sync::Arc};

use anyhow::{Result, anyhow, bail};
use mobimir_core::{
    invariant::InvariantCounters,
    notes::NoteStore,
    policy::{Entity, Policy, Store},
    ports::{OrderHistoryStore, Stores},
    time::Clock,
};
use mobimir_embedded::EmbeddedStore;
use mobimir_shop::{BucketCount, SeparateHistory, environment::Environment};

use crate::{
    cluster::apply_command,
    config::Config,
    servers::{Cassandra, Mongodb, Servers},
};

/// Where each entity is kept by this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Homes<'a> {
    policy: &'a Policy,
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
            servers.mongodb = Some(Mongodb::connect(&config.mongodb, self.policy, invariants).await?);
        }
        if !self.of(Store::Cassandra).is_empty() {
            servers.cassandra = Some(Cassandra::connect(&config.cassandra, self.policy).await?);
        }
        self.compare(&servers, config).await?;
        Ok(servers)
    }

    /// Refuses servers that have something otherwise than the policy says.
    async fn compare(&self, servers: &Servers, config: &Config) -> Result<()> {
        if let Some(mongodb) = &servers.mongodb {
            self.check("indexes in MongoDB", mongodb.schema_differences(self.policy).await?, config)?;
        }
        if let Some(cassandra) = &servers.cassandra {
            let differences = cassandra.schema_differences(self.policy, &config.cassandra.keyspace_prefix);
            self.check("tables in Cassandra", differences.await?, config)?;
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
        if let Some(mongodb) = &servers.mongodb {
            self.open_mongodb(&mut stores, mongodb);
        }
        let mut buckets = BucketCount::fixed(self.policy.order_buckets());
        if let Some(cassandra) = &servers.cassandra {
            self.open_cassandra(&mut stores, &mut buckets, cassandra).await?;
        }
        Ok((stores, buckets))
    }

    fn open_mongodb(&self, stores: &mut Stores, mongodb: &Mongodb) {
        for entity in self.of(Store::Mongodb) {
            match entity {
                Entity::Products => stores.products = mongodb.products(),
                Entity::Users => stores.users = mongodb.users(),
                Entity::Carts => stores.carts = mongodb.carts().port,
                Entity::Orders => stores.orders = mongodb.orders().port,
                Entity::Sessions => stores.sessions = mongodb.sessions().port,
                // See `open_history`.
                Entity::OrderHistory => {}
            }
        }
    }

    /// Where stock can be split into stripes, if products live there.
    pub(crate) fn split_products(&self, servers: &Servers) -> Option<Mongodb> {
        servers.mongodb.clone().filter(|_| self.home(Entity::Products) == Some(Store::Mongodb))
    }

    async fn open_cassandra(
        &self,
        stores: &mut Stores,
        buckets: &mut BucketCount,
        cassandra: &Cassandra,
    ) -> Result<()> {
        for entity in self.of(Store::Cassandra) {
            match entity {
                Entity::Carts => stores.carts = cassandra.carts(self.policy).await?.port,
                Entity::Orders => {
                    let (orders, spread) = cassandra.orders(self.policy).await?;
                    (stores.orders, *buckets) = (orders.port, spread);
                }
                Entity::Sessions => stores.sessions = cassandra.sessions(self.policy).await?.port,
                // The policy does not place the first two here; for the third see `open_history`.
                Entity::Products | Entity::Users | Entity::OrderHistory => {}
            }
        }
        Ok(())
    }

    /// A history with a home of its own stands beside the orders, wherever those are and wherever they move.
    /// `moving` is that history where it can move itself.
    pub(crate) async fn open_history(
        &self,
        stores: &mut Stores,
        moving: Option<Arc<dyn OrderHistoryStore>>,
        embedded: &EmbeddedStore,
        servers: &Servers,
        outbox: Arc<dyn NoteStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<()> {
        let home = self.home(Entity::OrderHistory);
        let history = match (moving, home, &servers.mongodb, &servers.cassandra) {
            (Some(moving), ..) => moving,
            (None, Some(Store::Mongodb), Some(mongodb), _) => mongodb.order_history().port,
            (None, Some(Store::Cassandra), _, Some(cassandra)) => {
                cassandra.order_history(self.policy).await?.port
            }
            _ => return Ok(SeparateHistory::forget_backfill(outbox.as_ref()).await?),
        };
        let existing = match (self.home(Entity::Orders), &servers.mongodb, &servers.cassandra) {
            (Some(Store::Mongodb), Some(mongodb), _) => mongodb.orders().moving,
            (Some(Store::Cassandra), _, Some(cassandra)) => cassandra.orders(self.policy).await?.0.moving,
            _ => embedded.movables().orders.moving,
        };
        let orders = SeparateHistory::new(
            stores.orders.clone(),
            history,
            outbox,
            existing,
            Environment::system(clock),
        );
        stores.orders = Arc::new(orders);
        Ok(())
    }
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
