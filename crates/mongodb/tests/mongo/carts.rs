//! Carts on a real replica set.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    id::{self, ChangeId, ProductId, SessionId, UserId},
    policy::Entity,
    ports::{CartStore, Stores},
    time::{Clock, SystemClock, Timestamp},
};
use mobimir_mongodb::MongoCarts;
use mobimir_testkit::{conformance, model::ModelStore};
use mongodb::bson::{Document, doc};
use uuid::Uuid;

use crate::support::{self, Fresh, Kept};

const DAY_MS: i64 = 86_400_000;
/// What has ended is kept a minute longer, for clocks that are behind. So much of it can be relied on.
const KEPT: Duration = Duration::from_secs(50);
const PRODUCT: ProductId = ProductId(Uuid::from_u128(1));

#[test]
fn conformance() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        let deployment = kept.keep(support::fresh(shared.mongo, &[Entity::Carts]).await);
        Stores { carts: Arc::new(MongoCarts::new(deployment)), ..ModelStore::stores() }
    };
    conformance::carts(&factory, support::options(12));
}

async fn two_instances(fresh: &Fresh) -> [Arc<MongoCarts>; 2] {
    let other = fresh.another().await;
    [Arc::new(MongoCarts::new(fresh.deployment.clone())), Arc::new(MongoCarts::new(other))]
}

pub(crate) fn add(owner: Owner, now: Timestamp) -> CartChange {
    let effect = Effect::Add { product: PRODUCT, quantity: 1, zone: None };
    CartChange { id: ChangeId(id::fresh(now)), at: now, origin: owner, keyed: false, effect }
}

pub(crate) fn owner() -> Owner {
    Owner::User(UserId(id::fresh(SystemClock.now())))
}

async fn quantity(carts: &MongoCarts, owner: Owner, now: Timestamp) -> u64 {
    let cart = carts.read(owner, now).await.expect("it can be read").expect("it is there");
    cart::fold(&cart.changes).quantity(PRODUCT)
}

/// The changes that are stored of the only cart.
async fn listed(fresh: &Fresh) -> usize {
    let carts = fresh.deployment.database().collection::<Document>("carts");
    let cart = carts.find_one(doc! {}).await.unwrap().expect("the cart");
    cart.get_array("changes").unwrap().len()
}

/// CRT-1, from two instances, of a cart that none of them has seen; each change comes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_adds_all_count_once() {
    const ADDS: u64 = 64;
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let instances = two_instances(&fresh).await;
    let now = SystemClock.now();
    for owner in [owner(), Owner::Guest(SessionId(id::fresh(now)))] {
        let tasks: Vec<_> = (0..ADDS)
            .flat_map(|_| {
                let change = add(owner, now);
                instances.iter().map(move |carts| (carts.clone(), change.clone())).collect::<Vec<_>>()
            })
            .map(|(carts, change)| {
                tokio::spawn(async move { carts.append(owner, vec![change], now.plus_ms(DAY_MS), now).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().expect("it is added");
        }
        assert_eq!(quantity(&instances[0], owner, now).await, ADDS, "CRT-1");
    }
    assert_eq!(fresh.count("carts").await, 2);
}

/// A flood of adds is packed again and again, beside the adds, and loses none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packing_beside_adds_loses_none() {
    const ADDS: usize = 400;
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let instances = two_instances(&fresh).await;
    let owner = owner();
    for n in 0..ADDS {
        let now = SystemClock.now();
        let carts = &instances[n % 2];
        carts.append(owner, vec![add(owner, now)], now.plus_ms(DAY_MS), now).await.expect("it is added");
        if n % 7 == 0 {
            assert_eq!(quantity(&instances[1 - n % 2], owner, now).await, n as u64 + 1, "CRT-1");
        }
    }
    // What packs beside the adds may still be at it.
    support::until("most of the changes are packed", async || listed(&fresh).await < ADDS * 3 / 4).await;
}

/// Nobody reads, and the document stays small.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_list_is_packed_by_whoever_adds() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let instances = two_instances(&fresh).await;
    let (owner, now) = (owner(), SystemClock.now());
    let many: Vec<CartChange> = (0..600).map(|_| add(owner, now)).collect();
    instances[0].append(owner, many.clone(), now.plus_ms(DAY_MS), now).await.expect("they are added");
    assert_eq!(listed(&fresh).await, 600);
    let tasks: Vec<_> = (0..16)
        .map(|n: usize| {
            let (carts, change) = (instances[n % 2].clone(), add(owner, now));
            tokio::spawn(async move { carts.append(owner, vec![change], now.plus_ms(DAY_MS), now).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().expect("it is added");
    }
    assert_eq!(listed(&fresh).await, 17, "one of all that was there, and what was added");
    // What comes again is known, though it was packed.
    instances[1].append(owner, many, now.plus_ms(DAY_MS), now).await.expect("they are taken");
    assert_eq!(listed(&fresh).await, 17, "nothing was added again");
    assert_eq!(quantity(&instances[0], owner, now).await, 616, "CRT-1");
}

/// Whatever the clock of the caller does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_version_moves_with_every_change() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let carts = MongoCarts::new(fresh.deployment.clone());
    let (owner, now) = (owner(), SystemClock.now());
    let stored = fresh.deployment.database().collection::<Document>("carts");
    let mut last = 0;
    // The clock stands still, goes back, and the cart ends in between.
    for (ms, lasts_ms) in [(0, 10), (0, 10), (-5, 10), (20, 10), (20, 10)] {
        let at = now.plus_ms(ms);
        carts.append(owner, vec![add(owner, at)], at.plus_ms(lasts_ms), at).await.expect("it is added");
        let version = stored.find_one(doc! {}).await.unwrap().unwrap().get_i64("version").unwrap();
        assert!(version > last, "{version} after {last}");
        last = version;
    }
    assert_eq!(last, now.plus_ms(20).as_millis() * 1_000 + 1);
}

/// CRT-3 and the server's own clock: what has expired is removed, and nothing before, whatever time its owner has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn carts_are_removed_when_they_have_expired_and_never_before() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Carts]).await;
    let carts = MongoCarts::new(fresh.deployment.clone());
    let now = SystemClock.now();
    let long_ago = Timestamp::parse("2001-09-09T01:46:40Z").unwrap();
    let put = async |now: Timestamp, lasts_s: i64| {
        let owner = owner();
        carts.append(owner, vec![add(owner, now)], now.plus_s(lasts_s), now).await.expect("it is added");
        owner
    };
    // Ended long enough ago for every clock.
    put(now, -120).await;
    put(now.plus_s(-300), -61).await;
    // One that is extended when it is nearly removed, and one of somebody who lives in another time.
    let extended = put(now, -50).await;
    carts.append(extended, vec![add(extended, now)], now.plus_s(3_600), now).await.expect("it begins anew");
    let of_old = put(long_ago, 3_600).await;
    let just_ended = loop {
        support::until("what has expired is removed", async || fresh.count("carts").await == 2).await;
        // Ended, but perhaps not by every clock.
        let started = Instant::now();
        let just_ended = put(now, -1).await;
        support::removal_rounds(shared.mongo, 3).await;
        let left = fresh.count("carts").await;
        // Whoever looks later than that has seen nothing.
        if started.elapsed() < KEPT {
            assert_eq!(left, 3, "something was removed early");
            break just_ended;
        }
    };
    assert!(carts.read(just_ended, now).await.unwrap().is_none());
    assert_eq!(quantity(&carts, extended, now).await, 1);
    assert_eq!(quantity(&carts, of_old, long_ago.plus_s(3_599)).await, 1);
    assert!(carts.read(of_old, long_ago.plus_s(3_600)).await.unwrap().is_none());
}
