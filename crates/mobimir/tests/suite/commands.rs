//! The command line: help, errors, exit codes, clean ends, backup and restore, import.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Client, Customer, Process,
    process::{OPERATOR, program, run},
    shop::{assert_orders_found, items, operator, product, settled_stock, stock},
};

/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);

#[test]
fn every_command_explains_itself_with_examples() {
    for command in [
        &["--help"][..],
        &["serve", "--help"],
        &["demo", "--help"],
        &["import", "online-retail", "--help"],
        &["policy", "check", "--help"],
        &["policy", "show", "--help"],
        &["lab", "--help"],
        &["lab", "up", "--help"],
        &["lab", "cassandra", "--help"],
        &["lab", "mongo", "--help"],
        &["lab", "status", "--help"],
        &["lab", "join", "--help"],
        &["lab", "start-node", "--help"],
        &["lab", "stop-node", "--help"],
        &["lab", "start-member", "--help"],
        &["lab", "stop-member", "--help"],
        &["lab", "down", "--help"],
        &["load", "run", "--help"],
        &["load", "replay", "--help"],
        &["load", "compare", "--help"],
        &["migrate", "--help"],
        &["migrate", "status", "--help"],
        &["load", "profiles", "--help"],
        &["schema", "print", "--help"],
        &["schema", "plan", "--help"],
        &["schema", "apply", "--help"],
        &["backup", "--help"],
        &["restore", "--help"],
    ] {
        let (code, out, _) = run(command);
        assert_eq!(code, 0, "{command:?}");
        assert!(out.contains("Examples:"), "{command:?}: {out}");
    }
}

/// What people read is reviewed like code.
#[test]
fn the_help_is_as_reviewed() {
    let mut text = String::new();
    for command in [
        &["--help"][..],
        &["serve", "--help"],
        &["demo", "--help"],
        &["import", "online-retail", "--help"],
        &["policy", "--help"],
        &["lab", "--help"],
        &["lab", "up", "--help"],
        &["lab", "cassandra", "--help"],
        &["lab", "mongo", "--help"],
        &["lab", "status", "--help"],
        &["lab", "join", "--help"],
        &["lab", "start-node", "--help"],
        &["lab", "stop-node", "--help"],
        &["lab", "start-member", "--help"],
        &["lab", "stop-member", "--help"],
        &["lab", "down", "--help"],
        &["load", "run", "--help"],
        &["load", "replay", "--help"],
        &["load", "compare", "--help"],
        &["migrate", "--help"],
        &["migrate", "status", "--help"],
        &["load", "profiles", "--help"],
        &["schema", "print", "--help"],
        &["schema", "plan", "--help"],
        &["schema", "apply", "--help"],
        &["backup", "--help"],
        &["restore", "--help"],
    ] {
        let (_, out, _) = run(command);
        text.push_str(&format!("$ mobimir {}\n{out}\n", command.join(" ")));
    }
    insta::assert_snapshot!("help", text);
}

#[test]
fn wrong_usage_is_2_and_failure_is_1_with_one_line() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    for usage in [
        &["dance"][..],
        &["serve", "--listen", "nowhere"],
        &["demo", "--products", "many"],
        &["import"],
        &["serve", "--no-such-flag"],
        &["lab"],
        &["lab", "cassandra", "--nodes", "0"],
        &["lab", "mongo", "--members", "8"],
        &["lab", "mongo", "--members", "3", "--shards", "2"],
        &["lab", "cassandra", "--net", "10.0.0"],
        &["lab", "cassandra", "--set", "key"],
        &["migrate"],
        &["migrate", "status", "people"],
        &["migrate", "months", "orders"],
        &["migrate", "months", "orders", "--from", "2025-13", "--to", "2025-14"],
        &["migrate", "months", "orders", "--from", "2025-01"],
    ] {
        assert_eq!(run(usage).0, 2, "{usage:?}");
    }
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    for failure in [
        &["policy", "check", missing][..],
        &["lab", "status", "--dir", missing],
        &["lab", "join", "--dir", missing],
        &["lab", "start-node", "1", "--dir", missing],
        &["lab", "stop-node", "1", "--dir", missing],
        &["policy", "check", file],
        &["serve", "--config", missing],
        &["serve", "--config", file],
        &["serve", "--policy", missing],
        &["serve", "--policy", "default", "--data", missing],
        &["serve", "--data", file],
        &["backup", missing, "--data", missing],
        &["restore", missing, "--data", missing],
        &["import", "online-retail", missing, "--data", missing],
    ] {
        let (code, out, err) = run(failure);
        assert_eq!(code, 1, "{failure:?}: {out}{err}");
        assert!(
            !err.is_empty() && err.lines().count() <= 3 && !err.contains("panicked"),
            "{failure:?}: {err}"
        );
        assert!(!std::path::Path::new(missing).exists(), "{failure:?} left something behind");
    }
}

/// Every way to ask for a migration fails with one line that says what to do about it.
#[test]
fn a_migration_that_nobody_can_be_asked_about_is_one_line() {
    let (nobody, page) = ("http://127.0.0.1:1", TempDir::new().unwrap());
    let out = page.path().join("page.html");
    let months = ["months", "orders", "--from", "2025-01", "--to", "2025-02"];
    let asked: [&[&str]; 7] = [
        &["plan", "orders"],
        &["start", "carts"],
        &["advance", "sessions"],
        &["status", "orders"],
        &["status", "orders", "--watch"],
        &["report", "orders", "--out", out.to_str().unwrap()],
        &months,
    ];
    let ask = |asked: &[&str], target: &str, token: Option<&str>| {
        let mut command = program();
        command.arg("migrate").args(asked).args(["--target", target]);
        let done = command.envs(token.map(|token| ("MOBIMIR_OPERATOR_TOKEN", token))).output().unwrap();
        let err = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{asked:?}: {err}");
        assert!(done.stdout.is_empty(), "{asked:?}");
        assert_eq!(err.lines().count(), 1, "{asked:?}: {err}");
        err
    };
    for asked in asked {
        let err = ask(asked, nobody, Some(OPERATOR));
        assert!(err.starts_with(&format!("mobimir: no shop answers at {nobody}: ")), "{asked:?}: {err}");
        let err = ask(asked, nobody, None);
        assert!(err.contains("MOBIMIR_OPERATOR_TOKEN"), "{asked:?}: {err}");
        let err = ask(asked, "10.0.0.11", Some(OPERATOR));
        assert!(err.contains("expected an address like http://"), "{asked:?}: {err}");
    }
    assert!(!out.exists());
}

#[test]
fn policies_are_shown_and_checked() {
    let (code, out, _) = run(&["policy", "show"]);
    assert_eq!(code, 0);
    assert!(out.contains("embedded") && out.contains("checkout_deadline"), "{out}");
    let (code, out, _) = run(&["policy", "show", "--policy", "default", "--json"]);
    assert_eq!(code, 0);
    let policy: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(policy["name"], "default");

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("p.toml");
    std::fs::write(
        &path,
        "[carts]\nttl = { guest = \"7d\", user = \"30d\" }\n\n[orders]\nhomes = \"embedded\"\n",
    )
    .unwrap();
    let (code, _, err) = run(&["policy", "check", path.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(err.contains("p.toml:5: orders.homes: "), "{err}");
}

#[tokio::test]
async fn a_data_directory_has_one_shop_at_a_time() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let shop = Process::serve(&data);
    let (code, _, err) = run(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 1);
    assert!(err.contains("in use") && err.contains(&shop.id().to_string()), "{err}");
    assert!(shop.terminate().success());
    std::fs::write(data.join("VERSION"), "mobimir embedded 999\n").unwrap();
    let (code, _, err) = run(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 1);
    assert!(err.contains("999"), "{err}");
}

/// SIGTERM while everybody is ordering: whatever was accepted is answered, the process ends with 0, and all
/// of it is there afterwards. A request that gets no answer was not begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_ends_cleanly_under_load() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let mut shop = Process::start(&["serve"], &data, &[]);
    let phone = product(&shop.host, 1_000_000).await;
    let (mut placed, mut answered_while_ending) = (0, 0);
    let started = Instant::now();
    // As often as it takes until the end is asked for while a request is being answered.
    while answered_while_ending == 0 {
        assert!(started.elapsed() < PATIENCE, "no request is being answered when the end is asked for");
        let bought = end_under_load(&mut shop, &phone).await;
        shop = Process::start(&["serve"], &data, &[]);
        for Bought { token, mut orders, last_answers, cut } in bought {
            let mut client = Client::with_token(&shop.host, &token);
            assert_orders_found(&shop.host, &mut client, &orders).await;
            // The key of the request without an answer is unused.
            let again = client.order(&format!("k{}", orders.len()), items(&phone, 1)).await;
            assert_eq!(again.header("idempotent-replayed"), None, "{cut}");
            orders.push(again.expect(201));
            placed += orders.len() as u64;
            answered_while_ending += last_answers;
        }
        assert_eq!(stock(&shop.host, &phone).await, (1_000_000 - placed, 0, placed));
    }
    println!("{placed} orders, {answered_while_ending} of them answered while the shop was ending");
}

async fn end_under_load(shop: &mut Process, phone: &str) -> Vec<Bought> {
    const BUYERS: u64 = 16;
    let answered = Arc::new(AtomicU64::new(0));
    let mut buyers = Vec::new();
    for _ in 0..BUYERS {
        let customer = Customer::new(&shop.host).await;
        buyers.push(tokio::spawn(buy_until_cut(customer, phone.to_owned(), answered.clone())));
    }
    let started = Instant::now();
    while answered.load(Ordering::SeqCst) < 10 * BUYERS {
        assert!(started.elapsed() < PATIENCE, "hardly anybody can order");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    shop.signal(Signal::TERM);
    assert!(shop.wait().success(), "{}", shop.log());
    assert!(!shop.log().contains("some requests were still running"), "{}", shop.log());
    let mut bought = Vec::new();
    for buyer in buyers {
        bought.push(buyer.await.unwrap());
    }
    bought
}

struct Bought {
    token: String,
    orders: Vec<Value>,
    /// Of requests that were being answered when the end was asked for.
    last_answers: usize,
    /// How the last request failed.
    cut: String,
}

/// Orders under one key after the other until a request gets no answer.
async fn buy_until_cut(mut customer: Customer, phone: String, answered: Arc<AtomicU64>) -> Bought {
    let (mut orders, mut last_answers) = (Vec::new(), 0);
    let cut = loop {
        let key = format!("k{}", orders.len());
        let keyed = [("idempotency-key", key.as_str())];
        match customer.client.send(Method::POST, "/v1/orders", &keyed, Some(items(&phone, 1))).await {
            Ok(answer) => {
                last_answers += usize::from(answer.header("connection") == Some("close"));
                orders.push(answer.expect(201));
            }
            Err(error) => break error.to_string(),
        }
        answered.fetch_add(1, Ordering::SeqCst);
    };
    let token = customer.login["token"].as_str().unwrap().to_owned();
    Bought { token, orders, last_answers, cut }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_shop_is_backed_up_and_restored() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    // A checkout that the copy cuts in two is settled at the deadline that its record has.
    let policy = dir.path().join("settling.toml");
    std::fs::write(&policy, "[times]\ncheckout_deadline = \"15s\"\n").unwrap();
    let serve = ["serve", "--policy", policy.to_str().unwrap()];
    let shop = Process::start(&serve, &data, &[]);
    let host = shop.host.clone();
    let phone = product(&host, 1_000_000).await;
    let mut customer = Customer::new(&host).await;
    let before = customer.client.order("before", items(&phone, 1)).await.expect(201);
    // Orders go on while the copy is made.
    let (placed, is_copied) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let buyer = {
        let (host, phone) = (host.clone(), phone.clone());
        let (placed, is_copied) = (placed.clone(), is_copied.clone());
        tokio::spawn(async move {
            let mut customer = Customer::new(&host).await;
            while !is_copied.load(Ordering::SeqCst) {
                let key = format!("k{}", placed.fetch_add(1, Ordering::SeqCst));
                let answer = customer.client.order(&key, items(&phone, 1)).await;
                // On a slow machine an order may take longer than its deadline allows.
                if answer.status != 201 {
                    answer.problem(409, "checkout_aborted");
                }
            }
        })
    };
    let started = Instant::now();
    while placed.load(Ordering::SeqCst) < 3 {
        assert!(started.elapsed() < PATIENCE, "nobody can order");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let copy = dir.path().join("copy");
    let (from, to) = (data.clone(), copy.clone());
    let backup = move || run(&["backup", to.to_str().unwrap(), "--data", from.to_str().unwrap(), "--json"]);
    let (code, out, err) = tokio::task::spawn_blocking(backup).await.unwrap();
    is_copied.store(true, Ordering::SeqCst);
    assert_eq!(code, 0, "{err}");
    assert!(serde_json::from_str::<Value>(&out).unwrap()["records"].as_u64().unwrap() > 0);
    buyer.await.unwrap();
    let after = customer.client.order("after", items(&phone, 1)).await.expect(201);
    let (code, _, err) = run(&["backup", copy.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    assert_eq!(code, 1, "a backup does not write over another");
    assert!(err.contains("not empty"), "{err}");
    drop(shop);

    let again = dir.path().join("again");
    let (code, _, err) = run(&["restore", copy.to_str().unwrap(), "--data", again.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    let shop = Process::start(&serve, &again, &[]);
    let mut customer = Client::with_token(&shop.host, customer.login["token"].as_str().unwrap());
    assert_eq!(
        customer.get(&format!("/v1/orders/{}", before["order_id"].as_str().unwrap())).await.expect(200),
        before
    );
    customer
        .get(&format!("/v1/orders/{}", after["order_id"].as_str().unwrap()))
        .await
        .problem(404, "not_found");
    // A cut through the middle of a checkout is settled like a crash.
    let (available, reserved, sold) = settled_stock(&shop.host, &phone).await;
    assert_eq!((available + sold, reserved), (1_000_000, 0));
    assert!(sold >= 1, "the order before the copy is in it");

    // A damaged copy is refused, and nothing is made of it.
    let dump = copy.join("mobimir.dump");
    let mut bytes = std::fs::read(&dump).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&dump, bytes).unwrap();
    let third = dir.path().join("third");
    let (code, _, err) = run(&["restore", copy.to_str().unwrap(), "--data", third.to_str().unwrap()]);
    assert_eq!(code, 1, "{err}");
    assert!(!third.exists());
}

#[tokio::test]
async fn the_demo_is_the_same_shop_every_time() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let arguments = ["demo", "--products", "300", "--seed", "7"];
    let shop = Process::start(&arguments, &data, &[("MOBIMIR_OPERATOR_TOKEN", "")]);
    let token = shop.said.iter().find_map(|line| line.strip_prefix("operator token: ")).unwrap().to_owned();
    Client::with_token(&shop.host, &token).get("/v1/ops/policy").await.expect(200);
    let first = Client::new(&shop.host).get("/v1/products?limit=100").await.expect(200);
    let categories = Client::new(&shop.host).get("/v1/categories").await.expect(200);
    assert!(categories.as_array().unwrap().contains(&json!("Электроника")));
    assert!(shop.terminate().success());
    let shop = Process::start(&arguments, &data, &[]);
    assert_eq!(Client::new(&shop.host).get("/v1/products?limit=100").await.expect(200), first);
    drop(shop);
    let other = dir.path().join("other");
    let shop = Process::start(&arguments, &other, &[]);
    let second = Client::new(&shop.host).get("/v1/products?limit=100").await.expect(200);
    let ids = |list: &Value| -> Vec<Value> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| json!([p["product_id"], p["name"], p["price"]]))
            .collect()
    };
    assert_eq!(ids(&first), ids(&second));
}

#[tokio::test]
async fn a_trade_history_is_imported_once() {
    let dir = TempDir::new().unwrap();
    let csv = dir.path().join("trade.csv");
    let mut file = std::fs::File::create(&csv).unwrap();
    writeln!(file, "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country")
        .unwrap();
    writeln!(file, "1,A,RED LAMP,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom").unwrap();
    writeln!(file, "1,B,BLUE LAMP,2,2010-12-01 08:26:00,3.39,17850.0,United Kingdom").unwrap();
    writeln!(file, "C2,A,RED LAMP,-1,2010-12-02 09:00:00,2.55,17850.0,United Kingdom").unwrap();
    writeln!(file, "3,A,RED LAMP,1,2010-12-01 10:00:00,2.55,,France").unwrap();
    writeln!(file, "4,A,RED LAMP,one,2010-12-03 10:00:00,2.55,,France").unwrap();
    drop(file);
    let data = dir.path().join("data");
    let import = ["import", "online-retail", csv.to_str().unwrap(), "--data", data.to_str().unwrap()];
    let (code, out, err) = run(&import);
    assert_eq!(code, 0, "{out}{err}");
    assert!(format!("{out}{err}").contains("line 6"), "the bad line is named: {out}{err}");
    let (code, _, _) = run(&import);
    assert_eq!(code, 0);
    let shop = Process::serve(&data);
    let day = operator(&shop.host).get("/v1/reports/orders?day=2010-12-01").await.expect(200);
    assert_eq!(day["items"].as_array().unwrap().len(), 2);
    let cancelled =
        operator(&shop.host).get("/v1/reports/orders?day=2010-12-02&status=cancelled").await.expect(200);
    assert_eq!(cancelled["items"].as_array().unwrap().len(), 1);
    let found = Client::new(&shop.host).get("/v1/products?q=lamps").await.expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 2);
}
