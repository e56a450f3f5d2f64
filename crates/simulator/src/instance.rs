//! An instance of the shop: it crashes, stands still, starts again, and has a clock of its own.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use mobimir_core::{
    entropy::Entropy,
    invariant::Invariant,
    ports::{OrderStore, Stores},
};
use mobimir_migrate::{
    follow::MoveError,
    service::{Action, Status},
};
use mobimir_shop::{
    Shop, ShopSettings,
    environment::{BlockingTask, Environment, Spawn, Task},
    faults::Faults,
    run_reconciler,
};
use tokio::{sync::oneshot, task::AbortHandle};

use crate::{
    abandoned,
    cassandra::{Carts, Orders, Ring, Sessions},
    clock::InstanceClock,
    history_only,
    migration::{Homes, Service},
    mongodb::ReplicaSet,
    network::Network,
    world::{World, lock},
};

pub struct Instance {
    pub number: usize,
    world: World,
    set: ReplicaSet,
    ring: Ring,
    clock: Arc<InstanceClock>,
    running: Mutex<Option<Running>>,
    stands_still: AtomicBool,
    /// Of the runs that have ended, what each counted.
    counted: Mutex<Vec<Running>>,
}

#[derive(Clone)]
struct Running {
    shop: Shop,
    network: Network,
    tasks: Arc<InstanceTasks>,
    migration: Option<Service>,
}

/// What a client hears of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard<T> {
    Answer(T),
    /// Nobody listens: nothing was done.
    Refused,
    /// The connection ended without an answer.
    Nothing,
}

impl Instance {
    pub fn start(number: usize, world: World, set: ReplicaSet, ring: Ring) -> Arc<Self> {
        let ahead_ms = off(&world);
        let clock = Arc::new(InstanceClock::new(world.clone(), ahead_ms));
        let stands_still = AtomicBool::new(false);
        let instance = Arc::new(Self {
            stands_still,
            number,
            world,
            set,
            ring,
            clock,
            running: Mutex::default(),
            counted: Mutex::default(),
        });
        instance.start_again();
        instance
    }

    pub fn start_again(&self) {
        let network = Network::new(self.world.clone());
        let tasks = Arc::new(InstanceTasks::default());
        let entropy: Arc<dyn Entropy> = Arc::new(self.world.clone());
        let environment = Environment::new(self.clock.clone(), entropy, tasks.clone());
        let dc = self.ring.dc_of(self.number);
        self.ring.was_absent(self.number, self.world.elapsed_ms());
        let mongodb = self.set.reached_by(network.clone());
        let carts = Carts::open(self.ring.clone(), network.clone(), environment.clone(), dc);
        let sessions = Sessions::open(self.ring.clone(), network.clone(), environment.clone(), dc);
        let is_apart = self.ring.features().has_history_apart;
        let orders = (!is_apart).then(|| Orders::open(self.ring.clone(), network.clone(), &environment, dc));
        let stored_orders: Arc<dyn OrderStore> = match &orders {
            Some(orders) => orders.clone(),
            None => history_only::orders(&self.set, self.ring.clone(), network.clone(), &environment),
        };
        let mut stores = Stores {
            products: mongodb.clone(),
            users: mongodb.clone(),
            carts: carts.clone(),
            orders: stored_orders,
            sessions: sessions.clone(),
        };
        let homes = Homes {
            world: &self.world,
            set: &self.set,
            ring: &self.ring,
            network: &network,
            environment: &environment,
            mongodb: &mongodb,
            carts,
            orders,
            sessions,
        };
        let migration = homes.let_move(&mut stores);
        let follows = migration.clone();
        // Cheap passwords: the simulation is not about them.
        let mut settings = ShopSettings { password_memory_kib: 8, ..ShopSettings::default() };
        if self.ring.features().lists_abandoned {
            settings = abandoned::settings(settings);
        }
        let planted = self.world.plan().planted.and_then(|planted| planted.in_shop());
        let faults = planted.map_or_else(Faults::none, Faults::planted);
        let shop = Shop::in_environment(environment, stores, settings, faults);
        let (reconciled, first) = (shop.clone(), shop.clone());
        if let Some(Service { migration, .. }) = migration.clone() {
            tasks.spawn(Box::pin(migration.run()));
        }
        tasks.spawn(Box::pin(async move {
            if let Some(Service { migration, .. }) = follows {
                migration.ready().await;
            }
            first.reconcile_at_start().await;
            run_reconciler(reconciled, std::future::pending()).await;
        }));
        *lock(&self.running) = Some(Running { shop, network, tasks, migration });
    }

    fn running(&self) -> Option<Running> {
        lock(&self.running).clone()
    }

    pub fn shop(&self) -> Option<Shop> {
        self.running().map(|running| running.shop)
    }

    /// How often the shop itself has found an invariant broken.
    pub fn violations(&self, invariant: Invariant) -> u64 {
        let counted = lock(&self.counted).clone();
        let of_run = |run: Running| {
            let moving = run.migration.map_or(0, |service| service.invariants.violations(invariant));
            run.shop.invariants().violations(invariant) + moving
        };
        counted.into_iter().chain(self.running()).map(of_run).sum()
    }

    /// Everything that it was doing ends where it is.
    pub fn crash(&self) {
        if let Some(running) = lock(&self.running).take() {
            running.tasks.abort_all();
            lock(&self.counted).push(running);
            self.world.note("instance crashed", self.number);
        }
    }

    pub async fn stand_still(&self) {
        let Some(running) = self.running() else { return };
        let ms = self.world.between(100, 25_000);
        self.world.note("instance stands still", (self.number, ms));
        self.stands_still.store(true, Ordering::SeqCst);
        running.network.stand_still(true);
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
        if self.world.permille(500) {
            self.clock.boot_stood_still(ms.cast_signed());
        }
        running.network.stand_still(false);
        self.ring.was_absent(self.number, self.world.elapsed_ms() - ms.cast_signed());
        self.stands_still.store(false, Ordering::SeqCst);
    }

    /// One clock of a machine fails at a time: where the boot clock may stand still, nobody sets the other.
    /// If both failed at once, nothing in the instance could tell that time has passed.
    pub fn set_clock(&self) {
        let ahead_ms = off(&self.world);
        if !self.stands_still.load(Ordering::SeqCst) {
            self.clock.set_ahead(ahead_ms);
        }
    }

    /// Works on a request. What may write has a task of its own, so that a client that hangs up cuts nothing
    /// short; what only reads ends with its client.
    pub async fn serve<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        request: impl FnOnce(Shop) -> F,
    ) -> Heard<T> {
        let Some(running) = self.running() else {
            self.world.travel().await;
            return Heard::Refused;
        };
        let (tx, rx) = oneshot::channel();
        let (answer, network) = (request(running.shop), running.network);
        running.tasks.spawn(Box::pin(async move {
            network.running().await;
            let answer = answer.await;
            network.running().await;
            // The client may have hung up.
            let _ = tx.send(answer);
        }));
        let travelled = self.world.clone();
        let heard = async move {
            travelled.travel().await;
            let answer = rx.await;
            travelled.travel().await;
            answer
        };
        let trouble = self.world.plan().faults.hang_ups && !self.world.is_calm();
        let patience_ms = if trouble && self.world.permille(30) {
            self.world.note("client hangs up", self.number);
            self.world.between(1, 60)
        } else {
            40_000
        };
        let patience = std::time::Duration::from_millis(patience_ms);
        match tokio::time::timeout(patience, heard).await {
            Ok(Ok(answer)) => Heard::Answer(answer),
            _ => Heard::Nothing,
        }
    }

    /// Takes what an operator asks of the migration. That ends where it is when the instance crashes.
    pub async fn operate(&self, action: Action) -> Heard<Result<Status, MoveError>> {
        let running = self.running();
        let Some((running, service)) = running.and_then(|run| run.migration.clone().map(|of| (run, of)))
        else {
            return Heard::Refused;
        };
        let (tx, rx) = oneshot::channel();
        running.tasks.spawn(Box::pin(async move {
            // The operator may have given up.
            let _ = tx.send(service.migration.act(action).await);
        }));
        match tokio::time::timeout(std::time::Duration::from_secs(10), rx).await {
            Ok(Ok(answer)) => Heard::Answer(answer),
            _ => Heard::Nothing,
        }
    }

    /// A request that only reads: dropped wherever it is when its client hangs up or the instance crashes.
    pub async fn read<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        request: impl FnOnce(Shop) -> F,
    ) -> Heard<T> {
        let Some(running) = self.running() else {
            self.world.travel().await;
            return Heard::Refused;
        };
        let answer = request(running.shop);
        let trouble = self.world.plan().faults.hang_ups && !self.world.is_calm();
        let patience_ms = if trouble && self.world.permille(60) { self.world.between(1, 20) } else { 40_000 };
        let patience = std::time::Duration::from_millis(patience_ms);
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => Heard::Answer(answer),
            Err(_) => Heard::Nothing,
        }
    }
}

fn off(world: &World) -> i64 {
    if !world.plan().faults.clocks {
        return 0;
    }
    let features = world.plan().features();
    let off_ms_max = features.clock_off_ms_max();
    let off_ms = world.below(2 * off_ms_max).cast_signed() - off_ms_max.cast_signed();
    if features.has_far_clocks {
        world.note("clock far off", off_ms);
    }
    off_ms / features.clocks_better_by()
}

/// The tasks of one run of an instance, which end when it crashes.
#[derive(Default)]
struct InstanceTasks(Mutex<Tasks>);

#[derive(Default)]
struct Tasks {
    is_over: bool,
    running: Vec<AbortHandle>,
}

const FINISHED_KEPT: usize = 64;

impl InstanceTasks {
    fn abort_all(&self) {
        let running = {
            let mut tasks = lock(&self.0);
            tasks.is_over = true;
            std::mem::take(&mut tasks.running)
        };
        running.iter().for_each(AbortHandle::abort);
    }
}

impl Spawn for InstanceTasks {
    fn spawn(&self, task: Task) {
        let mut tasks = lock(&self.0);
        if tasks.is_over {
            return;
        }
        if tasks.running.len() >= FINISHED_KEPT {
            tasks.running.retain(|task| !task.is_finished());
        }
        tasks.running.push(tokio::spawn(task).abort_handle());
    }

    /// At once: another thread would finish when it likes.
    fn spawn_blocking(&self, task: BlockingTask) {
        task();
    }
}
