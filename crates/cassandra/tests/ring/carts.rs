//! Carts on a real ring.

use std::sync::Arc;

use mobimir_cassandra::{CartOptions, CassandraCarts};
use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    id::{self, ChangeId, ProductId, UserId},
    policy::{Entity, Policy},
    ports::{CartStore, Stores},
    time::{Clock, SystemClock, Timestamp},
};
use mobimir_testkit::{
    conformance::{self, ConformanceOptions},
    model::ModelStore,
};

use uuid::Uuid;

use crate::support::{self, Fresh};

/// Packs whatever is older than the cluster's clocks can be apart on one machine.
const EAGER: CartOptions = CartOptions { rows_max: 32, packed_after_ms: 20 };

async fn open(fresh: &Fresh, policy: &Policy) -> Arc<dyn CartStore> {
    let settings = support::settings(policy, Entity::Carts);
    Arc::new(CassandraCarts::open(fresh.cluster.clone(), settings, EAGER).await.expect("carts can be opened"))
}

pub(crate) fn conform(policy_name: &str, options: ConformanceOptions) {
    let ring = support::shared();
    let policy = support::policy(policy_name);
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Carts]).await;
        Stores { carts: open(&fresh, &policy).await, ..ModelStore::stores() }
    };
    conformance::carts(&factory, options);
}

#[test]
fn conformance() {
    conform("default", support::options(5));
}

fn add(owner: Owner, now: Timestamp) -> CartChange {
    let effect = Effect::Add { product: ProductId(Uuid::from_u128(1)), quantity: 1, zone: None };
    CartChange { id: ChangeId(id::fresh(now)), at: now, origin: owner, keyed: false, effect }
}

fn owner() -> Owner {
    Owner::User(UserId(id::fresh(SystemClock.now())))
}

const DAY_MS: i64 = 86_400_000;

/// Counted at the driver: an add is one write, a look is one read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_add_is_one_request_and_so_is_a_look() {
    let ring = support::shared();
    let policy = support::policy("default");
    let fresh = support::watched(ring.ring, &policy, &[Entity::Carts]).await;
    let log = fresh.log.clone().expect("requests are written down");
    let carts = open(&fresh, &policy).await;
    let (owner, now) = (owner(), SystemClock.now());
    // The first change in a minute also lists the cart as touched, at the same time.
    carts.append(owner, vec![add(owner, now)], now.plus_ms(DAY_MS), now).await.expect("it is added");
    assert_eq!(log.take_rounds(), 1, "round trips of a first add");
    for n in 1..5 {
        let before = log.counts();
        carts.append(owner, vec![add(owner, now)], now.plus_ms(DAY_MS), now).await.expect("it is added");
        let added = log.counts();
        let cart = carts.read(owner, now).await.expect("it can be read").expect("it is there");
        let read = log.counts();
        assert_eq!(cart.changes.len(), n + 1);
        assert_eq!((added.0 - before.0, read.0 - added.0), (1, 1), "requests of an add and of a look");
        assert_eq!((added.1 - before.1, read.1 - added.1), (1, 1), "attempts of an add and of a look");
    }
}

/// CRT-3: whatever each change asked for, no row is gone before the cart is, and none is kept for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_rows_of_a_cart_end_together() {
    let ring = support::shared();
    let policy = support::policy("default");
    let fresh = support::fresh(ring.ring, &policy, &[Entity::Carts]).await;
    let carts = open(&fresh, &policy).await;
    let (owner, now) = (owner(), SystemClock.now());
    for days in [1, 30, 7] {
        carts
            .append(owner, vec![add(owner, now)], now.plus_ms(days * DAY_MS), now)
            .await
            .expect("it is added");
    }
    let select = format!(
        "SELECT TTL(touched_at) FROM {}_carts.cart_changes WHERE owner_kind = 0 AND owner = ?",
        fresh.prefix
    );
    let ttls_s = async || {
        let rows =
            fresh.cluster.session().query_unpaged(select.as_str(), (owner.uuid(),)).await.expect("rows");
        let rows = rows.into_rows_result().expect("rows");
        let ttls: Vec<i32> = rows.rows::<(i32,)>().expect("rows").map(|row| row.expect("a row").0).collect();
        ttls
    };
    assert_eq!(ttls_s().await.len(), 3);
    // Whoever looks finds that some would be gone too early, and packs.
    support::until("the rows end together", std::time::Duration::from_secs(20), async || {
        let cart = carts.read(owner, now).await.expect("it can be read").expect("it is there");
        assert_eq!(cart::fold(&cart.changes).quantity(ProductId(Uuid::from_u128(1))), 3, "CRT-1");
        let (least_s, most_s) = (30 * 86_400 - 600, 31 * 86_400 + 600);
        ttls_s().await.iter().all(|ttl_s| (least_s..=most_s).contains(ttl_s))
    })
    .await;
}

/// A flood of adds is packed again and again, beside the adds, and loses none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packing_beside_adds_loses_none() {
    let ring = support::shared();
    let policy = support::policy("default");
    let fresh = support::fresh(ring.ring, &policy, &[Entity::Carts]).await;
    let instances = [open(&fresh, &policy).await, open(&fresh, &policy).await];
    let owner = owner();
    const ADDS: usize = 400;
    for n in 0..ADDS {
        let now = SystemClock.now();
        let carts = &instances[n % 2];
        carts.append(owner, vec![add(owner, now)], now.plus_ms(DAY_MS), now).await.expect("it is added");
        if n % 7 == 0 {
            let cart =
                instances[1 - n % 2].read(owner, now).await.expect("it can be read").expect("it is there");
            let seen = cart::fold(&cart.changes).quantity(ProductId(Uuid::from_u128(1)));
            assert_eq!(seen, n as u64 + 1, "CRT-1");
        }
    }
    let select = format!(
        "SELECT count(*) FROM {}_carts.cart_changes WHERE owner_kind = 0 AND owner = ?",
        fresh.prefix
    );
    let rows = fresh.cluster.session().query_unpaged(select, (owner.uuid(),)).await.expect("a count");
    let (rows,) = rows.into_rows_result().expect("rows").first_row::<(i64,)>().expect("a row");
    assert!(rows < 120, "{rows} rows are left of {ADDS}: nothing was packed");
}
