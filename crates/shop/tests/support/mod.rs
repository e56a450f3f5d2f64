//! A shop over model stores, with a clock that stands still.

#![expect(clippy::unwrap_used, reason = "test support")]

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use mobimir_core::{
    id::{self, OrderId, ProductId, UserId},
    money::Money,
    ports::Stores,
    product::{Product, ProductEdit, ProductQuery, ProductSort},
    time::{ManualClock, Timestamp},
    zone::Zone,
};
use mobimir_shop::{
    Caller, ClientInfo, OrderRequest, Shop, ShopSettings,
    faults::{Fault, Faults, Step},
};
use mobimir_testkit::model::ModelStore;

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) stores: Stores,
    #[allow(dead_code, reason = "not every test file has products or users")]
    next: AtomicU64,
}

/// Of all products together.
#[derive(Debug)]
#[allow(dead_code, reason = "not every test file asks how much there is")]
pub(crate) struct Settled {
    pub(crate) available: u64,
    pub(crate) sold: u64,
}

/// Stops at the `nth` time that `step` is reached.
#[allow(dead_code, reason = "not every test file crashes")]
pub(crate) fn crash_at(step: Step, nth: usize) -> (Faults, Arc<AtomicUsize>) {
    let reached = Arc::new(AtomicUsize::new(0));
    let counter = reached.clone();
    let faults = Faults::planned(move |at| {
        let stops = at == step && counter.fetch_add(1, Ordering::SeqCst) + 1 == nth;
        if stops { Fault::Stop } else { Fault::None }
    });
    (faults, reached)
}

impl World {
    pub(crate) fn new() -> Self {
        let start = Timestamp::parse("2025-11-28T00:00:00Z").unwrap();
        Self::on(ModelStore::stores(), Arc::new(ManualClock::at(start)))
    }

    pub(crate) fn on(stores: Stores, clock: Arc<ManualClock>) -> Self {
        Self { clock, stores, next: AtomicU64::new(1) }
    }

    pub(crate) fn shop(&self, faults: Faults) -> Shop {
        // Cheap passwords: the tests are not about them.
        let settings = ShopSettings { password_memory_kib: 8, ..ShopSettings::default() };
        self.shop_with(settings, faults)
    }

    pub(crate) fn shop_with(&self, settings: ShopSettings, faults: Faults) -> Shop {
        Shop::with_faults(self.stores.clone(), self.clock.clone(), settings, faults)
    }

    pub(crate) fn zone() -> Zone {
        Zone::parse("MSK").unwrap()
    }

    /// Products at 100.00 with `stock` units each.
    #[allow(dead_code, reason = "not every test file has products")]
    pub(crate) async fn products(&self, count: usize, stock: u64) -> Vec<ProductId> {
        let now = Timestamp::default();
        let product = |_| {
            let id =
                ProductId(id::derived("test", &[&self.next.fetch_add(1, Ordering::SeqCst).to_be_bytes()]));
            let (price, zones) = (Money::from_kopecks(10_000), BTreeMap::from([(Self::zone(), stock)]));
            Product::new(id, "Телефон".into(), "Электроника".into(), price, BTreeMap::new(), zones, now)
                .unwrap()
        };
        let products: Vec<Product> = (0..count).map(product).collect();
        let ids = products.iter().map(|product| product.id).collect();
        self.stores.products.insert(products).await.unwrap();
        ids
    }

    #[allow(dead_code, reason = "not every test file changes prices")]
    pub(crate) async fn double_prices(&self, shop: &Shop, products: &[ProductId]) {
        for product in products {
            let edit = ProductEdit { price: Some(Money::from_kopecks(20_000)), ..ProductEdit::default() };
            shop.edit_product(*product, edit).await.unwrap();
        }
    }

    #[allow(dead_code, reason = "not every test file has users")]
    pub(crate) fn user(&self) -> UserId {
        UserId(id::derived("user", &[&self.next.fetch_add(1, Ordering::SeqCst).to_be_bytes()]))
    }

    /// A session of a user who never signed up: all that carts and orders need.
    #[allow(dead_code, reason = "not every test file has users with carts")]
    pub(crate) async fn log_in(&self, user: UserId) -> Caller {
        let shop = self.shop(Faults::none());
        let guest = self.guest(&shop).await;
        let session = mobimir_core::session::Session {
            holder: mobimir_core::session::Holder::User(user),
            ..(*guest.session).clone()
        };
        Caller { session: Arc::new(session), ..guest }
    }

    #[allow(dead_code, reason = "not every test file has guests")]
    pub(crate) async fn guest(&self, shop: &Shop) -> Caller {
        let session = shop.start_guest_session(ClientInfo::default()).await.unwrap();
        shop.authenticate(&session.token).await.unwrap().unwrap()
    }

    pub(crate) fn order_of(&self, products: &[ProductId], quantity: u64) -> OrderRequest {
        OrderRequest {
            geo_zone: Self::zone(),
            items: Some(products.iter().map(|product| (*product, quantity)).collect()),
            shipping_address: None,
            payment_method: None,
            hash: [7; 32],
            shown: None,
        }
    }

    #[allow(dead_code, reason = "not every test file orders carts")]
    pub(crate) fn cart_order(&self) -> OrderRequest {
        OrderRequest { items: None, ..self.order_of(&[], 0) }
    }

    /// Tasks that a shop has left running get their turn.
    #[allow(dead_code, reason = "not every test file waits for them")]
    pub(crate) async fn let_spawned_work_run(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// STK-1, no hold left, every committed checkout has its order and every order its checkout.
    #[allow(dead_code, reason = "not every test file looks at all there is")]
    pub(crate) async fn check_settled(&self, shop: &Shop) -> Settled {
        let query = ProductQuery::all(ProductSort::PriceAscending, 1_000);
        let products = self.stores.products.list(query).await.unwrap().items;
        let mut sold_by_books = 0;
        let mut available = 0;
        for product in &products {
            assert!(product.books_balance(), "STK-1: {product:?}");
            assert!(product.holds.is_empty(), "left behind: {product:?}");
            sold_by_books += product.stock.values().map(|stock| stock.sold).sum::<u64>();
            available += product.stock.values().map(|stock| stock.available).sum::<u64>();
        }
        assert!(shop.oldest_due().await.unwrap().is_none(), "a checkout is still due");
        let day = self.stores.orders.by_day(shop.now().day(), Default::default(), None, 1_000).await.unwrap();
        let orders: HashSet<OrderId> = day.items.iter().map(|order| order.id).collect();
        assert_eq!(orders.len(), day.items.len(), "an order stands twice in its day");
        let mut sold_by_orders = 0;
        for order in &day.items {
            let checkout = self.stores.products.get_checkout(order.id).await.unwrap().unwrap();
            assert!(checkout.is_committed(), "ORD-1: {checkout:?}");
            if order.status != mobimir_core::order::OrderStatus::Cancelled {
                sold_by_orders += order.lines.iter().map(|line| line.quantity).sum::<u64>();
            }
        }
        assert_eq!(sold_by_books, sold_by_orders, "what was sold is not what was ordered");
        Settled { available, sold: sold_by_books }
    }
}
