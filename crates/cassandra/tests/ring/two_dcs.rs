//! Two data centres, one of them lost: first the other one, then the home of decisions.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mobimir_cassandra::DcState;
use mobimir_core::{
    order::{OrderStatus, StatusChange},
    policy::{OnDcLoss, Policy, Replication},
    ports::{OrderStore, StoreError, Transition},
    time::{Clock, SystemClock},
};
use mobimir_lab::{Ring, RingSpec, Sight};
use mobimir_shop::{PlaceOrderError, faults::Faults};

use crate::{
    support,
    world::{ENTITIES, World, order_of},
};

const DC1: [u16; 3] = [1, 2, 3];
const DC2: [u16; 3] = [4, 5, 6];

fn policy(on_dc_loss: OnDcLoss) -> Policy {
    let both = Replication::from([("dc1".to_owned(), 3), ("dc2".to_owned(), 3)]);
    let mut policy = support::policy("default").in_data_centres(&both);
    if let Some(settings) = policy.orders.placement.cassandra.as_mut() {
        settings.on_dc_loss = on_dc_loss;
    }
    policy
}

/// Kills all nodes of a data centre, and waits until all of the other know.
fn lose(ring: &Ring, lost: [u16; 3], left: [u16; 3]) {
    lost.iter().for_each(|node| ring.kill(*node).expect("a node is killed"));
    for (witness, node) in left.iter().flat_map(|witness| lost.map(|node| (*witness, node))) {
        ring.wait_until_seen(witness, node, Sight::Down).expect("it is seen down");
    }
}

fn bring_back(ring: &Ring, nodes: [u16; 3]) {
    nodes.iter().for_each(|node| ring.spawn_node(*node).expect("a node starts"));
    nodes.iter().for_each(|node| ring.wait_ready(*node).expect("a node answers"));
    ring.nodes().iter().for_each(|node| ring.wait_until_up(node.id, 6).expect("all see all"));
}

fn paid() -> StatusChange {
    StatusChange { status: OrderStatus::Paid, at: SystemClock.now(), operator: Some("анна".into()) }
}

#[test]
fn a_data_centre_is_lost_and_comes_back() {
    let _alone = support::alone();
    let ring = Ring::ephemeral(&RingSpec::for_tests_in(&[3, 3])).expect("a ring can be started");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (goes_on, refuses) = (policy(OnDcLoss::LocalQuorum), policy(OnDcLoss::Refuse));
    runtime.block_on(async {
        let blocking = |work: &dyn Fn()| tokio::task::block_in_place(work);
        let clock = || -> Arc<dyn Clock> { Arc::new(SystemClock) };
        let fresh = support::fresh(&ring, &goes_on, &ENTITIES).await;
        let here = World::on(fresh.cluster.clone(), &goes_on, clock()).await;
        let there_cluster = support::connect_in(&ring, &goes_on, &fresh.prefix, None, Some("dc2")).await;
        let there = World::on(there_cluster, &goes_on, clock()).await;
        let strict = World::new(&ring, &refuses, clock()).await;

        // EACH_QUORUM: acknowledged here, and read there at once.
        let (shop, user, product) = (here.shop(Faults::none()), here.user(), here.product(100).await);
        let first =
            shop.place_order(user, "whole", order_of(product, 1)).await.expect("both are there").order;
        assert_eq!(there.orders.get(first.id).await.expect("it can be read").as_ref(), Some(&first));

        // The other data centre is lost.
        blocking(&|| lose(&ring, DC2, DC1));
        let mut meanwhile = Vec::new();
        for key in ["lost 1", "lost 2", "lost 3"] {
            let placed = shop.place_order(user, key, order_of(product, 1)).await.expect("orders go on");
            meanwhile.push(placed.order);
        }
        assert_eq!(here.orders.dc_state(), DcState::Degraded);
        assert!(
            here.cluster.metrics().contains("mobimir_cassandra_degraded{entity=\"orders\"} 1"),
            "it is to be seen"
        );
        assert_eq!(here.check_orders(user).await, 4, "ORD-1");
        let moved = here.orders.transition(meanwhile[0].id, OrderStatus::Confirmed, paid()).await;
        let Ok(Transition::Moved(moved)) = moved else { panic!("a move is decided at home: {moved:?}") };
        meanwhile[0] = moved;

        let (strict_shop, strict_user) = (strict.shop(Faults::none()), strict.user());
        let strict_product = strict.product(100).await;
        let started = Instant::now();
        let refused = strict_shop.place_order(strict_user, "refused", order_of(strict_product, 1)).await;
        eprintln!("refused after {} ms", started.elapsed().as_millis());
        assert!(
            matches!(refused, Err(PlaceOrderError::Store(StoreError::Unavailable { .. }))),
            "an order that cannot be everywhere is refused: {refused:?}"
        );
        assert_eq!(strict.orders.dc_state(), DcState::Whole);
        let caller = strict.caller(&strict_shop, strict_user).await;
        let cart = strict_shop.add_to_cart(&caller, strict_product, 1, None, None).await;
        assert!(cart.is_ok(), "carts need one data centre only: {cart:?}");

        // It comes back, and gets all it has missed.
        blocking(&|| bring_back(&ring, DC2));
        support::until("all data centres have everything", Duration::from_secs(90), async || {
            here.orders.dc_state() == DcState::Whole
        })
        .await;
        for order in &meanwhile {
            assert_eq!(there.orders.get(order.id).await.expect("it can be read").as_ref(), Some(order));
        }
        assert_eq!(there.check_orders(user).await, 4, "ORD-1 in the data centre that was lost");
        support::until("what was refused is finished", Duration::from_secs(60), async || {
            strict_shop.reconcile().await;
            strict_shop.place_order(strict_user, "refused", order_of(strict_product, 1)).await.is_ok()
        })
        .await;
        assert_eq!(strict.check_orders(strict_user).await, 1, "ORD-2");

        // The home of decisions is lost: orders go on there, decisions wait.
        blocking(&|| lose(&ring, DC1, DC2));
        let (shop, user, product) = (there.shop(Faults::none()), there.user(), there.product(100).await);
        let placed =
            shop.place_order(user, "without a home", order_of(product, 1)).await.expect("orders go on").order;
        assert_eq!(there.check_orders(user).await, 1, "ORD-1");
        let undecided = there.orders.transition(placed.id, OrderStatus::Confirmed, paid()).await;
        assert!(
            matches!(undecided, Err(StoreError::Unavailable { .. })),
            "nobody decides but home: {undecided:?}"
        );
        blocking(&|| bring_back(&ring, DC1));
        support::until("all data centres have everything", Duration::from_secs(90), async || {
            there.orders.dc_state() == DcState::Whole
        })
        .await;
        assert_eq!(here.orders.get(placed.id).await.expect("it can be read").as_ref(), Some(&placed));
        let decided = there.orders.transition(placed.id, OrderStatus::Confirmed, paid()).await;
        assert!(matches!(decided, Ok(Transition::Moved(_))), "{decided:?}");
    });
}
