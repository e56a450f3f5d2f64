//! Lists of orders on a real ring: long ones, spread ones, and those that live apart from the orders.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use mobimir_cassandra::CassandraOrderHistory;
use mobimir_core::{
    id::OrderId,
    moving::OrderSide,
    order::{Order, OrderPosition, OrderStatus},
    policy::{self, Entity, HistoryBucket, OrderBuckets},
    ports::{OrderHistoryStore, OrderStore, Period, Stores, Transition},
    time::{Clock, SystemClock, Timestamp},
};
use mobimir_shop::{SeparateHistory, environment::Environment};
use mobimir_testkit::{conformance, model::ModelStore};
use scylla::value::CqlTimestamp;

use crate::{
    orders::{CALM, EAGER, block_on, change, open_with, options, order, unwatched, user, whole, whole_day},
    support::{self, Quiet, until_answered},
};

/// Orders of the customer with the longest history.
const LONG_HISTORY_VARIABLE: &str = "MOBIMIR_LONG_HISTORY";

/// A customer with very many orders: every page costs the same few requests, the first and the last.
#[test]
fn a_long_history_pages_smoothly() {
    const PAGE: usize = 50;
    let count: usize = std::env::var(LONG_HISTORY_VARIABLE).map_or(450, |text| text.parse().unwrap());
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        for bucket in [HistoryBucket::Month, HistoryBucket::None] {
            let fresh = support::watched(ring.ring, &policy, &[Entity::Orders]).await;
            let quick = support::connect(ring.ring, &policy, &fresh.prefix, None).await;
            let mut settings = support::settings(&policy, Entity::Orders);
            settings.history_bucket = Some(bucket);
            let writing = open_with(&quick, settings.clone(), policy.orders.buckets, CALM).await;
            let reading = open_with(&fresh.cluster, settings, unwatched(&policy), CALM).await;
            let log = fresh.log.as_deref().expect("it is watched");
            let customer = user();
            // Some at the same moment, over about half a year.
            let start = Timestamp::parse("2025-06-01T00:00:00Z").unwrap();
            let made: Vec<Order> = (0..count)
                .map(|n| {
                    order(customer, &n.to_string(), start.plus_s((n / 3) as i64 * 19_200_000 / count as i64))
                })
                .collect();
            let started = Instant::now();
            for some in made.chunks(500) {
                until_answered(|| writing.insert(some.to_vec())).await.expect("orders can be written");
            }
            println!("{bucket}: {count} orders written in {:?}", started.elapsed());
            let mut expected: Vec<OrderPosition> = made.iter().map(Order::position).collect();
            expected.sort_by_key(OrderPosition::key);

            let (mut listed, mut after, mut slowest) = (Vec::new(), None, Duration::ZERO);
            loop {
                let (page, requests, took) = support::until_some("a page is read at once", async || {
                    let (before, quiet) = (log.counts().0, Quiet::from_now_on(&fresh.cluster));
                    let started = Instant::now();
                    let page = reading.by_user(customer, Period::default(), after, PAGE).await.unwrap();
                    let (requests, took) = (log.counts().0 - before, started.elapsed());
                    quiet.is_so().then_some((page, requests, took))
                })
                .await;
                slowest = slowest.max(took);
                assert!(requests <= 5, "a page took {requests} requests");
                listed.extend(page.items.iter().map(Order::position));
                after = page.next;
                if after.is_none() {
                    break;
                }
                assert_eq!(page.items.len(), PAGE);
            }
            println!("{bucket}: the slowest of {} pages took {slowest:?}", count / PAGE);
            assert_eq!(listed, expected);
        }
    });
}

/// Two instances write a peak together. The count doubles once a time, and every order stands in the day once.
#[test]
fn a_peak_is_spread_over_more_buckets() {
    const AT_ONCE: usize = 4;
    let ring = support::shared();
    let policy = support::policy("default");
    let buckets = OrderBuckets {
        count: 2,
        adaptive: true,
        max: 8,
        orders_per_s_max: 1,
        refresh: policy::Period::seconds(1),
        ahead: policy::Period::seconds(2),
    };
    block_on(async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Orders]).await;
        let second = support::connect(ring.ring, &policy, &fresh.prefix, None).await;
        let settings = support::settings(&policy, Entity::Orders);
        let instances = [
            open_with(&fresh.cluster, settings.clone(), buckets, EAGER).await,
            open_with(&second, settings.clone(), buckets, EAGER).await,
        ];
        let started = SystemClock.now();
        let mut made = BTreeMap::new();
        let mut counts = BTreeSet::new();
        support::until("all spread over as many as there may be", support::PATIENCE, async || {
            for orders in &instances {
                let now = SystemClock.now();
                let count = orders.buckets().count_at(now);
                counts.insert(count);
                let peak: Vec<Order> = (0..AT_ONCE)
                    .map(|n| {
                        let order = order(user(), &n.to_string(), now);
                        Order { bucket: u16::from(order.id.as_bytes()[15]) % count, ..order }
                    })
                    .collect();
                orders.insert(peak.clone()).await.unwrap();
                made.extend(peak.into_iter().map(|order| (order.id, order)));
            }
            let now = SystemClock.now();
            instances.iter().all(|orders| orders.buckets().count_at(now) == 8)
        })
        .await;
        assert!(counts.first() == Some(&2) && counts.is_subset(&BTreeSet::from([2, 4, 8])), "{counts:?}");
        let keyspace = fresh.cluster.keyspace(Entity::Orders);
        let entries = format!(
            "SELECT number, count, effective_from FROM {keyspace}.bucket_plan WHERE plan = 0 ORDER BY number ASC"
        );
        let rows =
            fresh.cluster.session().query_unpaged(entries, ()).await.unwrap().into_rows_result().unwrap();
        let entries: Vec<(i32, i32, CqlTimestamp)> = rows.rows().unwrap().map(Result::unwrap).collect();
        let plan: Vec<(i32, i32)> = entries.iter().map(|(number, count, _)| (*number, *count)).collect();
        assert_eq!(plan, [(0, 2), (1, 4), (2, 8)], "a need is met once");
        // Both follow it, each count from its moment on.
        for orders in &instances {
            for pair in entries.windows(2) {
                let from = Timestamp::from_millis(pair[1].2.0);
                let around = [from.plus_ms(-1), from].map(|at| i32::from(orders.buckets().count_at(at)));
                assert_eq!(around, [pair[0].1, pair[1].1]);
            }
        }

        // Whoever reads need not know the plan.
        let third = open_with(&fresh.cluster, settings, policy.orders.buckets, CALM).await;
        let mut listed = Vec::new();
        for day in [started.day(), SystemClock.now().day()].into_iter().collect::<BTreeSet<_>>() {
            listed.extend(whole_day(&third, day.start()).await);
        }
        let ids: BTreeMap<OrderId, Order> = listed.iter().map(|order| (order.id, order.clone())).collect();
        assert_eq!(listed.len(), ids.len(), "no order stands there twice");
        assert_eq!(ids, made);
    });
}

/// Orders in a model, their history elsewhere.
fn separate_history(history: Arc<dyn OrderHistoryStore>) -> SeparateHistory {
    let OrderSide { port, moving, .. } = ModelStore::movables().orders;
    let outbox = Arc::new(ModelStore::default());
    SeparateHistory::new(port, history, outbox, moving, Environment::system(Arc::new(SystemClock)))
}

/// Orders on one store and their history on the ring are orders like any others.
#[test]
fn conformance_of_orders_whose_history_lives_apart() {
    let ring = support::shared();
    let policy = support::policy("history-only");
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::OrderHistory]).await;
        let settings = support::settings(&policy, Entity::OrderHistory);
        let history =
            CassandraOrderHistory::open(fresh.cluster, settings).await.expect("a history can be opened");
        let model = ModelStore::stores();
        let orders = separate_history(Arc::new(history));
        // Until then histories are read from the model.
        while !orders.is_filled() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Stores { orders: Arc::new(orders), ..model }
    };
    conformance::orders(&factory, options());
}

/// A policy that cuts histories otherwise finds what was written before, and each order once, as it stands.
#[test]
fn a_history_that_was_cut_otherwise_is_read_whole() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::common(ring.ring, &policy, &[Entity::Orders]).await;
        let opened = async |bucket| {
            let mut settings = support::settings(&policy, Entity::Orders);
            settings.history_bucket = Some(bucket);
            open_with(&fresh.cluster, settings, policy.orders.buckets, CALM).await
        };
        let customer = user();
        let start = Timestamp::parse("2025-06-01T00:00:00Z").unwrap();
        let mut expected: Vec<Order> = Vec::new();
        for (turn, bucket) in
            [HistoryBucket::Month, HistoryBucket::None, HistoryBucket::Month].into_iter().enumerate()
        {
            let orders = opened(bucket).await;
            for n in 0..6 {
                let made =
                    order(customer, &format!("{turn}/{n}"), start.plus_s(n * 20 * 86_400 + turn as i64));
                orders.insert(vec![made.clone()]).await.unwrap();
                expected.push(made);
            }
            // One of those before is moved, and so listed in another place, too.
            let paid = expected.iter_mut().filter(|order| order.status == OrderStatus::Paid);
            let earliest = paid.min_by_key(|order| order.created_at).expect("some stand where they were");
            let moved = orders.transition(earliest.id, OrderStatus::Paid, change(OrderStatus::Shipped)).await;
            let Ok(Transition::Moved(moved)) = moved else { panic!("{moved:?}") };
            *earliest = moved;
            expected.sort_by_key(|order| order.id);
            for limit in [1, 4, 100] {
                let mut listed =
                    whole(async |after| orders.by_user(customer, Period::default(), after, limit).await)
                        .await;
                assert!(listed.windows(2).all(|pair| pair[0].position().key() < pair[1].position().key()));
                listed.sort_by_key(|order| order.id);
                assert_eq!(listed, expected, "{bucket}, pages of {limit}");
            }
        }
    });
}
