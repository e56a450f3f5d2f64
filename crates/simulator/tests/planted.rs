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
    (PlantedFault::AcknowledgedByPrimaryAlone, 17),
    (PlantedFault::StockReadFromSecondary, 2),
    (PlantedFault::BudgetIgnored, 4),
    (PlantedFault::CheckoutUpdatedUnconditionally, 2),
    (PlantedFault::ClaimSetUnconditionally, 4),
    (PlantedFault::WrittenToOneReplica, 5),
    (PlantedFault::ReadFromOneReplica, 0),
    (PlantedFault::DecisionsRace, 15),
    (PlantedFault::PackingRenamesParts, 0),
    (PlantedFault::PackingForgetsCovered, 0),
    (PlantedFault::PackingRemovesUnseenRows, 0),
    (PlantedFault::PackedUnconditionally, 150),
    (PlantedFault::PacksByOwnClock, 13),
    (PlantedFault::SameChangeCountsTwice, 0),
    (PlantedFault::CartWriteAssumed, 7),
    (PlantedFault::NoNoteBeforeListing, 0),
    (PlantedFault::MovedUnconditionally, 16),
    (PlantedFault::TokenUsedWithoutDecision, 10),
    (PlantedFault::SessionUpdatedUnconditionally, 0),
    (PlantedFault::CopiedWithoutVersion, 2),
    (PlantedFault::MarkOfLaterWriteRemoved, 20),
    (PlantedFault::LocalFailsOver, 0),
    (PlantedFault::NothingOwed, 6),
    (PlantedFault::WholeBeforeOwedIsBrought, 49),
    (PlantedFault::DecidedInSurvivingDc, 324),
    (PlantedFault::SessionsNotWrittenAgain, 6),
    (PlantedFault::OutboxInMemoryOnly, 60),
    (PlantedFault::OutboxEntryRemovedBeforeCopy, 79),
    (PlantedFault::CopyAssumed, 10),
    (PlantedFault::TouchNotListed, 4),
    (PlantedFault::TouchedCartListed, 4),
    (PlantedFault::CartListedOnceOnly, 27),
    (PlantedFault::CartOutlivesItsTtl, 4),
    (PlantedFault::Shop(Planted::CartOrderedWithoutClaim), 0),
    (PlantedFault::Shop(Planted::EarlierOrderNotTaken), 15),
    (PlantedFault::Shop(Planted::ClaimTakenFromOpenCheckout), 4),
    (PlantedFault::Shop(Planted::CartKeptAfterOrder), 0),
    (PlantedFault::Shop(Planted::RememberedSessionRefuses), 42),
    (PlantedFault::Shop(Planted::RememberedSessionGoesBack), 98),
    (PlantedFault::Shop(Planted::SessionsRememberedTooLong), 0),
    (PlantedFault::Shop(Planted::DeadlinesByOwnClock), 1),
    (PlantedFault::Shop(Planted::AbortWithoutWinning), 110),
    (PlantedFault::Shop(Planted::AbortBeforeDeadline), 2),
    (PlantedFault::Shop(Planted::OrderWrittenUndecided), 0),
    (PlantedFault::Shop(Planted::HoldsKeptAfterAbort), 0),
    (PlantedFault::Shop(Planted::RequestNotCompared), 0),
    (PlantedFault::Shop(Planted::GuestKeptOpen), 0),
    (PlantedFault::Shop(Planted::NoLastCheckOfMerge), 6),
    (PlantedFault::Shop(Planted::LateGuestNotFollowed), 240),
    (PlantedFault::Shop(Planted::MergeRenamesChanges), 0),
    (PlantedFault::Shop(Planted::SetLeavesEarlier), 119),
    (PlantedFault::Shop(Planted::ClearedAgainLater), 139),
    (PlantedFault::Shop(Planted::CancelledWithoutDecision), 6),
    (PlantedFault::Shop(Planted::PricesReadAfterComparison), 1),
    (PlantedFault::Shop(Planted::ReusedTokenEndsNothing), 13),
    (PlantedFault::Shop(Planted::SoldBeforeCommit), 1),
    (PlantedFault::Shop(Planted::UnknownTakenForDone), 2),
    (PlantedFault::Migration(migration::Planted::UnconfirmedPhaseLeft), 2),
    (PlantedFault::Migration(migration::Planted::UnknownKeepsPermit), 32),
    (PlantedFault::Migration(migration::Planted::MarkRemovedAfterFailedCopy), 122),
    (PlantedFault::Migration(migration::Planted::WritesNotMarked), 2),
    (PlantedFault::Migration(migration::Planted::TargetNotMirrored), 2),
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
