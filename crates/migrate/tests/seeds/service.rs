//! One instance that does everything, over model stores and in a time of its own: what operators ask for, and what becomes
//! of it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    id::OrderId,
    invariant::{Invariant, InvariantCounters},
    moving::WholeOrder,
    order::{Order, OrderStatus, StatusChange},
    ports::OrderStore,
    time::{Clock, Month, Timestamp},
};
use mobimir_migrate::{
    backfill::Months,
    follow::MoveError,
    migrating::{Migrating, MigratingOrders},
    phase::{Phase, Which},
    record::Notes,
    service::{Action, Entity, Migration, Status},
    shadow::Shadow,
    standing::Standing,
    throttle::Nobody,
    verify::{Kind, Purpose},
};
use mobimir_testkit::model::ModelStore;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::{
    chance::Chance,
    faulty::{self, Faults},
    trade::order,
    world::{Now, TIMING},
};

const HOUR: Duration = Duration::from_secs(3_600);
const PAUSE: Duration = Duration::from_millis(500);
/// How long something may take that is certain to come.
const PATIENCE: Duration = Duration::from_secs(300);

struct World {
    target: ModelStore,
    target_faults: Arc<Faults>,
    entity: Arc<Entity<WholeOrder, dyn OrderStore>>,
    invariants: Arc<InvariantCounters>,
}

/// All reads are asked of both stores.
fn world() -> World {
    let (source, target) = (ModelStore::default(), ModelStore::default());
    let target_faults = Faults::new(Chance::new(1), 0);
    let clock: Arc<dyn Clock> = Arc::new(Now(Instant::now()));
    let opened = faulty::movables(&target.as_movables(), &target_faults).orders;
    let migrating = Migrating::new(source.as_movables().orders, Standing::new(&TIMING), clock.clone())
        .with_shadow(Shadow::new(1_000));
    let invariants = Arc::<InvariantCounters>::default();
    let entity = Arc::new(Entity {
        migrating: Arc::new(migrating),
        notes: Notes::new(Arc::new(ModelStore::default()), "orders"),
        open: Box::new(move |_| {
            let opened = opened.clone();
            Box::pin(async move { Ok(opened) })
        }),
        clock,
        pressure: Arc::new(Nobody),
        invariants: invariants.clone(),
        timing: TIMING,
        recheck_period: HOUR,
        instance: Uuid::from_u128(1),
        home: "source".to_owned(),
        other: "target".to_owned(),
        controller: tokio::sync::Mutex::default(),
        observed: Mutex::default(),
    });
    tokio::spawn(entity.clone().run());
    World { target, target_faults, entity, invariants }
}

impl World {
    fn shop(&self) -> &Arc<MigratingOrders> {
        &self.entity.migrating
    }

    async fn act(&self, action: Action) -> Status {
        loop {
            match self.entity.act(action.clone()).await {
                Ok(status) => return status,
                // Whoever works on it writes, too.
                Err(MoveError::Overtaken) => sleep(PAUSE).await,
                Err(error) => panic!("{action:?}: {error}"),
            }
        }
    }

    async fn status(&self) -> Status {
        self.entity.status().await.expect("it can be read").expect("there is one")
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let started = Instant::now();
        loop {
            let status = self.status().await;
            if is_so(&status) {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "never {what}: {status:#?}");
            sleep(PAUSE).await;
        }
    }

    async fn bring(&self, phase: Phase) -> Status {
        let started = Instant::now();
        loop {
            let status = self.status().await;
            if status.phase == phase && status.wanted.is_none() {
                return status;
            }
            if status.wanted.is_none() {
                let action = if status.phase < phase { Action::Advance } else { Action::Rollback };
                let _ = self.entity.act(action).await;
            }
            assert!(started.elapsed() < PATIENCE, "never {phase}: {status:#?}");
            sleep(PAUSE).await;
        }
    }

    async fn insert(&self, orders: Vec<Order>) {
        self.shop().insert(orders).await.expect("the model takes everything");
    }

    async fn in_target(&self, n: u64) -> bool {
        OrderStore::get(&self.target, id(n)).await.expect("the model answers").is_some()
    }
}

fn id(n: u64) -> OrderId {
    order(n, Timestamp::from_millis(0)).id
}

fn in_month(n: u64, month: &str) -> Order {
    order(n, Timestamp::parse(&format!("{month}-15T12:00:00Z")).expect("a month"))
}

fn months(from: &str, to: &str) -> Option<Months> {
    let [from, to] = [from, to].map(|month| Month::parse(month).expect("a month"));
    Some(Months { from, to })
}

#[tokio::test(start_paused = true)]
async fn months_are_copied_one_by_one_and_the_rest_before_the_next_phase() {
    let world = world();
    world.entity.ready().await;
    world.insert((0..12).map(|n| in_month(n, &format!("2011-{:02}", n + 1))).collect()).await;
    world.act(Action::Start).await;
    world.act(Action::Months(months("2011-02", "2011-03"))).await;
    world.bring(Phase::Backfill).await;
    world.until("copied two months", |status| status.months_copied.len() == 2).await;
    let copied = async |n| world.in_target(n).await;
    assert_eq!(
        [copied(0).await, copied(1).await, copied(2).await, copied(3).await],
        [false, true, true, false]
    );
    let refused = world.entity.act(Action::Advance).await.unwrap_err();
    assert!(refused.to_string().contains("backfill"), "{refused}");

    world.act(Action::Months(months("2011-06", "2011-06"))).await;
    world.until("copied another", |status| status.months_copied.len() == 3).await;
    assert!(copied(5).await && !copied(6).await);
    world.act(Action::Months(None)).await;
    let status = world.bring(Phase::Verify).await;
    for n in 0..12 {
        assert!(copied(n).await, "{n}");
    }
    assert_eq!(status.phase, Phase::Verify);
    let refused = world.entity.act(Action::Months(None)).await.unwrap_err();
    assert!(matches!(refused, MoveError::NotNow { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn what_differs_is_found_mended_and_found_equal() {
    let world = world();
    world.entity.ready().await;
    world.insert((0..30).map(|n| in_month(n, "2011-01")).collect()).await;
    world.act(Action::Start).await;
    world.bring(Phase::Backfill).await;
    world.until("copied", |status| status.backfill.as_ref().is_some_and(|job| job.reached.is_done())).await;
    world.act(Action::Pause).await;
    // One that nobody wrote, one that is gone, and one that says something else under the same version.
    let target = world.target.as_movables().orders.moving;
    target
        .put(
            vec![WholeOrder { order: in_month(100, "2011-01"), history: Vec::new() }],
            world.entity.clock.now(),
        )
        .await
        .unwrap();
    let rows = target.rows("orders", None, 100).await.unwrap().items;
    for n in [3, 4] {
        target.remove("orders", rows.iter().find(|row| row.key == id(n)).unwrap()).await.unwrap();
    }
    let other = Order { status: OrderStatus::Cancelled, ..in_month(4, "2011-01") };
    let history = vec![StatusChange { status: OrderStatus::Cancelled, at: other.created_at, operator: None }];
    target.put(vec![WholeOrder { order: other, history }], world.entity.clock.now()).await.unwrap();

    world.act(Action::Resume).await;
    world.bring(Phase::Verify).await;
    let status = world.until("compared", |status| status.is_paused).await;
    let found = status.verification.unwrap();
    assert!(!found.is_green);
    let expected = [(Kind::Missing, 1), (Kind::Different, 1), (Kind::Extra, 1)];
    assert_eq!(found.differences, expected.into(), "{:?}", found.first_differences);

    world.act(Action::Repair).await;
    let status =
        world.until("equal", |status| status.verification.as_ref().is_some_and(|found| found.is_green)).await;
    let repair = status.outcomes.iter().find(|outcome| outcome.purpose == Purpose::Repair).unwrap();
    assert_eq!((repair.mended, repair.differences.len()), (3, 0), "{repair:?}");
    assert!(!world.in_target(100).await);
    let mended = OrderStore::get(&world.target, id(4)).await.unwrap().unwrap();
    assert_eq!(mended.status, OrderStatus::Confirmed);
}

/// Where a row that was removed cannot be written again under its version, a repair leaves it, says so, and
/// reads stay where they are. What is missing it copies all the same.
#[tokio::test(start_paused = true)]
async fn a_repair_loses_no_row_that_it_could_not_replace() {
    let world = world();
    world.target_faults.keeps_rows.store(true, Ordering::Relaxed);
    world.entity.ready().await;
    world.insert((0..3).map(|n| in_month(n, "2011-01")).collect()).await;
    world.act(Action::Start).await;
    world.bring(Phase::Backfill).await;
    world.until("copied", |status| status.backfill.as_ref().is_some_and(|job| job.reached.is_done())).await;
    world.act(Action::Pause).await;
    let target = world.target.as_movables().orders.moving;
    let rows = target.rows("orders", None, 100).await.unwrap().items;
    for n in [1, 2] {
        target.remove("orders", rows.iter().find(|row| row.key == id(n)).unwrap()).await.unwrap();
    }
    let other = Order { status: OrderStatus::Cancelled, ..in_month(2, "2011-01") };
    target
        .put(vec![WholeOrder { order: other, history: Vec::new() }], world.entity.clock.now())
        .await
        .unwrap();

    world.act(Action::Resume).await;
    world.bring(Phase::Verify).await;
    world.until("compared", |status| status.is_paused).await;
    world.act(Action::Repair).await;
    let status = world
        .until("repaired", |status| {
            status.outcomes.last().is_some_and(|last| last.purpose == Purpose::Repair)
        })
        .await;
    let repair = status.outcomes.last().unwrap();
    assert_eq!((repair.mended, &repair.differences), (1, &[(Kind::Different, 1)].into()), "{repair:?}");
    assert!(world.in_target(1).await && world.in_target(2).await, "nothing is lost");
    world.entity.act(Action::Advance).await.unwrap_err();
}

/// Somebody has emptied the target: nobody reads so many differences, but somebody has to be told.
#[tokio::test(start_paused = true)]
async fn a_comparison_that_finds_far_too_much_ends_and_says_what_was_not_looked_at() {
    const ORDERS: u64 = 10_500;
    let world = world();
    world.entity.ready().await;
    world.act(Action::Start).await;
    world.bring(Phase::Backfill).await;
    world.until("copied", |status| status.backfill.as_ref().is_some_and(|job| job.reached.is_done())).await;
    world.act(Action::Pause).await;
    // Behind everybody's back, so that nothing of it is marked.
    let source = world.entity.migrating.side(Which::Source).unwrap().moving.clone();
    let wholes = (0..ORDERS).map(|n| WholeOrder { order: in_month(n, "2011-01"), history: Vec::new() });
    source.put(wholes.collect(), world.entity.clock.now()).await.unwrap();
    world.act(Action::Resume).await;
    world.bring(Phase::Verify).await;
    let status = world.until("given up", |status| status.is_paused).await;
    let outcome = status.outcomes.last().unwrap();
    assert_eq!(outcome.differences, [(Kind::Missing, 10_000)].into());
    assert!(outcome.ranges < outcome.ranges_planned, "{outcome:?}");
    assert!(!status.verification.unwrap().is_green);
}

/// Nobody can copy it or ask for it, so it is for people to look at.
#[tokio::test(start_paused = true)]
async fn what_is_no_entity_is_found_in_the_target_and_left_to_people() {
    let world = world();
    world.entity.ready().await;
    world.insert(vec![in_month(1, "2011-01")]).await;
    world.target_faults.has_a_stranger.store(true, Ordering::Relaxed);
    world.act(Action::Start).await;
    world.bring(Phase::Verify).await;
    let status = world.until("compared", |status| status.is_paused).await;
    assert_eq!(status.outcomes.last().unwrap().differences, [(Kind::Extra, 1)].into());
    let verification = status.verification.unwrap();
    assert!(!verification.is_green);
    assert_eq!(verification.first_differences[0].key, "stranger");

    world.act(Action::Repair).await;
    let status = world
        .until("repaired", |status| {
            status.outcomes.last().is_some_and(|last| last.purpose == Purpose::Repair)
        })
        .await;
    assert_eq!(status.outcomes.last().unwrap().differences, [(Kind::Extra, 1)].into(), "it is still there");
    world.target_faults.has_a_stranger.store(false, Ordering::Relaxed);
    world.act(Action::Resume).await;
    world.act(Action::Verify).await;
    world.until("green", |status| status.verification.as_ref().is_some_and(|found| found.is_green)).await;
}

#[tokio::test(start_paused = true)]
async fn after_the_switch_everything_is_compared_again_and_again() {
    let world = world();
    world.entity.ready().await;
    world.insert((0..10).map(|n| in_month(n, "2011-01")).collect()).await;
    world.act(Action::Start).await;
    world.bring(Phase::ReadTarget).await;
    let status = world.until("compared again", |status| status.rechecked_at.is_some()).await;
    let last = status.outcomes.last().unwrap();
    assert_eq!((last.purpose, last.entities, last.differences.len()), (Purpose::Recheck, 10, 0));
    // What reads moved by is still there to be shown.
    let verification = status.verification.as_ref().unwrap();
    assert!(verification.is_green && verification.reached.reached.is_done() && status.shadow.is_some());
    assert_eq!(world.invariants.violations(Invariant::Mig1), 0);
    assert!(world.invariants.checks(Invariant::Mig1) > 0 && world.invariants.checks(Invariant::Mig3) > 0);

    // Something of the target is lost, and the source still has it: reads moved too early, or somebody has deleted it.
    let target = world.target.as_movables().orders.moving;
    let row = target.rows("orders", None, 1).await.unwrap().items.remove(0);
    target.remove("orders", &row).await.unwrap();
    sleep(HOUR).await;
    let status = world
        .until("compared after an hour", |status| {
            status.outcomes.last().is_some_and(|last| last.differences.contains_key(&Kind::Extra))
        })
        .await;
    assert_eq!(status.recheck.unwrap().first_differences.len(), 1);
    assert_eq!(world.invariants.violations(Invariant::Mig1), 1);
    assert_eq!(world.invariants.violations(Invariant::Mig2), 1);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_hangs_costs_no_shopper_anything_and_is_not_taken_for_a_difference() {
    let world = world();
    world.entity.ready().await;
    world.insert((0..10).map(|n| in_month(n, "2011-01")).collect()).await;
    world.act(Action::Start).await;
    world.bring(Phase::Verify).await;
    let asked = |status: &Status| status.shadow.as_ref().map_or(0, |shadow| shadow.asked);
    for n in 0..10 {
        world.shop().get(id(n)).await.unwrap();
    }
    world.until("asked", |status| asked(status) >= 5).await;

    world.target_faults.hang(true);
    let started = Instant::now();
    for n in 0..200 {
        world.shop().get(id(n % 10)).await.unwrap();
        let change = StatusChange { status: OrderStatus::Paid, at: world.entity.clock.now(), operator: None };
        world.shop().transition(id(n % 10), OrderStatus::Confirmed, change).await.unwrap();
    }
    // The model answers at once, and nobody has waited for anybody else.
    assert_eq!(started.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(30)).await;
    world.target_faults.hang(false);
    let status = world
        .until("copied", |status| status.backlog.values().flatten().all(|left| left.entities == 0))
        .await;
    let shadow = status.shadow.unwrap();
    assert_eq!(shadow.different, 0, "{shadow:?}");
    assert!(shadow.untold > 0 && shadow.skipped > 0, "{shadow:?}");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_differs_is_counted_shown_and_keeps_reads_where_they_are() {
    let world = world();
    world.entity.ready().await;
    world.insert((0..10).map(|n| in_month(n, "2011-01")).collect()).await;
    world.act(Action::Start).await;
    world.bring(Phase::Verify).await;
    world.until("equal", |status| status.verification.as_ref().is_some_and(|found| found.is_green)).await;
    let target = world.target.as_movables().orders.moving;
    let rows = target.rows("orders", None, 100).await.unwrap().items;
    target.remove("orders", rows.iter().find(|row| row.key == id(3)).unwrap()).await.unwrap();
    world.shop().get(id(3)).await.unwrap();
    let status = world
        .until("noticed", |status| status.shadow.as_ref().is_some_and(|shadow| shadow.different == 1))
        .await;
    let sample = &status.shadow.unwrap().samples[0];
    assert_eq!(
        (sample.what.as_str(), sample.fields["status"].as_slice()),
        ("an order", ["confirmed", "nothing"].map(str::to_owned).as_slice())
    );
    let refused = world.entity.act(Action::Advance).await.unwrap_err();
    assert!(refused.to_string().contains("1 reads of shoppers were answered differently"), "{refused}");
    // Once it is mended and everything was compared anew, it counts no longer.
    world.act(Action::Repair).await;
    world.bring(Phase::ReadTarget).await;
}

/// In a time of its own, so that no machine is too slow: between healthy stores a handover is over before
/// any write is refused, there and back.
#[tokio::test(start_paused = true)]
async fn a_handover_makes_writes_wait_and_refuses_none() {
    let world = world();
    world.entity.ready().await;
    world.insert((0..10).map(|n| in_month(n, "2011-01")).collect()).await;
    world.act(Action::Start).await;
    let (shop, is_over) = (world.shop().clone(), Arc::new(AtomicBool::new(false)));
    let waits: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let buying = tokio::spawn({
        let (is_over, waits) = (is_over.clone(), waits.clone());
        async move {
            let mut bought = 100;
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                shop.insert(vec![in_month(bought, "2011-02")]).await.expect("nobody is refused");
                waits.lock().unwrap().push(began.elapsed());
                bought += 1;
                sleep(Duration::from_millis(10)).await;
            }
            bought
        }
    });
    for (from, to) in [(Phase::Verify, Phase::ReadTarget), (Phase::ReadTarget, Phase::Verify)] {
        world.bring(from).await;
        waits.lock().unwrap().clear();
        world.bring(to).await;
        let longest = waits.lock().unwrap().iter().copied().max().expect("somebody bought");
        assert!(longest > Duration::ZERO, "no write was made while {to} was reached");
        assert!(longest < TIMING.handover_wait_max, "a write waited {longest:?} until {to}");
    }
    is_over.store(true, Ordering::Relaxed);
    let bought = buying.await.expect("nobody is refused");
    world.until("copied", |status| status.backlog.values().flatten().all(|left| left.entities == 0)).await;
    for n in (0..10).chain(100..bought) {
        assert!(world.in_target(n).await, "MIG-1: {n}");
        assert!(world.shop().get(id(n)).await.unwrap().is_some(), "MIG-1: {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing_and_says_how_much_there_is() {
    let world = world();
    world.entity.ready().await;
    world.insert((0..40).map(|n| in_month(n, if n < 30 { "2011-01" } else { "2011-02" })).collect()).await;
    let plan = world.entity.plan().await.unwrap();
    assert_eq!((plan.entities, plan.sampled, plan.in_target), (40, 40, Some(0)));
    let counted: Vec<(String, u64)> = plan.months.iter().map(|(month, n)| (month.to_string(), *n)).collect();
    assert_eq!(counted, [("2011-01".to_owned(), 30), ("2011-02".to_owned(), 10)]);
    assert!(plan.bytes > 0 && plan.problems.is_empty(), "{plan:?}");
    assert!(world.entity.status().await.unwrap().is_none());
}
