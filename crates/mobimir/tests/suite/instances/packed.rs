//! The cart of a guest that has been packed is merged once. It takes four and a half minutes of waiting with
//! the times of production, so it runs beside everything else that leaves the servers whole (`scripts/test`).

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use super::{client, need_servers};
use crate::support::{
    Client, Customer, Instances,
    instances::Setting,
    shop::{PASSWORD, assert_no_violation, product, settled_stock},
};

/// One more than are kept apart before they are packed.
const ADDS: u64 = 33;
/// Changes younger than a minute are not packed.
const PACKABLE_AFTER: Duration = Duration::from_secs(61);
/// Longer than an instance that is late may still write what it read before the packing.
const PACKED_FOR_SURE_AFTER: Duration = Duration::from_secs(121);
/// The cart of a guest who logged in is looked at once more 5 and 10 s after a request can last, which is 10
/// s.
const LOOKED_AT_FOR: Duration = Duration::from_secs(25);

/// CRT-2, CRT-4: 33 of one product, packed, and 33 of another: those are in the cart after the login and
/// later, on both instances, and those are ordered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guests_packed_cart_is_merged_once() {
    need_servers();
    let shop = Instances::start(Setting::SHARED);
    let [here, there] = shop.hosts();
    let both = shop.host.as_str();
    // Requests in turn at both; all at the one where the login is; all at the other one.
    let guests = [(both, both), (here, here), (here, there)];
    let mut bought = Vec::new();
    for (at, login_at) in guests {
        let mut goods = [product(here, 1_000).await, product(here, 1_000).await];
        goods.sort();
        bought.push(tokio::spawn(buy(at.to_owned(), login_at.to_owned(), both.to_owned(), goods)));
    }
    for goods in bought {
        for product in goods.await.unwrap() {
            assert_eq!(settled_stock(both, &product).await, (1_000 - ADDS, 0, ADDS));
        }
    }
    assert_no_violation(both).await;
}

async fn buy(at: String, login_at: String, both: String, goods: [String; 2]) -> [String; 2] {
    let session =
        Client::new(&at).certain(Method::POST, "/v1/sessions", &[], Some(json!({}))).await.expect(201);
    let mut guest = client(&at, &session);
    let [first, second] = &goods;
    add(&mut guest, first).await;
    tokio::time::sleep(PACKABLE_AFTER).await;
    assert_eq!(quantities(&guest.get("/v1/cart").await.expect(200)), [(first.as_str(), ADDS)]);
    tokio::time::sleep(PACKED_FOR_SURE_AFTER).await;
    add(&mut guest, second).await;
    tokio::time::sleep(PACKABLE_AFTER).await;

    let customer = Customer::new(&login_at).await;
    let who = json!({ "email": customer.email, "password": PASSWORD });
    let login = client(&login_at, &session).certain(Method::POST, "/v1/sessions/login", &[], Some(who)).await;
    let mut customer = client(&both, &login.expect(200));
    let expected = [(first.as_str(), ADDS), (second.as_str(), ADDS)];
    let logged_in = tokio::time::Instant::now();
    while logged_in.elapsed() < LOOKED_AT_FOR {
        assert_eq!(quantities(&customer.get("/v1/cart").await.expect(200)), expected, "CRT-2");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let order = customer.order("all of it", json!({ "geo_zone": "MSK" })).await.expect(201);
    assert_eq!(quantities(&order), expected, "CRT-4");
    for _ in 0..customer.instances() {
        assert_eq!(quantities(&customer.get("/v1/cart").await.expect(200)), []);
    }
    goods
}

/// Each under a key, so that an answer that comes too late does no harm.
async fn add(guest: &mut Client, product: &str) {
    for number in 0..ADDS {
        let (key, body) = (
            format!("{product} {number}"),
            json!({ "product_id": product, "quantity": 1, "geo_zone": "MSK" }),
        );
        let keyed = [("idempotency-key", key.as_str())];
        guest.certain(Method::POST, "/v1/cart/items", &keyed, Some(body)).await.expect(200);
    }
}

/// Sorted by product.
fn quantities(cart: &Value) -> Vec<(&str, u64)> {
    let items = cart["items"].as_array().unwrap().iter();
    let mut quantities: Vec<(&str, u64)> = items
        .map(|item| (item["product_id"].as_str().unwrap(), item["quantity"].as_u64().unwrap()))
        .collect();
    quantities.sort_unstable();
    quantities
}
