//! People in a shop.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use hyper::Method;
use serde_json::{Value, json};

use super::{Client, client::hosts, process::OPERATOR};

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Customer {
    pub(crate) client: Client,
    pub(crate) user_id: String,
    pub(crate) email: String,
    pub(crate) login: Value,
}

/// How long checkouts may stay open that a crash interrupted. It only ends a test that hangs.
const SETTLES_IN_MAX: Duration = Duration::from_secs(600);
/// `session_cache_s` of the policies.
const SESSION_CACHE: Duration = Duration::from_secs(2);

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
        let signed_up = anyone.certain(Method::POST, "/v1/users", &[], Some(who.clone())).await;
        // Nobody else has the email, so it was this request whose answer came too late.
        if !(anyone.has_production_timeouts() && signed_up.status == 409) {
            signed_up.expect(201);
        }
        let login = anyone.certain(Method::POST, "/v1/sessions/login", &[], Some(who)).await.expect(200);
        let client = Client::with_token(host, login["token"].as_str().unwrap());
        Self { client, user_id: login["user_id"].as_str().unwrap().to_owned(), email, login }
    }
}

pub(crate) fn operator(host: &str) -> Client {
    Client::with_token(host, OPERATOR)
}

pub(crate) async fn guest(host: &str) -> Client {
    let mut anyone = Client::new(host);
    // One more session does no harm, nor does one more product.
    let session = anyone.certain(Method::POST, "/v1/sessions", &[], Some(json!({}))).await.expect(201);
    Client::with_token(host, session["token"].as_str().unwrap())
}

/// A product at 100.00 with so many units in MSK; its id.
pub(crate) async fn product(host: &str, units: u64) -> String {
    let body = json!({ "name": format!("Телефон {}", unique()), "category": "Электроника", "price": "100.00", "stock_by_zone": { "MSK": units } });
    let product = operator(host).certain(Method::POST, "/v1/products", &[], Some(body)).await.expect(201);
    product["product_id"].as_str().unwrap().to_owned()
}

pub(crate) fn items(product: &str, quantity: u64) -> Value {
    json!({ "geo_zone": "MSK", "items": [{ "product_id": product, "quantity": quantity }] })
}

/// (available, reserved, sold) in MSK, as all instances say.
pub(crate) async fn stock(host: &str, product: &str) -> (u64, u64, u64) {
    let started = Instant::now();
    loop {
        let mut said = BTreeSet::new();
        for host in hosts(host) {
            said.insert(stock_at(host, product).await);
        }
        match said.pop_first() {
            Some(stock) if said.is_empty() => return stock,
            // Something is sold or settled meanwhile.
            first => assert!(started.elapsed() < SETTLES_IN_MAX, "instances differ: {first:?}, {said:?}"),
        }
    }
}

async fn stock_at(host: &str, product: &str) -> (u64, u64, u64) {
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

/// No instance has seen an invariant broken.
pub(crate) async fn assert_no_violation(host: &str) {
    for host in hosts(host) {
        let invariants = operator(host).get("/v1/ops/invariants").await.expect(200);
        assert!(!invariants["items"].as_array().unwrap().is_empty());
        for invariant in invariants["items"].as_array().unwrap() {
            assert_eq!(invariant["violations"], 0, "{invariant}");
        }
    }
}

/// SES-1, SES-3: that the token was ended has just been answered. The instance that ended it refuses it at
/// once, and every other one whatever is sent later than `session_cache_s` after that, however slow the
/// machine is.
pub(crate) async fn assert_refused(client: &mut Client) {
    assert_refused_at(client, "/v1/cart").await;
}

pub(crate) async fn assert_refused_at(client: &mut Client, path: &str) {
    if client.instances() == 1 && !client.has_production_timeouts() {
        client.get(path).await.problem(401, "unauthorized");
        return;
    }
    let ended = Instant::now();
    // One after the other, so that each instance is among them.
    let mut refusals = 0;
    while refusals < client.instances() {
        let sent_after = ended.elapsed();
        if client.get(path).await.status == 401 {
            refusals += 1;
            continue;
        }
        assert!(sent_after <= SESSION_CACHE, "a token is still taken {sent_after:?} after it was ended");
        refusals = 0;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
