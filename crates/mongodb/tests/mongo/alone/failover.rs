//! Primaries are killed in the middle of racing writes: what was acknowledged is there, once; what was refused is not; what
//! is unknown is either, and may be repeated.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future;
use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    id::{self, ChangeId, ProductId, UserId},
    order::{OrderStatus, StatusChange},
    policy::Entity,
    ports::{CartStore, DayFilter, OrderStore, Period, SessionStore, StoreError, Transition},
    session::{RefreshUse, Session},
    time::{Clock, SystemClock},
};
use mobimir_lab::Mongo;
use mobimir_mongodb::{Deployment, MongoCarts, MongoConfig, MongoOrders, MongoSessions};

use crate::{
    orders::order,
    sessions::{session, token},
    support::{self, Fresh, answered},
};

const KILLS: usize = 2;
/// A busy machine may need more until everything has been tried.
const KILLS_MAX: usize = 20;
const ORDERS_MIN: usize = 20;
const ROUNDS_MIN: usize = 5;
const WRITERS: usize = 12;
const INSTANCES: usize = 3;

type Instances<T> = [Arc<T>; INSTANCES];

/// What has been done so far.
#[derive(Default)]
struct Done {
    /// By their outcome.
    adds: [AtomicUsize; 3],
    orders: AtomicUsize,
    rounds: AtomicUsize,
}

impl Done {
    fn is_enough(&self) -> bool {
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        self.adds.iter().all(|adds| count(adds) > 0)
            && count(&self.orders) > ORDERS_MIN
            && count(&self.rounds) > ROUNDS_MIN
    }
}

/// Says that it has ended, however it ends.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Kills the primary some times, each time when the set is whole, and works meanwhile.
fn while_primaries_die<T>(
    mongo: &Mongo,
    runtime: &tokio::runtime::Runtime,
    done: &Done,
    work: impl AsyncFnOnce(&AtomicBool) -> T,
) -> T {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ending = Ending(&ended);
            for kill in 1..=KILLS_MAX {
                std::thread::sleep(Duration::from_millis(700));
                let primary = mongo.wait_primary().expect("a primary");
                mongo.kill(primary).expect("it can be killed");
                mongo.wait_primary().expect("another one");
                std::thread::sleep(Duration::from_millis(700));
                mongo.start_member(primary).expect("it comes back");
                mongo.wait_ready().expect("the set is whole");
                if kill >= KILLS && done.is_enough() {
                    return;
                }
            }
        });
        runtime.block_on(work(&ended))
    })
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Acknowledged,
    Refused,
    Unknown,
}

fn outcome<T>(answer: Result<T, StoreError>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Acknowledged,
        Err(StoreError::Unavailable { .. }) => Outcome::Refused,
        Err(StoreError::Unknown { .. }) => Outcome::Unknown,
        Err(StoreError::Corrupt { what, .. }) => panic!("{what}"),
    }
}

/// One instance that waits until there is a primary again, one that does not wait for answers, and one that does not wait for
/// a primary.
async fn open<T>(fresh: &Fresh, open: impl Fn(Arc<Deployment>) -> T) -> Instances<T> {
    let patient = MongoConfig { timeout: Duration::from_secs(60), ..MongoConfig::default() };
    let patient = MongoConfig { connect_timeout: Duration::from_secs(60), ..patient };
    let hasty = MongoConfig { timeout: Duration::from_millis(400), ..MongoConfig::default() };
    let proud = MongoConfig { connect_timeout: Duration::from_millis(400), ..MongoConfig::default() };
    let [patient, hasty, proud] = [patient, hasty, proud].map(|config| fresh.another_with(config));
    [patient.await, hasty.await, proud.await].map(|deployment| Arc::new(open(deployment)))
}

#[test]
fn what_was_acknowledged_survives_its_primary() {
    let alone = support::alone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_fresh, carts, orders, sessions) = runtime.block_on(async {
        let entities = [Entity::Carts, Entity::Orders, Entity::Sessions];
        let fresh = support::fresh(alone.mongo, &entities).await;
        let carts = open(&fresh, MongoCarts::new).await;
        let orders = open(&fresh, MongoOrders::new).await;
        let sessions = open(&fresh, MongoSessions::new).await;
        (fresh, carts, orders, sessions)
    });
    let done = Done::default();
    while_primaries_die(alone.mongo, &runtime, &done, async |ended| {
        let orders = orders_and_moves(&orders, ended, &done);
        let sessions = changes_of_sessions(&sessions, ended, &done);
        future::join3(adds(&carts, ended, &done), orders, sessions).await;
    });
}

async fn adds(instances: &Instances<MongoCarts>, ended: &AtomicBool, done: &Done) {
    let now = SystemClock.now();
    let owner = Owner::User(UserId(id::fresh(now)));
    // Each adds a product of its own, so that each can be told apart in what it all folds to.
    let writers = (0..WRITERS).map(|writer| {
        let carts = instances[writer % INSTANCES].clone();
        async move {
            let mut written = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                let product = ProductId(id::fresh(now));
                let effect = Effect::Add { product, quantity: 1, zone: None };
                let id = ChangeId(product.0);
                let change = CartChange { id, at: now, origin: owner, keyed: true, effect };
                let add = || carts.append(owner, vec![change.clone()], now.plus_s(3_600), now);
                let mut result = outcome(add().await);
                if result == Outcome::Unknown && written.len() % 2 == 0 {
                    answered(async || add().await).await;
                    result = Outcome::Acknowledged;
                }
                written.push((product, result));
                done.adds[result as usize].fetch_add(1, Ordering::SeqCst);
                if written.len() % 5 == 0 {
                    // Whoever reads packs.
                    let _ = carts.read(owner, now).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            written
        }
    });
    let written: Vec<_> = future::join_all(writers).await.into_iter().flatten().collect();
    let cart = answered(async || instances[0].read(owner, now).await).await.expect("the cart");
    let view = cart::fold(&cart.changes);
    let mut counts = [0; 3];
    for (product, outcome) in &written {
        let quantity = view.quantity(*product);
        counts[*outcome as usize] += 1;
        match outcome {
            Outcome::Acknowledged => assert_eq!(quantity, 1, "CRT-1: an acknowledged add"),
            Outcome::Refused => assert_eq!(quantity, 0, "an add that was refused"),
            Outcome::Unknown => assert!(quantity <= 1, "CRT-1: {quantity} of one add"),
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "not everything was tried: {counts:?}");
}

async fn orders_and_moves(instances: &Instances<MongoOrders>, ended: &AtomicBool, done: &Done) {
    const CALLERS: usize = INSTANCES;
    let now = SystemClock.now().day().start().plus_s(12 * 3_600);
    let user = UserId(id::fresh(now));
    let (made, moves) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let writers = (0..WRITERS / CALLERS).map(|writer| {
        let (made, moves) = (&made, &moves);
        async move {
            let mut acknowledged = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                let key = format!("{writer}-{}", made.fetch_add(1, Ordering::SeqCst));
                let order = order(user, &key, now);
                let insert = async || instances[writer % INSTANCES].insert(vec![order.clone()]).await;
                match outcome(insert().await) {
                    Outcome::Acknowledged => {}
                    Outcome::Refused => {
                        let found = answered(async || instances[0].get(order.id).await).await;
                        assert!(found.is_none(), "an order that was refused is there");
                        continue;
                    }
                    Outcome::Unknown => {
                        answered(insert).await;
                    }
                }
                // Several pay it at once; one does.
                let pay = |caller: usize| {
                    let operator = Some(caller.to_string());
                    let change = StatusChange { status: OrderStatus::Paid, at: now, operator };
                    instances[caller % INSTANCES].transition(order.id, OrderStatus::Confirmed, change)
                };
                let answers = future::join_all((0..CALLERS).map(pay)).await;
                let winners: Vec<usize> = (0..CALLERS)
                    .filter(|caller| matches!(answers[*caller], Ok(Transition::Moved(_))))
                    .collect();
                assert!(winners.len() <= 1, "ORD-3: {} moved one order", winners.len());
                let unknown = |caller: &usize| matches!(answers[*caller], Err(StoreError::Unknown { .. }));
                let history = answered(async || instances[0].history(order.id).await).await;
                let paid: Vec<Option<usize>> = history[1..]
                    .iter()
                    .map(|change| change.operator.as_ref().and_then(|caller| caller.parse().ok()))
                    .collect();
                match (winners.first(), &paid[..]) {
                    (Some(winner), [Some(mover)]) => assert_eq!(winner, mover, "ORD-3"),
                    (None, [Some(mover)]) => assert!(unknown(mover), "{mover} was told otherwise"),
                    (None, []) => {}
                    other => panic!("ORD-3: {other:?}"),
                }
                moves.fetch_add(paid.len(), Ordering::SeqCst);
                acknowledged.push(order.id);
                done.orders.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            acknowledged
        }
    });
    let acknowledged: Vec<_> = future::join_all(writers).await.into_iter().flatten().collect();
    assert!(acknowledged.len() > ORDERS_MIN, "{} orders, {moves:?} moves", acknowledged.len());
    let all = DayFilter::default();
    let by_day = answered(async || instances[0].by_day(now.day(), all, None, 100_000).await).await;
    let by_user = answered(async || instances[0].by_user(user, Period::default(), None, 100_000).await).await;
    for list in [by_day, by_user] {
        let mut listed: Vec<_> = list.items.iter().map(|order| order.id).collect();
        listed.sort();
        let count = listed.len();
        listed.dedup();
        assert_eq!(listed.len(), count, "ORD-2");
        assert!(acknowledged.iter().all(|id| listed.binary_search(id).is_ok()), "ORD-1");
    }
}

async fn changes_of_sessions(instances: &Instances<MongoSessions>, ended: &AtomicBool, done: &Done) {
    const CALLERS: usize = 4;
    let rounds = (0..WRITERS / CALLERS).map(|_| async {
        let (mut rounds, mut lost) = (0, 0);
        while !ended.load(Ordering::SeqCst) {
            lost += contend(instances, CALLERS).await;
            rounds += 1;
            done.rounds.fetch_add(1, Ordering::SeqCst);
        }
        (rounds, lost)
    });
    let rounds = future::join_all(rounds).await;
    assert!(
        rounds.iter().map(|(rounds, _)| rounds).sum::<usize>() > ROUNDS_MIN,
        "rounds, and lost answers: {rounds:?}"
    );
}

/// Several change one session and use one token. Says how many did not learn what became of it.
async fn contend(instances: &Instances<MongoSessions>, callers: usize) -> usize {
    let now = SystemClock.now();
    let first = session(now);
    let first_token = token(&first);
    answered(async || instances[0].insert(first.clone(), Some(first_token)).await).await;
    let tries = (0..callers).map(|caller| {
        let (sessions, first) = (&instances[caller % INSTANCES], &first);
        async move {
            let device = Some(caller.to_string());
            let changed = Session { device, version: first.version.next(now), ..first.clone() };
            let given = token(first);
            let used = sessions.use_refresh(first_token.hash, now).await;
            let updated = sessions.update(changed, first.version, Some(given)).await;
            (caller, given, used, updated)
        }
    });
    let (mut lost, mut firsts) = (0, 0);
    let (mut winners, mut losers, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
    for (caller, given, used, updated) in future::join_all(tries).await {
        match used {
            Ok(RefreshUse::First(_)) => firsts += 1,
            Ok(RefreshUse::Again(_)) => {}
            Ok(RefreshUse::Unknown) => panic!("a token that was given is unknown"),
            Err(_) => lost += 1,
        }
        match updated {
            Ok(true) => winners.push((caller, given)),
            Ok(false) | Err(StoreError::Unavailable { .. }) => losers.push(given),
            Err(StoreError::Corrupt { what, .. }) => panic!("{what}"),
            Err(StoreError::Unknown { .. }) => {
                lost += 1;
                doubtful.push(caller);
            }
        }
    }
    assert!(firsts <= 1, "SES-2: {firsts} used one token for the first time");
    assert!(winners.len() <= 1, "{} changed one version", winners.len());
    let sessions = &instances[0];
    let stored = answered(async || sessions.get(first.id, now).await).await.expect("the session");
    let device = stored.device.as_deref().and_then(|device| device.parse::<usize>().ok());
    match (winners.first(), device) {
        (Some((winner, given)), device) => {
            assert_eq!(device, Some(*winner));
            let used = answered(async || sessions.use_refresh(given.hash, now).await).await;
            assert_ne!(used, RefreshUse::Unknown, "the winner's token does not work");
        }
        (None, Some(device)) => assert!(doubtful.contains(&device), "{device} was told that it lost"),
        (None, None) => {}
    }
    for given in losers {
        let used = answered(async || sessions.use_refresh(given.hash, now).await).await;
        assert_eq!(used, RefreshUse::Unknown, "a loser has left a token behind");
    }
    lost
}
