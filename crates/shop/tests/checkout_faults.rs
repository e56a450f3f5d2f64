//! A crash between any two steps of a checkout or a cancellation loses nothing and doubles nothing.

#![expect(clippy::disallowed_methods, reason = "only the simulation has to be repeatable")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mobimir_core::{
    cart,
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    time::{Clock, Day, ManualClock, Timestamp},
};
use mobimir_shop::{
    MoveOrderError, PlaceOrderError, Shop,
    faults::{Fault, Faults, Step},
    run_reconciler,
};
use mobimir_testkit::model::ModelStore;
use support::{World, crash_at};

#[tokio::test]
async fn a_crash_after_any_step_of_a_checkout_is_settled_by_the_reconciler() {
    for step in Step::CHECKOUT {
        let mut crashes = 0;
        for (nth, stock) in [(1, 10), (2, 10), (1, 1)] {
            let world = World::new();
            let products = world.products(2, stock).await;
            let user = world.user();
            let caller = world.log_in(user).await;
            let shop = world.shop(Faults::none());
            for product in &products {
                // One more than there is in the scarce world, but for a guest of the stock check: one at a time.
                shop.add_to_cart(&caller, *product, 1, None, None).await.unwrap();
                if stock == 1 {
                    shop.add_to_cart(&caller, *product, 1, None, None).await.unwrap();
                }
            }

            let (faults, reached) = crash_at(step, nth);
            let crashed = world.shop(faults);
            let first = crashed.place_order(user, "key", world.cart_order()).await;
            world.let_spawned_work_run().await;
            let has_crashed = reached.load(Ordering::SeqCst) >= nth;
            crashes += usize::from(has_crashed);
            match &first {
                Err(PlaceOrderError::Stopped(stopped)) => {
                    assert!(has_crashed && stopped.0 == step, "{stopped} instead of {step:?}");
                }
                Ok(_) | Err(PlaceOrderError::OutOfStock { .. }) if !has_crashed => {}
                other => panic!("after {step:?} #{nth} of {stock}: {other:?}"),
            }

            // The process is gone; another starts, and time passes.
            let shop = world.shop(Faults::none());
            world.clock.advance_ms(60_000);
            shop.reconcile().await;
            world.let_spawned_work_run().await;
            let settled = world.check_settled(&shop).await;

            // What the client was told is what is there, and the retry is told the same.
            let again = shop.place_order(user, "key", world.cart_order()).await;
            let what = format!(
                "after {step:?} #{nth} of {stock} (reached {} times)",
                reached.load(Ordering::SeqCst)
            );
            match (&first, &again) {
                (Ok(placed), Ok(replayed)) => {
                    assert_eq!(placed.order, replayed.order, "{what}");
                    assert!(replayed.replayed, "{what}");
                }
                (Err(PlaceOrderError::Stopped(_)), Ok(_) | Err(PlaceOrderError::Expired))
                | (
                    Err(PlaceOrderError::Stopped(_)),
                    Err(PlaceOrderError::OutOfStock { replayed: true, .. }),
                )
                | (
                    Err(PlaceOrderError::OutOfStock { .. }),
                    Err(PlaceOrderError::OutOfStock { replayed: true, .. }),
                ) => {}
                other => panic!("{what}: {other:?}"),
            }
            let ordered = again.is_ok();
            assert_eq!(settled.sold, if ordered { 2 } else { 0 }, "{what}");
            let history = shop.orders_of(user, Period::default(), None, 10).await.unwrap();
            assert_eq!(history.items.len(), usize::from(ordered), "{what}");
            let left = shop.cart(&caller).await.unwrap().items.len();
            assert_eq!(
                left,
                if ordered { 0 } else { 2 },
                "{what}: the cart is taken exactly when it was ordered"
            );
        }
        assert!(crashes > 0, "{step:?} was never reached");
    }
}

#[tokio::test]
async fn a_retry_goes_on_from_the_record_that_a_crash_left() {
    for step in [
        Step::CheckoutInserted,
        Step::LineHeld,
        Step::AllLinesHeld,
        Step::CheckoutCommitted,
        Step::OrderWritten,
    ] {
        let world = World::new();
        let products = world.products(2, 10).await;
        let user = world.user();
        let request = world.order_of(&products, 3);
        let (faults, _) = crash_at(step, 1);
        let crashed = world.shop(faults).place_order(user, "key", request.clone()).await;
        assert!(matches!(crashed, Err(PlaceOrderError::Stopped(_))), "{step:?}: {crashed:?}");

        // Prices move on; the order does not.
        let shop = world.shop(Faults::none());
        world.double_prices(&shop, &products).await;
        let placed = shop.place_order(user, "key", request).await.unwrap();
        assert_eq!(placed.order.total().to_string(), "600.00", "{step:?}");
        world.clock.advance_ms(60_000);
        shop.reconcile().await;
        world.let_spawned_work_run().await;
        assert_eq!(world.check_settled(&shop).await.sold, 6, "{step:?}");
    }
}

#[tokio::test]
async fn the_last_unit_held_by_a_crashed_run_is_not_told_as_sold_out_to_its_own_retry() {
    let world = World::new();
    let products = world.products(1, 1).await;
    let user = world.user();
    let request = world.order_of(&products, 1);
    let (faults, _) = crash_at(Step::AllLinesHeld, 1);
    let crashed = world.shop(faults).place_order(user, "key", request.clone()).await;
    assert!(matches!(crashed, Err(PlaceOrderError::Stopped(_))), "{crashed:?}");

    let shop = world.shop(Faults::none());
    let retry = shop.place_order(user, "key", request.clone()).await;
    assert!(matches!(retry, Err(PlaceOrderError::InProgress)), "{retry:?}");
    world.clock.advance_ms(60_000);
    shop.reconcile().await;
    world.let_spawned_work_run().await;
    assert_eq!(world.check_settled(&shop).await.available, 1);
    let other = shop.place_order(user, "another key", request).await;
    assert!(other.is_ok(), "{other:?}");
}

#[tokio::test]
async fn a_crash_after_any_step_of_a_cancellation_gives_the_stock_back_once_or_not_at_all() {
    for step in Step::CANCELLATION {
        let world = World::new();
        let products = world.products(2, 10).await;
        let user = world.user();
        let shop = world.shop(Faults::none());
        let order = shop.place_order(user, "key", world.order_of(&products, 4)).await.unwrap().order;
        world.let_spawned_work_run().await;

        let (faults, _) = crash_at(step, 1);
        let crashed = world.shop(faults).move_order(order.id, OrderStatus::Cancelled, "op").await;
        assert!(matches!(crashed, Err(MoveOrderError::Stopped(_))), "{step:?}: {crashed:?}");
        world.clock.advance_ms(60_000);
        // Twice: what it does may be done again.
        for _ in 0..2 {
            shop.reconcile().await;
            world.let_spawned_work_run().await;
        }
        let settled = world.check_settled(&shop).await;
        let decided = step != Step::ReturnHeld;
        assert_eq!(settled.sold, if decided { 0 } else { 8 }, "{step:?}");
        let status = shop.order(order.id).await.unwrap().unwrap().status;
        assert_eq!(status == OrderStatus::Cancelled, decided, "{step:?}");

        // Cancelling (again) is possible exactly when it was not decided, and counts once.
        let again = shop.move_order(order.id, OrderStatus::Cancelled, "op").await;
        assert_eq!(again.is_ok(), !decided, "{step:?}: {again:?}");
        assert_eq!(world.check_settled(&shop).await.sold, 0, "{step:?}");
        let cancelled = shop.order_history(order.id).await.unwrap();
        assert_eq!(
            cancelled.iter().filter(|change| change.status == OrderStatus::Cancelled).count(),
            1,
            "{step:?}"
        );
    }
}

#[tokio::test]
async fn a_cancellation_that_sleeps_for_a_minute_before_its_decision_still_gives_everything_back() {
    let world = World::new();
    let products = world.products(2, 10).await;
    let shop = world.shop(Faults::none());
    let order = shop.place_order(world.user(), "key", world.order_of(&products, 4)).await.unwrap().order;
    world.let_spawned_work_run().await;
    let sleepy = world.shop(Faults::planned(|step| match step {
        Step::ReturnHeld => Fault::Pause { turns: 100 },
        _ => Fault::None,
    }));
    let cancelling =
        tokio::spawn(async move { sleepy.move_order(order.id, OrderStatus::Cancelled, "op").await });
    world.let_spawned_work_run().await;
    world.clock.advance_ms(60_000);
    // Takes the sleeper's marks for forgotten ones, so it must first make sure that they cannot be decided by.
    assert!(shop.reconcile().await.holds > 0);
    cancelling.await.unwrap().unwrap();
    assert_eq!(world.check_settled(&shop).await.sold, 0);
}

#[tokio::test]
async fn shipping_and_cancelling_exclude_each_other() {
    let mut statuses = Vec::new();
    for round in 0..48 {
        let world = World::new();
        let products = world.products(1, 10).await;
        // Each is slow at another time in every round.
        let shop = world.shop(Faults::planned(move |step| match step {
            Step::ReturnHeld => Fault::Pause { turns: round % 6 },
            Step::DispatchDecided => Fault::Pause { turns: round / 6 },
            _ => Fault::None,
        }));
        let order = shop.place_order(world.user(), "key", world.order_of(&products, 4)).await.unwrap().order;
        shop.move_order(order.id, OrderStatus::Paid, "op").await.unwrap();
        let race = |status| {
            let shop = shop.clone();
            tokio::spawn(async move { shop.move_order(order.id, status, "op").await.is_ok() })
        };
        let mut wanted =
            [OrderStatus::Shipped, OrderStatus::Cancelled, OrderStatus::Cancelled, OrderStatus::Shipped];
        wanted.rotate_left(round as usize % 4);
        let moves = wanted.map(race);
        let mut won = 0;
        for moved in moves {
            won += usize::from(moved.await.unwrap());
        }
        assert_eq!(won, 1);
        let status = shop.order(order.id).await.unwrap().unwrap().status;
        let settled = world.check_settled(&shop).await;
        assert_eq!(settled.sold, if status == OrderStatus::Cancelled { 0 } else { 4 });
        statuses.push(status);
    }
    for status in [OrderStatus::Shipped, OrderStatus::Cancelled] {
        assert!(statuses.contains(&status), "{status} never won");
    }
}

#[tokio::test]
async fn a_dispatch_that_crashed_can_be_repeated_but_not_cancelled() {
    let world = World::new();
    let products = world.products(1, 10).await;
    let shop = world.shop(Faults::none());
    let order = shop.place_order(world.user(), "key", world.order_of(&products, 1)).await.unwrap().order;
    shop.move_order(order.id, OrderStatus::Paid, "op").await.unwrap();
    let (faults, _) = crash_at(Step::DispatchDecided, 1);
    let crashed = world.shop(faults).move_order(order.id, OrderStatus::Shipped, "op").await;
    assert!(matches!(crashed, Err(MoveOrderError::Stopped(_))));
    assert!(matches!(
        shop.move_order(order.id, OrderStatus::Cancelled, "op").await,
        Err(MoveOrderError::BadTransition { .. })
    ));
    assert!(shop.move_order(order.id, OrderStatus::Shipped, "op").await.is_ok());
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_merge_loses_nothing_and_merges_once() {
    for step in [Step::GuestClosed, Step::CartMerged] {
        let world = World::new();
        let products = world.products(2, 100).await;
        let shop = world.shop(Faults::none());
        shop.register("anna@example.ru", "correct horse").await.unwrap();
        let guest = world.guest(&shop).await;
        shop.add_to_cart(&guest, products[0], 2, None, None).await.unwrap();
        shop.add_to_cart(&guest, products[1], 1, None, None).await.unwrap();
        shop.set_in_cart(&guest, products[1], 5, None).await.unwrap();

        let (faults, _) = crash_at(step, 1);
        let crashed = world
            .shop(faults)
            .log_in("anna@example.ru", "correct horse", Some(guest.clone()), Default::default())
            .await;
        assert!(crashed.is_err(), "{step:?}");

        // A change that was on its way when the guest's session was closed still counts.
        let late = cart::CartChange {
            id: mobimir_core::id::ChangeId(mobimir_core::id::fresh(shop.now())),
            at: shop.now(),
            origin: guest.cart_owner(),
            keyed: false,
            effect: cart::Effect::Add { product: products[0], quantity: 1, zone: None },
        };
        let expires_at = shop.now().plus_s(3_600);
        shop.stores().carts.append(guest.cart_owner(), vec![late], expires_at, shop.now()).await.unwrap();

        for _ in 0..3 {
            world.clock.advance_ms(60_000);
            shop.reconcile().await;
        }
        let session =
            shop.log_in("anna@example.ru", "correct horse", Some(guest), Default::default()).await.unwrap();
        let user = shop.authenticate(&session.token).await.unwrap().unwrap();
        let cart = shop.cart(&user).await.unwrap();
        let quantities: Vec<u64> = products.iter().map(|product| quantity(&cart, *product)).collect();
        assert_eq!(quantities, [3, 5], "{step:?}");
    }
}

fn quantity(cart: &mobimir_shop::CartContents, product: mobimir_core::id::ProductId) -> u64 {
    cart.items.iter().filter(|item| item.product_id == product).map(|item| item.quantity).sum()
}

#[tokio::test]
async fn parallel_requests_with_one_key_make_one_order() {
    let world = World::new();
    let products = world.products(1, 100).await;
    let user = world.user();
    // Two instances of the shop, over the same stores.
    let shops: Vec<Shop> = (0..2).map(|_| world.shop(Faults::none())).collect();
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let (shop, request) = (shops[n % 2].clone(), world.order_of(&products, 2));
            tokio::spawn(async move { shop.place_order(user, "key", request).await })
        })
        .collect();
    let mut placed = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(answer) => placed.push(answer),
            Err(PlaceOrderError::InProgress) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(!placed.is_empty());
    assert_eq!(placed.iter().filter(|answer| !answer.replayed).count(), 1);
    assert!(placed.iter().all(|answer| answer.order == placed[0].order));
    world.clock.advance_ms(60_000);
    shops[0].reconcile().await;
    assert_eq!(world.check_settled(&shops[0]).await.sold, 2);
}

/// Orders that are not answered when they are written, for as long as that is so.
struct HangingOrders {
    orders: Arc<dyn OrderStore>,
    hangs: AtomicBool,
}

#[async_trait]
impl OrderStore for HangingOrders {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.orders.insert(orders).await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.orders.get(id).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.orders.history(id).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        self.orders.transition(id, from, change).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.orders.by_user(user, period, after, limit).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.orders.by_day(day, filter, after, limit).await
    }
}

/// More orders than one pass of the reconciler takes cannot be written, and all of them wait for longer than
/// the checkout of somebody else that has expired: its stock is back all the same.
#[tokio::test(start_paused = true)]
async fn an_order_store_that_hangs_does_not_hold_up_the_stock_of_others() {
    const WAITING: usize = 300;
    let mut world = World::new();
    let hanging =
        Arc::new(HangingOrders { orders: world.stores.orders.clone(), hangs: AtomicBool::new(true) });
    world.stores.orders = hanging.clone();
    let products = world.products(WAITING, 1).await;
    for product in &products {
        let (faults, _) = crash_at(Step::CheckoutCommitted, 1);
        let order = world.order_of(&[*product], 1);
        let crashed = world.shop(faults).place_order(world.user(), "key", order).await;
        assert!(matches!(crashed, Err(PlaceOrderError::Stopped(_))), "{crashed:?}");
    }
    let scarce = world.products(1, 1).await;
    let (faults, _) = crash_at(Step::AllLinesHeld, 1);
    let order = world.order_of(&scarce, 1);
    let crashed = world.shop(faults).place_order(world.user(), "key", order).await;
    assert!(matches!(crashed, Err(PlaceOrderError::Stopped(_))), "{crashed:?}");

    let shop = world.shop(Faults::none());
    world.clock.advance_ms(60_000);
    let first = shop.reconcile().await;
    assert!(first.failures > 0 && first.failures < WAITING, "one pass takes some of them: {first:?}");
    // Without any time passing by the shop's clock: what could not be finished has moved back.
    shop.reconcile().await;
    let stock = shop.product(scarce[0]).await.unwrap().unwrap();
    assert!(stock.holds.is_empty(), "{stock:?}");
    assert_eq!(stock.stock[&World::zone()].available, 1);
    assert!(shop.oldest_due().await.unwrap().is_some(), "what was moved back still counts as waiting");

    hanging.hangs.store(false, Ordering::SeqCst);
    world.clock.advance_ms(60_000);
    for _ in 0..2 {
        shop.reconcile().await;
        world.let_spawned_work_run().await;
    }
    let settled = world.check_settled(&shop).await;
    assert_eq!((settled.sold, settled.available), (WAITING as u64, 1));
}

/// However many orders wait for a store that hangs, what an expired checkout holds is given back in time.
#[tokio::test(start_paused = true)]
async fn stock_comes_back_in_time_however_many_orders_wait_for_a_store_that_hangs() {
    const WAITING: usize = 2_000;
    const RECONCILED_WITHIN_S: usize = 30;
    let mut world = World::new();
    let hanging = HangingOrders { orders: world.stores.orders.clone(), hangs: AtomicBool::new(true) };
    world.stores.orders = Arc::new(hanging);
    for product in world.products(WAITING, 1).await {
        let (faults, _) = crash_at(Step::CheckoutCommitted, 1);
        let order = world.order_of(&[product], 1);
        let crashed = world.shop(faults).place_order(world.user(), "key", order).await;
        assert!(matches!(crashed, Err(PlaceOrderError::Stopped(_))), "{crashed:?}");
    }
    world.clock.advance_ms(1_000);
    let scarce = world.products(1, 1).await;
    let (faults, _) = crash_at(Step::AllLinesHeld, 1);
    let crashed = world.shop(faults).place_order(world.user(), "key", world.order_of(&scarce, 1)).await;
    assert!(matches!(crashed, Err(PlaceOrderError::Stopped(_))), "{crashed:?}");

    world.clock.advance_ms(15_000);
    let shop = world.shop(Faults::none());
    let reconciler = tokio::spawn(run_reconciler(shop.clone(), std::future::pending()));
    for _ in 0..RECONCILED_WITHIN_S {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.clock.advance_ms(1_000);
    }
    reconciler.abort();
    let stock = shop.product(scarce[0]).await.unwrap().unwrap();
    assert!(stock.holds.is_empty(), "{stock:?}");
    assert_eq!(stock.stock[&World::zone()].available, 1);
}

/// Deadlines are the store's: an instance whose clock is a minute ahead aborts nothing that is within its time.
#[tokio::test(start_paused = true)]
async fn an_instance_that_is_ahead_leaves_the_orders_of_others_alone() {
    const AHEAD_MS: i64 = 60_000;
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2025-11-28T00:00:00Z").unwrap()));
    let world = World::on(ModelStore::stores_with_clock(clock.clone()), clock.clone());
    let ahead = Arc::new(ManualClock::at(clock.now().plus_ms(AHEAD_MS)));
    let ahead = Shop::new(world.stores.clone(), ahead, Default::default());
    let products = world.products(1, 10).await;
    let user = world.user();
    let (faults, _) = crash_at(Step::LineHeld, 1);
    let begun = world.shop(faults).place_order(user, "key", world.order_of(&products, 1)).await;
    assert!(matches!(begun, Err(PlaceOrderError::Stopped(_))), "{begun:?}");
    ahead.reconcile().await;
    ahead.reconcile_at_start().await;
    world.shop(Faults::none()).place_order(user, "key", world.order_of(&products, 1)).await.unwrap();

    // What it has begun itself is given up in time, by those whose clocks are right.
    let (faults, _) = crash_at(Step::LineHeld, 1);
    let its_clock = Arc::new(ManualClock::at(clock.now().plus_ms(AHEAD_MS)));
    let dies = Shop::with_faults(world.stores.clone(), its_clock, Default::default(), faults);
    assert!(dies.place_order(user, "left", world.order_of(&products, 1)).await.is_err());
    clock.advance_ms(16_000);
    world.shop(Faults::none()).reconcile().await;
    let left = world.stores.products.get_checkout(OrderId::of(user, "left")).await.unwrap().unwrap();
    assert!(!left.is_open(), "{left:?}");
}
