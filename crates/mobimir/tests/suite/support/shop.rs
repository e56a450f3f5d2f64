//! People in a shop.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use hyper::Method;
use serde_json::{Value, json};

use super::{Client, process::OPERATOR};

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Customer {
    pub(crate) client: Client,
    pub(crate) user_id: String,
    pub(crate) email: String,
    pub(crate) login: Value,
}

/// How long what was left half done may stay so.
const SETTLES_IN_MAX: Duration = Duration::from_secs(120);

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
        let user = anyone.certain(Method::POST, "/v1/users", &[], Some(who.clone())).await;
        // Whoever had to ask again may have been signed up the first time.
        let is_known = user.repeated && user.status == 409;
        if !is_known {
            user.expect(201);
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

/// (available, reserved, sold) in MSK.
pub(crate) async fn stock(host: &str, product: &str) -> (u64, u64, u64) {
    let stock = operator(host).get(&format!("/v1/products/{product}/stock?detail=true")).await.expect(200);
    let number = |name: &str| stock["MSK"][name].as_u64().unwrap();
    (number("available"), number("reserved"), number("sold"))
}

/// The same, once the reconciler has settled what requests left that were given up.
pub(crate) async fn settled_stock(host: &str, product: &str) -> (u64, u64, u64) {
    let started = Instant::now();
    loop {
        let stock = stock(host, product).await;
        if stock.1 == 0 || started.elapsed() > SETTLES_IN_MAX {
            return stock;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
