//! Orders, carts and sessions move from MongoDB to Cassandra and back while people buy, and everything that can go wrong does.

mod command;
mod faults;
mod hang_ups;
mod regulars;
mod troubles;
mod world;

use std::{
    path::PathBuf,
    process::Child,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use self::{
    command::{look, plan, unhindered_plan},
    faults::{Fault, When, strike},
    hang_ups::nobody_who_hangs_up_holds_up_a_handover,
    regulars::Regulars,
    troubles::Troubles,
    world::{ENTITIES, PATIENCE, World, blocking, tell},
};
use crate::{
    load::{ended, load_on},
    support::{Client, servers, shop::operator},
};

/// Other faults than those of [`SCHEDULE`], where there is time for them.
const FAULTS_VARIABLE: &str = "MOBIMIR_MIGRATION_FAULTS";
/// Set where there is time for all of them to go up once more, to the end.
const LONG_VARIABLE: &str = "MOBIMIR_MIGRATION_LONG";

/// Beside three nodes that copy and compare on a machine with two cores.
const RATE: [&str; 4] = ["--rate", "12", "--connections", "8"];

/// Every fault once, and in every phase one.
const SCHEDULE: [(When, Fault); 6] = [
    (When::DualWrite, Fault::PauseTarget),
    (When::Backfill, Fault::KillMigrator),
    (When::Verify, Fault::KillCassandraNode),
    (When::Handover, Fault::Rollback),
    (When::ReadTarget, Fault::KillInstance),
    (When::WayBack, Fault::KillPrimary),
];

/// What is tried before the faults: clients that hang up.
const HANG_UPS: &str = "HangUps";

/// Whether clients hang up, too: always, unless only faults are named.
fn tries_hang_ups() -> bool {
    std::env::var(FAULTS_VARIABLE).map_or(true, |named| named.contains(HANG_UPS))
}

fn schedule() -> Vec<(When, Fault)> {
    match std::env::var(FAULTS_VARIABLE) {
        Ok(only) if only == HANG_UPS => Vec::new(),
        Ok(some) => {
            // As they are printed, one after the other, or all of a phase: `Handover KillInstance, WayBack`.
            let named = |(when, fault): &(When, Fault)| {
                let (all, one) = (format!("{when:?}"), format!("{when:?} {fault:?}"));
                some.split(',').map(str::trim).any(|name| name == all || name == one)
            };
            let every = When::ALL.into_iter().flat_map(|when| Fault::ALL.map(|fault| (when, fault)));
            let named: Vec<(When, Fault)> = every.filter(named).collect();
            assert!(!named.is_empty(), "{FAULTS_VARIABLE} names no fault: {some}");
            named
        }
        Err(_) => SCHEDULE.to_vec(),
    }
}

/// A crowd that buys at one of the instances until it is ended.
struct Crowd {
    load: Option<Child>,
    out: PathBuf,
    host: String,
}

impl Crowd {
    async fn start(world: &World) -> Self {
        let (out, host) = (world.dir.path().join("report"), world.host(0).to_owned());
        let load = load_on(&host, &out, RATE, &["--for", "300m"]).spawn().unwrap();
        let crowd = Self { load: Some(load), out, host };
        let started = Instant::now();
        // What is made after that is not among what the crowd buys.
        while !sells(&crowd.host).await {
            assert!(started.elapsed() < PATIENCE, "nobody orders");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        crowd
    }

    /// Everything that was acknowledged is there, and nobody was failed without a reason.
    async fn end(mut self, troubles: &Troubles) {
        let (load, out) = (self.load.take().unwrap(), self.out.clone());
        kill_process(Pid::from_child(&load), Signal::INT).unwrap();
        let (_, said, report) = blocking(move || ended(load, &out)).await;
        assert_eq!(report["findings"]["left_out"], json!([]), "{said}");
        for check in ["orders", "histories", "days", "unasked_orders", "carts", "stock", "invariants"] {
            assert!(report["findings"][check]["looked_at"].as_u64().unwrap() > 0, "{check}: {said}");
            assert_eq!(report["findings"][check]["wrong"], 0, "{check}: {said}\n{:#}", report["findings"]);
        }
        assert_eq!(report["findings"]["unsettled"], 0, "{said}");
        assert_eq!(report["findings"]["answers_wrong"], 0, "{said}");
        eprintln!("{said}");
        troubles.explain_report(&self.host, &report);
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if let Some(mut load) = self.load.take() {
            let _ = load.kill();
            let _ = load.wait();
        }
    }
}

async fn sells(host: &str) -> bool {
    let metrics = Client::new(host).get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    text.lines().any(|line| line.contains("\"/v1/orders\"") && line.contains("status=\"201\""))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_carts_and_sessions_move_there_and_back_while_people_buy_and_everything_goes_wrong() {
    if !servers::are_real() {
        // It takes two kinds of servers. The Makefile runs this on them.
        return;
    }
    let mut world = World::start().await;
    let [host, other] = [0, 1].map(|number| world.host(number).to_owned());
    let crowd = Crowd::start(&world).await;
    let regulars = Regulars::start(world.hosts()).await;
    world.let_passers_by_in().await;
    operator(&host).post("/v1/ops/migrations/orders/advance", json!({})).await.problem(409, "no_migration");
    for entity in ENTITIES {
        unhindered_plan(&host, entity).await;
        world.start_moving(&other, entity).await;
        let again = operator(&host).post(&format!("/v1/ops/migrations/{entity}/start"), json!({})).await;
        again.problem(409, "migration_under_way");
    }
    plan(&host).await;
    look(&world, "source").await;

    let mut failures = Vec::new();
    if tries_hang_ups() {
        failures = nobody_who_hangs_up_holds_up_a_handover(&world).await;
    }
    let mut troubles = Troubles::default();
    for (round, (when, fault)) in schedule().into_iter().enumerate() {
        when.reach(&world).await;
        strike(&mut world, &mut troubles, fault, when, round).await;
    }
    world.bring_all("verify").await;
    world.compare_all().await;
    look(&world, "verify").await;
    if std::env::var(LONG_VARIABLE).is_ok() {
        world.bring_all("target").await;
    } else {
        let [orders, carts, sessions] = ENTITIES;
        let (stays, goes) = ("source", "target");
        tokio::join!(world.bring(orders, stays), world.bring(carts, stays), world.bring(sessions, goes));
    }
    let refused = operator(&host).post("/v1/ops/migrations/sessions/rollback", json!({})).await;
    refused.problem(409, "migration_refused");

    tell("arrived");
    let troubles = troubles.with_handovers(&world).await;
    failures.append(&mut regulars.end().await);
    crowd.end(&troubles).await;
    troubles.explain(&failures);
    for host in world.hosts() {
        let counted = operator(&host).get("/v1/ops/invariants").await.expect(200);
        assert!(!counted["items"].as_array().unwrap().is_empty());
        for invariant in counted["items"].as_array().unwrap() {
            assert_eq!(invariant["violations"], 0, "{host}: {invariant}");
        }
    }
}
