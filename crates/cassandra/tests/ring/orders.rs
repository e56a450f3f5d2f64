//! Orders on a real ring.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use mobimir_cassandra::{CassandraOrderHistory, CassandraOrders, Cluster, OrderOptions, RequestLog};
use mobimir_core::{
    id::{self, OrderId, UserId},
    order::{Order, OrderLine, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    policy::{self, CassandraSettings, Entity, HistoryBucket, OrderBuckets, Policy, StatusLayout},
    ports::{DayFilter, OrderHistoryStore, OrderStore, Period, StoreError, StoreResult, Stores, Transition},
    time::{Clock, SystemClock, Timestamp, Version},
    zone::Zone,
};
use mobimir_testkit::{
    conformance::{self, ConformanceOptions},
    model::ModelStore,
};

use crate::support::{self, Quiet, until_answered};

/// Heals at once what is left over.
pub(crate) const EAGER: OrderOptions =
    OrderOptions { heal_every: Duration::from_millis(200), heal_after: Duration::from_millis(500) };

/// Leaves everything to whoever asks.
pub(crate) const CALM: OrderOptions =
    OrderOptions { heal_every: Duration::from_secs(3_600), heal_after: Duration::from_secs(3_600) };

pub(crate) async fn open(
    cluster: &Arc<Cluster>,
    policy: &Policy,
    options: OrderOptions,
) -> Arc<CassandraOrders> {
    let settings = support::settings(policy, Entity::Orders);
    open_with(cluster, settings, policy.orders.buckets, options).await
}

pub(crate) async fn open_with(
    cluster: &Arc<Cluster>,
    settings: CassandraSettings,
    buckets: OrderBuckets,
    options: OrderOptions,
) -> Arc<CassandraOrders> {
    let orders = CassandraOrders::open(cluster.clone(), settings, buckets, options).await;
    Arc::new(orders.expect("orders can be opened"))
}

/// Nobody looks for a new count while requests are counted.
pub(crate) fn unwatched(policy: &Policy) -> OrderBuckets {
    OrderBuckets { refresh: policy::Period::days(365), ..policy.orders.buckets }
}

pub(crate) fn conform(policy_name: &str, options: ConformanceOptions) {
    let ring = support::shared();
    let policy = support::policy(policy_name);
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Orders]).await;
        Stores {
            orders: open(&fresh.cluster, &policy, OrderOptions::default()).await,
            ..ModelStore::stores()
        }
    };
    conformance::orders(&factory, options);
}

pub(crate) fn options() -> ConformanceOptions {
    support::options(2)
}

fn layouts(policy_name: &str) -> (Option<StatusLayout>, Option<HistoryBucket>) {
    let settings = support::settings(&support::policy(policy_name), Entity::Orders);
    (settings.status, settings.history_bucket)
}

#[test]
fn conformance_with_the_status_in_a_column() {
    assert_eq!(layouts("default"), (Some(StatusLayout::Column), Some(HistoryBucket::Month)));
    conform("default", options());
}

pub(crate) fn conform_history(policy_name: &str, options: ConformanceOptions) {
    let settings = support::settings(&support::policy(policy_name), Entity::OrderHistory);
    conform_history_with(policy_name, settings, options);
}

fn conform_history_with(policy_name: &str, settings: CassandraSettings, options: ConformanceOptions) {
    let ring = support::shared();
    let policy = support::policy(policy_name);
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::OrderHistory]).await;
        let history = CassandraOrderHistory::open(fresh.cluster.clone(), settings.clone()).await;
        let history: Arc<dyn OrderHistoryStore> = Arc::new(history.expect("the history can be opened"));
        history
    };
    conformance::order_history(&factory, options);
}

#[test]
fn conformance_of_a_history_by_month() {
    let mut settings = support::settings(&support::policy("history-only"), Entity::OrderHistory);
    assert_eq!(settings.history_bucket.replace(HistoryBucket::Month), Some(HistoryBucket::None));
    conform_history_with("history-only", settings, options());
}

pub(crate) fn order(user: UserId, key: &str, created_at: Timestamp) -> Order {
    Order {
        id: OrderId::of(user, key),
        user_id: user,
        status: OrderStatus::Paid,
        geo_zone: Zone::parse("MSK").expect("this is a zone"),
        lines: Vec::new(),
        shipping_address: Some("Тверская, 1".into()),
        payment_method: None,
        created_at,
        updated_at: created_at,
        bucket: 0,
        version: Version::default().next(created_at),
    }
}

pub(crate) fn user() -> UserId {
    UserId(id::fresh(SystemClock.now()))
}

pub(crate) fn change(status: OrderStatus) -> StatusChange {
    StatusChange { status, at: SystemClock.now(), operator: None }
}

pub(crate) async fn whole(
    read: impl AsyncFn(Option<OrderPosition>) -> StoreResult<Page<Order, OrderPosition>>,
) -> Vec<Order> {
    let mut orders = Vec::new();
    let mut after = None;
    loop {
        let page = read(after).await.expect("a page can be read");
        orders.extend(page.items);
        after = page.next;
        if after.is_none() {
            return orders;
        }
    }
}

pub(crate) async fn whole_day(orders: &CassandraOrders, at: Timestamp) -> Vec<Order> {
    whole(async |after| orders.by_day(at.day(), DayFilter::default(), after, 100).await).await
}

pub(crate) async fn whole_history(orders: &CassandraOrders, user: UserId) -> Vec<Order> {
    whole(async |after| orders.by_user(user, Period::default(), after, 100).await).await
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime can be started").block_on(future)
}

/// All that was asked until a note is removed, which nobody waits for.
async fn until_note_removed(log: &RequestLog) -> Vec<&'static str> {
    let mut statements = Vec::new();
    support::until("the note is removed", support::PATIENCE, async || {
        statements.extend(log.take().iter().map(|seen| seen.statement));
        statements.contains(&"remove_note")
    })
    .await;
    statements
}

/// Round trips, one after the other, that whoever writes an order waits for. None if something was sent twice.
async fn rounds_of(
    cluster: &Cluster,
    log: &RequestLog,
    orders: &CassandraOrders,
    order: &Order,
) -> Option<usize> {
    log.take_rounds();
    let quiet = Quiet::from_now_on(cluster);
    orders.insert(vec![order.clone()]).await.unwrap();
    let (rounds, quiet) = (log.take_rounds(), quiet.is_so());
    until_note_removed(log).await;
    quiet.then_some(rounds)
}

/// The statements of a look, and how many requests they were.
async fn asked(cluster: &Cluster, log: &RequestLog, look: impl AsyncFn()) -> (Vec<&'static str>, usize) {
    support::until_some("a look is answered at once", async || {
        log.take();
        let (before, quiet) = (log.counts().0, Quiet::from_now_on(cluster));
        look().await;
        let statements: Vec<&'static str> = log.take().iter().map(|seen| seen.statement).collect();
        quiet.is_so().then(|| (statements, log.counts().0 - before))
    })
    .await
}

#[test]
fn an_order_takes_two_round_trips_and_each_look_at_it_one() {
    let ring = support::shared();
    // One thread: what is left to the background does not run before the round trips are counted.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for name in ["default", "status-log"] {
        let policy = support::policy(name);
        runtime.block_on(async {
            let fresh = support::watched(ring.ring, &policy, &[Entity::Orders]).await;
            let settings = support::settings(&policy, Entity::Orders);
            let orders = open_with(&fresh.cluster, settings, unwatched(&policy), CALM).await;
            let (cluster, log) = (&fresh.cluster, fresh.log.as_deref().expect("it is watched"));
            let now = SystemClock.now();
            // In partitions that are new, and in some that are known. The note is removed when the order is there.
            let mut bucket = 0;
            let (first, rounds) = support::until_some("an order is written at once", async || {
                bucket += 1;
                let first = Order { bucket, ..order(user(), "first", now) };
                let rounds = rounds_of(cluster, log, &orders, &first).await?;
                Some((first, rounds))
            })
            .await;
            assert_eq!(rounds, 2, "{name}: round trips, one after the other");
            let customer = first.user_id;
            let mut written: usize = 1;
            let rounds = support::until_some("another order is written at once", async || {
                written += 1;
                let another = Order { bucket, ..order(customer, &written.to_string(), now) };
                rounds_of(cluster, log, &orders, &another).await
            })
            .await;
            assert_eq!(rounds, 2, "{name}: round trips, one after the other");

            let get = asked(cluster, log, async || drop(orders.get(first.id).await.unwrap())).await;
            assert_eq!(get, (vec!["get"], 1), "{name}");
            let history = asked(cluster, log, async || drop(orders.history(first.id).await.unwrap())).await;
            assert_eq!(history, (vec!["history"], 1), "{name}");
            let by_user = asked(cluster, log, async || {
                let page = orders.by_user(customer, Period::default(), None, 1_000).await.unwrap();
                assert_eq!(page.items.len(), written);
            })
            .await;
            assert_eq!(by_user, (vec!["registered", "by_user"], 2), "{name}");

            // One instance that knows the slot of its notes, which is a minute: in a new one, it is registered.
            let mut statements = support::until_some("an order is moved at once", async || {
                written += 1;
                let made = Order { bucket, ..order(customer, &written.to_string(), now) };
                rounds_of(cluster, log, &orders, &made).await?;
                let quiet = Quiet::from_now_on(cluster);
                let moved = orders.transition(made.id, OrderStatus::Paid, change(OrderStatus::Shipped)).await;
                assert!(matches!(moved, Ok(Transition::Moved(_))), "{moved:?}");
                let quiet = quiet.is_so();
                let statements = until_note_removed(log).await;
                (quiet && !statements.contains(&"register")).then_some(statements)
            })
            .await;
            statements[3..].sort_unstable();
            assert_eq!(
                statements,
                ["get", "note", "move", "put_by_day", "put_by_user", "remove_note"],
                "{name}"
            );
        });
    }
}

/// An order larger than the cluster takes in one batch is as whole as any other.
#[test]
fn large_orders_are_written_whole() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::common(ring.ring, &policy, &[Entity::Orders]).await;
        let orders = open(&fresh.cluster, &policy, CALM).await;
        let now = SystemClock.now();
        let small = order(user(), "large", now);
        let line = OrderLine {
            product_id: id::fresh(now).into(),
            name: "n".repeat(300),
            category: "c".to_owned(),
            price: mobimir_core::money::PRICE_MAX,
            quantity: 1,
        };
        let large = Order { lines: vec![line; 100], ..small };
        orders.insert(vec![large.clone()]).await.unwrap();
        assert_eq!(orders.get(large.id).await.unwrap().as_ref(), Some(&large));
        assert_eq!(whole_history(&orders, large.user_id).await, std::slice::from_ref(&large));
        let mut listed = whole_day(&orders, now).await;
        listed.retain(|order| order.id == large.id);
        assert_eq!(listed, [large]);
    });
}

/// How often something is done to see how long it takes: one of them may be late.
const MEASURED: usize = 3;

/// Whoever moves orders dies at any moment. What was decided shows in every list some seconds later.
#[test]
fn lists_follow_whatever_dies_in_between() {
    const ORDERS: usize = 32;
    let ring = support::shared();
    for name in ["default", "status-log"] {
        let policy = support::policy(name);
        block_on(async {
            let fresh = support::fresh(ring.ring, &policy, &[Entity::Orders]).await;
            let (now, customer) = (SystemClock.now(), user());
            let mut made: Vec<Order> = Vec::new();
            // As often as it takes: where nothing was torn, nothing was tried.
            let torn = support::until_some("something is torn", async || {
                let dying = open(&fresh.cluster, &policy, CALM).await;
                let before = made.len();
                let some: Vec<Order> = (0..ORDERS)
                    .map(|n| Order {
                        bucket: n as u16 % 5,
                        ..order(customer, &(before + n).to_string(), now)
                    })
                    .collect();
                assert_eq!(dying.insert(some.clone()).await.unwrap(), ORDERS);
                let mut takes = Duration::MAX;
                for order in &some[..MEASURED] {
                    let started = Instant::now();
                    let one =
                        dying.transition(order.id, OrderStatus::Paid, change(OrderStatus::Shipped)).await;
                    assert!(matches!(one, Ok(Transition::Moved(_))), "{one:?}");
                    takes = takes.min(started.elapsed());
                }
                for (n, order) in some.iter().enumerate().skip(MEASURED) {
                    let (dying, id) = (dying.clone(), order.id);
                    let moving = tokio::spawn(async move {
                        dying.transition(id, OrderStatus::Paid, change(OrderStatus::Shipped)).await
                    });
                    tokio::time::sleep(takes * (n as u32 % 16) / 12).await;
                    moving.abort();
                }
                drop(dying);
                made.extend(some);
                let other = open(&fresh.cluster, &policy, CALM).await;
                let torn = torn(&other, &made).await;
                (torn > 0).then_some(torn)
            })
            .await;
            let healing = open(&fresh.cluster, &policy, EAGER).await;
            let started = Instant::now();
            support::until("all lists agree", support::PATIENCE, async || {
                self::torn(&healing, &made).await == 0
            })
            .await;
            println!(
                "{name}: {torn} of {} orders were torn, healed within {:?}",
                made.len(),
                started.elapsed()
            );
        });
    }
}

/// How many orders stand in some list otherwise than they do.
async fn torn(orders: &CassandraOrders, made: &[Order]) -> usize {
    let by_user: BTreeMap<OrderId, Order> =
        whole_history(orders, made[0].user_id).await.into_iter().map(|order| (order.id, order)).collect();
    let by_day: BTreeMap<OrderId, Order> =
        whole_day(orders, made[0].created_at).await.into_iter().map(|order| (order.id, order)).collect();
    let stands =
        try_join_all(made.iter().map(|order| orders.get(order.id))).await.expect("orders can be read");
    let is_torn = |(order, stands): &(&Order, Option<Order>)| {
        stands.is_none() || [&by_user, &by_day].iter().any(|list| list.get(&order.id) != stands.as_ref())
    };
    made.iter().zip(stands).filter(is_torn).count()
}

/// Two instances know nothing of each other but what the cluster says.
#[test]
fn two_instances_never_both_move_an_order() {
    const CALLERS: usize = 8;
    let ring = support::shared();
    for name in ["default", "status-log"] {
        let policy = support::policy(name);
        block_on(async {
            let fresh = support::common(ring.ring, &policy, &[Entity::Orders]).await;
            let second = support::connect(ring.ring, &policy, &fresh.prefix, None).await;
            let instances = [open(&fresh.cluster, &policy, EAGER).await, open(&second, &policy, EAGER).await];
            for round in 0..10 {
                let made = order(user(), "contended", SystemClock.now());
                instances[0].insert(vec![made.clone()]).await.unwrap();
                let tasks: Vec<_> = (0..CALLERS)
                    .map(|caller| {
                        let (orders, id) = (instances[caller % 2].clone(), made.id);
                        let to = if caller % 4 < 2 { OrderStatus::Shipped } else { OrderStatus::Cancelled };
                        tokio::spawn(
                            async move { orders.transition(id, OrderStatus::Paid, change(to)).await },
                        )
                    })
                    .collect();
                let mut moved = Vec::new();
                let mut seen = BTreeSet::new();
                for task in tasks {
                    match task.await.unwrap().unwrap() {
                        Transition::Moved(order) => moved.push(order),
                        Transition::StandsAt(status) => drop(seen.insert(status)),
                        Transition::NoSuchOrder => panic!("the order is there"),
                    }
                }
                assert_eq!(moved.len(), 1, "{name}, round {round}");
                assert!(seen.iter().all(|status| *status == moved[0].status), "{name}: {seen:?}");
                assert_eq!(instances[1].get(made.id).await.unwrap().as_ref(), Some(&moved[0]));
                assert_eq!(instances[1].history(made.id).await.unwrap().len(), 2);
                assert_eq!(whole_history(&instances[1], made.user_id).await, moved);
            }
        });
    }
}

/// They hurt the servers, so nothing else may run beside them.
mod alone {
    use super::*;

    /// Nodes stop answering in the middle of decisions. Whoever gets an answer can rely on it.
    #[test]
    fn a_lost_answer_is_never_a_wrong_one() {
        const ORDERS: usize = 100;
        let alone = support::alone();
        let ring = alone.ring;
        let policy = support::policy("default");
        let mut settings = support::settings(&policy, Entity::Orders);
        settings.timeout = policy::Period::millis(1_000);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let fresh = runtime.block_on(support::common(ring, &policy, &[Entity::Orders]));
        let (made, lost) = support::while_nodes_hang(ring, || {
            runtime.block_on(async {
                let opened = support::answered("orders can be opened", || {
                    let buckets = policy.orders.buckets;
                    CassandraOrders::open(fresh.cluster.clone(), settings.clone(), buckets, EAGER)
                });
                let orders = Arc::new(opened.await);
                let (mut made, mut lost) = (Vec::new(), 0);
                let customer = user();
                for round in 0..ORDERS / 10 {
                    let tasks: Vec<_> = (0..10)
                        .map(|n| {
                            let order = order(customer, &format!("{round}/{n}"), SystemClock.now());
                            tokio::spawn(contend(orders.clone(), order))
                        })
                        .collect();
                    for task in tasks {
                        let (order, lost_here) = task.await.unwrap();
                        lost += lost_here;
                        made.extend(order);
                    }
                }
                (made, lost)
            })
        });
        ring.wait_formed().unwrap();
        assert!(lost > 0, "no answer was lost, so nothing was tried");
        runtime.block_on(async {
            let healing = open(&fresh.cluster, &policy, EAGER).await;
            support::until("all lists agree", support::PATIENCE, async || torn(&healing, &made).await == 0)
                .await;
            println!("{} orders, {lost} answers lost", made.len());
            // Each move is in the history once, whatever was lost.
            for order in &made {
                let history = healing.history(order.id).await.unwrap();
                assert!(history.len() <= 2, "{history:?}");
            }
        });
    }
}

/// Several want to move one order. Gives the order if it was written, and how many did not learn what became of it.
async fn contend(orders: Arc<CassandraOrders>, made: Order) -> (Option<Order>, usize) {
    const CALLERS: usize = 4;
    if until_answered(|| orders.insert(vec![made.clone()])).await.is_none() {
        return (None, 1);
    }
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (orders, id) = (orders.clone(), made.id);
            let to = if caller % 2 == 0 { OrderStatus::Shipped } else { OrderStatus::Cancelled };
            tokio::spawn(async move { orders.transition(id, OrderStatus::Paid, change(to)).await })
        })
        .collect();
    let (mut moved, mut seen, mut lost) = (Vec::new(), Vec::new(), 0);
    for task in tasks {
        match task.await.expect("nobody panics") {
            Ok(Transition::Moved(order)) => moved.push(order),
            Ok(Transition::StandsAt(status)) => seen.push(status),
            Ok(Transition::NoSuchOrder) => panic!("the order was acknowledged"),
            Err(StoreError::Corrupt { what, .. }) => panic!("{what}"),
            Err(_) => lost += 1,
        }
    }
    let stands = until_answered(|| orders.get(made.id)).await.flatten().expect("the order is there");
    assert!(moved.len() <= 1, "ORD-3: {} moved one order", moved.len());
    assert!(moved.iter().all(|order| *order == stands), "who moved it was told otherwise than it stands");
    assert!(
        seen.iter().all(|status| *status == stands.status),
        "{seen:?}, but it stands at {}",
        stands.status
    );
    (Some(made), lost)
}
