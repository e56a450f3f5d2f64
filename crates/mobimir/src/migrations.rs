//! Which entities can move to another store while the shop sells, and how the stores they move between are opened.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Result, anyhow, bail};
use futures_util::future::BoxFuture;
use mobimir_cassandra::{
    CartOptions, CassandraCarts, CassandraOrders, CassandraSessions, Cluster, OrderOptions,
};
use mobimir_core::{
    id,
    invariant::InvariantCounters,
    moving::{CartSide, OrderSide, SessionSide, Side, Whole},
    notes::NoteStore,
    policy::{CassandraSettings, Entity, Placement, Policy, Store},
    ports::{StoreError, StoreResult, Stores},
    time::Clock,
};
use mobimir_embedded::EmbeddedStore;
use mobimir_http::Latency;
use mobimir_migrate::{
    migrating::Migrating,
    phase::Phase,
    record::{Notes, Record},
    service::{Entity as MovingEntity, Migration, Opener},
    shadow::Shadow,
    standing::Standing,
    throttle::{Felt, Pressure},
    timing::Timing,
};
use mobimir_mongodb::{Deployment, MongoCarts, MongoNotes, MongoOrders, MongoSessions};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{cluster, config::Config, homes::Servers, strain::Strain};

/// What can move.
const MOVABLE: [Entity; 3] = [Entity::Orders, Entity::Carts, Entity::Sessions];
/// Of a percentage.
const PERMILLE_PER_PERCENT: u32 = 10;

/// Everything that a store of this shop can be opened with.
pub(crate) struct Places {
    policy: Policy,
    config: Config,
    embedded: EmbeddedStore,
    cassandra: OnceCell<Arc<Cluster>>,
    mongodb: OnceCell<Arc<Deployment>>,
    invariants: Arc<InvariantCounters>,
    clock: Arc<dyn Clock>,
    strain: Strain,
}

impl Places {
    pub(crate) fn new(
        policy: Policy,
        config: Config,
        embedded: EmbeddedStore,
        servers: &Servers,
        invariants: Arc<InvariantCounters>,
        clock: Arc<dyn Clock>,
        latency: Arc<Latency>,
    ) -> Arc<Self> {
        let Servers { cassandra, mongodb } = servers.clone();
        let (cassandra, mongodb) = (OnceCell::new_with(cassandra), OnceCell::new_with(mongodb));
        let strain = Strain::new(latency, &policy.alerts);
        Arc::new(Self { policy, config, embedded, cassandra, mongodb, invariants, clock, strain })
    }

    /// Puts what can move behind a port that knows when it does.
    pub(crate) async fn let_move(self: &Arc<Self>, stores: &mut Stores) -> Result<Vec<Arc<dyn Migration>>> {
        let (mut all, notes, instance) = (Vec::new(), self.notes().await?, id::fresh(self.clock.now()));
        for entity in MOVABLE {
            let Some(placement) = self.policy.placement(entity) else { continue };
            let (home, notes) = (placement.home, Notes::new(notes.clone(), name(entity)));
            let Some(other) = placement.migration_store else {
                check_at_rest(&notes, home, "name a migration_store for them in the policy").await?;
                continue;
            };
            check(&notes, home, other).await?;
            all.push(match entity {
                Entity::Orders => {
                    let (source, places) = (self.orders_in(home).await?, self.clone());
                    let open = move |_| {
                        in_store(places.clone(), move |places| async move { places.orders_in(other).await })
                    };
                    let moving = self.moving(source, notes, Box::new(open), [home, other], instance);
                    stores.orders = moving.migrating.clone();
                    moving as Arc<dyn Migration>
                }
                Entity::Carts => {
                    let (source, places) = (self.carts_in(home).await?, self.clone());
                    let open = move |_| {
                        in_store(places.clone(), move |places| async move { places.carts_in(other).await })
                    };
                    let moving = self.moving(source, notes, Box::new(open), [home, other], instance);
                    stores.carts = moving.migrating.clone();
                    moving
                }
                _ => {
                    let (source, places) = (self.sessions_in(home).await?, self.clone());
                    let open = move |_| {
                        in_store(places.clone(), move |places| async move { places.sessions_in(other).await })
                    };
                    let moving = self.moving(source, notes, Box::new(open), [home, other], instance);
                    stores.sessions = moving.migrating.clone();
                    moving
                }
            });
        }
        Ok(all)
    }

    /// Refuses to serve what is on its way elsewhere, when this process would not know of it.
    pub(crate) async fn check_at_rest(self: &Arc<Self>) -> Result<()> {
        for entity in MOVABLE {
            let Some(placement) = self.policy.placement(entity) else { continue };
            let notes = Notes::new(self.notes().await?, name(entity));
            check_at_rest(&notes, placement.home, "run this instance with migrations = true").await?;
        }
        Ok(())
    }

    fn moving<W: Whole, P: ?Sized>(
        self: &Arc<Self>,
        source: Side<W, P>,
        notes: Notes,
        open: Opener<W, P>,
        [home, other]: [Store; 2],
        instance: Uuid,
    ) -> Arc<MovingEntity<W, P>> {
        let mirror_age_ms = self.policy.alerts.migration.mirror_age.as_ms();
        let mirror_age_max = Duration::from_millis(u64::try_from(mirror_age_ms).unwrap_or(u64::MAX));
        let timing = Timing { mirror_age_max, ..Timing::default() };
        let standing = Standing::new(&timing);
        let shadow = Shadow::new(self.config.migration.shadow_percent * PERMILLE_PER_PERCENT);
        let migrating = Migrating::new(source, standing, self.clock.clone()).with_shadow(shadow);
        Arc::new(MovingEntity {
            migrating: Arc::new(migrating),
            notes,
            open,
            clock: self.clock.clone(),
            pressure: self.clone(),
            invariants: self.invariants.clone(),
            timing,
            recheck_period: Duration::from_secs(self.config.migration.recheck_minutes * 60),
            instance,
            home: home.to_string(),
            other: other.to_string(),
            controller: tokio::sync::Mutex::default(),
            observed: Mutex::default(),
        })
    }

    /// Beside the products: whoever serves the shop reaches them.
    async fn notes(&self) -> Result<Arc<dyn NoteStore>> {
        match self.policy.products.home {
            Store::Mongodb => Ok(Arc::new(MongoNotes::new(self.mongodb().await?))),
            _ => Ok(Arc::new(self.embedded.clone())),
        }
    }

    async fn orders_in(&self, store: Store) -> Result<OrderSide> {
        Ok(match store {
            Store::Embedded => self.embedded.movables().orders,
            Store::Mongodb => MongoOrders::side(self.mongodb().await?),
            Store::Cassandra => {
                let (cluster, settings) = (self.cassandra().await?, self.settings(Entity::Orders)?);
                let buckets = self.policy.orders.buckets;
                CassandraOrders::open(cluster, settings, buckets, OrderOptions::default()).await?.side()
            }
        })
    }

    async fn carts_in(&self, store: Store) -> Result<CartSide> {
        Ok(match store {
            Store::Embedded => self.embedded.movables().carts,
            Store::Mongodb => MongoCarts::side(self.mongodb().await?),
            Store::Cassandra => {
                let (cluster, settings) = (self.cassandra().await?, self.settings(Entity::Carts)?);
                CassandraCarts::open(cluster, settings, CartOptions::default()).await?.side()
            }
        })
    }

    async fn sessions_in(&self, store: Store) -> Result<SessionSide> {
        Ok(match store {
            Store::Embedded => self.embedded.movables().sessions,
            Store::Mongodb => MongoSessions::side(self.mongodb().await?),
            Store::Cassandra => {
                let (cluster, settings) = (self.cassandra().await?, self.settings(Entity::Sessions)?);
                CassandraSessions::open(cluster, settings).await?.side()
            }
        })
    }

    async fn cassandra(&self) -> Result<Arc<Cluster>> {
        let connect = || cluster::connect(&self.config.cassandra, &self.policy);
        self.cassandra.get_or_try_init(connect).await.cloned()
    }

    async fn mongodb(&self) -> Result<Arc<Deployment>> {
        let connect =
            || cluster::connect_mongodb(&self.config.mongodb, &self.policy, self.invariants.clone());
        self.mongodb.get_or_try_init(connect).await.cloned()
    }

    fn settings(&self, entity: Entity) -> Result<CassandraSettings> {
        let of = |placement: &Placement| placement.cassandra.clone();
        let settings = self.policy.placement(entity).and_then(of);
        settings.ok_or_else(|| anyhow!("the policy says nothing about {entity} in Cassandra"))
    }
}

impl Pressure for Places {
    fn now(&self) -> Felt {
        let overloads = self.cassandra.get().map_or(0, |cluster| cluster.overloads());
        let members = self.mongodb.get().map(|deployment| deployment.members()).unwrap_or_default();
        self.strain.now(overloads, members.iter().filter_map(|member| member.lag).max())
    }
}

/// As operators call them.
fn name(entity: Entity) -> &'static str {
    match entity {
        Entity::Orders => "orders",
        Entity::Carts => "carts",
        _ => "sessions",
    }
}

/// A migration between other stores than this policy's would be served wrongly.
async fn check(notes: &Notes, home: Store, other: Store) -> Result<()> {
    let Some(read) = notes.record().await? else { return Ok(()) };
    let record = read.value;
    if record.is_over(&home.to_string()) {
        return Ok(());
    }
    let stores = [home, other].map(|store| store.to_string());
    if [&record.source, &record.target] != [&stores[0], &stores[1]] {
        bail!(
            "the {} are on their way from {} to {} (phase {}), but by the policy their home is {home} and their migration_store \
             {other}: serve them with the policy that the migration began with until it has ended",
            notes.entity(),
            record.source,
            record.target,
            record.control.phase
        );
    }
    Ok(())
}

/// Where an instance would not know of a migration, there must be none, and the entity where the instance has it.
async fn check_at_rest(notes: &Notes, home: Store, instead: &str) -> Result<()> {
    let Some(read) = notes.record().await? else { return Ok(()) };
    let (record, home) = (read.value, home.to_string());
    let is_back = record.control.phase == Phase::Source && record.source == home;
    if !is_back && !record.is_over(&home) {
        let Record { source, target, control, .. } = record;
        let entity = notes.entity();
        if control.phase == Phase::Target {
            bail!(
                "the {entity} have moved from {source} to {target}, and by the policy their home is {home}: change it to {target}"
            );
        }
        bail!(
            "the {entity} are on their way from {source} to {target} (phase {}), and by the policy their home is {home}: {instead}, \
             and serve them like the other instances do",
            control.phase
        );
    }
    Ok(())
}

fn in_store<S, F>(
    places: Arc<Places>,
    open: impl FnOnce(Arc<Places>) -> F + Send + 'static,
) -> BoxFuture<'static, StoreResult<S>>
where
    F: Future<Output = Result<S>> + Send + 'static,
    S: 'static,
{
    let unavailable =
        |error: anyhow::Error| StoreError::Unavailable { what: format!("{error:#}"), source: None };
    Box::pin(async move { open(places).await.map_err(unavailable) })
}
