//! The separate order history moves from Cassandra to MongoDB and back while orders are placed and moved.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{PATIENCE, need_servers};
use crate::support::{
    Client, Customer, Instances,
    servers::{self, Tables},
    shop::{items, operator, product},
};

/// Nothing else is in Cassandra, so that few tables have to be made.
const POLICY: &str = r#"
name = "moving-history"
[cassandra]
replication = { dc1 = 3 }
[products]
home = "mongodb"
[users]
home = "mongodb"
[carts]
home = "mongodb"
[sessions]
home = "mongodb"
[orders]
home = "mongodb"
[order_history]
home = "cassandra"
migration_store = "mongodb"
[order_history.cassandra]
write = "QUORUM"
read = "QUORUM"
timeout = "9s"
"#;
const BEFORE: usize = 12;
const PAUSE: Duration = Duration::from_millis(200);
/// From the lowest.
const PHASES: [&str; 8] =
    ["source", "dual-write", "backfill", "verify", "handover", "switch", "read-target", "target"];
const WAY: [&str; 3] = ["paid", "shipped", "delivered"];
const WHY: &str = "writes wait in a handover";

/// MIG-1, MIG-2, MIG-3, ORD-1: whatever has been ordered and however it was moved, both instances show it, at the
/// target as well as back at the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_history_moves_there_and_back_while_people_buy() {
    need_servers();
    let dir = TempDir::new().unwrap();
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, POLICY).unwrap();
    let data = dir.path().join("data");
    let mut environment = servers::production_environment_under(policy.to_str().unwrap(), &data, Tables::Own);
    environment.push(("MOBIMIR_MIGRATIONS", "true".to_owned()));
    let shop = Instances::on_servers(dir, &["serve"], [&environment, &environment]);
    let phone = product(&shop.host, 100_000).await;
    let mut customer = Customer::new(&shop.host).await;
    customer.client = customer.client.tolerating_503(WHY);
    for number in 0..BEFORE {
        customer.client.order(&format!("before {number}"), items(&phone, 1)).await.expect(201);
    }
    let is_over = Arc::<AtomicBool>::default();
    let trading = tokio::spawn(trade(shop.host.clone(), customer.login.clone(), phone, is_over.clone()));
    act(&shop.host, "start").await;
    bring(&shop.host, "read-target").await;
    tokio::time::sleep(PAUSE * 10).await;
    bring(&shop.host, "source").await;
    is_over.store(true, Ordering::SeqCst);
    let placed = trading.await.unwrap() + BEFORE;
    everything_is_shown(&mut customer.client, placed).await;

    // And again, to be looked at where nothing is written any more.
    bring(&shop.host, "read-target").await;
    everything_is_shown(&mut customer.client, placed).await;
    shop.assert_no_violation().await;
}

/// Places orders and moves them on, one after the other; says how many were placed.
async fn trade(host: String, login: Value, phone: String, is_over: Arc<AtomicBool>) -> usize {
    let mut customer = Client::with_token(&host, login["token"].as_str().unwrap()).tolerating_503(WHY);
    let mut operator = operator(&host).tolerating_503(WHY);
    let mut placed = 0;
    while !is_over.load(Ordering::SeqCst) {
        let order = customer.order(&format!("while it moves {placed}"), items(&phone, 1)).await.expect(201);
        placed += 1;
        let path = format!("/v1/orders/{}/status", order["order_id"].as_str().unwrap());
        for status in &WAY[..placed % (WAY.len() + 1)] {
            // One that was not answered may have happened; what the order itself says counts in the end.
            let answer = operator.post(&path, json!({ "status": status })).await;
            assert!([200, 409, 503].contains(&answer.status.as_u16()), "{answer:?}");
        }
    }
    assert!(placed > 0, "nobody has ordered anything");
    placed
}

/// The history has every order, as the order itself says it is; eventually, because a copy that failed is made
/// again.
async fn everything_is_shown(customer: &mut Client, placed: usize) {
    let started = Instant::now();
    for _ in 0..customer.instances() {
        loop {
            let listed = listed(customer).await;
            assert!(listed.len() <= placed, "{} orders of {placed} are listed", listed.len());
            let mut behind = placed - listed.len();
            for (order, status) in &listed {
                let own = customer.get(&format!("/v1/orders/{order}")).await.expect(200);
                behind += usize::from(own["status"] != *status);
            }
            if behind == 0 {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "MIG-1: {behind} of {placed} orders are missing or old");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The status of each order in the history.
async fn listed(customer: &mut Client) -> BTreeMap<String, Value> {
    let (mut listed, mut next) = (BTreeMap::new(), "/v1/orders?limit=100".to_owned());
    loop {
        let page = customer.get(&next).await.expect(200);
        for order in page["items"].as_array().unwrap() {
            let id = order["order_id"].as_str().unwrap().to_owned();
            assert!(listed.insert(id, order["status"].clone()).is_none(), "ORD-2: {order} is listed twice");
        }
        match page["next"].as_str() {
            Some(after) => next = format!("/v1/orders?limit=100&after={after}"),
            None => return listed,
        }
    }
}

async fn act(host: &str, action: &str) {
    let path = format!("/v1/ops/migrations/order_history/{action}");
    let answer = operator(host).tolerating_503(WHY).post(&path, json!({})).await;
    // It may be refused for a moment, or somebody who works on it has written at the same time.
    assert!([200, 409, 503].contains(&answer.status.as_u16()), "{answer:?}");
}

async fn bring(host: &str, goal: &str) {
    let rank = |phase: &str| PHASES.iter().position(|known| *known == phase).expect("a phase");
    let (started, mut told) = (Instant::now(), Value::Null);
    let mut operator = operator(host).tolerating_503(WHY);
    while started.elapsed() < PATIENCE {
        let answer = operator.get("/v1/ops/migrations/order_history").await;
        if answer.status == 409 {
            act(host, "start").await;
        } else {
            told = answer.expect(200);
            assert_eq!(told["is_paused"], false, "something differs: {told:#}");
            let phase = told["phase"].as_str().unwrap();
            if told["wanted"].is_null() {
                if phase == goal {
                    return;
                }
                act(host, if rank(phase) < rank(goal) { "advance" } else { "rollback" }).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("the order history does not come to {goal}: {told:#}");
}
