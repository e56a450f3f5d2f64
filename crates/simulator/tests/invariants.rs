//! Sound runs, and runs that are the same twice.
//!
//! `MOBIMIR_SIMULATION_SEEDS=n` runs so many seeds, from `MOBIMIR_SIMULATION_FROM` on, `MOBIMIR_SIMULATION="seed=17
//! shoppers=2"` the plan that a failure has printed, and `MOBIMIR_SIMULATION_TRACE=1` prints everything that happens.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::ops::Range;

use mobimir_simulator::{
    plan::Plan,
    run::{run, run_all, smallest},
};

const SEEDS_DEFAULT: u64 = 2_000;
/// What has to happen, once in 400 seeds at the least.
const EVENTS: [&str; 61] = [
    "added to a cart",
    "answer lost",
    "cart cleared",
    "cart ordered",
    "cart ordered by another",
    "cart packed",
    "cart read",
    "client hangs up",
    "decision lost",
    "empty cart read",
    "guest merged",
    "instance crashed",
    "instance stands still",
    "key of another request",
    "line set",
    "lines ordered",
    "logged out",
    "move refused",
    "node down",
    "node up",
    "not now",
    "nothing to order",
    "order expired",
    "order listed by another",
    "order moved",
    "order replayed",
    "order short of stock",
    "outcome open",
    "price changed",
    "price has changed",
    "primary elected",
    "primary lost",
    "product viewed",
    "read from a secondary that lags",
    "refresh refused",
    "request late",
    "request lost",
    "restocked",
    "store refused",
    "token accepted",
    "token refreshed",
    "token refused",
    "writes rolled back",
    "asked",
    "abandoned carts listed",
    "clock far off",
    "copy owed",
    "data centre back",
    "data centre lost",
    "decision refused without home",
    "entity degraded",
    "entity whole again",
    "far ahead and about to pack",
    "hints expired",
    "history is behind",
    "history listed",
    "logged in",
    "order taken without a data centre",
    "owed brought over",
    "refused without a data centre",
    "visitor's cart is gone",
];
/// The same of migrations, which are under way in every sixth seed.
const MOVING_EVENTS: [&str; 15] = [
    "crashed in a handover",
    "crashed in a migration",
    "handover back begun",
    "handover begun",
    "handover given up",
    "handover gone back",
    "migration finished",
    "migration of carts",
    "migration of orders",
    "migration of sessions",
    "migration rolled back",
    "migration set out",
    "reads moved back to the source",
    "reads moved to the target",
    "stood still in a handover",
];
const SAME_SEEDS: u64 = 100;

fn seeds() -> Range<u64> {
    let number = |name, default| std::env::var(name).map_or(default, |number| number.parse().unwrap());
    let from = number("MOBIMIR_SIMULATION_FROM", 0);
    from..from + number("MOBIMIR_SIMULATION_SEEDS", SEEDS_DEFAULT)
}

#[test]
fn whatever_goes_wrong_the_invariants_hold() {
    if let Ok(plan) = std::env::var("MOBIMIR_SIMULATION") {
        let report = run(Plan::parse(&plan).unwrap());
        eprintln!("{:#?}", report.tally);
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        return;
    }
    let (failed, tally) = run_all(seeds().map(Plan::of).collect());
    if let Some((plan, report)) = failed {
        let invariant = report.violations[0].invariant;
        let smaller = smallest(plan, invariant);
        let violations = run(smaller).violations;
        panic!("MOBIMIR_SIMULATION=\"{smaller}\" breaks {invariant}: {violations:#?}\n(found by {plan})");
    }
    eprintln!("{tally:#?}");
    // What was hardly tried proves nothing.
    let least = (seeds().end - seeds().start) / 400;
    let rare =
        EVENTS.iter().chain(&MOVING_EVENTS).filter(|event| tally.get(**event).copied().unwrap_or(0) < least);
    let rare: Vec<_> = rare.collect();
    assert!(rare.is_empty(), "hardly ever happened: {rare:?}");
}

/// Nothing outside of the seed decides.
#[test]
fn a_seed_does_the_same_twice() {
    for seed in 0..SAME_SEEDS {
        let [first, second] = [0, 1].map(|_| run(Plan::of(seed)));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_ne!(first.trace_hash, run(Plan::of(seed + SAME_SEEDS)).trace_hash, "seeds differ");
    }
}
