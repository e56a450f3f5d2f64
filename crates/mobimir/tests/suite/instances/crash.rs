//! An instance dies between the commit of an order and what follows from it.

use std::time::{Duration, Instant};

use hyper::Method;
use mobimir_lab::{Path, StoreProxies};
use mongodb::bson::doc;
use serde_json::json;
use tempfile::TempDir;

use super::{PATIENCE, client, need_servers};
use crate::support::{
    Client, Customer, Instances,
    servers::{self, Servers, Tables},
    shop::{product, settled_stock},
};

/// Of them in each a commit stands and the instance that has written it is gone.
const ROUNDS: u64 = 3;
/// What the doomed instance is told by Cassandra comes that late, so that it dies before it has written the
/// order there.
const DELAY: Duration = Duration::from_millis(400);

/// CRT-4: the shopper has no answer and orders the same cart under another key, at the other instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cart_whose_order_was_committed_before_a_crash_is_not_sold_under_another_key() {
    need_servers();
    let real = servers::real().unwrap();
    let dir = TempDir::new().unwrap();
    let straight = servers::production_environment(&dir.path().join("data"), Tables::Shared);
    let database = value_of(&straight, "MOBIMIR_MONGODB_DATABASE");
    let proxies = StoreProxies::start(&real.ring, &real.mongo).unwrap();
    let delayed = servers::through(&proxies, &straight);
    let mut shop = Instances::on_servers(dir, &["serve"], [&delayed, &straight]);
    let there = shop.host_of(1).to_owned();
    let phone = product(&there, 1_000).await;
    let customer = Customer::new(&there).await;
    let started = Instant::now();
    let (mut sold, mut crashed_after_commit, mut round) = (0, 0, 0);
    while crashed_after_commit < ROUNDS {
        assert!(started.elapsed() < PATIENCE, "no instance dies after a commit in {round} rounds");
        round += 1;
        let mut shopper = client(&there, &customer.login);
        let add = json!({ "product_id": phone, "quantity": 1 });
        shopper.post("/v1/cart/items", add).await.expect(200);
        sold += 1;

        // It knows the session before everything becomes slow.
        let mut doomed = client(shop.host_of(0), &customer.login);
        doomed.get("/v1/cart").await.expect(200);
        proxies.set_cassandra(Path::delayed(DELAY));
        let key = format!("before crash {round}");
        let keyed = key.clone();
        let asked = tokio::spawn(async move {
            let (headers, body) = ([("idempotency-key", keyed.as_str())], json!({ "geo_zone": "MSK" }));
            doomed.send(Method::POST, "/v1/orders", &headers, Some(body)).await
        });
        while committed(real, &database).await < sold && !asked.is_finished() {
            assert!(started.elapsed() < PATIENCE, "nothing is committed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shop.kill_first();
        let is_unanswered = asked.await.unwrap().is_err();
        proxies.set(Path::OPEN);
        let stands = committed(real, &database).await == sold;

        let other_key = format!("after crash {round}");
        let second = shopper.order(&other_key, json!({ "geo_zone": "MSK" })).await;
        if stands {
            crashed_after_commit += u64::from(is_unanswered);
            let code = second.expect(409)["code"].clone();
            assert!(code == "cart_ordered" || code == "empty_cart", "{code}");
        } else {
            // It died before it had decided anything, so this is the order of the cart, or there is none yet.
            assert!([201, 409].contains(&second.status.as_u16()), "{second:?}");
        }
        let first = shopper.order(&key, json!({ "geo_zone": "MSK" })).await;
        if stands {
            let order = first.expect(201);
            assert_eq!(second.json()["order_id"], order["order_id"], "the one that took the cart is named");
        }
        let placed = [&first, &second].into_iter().filter(|answer| answer.status == 201).count();
        assert_eq!(placed, 1, "CRT-4: {first:?}, {second:?}");
        let cart = shopper.get("/v1/cart").await.expect(200);
        assert_eq!(cart["items"], json!([]), "round {round}");
        shop.start_first_again(&delayed);
    }
    println!("{crashed_after_commit} of {round} instances died after a commit and before its answer");
    assert_eq!(settled_stock(&shop.host, &phone).await, (1_000 - sold, 0, sold));
    let history = Client::with_token(&shop.host, customer.login["token"].as_str().unwrap());
    let history = { history }.get("/v1/orders?limit=100").await.expect(200);
    assert_eq!(history["items"].as_array().unwrap().len() as u64, sold, "ORD-1, ORD-2");
    shop.assert_no_violation().await;
}

fn value_of(environment: &[(&'static str, String)], name: &str) -> String {
    environment.iter().find(|(known, _)| *known == name).unwrap().1.clone()
}

/// How many checkouts of this shop are committed.
async fn committed(servers: &'static Servers, database: &str) -> u64 {
    let database = database.to_owned();
    let counted = tokio::task::spawn_blocking(move || {
        let count = doc! { "count": "checkouts", "query": { "state.is": "committed" } };
        servers.mongo.run_on(servers.mongo.primary()?, &database, count)
    });
    let counted = counted.await.unwrap().unwrap();
    u64::try_from(counted.get_i32("n").unwrap()).unwrap()
}
