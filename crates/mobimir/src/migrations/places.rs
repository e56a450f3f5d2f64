//! How the stores that an entity can move between are opened.

mod strain;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Result, bail};
use futures_util::future::BoxFuture;
use mobimir_core::{
    id,
    invariant::InvariantCounters,
    moving::{CartSide, HistorySide, OrderSide, SessionSide, Side, Whole},
    notes::NoteStore,
    policy::{Entity, Policy, Store},
    ports::{OrderHistoryStore, StoreError, StoreResult, Stores},
    time::Clock,
};
use mobimir_embedded::EmbeddedStore;
use mobimir_http::Latency;
use mobimir_migrate::{
    migrating::Migrating,
    record::Notes,
    service::{Entity as MovingEntity, Migration, Opener},
    shadow::Shadow,
    standing::Standing,
    throttle::{Felt, Pressure},
    timing::Timing,
};
use mobimir_shop::BucketCount;
use tokio::sync::OnceCell;
use uuid::Uuid;

use self::strain::Strain;
use super::{MOVABLE, check_at_rest, name};
use crate::{
    config::Config,
    servers::{Cassandra, Mongodb, Servers},
};

/// Of a percentage.
const PERMILLE_PER_PERCENT: u32 = 10;

/// Everything that a store of this shop can be opened with.
pub(crate) struct Places {
    policy: Policy,
    config: Config,
    embedded: EmbeddedStore,
    cassandra: OnceCell<Cassandra>,
    /// Opened once, and kept as long as the shop runs: only a store that lives follows the plan of buckets.
    cassandra_orders: OnceCell<(OrderSide, BucketCount)>,
    mongodb: OnceCell<Mongodb>,
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
    ) -> Result<Arc<Self>> {
        let Servers { cassandra, mongodb } = servers.clone();
        let (cassandra, mongodb) = (OnceCell::new_with(cassandra), OnceCell::new_with(mongodb));
        let strain = Strain::new(latency, &policy.alerts);
        let cassandra_orders = OnceCell::new();
        Ok(Arc::new(Self {
            policy,
            config,
            embedded,
            cassandra,
            cassandra_orders,
            mongodb,
            invariants,
            clock,
            strain,
        }))
    }

    /// Puts what can move behind a port that knows when it does, and spreads orders by the plan of the store
    /// that is behind it. `history` is that port of an order history with a home of its own.
    pub(crate) async fn let_move(
        self: &Arc<Self>,
        notes: Arc<dyn NoteStore>,
        stores: &mut Stores,
        history: &mut Option<Arc<dyn OrderHistoryStore>>,
        order_buckets: &mut BucketCount,
    ) -> Result<Vec<Arc<dyn Migration>>> {
        let (mut all, instance) = (Vec::new(), id::fresh(self.clock.now()));
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
                    *order_buckets = self.order_buckets();
                    moving as Arc<dyn Migration>
                }
                Entity::OrderHistory => {
                    let (source, places) = (self.history_in(home).await?, self.clone());
                    let open = move |_| {
                        in_store(places.clone(), move |places| async move { places.history_in(other).await })
                    };
                    let moving = self.moving(source, notes, Box::new(open), [home, other], instance);
                    *history = Some(moving.migrating.clone());
                    moving
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
        let standing = Standing::with_clock(&timing, self.clock.clone());
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

    async fn orders_in(&self, store: Store) -> Result<OrderSide> {
        Ok(match store {
            Store::Embedded => self.embedded.movables().orders,
            Store::Mongodb => self.mongodb().await?.orders(),
            Store::Cassandra => {
                let open = || async { self.cassandra().await?.orders(&self.policy).await };
                self.cassandra_orders.get_or_try_init(open).await?.0.clone()
            }
        })
    }

    /// What Cassandra has agreed on once its orders are open here, and what the policy says before.
    fn order_buckets(self: &Arc<Self>) -> BucketCount {
        let places = self.clone();
        BucketCount::asked(move |now| match places.cassandra_orders.get() {
            Some((_, agreed)) => agreed.count_at(now),
            None => places.policy.order_buckets(),
        })
    }

    async fn history_in(&self, store: Store) -> Result<HistorySide> {
        Ok(match store {
            Store::Embedded => bail!("the embedded store has no order history beside its orders"),
            Store::Mongodb => self.mongodb().await?.order_history(),
            Store::Cassandra => self.cassandra().await?.order_history(&self.policy).await?,
        })
    }

    async fn carts_in(&self, store: Store) -> Result<CartSide> {
        Ok(match store {
            Store::Embedded => self.embedded.movables().carts,
            Store::Mongodb => self.mongodb().await?.carts(),
            Store::Cassandra => self.cassandra().await?.carts(&self.policy).await?,
        })
    }

    async fn sessions_in(&self, store: Store) -> Result<SessionSide> {
        Ok(match store {
            Store::Embedded => self.embedded.movables().sessions,
            Store::Mongodb => self.mongodb().await?.sessions(),
            Store::Cassandra => self.cassandra().await?.sessions(&self.policy).await?,
        })
    }

    async fn cassandra(&self) -> Result<Cassandra> {
        let connect = || Cassandra::connect(&self.config.cassandra, &self.policy);
        self.cassandra.get_or_try_init(connect).await.cloned()
    }

    async fn mongodb(&self) -> Result<Mongodb> {
        let connect = || Mongodb::connect(&self.config.mongodb, &self.policy, self.invariants.clone());
        self.mongodb.get_or_try_init(connect).await.cloned()
    }
}

impl Pressure for Places {
    fn now(&self) -> Felt {
        let overloads = self.cassandra.get().map_or(0, Cassandra::overloads);
        self.strain.now(overloads, self.mongodb.get().and_then(Mongodb::lag))
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
