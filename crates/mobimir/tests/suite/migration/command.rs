//! `mobimir migrate` as people use it: what it shows has to be in what a shop answers.

use std::time::Instant;

use serde_json::{Value, json};

use super::world::{PATIENCE, World, blocking};
use crate::support::{
    process::{OPERATOR, program},
    shop::operator,
};

/// What the page and the terminal show, by its name in the answer.
const SHOWN: [&str; 25] = [
    "entity",
    "at",
    "phase",
    "source",
    "target",
    "wanted",
    "is_paused",
    "working",
    "instances",
    "backlog",
    "backfill",
    "months",
    "months_copied",
    "verification",
    "repair",
    "shadow",
    "recheck",
    "felt",
    "felt_by",
    "dead_letters_total",
    "dead_letters",
    "blocked_by",
    "phase_since",
    "outcomes",
    "timeline",
];

/// Nothing stands in the way. That the target is slow to open or to answer is told as such, and is so on some machines.
pub(crate) async fn unhindered_plan(host: &str, entity: &str) {
    let started = Instant::now();
    loop {
        let plan = operator(host).get(&format!("/v1/ops/migrations/{entity}/plan")).await.expect(200);
        assert!(plan["entities"].as_u64().unwrap() > 0, "{plan:#}");
        if plan["problems"] == json!([]) && plan["copying_s"].is_u64() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{plan:#}");
    }
}

/// Says what moving the orders would be. Nothing is written, so it may be asked while they move.
pub(crate) async fn plan(host: &str) {
    let plan: Value = serde_json::from_str(&asked(host, &["plan", "orders", "--json"]).await).unwrap();
    assert!(plan["entities"].as_u64().unwrap() > 0, "{plan:#}");
    let text = asked(host, &["plan", "orders"]).await;
    assert!(text.starts_with("orders from mongodb to cassandra: about "), "{text}");
    assert!(text.contains("at least ") && text.contains("estimated from reads"), "{text}");
}

/// Looks at the orders, which are in this phase and stay there, in every way.
pub(crate) async fn look(world: &World, phase: &str) {
    let host = world.host(0);
    let text = asked(host, &["status", "orders"]).await;
    assert!(text.starts_with(&format!("orders from mongodb to cassandra: {phase}\n")), "{text}");
    assert!(text.contains("\n  instances ") && text.contains("\n  dead letters 0\n"), "{text}");

    let status: Value = serde_json::from_str(&asked(host, &["status", "orders", "--json"]).await).unwrap();
    for name in SHOWN {
        assert!(status.get(name).is_some(), "{name}: {status:#}");
    }
    assert!(status["at"].is_string() && status["blocked_by"].is_array(), "{status:#}");
    assert_eq!(status["phase"], phase, "{status:#}");
    let has_compared = phase == "verify";
    if has_compared {
        for name in ["ranges", "ranges_done", "entities", "expected", "mended", "pace"] {
            for job in [&status["backfill"], &status["verification"]["reached"]] {
                assert!(job.get(name).is_some(), "{name}: {status:#}");
            }
        }
        for name in ["is_green", "differences", "first_differences", "tables", "tables_done", "rows"] {
            assert!(status["verification"].get(name).is_some(), "{name}: {status:#}");
        }
        assert!(text.contains("\n  differences  0\n"), "{text}");
    }

    let out = world.dir.path().join("migration.html");
    let path = out.to_str().unwrap().to_owned();
    let said = asked(host, &["report", "orders", "--out", &path]).await;
    assert_eq!(said, format!("{path}\n"));
    let page = std::fs::read_to_string(&out).unwrap();
    for part in [
        "orders: mongodb → cassandra",
        &format!("{phase} since 2"),
        "this page was made at 2",
        "What the gates say",
        "every instance follows",
        "everything is equal",
        "What happened",
        "planned from mongodb to cassandra",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.matches("class=\"phase\"").count() > 0, "{page}");
    if has_compared {
        assert!(page.contains("verify after backfill"), "{page}");
        assert!(page.contains(" tables compared, 0 differences"), "{page}");
    }
}

/// What the command says, once the shop has taken the time for it: beside everything else that goes on it may be late.
async fn asked(host: &str, arguments: &[&str]) -> String {
    let started = Instant::now();
    loop {
        let mut command = program();
        command.arg("migrate").args(arguments).args(["--target", &format!("http://{host}")]);
        command.env("MOBIMIR_OPERATOR_TOKEN", OPERATOR);
        let done = blocking(move || command.output().unwrap()).await;
        if done.status.success() {
            assert!(done.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
            return String::from_utf8(done.stdout).unwrap();
        }
        let err = String::from_utf8_lossy(&done.stderr);
        let is_late = err.contains(" answered 503 ") || err.contains(" within ");
        assert!(is_late && started.elapsed() < PATIENCE, "{arguments:?}: {err}");
    }
}
