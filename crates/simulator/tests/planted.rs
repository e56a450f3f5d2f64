//! Every planted fault is found: by its recorded seeds, and with `MOBIMIR_PLANTED_SEEDS=n` within so many
//! fresh ones.

#![allow(clippy::print_stdout, reason = "prints the table of seeds")]

use std::hash::{BuildHasher, Hasher, RandomState};

use mobimir_migrate::environment as migration;
use mobimir_shop::faults::Planted;
use mobimir_simulator::{
    plan::Plan,
    planted::PlantedFault,
    run::{run, run_all},
};

/// A seed that finds each fault. Whoever changes what seeds do may record them anew:
/// `MOBIMIR_PLANTED_SEEDS=2000 MOBIMIR_PLANTED_FROM=0 cargo test --workspace --test planted -- --nocapture`
/// prints the table.
const RECORDED: &[(PlantedFault, u64)] = &[
    (PlantedFault::AcknowledgedByPrimaryAlone, 0),
    (PlantedFault::StockReadFromSecondary, 2),
    (PlantedFault::BudgetIgnored, 96),
    (PlantedFault::CheckoutUpdatedUnconditionally, 1),
    (PlantedFault::ClaimSetUnconditionally, 5),
    (PlantedFault::WrittenToOneReplica, 4),
    (PlantedFault::ReadFromOneReplica, 1),
    (PlantedFault::DecisionsRace, 2),
    (PlantedFault::PackingRenamesParts, 0),
    (PlantedFault::PackingForgetsCovered, 0),
    (PlantedFault::PackingRemovesUnseenRows, 0),
    (PlantedFault::PackedUnconditionally, 244),
    (PlantedFault::PacksByOwnClock, 13),
    (PlantedFault::SameChangeCountsTwice, 1),
    (PlantedFault::CartWriteAssumed, 9),
    (PlantedFault::NoNoteBeforeListing, 0),
    (PlantedFault::MovedUnconditionally, 0),
    (PlantedFault::TokenUsedWithoutDecision, 4),
    (PlantedFault::SessionUpdatedUnconditionally, 20),
    (PlantedFault::CopiedWithoutVersion, 38),
    (PlantedFault::MarkOfLaterWriteRemoved, 200),
    (PlantedFault::LocalFailsOver, 0),
    (PlantedFault::NothingOwed, 6),
    (PlantedFault::WholeBeforeOwedIsBrought, 35),
    (PlantedFault::DecidedInSurvivingDc, 195),
    (PlantedFault::SessionsNotWrittenAgain, 94),
    (PlantedFault::OutboxInMemoryOnly, 10),
    (PlantedFault::OutboxEntryRemovedBeforeCopy, 47),
    (PlantedFault::CopyAssumed, 47),
    (PlantedFault::TouchNotListed, 4),
    (PlantedFault::TouchedCartListed, 4),
    (PlantedFault::CartListedOnceOnly, 17),
    (PlantedFault::CartOutlivesItsTtl, 4),
    (PlantedFault::Shop(Planted::CartOrderedWithoutClaim), 0),
    (PlantedFault::Shop(Planted::EarlierOrderNotTaken), 2),
    (PlantedFault::Shop(Planted::ClaimTakenFromOpenCheckout), 5),
    (PlantedFault::Shop(Planted::CartKeptAfterOrder), 0),
    (PlantedFault::Shop(Planted::RememberedSessionRefuses), 8),
    (PlantedFault::Shop(Planted::RememberedSessionGoesBack), 81),
    (PlantedFault::Shop(Planted::SessionsRememberedTooLong), 1),
    (PlantedFault::Shop(Planted::DeadlinesByOwnClock), 1),
    (PlantedFault::Shop(Planted::AbortWithoutWinning), 16),
    (PlantedFault::Shop(Planted::AbortBeforeDeadline), 3),
    (PlantedFault::Shop(Planted::OrderWrittenUndecided), 0),
    (PlantedFault::Shop(Planted::HoldsKeptAfterAbort), 4),
    (PlantedFault::Shop(Planted::RequestNotCompared), 3),
    (PlantedFault::Shop(Planted::GuestKeptOpen), 3),
    (PlantedFault::Shop(Planted::NoLastCheckOfMerge), 42),
    (PlantedFault::Shop(Planted::LateGuestNotFollowed), 193),
    (PlantedFault::Shop(Planted::MergeRenamesChanges), 0),
    (PlantedFault::Shop(Planted::SetLeavesEarlier), 33),
    (PlantedFault::Shop(Planted::ClearedAgainLater), 10),
    (PlantedFault::Shop(Planted::CancelledWithoutDecision), 9),
    (PlantedFault::Shop(Planted::PricesReadAfterComparison), 23),
    (PlantedFault::Shop(Planted::ReusedTokenEndsNothing), 5),
    (PlantedFault::Shop(Planted::SoldBeforeCommit), 3),
    (PlantedFault::Shop(Planted::UnknownTakenForDone), 6),
    (PlantedFault::Migration(migration::Planted::UnconfirmedPhaseLeft), 2),
    (PlantedFault::Migration(migration::Planted::UnknownKeepsPermit), 80),
    (PlantedFault::Migration(migration::Planted::MarkRemovedAfterFailedCopy), 26),
    (PlantedFault::Migration(migration::Planted::WritesNotMarked), 8),
    (PlantedFault::Migration(migration::Planted::TargetNotMirrored), 8),
];
/// So many others are tried where the recorded one does not find its fault any more.
const SEEDS_MAX: u64 = 2_000;

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
                println!(
                    "({fault:?}, {}), // {} after {} seeds",
                    plan.seed,
                    found.invariant,
                    plan.seed - from + 1
                );
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
        let recorded = RECORDED.iter().find(|(recorded, _)| *recorded == fault).map(|(_, seed)| *seed);
        let is_found = |seed: &u64| !run(Plan::of(*seed).with(fault)).violations.is_empty();
        let found = recorded.filter(is_found).or_else(|| {
            println!("{}: seed {recorded:?} does not find it any more, record another", fault.name());
            let plans = (0..SEEDS_MAX).map(|seed| Plan::of(seed).with(fault)).collect();
            run_all(plans).0.map(|(plan, _)| plan.seed)
        });
        let Some(seed) = found else {
            failures.push(format!("{}: not found in {SEEDS_MAX} seeds", fault.name()));
            continue;
        };
        // It is the fault that is found: without it the same seed is sound.
        let sound = run(Plan::of(seed)).violations;
        if !sound.is_empty() {
            failures.push(format!("{}: broken without a fault: {sound:?}", Plan::of(seed)));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
