//! Every planted fault is found: by its recorded seeds, and with `MOBIMIR_PLANTED_SEEDS=n` within so many
//! fresh ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::hash::{BuildHasher, Hasher, RandomState};

use mobimir_simulator::{
    plan::Plan,
    planted::PlantedFault,
    run::{run, run_all},
};

/// Seeds that find a fault. Whoever changes what seeds do records them anew: `MOBIMIR_PLANTED_SEEDS=2000
/// MOBIMIR_PLANTED_FROM=0 cargo test --workspace --test planted -- --nocapture` prints the table.
const RECORDED: &[(PlantedFault, u64)] = include!("planted/recorded.in");

#[test]
fn every_planted_fault_is_found() {
    let fresh = std::env::var("MOBIMIR_PLANTED_SEEDS").ok().map(|seeds| seeds.parse::<u64>().unwrap());
    let Some(seeds) = fresh else { return every_recorded_seed_finds_its_fault() };
    let from = std::env::var("MOBIMIR_PLANTED_FROM").map_or_else(
        |_| RandomState::new().build_hasher().finish() % 1_000_000_000,
        |from| from.parse().unwrap(),
    );
    let mut missed = Vec::new();
    for fault in PlantedFault::ALL {
        let plans = (from..from + seeds).map(|seed| Plan::of(seed).with(fault)).collect();
        match run_all(plans) {
            (Some((plan, report)), _) => {
                let found = &report.violations[0];
                println!("({fault:?}, {}), // {} after {} seeds", plan.seed, found.invariant, plan.seed - from + 1);
            }
            (None, _) => {
                println!("// {fault:?}: not found in {seeds} seeds");
                missed.push(fault.name());
            }
        }
    }
    assert!(missed.is_empty(), "not found in seeds {from} to {}: {missed:?}", from + seeds);
}

fn every_recorded_seed_finds_its_fault() {
    let mut failures = Vec::new();
    for fault in PlantedFault::ALL {
        let Some((_, seed)) = RECORDED.iter().find(|(recorded, _)| *recorded == fault) else {
            failures.push(format!("{}: no seed is recorded", fault.name()));
            continue;
        };
        let plan = Plan::of(*seed).with(fault);
        if run(plan).violations.is_empty() {
            failures.push(format!("{plan}: nothing was found"));
        }
        // The same seed is sound without the fault, so it is the fault that is found.
        let sound = run(Plan::of(*seed)).violations;
        if !sound.is_empty() {
            failures.push(format!("{}: broken without a fault: {sound:?}", Plan::of(*seed)));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
