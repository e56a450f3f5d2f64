//! `mobimir load` against a shop: what it counts, and that it notices what is wrong.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use crate::support::{
    Process,
    process::{OPERATOR, program, run},
    shop::operator,
};

/// How long to wait for what is certain to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// A few of everything: large orders, logins, a run on one product.
const PROFILE: &str = r#"
name = "a bit of everything"
[mix]
product_page = 30
category_page = 10
cart_add = 25
cart_change = 8
cart_read = 5
order = 12
order_history = 4
order_status = 4
login = 2
[shoppers]
users = 20
guests = 40
[goods]
products_max = 60
stock_at_least = 10000
[wholesale]
orders_percent = 10
lines = 15
[[flash]]
at = "1s"
for = "1s"
percent = 50
"#;

/// As much as any machine can do.
pub(crate) const GENTLE: [&str; 4] = ["--rate", "150", "--connections", "16"];

fn load(shop: &Process, out: &Path, rate: [&str; 4], more: &[&str]) -> Command {
    load_on(&shop.host, out, rate, more)
}

pub(crate) fn load_on(host: &str, out: &Path, rate: [&str; 4], more: &[&str]) -> Command {
    let profile = out.with_extension("toml");
    std::fs::write(&profile, PROFILE).unwrap();
    let mut command = program();
    command.args(["load", "run", "--profile"]).arg(profile);
    command.args(["--target", &format!("http://{host}"), "--out"]).arg(out).args(rate).args(more);
    command.env("MOBIMIR_OPERATOR_TOKEN", OPERATOR).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How it ended, what it printed, and its report.
pub(crate) fn ended(child: Child, out: &Path) -> (Option<i32>, String, Value) {
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let report = std::fs::read(out.with_extension("json")).unwrap_or_else(|error| panic!("{error}: {said}"));
    (output.status.code(), said, serde_json::from_slice(&report).unwrap())
}

/// Waits until this process of a shop has acknowledged an order.
async fn until_it_sells(host: &str) {
    let (mut operator, started) = (operator(host), Instant::now());
    loop {
        let metrics = operator.get("/metrics").await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        if text.lines().any(|line| line.contains("\"/v1/orders\"") && line.contains("status=\"201\"")) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "nobody orders: {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns when a request has arrived at the address of a shop that is gone, and was not answered.
async fn asked_in_vain(host: &str) {
    let listener = tokio::net::TcpListener::bind(host).await.expect("nobody else listens there");
    let asked = async {
        loop {
            let (mut connection, _) = listener.accept().await.expect("connections can be accepted");
            if connection.read(&mut [0]).await.is_ok_and(|bytes| bytes > 0) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the load goes on while the shop is gone");
}

/// As Ctrl-C does.
fn interrupt(load: &Child) {
    let interrupted = Command::new("kill").args(["-INT", &load.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
}

/// Everything that is looked at with an operator's token.
const CHECKS: [&str; 7] = ["orders", "histories", "days", "unasked_orders", "carts", "stock", "invariants"];

fn demo(dir: &TempDir) -> Process {
    Process::start(&["demo", "--products", "60"], &dir.path().join("data"), &[])
}

#[test]
fn a_run_on_a_sound_shop_finds_everything_in_order() {
    let dir = TempDir::new().unwrap();
    let (shop, out) = (demo(&dir), dir.path().join("report"));
    let (code, said, report) = ended(load(&shop, &out, GENTLE, &["--for", "3s"]).spawn().unwrap(), &out);
    // A machine with too much to do may not send all of the plan; everything else has to be right all the same.
    let valid = report["sent_share"].as_f64().unwrap() >= 0.999;
    assert_eq!(code, Some(if valid { 0 } else { 1 }), "{said}");
    let findings = &report["findings"];
    for check in CHECKS {
        assert!(findings[check]["looked_at"].as_u64().unwrap() > 0, "{check}: {findings}");
        assert_eq!(findings[check]["wrong"], 0, "{check}: {findings}");
    }
    for operation in ["product_page", "cart_add", "cart_change", "order", "login", "guest_session"] {
        assert!(report["operations"][operation]["fine"].as_u64().unwrap_or(0) > 0, "{operation}: {said}");
        assert_eq!(report["operations"][operation]["failed"], json!({}), "{operation}: {said}");
    }
    assert!(report["shop_cpu_us"].as_f64().unwrap() > 0.0);
    // What a benchmark reads.
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {report}"));
    assert!(number(&report["totals"]["goodput"]) <= number(&report["totals"]["answered"]));
    assert!(report["totals"]["goodput_per_s"].as_f64().unwrap() > 0.0);
    assert!(number(&report["seconds"][0]["reads"]["p99_us"]) > 0);
    assert_eq!(findings["left_out"], json!([]));
    assert_eq!(
        (&findings["answers_wrong"], &findings["reads_checked_one_in"]),
        (&json!(0), &json!(8)),
        "{said}"
    );
    for rule in ["cart_contents", "order_lines", "order_prices", "order_replayed", "status_history"] {
        assert!(number(&findings["answers"][rule]["checked"]) > 0, "{rule}: {findings}");
    }
    for promise in ["ORD-1", "ORD-2", "ORD-3", "CRT-1", "STK-1"] {
        assert_eq!(findings["by_promise"][promise], 0, "{promise}: {findings}");
    }
    assert!(number(&findings["flash"]["units_sold"]) > 0, "{findings}");
    assert_eq!(findings["flash"]["units_sold"], findings["flash"]["units_ordered"]);
    let page = std::fs::read_to_string(out.with_extension("html")).unwrap();
    assert!(page.contains("<svg") && page.contains("a bit of everything"), "{page}");

    // The same people come again, and nothing of the first time is taken for the second's.
    let again = dir.path().join("again");
    let (_, said, second) = ended(load(&shop, &again, GENTLE, &["--for", "1s"]).spawn().unwrap(), &again);
    assert_eq!(second["findings"]["unasked_orders"]["wrong"], 0, "{said}");
    let (first, second) = (out.with_extension("json"), again.with_extension("json"));
    let (code, said, error) = run(&["load", "compare", first.to_str().unwrap(), second.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    assert!(said.contains("product_page"), "{said}");
}

/// Without the operator's token less can be looked at, which is said and is no reason to fail. A limit of one kind alone
/// is kept to.
#[test]
fn a_visitor_looks_at_what_visitors_may_see() {
    let dir = TempDir::new().unwrap();
    let (shop, out) = (demo(&dir), dir.path().join("report"));
    let mut command = load(&shop, &out, GENTLE, &["--for", "1s", "--keep-stock", "--read-p99", "9s"]);
    let child = command.env_remove("MOBIMIR_OPERATOR_TOKEN").spawn().unwrap();
    let (_, said, report) = ended(child, &out);
    let findings = &report["findings"];
    assert_eq!((&findings["days"], &findings["not_looked"]), (&Value::Null, &Value::Null), "{said}");
    assert!(findings["left_out"][0].as_str().unwrap().contains("the lists of days"), "{said}");
    assert_eq!(findings["answers_wrong"], 0, "{said}");
    assert_eq!(report["limits"], json!({ "read_p99_us": 9_000_000, "write_p99_us": null }));
    // The other one is that of the policy, for those who may know it.
    let (_, said, report) =
        ended(load(&shop, &out, GENTLE, &["--for", "1s", "--write-p99", "9s"]).spawn().unwrap(), &out);
    assert_eq!(report["limits"]["write_p99_us"], 9_000_000, "{said}");
    assert!(report["limits"]["read_p99_us"].as_u64().unwrap() > 0, "{said}");
}

/// Also when somebody ends it.
#[test]
fn a_search_for_the_highest_rate_is_told_step_by_step() {
    let dir = TempDir::new().unwrap();
    let (shop, out) = (demo(&dir), dir.path().join("report"));
    let rate = ["--rate", "20", "--connections", "16"];
    let mut child = load(&shop, &out, rate, &["--findmax", "--for", "1s"]).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let step = errors.find(|line| line.contains(" requests/s: ")).expect("a step");
    assert!(step.contains("20 requests/s: ") && step.contains("sent "), "{step}");
    interrupt(&child);
    let more: Vec<String> = errors.collect();
    let (code, said, report) = ended(child, &out);
    assert_eq!(code, Some(1), "{said} {more:?}");
    let step = &report["findmax"]["steps"][0];
    assert_eq!(step["rate"], 20.0, "{said}");
    assert!(step["could"].is_boolean() && step["read_p99_us"].as_u64().unwrap() > 0, "{step}");
    let page = std::fs::read_to_string(out.with_extension("html")).unwrap();
    assert!(page.contains("Rates that were tried before"), "{page}");
}

/// A history that was imported is placed once more.
#[test]
fn a_trade_history_is_replayed() {
    let dir = TempDir::new().unwrap();
    let (data, out, file) =
        (dir.path().join("data"), dir.path().join("report"), dir.path().join("trade.csv"));
    std::fs::write(
        &file,
        "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n\
         536365,85123A,WHITE HANGING HEART,6,2010-12-01 08:26:00,2.55,17850,United Kingdom\n\
         536365,71053,WHITE METAL LANTERN,6,2010-12-01 08:26:00,3.39,17850,United Kingdom\n\
         536367,84879,BIRD ORNAMENT,32,2010-12-01 08:34:00,1.69,13047,United Kingdom\n\
         C536379,84879,BIRD ORNAMENT,-1,2010-12-01 09:41:00,1.69,13047,United Kingdom\n",
    )
    .unwrap();
    let (code, _, error) =
        run(&["import", "online-retail", file.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let shop = Process::start(&["serve"], &data, &[]);
    let mut command = program();
    command.args(["load", "replay"]).arg(&file).args(["--for", "2s", "--users", "5", "--out"]).arg(&out);
    command.args(["--target", &format!("http://{}", shop.host)]).env("MOBIMIR_OPERATOR_TOKEN", OPERATOR);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (code, said, report) = ended(child, &out);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(report["operations"]["order"]["fine"], 2, "{said}");
    assert_eq!(report["operations"]["product_page"]["fine"], 3, "{said}");
    assert_eq!(report["findings"]["orders"]["looked_at"], 2, "{said}");
}

/// Somebody takes a unit off a shelf during the run: books that do not balance fail it.
#[tokio::test]
async fn stock_that_goes_astray_fails_a_run() {
    let dir = TempDir::new().unwrap();
    let (shop, out) = (demo(&dir), dir.path().join("report"));
    let mut operator = operator(&shop.host);
    let page = operator.get("/v1/products?limit=1").await.expect(200);
    let product = page["items"][0]["product_id"].as_str().unwrap().to_owned();
    let stock = format!("/v1/products/{product}/stock");
    let running = load(&shop, &out, GENTLE, &["--for", "10s"]).spawn().unwrap();
    // When stock is filled up and orders come in, the run has begun.
    until_it_sells(&shop.host).await;
    operator.put(&format!("{stock}/MSK"), json!({ "delta": -1 })).await.expect(200);
    let (code, said, report) = tokio::task::spawn_blocking(move || ended(running, &out)).await.unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(report["findings"]["stock"]["wrong"], 1, "{said}");
    assert!(report["findings"]["examples"].to_string().contains("STK-1"), "{said}");
    assert_eq!(report["findings"]["orders"]["wrong"], 0, "{said}");
}

/// The shop is killed in the middle of the load and comes back: what it acknowledged is there, what it did not answer has
/// failed, and nothing of that is taken for a wrong answer.
#[tokio::test]
async fn a_shop_that_is_killed_loses_nothing_that_it_acknowledged() {
    let dir = TempDir::new().unwrap();
    let (data, out) = (dir.path().join("data"), dir.path().join("report"));
    let shop = demo(&dir);
    let address = shop.host.clone();
    // It is ended when the shop has sold something before it was killed and after.
    let more = ["--for", "20m", "--allow-errors", "--timeout", "5s", "--check-reads", "1"];
    let running = load(&shop, &out, GENTLE, &more).spawn().unwrap();
    until_it_sells(&address).await;
    shop.kill();
    // It stays away until somebody has asked in vain, however quickly it could start.
    asked_in_vain(&address).await;
    let again = Process::start_at(&address, &["serve"], &data, &[]);
    until_it_sells(&again.host).await;
    interrupt(&running);
    let (_, said, report) = tokio::task::spawn_blocking(move || ended(running, &out)).await.unwrap();
    assert!(report["totals"]["failed"].as_u64().unwrap() > 0, "nobody noticed that it was killed: {said}");
    assert!(report["findings"]["orders"]["looked_at"].as_u64().unwrap() > 1, "{said}");
    for check in CHECKS {
        assert_eq!(report["findings"][check]["wrong"], 0, "{check}: {said}");
    }
    assert_eq!(report["findings"]["answers_wrong"], 0, "{said}");
    assert_eq!(report["findings"]["unsettled"], 0, "{said}");
}

/// More than the shop wants to do at once: it says so to those who only look before it does to those who order, and keeps
/// its promises to all who got in.
#[test]
fn too_much_to_do_is_said_at_the_door() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("report");
    // Few at once, so that it is too much on any machine.
    let few = [("MOBIMIR_LIMITS_IN_FLIGHT_MAX", "2")];
    let shop = Process::start(&["demo", "--products", "60"], &dir.path().join("data"), &few);
    let much = ["--rate", "20000", "--connections", "400"];
    let child = load(&shop, &out, much, &["--for", "3s", "--allow-errors"]).spawn().unwrap();
    let (_, said, report) = ended(child, &out);
    for check in CHECKS {
        assert_eq!(report["findings"][check]["wrong"], 0, "{check}: {said}");
    }
    assert_eq!(report["findings"]["answers_wrong"], 0, "{said}");
    let shed = |operation: &str| {
        let of = &report["operations"][operation];
        let number = |key: &str| of[key].as_f64().unwrap_or_default();
        number("shed") / (number("shed") + number("fine") + number("refused")).max(1.0)
    };
    assert!(shed("product_page") > 0.0 && shed("order") <= shed("product_page"), "{said}");
    assert!(report["operations"]["order"]["fine"].as_u64().unwrap() > 0, "{said}");
}

#[test]
fn what_cannot_be_run_is_said_in_one_line() {
    for (arguments, code, words) in [
        (&["load", "run", "--profile", "black-sunday"][..], 2, "there is no profile \"black-sunday\""),
        (&["load", "run", "--profile", "Cargo.toml"], 2, "unknown field"),
        (
            &["load", "run", "--findmax", "--profile", "flash-sale"],
            2,
            "error: --findmax cannot be used with a profile that has requests_max",
        ),
        (
            &["load", "run", "--findmax", "--at", "1s true"],
            2,
            "'--findmax' cannot be used with '--at <TIME COMMAND>'",
        ),
        (
            &["load", "run", "--keep-stock", "--target", "shop"],
            2,
            "expected an address like http://127.0.0.1:8080",
        ),
        (&["load", "run"], 1, "needs the operator's token"),
        (
            &["load", "run", "--keep-stock", "--target", "http://127.0.0.1:1"],
            1,
            "no shop answers at http://127.0.0.1:1",
        ),
        (&["load", "run", "--rate=-5"], 2, "expected requests a second"),
        (&["load", "run", "--for", "soon"], 2, "expected a time like"),
        (&["load", "run", "--at", "kill"], 2, "expected a time and a command"),
        (&["load", "compare", "a.json", "b.json"], 1, "cannot read a.json"),
        (&["load", "profiles", "black-sunday"], 2, "there is no profile"),
    ] {
        let (exit, _, error) = run(arguments);
        assert_eq!(exit, code, "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    let (code, profiles, _) = run(&["load", "profiles"]);
    assert!(code == 0 && profiles.contains("black-friday") && profiles.contains("flash-sale"), "{profiles}");
    let (code, profile, _) = run(&["load", "profiles", "flash-sale"]);
    assert!(code == 0 && profile.contains("flash_stock = 10000"), "{profile}");
}
