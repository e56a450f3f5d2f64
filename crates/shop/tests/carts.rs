//! What becomes of a cart when somebody is quick, or late.

mod support;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mobimir_core::{
    cart::{CartChange, CartPosition, Effect, Owner, StoredCart},
    id::{self, ChangeId},
    invariant::Invariant,
    page::Page,
    ports::{CartStore, StoreResult},
    time::Timestamp,
};
use mobimir_shop::{Caller, Shop, ShopSettings, faults::Faults};

use self::support::World;

#[tokio::test]
async fn lines_stand_in_the_order_they_were_added_within_one_millisecond_too() {
    let world = World::new();
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
