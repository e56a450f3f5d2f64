//! Scans over everything that is there, whatever that is.

use std::{collections::BTreeSet, sync::Arc};

use mobimir_core::{
    id::{self, OrderId, UserId},
    moving::{Facts, Movable, Range, SessionKey, Whole},
    order::Order,
    policy::Entity,
    time::{Clock, SystemClock},
};
use mobimir_mongodb::{MongoCarts, MongoOrders, MongoSessions};
use mongodb::bson::{Bson, Document, Uuid, doc, oid::ObjectId};

use super::puts::with_token;
use crate::{
    carts::{add, owner},
    orders::order,
    plans::{number, profile},
    sessions::session,
    support,
};

const PAGE: usize = 3;

/// What is met in a range: the keys of entities, and what was said of everything else.
async fn met<W: Whole>(moving: &Arc<dyn Movable<W>>, mut range: Range) -> (Vec<W::Key>, Vec<String>) {
    let (mut keys, mut others) = (Vec::new(), Vec::new());
    loop {
        let step = moving.scan(&range, PAGE).await.unwrap();
        for item in step.items {
            match item {
                Ok(whole) => keys.push(whole.key()),
                Err(unreadable) => others.push(format!("{}: {}", unreadable.key, unreadable.error)),
            }
        }
        let Some(next) = step.next else { return (keys, others) };
        range.after = Some(next);
    }
}

fn id_of(order: OrderId) -> Uuid {
    Uuid::from_bytes(*order.0.as_bytes())
}

/// Documents that somebody has spoilt, and some that are of no entity, with ids that come before and after all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_gets_past_what_makes_no_sense() {
    const ORDERS: usize = 20;
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Orders]).await;
    let (side, now) = (MongoOrders::side(fresh.deployment.clone()), SystemClock.now());
    let user = UserId(id::fresh(now));
    let made: Vec<Order> = (0..ORDERS).map(|n| order(user, &n.to_string(), now)).collect();
    side.port.insert(made.clone()).await.unwrap();
    let stored = fresh.deployment.database().collection::<Document>("orders");
    let spoil = async |order: &Order, change: Document| {
        stored.update_one(doc! { "_id": id_of(order.id) }, change).await.unwrap();
    };
    spoil(&made[3], doc! { "$set": { "status": "lost" } }).await;
    spoil(&made[7], doc! { "$unset": { "lines": "" } }).await;
    spoil(&made[11], doc! { "$set": { "version": "new" } }).await;
    let strangers: [Bson; 4] =
        [7.into(), "order".into(), Bson::from(ObjectId::new()), Bson::from(SystemClock.now().to_string())];
    for stranger in &strangers {
        stored.insert_one(doc! { "_id": stranger.clone() }).await.unwrap();
    }

    let spoilt = [3, 7, 11].map(|n: usize| made[n].id);
    let whole: BTreeSet<OrderId> =
        made.iter().map(|order| order.id).filter(|id| !spoilt.contains(id)).collect();
    for parts in [1, 4] {
        let (mut keys, mut others) = (Vec::new(), Vec::new());
        for range in side.moving.ranges(parts).await.unwrap() {
            let (met, unreadable) = met(&side.moving, range).await;
            keys.extend(met);
            others.extend(unreadable);
        }
        assert_eq!((keys.len(), others.len()), (whole.len(), 7), "{others:?}");
        assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), whole);
        let names = spoilt.map(|id| id.to_string()).into_iter().chain(strangers.iter().map(Bson::to_string));
        for name in names {
            assert!(others.iter().any(|other| other.starts_with(&name)), "{name}: {others:?}");
        }
    }

    // Its key is known, so it can be found and removed.
    let rows = side.moving.rows("orders", None, 100).await.unwrap();
    assert_eq!((rows.items.len(), rows.next), (ORDERS, None));
    let mut nameless = strangers.clone().map(|stranger| format!("_id {stranger}"));
    nameless.sort();
    assert_eq!(
        {
            let mut met = rows.nameless;
            met.sort();
            met
        },
        nameless
    );
    for row in rows.items.iter().filter(|row| spoilt.contains(&row.key)) {
        assert_eq!(row.facts, Facts::unreadable());
        side.moving.remove("orders", row).await.unwrap();
    }
    assert_eq!(fresh.count("orders").await as usize, ORDERS - 3 + strangers.len());
}

/// What was written since it was seen is not what should not be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_seen_is_removed() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let (side, owner, now) = (MongoCarts::side(fresh.deployment.clone()), owner(), SystemClock.now());
    side.port.append(owner, vec![add(owner, now)], now.plus_s(60), now).await.unwrap();
    let seen = side.moving.rows("carts", None, 10).await.unwrap().items;
    side.port.append(owner, vec![add(owner, now)], now.plus_s(60), now).await.unwrap();
    side.moving.remove("carts", &seen[0]).await.unwrap();
    assert_eq!(fresh.count("carts").await, 1);
    let seen = side.moving.rows("carts", None, 10).await.unwrap().items;
    side.moving.remove("carts", &seen[0]).await.unwrap();
    assert_eq!(fresh.count("carts").await, 0);
}

/// Ids of sessions begin with the time, those of tokens with anything. Parts are of both, and a step of a scan reads no more
/// than it gives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_are_of_about_the_same_size() {
    const SESSIONS: usize = 300;
    const PARTS: usize = 4;
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Sessions]).await;
    let (side, now) = (MongoSessions::side(fresh.deployment.clone()), SystemClock.now());
    let made = (0..SESSIONS).flat_map(|n| with_token(session(now.plus_s(n as i64)))).collect();
    side.moving.put(made, now).await.unwrap();
    let ranges = side.moving.ranges(PARTS).await.unwrap();
    assert_eq!(ranges.len(), PARTS);
    let (mut all, mut sizes) = (Vec::new(), Vec::new());
    for range in ranges {
        let (keys, others) = met(&side.moving, range).await;
        assert!(others.is_empty(), "{others:?}");
        sizes.push(keys.len());
        all.extend(keys);
    }
    assert!(sizes.iter().all(|size| *size < SESSIONS), "{sizes:?}");
    let sessions = all.iter().filter(|key| matches!(key, SessionKey::Session(_))).count();
    assert_eq!((all.len(), sessions), (2 * SESSIONS, SESSIONS));
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "nothing is met twice");

    let ranges = side.moving.ranges(PARTS).await.unwrap();
    profile(&fresh.deployment, 2).await;
    let step = side.moving.scan(&ranges[1], PAGE).await.unwrap();
    profile(&fresh.deployment, 0).await;
    assert_eq!(step.items.len(), PAGE);
    let profiled = fresh.deployment.database().collection::<Document>("system.profile");
    let seen = profiled.find_one(doc! { "op": "query" }).await.unwrap().expect("it was seen");
    assert!(seen.get_str("planSummary").unwrap().contains("IXSCAN { _id: 1 }"), "{seen}");
    assert!(number(&seen, "keysExamined") <= PAGE as i64 + 3, "{seen}");
}
