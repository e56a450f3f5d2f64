//! Marks: who leaves them, who leaves them alone, and how they are found.

use std::time::Duration;

use mobimir_core::{
    cart::UNPACKED_CHANGES_MAX,
    id::{self, UserId},
    moving::{Mark, SessionKey, WholeCart},
    order::{OrderStatus, StatusChange},
    policy::Entity,
    session::Session,
    time::{Clock, SystemClock},
};
use mobimir_mongodb::{MongoCarts, MongoOrders, MongoSessions};
use mongodb::bson::{Document, doc};

use crate::{
    carts::{add, owner},
    orders::order,
    plans::{number, profile},
    sessions::{session, token},
    support,
};

/// As many changes as a document takes.
const CHANGES_MAX: usize = 512;

/// A cart is packed by whoever reads it, later and unasked; but not while it moves, because nobody would wait for that write. One
/// that takes no more is packed by whoever adds to it, and that is a write as every other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cart_that_moves_is_packed_by_writes_only() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let side = MongoCarts::side(fresh.deployment.clone());
    let (owner, now) = (owner(), SystemClock.now());
    let changes = async || side.moving.whole(owner).await.unwrap().whole.unwrap().cart.changes.len();
    for _ in 0..=UNPACKED_CHANGES_MAX {
        side.tracked.append(owner, vec![add(owner, now)], now.plus_s(3_600), now).await.unwrap();
    }
    side.tracked.read(owner, now).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(changes().await, UNPACKED_CHANGES_MAX + 1);
    side.port.read(owner, now).await.unwrap();
    support::until("the cart is packed", async || changes().await == 1).await;

    let full: Vec<_> = (0..CHANGES_MAX).map(|_| add(owner, now)).collect();
    side.port.append(owner, full, now.plus_s(3_600), now).await.unwrap();
    let before = side.moving.whole(owner).await.unwrap();
    side.moving.mirrored(&before.marks, now).await.unwrap();
    side.tracked.append(owner, vec![add(owner, now)], now.plus_s(3_600), now).await.unwrap();
    let after = side.moving.whole(owner).await.unwrap();
    assert!(after.whole.as_ref().unwrap().cart.changes.len() < CHANGES_MAX);
    let [mark] = after.marks[..] else { panic!("{after:?}") };
    assert_eq!((mark.key, mark.seal), (owner, after.whole.unwrap().version.0));
}

/// Where somebody still writes untracked, nothing that is to be copied is forgotten, and what was copied before that write
/// does not count as copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_outlives_writes_that_are_not_tracked() {
    let shared = support::shared();
    let entities = [Entity::Orders, Entity::Carts, Entity::Sessions];
    let fresh = support::fresh(shared.mongo, &entities).await;
    let now = SystemClock.now();
    let later = now.plus_s(5);

    let orders = MongoOrders::side(fresh.deployment.clone());
    let made = order(UserId(id::fresh(now)), "k", now);
    orders.tracked.insert(vec![made.clone()]).await.unwrap();
    let first = orders.moving.whole(made.id).await.unwrap().marks;
    let paid = StatusChange { status: OrderStatus::Paid, at: later, operator: None };
    orders.port.transition(made.id, OrderStatus::Confirmed, paid).await.unwrap();
    orders.moving.mirrored(&first, first[0].since).await.unwrap();
    is_still_marked(&first, &orders.moving.whole(made.id).await.unwrap().marks);

    let (carts, owner) = (MongoCarts::side(fresh.deployment.clone()), owner());
    carts.tracked.append(owner, vec![add(owner, now)], now.plus_s(60), now).await.unwrap();
    let first = carts.moving.whole(owner).await.unwrap().marks;
    carts.port.append(owner, vec![add(owner, later)], later.plus_s(60), later).await.unwrap();
    carts.moving.mirrored(&first, first[0].since).await.unwrap();
    is_still_marked(&first, &carts.moving.whole(owner).await.unwrap().marks);

    let sessions = MongoSessions::side(fresh.deployment.clone());
    let made = session(now);
    let given = token(&made);
    sessions.tracked.insert(made.clone(), Some(given)).await.unwrap();
    let keys = [SessionKey::Session(made.id), SessionKey::Token(given.hash)];
    let mut first = Vec::new();
    for key in keys {
        first.push(sessions.moving.whole(key).await.unwrap().marks);
    }
    let seen = Session { last_active: later, version: made.version.next(later), ..made.clone() };
    assert!(sessions.port.update(seen, made.version, None).await.unwrap());
    sessions.port.use_refresh(given.hash, later).await.unwrap();
    for (key, first) in keys.into_iter().zip(first) {
        sessions.moving.mirrored(&first, first[0].since).await.unwrap();
        is_still_marked(&first, &sessions.moving.whole(key).await.unwrap().marks);
    }
}

fn is_still_marked<K: Copy + PartialEq + std::fmt::Debug>(first: &[Mark<K>], now: &[Mark<K>]) {
    let ([first], [now]) = (first, now) else { panic!("{first:?}, and then {now:?}") };
    assert_eq!((first.key, first.since), (now.key, now.since));
    assert!(first.seal < now.seal, "{first:?}, and then {now:?}");
}

/// What the other side has newer is no longer to be copied there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_over_a_marked_one_is_not_marked() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let (side, owner, now) = (MongoCarts::side(fresh.deployment.clone()), owner(), SystemClock.now());
    side.tracked.append(owner, vec![add(owner, now)], now.plus_s(60), now).await.unwrap();
    let stored = side.moving.whole(owner).await.unwrap().whole.unwrap();
    side.moving.put(vec![stored.clone()], now).await.unwrap();
    assert_eq!(side.moving.backlog().await.unwrap().entities, 1, "the same is nothing new");
    let newer = WholeCart { version: stored.version.next(now), ..stored };
    side.moving.put(vec![newer.clone()], now).await.unwrap();
    let found = side.moving.whole(owner).await.unwrap();
    assert_eq!((found.whole, found.marks), (Some(newer), Vec::new()));
    assert_eq!(side.moving.backlog().await.unwrap(), Default::default());
}

/// To ask for what is marked costs as much as is marked, whatever else there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_marked_is_found_by_index() {
    const MARKED: usize = 7;
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Orders]).await;
    let (side, now) = (MongoOrders::side(fresh.deployment.clone()), SystemClock.now());
    let user = UserId(id::fresh(now));
    let made = |n: usize| order(user, &n.to_string(), now.plus_s(n as i64));
    side.port.insert((0..100).map(made).collect()).await.unwrap();
    // When they were ordered says nothing about how long they wait.
    let mut marked = Vec::new();
    for n in (100..100 + MARKED).rev() {
        marked.push(made(n).id);
        side.tracked.insert(vec![made(n)]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let waiting = now..SystemClock.now();
    profile(&fresh.deployment, 2).await;
    let some = side.moving.unmirrored(MARKED - 2).await.unwrap();
    let keys: Vec<_> = some.iter().map(|mark| mark.key).collect();
    assert_eq!(keys, marked[..MARKED - 2]);
    assert!(some.iter().all(|mark| waiting.contains(&mark.since)), "{some:?}");
    let backlog = side.moving.backlog().await.unwrap();
    assert_eq!((backlog.entities, backlog.oldest), (MARKED as u64, Some(some[0].since)));
    side.moving.mirrored(&some, now).await.unwrap();
    profile(&fresh.deployment, 0).await;
    assert_eq!(side.moving.backlog().await.unwrap().entities, 2);

    let profiled = fresh.deployment.database().collection::<Document>("system.profile");
    let mut cursor = profiled.find(doc! { "ns": { "$regex": "orders$" } }).await.unwrap();
    let mut plans = Vec::new();
    while cursor.advance().await.unwrap() {
        let seen: Document = cursor.deserialize_current().unwrap();
        let plan = seen.get_str("planSummary").unwrap_or_default().to_owned();
        assert!(!plan.contains("COLLSCAN") && !seen.get_bool("hasSortStage").unwrap_or(false), "{seen}");
        assert!(number(&seen, "keysExamined") <= 2 * MARKED as i64, "{seen}");
        plans.push((plan, number(&seen, "docsExamined")));
    }
    // The list, and the number, for which no document is read.
    let by_mark = "IXSCAN { unmirrored: 1 }".to_owned();
    for expected in [(by_mark.clone(), MARKED as i64 - 2), (by_mark, 0)] {
        assert!(plans.contains(&expected), "{plans:?}");
    }
}
