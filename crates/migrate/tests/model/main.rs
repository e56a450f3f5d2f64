//! Every order in which instances, writes, copies, crashes and the controller can come, within bounds, under the same
//! [`phase::next`](mobimir_migrate::phase::next) and [`Phase::rights`](mobimir_migrate::phase::Phase::rights) that production
//! calls.
//!
//! That the promises hold would mean little if they could not be broken. So every gate is taken away once, and then the checker
//! has to find out.

#![expect(clippy::disallowed_methods, reason = "says how long it took")]

mod actions;
mod promises;
mod rules;
mod world;

use std::{collections::BTreeSet, time::Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use actions::Action;
use promises::{MIG_1, MIG_2, MIG_3};
use rules::{PRODUCTION, Rules};
use world::{Bounds, World};

#[derive(Clone, Copy)]
struct Migration {
    rules: Rules,
    bounds: Bounds,
}

impl Model for Migration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::begin(&self.bounds)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions::list(world, &self.bounds, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        actions::apply(world, action, &self.rules, &self.bounds)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::list(self)
    }
}

const THREADS: usize = 2;

/// One entity, two writes of which each may be a delete, and two copies that overtake each other.
const PLAIN: Bounds = Bounds {
    keys: 1,
    writes: 2,
    faults: 0,
    copies: 2,
    late_looks: false,
    late_reports: false,
    lost_rows: 0,
    dead_letters: 0,
    packs: 0,
    is_one_unaware: false,
};

const SINGLE_COPY: Bounds = Bounds { copies: 1, ..PLAIN };

/// One instance crashes, is cut off, or gives a write up.
const FAULTY: Bounds = Bounds { faults: 1, ..SINGLE_COPY };

/// What the controller sees is older than what it decides.
const LATE_LOOKS: Bounds = Bounds { late_looks: true, ..FAULTY };

/// A backfill or a comparison is reported when the migration has been down and up again.
const LATE_REPORTS: Bounds = Bounds { late_reports: true, ..SINGLE_COPY };

/// The backfill leaves out a row that it believes to have put.
const LOST_ROW: Bounds = Bounds { lost_rows: 1, ..SINGLE_COPY };

/// A copy fails for good.
const DEAD_LETTER: Bounds = Bounds { dead_letters: 1, ..SINGLE_COPY };

/// A store packs what is read.
const PACKS: Bounds = Bounds { packs: 1, ..SINGLE_COPY };

/// One instance has not heard of the migration yet.
const UNAWARE: Bounds = Bounds { is_one_unaware: true, ..SINGLE_COPY };

/// Two entities, since gates count over all of them.
const TWO_KEYS: Bounds = Bounds { keys: 2, ..SINGLE_COPY };

/// Wrong rules are found out with less than what right ones are proven for, and sooner.
const fn one_write(bounds: Bounds) -> Bounds {
    Bounds { writes: 1, ..bounds }
}

/// The promises must hold in every world, and every example must be met.
fn prove(name: &str, rules: Rules, bounds: Bounds) {
    let began = Instant::now();
    let checker = Migration { rules, bounds }
        .checker()
        .threads(THREADS)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    eprintln!("{name}: {} worlds, {:.1} s", checker.unique_state_count(), began.elapsed().as_secs_f64());
    for promise in [MIG_1, MIG_2, MIG_3] {
        if let Some(path) = checker.discovery(promise) {
            panic!("{promise} is broken: {}", tell(&path.into_actions()));
        }
    }
    checker.assert_properties();
}

/// Each of the promises must be found broken. One thread, so that the shortest way to it is told.
fn refute<const N: usize>(name: &str, rules: Rules, bounds: Bounds, promises: [&'static str; N]) {
    let began = Instant::now();
    let checker = Migration { rules, bounds }
        .checker()
        .finish_when(HasDiscoveries::AllOf(BTreeSet::from(promises)))
        .spawn_bfs()
        .join();
    let took_s = began.elapsed().as_secs_f64();
    eprintln!("{name}: {} worlds, {took_s:.1} s", checker.unique_state_count());
    for promise in promises {
        let path = checker.assert_any_discovery(promise);
        eprintln!("{name}: {promise} is broken: {}", tell(&path.into_actions()));
    }
}

fn tell(actions: &[Action]) -> String {
    actions.iter().map(|action| format!("\n  {action:?}")).collect()
}

#[test]
fn two_writes_and_overtaking_copies_break_nothing() {
    prove("plain", PRODUCTION, PLAIN);
}

#[test]
fn a_fault_breaks_nothing() {
    prove("faulty", PRODUCTION, FAULTY);
}

#[test]
fn late_looks_break_nothing() {
    prove("late looks", PRODUCTION, LATE_LOOKS);
}

#[test]
fn late_reports_break_nothing() {
    prove("late reports", PRODUCTION, LATE_REPORTS);
}

#[test]
fn a_lost_row_breaks_nothing() {
    prove("lost row", PRODUCTION, LOST_ROW);
}

#[test]
fn a_dead_letter_breaks_nothing() {
    prove("dead letter", PRODUCTION, Bounds { late_looks: true, ..one_write(DEAD_LETTER) });
}

#[test]
fn an_instance_that_knows_of_no_migration_breaks_nothing() {
    prove("unaware", PRODUCTION, UNAWARE);
}

#[test]
fn two_entities_break_nothing() {
    prove("two keys", PRODUCTION, TWO_KEYS);
}

/// More of everything, for minutes; `make soak` runs it.
#[test]
#[ignore = "takes minutes"]
fn more_of_everything_breaks_nothing() {
    let full = Bounds { faults: 1, copies: 2, ..PLAIN };
    prove("two copies beside a fault", PRODUCTION, full);
    prove("three writes", PRODUCTION, Bounds { writes: 3, ..PLAIN });
    prove("two faults", PRODUCTION, Bounds { faults: 2, ..FAULTY });
    prove("two copies beside two faults", PRODUCTION, Bounds { faults: 2, ..full });
    prove("three writes and a fault", PRODUCTION, Bounds { writes: 3, ..FAULTY });
    prove("three writes of two keys", PRODUCTION, Bounds { writes: 3, ..TWO_KEYS });
    prove("two keys and a fault", PRODUCTION, Bounds { faults: 1, ..TWO_KEYS });
    prove("late looks at copies", PRODUCTION, Bounds { late_looks: true, ..full });
    prove("late looks at dead letters", PRODUCTION, Bounds { late_looks: true, ..DEAD_LETTER });
    prove("late reports and a fault", PRODUCTION, Bounds { faults: 1, ..LATE_REPORTS });
    prove("a lost row and a fault", PRODUCTION, Bounds { faults: 1, ..LOST_ROW });
    prove("unaware beside a fault", PRODUCTION, Bounds { is_one_unaware: true, ..full });
}

#[test]
fn reads_must_not_move_before_the_source_s_marks_are_copied() {
    refute("source backlog ignored", rules::SOURCE_BACKLOG_IGNORED, one_write(PLAIN), [MIG_1, MIG_2]);
}

#[test]
fn reads_must_not_move_back_before_the_target_s_marks_are_copied() {
    refute("target backlog ignored", rules::TARGET_BACKLOG_IGNORED, one_write(PLAIN), [MIG_1]);
}

#[test]
fn no_step_may_be_taken_before_all_instances_confirm() {
    refute("instances ignored", rules::INSTANCES_IGNORED, one_write(SINGLE_COPY), [MIG_1, MIG_3]);
}

#[test]
fn a_backfill_must_not_begin_before_unmarked_writes_have_arrived() {
    let rules = rules::LATE_WRITES_IGNORED_BEFORE_BACKFILL;
    refute("late writes ignored before backfill", rules, one_write(FAULTY), [MIG_1]);
    refute("an unaware instance ignored", rules, one_write(UNAWARE), [MIG_1]);
}

#[test]
fn reads_must_not_move_before_late_writes_have_arrived() {
    refute(
        "late writes ignored in handover",
        rules::LATE_WRITES_IGNORED_IN_HANDOVER,
        one_write(FAULTY),
        [MIG_1, MIG_3],
    );
}

#[test]
fn reads_must_not_move_back_before_late_writes_have_arrived() {
    refute(
        "late writes ignored in switch",
        rules::LATE_WRITES_IGNORED_IN_SWITCH,
        one_write(FAULTY),
        [MIG_1, MIG_3],
    );
}

#[test]
fn reads_and_writes_must_not_move_in_one_step() {
    refute("switch left out", rules::SWITCH_LEFT_OUT, one_write(PLAIN), [MIG_1]);
}

/// The comparison finds what the backfill left out, and the backfill leaves out nothing as a rule: each is the other's second
/// lock, and both have to be open for anything to be lost.
#[test]
fn the_past_must_be_copied_and_compared() {
    prove("backfill left out", rules::BACKFILL_LEFT_OUT, LOST_ROW);
    let none_lost = Bounds { lost_rows: 0, ..LOST_ROW };
    prove("comparison left out", rules::COMPARISON_LEFT_OUT, none_lost);
    refute("comparison left out", rules::COMPARISON_LEFT_OUT, LOST_ROW, [MIG_1, MIG_2]);
    let both = rules::BACKFILL_AND_COMPARISON_LEFT_OUT;
    refute("backfill and comparison left out", both, none_lost, [MIG_1, MIG_2]);
}

#[test]
fn a_report_must_belong_to_the_present_epoch() {
    refute("epochs ignored", rules::EPOCHS_IGNORED, LATE_REPORTS, [MIG_2]);
}

/// A dead letter that takes the place of its mark is safe only if both gates ask for it and everything is counted at one
/// moment. Nobody can do that, so the mark stays.
#[test]
fn a_dead_letter_must_keep_its_mark() {
    prove("marks replaced", rules::MARKS_REPLACED, one_write(DEAD_LETTER));
    refute(
        "ignored in handover",
        rules::MARKS_REPLACED_AND_IGNORED_IN_HANDOVER,
        one_write(DEAD_LETTER),
        [MIG_1, MIG_2],
    );
    refute(
        "ignored in switch",
        rules::MARKS_REPLACED_AND_IGNORED_IN_SWITCH,
        one_write(DEAD_LETTER),
        [MIG_1, MIG_2],
    );
    let counted_apart = Bounds { late_looks: true, ..one_write(DEAD_LETTER) };
    refute("set aside while counted", rules::MARKS_REPLACED_AND_COUNTED_LAST, counted_apart, [MIG_2]);
    refute("retried while counted", rules::MARKS_REPLACED, counted_apart, [MIG_2]);
}

#[test]
fn a_late_copy_must_not_beat_a_newer_write() {
    refute("versions ignored", rules::VERSIONS_IGNORED, one_write(PLAIN), [MIG_1]);
}

#[test]
fn a_delete_must_leave_a_tombstone() {
    refute("tombstones forgotten", rules::TOMBSTONES_FORGOTTEN, one_write(PLAIN), [MIG_1]);
}

#[test]
fn a_tombstone_must_stay_while_copies_may_be_late() {
    refute("tombstones swept", rules::TOMBSTONES_SWEPT, one_write(PLAIN), [MIG_1]);
}

/// A version that is raised where nothing is decided may be that of a write which the other store takes later: the copy of
/// that write is then refused on the way back, and a mark does not help.
#[test]
fn reading_must_not_raise_a_version() {
    refute("packs raise the version", rules::PACKS_VERSIONED, one_write(PACKS), [MIG_1]);
    refute("packs leave a mark", rules::PACKS_MARKED, one_write(PACKS), [MIG_1]);
}

#[test]
fn a_mark_must_stay_if_somebody_has_written_since() {
    refute("later marks removed", rules::LATER_MARKS_REMOVED, PLAIN, [MIG_1]);
}

#[test]
fn a_lease_must_be_taken_before_the_phase_is_read() {
    refute("phase read before lease", rules::PHASE_READ_BEFORE_LEASE, one_write(FAULTY), [MIG_3]);
}

#[test]
fn the_backlog_must_be_counted_after_the_instances_are_looked_at() {
    refute("backlogs counted first", rules::BACKLOGS_COUNTED_FIRST, one_write(LATE_LOOKS), [MIG_1]);
}
