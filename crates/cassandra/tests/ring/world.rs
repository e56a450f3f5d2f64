//! A shop with products on the embedded store, and carts, orders and sessions on the ring.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mobimir_cassandra::{
    CartOptions, CassandraCarts, CassandraOrders, CassandraSessions, Cluster, OrderCovers,
};
use mobimir_core::{
    id::{self, OrderId, ProductId, UserId},
    money::Money,
    order::Order,
    policy::{self, Entity, Policy},
    ports::{DayFilter, Period, Stores},
    product::Product,
    session::{Holder, Session},
    time::{Clock, Day},
    zone::Zone,
};
use mobimir_embedded::{EmbeddedStore, Options};
use mobimir_lab::Ring;
use mobimir_shop::{Caller, ClientInfo, OrderRequest, Shop, ShopSettings, faults::Faults};
use tempfile::TempDir;

use crate::support;

pub(crate) const ENTITIES: [Entity; 3] = [Entity::Carts, Entity::Orders, Entity::Sessions];

pub(crate) struct World {
    pub(crate) stores: Stores,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) carts: Arc<CassandraCarts>,
    pub(crate) orders: Arc<CassandraOrders>,
    pub(crate) sessions: Arc<CassandraSessions>,
    next: AtomicU64,
    _dir: TempDir,
}

impl World {
    pub(crate) async fn new(ring: &Ring, policy: &Policy, clock: Arc<dyn Clock>) -> Self {
        let fresh = support::common(ring, policy, &ENTITIES).await;
        Self::on(fresh.cluster, policy, clock).await
    }

    pub(crate) async fn on(cluster: Arc<Cluster>, policy: &Policy, clock: Arc<dyn Clock>) -> Self {
        let dir = TempDir::new().expect("a directory");
        let embedded =
            EmbeddedStore::open(&dir.path().join("data"), &Options::default()).expect("a store").stores();
        let of = |entity| support::settings(policy, entity);
        // Several worlds are made in one test, on the stack of one thread.
        let options = CartOptions {
            order_covers: Some(OrderCovers::like(&of(Entity::Orders))),
            ..CartOptions::default()
        };
        let carts = Box::pin(CassandraCarts::open(cluster.clone(), of(Entity::Carts), options));
        let orders = Box::pin(CassandraOrders::open(
            cluster.clone(),
            of(Entity::Orders),
            policy.orders.buckets,
            Default::default(),
        ));
        let sessions = Box::pin(CassandraSessions::open(cluster.clone(), of(Entity::Sessions)));
        let carts = Arc::new(carts.await.expect("carts can be opened"));
        let orders = Arc::new(orders.await.expect("orders can be opened"));
        let sessions = Arc::new(sessions.await.expect("sessions can be opened"));
        let stores =
            Stores { carts: carts.clone(), orders: orders.clone(), sessions: sessions.clone(), ..embedded };
        Self { stores, clock, cluster, carts, orders, sessions, next: AtomicU64::new(1), _dir: dir }
    }

    pub(crate) fn shop(&self, faults: Faults) -> Shop {
        Shop::with_faults(self.stores.clone(), self.clock.clone(), shop_settings(), faults)
    }

    /// The same shop, which waits no longer than that for any answer of the ring.
    pub(crate) async fn hurried_shop(&self, policy: &Policy, timeout: policy::Period) -> Shop {
        let of = |entity| {
            let mut settings = support::settings(policy, entity);
            settings.timeout = timeout;
            settings
        };
        let opened = "its stores can be opened";
        let carts = support::answered(opened, || {
            CassandraCarts::open(self.cluster.clone(), of(Entity::Carts), CartOptions::default())
        });
        let orders = support::answered(opened, || {
            let (cluster, buckets) = (self.cluster.clone(), policy.orders.buckets);
            CassandraOrders::open(cluster, of(Entity::Orders), buckets, Default::default())
        });
        let sessions =
            support::answered(opened, || CassandraSessions::open(self.cluster.clone(), of(Entity::Sessions)));
        let stores = Stores {
            carts: Arc::new(carts.await),
            orders: Arc::new(orders.await),
            sessions: Arc::new(sessions.await),
            ..self.stores.clone()
        };
        Shop::with_faults(stores, self.clock.clone(), shop_settings(), Faults::none())
    }

    pub(crate) async fn product(&self, units: u64) -> ProductId {
        let id = ProductId(id::fresh(self.clock.now()));
        let zones = BTreeMap::from([(zone(), units)]);
        let price = Money::from_kopecks(10_000);
        let product = Product::new(
            id,
            "Телефон".into(),
            "Связь".into(),
            price,
            BTreeMap::new(),
            zones,
            self.clock.now(),
        );
        self.stores.products.insert(vec![product.expect("a product")]).await.expect("it is kept");
        id
    }

    pub(crate) fn user(&self) -> UserId {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        UserId(id::derived("user", &[id::fresh(self.clock.now()).as_bytes(), &number.to_be_bytes()]))
    }

    /// A session of a user who never signed up: all that carts and orders need.
    pub(crate) async fn caller(&self, shop: &Shop, user: UserId) -> Caller {
        let started =
            support::answered("a session", || shop.start_guest_session(ClientInfo::default())).await;
        // A policy may give up that it is seen at once.
        let guest = support::answered("the session is live", || async {
            let found = shop.authenticate(&started.token).await.map_err(|error| error.to_string());
            found.and_then(|guest| guest.ok_or_else(|| "it is not there".to_owned()))
        })
        .await;
        let session = Session { holder: Holder::User(user), ..(*guest.session).clone() };
        Caller { session: Arc::new(session), ..guest }
    }

    /// STK-1: the books balance, nothing is left held; how many units were sold.
    pub(crate) async fn sold(&self, product: ProductId) -> u64 {
        let product = self.stores.products.get(product).await.expect("it can be read").expect("it is there");
        assert!(product.books_balance(), "STK-1: {product:?}");
        assert!(product.holds.is_empty(), "left behind: {product:?}");
        product.stock.values().map(|stock| stock.sold).sum()
    }

    async fn orders_of(&self, day: Day) -> HashMap<OrderId, Vec<Order>> {
        let (mut after, mut found) = (None, HashMap::<OrderId, Vec<Order>>::new());
        loop {
            let page = self.stores.orders.by_day(day, DayFilter::default(), after, 100).await.expect("a day");
            for order in page.items {
                found.entry(order.id).or_default().push(order);
            }
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
    }

    /// ORD-1: every order of a user, by id, by user and by day; how many there are.
    pub(crate) async fn check_orders(&self, user: UserId) -> usize {
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let page =
                self.stores.orders.by_user(user, Period::default(), after, 100).await.expect("a history");
            found.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut days = BTreeMap::<Day, HashMap<OrderId, Vec<Order>>>::new();
        for order in &found {
            let by_id = self.stores.orders.get(order.id).await.expect("it can be read");
            assert_eq!(by_id.as_ref(), Some(order), "ORD-1 by id");
            let day = match days.entry(order.day()) {
                Entry::Occupied(day) => day.into_mut(),
                Entry::Vacant(day) => day.insert(self.orders_of(order.day()).await),
            };
            assert_eq!(day.get(&order.id), Some(&vec![order.clone()]), "ORD-1 in its day");
        }
        found.len()
    }
}

fn shop_settings() -> ShopSettings {
    // Cheap passwords, and time for every order: the tests are not about them.
    ShopSettings { password_memory_kib: 8, checkout_request_ms_max: 60_000, ..ShopSettings::default() }
}

pub(crate) fn zone() -> Zone {
    Zone::parse("MSK").expect("a zone")
}

pub(crate) fn order_of(product: ProductId, quantity: u64) -> OrderRequest {
    OrderRequest { items: Some(vec![(product, quantity)]), ..order_of_cart() }
}

pub(crate) fn order_of_cart() -> OrderRequest {
    OrderRequest {
        geo_zone: zone(),
        items: None,
        shipping_address: None,
        payment_method: None,
        hash: [7; 32],
        shown: None,
    }
}
