//! People in a shop.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Client, process::OPERATOR};

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Customer {
    pub(crate) client: Client,
    pub(crate) user_id: String,
    pub(crate) email: String,
    pub(crate) login: Value,
}

/// How long checkouts may stay open that a crash interrupted. It only ends a test that hangs.
const SETTLES_IN_MAX: Duration = Duration::from_secs(600);

pub(crate) const PASSWORD: &str = "correct horse battery";

pub(crate) fn unique() -> u64 {
    NEXT.fetch_add(1, Ordering::SeqCst)
}

impl Customer {
    /// Signs up and logs in.
    pub(crate) async fn new(host: &str) -> Self {
        let email = format!("customer-{}@example.ru", unique());
        let mut anyone = Client::new(host);
        let who = json!({ "email": email, "password": PASSWORD });
        anyone.post("/v1/users", who.clone()).await.expect(201);
        let login = anyone.post("/v1/sessions/login", who).await.expect(200);
        let client = Client::with_token(host, login["token"].as_str().unwrap());
        Self { client, user_id: login["user_id"].as_str().unwrap().to_owned(), email, login }
    }
}

pub(crate) fn operator(host: &str) -> Client {
    Client::with_token(host, OPERATOR)
}

pub(crate) async fn guest(host: &str) -> Client {
    let mut anyone = Client::new(host);
    let session = anyone.post("/v1/sessions", json!({})).await.expect(201);
    Client::with_token(host, session["token"].as_str().unwrap())
}

/// A product at 100.00 with so many units in MSK; its id.
pub(crate) async fn product(host: &str, units: u64) -> String {
    let body = json!({ "name": format!("Телефон {}", unique()), "category": "Электроника", "price": "100.00", "stock_by_zone": { "MSK": units } });
    let product = operator(host).post("/v1/products", body).await.expect(201);
    product["product_id"].as_str().unwrap().to_owned()
}

pub(crate) fn items(product: &str, quantity: u64) -> Value {
    json!({ "geo_zone": "MSK", "items": [{ "product_id": product, "quantity": quantity }] })
}

/// (available, reserved, sold) in MSK.
pub(crate) async fn stock(host: &str, product: &str) -> (u64, u64, u64) {
    let stock = operator(host).get(&format!("/v1/products/{product}/stock?detail=true")).await.expect(200);
    let number = |name: &str| stock["MSK"][name].as_u64().unwrap();
    (number("available"), number("reserved"), number("sold"))
}

/// The same, once the reconciler has settled the checkouts that a crash interrupted.
pub(crate) async fn settled_stock(host: &str, product: &str) -> (u64, u64, u64) {
    let started = Instant::now();
    loop {
        let stock = stock(host, product).await;
        if stock.1 == 0 {
            return stock;
        }
        assert!(started.elapsed() < SETTLES_IN_MAX, "units of {product} stay reserved: {stock:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// ORD-1 and ORD-2: the history of `owner` has exactly the acknowledged `orders`, given as they were
/// answered; each is found by its id with the same content, and in the report of its day.
pub(crate) async fn assert_orders_found(host: &str, owner: &mut Client, orders: &[Value]) {
    let id_of = |order: &Value| order["order_id"].as_str().unwrap().to_owned();
    let acknowledged: BTreeSet<String> = orders.iter().map(id_of).collect();
    assert_eq!(acknowledged.len(), orders.len(), "ORD-2: one order was acknowledged twice");
    let listed = all_pages(owner, "/v1/orders?limit=100").await;
    let in_history: BTreeSet<String> = listed.iter().map(id_of).collect();
    assert_eq!(in_history.len(), listed.len(), "ORD-2: an order is listed twice");
    assert_eq!(in_history, acknowledged, "ORD-1, ORD-2: the history is not what was acknowledged");
    let mut by_day = BTreeMap::<String, BTreeSet<String>>::new();
    for order in orders {
        let found = owner.get(&format!("/v1/orders/{}", id_of(order))).await.expect(200);
        for field in ["order_id", "user_id", "items", "total_amount", "geo_zone", "created_at"] {
            assert_eq!(found[field], order[field], "ORD-1: {field}");
        }
        by_day
            .entry(order["created_at"].as_str().unwrap()[..10].to_owned())
            .or_default()
            .insert(id_of(order));
    }
    for (day, expected) in by_day {
        let path = format!("/v1/reports/orders?day={day}&limit=100");
        let reported: Vec<String> = all_pages(&mut operator(host), &path).await.iter().map(id_of).collect();
        // Other tests may have ordered on the same day.
        let reported_once: BTreeSet<String> = reported.iter().cloned().collect();
        assert_eq!(reported_once.len(), reported.len(), "ORD-1: an order is twice in the report of {day}");
        let missing: Vec<&String> = expected.difference(&reported_once).collect();
        assert!(missing.is_empty(), "ORD-1: not in the report of {day}: {missing:?}");
    }
}

async fn all_pages(client: &mut Client, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut next = path.to_owned();
    loop {
        let page = client.get(&next).await.expect(200);
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(after) => next = format!("{path}&after={after}"),
            None => return items,
        }
    }
}

/// The instance has not seen an invariant broken.
pub(crate) async fn assert_no_violation(host: &str) {
    let invariants = operator(host).get("/v1/ops/invariants").await.expect(200);
    assert!(!invariants["items"].as_array().unwrap().is_empty());
    for invariant in invariants["items"].as_array().unwrap() {
        assert_eq!(invariant["violations"], 0, "{invariant}");
    }
}
