//! A handover of carts and orders, there and back, while most clients hang up as soon as they have sent a
//! write.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{
    troubles::Failure,
    world::{PATIENCE, SHORT_TIMEOUTS, World, now_ms, tell},
};
use crate::support::{
    Client, Customer,
    shop::{assert_orders_found, items, product, settled_stock},
};

const MOVING: [&str; 2] = ["carts", "orders"];
const CLIENTS: usize = 8;
const UNITS: u64 = 1_000_000;
/// How long a write takes before one was waited for.
const WRITE_MS_AT_FIRST: u64 = 20;
/// One that waited for a handover says nothing about the next.
const WRITE_MS_MAX: u64 = 500;
const PAUSE_MS: u64 = 250;
/// Writes that each client has sent in each phase before the next handover.
const WRITES_MIN: u64 = 12;
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// What one client has been told, and what it has not waited for.
#[derive(Default)]
struct Told {
    added: u64,
    added_perhaps: u64,
    orders: Vec<Value>,
    hung_up: u64,
    /// Keys of orders that were sent, whether anybody waited for the answer or not.
    keys: Vec<String>,
    failures: Vec<Failure>,
}

struct Impatient {
    number: usize,
    hosts: Vec<String>,
    customer: Customer,
    product: String,
    told: Told,
    /// How long the last write took that was waited for. A client hangs up before that, and after it.
    write_ms: u64,
}

/// Carts and orders go to the other store and back. What is asserted of each handover is what it waited for,
/// and not how long it took: for nothing that a client abandoned, and for nobody's lease.
pub(super) async fn nobody_who_hangs_up_holds_up_a_handover(world: &World) -> Vec<Failure> {
    let product = product(world.host(0), UNITS).await;
    world.bring_all("verify").await;
    world.compare_all().await;
    let (is_over, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let customer = Customer::new(world.host(number % 2)).await;
        let client = Impatient {
            number,
            hosts: world.hosts(),
            customer,
            product: product.clone(),
            told: Told::default(),
            write_ms: WRITE_MS_AT_FIRST,
        };
        clients.push(tokio::spawn(client.shop(is_over.clone(), sent.clone())));
    }
    for goal in ["read-target", "verify"] {
        let before = sent.load(Ordering::SeqCst);
        let started = Instant::now();
        while sent.load(Ordering::SeqCst) < before + WRITES_MIN * CLIENTS as u64 {
            assert!(started.elapsed() < PATIENCE, "nobody writes");
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        let [one, other] = MOVING;
        tokio::join!(world.bring(one, goal), world.bring(other, goal));
        for entity in MOVING {
            let status = world.status_in_time(entity).await;
            assert_eq!(status["instances"]["gone"], 0, "a lease was waited for: {status:#}");
            let given_up = |line: &Value| line["what"].as_str().unwrap().contains("given up");
            assert!(!status["timeline"].as_array().unwrap().iter().any(given_up), "{status:#}");
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let (mut failures, mut ordered, mut hung_up) = (Vec::new(), 0, 0);
    for client in clients {
        let mut told = client.await.unwrap();
        hung_up += told.hung_up;
        ordered += told.orders.len() as u64;
        failures.append(&mut told.failures);
    }
    let stock = settled_stock(world.host(0), &product).await;
    assert_eq!(stock, (UNITS - ordered, 0, ordered), "STK-1: what was sold is what was ordered");
    assert!(hung_up > ordered && ordered > 0, "{hung_up} hung up, {ordered} orders");
    tell(&format!("{hung_up} hung up, {ordered} orders, {} refused", failures.len()));
    let mut abandoned_in_all = 0;
    for host in world.hosts() {
        for entity in MOVING {
            let [abandoned, unanswered] =
                [in_doubt(&host, entity, "abandoned").await, in_doubt(&host, entity, "unanswered").await];
            tell(&format!("{host}: {abandoned} writes of {entity} abandoned, {unanswered} unanswered"));
            abandoned_in_all += abandoned;
        }
    }
    assert_eq!(abandoned_in_all, 0, "handovers waited for writes that nobody waited for");
    failures
}

/// As `/metrics` says, once it says anything: the migration is looked at every ten seconds.
async fn in_doubt(host: &str, entity: &str, why: &str) -> u64 {
    let name = format!("mobimir_migration_writes_in_doubt_total{{entity=\"{entity}\",why=\"{why}\"}} ");
    let started = Instant::now();
    loop {
        let metrics = Client::new(host).tolerating_503(SHORT_TIMEOUTS).get("/metrics").await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        if let Some(number) = text.lines().find_map(|line| line.strip_prefix(&name)) {
            return number.parse().unwrap();
        }
        assert!(started.elapsed() < PATIENCE, "{host} does not say {name}: {text}");
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

impl Impatient {
    /// Until it is over. Then what the client was told is checked.
    async fn shop(mut self, is_over: Arc<AtomicBool>, sent: Arc<AtomicU64>) -> Told {
        let mut step = self.number as u64;
        while !is_over.load(Ordering::SeqCst) {
            step += 1;
            let host = self.hosts[step as usize % self.hosts.len()].clone();
            // Different for every client, and different every time.
            let pause_ms = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let hangs_up_ms = pause_ms % (2 * self.write_ms);
            match step % 10 {
                0 => self.order(&host, step, None).await,
                1 => self.order(&host, step, Some(hangs_up_ms)).await,
                2 | 3 => self.add(&host).await,
                _ => self.add_and_hang_up(&host, hangs_up_ms).await,
            }
            sent.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(pause_ms % PAUSE_MS)).await;
        }
        self.check().await;
        self.told
    }

    fn token(&self) -> &str {
        self.customer.login["token"].as_str().unwrap()
    }

    fn line(&self) -> Value {
        json!({ "product_id": self.product, "quantity": 1 })
    }

    /// Sends a write, and does not wait for the answer.
    async fn hang_up(&mut self, host: &str, path: &str, key: &str, body: &Value, after_ms: u64) {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\nidempotency-key: {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.token(),
            body.len()
        );
        let mut connection = TcpStream::connect(host).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        self.told.hung_up += 1;
    }

    async fn add_and_hang_up(&mut self, host: &str, after_ms: u64) {
        let key = format!("add {} {}", self.number, self.told.added_perhaps);
        self.told.added_perhaps += 1;
        self.hang_up(host, "/v1/cart/items", &key, &self.line(), after_ms).await;
    }

    async fn add(&mut self, host: &str) {
        let mut client = Client::with_token(host, self.token());
        let began_ms = now_ms();
        let added = client.send(hyper::Method::POST, "/v1/cart/items", &[], Some(self.line())).await.unwrap();
        self.write_ms = (now_ms() - began_ms).max(1).unsigned_abs().min(WRITE_MS_MAX);
        if added.status == 503 {
            self.told.added_perhaps += 1;
            self.refused(host, began_ms, "an add", &added.body);
        } else {
            added.expect(200);
            self.told.added += 1;
        }
    }

    /// Waits for the answer, or hangs up.
    async fn order(&mut self, host: &str, step: u64, hangs_up: Option<u64>) {
        let (key, body) = (format!("order {step}"), items(&self.product, 1));
        self.told.keys.push(key.clone());
        if let Some(after_ms) = hangs_up {
            return self.hang_up(host, "/v1/orders", &key, &body, after_ms).await;
        }
        let mut client = Client::with_token(host, self.token());
        let (began_ms, headers) = (now_ms(), [("idempotency-key", key.as_str())]);
        let placed = client.send(hyper::Method::POST, "/v1/orders", &headers, Some(body)).await.unwrap();
        if placed.is_unsettled() {
            self.refused(host, began_ms, "an order", &placed.body);
        }
    }

    fn refused(&mut self, host: &str, began_ms: i64, what: &str, body: &[u8]) {
        let what = format!("{what}: {}", String::from_utf8_lossy(body));
        let failure = Failure { host: host.to_owned(), began_ms, ended_ms: now_ms(), is_refused: true, what };
        self.told.failures.push(failure);
    }

    /// Every instance says the same as every answer did.
    async fn check(&mut self) {
        let token = self.token().to_owned();
        for host in self.hosts.clone() {
            let mut client = Client::with_token(&host, &token).tolerating_503(SHORT_TIMEOUTS);
            // Whoever hung up asks again, and learns what became of it: one order for each key.
            for key in std::mem::take(&mut self.told.keys) {
                let placed = client.order(&key, items(&self.product, 1)).await;
                match placed.status.as_u16() {
                    409 => drop(placed.problem(409, "checkout_aborted")),
                    _ => self.told.orders.push(placed.expect(201)),
                }
            }
            let cart = client.get("/v1/cart").await.expect(200);
            let lines = cart["items"].as_array().unwrap().iter();
            let units: u64 = lines.map(|line| line["quantity"].as_u64().unwrap()).sum();
            let Told { added, added_perhaps, .. } = self.told;
            let possible = added..=added + added_perhaps;
            assert!(possible.contains(&units), "CRT-1: {units} units at {host}, {possible:?}");
            assert_orders_found(&host, &mut client, &self.told.orders).await;
        }
    }
}
