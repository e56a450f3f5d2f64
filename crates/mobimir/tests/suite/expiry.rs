//! Carts and sessions that end with their time, with lifetimes short enough to see.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    api::quantities,
    support::{
        Answer, Client, Customer, Process,
        shop::{operator, product},
    },
};

const POLICY: &str = "[carts]\nttl = { guest = \"3s\", user = \"1h\" }\n\
    [sessions]\nttl = { user = \"1h\", guest = \"5s\" }\n[times]\nabandoned_after = \"1s\"\n";
const ABANDONED_AFTER: Duration = Duration::from_secs(1);
const GUESTS_STAY: Duration = Duration::from_secs(5);
const ABANDONED: &str = "/v1/carts?status=abandoned";
/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// CRT-3, SES-1, abandoned carts.
#[tokio::test]
async fn carts_are_abandoned_and_end_with_their_time() {
    let dir = TempDir::new().unwrap();
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, POLICY).unwrap();
    let shop =
        Process::start(&["serve", "--policy", policy.to_str().unwrap()], &dir.path().join("data"), &[]);
    let host = &shop.host;
    let mut operator = operator(host);
    let phone = product(host, 10).await;
    let add = json!({ "product_id": phone, "quantity": 2 });

    let mut customer = Customer::new(host).await;
    customer.client.post("/v1/cart/items", add.clone()).await.expect(200);
    let of_user = |answer: &Answer| lists(answer, "user_id", &json!(customer.user_id));
    until("being abandoned", &mut operator, ABANDONED, &of_user).await;
    assert_eq!(customer.client.get("/v1/cart").await.expect(200)["status"], "abandoned");
    let mut adds = 1;
    loop {
        let started = Instant::now();
        let touched = customer.client.post("/v1/cart/items", add.clone()).await.expect(200);
        adds += 1;
        if touched["status"] == "active" {
            break;
        }
        assert!(started.elapsed() >= ABANDONED_AFTER, "{touched}");
    }

    let (session, mut visitor) = abandoned_by_a_guest(host, &add).await;
    // A guest who logs out, or whose cart went into a user's, has no cart to abandon.
    let gone = loop {
        let started = Instant::now();
        let (gone, mut leaving, _) = visit(host, &add).await;
        let left = leaving.delete("/v1/sessions/current").await;
        if left.status == 204 {
            break gone;
        }
        assert!(started.elapsed() >= GUESTS_STAY, "{left:?}");
    };
    tokio::time::sleep(ABANDONED_AFTER + Duration::from_millis(100)).await;
    let listed = operator.get(ABANDONED).await;
    assert!(!lists(&listed, "session_id", &gone["session_id"]), "{listed:?}");
    let has_ended = |answer: &Answer| !lists(answer, "session_id", &session["session_id"]);
    until("the end of the guest's cart", &mut operator, ABANDONED, &has_ended).await;
    until("the end of the guest's session", &mut visitor, "/v1/cart", &|answer| answer.status == 401).await;
    assert_eq!(quantities(&customer.client.get("/v1/cart").await.expect(200)), [2 * adds]);
}

async fn until(what: &str, client: &mut Client, path: &str, there: &dyn Fn(&Answer) -> bool) {
    let started = Instant::now();
    while !there(&client.get(path).await) {
        assert!(started.elapsed() < PATIENCE, "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether one of the abandoned carts has this value.
fn lists(answer: &Answer, field: &str, value: &Value) -> bool {
    answer.expect(200)["items"].as_array().unwrap().iter().any(|cart| cart[field] == *value)
}

/// A guest whose cart was seen among the abandoned ones. On a slow machine a cart may end before anybody
/// looks; then another guest comes.
async fn abandoned_by_a_guest(host: &str, add: &Value) -> (Value, Client) {
    let (started, mut operator) = (Instant::now(), operator(host));
    loop {
        let (session, mut visitor, cart) = visit(host, add).await;
        let ends = [&cart, &session].map(|it| it["expires_at"].as_str().unwrap());
        assert!(ends[0] <= ends[1], "CRT-3: {cart} {session}");
        while visitor.get("/v1/cart").await.status == 200 {
            if lists(&operator.get(ABANDONED).await, "session_id", &session["session_id"]) {
                return (session, visitor);
            }
            assert!(started.elapsed() < PATIENCE, "no guest's cart is ever abandoned");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A guest who puts something into a cart: the session, its client, the cart. One whose session ended
/// meanwhile comes anew.
async fn visit(host: &str, add: &Value) -> (Value, Client, Value) {
    loop {
        let started = Instant::now();
        let session = Client::new(host).post("/v1/sessions", json!({})).await.expect(201);
        let mut visitor = Client::with_token(host, session["token"].as_str().unwrap());
        let added = visitor.post("/v1/cart/items", add.clone()).await;
        if added.status == 200 {
            return (session, visitor, added.json());
        }
        assert!(started.elapsed() >= GUESTS_STAY, "{added:?}");
    }
}
