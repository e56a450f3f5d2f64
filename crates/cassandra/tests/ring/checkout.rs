//! A checkout over two stores: products on the embedded one, orders on the ring, and a crash at every step between them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use mobimir_core::time::{Clock, ManualClock, SystemClock};
use mobimir_shop::{
    PlaceOrderError,
    faults::{Fault, Faults, Step},
};

use crate::{
    support,
    world::{World, order_of_cart},
};

fn crash_at(step: Step) -> Faults {
    let reached = AtomicUsize::new(0);
    Faults::planned(move |at| {
        if at == step && reached.fetch_add(1, Ordering::SeqCst) == 0 { Fault::Stop } else { Fault::None }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_step_is_settled() {
    let ring = support::shared();
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let world = World::new(ring.ring, &support::policy("default"), clock.clone()).await;
    for step in Step::CHECKOUT {
        // A checkout is aborted when there is too little.
        let is_short = step == Step::CheckoutAborted;
        let product = world.product(if is_short { 1 } else { 10 }).await;
        let user = world.user();
        let shop = world.shop(Faults::none());
        let caller = world.caller(&shop, user).await;
        for _ in 0..2 {
            shop.add_to_cart(&caller, product, 1, None, None).await.expect("it is put into the cart");
        }

        let crashed = world.shop(crash_at(step));
        let first = crashed.place_order(user, "key", order_of_cart()).await;
        assert!(
            matches!(&first, Err(PlaceOrderError::Stopped(stopped)) if stopped.0 == step),
            "{step:?}: {first:?}"
        );
        drop(crashed);

        // The process is gone; another starts, and time passes.
        let shop = world.shop(Faults::none());
        clock.advance_ms(60_000);
        shop.reconcile().await;
        let again = shop.place_order(user, "key", order_of_cart()).await;
        let ordered = match &again {
            Ok(placed) => {
                assert!(placed.replayed, "{step:?}");
                true
            }
            Err(PlaceOrderError::OutOfStock { replayed: true, .. }) if is_short => false,
            Err(PlaceOrderError::Expired) if !is_short => false,
            other => panic!("{step:?}: {other:?}"),
        };
        assert_eq!(world.sold(product).await, if ordered { 2 } else { 0 }, "{step:?}");
        assert_eq!(world.check_orders(user).await, usize::from(ordered), "{step:?}");
        let left = shop.cart(&caller).await.expect("the cart").items.len();
        assert_eq!(left, usize::from(!ordered), "{step:?}: the cart is taken exactly when it was ordered");
    }
}
