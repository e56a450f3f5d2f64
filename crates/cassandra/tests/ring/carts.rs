//! Carts on a real ring.

use std::sync::Arc;

use mobimir_cassandra::{CartOptions, CassandraCarts};
use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    id::{self, ChangeId, ProductId, UserId},
    moving::{Movable, Whole, WholeCart},
    policy::{Entity, Policy},
    ports::{CartStore, Stores},
    time::{Clock, SystemClock, Timestamp},
};
use mobimir_testkit::{
    conformance::{self, ConformanceOptions},
    model::ModelStore,
};

use uuid::Uuid;

use crate::support::{self, Fresh, Quiet};

/// Packs whatever is older than the cluster's clocks can be apart on one machine.
const EAGER: CartOptions = CartOptions { rows_max: 32, packed_after_ms: 20, order_covers: None };

pub(crate) async fn open(fresh: &Fresh, policy: &Policy) -> Arc<CassandraCarts> {
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

pub(crate) fn add(owner: Owner, now: Timestamp) -> CartChange {
    let effect = Effect::Add { product: ProductId(Uuid::from_u128(1)), quantity: 1, zone: None };
    CartChange { id: ChangeId(id::fresh(now)), at: now, origin: owner, keyed: false, effect }
}

pub(crate) fn owner() -> Owner {
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
    let now = SystemClock.now();
    // The first change in a minute also lists the cart as touched, at the same time.
    let (owner, rounds) = support::until_some("a first add is answered at once", async || {
        let owner = owner();
        log.take_rounds();
        let quiet = Quiet::from_now_on(&fresh.cluster);
        carts.append(owner, vec![add(owner, now)], now.plus_ms(DAY_MS), now).await.expect("it is added");
        let rounds = log.take_rounds();
        quiet.is_so().then_some((owner, rounds))
    })
    .await;
    assert_eq!(rounds, 1, "round trips of a first add");
    let mut changes = 1;
    for _ in 1..5 {
        let [before, added, read] = support::until_some("an add and a look at once", async || {
            let (before, quiet) = (log.counts(), Quiet::from_now_on(&fresh.cluster));
            carts.append(owner, vec![add(owner, now)], now.plus_ms(DAY_MS), now).await.expect("it is added");
            let added = log.counts();
            let cart = carts.read(owner, now).await.expect("it can be read").expect("it is there");
            let read = log.counts();
            changes += 1;
            assert_eq!(cart.changes.len(), changes);
            quiet.is_so().then_some([before, added, read])
        })
        .await;
        assert_eq!((added.0 - before.0, read.0 - added.0), (1, 1), "requests of an add and of a look");
        assert_eq!((added.1 - before.1, read.1 - added.1), (1, 1), "attempts of an add and of a look");
    }
}

/// CRT-3: whatever each change asked for, no row is gone before the cart is, and none is kept for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_rows_of_a_cart_end_together() {
    let ring = support::shared();
    let policy = support::policy("default");
    let fresh = support::common(ring.ring, &policy, &[Entity::Carts]).await;
    let side = open(&fresh, &policy).await.side();
    // Also while it moves: nothing else would keep its rows, and nothing becomes newer by it.
    for carts in [side.port, side.tracked] {
        rows_end_together(&fresh, &*carts, &*side.moving).await;
    }
}

async fn rows_end_together(fresh: &Fresh, carts: &dyn CartStore, moving: &dyn Movable<WholeCart>) {
    let (owner, now) = (owner(), SystemClock.now());
    for days in [1, 30, 7] {
        carts
            .append(owner, vec![add(owner, now)], now.plus_ms(days * DAY_MS), now)
            .await
            .expect("it is added");
    }
    let whole = async || moving.whole(owner).await.expect("it can be read").whole.expect("it is there");
    let before = whole().await;
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
    support::until("the rows end together", support::PATIENCE, async || {
        let cart = carts.read(owner, now).await.expect("it can be read").expect("it is there");
        assert_eq!(cart::fold(&cart.changes).quantity(ProductId(Uuid::from_u128(1))), 3, "CRT-1");
        let (least_s, most_s) = (30 * 86_400 - 600, 31 * 86_400 + 600);
        ttls_s().await.iter().all(|ttl_s| (least_s..=most_s).contains(ttl_s))
    })
    .await;
    let after = whole().await;
    assert_eq!((after.version, after.facts()), (before.version, before.facts()));
}

/// A flood of adds is packed again and again, beside the adds, and loses none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packing_beside_adds_loses_none() {
    let ring = support::shared();
    let policy = support::policy("default");
    let fresh = support::common(ring.ring, &policy, &[Entity::Carts]).await;
    let instances = [open(&fresh, &policy).await, open(&fresh, &policy).await];
    let owner = owner();
    const ADDS: usize = 400;
    let look = async |instance: usize, added: usize| {
        let now = SystemClock.now();
        let cart = instances[instance].read(owner, now).await.expect("it can be read").expect("it is there");
        let seen = cart::fold(&cart.changes).quantity(ProductId(Uuid::from_u128(1)));
        assert_eq!(seen, added as u64, "CRT-1");
        cart.changes.iter().any(|change| matches!(change.effect, Effect::Packed(_)))
    };
    let (mut added, mut is_packed) = (0, false);
    // The flood goes on until something was packed beside it.
    while added < ADDS || !is_packed {
        assert!(added < ADDS * 10, "{added} adds, and nothing was packed beside them");
        let now = SystemClock.now();
        let carts = &instances[added % 2];
        carts.append(owner, vec![add(owner, now)], now.plus_ms(DAY_MS), now).await.expect("it is added");
        added += 1;
        if added % 7 == 1 {
            is_packed |= look(added % 2, added).await;
        }
    }
    let select = format!(
        "SELECT count(*) FROM {}_carts.cart_changes WHERE owner_kind = 0 AND owner = ?",
        fresh.prefix
    );
    support::until("the rows are packed", support::PATIENCE, async || {
        look(0, added).await;
        let session = fresh.cluster.session();
        let rows =
            support::answered("a count", || session.query_unpaged(select.as_str(), (owner.uuid(),))).await;
        let (rows,) = rows.into_rows_result().expect("rows").first_row::<(i64,)>().expect("a row");
        rows < 120
    })
    .await;
}
