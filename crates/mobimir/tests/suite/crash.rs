//! `kill -9` under load, again and again: whatever was acknowledged is there.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Client, Customer, Process,
    process::SETTLING_REQUEST_LIMIT,
    servers::{self, Tables},
    shop::{assert_orders_found, items, operator, product},
};

const ROUNDS_DEFAULT: usize = 30;
const SHOPPERS: usize = 8;
const PRODUCTS: usize = 6;
/// In every round, before it ends.
const ORDERS_PER_ROUND_MIN: usize = 2;
/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);
/// After the shop has said that it cannot now.
const PAUSE: Duration = Duration::from_millis(50);

/// What one shopper was told, over all rounds.
struct Shopper {
    token: String,
    round: usize,
    /// mongod is killed in this round, so the shop may answer 503 before it is killed itself.
    may_be_unavailable: bool,
    /// Every order that was acknowledged, as it was answered.
    orders: Vec<Value>,
    /// Keys whose answer never came.
    in_doubt: Vec<(String, Value)>,
    /// Units by product that were acknowledged as added to the cart, and those whose answer never came.
    added: HashMap<String, u64>,
    added_in_doubt: HashMap<String, u64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let rounds =
        std::env::var("MOBIMIR_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS_DEFAULT);
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    // A short deadline, so that the reconciler has what to do between two rounds.
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, servers::hasty_policy()).unwrap();
    let environment = servers::environment(&data, Tables::Shared);
    let mut environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    environment.push(SETTLING_REQUEST_LIMIT);
    let start = || Process::start(&["serve", "--policy", policy.to_str().unwrap()], &data, &environment);

    let shop = start();
    let mut products = Vec::new();
    for _ in 0..PRODUCTS {
        products.push(product(&shop.host, 100_000).await);
    }
    let restocked: Arc<Mutex<HashMap<String, (u64, u64)>>> = Arc::default();
    let mut shoppers = Vec::new();
    for _ in 0..SHOPPERS {
        let customer = Customer::new(&shop.host).await;
        shoppers.push(Shopper {
            token: customer.login["token"].as_str().unwrap().to_owned(),
            round: 0,
            may_be_unavailable: false,
            orders: Vec::new(),
            in_doubt: Vec::new(),
            added: HashMap::new(),
            added_in_doubt: HashMap::new(),
        });
    }
    shop.kill();

    for round in 0..rounds {
        let kills_mongod = servers::are_real() && round.is_multiple_of(4);
        let shop = start();
        let (stop, placed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let load: Vec<_> = shoppers
            .drain(..)
            .enumerate()
            .map(|(n, mut shopper)| {
                let (host, products, stop, restocked) =
                    (shop.host.clone(), products.clone(), stop.clone(), restocked.clone());
                let placed = placed.clone();
                (shopper.round, shopper.may_be_unavailable) = (round, kills_mongod);
                tokio::spawn(async move {
                    if n == 0 {
                        restock(&host, &products, &stop, &restocked, kills_mongod).await;
                    } else {
                        shopper.shop(&host, &products, &stop, &placed).await;
                    }
                    shopper
                })
            })
            .collect();
        let started = Instant::now();
        while placed.load(Ordering::SeqCst) < ORDERS_PER_ROUND_MIN {
            assert!(started.elapsed() < PATIENCE, "nobody can order in round {round}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Another moment every round.
        tokio::time::sleep(Duration::from_millis(40 + (round as u64 * 37) % 200)).await;
        // The server that decides dies as well, every fourth time.
        let mongod = round.is_multiple_of(4).then(servers::kill_primary);
        shop.kill();
        stop.store(true, Ordering::SeqCst);
        for task in load {
            shoppers.push(task.await.unwrap());
        }
        if let Some(mongod) = mongod {
            mongod.start_again();
        }
    }

    let shop = start();
    let host = shop.host.clone();
    settled(&host).await;
    let mut sold = 0;
    for shopper in &mut shoppers {
        sold += shopper.check(&host).await;
    }
    settled(&host).await;
    let mut received_low = 0;
    let mut received_high = 0;
    let mut there = 0;
    for product in &products {
        let stock =
            operator(&host).get(&format!("/v1/products/{product}/stock?detail=true")).await.expect(200);
        let number = |name: &str| stock["MSK"][name].as_u64().unwrap();
        assert_eq!(number("reserved"), 0, "the reconciler left something: {stock}");
        there += number("available") + number("sold");
        sold -= number("sold") as i64;
        let (acknowledged, in_doubt) = restocked.lock().unwrap().get(product).copied().unwrap_or_default();
        received_low += 100_000 + acknowledged;
        received_high += 100_000 + acknowledged + in_doubt;
    }
    assert_eq!(sold, 0, "what was sold is not what was ordered");
    assert!(
        (received_low..=received_high).contains(&there),
        "STK-1: {there} units, expected {received_low}..={received_high}"
    );
    let invariants = operator(&host).get("/v1/ops/invariants").await.expect(200);
    for invariant in invariants["items"].as_array().unwrap() {
        assert_eq!(invariant["violations"], 0, "{invariant}");
    }
    let orders: usize = shoppers.iter().map(|shopper| shopper.orders.len()).sum();
    let doubts: usize = shoppers.iter().map(|shopper| shopper.in_doubt.len()).sum();
    println!("{rounds} rounds: {orders} orders acknowledged and found, {doubts} in doubt");
    assert!(orders > rounds, "there was hardly any load: {orders} orders in {rounds} rounds");
    assert!(doubts > 0, "no request was being answered when the shop was killed");
    let acknowledged: u64 = restocked.lock().unwrap().values().map(|(acknowledged, _)| acknowledged).sum();
    assert!(acknowledged > 0, "nothing was restocked");
    assert!(shop.terminate().success());
}

impl Shopper {
    async fn shop(&mut self, host: &str, products: &[String], stop: &AtomicBool, placed: &AtomicUsize) {
        let mut client = Client::with_token(host, &self.token);
        for n in 0.. {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            let product = products[n % products.len()].clone();
            let quantity = 1 + n as u64 % 3;
            if n % 2 == 0 {
                let key = format!("{}-{n}", self.round);
                let body = items(&product, quantity);
                match client
                    .send(Method::POST, "/v1/orders", &[("idempotency-key", &key)], Some(body.clone()))
                    .await
                {
                    Ok(answer) if answer.status == 201 => {
                        self.orders.push(answer.json());
                        placed.fetch_add(1, Ordering::SeqCst);
                    }
                    // It took longer than its deadline allows, so it is certain that nothing was ordered.
                    Ok(answer) if answer.status == 409 => drop(answer.problem(409, "checkout_aborted")),
                    Ok(answer) if answer.status == 503 && self.may_be_unavailable => {
                        self.in_doubt.push((key, body));
                        tokio::time::sleep(PAUSE).await;
                    }
                    Ok(answer) => panic!("{answer:?}"),
                    Err(_) => return self.in_doubt.push((key, body)),
                }
            } else {
                let body = json!({ "product_id": product, "quantity": quantity });
                match client.send(Method::POST, "/v1/cart/items", &[], Some(body)).await {
                    Ok(answer) if answer.status == 200 => *self.added.entry(product).or_default() += quantity,
                    Ok(answer) if answer.status == 503 && self.may_be_unavailable => {
                        *self.added_in_doubt.entry(product).or_default() += quantity;
                        tokio::time::sleep(PAUSE).await;
                    }
                    Ok(answer) => panic!("{answer:?}"),
                    Err(_) => return *self.added_in_doubt.entry(product).or_default() += quantity,
                }
            }
        }
    }

    /// Every acknowledged order is found (ORD-1), doubtful ones get one definite answer, the cart is as acknowledged
    /// (CRT-1); how many units this shopper has bought.
    async fn check(&mut self, host: &str) -> i64 {
        let mut client = Client::with_token(host, &self.token);
        for (key, body) in &self.in_doubt {
            let keyed = [("idempotency-key", key.as_str())];
            let answer = client.certain(Method::POST, "/v1/orders", &keyed, Some(body.clone())).await;
            match answer.status.as_u16() {
                201 => self.orders.push(answer.json()),
                409 => drop(answer.problem(409, "checkout_aborted")),
                _ => panic!("{answer:?}"),
            }
        }
        assert_orders_found(host, &mut client, &self.orders).await;
        let units = self.orders.iter().map(|order| order["items"][0]["quantity"].as_i64().unwrap()).sum();

        let cart = client.get("/v1/cart").await.expect(200);
        for item in cart["items"].as_array().unwrap() {
            let (product, quantity) =
                (item["product_id"].as_str().unwrap(), item["quantity"].as_u64().unwrap());
            let acknowledged = self.added.remove(product).unwrap_or_default();
            let in_doubt = self.added_in_doubt.get(product).copied().unwrap_or_default();
            assert!(
                (acknowledged..=acknowledged + in_doubt).contains(&quantity),
                "CRT-1: {quantity}, acknowledged {acknowledged}, in doubt {in_doubt}"
            );
        }
        assert!(self.added.is_empty(), "CRT-1: lost from the cart: {:?}", self.added);
        units
    }
}

async fn restock(
    host: &str,
    products: &[String],
    stop: &AtomicBool,
    restocked: &Mutex<HashMap<String, (u64, u64)>>,
    may_be_unavailable: bool,
) {
    let mut client = operator(host);
    for product in products.iter().cycle() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let answer = client
            .send(Method::PUT, &format!("/v1/products/{product}/stock/MSK"), &[], Some(json!({ "delta": 3 })))
            .await;
        let is_refused = may_be_unavailable && answer.as_ref().is_ok_and(|answer| answer.status == 503);
        {
            let mut restocked = restocked.lock().unwrap();
            let (acknowledged, in_doubt) = restocked.entry(product.clone()).or_default();
            match answer {
                Ok(answer) if answer.status == 200 => *acknowledged += 3,
                Ok(_) if is_refused => *in_doubt += 3,
                Ok(answer) => panic!("{answer:?}"),
                Err(_) => {
                    *in_doubt += 3;
                    return;
                }
            }
        }
        if is_refused {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Waits until the reconciler has nothing left to do: nothing is reserved any more.
async fn settled(host: &str) {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let mut reserved = 0;
        let mut client = operator(host);
        let list = client.get("/v1/products?limit=100").await.expect(200);
        for product in list["items"].as_array().unwrap() {
            let id = product["product_id"].as_str().unwrap();
            let stock = client.get(&format!("/v1/products/{id}/stock?detail=true")).await.expect(200);
            reserved += stock["MSK"]["reserved"].as_u64().unwrap();
        }
        if reserved == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the reconciler does not settle what the crashes left");
}
