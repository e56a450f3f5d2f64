//! A cart that is written all the time, by an owner who does not stop: no look at it ever finds it at rest,
//! and the migration has to get along with that.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    id::{ChangeId, ProductId, UserId, derived},
    moving::WholeCart,
    ports::{CartStore, StoreError},
    time::{Clock, Timestamp},
};
use mobimir_migrate::{
    migrating::{Migrating, MigratingCarts},
    phase::Phase,
    record::Notes,
    service::{Action, Entity, Migration, Status},
    shadow::Shadow,
    standing::Standing,
    throttle::Nobody,
    timing::Timing,
};
use mobimir_testkit::model::ModelStore;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    chance::Chance,
    faulty::{self, Faults},
    world::{Now, TIMING},
};

/// Who write the one cart side by side, much more often than it can be copied.
const BUSY_WRITERS: u64 = 3;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const PUT_TAKES_MS: u64 = 100;
/// Carts that are written now and then.
const OTHERS: u64 = 98;
const OTHERS_PAUSE: Duration = Duration::from_secs(1);
/// Much less than the way takes, and much more than a copy does.
const MIRROR_AGE_MAX: Duration = Duration::from_secs(4);
const DAY_MS: i64 = 86_400_000;
const PAUSE: Duration = Duration::from_millis(500);
/// How long something may take that is certain to come. By a virtual clock.
const PATIENCE: Duration = Duration::from_secs(100);

struct World {
    entity: Arc<Entity<WholeCart, dyn CartStore>>,
    clock: Arc<Now>,
    is_over: Arc<AtomicBool>,
}

/// What an owner was told of his adds.
#[derive(Default)]
struct Told {
    acknowledged: AtomicU64,
    unknown: AtomicU64,
}

fn id(kind: &str, n: u64) -> Uuid {
    derived(kind, &[&n.to_be_bytes()])
}

fn owner(n: u64) -> Owner {
    Owner::User(UserId(id("busy owner", n)))
}

/// Two stores that take up to 20 ms for everything but copies, and never fail.
fn world() -> World {
    let clock = Arc::new(Now(Instant::now()));
    let side = |seed| {
        let store = ModelStore::default().as_movables();
        let faults = Faults::new(Chance::new(seed), 0);
        faults.put_takes_ms.store(PUT_TAKES_MS, Ordering::Relaxed);
        faulty::movables(&store, &faults).carts
    };
    let (source, target) = (side(1), side(2));
    let timing = Timing { mirror_age_max: MIRROR_AGE_MAX, ..TIMING };
    let migrating =
        Migrating::new(source, Standing::new(&timing), clock.clone()).with_shadow(Shadow::new(1_000));
    let entity = Arc::new(Entity {
        migrating: Arc::new(migrating),
        notes: Notes::new(Arc::new(ModelStore::default()), "carts"),
        open: Box::new(move |_| {
            let target = target.clone();
            Box::pin(async move { Ok(target) })
        }),
        clock: clock.clone(),
        pressure: Arc::new(Nobody),
        invariants: Arc::default(),
        timing,
        recheck_period: Duration::from_secs(3_600),
        instance: Uuid::from_u128(1),
        home: "source".to_owned(),
        other: "target".to_owned(),
        controller: tokio::sync::Mutex::default(),
        observed: Mutex::default(),
    });
    tokio::spawn(entity.clone().run());
    World { entity, clock, is_over: Arc::default() }
}

impl World {
    fn carts(&self) -> &Arc<MigratingCarts> {
        &self.entity.migrating
    }

    async fn status(&self) -> Status {
        self.entity.status().await.expect("it can be read").expect("there is one")
    }

    async fn bring(&self, phase: Phase) {
        let started = Instant::now();
        loop {
            let status = self.status().await;
            if status.phase == phase && status.wanted.is_none() {
                return;
            }
            assert!(!status.is_paused, "something differs: {status:#?}");
            if status.wanted.is_none() {
                let action = if status.phase < phase { Action::Advance } else { Action::Rollback };
                let _ = self.entity.act(action).await;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "never {phase}: {:?}, {:?}, {:?}",
                status.phase,
                status.blocked_by,
                status.verification.map(|found| (found.reached.reached, found.looked_through))
            );
            sleep(PAUSE).await;
        }
    }

    /// Adds to a cart again and again until all is over.
    fn adds(&self, number: u64, writer: u64, pause: Duration, told: &Arc<Told>) -> JoinHandle<()> {
        let (carts, clock, told) = (self.carts().clone(), self.clock.clone(), told.clone());
        let is_over = self.is_over.clone();
        tokio::spawn(async move {
            for change in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let now: Timestamp = clock.now();
                let name = ((number * BUSY_WRITERS + writer) << 32) | change;
                let effect = Effect::Add { product: product(), quantity: 1, zone: None };
                let change = CartChange {
                    id: ChangeId(id("busy change", name)),
                    at: now,
                    origin: owner(number),
                    keyed: false,
                    effect,
                };
                match carts.append(owner(number), vec![change], now.plus_ms(DAY_MS), now).await {
                    Ok(()) => told.acknowledged.fetch_add(1, Ordering::Relaxed),
                    Err(StoreError::Unknown { .. }) => told.unknown.fetch_add(1, Ordering::Relaxed),
                    // A handover that lasts: nothing was done.
                    Err(_) => 0,
                };
                sleep(pause).await;
            }
        })
    }

    async fn units(&self, number: u64) -> u64 {
        let cart = CartStore::read(&**self.carts(), owner(number), self.clock.now()).await;
        let cart = cart.expect("the model answers").expect("it was written");
        cart::fold(&cart.changes).quantity(product())
    }
}

fn product() -> ProductId {
    ProductId(id("busy product", 0))
}

/// Its mark never goes, the other store is always a little behind, and it grows to thousands of changes.
/// Neither the comparison nor the age of its mark may wait until its owner stops.
#[tokio::test(start_paused = true)]
async fn a_cart_that_is_written_all_the_time_holds_up_nothing() {
    let world = world();
    world.entity.ready().await;
    let told: Vec<Arc<Told>> = (0..=OTHERS).map(|_| Arc::default()).collect();
    let mut writers = Vec::new();
    for writer in 0..BUSY_WRITERS {
        writers.push(world.adds(0, writer, BUSY_PAUSE, &told[0]));
    }
    for number in 1..=OTHERS {
        writers.push(world.adds(number, 0, OTHERS_PAUSE, &told[number as usize]));
    }
    world.entity.act(Action::Start).await.expect("it begins");
    for phase in [Phase::Verify, Phase::ReadTarget, Phase::Verify, Phase::Source] {
        world.bring(phase).await;
        // Long enough for a mark that does not go to be too old.
        sleep(2 * MIRROR_AGE_MAX).await;
    }
    world.is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("nobody panics");
    }
    let mut found = 0;
    for (number, told) in told.iter().enumerate() {
        let units = world.units(number as u64).await;
        let [acknowledged, unknown] =
            [&told.acknowledged, &told.unknown].map(|count| count.load(Ordering::Relaxed));
        assert!(
            (acknowledged..=acknowledged + unknown).contains(&units),
            "CRT-1: {units} units in cart {number}, {acknowledged} acknowledged, {unknown} unknown"
        );
        found = found.max(units);
    }
    assert!(found > cart::CART_CHANGES_MAX as u64 / 2, "no cart was large: {found}");
}
