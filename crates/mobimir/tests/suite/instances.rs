//! Two instances of one shop on real servers: what one has answered holds on the other.

use std::{
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    Client, Customer, Process,
    servers::{self, Tables},
    shop::{assert_no_violation, items, product, settled_stock},
};

/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);
/// `session_cache_s` of the policy.
const SESSION_CACHE: Duration = Duration::from_secs(2);

struct Two {
    here: Process,
    there: Process,
    _dir: TempDir,
}

impl Two {
    fn start() -> Self {
        assert!(servers::are_real(), "two instances share servers: set MOBIMIR_SUITE_POLICY=default");
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        let environment = servers::environment(&data, Tables::Shared);
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let start = |name: &str| Process::start(&["serve"], &dir.path().join(name), &environment);
        Self { here: start("here"), there: start("there"), _dir: dir }
    }

    async fn assert_no_violation(&self) {
        for host in [&self.here.host, &self.there.host] {
            assert_no_violation(host).await;
        }
    }
}

fn client(host: &str, session: &serde_json::Value) -> Client {
    Client::with_token(host, session["token"].as_str().unwrap())
}

/// SES-3: that the token was ended has just been answered. However slow the machine is, a request that is
/// sent later than `session_cache_s` after that is refused.
async fn is_refused_within_the_cache_time(mut client: Client) {
    let ended = Instant::now();
    loop {
        let sent_after = ended.elapsed();
        if client.get("/v1/cart").await.status.as_u16() == 401 {
            return;
        }
        assert!(sent_after <= SESSION_CACHE, "a token is still taken {sent_after:?} after it was ended");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// SES-3: also while the other instance remembers the session with its old token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refreshed_token_works_on_the_other_instance_at_once() {
    let two = Two::start();
    let (here, there) = (&two.here.host, &two.there.host);
    let mut session = Customer::new(here).await.login;
    for _ in 0..10 {
        client(there, &session).get("/v1/cart").await.expect(200);
        let refresh = json!({ "refresh_token": session["refresh_token"] });
        let refreshed = Client::new(here).post("/v1/sessions/refresh", refresh).await.expect(200);
        let (mut new, old) = (client(there, &refreshed), client(there, &session));
        // Asked at the same moment: neither may teach the instance what the other asks.
        let (answer, ()) = tokio::join!(new.get("/v1/cart"), is_refused_within_the_cache_time(old));
        answer.expect(200);
        session = refreshed;
    }
    client(there, &session).get("/v1/cart").await.expect(200);
    client(here, &session).delete("/v1/sessions/current").await.expect(204);
    is_refused_within_the_cache_time(client(there, &session)).await;
    two.assert_no_violation().await;
}

/// CRT-4: one cart, two keys, two instances, one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cart_is_ordered_once_however_many_instances_are_asked() {
    const ROUNDS: u64 = 10;
    let two = Two::start();
    let (here, there) = (&two.here.host, &two.there.host);
    let phone = product(here, 1_000).await;
    let customer = Customer::new(here).await;
    let mut refused_by_claim = 0;
    for round in 0..ROUNDS {
        let add = json!({ "product_id": phone, "quantity": 1 });
        client(here, &customer.login).post("/v1/cart/items", add).await.expect(200);
        let order = |host: &str| {
            let mut client = client(host, &customer.login);
            let key = format!("{round} at {host}");
            async move { client.order(&key, json!({ "geo_zone": "MSK" })).await }
        };
        let answers = tokio::join!(order(here), order(there));
        let (placed, refused) = match (answers.0.status.as_u16(), answers.1.status.as_u16()) {
            (201, 409) => (answers.0, answers.1),
            (409, 201) => (answers.1, answers.0),
            _ => panic!("round {round}: {answers:?}"),
        };
        let problem = refused.json();
        assert!(["cart_ordered", "empty_cart"].contains(&problem["code"].as_str().unwrap()), "{problem}");
        assert_eq!(problem["order_id"], placed.json()["order_id"], "{problem}");
        refused_by_claim += usize::from(problem["code"] == "cart_ordered");
        let cart = client(there, &customer.login).get("/v1/cart").await.expect(200);
        assert_eq!(cart["items"], json!([]), "round {round}");
    }
    println!("{refused_by_claim} of {ROUNDS} were refused by the claim, the others found the cart empty");
    assert_eq!(settled_stock(here, &phone).await, (1_000 - ROUNDS, 0, ROUNDS));
    two.assert_no_violation().await;
}

/// Who hangs up after the order was begun has ordered, whether anybody asks again or not; who asks again has
/// ordered once. A request of which nothing was begun when its client hung up is not begun any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_has_ordered_once() {
    const FINISHED_MIN: usize = 3;
    // An order that is not there by then was not begun, or the machine is slow: then it counts for nothing.
    const APPEARS_WITHIN: Duration = Duration::from_secs(3);
    let two = Two::start();
    let (here, there) = (&two.here.host, &two.there.host);
    let phone = product(here, 1_000).await;
    let customer = Customer::new(here).await;
    let token = customer.login["token"].as_str().unwrap();
    let started = Instant::now();
    let (mut rounds, mut finished) = (0, 0);
    while finished < FINISHED_MIN {
        assert!(started.elapsed() < PATIENCE, "{finished} of {rounds} who hung up have ordered");
        rounds += 1;
        let (key, body) = (rounds.to_string(), items(&phone, 1).to_string());
        let request = format!(
            "POST /v1/orders HTTP/1.1\r\nhost: {here}\r\nauthorization: Bearer {token}\r\nidempotency-key: {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut connection = TcpStream::connect(here).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(rounds as u64 % 8 * 3)).await;
        drop(connection);
        let hung_up = Instant::now();
        while orders(there, &customer).await < rounds && hung_up.elapsed() < APPEARS_WITHIN {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        finished += usize::from(orders(there, &customer).await == rounds);
        client(there, &customer.login).order(&key, items(&phone, 1)).await.expect(201);
    }
    let sold = rounds as u64;
    assert_eq!(settled_stock(here, &phone).await, (1_000 - sold, 0, sold));
    assert_eq!(orders(there, &customer).await, rounds, "ORD-2");
    two.assert_no_violation().await;
}

/// How many there are in the customer's history.
async fn orders(host: &str, customer: &Customer) -> usize {
    let history = client(host, &customer.login).get("/v1/orders?limit=100").await.expect(200);
    history["items"].as_array().unwrap().len()
}
