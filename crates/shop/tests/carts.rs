//! What becomes of a cart when somebody is quick, or late.

#![expect(clippy::disallowed_methods, reason = "only the simulation has to be repeatable")]

mod support;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use mobimir_core::{
    cart::{
        self, CART_CHANGES_MAX, CartChange, CartPosition, Effect, Owner, StoredCart, UNPACKED_CHANGES_MAX,
    },
    checkout::ShownLines,
    id::{self, ChangeId, OrderId, ProductId},
    invariant::Invariant,
    page::Page,
    ports::{CartStore, StoreError, StoreResult},
    time::{Clock, ManualClock, Timestamp},
};
use mobimir_shop::{
    Caller, CartContents, CartError, OrderRequest, PlaceOrderError, Shop, ShopSettings, faults::Faults,
};

use mobimir_testkit::model::ModelStore;

use self::support::World;

#[tokio::test]
async fn lines_stand_in_the_order_they_were_added_within_one_millisecond_too() {
    let world = World::new();
    // Ids of a process are in order for the latest of all clocks. Each test here has its own, and this is the latest.
    world.clock.advance_ms(10 * 365 * 86_400_000);
    let shop = world.shop(Faults::none());
    for keys in [[None; 4], [Some("a"), Some("b"), Some("c"), Some("d")], [None, None, Some("e"), Some("f")]]
    {
        let products = world.products(4, 10).await;
        let caller = world.log_in(world.user()).await;
        for (product, key) in products.iter().zip(keys) {
            shop.add_to_cart(&caller, *product, 1, None, key).await.unwrap();
        }
        let cart = shop.cart(&caller).await.unwrap();
        let shown: Vec<_> = cart.items.iter().map(|item| item.product_id).collect();
        assert_eq!(shown, products, "with the keys {keys:?}");
    }
}

/// A guest with one thing in the cart who has just logged in.
async fn logged_in(world: &World, shop: &Shop) -> (Caller, Caller) {
    let product = world.products(1, 100).await[0];
    shop.register("anna@example.ru", "correct horse").await.expect("the address is free");
    let guest = world.guest(shop).await;
    shop.add_to_cart(&guest, product, 1, None, None).await.expect("there is enough");
    let session = shop
        .log_in("anna@example.ru", "correct horse", Some(guest.clone()), Default::default())
        .await
        .expect("the password is right");
    let user = shop.authenticate(&session.token).await.ok().flatten().expect("the session is alive");
    (guest, user)
}

#[tokio::test]
async fn nobody_looks_for_the_last_time_while_a_request_may_be_running() {
    for request_ms_max in [1_000, 10_000, 60_000] {
        let world = World::new();
        let settings = ShopSettings { request_ms_max, password_memory_kib: 8, ..ShopSettings::default() };
        let shop = world.shop_with(settings, Faults::none());
        logged_in(&world, &shop).await;
        world.clock.advance_ms(request_ms_max);
        assert_eq!(shop.reconcile().await.merges, 0, "{request_ms_max} ms");
        world.clock.advance_ms(10_000);
        assert_eq!(shop.reconcile().await.merges, 1, "{request_ms_max} ms");
    }
}

/// Gives a guest's cart a change that was on its way, right after the next write to a user's.
struct Late {
    carts: Arc<dyn CartStore>,
    change: Mutex<Option<CartChange>>,
}

#[async_trait]
impl CartStore for Late {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        self.carts.append(owner, changes, expires_at, now).await?;
        let late = match owner {
            Owner::User(_) => self.change.lock().expect("nobody panics").take(),
            Owner::Guest(_) => None,
        };
        match late {
            Some(change) => self.carts.append(change.origin, vec![change], expires_at, now).await,
            None => Ok(()),
        }
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        self.carts.read(owner, now).await
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.carts.untouched(untouched_since, after, limit, now).await
    }
}

/// Nobody was told that it is in the cart; but there it is.
#[tokio::test]
async fn what_arrives_during_the_last_look_goes_along() {
    let mut world = World::new();
    let late = Arc::new(Late { carts: world.stores.carts.clone(), change: Mutex::default() });
    world.stores.carts = late.clone();
    let shop = world.shop(Faults::none());
    let (guest, user) = logged_in(&world, &shop).await;
    let product = shop.cart(&user).await.unwrap().items[0].product_id;
    *late.change.lock().unwrap() = Some(CartChange {
        id: ChangeId(id::fresh(shop.now())),
        at: shop.now(),
        origin: guest.cart_owner(),
        keyed: false,
        effect: Effect::Add { product, quantity: 2, zone: None },
    });
    world.clock.advance_ms(60_000);
    assert_eq!(shop.reconcile().await.merges, 1);
    assert!(late.change.lock().unwrap().is_none(), "it has arrived");
    assert_eq!(shop.cart(&user).await.unwrap().items[0].quantity, 3);
    assert_eq!(shop.invariants().violations(Invariant::Crt2), 0);
}

/// When a guest's session was closed is the store's time: an instance whose clock is ahead takes the last look no earlier.
#[tokio::test]
async fn an_instance_that_is_ahead_does_not_take_the_last_look_too_early() {
    const AHEAD_MS: i64 = 60_000;
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2025-11-28T00:00:00Z").unwrap()));
    let world = World::on(ModelStore::stores_with_clock(clock.clone()), clock.clone());
    let its_clock = Arc::new(ManualClock::at(clock.now().plus_ms(AHEAD_MS)));
    let ahead = Shop::new(world.stores.clone(), its_clock, ShopSettings::default());
    let shop = world.shop(Faults::none());
    logged_in(&world, &shop).await;
    assert_eq!(ahead.reconcile().await.merges, 0, "a request of the guest may still be running");
    clock.advance_ms(30_000);
    assert_eq!(ahead.reconcile().await.merges, 1);
}

fn order_as_shown(world: &World, cart: &CartContents) -> OrderRequest {
    let shown = cart.items.iter().map(|item| (item.product_id, item.quantity, item.price));
    OrderRequest { shown: Some(ShownLines::of(shown)), ..world.cart_order() }
}

/// Between the page and the record: prices and quantities that were not shown are not sold, and nothing is
/// recorded.
#[tokio::test]
async fn what_was_shown_is_what_is_sold() {
    let world = World::new();
    let shop = world.shop(Faults::none());
    let products = world.products(2, 100).await;
    let user = world.user();
    let caller = world.log_in(user).await;
    for product in &products {
        shop.add_to_cart(&caller, *product, 1, None, None).await.unwrap();
    }

    let shown = shop.cart(&caller).await.unwrap();
    world.double_prices(&shop, &products).await;
    let refused = shop.place_order(user, "key", order_as_shown(&world, &shown)).await;
    assert!(matches!(refused, Err(PlaceOrderError::Changed)), "prices: {refused:?}");

    let shown = shop.cart(&caller).await.unwrap();
    shop.add_to_cart(&caller, products[0], 1, None, None).await.unwrap();
    let refused = shop.place_order(user, "key", order_as_shown(&world, &shown)).await;
    assert!(matches!(refused, Err(PlaceOrderError::Changed)), "quantities: {refused:?}");
    let recorded = world.stores.products.get_checkout(OrderId::of(user, "key")).await.unwrap();
    assert!(recorded.is_none(), "{recorded:?}");

    let shown = shop.cart(&caller).await.unwrap();
    let placed = shop.place_order(user, "key", order_as_shown(&world, &shown)).await.unwrap();
    let total: i128 = placed.order.lines.iter().map(|line| line.price.times(line.quantity).kopecks()).sum();
    assert_eq!(total, shown.amount.kopecks());
    // Under a key that has its order, the record decides and not the cart, which is empty by now.
    let again = shop.place_order(user, "key", order_as_shown(&world, &shown)).await.unwrap();
    assert!(again.replayed);
}

/// Packs as Cassandra does: when a cart is read, and what is a minute old.
#[derive(Default)]
struct Packing {
    carts: tokio::sync::Mutex<BTreeMap<Owner, StoredCart>>,
}

#[async_trait]
impl CartStore for Packing {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let mut carts = self.carts.lock().await;
        let new = StoredCart { changes: Vec::new(), created_at: now, updated_at: now, expires_at };
        let cart = carts.entry(owner).or_insert(new);
        cart.changes.extend(changes);
        (cart.updated_at, cart.expires_at) = (now, cart.expires_at.max(expires_at));
        Ok(())
    }

    /// The reader still sees what is packed then.
    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let mut carts = self.carts.lock().await;
        let Some(cart) = carts.get_mut(&owner) else { return Ok(None) };
        let read = cart.clone();
        let is_packed = |change: &CartChange| matches!(change.effect, Effect::Packed(_));
        let is_settled = |change: &CartChange| is_packed(change) || now.since(change.at) > 60_000;
        let (settled, others): (Vec<_>, Vec<_>) = read.changes.iter().cloned().partition(is_settled);
        if settled.iter().filter(|change| !is_packed(change)).count() > UNPACKED_CHANGES_MAX {
            cart.changes = vec![cart::pack(ChangeId(id::fresh(now)), owner, &settled, now)];
            cart.changes.extend(others);
        }
        Ok(Some(read))
    }

    async fn untouched(
        &self,
        _untouched_since: Timestamp,
        _after: Option<CartPosition>,
        _limit: usize,
        _now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        Ok(Page::empty())
    }
}

fn packing_world() -> World {
    let mut world = World::new();
    world.stores.carts = Arc::new(Packing::default());
    world
}

async fn add_33(shop: &Shop, caller: &Caller, product: ProductId) {
    for _ in 0..33 {
        shop.add_to_cart(caller, product, 1, None, None).await.expect("there is enough");
    }
}

/// By product: a process gives its ids in order for one clock, and each test has its own.
async fn quantities(shop: &Shop, caller: &Caller) -> Vec<(ProductId, u64)> {
    let cart = shop.cart(caller).await.expect("the store answers");
    let quantities: BTreeMap<_, _> = cart.items.iter().map(|item| (item.product_id, item.quantity)).collect();
    quantities.into_iter().collect()
}

/// CRT-2, as it was broken on real servers: the first look met parts, the second their group, and both counted.
#[tokio::test]
async fn a_guests_cart_that_is_packed_between_the_looks_of_a_merge_is_merged_once() {
    let world = packing_world();
    let shop = world.shop(Faults::none());
    let products = world.products(2, 1_000).await;
    shop.register("anna@example.ru", "correct horse").await.unwrap();
    let guest = world.guest(&shop).await;
    add_33(&shop, &guest, products[0]).await;
    world.clock.advance_ms(61_000);
    quantities(&shop, &guest).await;
    world.clock.advance_ms(121_000);
    add_33(&shop, &guest, products[1]).await;
    world.clock.advance_ms(61_000);
    let session =
        shop.log_in("anna@example.ru", "correct horse", Some(guest), Default::default()).await.unwrap();
    let user = shop.authenticate(&session.token).await.unwrap().unwrap();
    let expected = vec![(products[0], 33), (products[1], 33)];
    assert_eq!(quantities(&shop, &user).await, expected);
    world.clock.advance_ms(17_000);
    let mut merges = shop.reconcile().await.merges;
    assert_eq!(quantities(&shop, &user).await, expected);
    world.clock.advance_ms(61_000);
    merges += shop.reconcile().await.merges;
    assert_eq!(quantities(&shop, &user).await, expected);
    assert_eq!((merges, shop.invariants().violations(Invariant::Crt2)), (1, 0));
}

/// An instance stood still between the check of the session and the write: the login is over, and the last check
/// of the merge, too. What it acknowledges is not lost.
#[tokio::test]
async fn an_add_that_comes_after_the_last_check_of_a_merge_goes_along() {
    let world = World::new();
    let (shop, late) = (world.shop(Faults::none()), world.shop(Faults::none()));
    let products = world.products(2, 1_000).await;
    shop.register("anna@example.ru", "correct horse").await.unwrap();
    let guest = world.guest(&late).await;
    late.add_to_cart(&guest, products[0], 3, None, None).await.unwrap();
    let session = shop
        .log_in("anna@example.ru", "correct horse", Some(guest.clone()), Default::default())
        .await
        .unwrap();
    world.clock.advance_ms(20_000);
    assert_eq!(shop.reconcile().await.merges, 1);
    late.add_to_cart(&guest, products[1], 2, None, None).await.unwrap();
    let user = shop.authenticate(&session.token).await.unwrap().unwrap();
    assert_eq!(quantities(&shop, &user).await, [(products[0], 3), (products[1], 2)]);
}

/// The reconciler comes hours late, and the cart has been packed twice since the order read it.
#[tokio::test]
async fn an_order_takes_its_cart_however_late_its_cover_comes() {
    let mut world = packing_world();
    let refusing = Arc::new(Refusing { carts: world.stores.carts.clone(), refuses: AtomicBool::new(false) });
    world.stores.carts = refusing.clone();
    let shop = world.shop(Faults::none());
    let products = world.products(2, 1_000).await;
    let user = world.user();
    let caller = world.log_in(user).await;
    add_33(&shop, &caller, products[0]).await;
    refusing.refuses.store(true, Ordering::SeqCst);
    let _unfinished = shop.place_order(user, "key", world.cart_order()).await;
    world.let_spawned_work_run().await;
    refusing.refuses.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        world.clock.advance_ms(3_600_000);
        add_33(&shop, &caller, products[1]).await;
        quantities(&shop, &caller).await;
    }
    assert_eq!(quantities(&shop, &caller).await, [(products[0], 33), (products[1], 99)], "not yet taken");
    shop.reconcile().await;
    world.let_spawned_work_run().await;
    assert_eq!(quantities(&shop, &caller).await, [(products[1], 99)]);
}

/// Takes no cover of an order while it refuses.
struct Refusing {
    carts: Arc<dyn CartStore>,
    refuses: AtomicBool,
}

#[async_trait]
impl CartStore for Refusing {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let is_order = |change: &CartChange| matches!(change.effect, Effect::Cover { order: Some(_), .. });
        if self.refuses.load(Ordering::SeqCst) && changes.iter().any(is_order) {
            return Err(StoreError::Unavailable { what: "carts".into(), source: None });
        }
        self.carts.append(owner, changes, expires_at, now).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        self.carts.read(owner, now).await
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.carts.untouched(untouched_since, after, limit, now).await
    }
}

#[tokio::test]
async fn a_full_cart_takes_no_add_and_still_can_be_changed() {
    let world = packing_world();
    let shop = world.shop(Faults::none());
    let products = world.products(2, 1_000_000).await;
    let caller = world.log_in(world.user()).await;
    let now = shop.now();
    let add = |_| CartChange {
        id: ChangeId(id::fresh(now)),
        at: now,
        origin: caller.cart_owner(),
        keyed: false,
        effect: Effect::Add { product: products[0], quantity: 1, zone: None },
    };
    let adds: Vec<CartChange> = (0..CART_CHANGES_MAX).map(add).collect();
    world.stores.carts.append(caller.cart_owner(), adds, now.plus_ms(86_400_000), now).await.unwrap();
    let full = [(products[0], CART_CHANGES_MAX as u64)];

    let refused = shop.add_to_cart(&caller, products[1], 1, None, None).await;
    assert!(matches!(refused, Err(CartError::Full)), "{refused:?}");
    let refused = shop.set_in_cart(&caller, products[1], 1, None).await;
    assert!(matches!(refused, Err(CartError::Full)), "{refused:?}");
    for wait_ms in [0, 61_000, 3_600_000] {
        world.clock.advance_ms(wait_ms);
        let refused = shop.add_to_cart(&caller, products[1], 1, None, Some("key")).await;
        assert!(matches!(refused, Err(CartError::Full)), "{refused:?} after {wait_ms} ms");
        assert_eq!(quantities(&shop, &caller).await, full);
    }

    shop.set_in_cart(&caller, products[0], 7, None).await.unwrap();
    let refused = shop.add_to_cart(&caller, products[1], 1, None, Some("key")).await;
    assert!(matches!(refused, Err(CartError::Full)), "an answer belongs to its key: {refused:?}");
    shop.add_to_cart(&caller, products[1], 2, None, None).await.unwrap();
    assert_eq!(quantities(&shop, &caller).await, [(products[0], 7), (products[1], 2)]);
}
