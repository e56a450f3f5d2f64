//! People in a shop.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::{Client, process::OPERATOR};

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Customer {
    pub(crate) client: Client,
    pub(crate) user_id: String,
    pub(crate) email: String,
    pub(crate) login: Value,
}

pub(crate) const PASSWORD: &str = "correct horse battery";

pub(crate) fn unique() -> u64 {
    NEXT.fetch_add(1, Ordering::SeqCst)
}

impl Customer {
    /// Signs up and logs in.
    pub(crate) async fn new(host: &str) -> Self {
        let email = format!("customer-{}@example.ru", unique());
        let mut anyone = Client::new(host);
        let user =
            anyone.post("/v1/users", json!({ "email": email, "password": PASSWORD })).await.expect(201);
        let login = anyone
            .post("/v1/sessions/login", json!({ "email": email, "password": PASSWORD }))
            .await
            .expect(200);
        let client = Client::with_token(host, login["token"].as_str().unwrap());
        Self { client, user_id: user["user_id"].as_str().unwrap().to_owned(), email, login }
    }
}

pub(crate) fn operator(host: &str) -> Client {
    Client::with_token(host, OPERATOR)
}

pub(crate) async fn guest(host: &str) -> Client {
    let session = Client::new(host).post("/v1/sessions", json!({})).await.expect(201);
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
