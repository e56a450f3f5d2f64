//! One cart, one order (CRT-4): over instances, keys, crashes and answers that are lost.

mod support;

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    cart::{CartChange, CartPosition, Effect, Owner, StoredCart},
    checkout::ShownLines,
    id::{OrderId, UserId},
    order::OrderStatus,
    page::Page,
    ports::{CartStore, StoreError, StoreResult, Stores},
    time::Timestamp,
};
use mobimir_shop::{
    OrderRequest, PlaceOrderError, Shop,
    faults::{Fault, Faults, Step},
};
use support::{World, crash_at};

/// A store of carts with something wrong.
struct Carts {
    inner: Arc<dyn CartStore>,
    /// It is away whenever an order has taken a cart.
    refuses_covers: bool,
    /// It has not received what orders took.
    hides_covers: bool,
    /// A read is slow: everybody else gets so many turns first.
    read_turns: u32,
}

impl Carts {
    fn of(world: &World) -> Self {
        let inner = world.stores.carts.clone();
        Self { inner, refuses_covers: false, hides_covers: false, read_turns: 0 }
    }
}

impl World {
    fn with_carts(&self, carts: Carts) -> Stores {
        Stores { carts: Arc::new(carts), ..self.stores.clone() }
    }
}

fn is_cover_of_order(change: &CartChange) -> bool {
    matches!(change.effect, Effect::Cover { order: Some(_), .. })
}

#[async_trait]
impl CartStore for Carts {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        if self.refuses_covers && changes.iter().any(is_cover_of_order) {
            return Err(StoreError::Unavailable { what: "the carts are away".to_owned(), source: None });
        }
        self.inner.append(owner, changes, expires_at, now).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        for _ in 0..self.read_turns {
            tokio::task::yield_now().await;
        }
        let mut cart = self.inner.read(owner, now).await?;
        if self.hides_covers {
            cart.iter_mut().for_each(|cart| cart.changes.retain(|change| !is_cover_of_order(change)));
        }
        Ok(cart)
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.inner.untouched(untouched_since, after, limit, now).await
    }
}

/// Fills a cart with one unit of each product.
async fn with_cart(world: &World, units: usize) -> (UserId, mobimir_shop::Caller) {
    let products = world.products(units, 100).await;
    let user = world.user();
    let caller = world.log_in(user).await;
    let shop = world.shop(Faults::none());
    for product in products {
        shop.add_to_cart(&caller, product, 1, None, None).await.expect("there is enough");
    }
    (user, caller)
}

#[tokio::test]
async fn what_a_crash_left_in_the_cart_is_not_ordered_under_another_key() {
    for step in [Step::CheckoutCommitted, Step::OrderWritten, Step::LinesSettled] {
        let world = World::new();
        let (user, caller) = with_cart(&world, 2).await;
        let (faults, _) = crash_at(step, 1);
        // The order is written first, and the cart is not taken any more.
        let stores = world.with_carts(Carts { refuses_covers: true, ..Carts::of(&world) });
        let crashed = Shop::with_faults(stores, world.clock.clone(), Default::default(), faults);
        let first = crashed.place_order(user, "first", world.cart_order()).await;
        assert!(first.is_err(), "{step:?}: {first:?}");

        let other = world.shop(Faults::none());
        let second = other.place_order(user, "second", world.cart_order()).await;
        let Err(PlaceOrderError::EmptyCart { ordered_by }) = second else { panic!("{step:?}: {second:?}") };
        assert_eq!(ordered_by, Some(OrderId::of(user, "first")), "{step:?}");

        // What is put in afterwards is ordered, and nothing else.
        let product = world.products(1, 100).await[0];
        other.add_to_cart(&caller, product, 3, None, None).await.unwrap();
        let third = other.place_order(user, "third", world.cart_order()).await.unwrap();
        let ordered: Vec<_> = third.order.lines.iter().map(|line| (line.product_id, line.quantity)).collect();
        assert_eq!(ordered, [(product, 3)], "{step:?}");
        world.clock.advance_ms(60_000);
        other.reconcile().await;
        world.let_spawned_work_run().await;
        assert_eq!(world.check_settled(&other).await.sold, 5, "{step:?}");
    }
}

/// CRT-4: both have read the same cart when they go on.
#[tokio::test(start_paused = true)]
async fn one_cart_under_two_keys_on_two_instances_is_one_order() {
    let mut refused_by_claim = 0;
    for pauses in 0..24 {
        let world = World::new();
        let (user, caller) = with_cart(&world, 2).await;
        let instance = |turns: u32| world.shop(Faults::planned(move |_| Fault::Pause { turns }));
        let (here, there) = (instance(pauses), instance(24 - pauses));
        let placed = tokio::join!(
            here.place_order(user, "here", world.cart_order()),
            there.place_order(user, "there", world.cart_order()),
        );
        let (winner, loser, lost_key) = match placed {
            (Ok(placed), Err(error)) => (placed, error, "there"),
            (Err(error), Ok(placed)) => (placed, error, "here"),
            other => panic!("{pauses}: {other:?}"),
        };
        let by = match loser {
            PlaceOrderError::CartOrdered { by, replayed: false } => {
                refused_by_claim += 1;
                // Final for its key, also when the cart has been filled again.
                let product = world.products(1, 100).await[0];
                here.add_to_cart(&caller, product, 1, None, None).await.unwrap();
                let again = here.place_order(user, lost_key, world.cart_order()).await;
                assert!(
                    matches!(again, Err(PlaceOrderError::CartOrdered { replayed: true, .. })),
                    "{again:?}"
                );
                Some(by)
            }
            PlaceOrderError::EmptyCart { ordered_by } => ordered_by,
            other => panic!("{pauses}: {other:?}"),
        };
        assert_eq!(by, Some(winner.order.id), "{pauses}");
        world.clock.advance_ms(60_000);
        here.reconcile().await;
        world.let_spawned_work_run().await;
        assert_eq!(world.check_settled(&here).await.sold, 2, "{pauses}");
    }
    assert!(refused_by_claim > 0, "no two of them have read the same cart");
}

/// CRT-4: wherever the cart is read, and whatever was aborted since.
#[tokio::test(start_paused = true)]
async fn an_aborted_order_does_not_bring_back_what_an_earlier_one_took() {
    let mut world = World::new();
    world.stores = world.with_carts(Carts { hides_covers: true, ..Carts::of(&world) });
    let (user, caller) = with_cart(&world, 1).await;
    let shop = world.shop(Faults::none());
    let first = shop.place_order(user, "first", world.cart_order()).await.unwrap().order.id;
    let scarce = world.products(1, 1).await;
    shop.add_to_cart(&caller, scarce[0], 1, None, None).await.unwrap();
    shop.place_order(world.user(), "faster", world.order_of(&scarce, 1)).await.unwrap();
    let short = shop.place_order(user, "short", world.cart_order()).await;
    assert!(matches!(short, Err(PlaceOrderError::OutOfStock { .. })), "{short:?}");
    shop.remove_from_cart(&caller, scarce[0]).await.unwrap();
    let again = shop.place_order(user, "again", world.cart_order()).await;
    let Err(PlaceOrderError::EmptyCart { ordered_by }) = again else { panic!("{again:?}") };
    assert_eq!(ordered_by, Some(first));
}

#[tokio::test(start_paused = true)]
async fn a_cart_whose_order_was_aborted_can_be_ordered() {
    let world = World::new();
    let (user, caller) = with_cart(&world, 1).await;
    let shop = world.shop(Faults::none());
    // Two who read the cart at the same time and claim it one after the other: the first dies with the claim.
    let (faults, _) = crash_at(Step::CartClaimed, 1);
    let dead = world.shop(faults).place_order(user, "dead", world.cart_order()).await;
    assert!(matches!(dead, Err(PlaceOrderError::Stopped(_))), "{dead:?}");
    let waiting = shop.place_order(user, "next", world.cart_order()).await;
    assert!(matches!(waiting, Err(PlaceOrderError::InProgress)), "{waiting:?}");
    // Past its deadline whoever waits for it aborts it; nobody needs the reconciler.
    world.clock.advance_ms(60_000);
    shop.place_order(user, "next", world.cart_order()).await.unwrap();
    let dead = shop.place_order(user, "dead", world.cart_order()).await;
    assert!(matches!(dead, Err(PlaceOrderError::Expired)), "{dead:?}");
    assert!(shop.cart(&caller).await.unwrap().items.is_empty());
    shop.reconcile().await;
    world.let_spawned_work_run().await;
    assert_eq!(world.check_settled(&shop).await.sold, 1);
}

#[tokio::test(start_paused = true)]
async fn an_order_of_explicit_items_neither_claims_nor_takes_the_cart() {
    let world = World::new();
    let (user, caller) = with_cart(&world, 1).await;
    let shop = world.shop(Faults::none());
    let products = world.products(1, 100).await;
    shop.place_order(user, "items", world.order_of(&products, 1)).await.unwrap();
    assert_eq!(world.stores.products.cart_claim(user).await.unwrap(), None);
    assert_eq!(shop.cart(&caller).await.unwrap().items.len(), 1);
}

/// CRT-4: cancelling an order whose cart was never told of it tells the cart.
#[tokio::test(start_paused = true)]
async fn what_a_cancelled_order_took_is_not_ordered_again() {
    let world = World::new();
    let (user, caller) = with_cart(&world, 2).await;
    let stores = world.with_carts(Carts { refuses_covers: true, ..Carts::of(&world) });
    let cut_off = Shop::new(stores, world.clock.clone(), Default::default());
    let first = cut_off.place_order(user, "first", world.cart_order()).await;
    assert!(matches!(first, Err(PlaceOrderError::Store(_))), "{first:?}");
    // The cart is still away when the order is cancelled, and is told later.
    let first = OrderId::of(user, "first");
    cut_off.move_order(first, OrderStatus::Cancelled, "op").await.unwrap();
    let shop = world.shop(Faults::none());
    world.clock.advance_ms(60_000);
    shop.reconcile().await;
    assert!(shop.cart(&caller).await.unwrap().items.is_empty());
    for key in ["second", "third"] {
        let product = world.products(1, 100).await[0];
        shop.add_to_cart(&caller, product, 1, None, None).await.unwrap();
        let placed = shop.place_order(user, key, world.cart_order()).await.unwrap();
        let ordered: Vec<_> = placed.order.lines.iter().map(|line| line.product_id).collect();
        assert_eq!(ordered, [product], "{key}");
    }
    world.clock.advance_ms(60_000);
    shop.reconcile().await;
    world.let_spawned_work_run().await;
    assert_eq!(world.check_settled(&shop).await.sold, 2);
}

/// ORD-2: a request that is repeated at another instance while the first still runs is not told that its cart
/// is empty, because its own order has emptied it.
#[tokio::test(start_paused = true)]
async fn one_key_on_two_instances_is_not_refused_for_its_own_order() {
    let mut overtaken = 0;
    for read_turns in 0..48 {
        let world = World::new();
        let (user, _) = with_cart(&world, 2).await;
        let here = world.shop(Faults::planned(|_| Fault::Pause { turns: 1 }));
        let stores = world.with_carts(Carts { read_turns, ..Carts::of(&world) });
        let there = Shop::new(stores, world.clock.clone(), Default::default());
        // The second is asked first, so that it finds no record, and reads the cart some time later.
        let (second, first) = tokio::join!(
            there.place_order(user, "key", world.cart_order()),
            here.place_order(user, "key", world.cart_order()),
        );
        let first = first.unwrap_or_else(|error| panic!("{read_turns}: {error}"));
        match second {
            Ok(second) => {
                assert_eq!(second.order, first.order, "{read_turns}");
                overtaken += u32::from(second.replayed);
            }
            Err(PlaceOrderError::InProgress) => {}
            Err(error) => panic!("{read_turns}: {error}"),
        }
        world.clock.advance_ms(60_000);
        here.reconcile().await;
        world.let_spawned_work_run().await;
        assert_eq!(world.check_settled(&here).await.sold, 2, "{read_turns}");
    }
    assert!(overtaken > 0, "no request was overtaken by the same one");
}

/// The prices were shown before the first of two equal requests was sent; the second finds others, and the order
/// of the first.
#[tokio::test(start_paused = true)]
async fn one_key_on_two_instances_is_not_refused_for_a_price_that_changed_after_its_order() {
    let world = World::new();
    let (user, caller) = with_cart(&world, 1).await;
    let here = world.shop(Faults::none());
    let cart = here.cart(&caller).await.unwrap();
    let shown = ShownLines::of(cart.items.iter().map(|item| (item.product_id, item.quantity, item.price)));
    let request = || OrderRequest { shown: Some(shown), ..world.cart_order() };
    let stores = world.with_carts(Carts { read_turns: 1_000, ..Carts::of(&world) });
    let there = Shop::new(stores, world.clock.clone(), Default::default());
    let first = async {
        let placed = here.place_order(user, "key", request()).await;
        world.double_prices(&here, &[cart.items[0].product_id]).await;
        placed
    };
    let (second, first) = tokio::join!(there.place_order(user, "key", request()), first);
    assert_eq!(second.unwrap().order, first.unwrap().order);
}
