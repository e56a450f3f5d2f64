//! A shop on MongoDB and Cassandra: its tables and indexes, its start, its end, its troubles.

use std::time::{Duration, Instant};

use hyper::Method;
use mobimir_lab::{Mongo, MongoSpec, Ring, RingSpec};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Client, Customer, Process,
    process::{OPERATOR, run},
    shop::{items, product},
};

const ELSEWHERE: &str =
    "not in this copy: products and users (in MongoDB), carts, orders and sessions (in Cassandra)";
const DC: [&str; 2] = ["--data-centres", "dc1=1"];

fn with<'a>(command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    command.iter().chain(more).copied().collect()
}

#[test]
fn the_tables_are_printed_without_a_cluster() {
    let (code, out, _) = run(&["schema", "print", "--policy", "default", "--prefix", "shop"]);
    assert_eq!(code, 0);
    for part in [
        "CREATE KEYSPACE IF NOT EXISTS shop_sessions WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': '3', 'dc2': '3'};",
        "CREATE TABLE IF NOT EXISTS shop_sessions.sessions (",
        "PRIMARY KEY ((bucket, session_id))",
        "CREATE TABLE IF NOT EXISTS shop_carts.cart_changes (",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (_, out, _) = run(&["schema", "print", "--policy", "bucketed", "--data-centres", "east=1"]);
    assert!(out.contains("'NetworkTopologyStrategy', 'east': '1'}") && !out.contains("dc1"), "{out}");
    let (code, out, _) = run(&["schema", "print"]);
    let nothing = "-- the policy embedded places nothing in Cassandra\n// the policy embedded places nothing in MongoDB\n";
    assert_eq!((code, out.as_str()), (0, nothing));
    let (_, out, _) = run(&["schema", "print", "--policy", "default", "--store", "mongodb"]);
    for part in [
        "db = db.getSiblingDB(\"mobimir\");\n",
        "db.users.createIndex({ \"email\": 1 }, { \"name\": \"email\", \"unique\": true });\n",
        "// where it is sharded: sh.shardCollection(\"mobimir.orders\", { \"user_id\": \"hashed\" });\n",
    ] {
        assert!(out.contains(part) && !out.contains("CREATE"), "{part}: {out}");
    }
    assert_eq!(run(&["schema", "plan", "--check"]).0, 0);
    for wrong in [
        &["schema"][..],
        &["schema", "print", "--data-centres", "dc1"],
        &["serve", "--data-centres", "dc1=0"],
    ] {
        assert_eq!(run(wrong).0, 2, "{wrong:?}");
    }
    let (code, _, err) = run(&["schema", "print", "--policy", "default", "--prefix", "x; DROP"]);
    assert!(code == 1 && err.contains("keyspace_prefix"), "{err}");
}

/// What a command is told when nobody listens where it looks.
fn is_refused_in_one_line(command: &[&str], server: &str) {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let (code, out, err) =
        run(&with(command, &["--data", data.to_str().unwrap()][..if command[0] == "serve" { 2 } else { 0 }]));
    assert_eq!(code, 1, "{command:?}: {out}");
    let errors: Vec<&str> = err.lines().filter(|line| line.starts_with("mobimir: ")).collect();
    assert!(
        errors.len() == 1 && errors[0].contains(&format!("cannot reach {server} at 127.0.0.1:1")),
        "{err}"
    );
    assert!(!data.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_lives_in_mongodb_and_cassandra() {
    let start = || {
        (
            Ring::ephemeral(&RingSpec::for_tests(1)).unwrap(),
            Mongo::ephemeral(&MongoSpec::for_tests(1)).unwrap(),
        )
    };
    let (ring, mongo) = tokio::task::spawn_blocking(start).await.unwrap();
    let (points, uri) = (ring.contact_points().join(","), mongo.uri());
    for command in [&["schema", "plan"][..], &["schema", "apply"], &["serve"]] {
        let nowhere =
            ["--policy", "default", "--contact-points", "127.0.0.1:1", "--mongodb", &uri, DC[0], DC[1]];
        is_refused_in_one_line(&with(command, &nowhere), "Cassandra");
        let nowhere = ["--policy", "default", "--mongodb", "mongodb://127.0.0.1:1", DC[0], DC[1]];
        is_refused_in_one_line(&with(command, &nowhere), "MongoDB");
    }
    let at = ["--contact-points", &points, "--mongodb", &uri, "--policy", "default"];
    let placed = with(&at, &DC);
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let data_flag = ["--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let serve = with(&["serve"], &placed);

    // Nothing is there yet.
    let (code, _, err) = run(&with(&["schema", "plan"], &at));
    assert!(
        code == 1 && err.contains("\"dc2\"") && err.contains("--data-centres") && err.lines().count() == 1,
        "{err}"
    );
    let (code, out, _) = run(&with(&["schema", "plan"], &placed));
    let apply = format!(
        "mobimir schema apply --policy default --contact-points {points} --data-centres dc1=1 --mongodb '{uri}'"
    );
    for part in
        ["create table mobimir_sessions.sessions\n", "index users.email on { \"email\": 1 }\n", &apply]
    {
        assert!(code == 0 && out.contains(part), "{part}: {out}");
    }
    assert_eq!(run(&with(&["schema", "plan", "--check", "--json"], &placed)).0, 1);
    let (code, _, err) = run(&with(&serve, &data_flag));
    assert!(code == 1 && err.contains(&apply), "{err}");

    let (code, out, err) = run(&with(&["schema", "apply"], &placed));
    for part in ["create keyspace mobimir_carts: done\n", "index users.email on { \"email\": 1 }: done\n"] {
        assert!(code == 0 && out.contains(part), "{part}: {out}{err}");
    }
    let (code, out, _) = run(&with(&["schema", "apply"], &placed));
    assert!(code == 0 && out.starts_with("nothing to do"), "{out}");
    let (code, out, _) = run(&with(&["schema", "plan", "--check", "--json"], &placed));
    assert_eq!(
        (code, serde_json::from_str::<Value>(&out).unwrap()["changes"].as_array().unwrap().len()),
        (0, 0)
    );
    let bucketed = ["--policy", "bucketed", "--contact-points", &points, "--mongodb", &uri, DC[0], DC[1]];
    let (code, out, err) = run(&with(&["schema", "apply"], &bucketed));
    assert!(
        code == 1 && out.is_empty() && err.contains("mobimir_sessions.sessions: expected the key"),
        "{out}{err}"
    );

    // What was ordered is there after a start.
    let shop = Process::start(&serve, &data, &[]);
    let phone = product(&shop.host, 10).await;
    let mut customer = Customer::new(&shop.host).await;
    let order = customer.client.order("k", items(&phone, 1)).await.expect(201);
    assert!(shop.terminate().success());
    let shop = Process::start(&serve, &data, &[]);
    let mut customer = Client::with_token(&shop.host, customer.login["token"].as_str().unwrap());
    let path = format!("/v1/orders/{}", order["order_id"].as_str().unwrap());
    assert_eq!(customer.get(&path).await.expect(200)["order_id"], order["order_id"]);

    // The operator sees all stores.
    let mut operator = Client::with_token(&shop.host, OPERATOR);
    let metrics = String::from_utf8(operator.get("/metrics").await.body.to_vec()).unwrap();
    for name in [
        "mobimir_embedded_writes_total",
        "mobimir_cassandra_request_seconds",
        "mobimir_mongodb_request_seconds",
        "entity=\"sessions\"",
        "entity=\"products\"",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    assert!(metrics.ends_with("# EOF\n") && metrics.matches("# EOF").count() == 1);
    let copy = dir.path().join("copy");
    let backup =
        |to: &std::path::Path| run(&["backup", to.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    let (code, out, _) = backup(&copy);
    assert!(code == 0 && out.contains(ELSEWHERE), "{out}");

    // Without one of them the shop says that it is not well, and goes on when it is back.
    until_readyz(&shop.host, 200).await;
    mongo.kill(1).unwrap();
    until_readyz(&shop.host, 503).await;
    mongo.start_member(1).unwrap();
    until_readyz(&shop.host, 200).await;
    ring.kill(1).unwrap();
    until_readyz(&shop.host, 503).await;
    ring.start_node(1).unwrap();
    until_readyz(&shop.host, 200).await;
    assert_eq!(customer.get(&path).await.expect(200)["order_id"], order["order_id"]);
    assert!(shop.terminate().success());
    let (code, out, _) = backup(&dir.path().join("second"));
    assert!(code == 0 && out.contains(ELSEWHERE), "{out}");
}

async fn until_readyz(host: &str, status: u16) {
    let start = Instant::now();
    loop {
        let answer = Client::new(host).send(Method::GET, "/readyz", &[], None).await.unwrap();
        if answer.status.as_u16() == status {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "/readyz stays at {}", answer.status);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
