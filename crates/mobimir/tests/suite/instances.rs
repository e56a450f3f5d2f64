//! Two instances of one shop on real servers, with the timeouts of production: what one has answered holds on
//! the other.

mod crash;
mod history;
mod moving_history;
mod packed;

use std::{
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use mobimir_lab::{Proxy, Rewrite};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    browser::buys_at,
    support::{
        Client, Customer, Instances,
        browser::Screen,
        servers::{self, Tables},
        shop::{assert_refused, items, product, settled_stock},
        with_shop,
    },
};

/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);

fn client(host: &str, session: &Value) -> Client {
    Client::with_token(host, session["token"].as_str().unwrap())
}

fn need_servers() {
    assert!(servers::are_real(), "two instances share servers: set MOBIMIR_SUITE_POLICY=default");
}

/// SES-3: also while the other instance remembers the session with its old token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refreshed_token_works_on_the_other_instance_at_once() {
    need_servers();
    with_shop(async |shop| {
        let [here, there] = shop.hosts();
        let mut session = Customer::new(here).await.login;
        for _ in 0..10 {
            client(there, &session).get("/v1/cart").await.expect(200);
            let refresh = json!({ "refresh_token": session["refresh_token"] });
            let refreshed = Client::new(here).post("/v1/sessions/refresh", refresh).await.expect(200);
            let (mut new, mut old) = (client(there, &refreshed), client(there, &session));
            // Asked at the same moment: neither may teach the instance what the other asks.
            let (answer, ()) = tokio::join!(new.get("/v1/cart"), assert_refused(&mut old));
            answer.expect(200);
            session = refreshed;
        }
        client(there, &session).get("/v1/cart").await.expect(200);
        client(here, &session).delete("/v1/sessions/current").await.expect(204);
        assert_refused(&mut client(there, &session)).await;
        shop.assert_no_violation().await;
    })
    .await;
}

/// CRT-4: one cart, two keys, two instances, one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cart_is_ordered_once_however_many_instances_are_asked() {
    const ROUNDS: u64 = 30;
    need_servers();
    with_shop(async |shop| {
        let [here, there] = shop.hosts();
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
            let code = problem["code"].as_str().unwrap();
            assert!(["cart_ordered", "empty_cart"].contains(&code), "{problem}");
            assert_eq!(problem["order_id"], placed.json()["order_id"], "{problem}");
            refused_by_claim += usize::from(code == "cart_ordered");
            let cart = client(there, &customer.login).get("/v1/cart").await.expect(200);
            assert_eq!(cart["items"], json!([]), "round {round}");
        }
        println!("{refused_by_claim} of {ROUNDS} were refused by the claim, the others found the cart empty");
        assert_eq!(settled_stock(&shop.host, &phone).await, (1_000 - ROUNDS, 0, ROUNDS));
        shop.assert_no_violation().await;
    })
    .await;
}

/// ORD-2: a request that comes again at the other instance, sooner or later while the first still runs, has the
/// same answer. It is not refused because its own order has emptied the cart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_has_one_answer_however_many_instances_are_asked() {
    const ROUNDS: u64 = 30;
    need_servers();
    with_shop(async |shop| {
        let [here, there] = shop.hosts();
        let phone = product(here, 1_000).await;
        let customer = Customer::new(here).await;
        for round in 0..ROUNDS {
            let add = json!({ "product_id": phone, "quantity": 1 });
            client(here, &customer.login).post("/v1/cart/items", add).await.expect(200);
            let order = |host: &str, later_ms: u64| {
                let mut client = client(host, &customer.login);
                async move {
                    tokio::time::sleep(Duration::from_millis(later_ms)).await;
                    client.order(&format!("round {round}"), json!({ "geo_zone": "MSK" })).await
                }
            };
            let (first, second) = tokio::join!(order(here, 0), order(there, round % 10 * 4));
            let (first, second) = (first.expect(201), second.expect(201));
            assert_eq!(first["order_id"], second["order_id"], "round {round}");
        }
        assert_eq!(settled_stock(&shop.host, &phone).await, (1_000 - ROUNDS, 0, ROUNDS));
        shop.assert_no_violation().await;
    })
    .await;
}

/// Who hangs up after the order was begun has ordered, whether anybody asks again or not; who asks again has
/// ordered once. A request of which nothing was begun when its client hung up is not begun any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_has_ordered_once() {
    const FINISHED_MIN: usize = 3;
    // An order that is not there by then was not begun, or the machine is slow: then it counts for nothing.
    const APPEARS_WITHIN: Duration = Duration::from_secs(3);
    need_servers();
    with_shop(async |shop| {
        let [here, there] = shop.hosts();
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
                "POST /v1/orders HTTP/1.1\r\nhost: {here}\r\nauthorization: Bearer {token}\r\n\
                 idempotency-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
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
        assert_eq!(settled_stock(&shop.host, &phone).await, (1_000 - sold, 0, sold));
        assert_eq!(orders(there, &customer).await, rounds, "ORD-2");
        shop.assert_no_violation().await;
    })
    .await;
}

/// How many there are in the customer's history.
async fn orders(host: &str, customer: &Customer) -> usize {
    let history = client(host, &customer.login).get("/v1/orders?limit=100").await.expect(200);
    history["items"].as_array().unwrap().len()
}

/// The storefront's cookies and what a shopper has just done are good everywhere: every request goes to the
/// other instance than the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_buys_in_a_browser_on_both_instances_in_turn() {
    need_servers();
    let dir = TempDir::new().unwrap();
    let environment = servers::production_environment(&dir.path().join("data"), Tables::Shared);
    let shop = Instances::on_servers(dir, &["demo", "--products", "300"], [&environment, &environment]);
    let servers = shop.hosts().map(|host| host.parse().unwrap());
    let proxy = Proxy::start(([127, 0, 0, 1], 0).into(), &servers, Rewrite::OneRequest).unwrap();
    buys_at(&proxy.address().to_string(), "two-instances", Screen::Desktop).await;
    for host in shop.hosts() {
        let metrics = Client::new(host).get("/metrics").await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let pages = text.lines().filter(|line| line.starts_with("mobimir_http_requests_total{")).count();
        assert!(pages > 10, "{host} answered few kinds of requests: {text}");
    }
    shop.assert_no_violation().await;
}
