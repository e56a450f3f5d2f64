//! Orders, carts and sessions move from MongoDB to Cassandra and back while a crowd buys, with two instances of which one is
//! killed on the way.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    load::{GENTLE, ended, load_on},
    support::{
        Client, Customer, Process,
        servers::{self, Tables},
        shop::{items, operator, product},
    },
};

const ENTITIES: [&str; 3] = ["orders", "carts", "sessions"];
/// How long to wait for what is certain to come.
const PATIENCE: Duration = Duration::from_secs(400);
/// Set where there is time to go up once more, to the end.
const LONG_VARIABLE: &str = "MOBIMIR_MIGRATION_LONG";
const PAUSE: Duration = Duration::from_millis(300);

/// The policy `default` with everything that moves still in MongoDB.
fn policy(dir: &Path) -> String {
    const DEFAULT: &str = include_str!("../../../../policies/default.toml");
    let policy = DEFAULT.replace("name = \"default\"", "name = \"before\"").replace(
        "home = \"cassandra\"\nmigration_store = \"mongodb\"",
        "home = \"mongodb\"\nmigration_store = \"cassandra\"",
    );
    assert_eq!(policy.matches("migration_store = \"cassandra\"").count(), ENTITIES.len(), "{policy}");
    let path = dir.join("before.toml");
    std::fs::write(&path, policy).unwrap();
    path.to_str().unwrap().to_owned()
}

async fn status(host: &str, entity: &str) -> Value {
    operator(host).get(&format!("/v1/ops/migrations/{entity}")).await.expect(200)
}

async fn act(host: &str, entity: &str, action: &str) {
    let answer = operator(host).post(&format!("/v1/ops/migrations/{entity}/{action}"), json!({})).await;
    // Somebody who works on it may have written at the same moment, and then it is asked again.
    assert!(answer.status == 200 || answer.status == 409, "{answer:?}");
}

/// Asks for the next phase, or the one before, until the entity has arrived.
async fn bring(host: &str, entity: &str, phases: &[&str], action: &str) {
    let (goal, started) = (*phases.last().unwrap(), Instant::now());
    loop {
        let now = status(host, entity).await;
        if now["phase"] == goal && now["wanted"].is_null() {
            eprintln!("{entity} at {goal} after {:.1} s", started.elapsed().as_secs_f64());
            return;
        }
        if now["wanted"].is_null() {
            act(host, entity, action).await;
        }
        assert!(started.elapsed() < PATIENCE, "{entity} does not come to {goal}: {now:#}");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn bring_all(host: &str, goal: &str, action: &str) {
    let [orders, carts, sessions] = ENTITIES;
    let goal = [goal];
    tokio::join!(
        bring(host, orders, &goal, action),
        bring(host, carts, &goal, action),
        bring(host, sessions, &goal, action)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_carts_and_sessions_move_there_and_back_while_a_crowd_buys() {
    if servers::policy_name() == "embedded" {
        // It takes two kinds of servers. The Makefile runs this on them.
        return;
    }
    let dir = TempDir::new().unwrap();
    let at = dir.path().to_owned();
    let mut environment =
        tokio::task::spawn_blocking(move || servers::environment(&at.join("shop"), Tables::Own))
            .await
            .unwrap();
    environment.extend([
        ("MOBIMIR_POLICY", policy(dir.path())),
        ("MOBIMIR_MIGRATIONS", "true".to_owned()),
        ("MOBIMIR_READ_AFTER_KEY", "the same for both of them".to_owned()),
    ]);
    let borrowed: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let start = |name: &str| Process::start(&["demo", "--products", "60"], &dir.path().join(name), &borrowed);
    let (first, second) = (start("first"), start("second"));
    let (host, other) = (first.host.clone(), second.host.clone());

    // Somebody who was there before, and somebody who has logged out.
    let phone = product(&host, 100).await;
    let mut before = Customer::new(&host).await;
    let order = before.client.order("before", items(&phone, 1)).await.expect(201);
    let gone = Customer::new(&host).await;
    let gone_token = gone.login["token"].as_str().unwrap().to_owned();
    Client::with_token(&host, &gone_token).delete("/v1/sessions/current").await.expect(204);

    let out = dir.path().join("report");
    let load = load_on(&host, &out, GENTLE, &["--for", "20m"]).spawn().unwrap();
    operator(&host).post("/v1/ops/migrations/orders/advance", json!({})).await.problem(409, "no_migration");
    for entity in ENTITIES {
        operator(&other).post(&format!("/v1/ops/migrations/{entity}/start"), json!({})).await.expect(200);
        let again = operator(&host).post(&format!("/v1/ops/migrations/{entity}/start"), json!({})).await;
        again.problem(409, "migration_under_way");
    }
    bring_all(&host, "dual-write", "advance").await;
    bring_all(&host, "backfill", "advance").await;
    // Nobody waits for a process that is gone longer than for its lease; and it is the one that worked, perhaps.
    second.kill();
    let second = start("second");
    let other = second.host.clone();
    bring_all(&host, "read-target", "advance").await;
    seen_everywhere(&[&host, &other], &mut before, &order, &gone_token).await;

    bring_all(&other, "source", "rollback").await;
    seen_everywhere(&[&host, &other], &mut before, &order, &gone_token).await;

    if std::env::var(LONG_VARIABLE).is_ok() {
        bring_all(&host, "read-target", "advance").await;
        bring_all(&host, "target", "advance").await;
        let refused = operator(&host).post("/v1/ops/migrations/orders/rollback", json!({})).await;
        refused.problem(409, "migration_refused");
        seen_everywhere(&[&host, &other], &mut before, &order, &gone_token).await;
    }

    let pid = rustix::process::Pid::from_child(&load);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let (_, said, report) = tokio::task::spawn_blocking(move || ended(load, &out)).await.unwrap();
    for (name, operation) in report["operations"].as_object().unwrap() {
        assert_eq!(operation["failed"], json!({}), "{name}: {said}\n{}", first.log());
    }
    for check in ["orders", "histories", "unasked_orders", "carts", "stock", "invariants"] {
        assert!(report["findings"][check]["looked_at"].as_u64().unwrap() > 0, "{check}: {said}");
        assert_eq!(report["findings"][check]["wrong"], 0, "{check}: {said}");
    }
    assert_eq!(report["findings"]["unsettled"], 0, "{said}");
}

/// What was there before the migration is there, and what had ended has not come back.
async fn seen_everywhere(hosts: &[&str], before: &mut Customer, order: &Value, gone: &str) {
    let (id, token) = (order["order_id"].as_str().unwrap(), before.login["token"].as_str().unwrap());
    for host in hosts {
        let mut client = Client::with_token(host, token);
        let found = client.get(&format!("/v1/orders/{id}")).await.expect(200);
        assert_eq!(found["items"], order["items"], "{host}");
        let history = client.get("/v1/orders").await.expect(200);
        assert_eq!(history["items"][0]["order_id"], order["order_id"], "{host}: {history}");
        Client::with_token(host, gone).get("/v1/cart").await.problem(401, "unauthorized");
    }
}
