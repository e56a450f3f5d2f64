//! A shop that is several processes: what each role answers, how an instance ends while others ask it, and all of it behind nginx with
//! the configuration of `deploy/`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    load::{ended, load_on},
    support::{
        Client, Customer, Process,
        nginx::Nginx,
        process::{SETTLING_REQUEST_LIMIT, run},
        servers::{self, Tables},
        shop::{PASSWORD, assert_orders_found, guest, items, operator, product},
    },
};

/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);
/// As `deploy/mobimir/shop.env` has it.
const DRAIN_MS: &str = "5000";
/// Less than `deploy/rolling-restart` takes, so that nginx does not know yet that the last one is back.
const BETWEEN_RESTARTS: Duration = Duration::from_millis(1_000);
/// Beside eight processes, a ring and mongod on a machine with two cores.
const RATE: [&str; 4] = ["--rate", "25", "--connections", "16"];
/// Set where there is time to restart every instance, and not only the first of each role.
const LONG_VARIABLE: &str = "MOBIMIR_ROLES_LONG";
/// Every instance, by its role and its address in `deploy/nginx/mobimir`.
const INSTANCES: [(&str, &str); 8] = [
    ("all", "10.0.0.11:8080"),
    ("all", "10.0.0.12:8080"),
    ("products", "10.0.0.11:8081"),
    ("products", "10.0.0.12:8081"),
    ("carts", "10.0.0.11:8082"),
    ("carts", "10.0.0.12:8082"),
    ("orders", "10.0.0.11:8083"),
    ("orders", "10.0.0.12:8083"),
];

#[test]
fn a_part_of_an_embedded_shop_is_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let (code, out, err) = run(&["serve", "--role", "orders", "--data", data.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    for part in ["role orders", "carts, orders and sessions", "one process", "--policy default"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(!data.exists(), "nothing is left behind");
    assert_eq!(run(&["serve", "--role", "shop"]).0, 2);
    assert_eq!(run(&["demo", "--role", "orders"]).0, 2);
}

/// A request that was on its way when the end was asked for is answered, on a connection that had been idle.
#[tokio::test]
async fn an_instance_that_ends_answers_whoever_is_connected() {
    let dir = TempDir::new().unwrap();
    // Longer than any test runs.
    let long = [("MOBIMIR_LIMITS_DRAIN_MS", "86400000")];
    let mut shop = Process::start(&["serve"], &dir.path().join("data"), &long);
    let host = shop.host.clone();
    let phone = product(&host, 10).await;
    let mut customer = Customer::new(&host).await;
    customer.client.get("/v1/cart").await.expect(200);
    let mut watcher = Client::new(&host);
    assert_eq!(watcher.get("/readyz").await.status, 200);

    shop.signal(Signal::TERM);
    let asked = Instant::now();
    while tokio::net::TcpStream::connect(&host).await.is_ok() {
        assert!(asked.elapsed() < PATIENCE, "it still listens");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ready = watcher.send(Method::GET, "/readyz", &[], None).await.unwrap();
    assert_eq!((ready.status.as_u16(), ready.header("connection")), (503, Some("close")));
    let key = [("idempotency-key", "the last")];
    let order = customer.client.send(Method::POST, "/v1/orders", &key, Some(items(&phone, 1))).await.unwrap();
    order.expect(201);
    assert_eq!(order.header("connection"), Some("close"));
    // It was the last on every connection, so nobody is waited for: the time for draining would be a day.
    let ended = tokio::task::spawn_blocking(move || shop.wait());
    assert!(ended.await.unwrap().success());
}

struct Instance {
    role: &'static str,
    data: PathBuf,
    host: String,
    process: Option<Process>,
}

impl Instance {
    fn start(role: &'static str, data: PathBuf, listen: &str, environment: &[(&str, &str)]) -> Self {
        let arguments: &[&str] =
            if role == "all" { &["demo", "--products", "60"] } else { &["serve", "--role", role] };
        let process = Process::start_at(listen, arguments, &data, environment);
        Self { role, data, host: process.host.clone(), process: Some(process) }
    }

    /// As `deploy/rolling-restart` does it.
    fn restart(&mut self, environment: &[(&str, &str)]) {
        let process = self.process.take().unwrap();
        let log = process.log();
        assert!(process.terminate().success(), "{log}");
        *self = Self::start(self.role, self.data.clone(), &self.host, environment);
    }
}

async fn until_ready(host: &str) {
    let started = Instant::now();
    loop {
        let ready = Client::new(host).send(Method::GET, "/readyz", &[], None).await;
        if ready.is_ok_and(|ready| ready.status == 200) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{host} does not become ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// All instances of one shop, and nginx before them.
struct Several {
    // Dropped first, so that it does not ask those who are gone.
    nginx: Nginx,
    instances: Vec<Instance>,
    environment: Vec<(&'static str, String)>,
}

impl Several {
    fn start(dir: &Path) -> Self {
        let mut environment = servers::environment(&dir.join("shop"), Tables::Shared);
        environment.extend([
            ("MOBIMIR_READ_AFTER_KEY", "the same for all of them".to_owned()),
            ("MOBIMIR_TRUSTED_PROXIES", "127.0.0.1".to_owned()),
            ("MOBIMIR_LIMITS_DRAIN_MS", DRAIN_MS.to_owned()),
            (SETTLING_REQUEST_LIMIT.0, SETTLING_REQUEST_LIMIT.1.to_owned()),
        ]);
        let mut instances = Vec::new();
        let mut addresses = Vec::new();
        for (number, (role, address)) in INSTANCES.into_iter().enumerate() {
            let data = dir.join(format!("{role}-{number}"));
            let instance = Instance::start(role, data, "127.0.0.1:0", &borrowed(&environment));
            addresses.push((address, instance.host.clone()));
            instances.push(instance);
        }
        let nginx = Nginx::start(&dir.join("nginx"), &addresses);
        Self { nginx, instances, environment }
    }

    fn hosts(&self, roles: &[&str]) -> Vec<String> {
        let those = self.instances.iter().filter(|instance| roles.contains(&instance.role));
        those.map(|instance| instance.host.clone()).collect()
    }
}

fn borrowed<'a>(environment: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    environment.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// The three services of the papers behind a load balancer, then an instance of every role restarted while a crowd buys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_instances_are_one_shop_and_may_be_restarted_while_it_sells() {
    if servers::policy_name() == "embedded" {
        // It lives in one process. The Makefile runs this on servers, too.
        return;
    }
    let dir = TempDir::new().unwrap();
    let at = dir.path().to_owned();
    let several = tokio::task::spawn_blocking(move || Several::start(&at)).await.unwrap();
    for instance in &several.instances {
        until_ready(&instance.host).await;
    }
    a_session_is_good_everywhere(&several).await;
    each_answers_for_its_own(&several).await;
    a_rolling_restart_fails_nobody(several, dir.path()).await;
}

async fn a_session_is_good_everywhere(several: &Several) {
    let host = &several.nginx.host;
    let phone = product(host, 100).await;
    let customer = Customer::new(host).await;
    let token = customer.login["token"].as_str().unwrap();
    for instance in several.hosts(&["carts", "all"]) {
        Client::with_token(&instance, token).get("/v1/cart").await.expect(200);
    }
    for instance in several.hosts(&["orders", "all"]) {
        Client::with_token(&instance, token).get("/v1/orders").await.expect(200);
    }

    // A guest fills a cart wherever they come in, and logs in somewhere else.
    let carts = several.hosts(&["carts"]);
    let session = Client::new(&carts[0]).post("/v1/sessions", json!({})).await.expect(201);
    let mut visitor = Client::with_token(host, session["token"].as_str().unwrap());
    visitor.post("/v1/cart/items", json!({ "product_id": phone, "quantity": 2 })).await.expect(200);
    let who = json!({ "email": customer.email, "password": PASSWORD });
    let mut second = Client::with_token(&carts[1], session["token"].as_str().unwrap());
    let login = second.post("/v1/sessions/login", who).await.expect(200);
    let token = login["token"].as_str().unwrap();
    let cart = Client::with_token(&carts[0], token).get("/v1/cart").await.expect(200);
    assert_eq!(cart["items"][0]["quantity"], 2, "{cart}");

    // What was ordered through one is in the history that every other tells.
    let mut buyer = Client::with_token(host, token);
    let placed = buyer.order("cart", json!({ "geo_zone": "MSK" })).await;
    assert!(placed.header("read-after").is_some(), "{placed:?}");
    let order = placed.expect(201);
    for instance in several.hosts(&["orders", "all"]) {
        let mut client = Client::with_token(&instance, token);
        assert_orders_found(&instance, &mut client, std::slice::from_ref(&order)).await;
    }

    // The end of a session is the end of it everywhere, as soon as nobody remembers it.
    buyer.delete("/v1/sessions/current").await.expect(204);
    let started = Instant::now();
    for instance in several.hosts(&["carts", "all"]) {
        let mut client = Client::with_token(&instance, token);
        while client.get("/v1/cart").await.status != 401 {
            assert!(started.elapsed() < PATIENCE, "an ended session is still good");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn each_answers_for_its_own(several: &Several) {
    let products = several.hosts(&["products"]);
    let problem = Client::new(&products[0]).get("/v1/orders").await.problem(421, "misdirected");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("role products") && detail.contains("role orders"), "{detail}");
    Client::new(&products[1]).get("/").await.problem(421, "misdirected");
    Client::new(&several.hosts(&["orders"])[0]).get("/v1/cart").await.problem(421, "misdirected");

    let mut anyone = Client::new(&several.nginx.host);
    let named = [("x-request-id", "mine-1")];
    for path in ["/", "/docs", "/healthz", "/v1/products?limit=1", "/v1/categories"] {
        let answer = anyone.send(Method::GET, path, &named, None).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.header("x-request-id")), (200, Some("mine-1")), "{path}");
    }
    let mut operator = operator(&several.nginx.host);
    operator.get("/v1/ops/policy").await.expect(200);
    operator.get("/v1/carts?status=abandoned").await.expect(200);
    assert_eq!(operator.get("/v1/reports/orders").await.status, 400, "the day is missing");
    assert_eq!(anyone.get("/metrics").await.status, 404);
    // What is too long is told in the words of the shop, by nginx.
    let long = json!({ "email": "a".repeat(1_100_000), "password": PASSWORD });
    anyone.post("/v1/users", long).await.problem(413, "body_too_large");
}

async fn a_rolling_restart_fails_nobody(mut several: Several, dir: &Path) {
    let (host, out) = (several.nginx.host.clone(), dir.join("report"));
    // It is ended when all have been restarted.
    let load = load_on(&host, &out, RATE, &["--for", "20m"]).spawn().unwrap();
    until_it_sells(&several.hosts(&["orders"])).await;

    // Meanwhile somebody fills up a shelf, and nothing of it may count twice; somebody else looks at pages.
    let shelf = product(&host, 0).await;
    let over = Arc::new(AtomicBool::new(false));
    let filling = tokio::spawn(fill_up(host.clone(), shelf.clone(), over.clone()));
    let looking = tokio::spawn(look_around(host.clone(), over.clone()));

    let started = Instant::now();
    let environment = several.environment.clone();
    let mut took = Vec::new();
    let mut roles_done = BTreeSet::new();
    for mut instance in std::mem::take(&mut several.instances) {
        if !roles_done.insert(instance.role) && std::env::var_os(LONG_VARIABLE).is_none() {
            several.instances.push(instance);
            continue;
        }
        // What it has counted is gone with it.
        broke_nothing(&instance.host).await;
        let (began, environment) = (Instant::now(), environment.clone());
        let restarted = tokio::task::spawn_blocking(move || {
            instance.restart(&borrowed(&environment));
            instance
        });
        let instance = restarted.await.unwrap();
        until_ready(&instance.host).await;
        took.push(format!("{} {:.1} s", instance.role, began.elapsed().as_secs_f64()));
        tokio::time::sleep(BETWEEN_RESTARTS).await;
        several.instances.push(instance);
    }
    assert_eq!(roles_done.len(), 4, "somebody of every role was restarted");
    eprintln!("restarted in {:?}: {}", started.elapsed(), took.join(", "));
    over.store(true, Ordering::SeqCst);
    let (filled, seen) = (filling.await.unwrap(), looking.await.unwrap());
    let stock = operator(&host).get(&format!("/v1/products/{shelf}/stock")).await.expect(200);
    assert_eq!(stock["MSK"], filled, "so many units were put there");
    assert!(filled > 0 && seen > 0, "{filled} changes of stock, {seen} pages");

    let pid = rustix::process::Pid::from_child(&load);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let (_, said, report) = tokio::task::spawn_blocking(move || ended(load, &out)).await.unwrap();
    assert_eq!(several.nginx.failures(), Vec::<String>::new(), "{said}");
    let operations = report["operations"].as_object().unwrap();
    for (name, operation) in operations {
        assert_eq!(operation["failed"], json!({}), "{name}: {said}");
        assert_eq!(operation["shed"], 0, "{name}: {said}");
    }
    let answered: u64 = operations.values().filter_map(|operation| operation["fine"].as_u64()).sum();
    let services = ["/v1/products", "/v1/cart", "/v1/sessions", "/v1/orders"];
    let asked = |host: &String| services.map(|service| several.nginx.asked(host, service));
    let stepped_in: usize = several.hosts(&["all"]).iter().flat_map(asked).sum();
    eprintln!(
        "{answered} answers, {filled} changes of stock, {seen} pages, none failed; the role all stepped in {stepped_in} times"
    );
    assert!(answered > 300, "{said}");
    assert_eq!(report["findings"]["left_out"], json!([]), "{said}");
    for check in ["orders", "histories", "days", "unasked_orders", "carts", "stock", "invariants"] {
        assert!(report["findings"][check]["looked_at"].as_u64().unwrap() > 0, "{check}: {said}");
        assert_eq!(report["findings"][check]["wrong"], 0, "{check}: {said}");
    }
    assert_eq!(report["findings"]["unsettled"], 0, "{said}");
    for instance in &several.instances {
        broke_nothing(&instance.host).await;
    }
    // And it goes on.
    guest(&host).await.get("/v1/cart").await.expect(200);
}

/// Each counts for itself, so nginx cannot be asked.
async fn broke_nothing(host: &str) {
    let counted = operator(host).get("/v1/ops/invariants").await.expect(200);
    assert!(!counted["items"].as_array().unwrap().is_empty());
    for invariant in counted["items"].as_array().unwrap() {
        assert_eq!(invariant["violations"], 0, "{host}: {invariant}");
    }
}

async fn until_it_sells(orders: &[String]) {
    let started = Instant::now();
    loop {
        for host in orders {
            let metrics = Client::new(host).get("/metrics").await;
            let text = String::from_utf8_lossy(&metrics.body).into_owned();
            if text
                .lines()
                .filter(|line| line.contains("\"/v1/orders\"") && line.contains("status=\"201\""))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .any(|count| count > 10.0)
            {
                return;
            }
        }
        assert!(started.elapsed() < PATIENCE, "nobody orders");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One unit at a time, each by its own request; how many there were.
async fn fill_up(host: String, product: String, over: Arc<AtomicBool>) -> u64 {
    let mut operator = operator(&host);
    let path = format!("/v1/products/{product}/stock/MSK");
    let mut filled = 0;
    while !over.load(Ordering::SeqCst) {
        operator.put(&path, json!({ "delta": 1 })).await.expect(200);
        filled += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    filled
}

async fn look_around(host: String, over: Arc<AtomicBool>) -> u64 {
    let mut visitor = Client::new(&host);
    let mut seen = 0;
    while !over.load(Ordering::SeqCst) {
        for path in ["/", "/catalog", "/cart"] {
            let page = visitor.send(Method::GET, path, &[], None).await.unwrap();
            assert_eq!(page.status, 200, "{path}");
            seen += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seen
}
