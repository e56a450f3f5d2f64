//! How the server finds what is asked for, as its profiler saw it: by an index, already in order, and not much more than
//! what is returned.

use std::sync::Arc;

use mobimir_core::{
    cart::{CartChange, Effect, Owner},
    id::{self, ChangeId, ProductId, SessionId, UserId},
    order::{OrderStatus, StatusChange},
    policy::Entity,
    ports::{CartStore, DayFilter, OrderHistoryStore, OrderStore, Period, SessionStore},
    session::{Holder, Session, SessionState},
    time::{Clock, SystemClock},
};
use mobimir_mongodb::{Deployment, MongoCarts, MongoOrderHistory, MongoOrders, MongoSessions};
use mongodb::bson::{Document, doc};

use crate::{
    orders::order,
    sessions::{session, token},
    support,
};

/// Of each kind.
const DOCUMENTS: usize = 120;
const PAGE: usize = 5;

pub(crate) async fn profile(deployment: &Deployment, level: i32) {
    deployment.database().run_command(doc! { "profile": level }).await.expect("a profile can be made");
}

pub(crate) fn number(seen: &Document, field: &str) -> i64 {
    seen.get(field).and_then(|value| value.as_i64().or(value.as_i32().map(i64::from))).unwrap_or(0)
}

/// Checks everything that was asked since, and returns the plans by collection.
async fn check(deployment: &Deployment) -> Vec<(String, String)> {
    profile(deployment, 0).await;
    let name = deployment.database().name().to_owned();
    let profiled = deployment.database().collection::<Document>("system.profile");
    let mut cursor = profiled.find(doc! { "ns": { "$ne": format!("{name}.system.profile") } }).await.unwrap();
    let mut plans = Vec::new();
    while cursor.advance().await.unwrap() {
        let seen: Document = cursor.deserialize_current().unwrap();
        let Ok(plan) = seen.get_str("planSummary") else { continue };
        assert!(plan.contains("IXSCAN") || plan.contains("IDHACK"), "no index: {seen}");
        assert!(!plan.contains("COLLSCAN"), "no index: {seen}");
        assert!(!seen.get_bool("hasSortStage").unwrap_or(false), "sorted by hand: {seen}");
        let (examined, returned) = (number(&seen, "docsExamined"), number(&seen, "nreturned"));
        assert!(examined <= returned.max(1) + 1, "{examined} read for {returned}: {seen}");
        let keys = number(&seen, "keysExamined");
        assert!(keys <= 2 * (returned + 2), "{keys} keys for {returned}: {seen}");
        plans.push((seen.get_str("ns").unwrap().replace(&format!("{name}."), ""), plan.to_owned()));
    }
    plans.sort();
    plans.dedup();
    plans
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn carts_are_found_by_index() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let (carts, now) = (MongoCarts::new(fresh.deployment.clone()), SystemClock.now());
    let mut owners = Vec::new();
    for n in 0..DOCUMENTS {
        let owner = Owner::User(UserId(id::fresh(now)));
        let effect = Effect::Add { product: ProductId(id::fresh(now)), quantity: 1, zone: None };
        let change =
            CartChange { id: ChangeId(id::fresh(now)), at: now, origin: owner, keyed: false, effect };
        // Some at the same moment.
        let touched_at = now.plus_s(-((n / 10) as i64));
        carts.append(owner, vec![change], now.plus_s(3_600), touched_at).await.unwrap();
        owners.push(owner);
    }
    profile(&fresh.deployment, 2).await;
    carts.append(owners[0], Vec::new(), now.plus_s(7_200), now).await.unwrap();
    assert!(carts.read(owners[0], now).await.unwrap().is_some());
    let mut after = None;
    let mut met = 0;
    while met < 30 {
        let page = carts.untouched(now.plus_s(-1), after, PAGE, now).await.unwrap();
        met += page.items.len();
        after = page.next;
        assert!(after.is_some());
    }
    let plans = check(&fresh.deployment).await;
    assert!(plans.iter().any(|(_, plan)| plan.contains("updated_at: 1, _id: 1")), "{plans:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_found_by_index() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Orders, Entity::OrderHistory]).await;
    let orders = MongoOrders::new(fresh.deployment.clone());
    let history = MongoOrderHistory::new(fresh.deployment.clone());
    // Noon, so that all are of one day.
    let now = SystemClock.now().day().start().plus_s(12 * 3_600);
    let users: Vec<UserId> = (0..3).map(|_| UserId(id::fresh(now))).collect();
    let made: Vec<_> =
        (0..DOCUMENTS).map(|n| order(users[n % 3], &n.to_string(), now.plus_s((n / 10) as i64))).collect();
    orders.insert(made.clone()).await.unwrap();
    history.append(made.clone()).await.unwrap();
    let paid = StatusChange { status: OrderStatus::Paid, at: now, operator: None };
    for order in &made[..3] {
        orders.transition(order.id, OrderStatus::Confirmed, paid.clone()).await.unwrap();
    }
    profile(&fresh.deployment, 2).await;
    assert!(orders.get(made[5].id).await.unwrap().is_some());
    orders.transition(made[5].id, OrderStatus::Confirmed, paid).await.unwrap();
    history.append(vec![made[5].clone()]).await.unwrap();
    let period = Period { from: Some(now.plus_s(1)), to: Some(now.plus_s(9)) };
    for period in [Period::default(), period] {
        let (mut after, mut after_copy) = (None, None);
        for _ in 0..3 {
            after = orders.by_user(users[0], period, after, PAGE).await.unwrap().next;
            after_copy = history.by_user(users[0], period, after_copy, PAGE).await.unwrap().next;
            assert!(after.is_some() && after == after_copy);
        }
    }
    let mut after = None;
    for _ in 0..3 {
        let confirmed = DayFilter { status: Some(OrderStatus::Confirmed), zone: None };
        after = orders.by_day(now.day(), confirmed, after, PAGE).await.unwrap().next;
    }
    let plans = check(&fresh.deployment).await;
    assert!(plans.iter().any(|(_, plan)| plan.contains("day: 1, created_at: -1, _id: 1")), "{plans:?}");
    for collection in ["orders", "order_history"] {
        let by_user = |(name, plan): &(String, String)| name == collection && plan.contains("user_id: 1");
        assert!(plans.iter().any(by_user), "{plans:?}");
    }
    // What is not wanted is told from the index, and never read.
    profile(&fresh.deployment, 2).await;
    let rare = DayFilter { status: Some(OrderStatus::Paid), zone: None };
    assert_eq!(orders.by_day(now.day(), rare, None, PAGE).await.unwrap().items.len(), 4);
    profile(&fresh.deployment, 0).await;
    let profiled = fresh.deployment.database().collection::<Document>("system.profile");
    let seen = profiled.find_one(doc! { "op": "query", "command.filter.status": "paid" }).await.unwrap();
    assert_eq!(number(&seen.expect("it was seen"), "docsExamined"), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_found_by_index() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Sessions]).await;
    let (sessions, now) = (Arc::new(MongoSessions::new(fresh.deployment.clone())), SystemClock.now());
    let users: Vec<UserId> = (0..3).map(|_| UserId(id::fresh(now))).collect();
    let mut tokens = Vec::new();
    for n in 0..DOCUMENTS {
        let at = now.plus_s((n / 10) as i64);
        let made = Session { holder: Holder::User(users[n % 3]), ..session(at) };
        let given = token(&made);
        sessions.insert(made.clone(), Some(given)).await.unwrap();
        tokens.push((made, given));
        let state = SessionState::Closed { at, into: users[0], merged: n % 2 == 0 };
        let guest = Session { id: SessionId(id::fresh(at)), holder: Holder::Guest, state, ..session(at) };
        sessions.insert(guest, None).await.unwrap();
    }
    profile(&fresh.deployment, 2).await;
    let (made, given) = &tokens[7];
    assert!(sessions.get(made.id, now).await.unwrap().is_some());
    for _ in 0..2 {
        sessions.use_refresh(given.hash, now).await.unwrap();
    }
    let changed = Session { version: made.version.next(now), ..made.clone() };
    assert!(sessions.update(changed, made.version, Some(token(made))).await.unwrap());
    let mut after = None;
    for _ in 0..3 {
        after = sessions.by_user(users[0], after, PAGE, now).await.unwrap().next;
        assert!(after.is_some());
    }
    assert_eq!(sessions.unmerged(now.plus_s(60), PAGE, now).await.unwrap().len(), PAGE);
    let plans = check(&fresh.deployment).await;
    for index in ["user_id: 1, created_at: -1, _id: 1", "unmerged_since: 1"] {
        assert!(plans.iter().any(|(_, plan)| plan.contains(index)), "{plans:?}");
    }
}
