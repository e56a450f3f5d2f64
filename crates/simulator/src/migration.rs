//! A live migration while people shop: what an instance runs for it, an operator who goes up and down the
//! phases, and trouble where it hurts most.
//!
//! The entity is at home in the replica set and moves to the ring. Every instance is the real service of
//! `mobimir-migrate`, which follows, copies and compares; its clock and its tasks come from the instance.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use mobimir_core::{
    invariant::InvariantCounters,
    moving::{CartSide, OrderSide, SessionSide, Side, Whole},
    ports::{CartStore, OrderStore, SessionStore, Stores},
};
use mobimir_migrate::{
    environment::Environment as MigrateEnvironment,
    migrating::Migrating,
    phase::{Phase, Which},
    record::{Notes, Record},
    service::{Action, Entity, Migration},
    standing::Standing,
    throttle::Nobody,
    timing::Timing,
};
use mobimir_shop::environment::Environment;
use mobimir_testkit::model::ModelStore;

use crate::{
    cassandra::{Carts, Orders, Ring, Sessions, moving::Moving},
    checker::Violation,
    instance::{Heard, Instance},
    mongodb::{MongoSide, MongoStores, ReplicaSet},
    network::Network,
    plan::Plan,
    world::{World, lock},
};

/// Quicker than in earnest, so that a migration comes to its end; but in the same order, and longer than any
/// request may be late.
const TIMING: Timing = Timing {
    beat: Duration::from_millis(700),
    lease: Duration::from_millis(5_000),
    lease_margin: Duration::from_millis(500),
    write_timeout: Duration::from_millis(10_000),
    handover_wait_max: Duration::from_millis(6_000),
    mirror_age_max: Duration::from_secs(60),
};
const RECHECK_PERIOD: Duration = Duration::from_secs(60);
const HOME: &str = "mongodb";
const OTHER: &str = "cassandra";
/// How long it may take, when nothing goes wrong any more, until the migration is where it is to be.
const REST_MAX_S: i64 = 400;

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovingEntity {
    Carts,
    Orders,
    Sessions,
}

impl MovingEntity {
    pub const ALL: [Self; 3] = [Self::Carts, Self::Orders, Self::Sessions];

    /// In every sixth seed something moves: that takes several times as long.
    pub fn of_seed(seed: u64) -> Option<Self> {
        (seed % 6 == 2).then(|| Self::ALL[(seed / 3 % 3) as usize])
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Carts => "carts",
            Self::Orders => "orders",
            Self::Sessions => "sessions",
        }
    }
}

/// The stores of one instance, of which some may move.
pub struct Homes<'a> {
    pub world: &'a World,
    pub set: &'a ReplicaSet,
    pub ring: &'a Ring,
    pub network: &'a Network,
    pub environment: &'a Environment,
    pub mongodb: &'a Arc<MongoStores>,
    pub carts: Arc<Carts>,
    /// `None` where their history stands apart, and so nothing moves.
    pub orders: Option<Arc<Orders>>,
    pub sessions: Arc<Sessions>,
}

/// What an instance runs while something moves.
#[derive(Clone)]
pub struct Service {
    pub migration: Arc<dyn Migration>,
    pub invariants: Arc<InvariantCounters>,
}

impl Homes<'_> {
    /// Puts what moves behind a port that knows when it does.
    pub fn let_move(self, stores: &mut Stores) -> Option<Service> {
        let entity = self.world.plan().migration?;
        let deciding = Deciding { world: self.world.clone(), set: self.set.clone(), entity };
        let invariants = Arc::<InvariantCounters>::default();
        let (ring, network, environment) = (self.ring.clone(), self.network.clone(), self.environment);
        let migration: Arc<dyn Migration> = match entity {
            MovingEntity::Carts => {
                let source: CartSide =
                    MongoSide::of(self.mongodb, &deciding, |side| -> Arc<dyn CartStore> { side });
                let other = Moving::open(Carts::clone(&self.carts), ring, network, environment, deciding);
                let target: CartSide = other.side(|side| -> Arc<dyn CartStore> { side });
                let moving = self.moving(source, target, entity, &invariants);
                stores.carts = moving.migrating.clone();
                moving
            }
            MovingEntity::Orders => {
                let source: OrderSide =
                    MongoSide::of(self.mongodb, &deciding, |side| -> Arc<dyn OrderStore> { side });
                let other =
                    Moving::open(Orders::clone(self.orders.as_ref()?), ring, network, environment, deciding);
                let target: OrderSide = other.side(|side| -> Arc<dyn OrderStore> { side });
                let moving = self.moving(source, target, entity, &invariants);
                stores.orders = moving.migrating.clone();
                moving
            }
            MovingEntity::Sessions => {
                let source: SessionSide =
                    MongoSide::of(self.mongodb, &deciding, |side| -> Arc<dyn SessionStore> { side });
                let other =
                    Moving::open(Sessions::clone(&self.sessions), ring, network, environment, deciding);
                let target: SessionSide = other.side(|side| -> Arc<dyn SessionStore> { side });
                let moving = self.moving(source, target, entity, &invariants);
                stores.sessions = moving.migrating.clone();
                moving
            }
        };
        Some(Service { migration, invariants })
    }

    fn moving<W: Whole, P: ?Sized + Send + Sync + 'static>(
        &self,
        source: Side<W, P>,
        target: Side<W, P>,
        entity: MovingEntity,
        invariants: &Arc<InvariantCounters>,
    ) -> Arc<Entity<W, P>> {
        let Environment { clock, tasks, ids, .. } = self.environment.clone();
        let planted = self.world.plan().planted.and_then(|planted| planted.in_migration());
        let environment = MigrateEnvironment { clock: clock.clone(), tasks, planted };
        let standing = Standing::with_clock(&TIMING, clock.clone());
        let migrating = Migrating::in_environment(source, standing, environment);
        Arc::new(Entity {
            migrating: Arc::new(migrating),
            notes: Notes::new(self.mongodb.clone(), entity.name()),
            open: Box::new(move |_| {
                let target = target.clone();
                Box::pin(async move { Ok(target) })
            }),
            instance: ids.fresh(clock.now()),
            clock,
            pressure: Arc::new(Nobody),
            invariants: invariants.clone(),
            timing: TIMING,
            recheck_period: RECHECK_PERIOD,
            home: HOME.to_owned(),
            other: OTHER.to_owned(),
            controller: tokio::sync::Mutex::default(),
            observed: Mutex::default(),
        })
    }
}

/// MIG-3, seen from outside: whoever is told that a store has decided was told so while that store could.
#[derive(Clone)]
pub struct Deciding {
    world: World,
    set: ReplicaSet,
    entity: MovingEntity,
}

impl Deciding {
    /// A write, not a copy, was answered by this store.
    pub fn wrote(&self, which: Which) {
        let phase = record(&self.set, self.entity).map_or(Phase::Source, |record| record.control.phase);
        // Nobody leaves a handover before the writes of the store that decided are over.
        let may = match which {
            Which::Source => phase <= Phase::Handover,
            Which::Target => phase >= Phase::Switch,
        };
        if !may {
            let what = format!("the {which} has decided about {} in {phase}", self.entity.name());
            lock(self.world.violations()).push(Violation { invariant: "MIG-3", what });
        }
    }
}

/// How far the migration is, as a majority has it.
fn record(set: &ReplicaSet, entity: MovingEntity) -> Option<Record> {
    let store = set.peek(ModelStore::clone);
    let read = Notes::new(Arc::new(store), entity.name()).record().now_or_never();
    read.and_then(Result::ok).flatten().map(|read| read.value)
}

/// How often, in times out of a thousand, an operator goes back: most often where that is of interest.
fn goes_back_permille(phase: Phase) -> u64 {
    match phase {
        Phase::Source => 0,
        Phase::DualWrite | Phase::Backfill | Phase::Verify => 60,
        Phase::Handover | Phase::Switch => 150,
        Phase::ReadTarget => 500,
        Phase::Target => 0,
    }
}

/// Somebody who moves the migration, and those who crash and stop instances while he does.
pub struct Operations {
    pub world: World,
    pub set: ReplicaSet,
    pub instances: Vec<Arc<Instance>>,
}

impl Operations {
    fn entity(&self) -> Option<MovingEntity> {
        self.world.plan().migration
    }

    fn record(&self) -> Option<Record> {
        record(&self.set, self.entity()?)
    }

    async fn act(&self, action: Action) {
        let instance = self.world.pick(&self.instances).clone();
        let asked = format!("{action:?}");
        let heard = instance.operate(action).await;
        let outcome = match &heard {
            Heard::Answer(Ok(_)) => "taken".to_owned(),
            Heard::Answer(Err(error)) => error.to_string(),
            Heard::Refused => "nobody listens".to_owned(),
            Heard::Nothing => "no answer".to_owned(),
        };
        self.world.note("operator asked", (instance.number, asked, outcome));
    }

    /// Goes up and down for as long as people shop.
    pub async fn work(self: Arc<Self>) {
        if self.entity().is_none() {
            return;
        }
        self.world.sleep_ms(500, 5_000).await;
        loop {
            match self.record() {
                None => self.act(Action::Start).await,
                Some(record) => {
                    let phase = record.control.phase;
                    if self.world.permille(goes_back_permille(phase)) {
                        self.act(Action::Rollback).await;
                    } else if record.is_paused {
                        self.act(Action::Verify).await;
                    } else if record.wanted.is_none_or(|wanted| wanted == phase)
                        && (phase < Phase::ReadTarget || self.world.permille(30))
                    {
                        self.act(Action::Advance).await;
                    }
                }
            }
            self.world.sleep_ms(500, 4_000).await;
        }
    }

    /// Crashes, and instances that stand still, mostly while everybody waits for everybody.
    pub async fn make_trouble(self: Arc<Self>) {
        let trouble = self.world.plan().faults;
        if self.entity().is_none() || !(trouble.crashes || trouble.pauses) {
            return;
        }
        loop {
            self.world.sleep_ms(100, 700).await;
            let phase = self.record().map(|record| record.control.phase);
            let is_handover = matches!(phase, Some(Phase::Handover | Phase::Switch));
            if !self.world.permille(if is_handover { 150 } else { 4 }) {
                continue;
            }
            let instance = self.world.pick(&self.instances).clone();
            if trouble.crashes && (self.world.permille(500) || !trouble.pauses) {
                let event = if is_handover { "crashed in a handover" } else { "crashed in a migration" };
                self.world.note(event, (instance.number, phase));
                instance.crash();
                let again = self.world.clone();
                self.world.spawn(async move {
                    again.sleep_ms(100, 8_000).await;
                    if instance.shop().is_none() {
                        instance.start_again();
                    }
                });
            } else if trouble.pauses {
                let event =
                    if is_handover { "stood still in a handover" } else { "stood still in a migration" };
                self.world.note(event, (instance.number, phase));
                self.world.spawn(async move { instance.stand_still().await });
            }
        }
    }

    /// Brings the migration to where the seed wants it, when nothing goes wrong any more.
    pub async fn finish(&self) -> Vec<Violation> {
        let Some(entity) = self.entity() else { return Vec::new() };
        let goal = match self.world.below(10) {
            0..=4 => Phase::Target,
            5..=7 => Phase::ReadTarget,
            _ => Phase::Source,
        };
        let began_ms = self.world.elapsed_ms();
        let mut left = Vec::new();
        loop {
            let record = self.record();
            let phase = record.as_ref().map_or(Phase::Source, |record| record.control.phase);
            // There is no way back from there.
            let goal = if phase == Phase::Target { Phase::Target } else { goal };
            if phase == goal && record.as_ref().is_none_or(|record| record.wanted.is_none()) {
                break;
            }
            if self.world.elapsed_ms() - began_ms > REST_MAX_S * 1_000 {
                let what = format!("the migration does not come to {goal}: {record:?}");
                left.push(Violation { invariant: "settling", what });
                break;
            }
            match record {
                None => self.act(Action::Start).await,
                Some(record) if record.is_paused => self.act(Action::Verify).await,
                Some(record) if record.wanted.is_some_and(|wanted| wanted != phase) => {}
                Some(_) if phase < goal => self.act(Action::Advance).await,
                Some(_) => self.act(Action::Rollback).await,
            }
            self.world.sleep_ms(1_000, 2_000).await;
        }
        if let Some(record) = self.record() {
            self.tell(entity, &record);
        }
        left
    }

    /// Counts what happened, from the migration's own record.
    fn tell(&self, entity: MovingEntity, record: &Record) {
        let world = &self.world;
        world.note(
            match entity {
                MovingEntity::Carts => "migration of carts",
                MovingEntity::Orders => "migration of orders",
                MovingEntity::Sessions => "migration of sessions",
            },
            record.control,
        );
        for line in &record.timeline {
            let event = match line.what.split(':').next().unwrap_or_default() {
                "dual-write after source" => "migration set out",
                "handover after verify" => "handover begun",
                "read-target after switch" => "reads moved to the target",
                "switch after read-target" => "handover back begun",
                "handover after switch" => "handover gone back",
                "verify after handover" => "reads moved back to the source",
                "source after dual-write" => "migration rolled back",
                "target after read-target" => "migration finished",
                "the handover was given up, back to verify" => "handover given up",
                _ => "migration moved on",
            };
            world.note(event, &line.what);
        }
        for outcome in &record.outcomes {
            // One that goes away delays the migration; one that stays keeps it from its end.
            if outcome.differences.values().sum::<u64>() > 0 {
                world.note("comparison differs", &outcome.differences);
            }
        }
    }
}

/// Starts what goes on beside the shoppers.
pub fn begin(
    plan: &Plan,
    world: &World,
    set: &ReplicaSet,
    instances: &[Arc<Instance>],
) -> (Arc<Operations>, Vec<tokio::task::JoinHandle<()>>) {
    let (world, set, instances) = (world.clone(), set.clone(), instances.to_vec());
    let operations = Arc::new(Operations { world, set, instances });
    let mut tasks = Vec::new();
    if plan.migration.is_some() {
        tasks.push(tokio::spawn(operations.clone().work()));
        tasks.push(tokio::spawn(operations.clone().make_trouble()));
    }
    (operations, tasks)
}
