//! The oracle of `mobimir load`, tried against a proxy that lies about a sound shop: every lie is caught and named, and
//! the truth is never taken for a lie, also when connections are cut.

mod told;

use std::{
    io,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mobimir_core::random::Random;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::told::{LIES, behaviour};
use crate::{
    load::ended,
    support::{
        Process,
        liar::{Answer, Behaviour, Liar},
        process::{OPERATOR, program},
    },
};

/// Enough of everything for every lie in a few hundred requests.
const PROFILE: &str = r#"
name = "lies"
requests_max = 200
[mix]
product_page = 10
category_page = 10
cart_add = 22
cart_change = 12
cart_read = 9
order = 17
order_history = 10
order_status = 9
login = 3
[shoppers]
users = 8
guests = 6
[goods]
products_max = 60
stock_at_least = 10000
"#;

/// How long to wait for what is not settled, where everything is.
const AT_ONCE: &str = "1s";

/// A shop for the runs of one test, which come one after the other: who else buys there would be taken for a lie.
fn shop(dir: &TempDir) -> Process {
    Process::start(&["demo", "--products", "60"], &dir.path().join("data"), &[])
}

/// Runs the load through a proxy: its exit code, what it printed, its report.
fn run(liar: &Liar, out: &Path, settle: &str, more: &[&str]) -> (Option<i32>, String, Value) {
    static SEEDS: AtomicU64 = AtomicU64::new(1);
    let (profile, seed) = (out.with_extension("toml"), SEEDS.fetch_add(1, Ordering::SeqCst).to_string());
    std::fs::write(&profile, PROFILE).unwrap();
    let mut command = program();
    command.args(["load", "run", "--rate", "500", "--connections", "6", "--check-reads", "1"]);
    command.args(["--settle", settle, "--seed", &seed, "--target", &format!("http://{}", liar.host)]);
    // How long answers take is no matter of these tests.
    command.args(["--read-p99", "60s", "--write-p99", "60s"]);
    command.arg("--profile").arg(profile).arg("--out").arg(out).args(more);
    command.env("MOBIMIR_OPERATOR_TOKEN", OPERATOR).stdout(Stdio::piped()).stderr(Stdio::piped());
    ended(command.spawn().unwrap(), out)
}

/// All of them one after the other: they share the stock.
#[test]
fn every_lie_is_caught_and_named() {
    let dir = TempDir::new().unwrap();
    let (out, shop) = (dir.path().join("report"), shop(&dir));
    let mut missed = Vec::new();
    for (what, name, lie) in LIES {
        let liar = Liar::start(&shop.host, behaviour(lie));
        let (code, said, report) = run(&liar, &out, AT_ONCE, &[]);
        let findings = &report["findings"];
        let rule = &findings["answers"][name];
        let example = &rule["example"];
        let is_told = |field: &str| example[field].as_str().is_some_and(|text| !text.is_empty());
        // A rule has an example of its own; what is checked afterwards has one among all.
        let has_example = match rule.is_null() {
            true => findings["examples"].as_array().is_some_and(|examples| !examples.is_empty()),
            false => is_told("request") && is_told("expected") && is_told("got") && said.contains(name),
        };
        let wrong = if rule.is_null() { &findings[name]["wrong"] } else { &rule["wrong"] };
        let is_caught = wrong.as_u64().is_some_and(|wrong| wrong > 0) && has_example && code == Some(1);
        if liar.lies() == 0 || !is_caught {
            missed.push(format!("{what}: {name}, told {} times\n{said}", liar.lies()));
        }
        let page = std::fs::read_to_string(out.with_extension("html")).unwrap();
        assert!(page.contains(name), "{name} is not on the page");
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Also when the proxy cuts connections, before it has forwarded a request or after.
#[test]
fn the_truth_is_no_lie() {
    let dir = TempDir::new().unwrap();
    let (out, shop) = (dir.path().join("report"), shop(&dir));
    let honest: Behaviour = Arc::new(|exchange| exchange.forward());
    let liar = Liar::start(&shop.host, honest);
    let (code, said, report) = run(&liar, &out, AT_ONCE, &[]);
    // A machine with too much to do may not send all of the plan; everything else has to be right all the same.
    let valid = report["sent_share"].as_f64().unwrap() >= 0.999;
    assert_eq!(code, Some(if valid { 0 } else { 1 }), "{said}");
    assert_right(&report, &said);

    for seed in 1..=3 {
        let random = std::sync::Mutex::new(Random::new(seed));
        let cutting: Behaviour = Arc::new(move |exchange| {
            let draw = random.lock().unwrap().below(100);
            let cuts = exchange.memory().runs && draw < 12;
            if cuts && draw < 6 {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let answer = exchange.forward()?;
            if cuts { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(answer) }
        });
        let liar = Liar::start(&shop.host, cutting);
        // What was cut off while an order was placed is settled by the shop in its own time.
        let (code, said, report) = run(&liar, &out, "75s", &["--allow-errors"]);
        let valid = report["sent_share"].as_f64().unwrap() >= 0.999;
        assert_eq!(code, Some(if valid { 0 } else { 1 }), "{said}");
        assert!(report["totals"]["failed"].as_u64().unwrap() > 0, "nothing was cut: {said}");
        assert_right(&report, &said);
    }
}

/// A shop that gives every order up has kept every promise about orders; the run is not good.
#[test]
fn a_run_without_an_order_is_not_good() {
    let dir = TempDir::new().unwrap();
    let (out, shop) = (dir.path().join("report"), shop(&dir));
    let closed: Behaviour = Arc::new(|exchange| {
        let aborted = || Answer::new(409, &json!({ "code": "checkout_aborted", "status": 409 }));
        if exchange.asked.is("POST", "/v1/orders") { Ok(aborted()) } else { exchange.forward() }
    });
    let liar = Liar::start(&shop.host, closed);
    let (code, said, report) = run(&liar, &out, AT_ONCE, &["--allow-errors"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("- no order was acknowledged"), "{said}");
    assert_eq!(report["findings"]["answers_wrong"], 0, "{said}");
}

fn assert_right(report: &Value, said: &str) {
    let findings = &report["findings"];
    for check in ["orders", "histories", "days", "unasked_orders", "carts", "stock", "invariants"] {
        assert_eq!(findings[check]["wrong"], 0, "{check}: {said}");
    }
    assert_eq!((&findings["answers_wrong"], &findings["unsettled"]), (&json!(0), &json!(0)), "{said}");
    for (_, name, _) in LIES {
        let checked = findings["answers"][name]["checked"].as_u64();
        // Of what is only ever answered wrongly there is nothing to check.
        let is_rule = !["orders", "unasked_orders", "days", "stock", "out_of_stock"].contains(&name);
        assert!(!is_rule || checked.is_some_and(|checked| checked > 0), "{name} was not checked: {said}");
    }
}
