//! The phases of a migration, what an instance may do in each, and what has to be true before the next one begins.
//!
//! Everything here is a pure function. Production calls [`next`] and [`Phase::rights`]; the model checker in
//! `tests/model` calls the same two over every order in which instances, copies and crashes can come.
//!
//! The phases are a ladder, and a migration goes up or down one rung at a time:
//!
//! | phase | reads | writes | the other store |
//! |---|---|---|---|
//! | `source` | source | source | knows nothing |
//! | `dual-write` | source | source | is given every write |
//! | `backfill` | source | source | and the past |
//! | `verify` | source | source | is compared |
//! | `handover` | source | wait | catches up |
//! | `switch` | target | wait | both have the same |
//! | `read-target` | target | target | the source is given every write, so that the way back stays open |
//! | `target` | target | target | knows nothing any more: there is no way back |
//!
//! No two neighbours let two stores decide (MIG-3): between `verify` and `read-target` lie two rungs on which nobody writes.
//! `handover` and `switch` are two because an instance that still reads the source must not stand beside one that already
//! writes to the target.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Source,
    DualWrite,
    Backfill,
    Verify,
    Handover,
    Switch,
    ReadTarget,
    Target,
}

/// Which of the two stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    Source,
    Target,
}

/// What an instance may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    pub reads: Which,
    pub writes: Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    To {
        store: Which,
        /// Every write leaves a mark, and is copied to the other store.
        mirrored: bool,
    },
    /// Until the phase is over, but not for ever.
    Wait,
}

/// What all instances follow. It stands in a store and is replaced by comparison only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Control {
    pub phase: Phase,
    /// Raised with every change of the phase, so that a phase that comes again is not taken for the one before.
    pub epoch: u64,
    /// Everything that was there when writes began to be mirrored has been copied.
    pub backfilled: bool,
    /// After that, everything was compared and nothing differed.
    pub verified: bool,
}

/// What is asked of a migration, or reported to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Advance,
    Rollback,
    /// A backfill that began in this epoch has reached the end of every range.
    Backfilled {
        epoch: u64,
    },
    /// A comparison that began in this epoch has come to its end.
    Compared {
        epoch: u64,
        ranges_planned: u64,
        ranges_compared: u64,
        differences: u64,
    },
}

/// What has been seen of the instances and the stores since the phase began.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Instances that have neither confirmed the phase nor been gone for long enough; see [`crate::lease`].
    pub unconfirmed: u64,
    /// Whether a write that began before the last instance confirmed can still arrive; before a handover also whether
    /// somebody may have died.
    pub writes_may_be_late: bool,
    /// Entities of each store that were written and not copied; `None` if that is not known.
    pub source_backlog: Option<u64>,
    pub target_backlog: Option<u64>,
    /// Whether one of those of the deciding store has waited for longer than the policy allows.
    pub mirror_is_late: bool,
    /// Entities that could not be copied, and wait for somebody to look.
    pub dead_letters: Option<u64>,
    /// Reads of shoppers that the target answered differently, since the comparison began.
    pub shadow_differences: Option<u64>,
}

/// Why a migration stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Refusal {
    /// There is nothing beyond.
    AtTheEnd,
    /// Nothing is mirrored to the source any more.
    NoWayBack,
    Unconfirmed {
        instances: u64,
    },
    WritesMayBeLate,
    NotBackfilled,
    DeadLetters {
        entities: Option<u64>,
    },
    NotVerified,
    ShadowDiffers {
        reads: Option<u64>,
    },
    NotMirrored {
        from: Which,
        entities: Option<u64>,
    },
    /// Something has waited to be copied for too long: somebody has to look why.
    MirrorIsLate,
    /// What is reported belongs to an earlier time.
    Outdated,
}

/// More than this and a handover, in which everybody waits for the rest to be copied, would take long.
pub const HANDOVER_BACKLOG_MAX: u64 = 1_000;

impl Phase {
    pub const ALL: [Phase; 8] = [
        Self::Source,
        Self::DualWrite,
        Self::Backfill,
        Self::Verify,
        Self::Handover,
        Self::Switch,
        Self::ReadTarget,
        Self::Target,
    ];

    pub const fn rights(self) -> Rights {
        use Which::{Source, Target};
        let (reads, writes) = match self {
            Self::Source => (Source, Writes::To { store: Source, mirrored: false }),
            Self::DualWrite | Self::Backfill | Self::Verify => {
                (Source, Writes::To { store: Source, mirrored: true })
            }
            Self::Handover => (Source, Writes::Wait),
            Self::Switch => (Target, Writes::Wait),
            Self::ReadTarget => (Target, Writes::To { store: Target, mirrored: true }),
            Self::Target => (Target, Writes::To { store: Target, mirrored: false }),
        };
        Rights { reads, writes }
    }

    /// The stores in which there may be something that is not copied yet.
    pub const fn marked(self) -> &'static [Which] {
        match self {
            Self::Source | Self::DualWrite | Self::Backfill | Self::Verify | Self::Handover => {
                &[Which::Source]
            }
            Self::Switch => &[Which::Source, Which::Target],
            Self::ReadTarget | Self::Target => &[Which::Target],
        }
    }

    /// The stores whose backlog is asked for before that. To count one takes time, for which in a handover everybody waits.
    pub const fn counted(self, event: Event) -> &'static [Which] {
        match (self, event) {
            (Self::Verify, Event::Advance) | (Self::ReadTarget, Event::Rollback) => {
                &[Which::Source, Which::Target]
            }
            (Self::Handover, Event::Advance) => &[Which::Source],
            (Self::ReadTarget, Event::Advance) | (Self::Switch, Event::Rollback) => &[Which::Target],
            _ => &[],
        }
    }

    pub fn above(self) -> Option<Phase> {
        Self::ALL.into_iter().find(|phase| *phase > self)
    }

    pub fn below(self) -> Option<Phase> {
        Self::ALL.into_iter().rev().find(|phase| *phase < self)
    }

    pub fn is_within_a_step_of(self, other: Phase) -> bool {
        (self as usize).abs_diff(other as usize) <= 1
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::DualWrite => "dual-write",
            Self::Backfill => "backfill",
            Self::Verify => "verify",
            Self::Handover => "handover",
            Self::Switch => "switch",
            Self::ReadTarget => "read-target",
            Self::Target => "target",
        }
    }
}

impl Control {
    /// Of a migration that has just been planned.
    pub const FIRST_EPOCH: u64 = 1;
    /// As long as there is no migration.
    pub const NONE: Self = Self { phase: Phase::Source, epoch: 0, backfilled: false, verified: false };
}

impl Default for Control {
    fn default() -> Self {
        Self { phase: Phase::Source, epoch: Self::FIRST_EPOCH, backfilled: false, verified: false }
    }
}

/// What becomes of a migration, or every reason why it stays as it is.
pub fn next(control: &Control, event: Event, seen: &Seen) -> Result<Control, Vec<Refusal>> {
    match event {
        Event::Advance => {
            let to = control.phase.above().ok_or_else(|| vec![Refusal::AtTheEnd])?;
            step(control, to, gate_up(control, seen), seen)
        }
        Event::Rollback => {
            let to = match control.phase {
                Phase::Source => return Err(vec![Refusal::AtTheEnd]),
                Phase::Target => return Err(vec![Refusal::NoWayBack]),
                phase => phase.below().ok_or_else(|| vec![Refusal::AtTheEnd])?,
            };
            step(control, to, gate_down(control, seen), seen)
        }
        Event::Backfilled { epoch } => {
            let is_current = control.phase == Phase::Backfill && epoch == control.epoch;
            // While an instance may still write without a mark, there may be something behind the scan.
            let mut refusals = confirmed(seen);
            refusals.extend((!is_current).then_some(Refusal::Outdated));
            accepted(refusals, Control { backfilled: true, ..*control })
        }
        Event::Compared { epoch, ranges_planned, ranges_compared, differences } => {
            let is_current = control.phase == Phase::Verify && epoch == control.epoch;
            let refusals = if is_current { Vec::new() } else { vec![Refusal::Outdated] };
            let is_green = ranges_planned > 0 && ranges_planned == ranges_compared && differences == 0;
            accepted(refusals, Control { verified: control.backfilled && is_green, ..*control })
        }
    }
}

/// To a neighbour. An instance may be one phase behind, so it must not be further behind now.
fn step(control: &Control, to: Phase, gate: Vec<Refusal>, seen: &Seen) -> Result<Control, Vec<Refusal>> {
    let mut refusals = confirmed(seen);
    refusals.extend(gate);
    let epoch = control.epoch + 1;
    let moved = match to {
        // Writes are no longer mirrored, so whatever was known of the target is not known any more.
        Phase::Source | Phase::DualWrite => Control { phase: to, epoch, backfilled: false, verified: false },
        Phase::Backfill | Phase::Verify => Control { phase: to, epoch, verified: false, ..*control },
        _ => Control { phase: to, epoch, ..*control },
    };
    accepted(refusals, moved)
}

fn gate_up(control: &Control, seen: &Seen) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    match control.phase {
        Phase::Switch | Phase::Target => {}
        // An instance may not have heard of the migration yet; by then it has, or has stopped serving.
        Phase::Source => refusals.extend(late(seen)),
        // Somebody may have written without a mark, and a scan must not pass before that has arrived.
        Phase::DualWrite => refusals.extend(late(seen)),
        Phase::Backfill => {
            refusals.extend((!control.backfilled).then_some(Refusal::NotBackfilled));
            refusals.extend(dead_letters(seen));
        }
        Phase::Verify => {
            refusals.extend((!control.verified).then_some(Refusal::NotVerified));
            refusals.extend(dead_letters(seen));
            refusals.extend(shadow_differences(seen));
            refusals.extend(backlog(Which::Source, seen.source_backlog, HANDOVER_BACKLOG_MAX));
            refusals.extend(mirror_is_late(seen));
            refusals.extend(in_vain(Which::Target, seen.target_backlog, seen));
        }
        Phase::Handover => {
            refusals.extend((!control.verified).then_some(Refusal::NotVerified));
            refusals.extend(late(seen));
            refusals.extend(dead_letters(seen));
            refusals.extend(backlog(Which::Source, seen.source_backlog, 0));
        }
        // The source is given up with what it has. It is nobody's any more, so it need not be complete; but a long list says that
        // something is wrong, and this is the last moment to look.
        Phase::ReadTarget => {
            refusals.extend(backlog(Which::Target, seen.target_backlog, HANDOVER_BACKLOG_MAX));
            refusals.extend(mirror_is_late(seen));
        }
    }
    refusals
}

fn gate_down(control: &Control, seen: &Seen) -> Vec<Refusal> {
    match control.phase {
        Phase::ReadTarget => {
            let missing = backlog(Which::Target, seen.target_backlog, HANDOVER_BACKLOG_MAX);
            missing.into_iter().chain(in_vain(Which::Source, seen.source_backlog, seen)).collect()
        }
        // Reads go back to the source, which must have all that was written to the target.
        Phase::Switch => {
            let missing = backlog(Which::Target, seen.target_backlog, 0);
            late(seen).into_iter().chain(dead_letters(seen)).chain(missing).collect()
        }
        _ => Vec::new(),
    }
}

fn confirmed(seen: &Seen) -> Vec<Refusal> {
    match seen.unconfirmed {
        0 => Vec::new(),
        instances => vec![Refusal::Unconfirmed { instances }],
    }
}

fn late(seen: &Seen) -> Option<Refusal> {
    seen.writes_may_be_late.then_some(Refusal::WritesMayBeLate)
}

/// Why everybody would wait for a handover that cannot be: somebody died a moment ago, or the store that is to take over does
/// not answer.
fn in_vain(to: Which, to_backlog: Option<u64>, seen: &Seen) -> Vec<Refusal> {
    late(seen).into_iter().chain(backlog(to, to_backlog, u64::MAX)).collect()
}

fn dead_letters(seen: &Seen) -> Option<Refusal> {
    (seen.dead_letters != Some(0)).then_some(Refusal::DeadLetters { entities: seen.dead_letters })
}

fn shadow_differences(seen: &Seen) -> Option<Refusal> {
    (seen.shadow_differences != Some(0)).then_some(Refusal::ShadowDiffers { reads: seen.shadow_differences })
}

/// Asked on the way up only: whoever wants to go back does not wait for it.
fn mirror_is_late(seen: &Seen) -> Option<Refusal> {
    seen.mirror_is_late.then_some(Refusal::MirrorIsLate)
}

fn backlog(from: Which, entities: Option<u64>, max: u64) -> Option<Refusal> {
    let is_small = entities.is_some_and(|entities| entities <= max);
    (!is_small).then_some(Refusal::NotMirrored { from, entities })
}

fn accepted(refusals: Vec<Refusal>, control: Control) -> Result<Control, Vec<Refusal>> {
    if refusals.is_empty() { Ok(control) } else { Err(refusals) }
}

impl Refusal {
    /// Whether it goes away by itself.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unconfirmed { .. } | Self::WritesMayBeLate)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known =
            |entities: &Option<u64>| entities.map_or("an unknown number of".to_owned(), |n| n.to_string());
        match self {
            Self::AtTheEnd => f.write_str("there is no phase beyond this one"),
            Self::NoWayBack => f.write_str(
                "the source has not been given what was written since; migrate the other way instead",
            ),
            Self::Unconfirmed { instances } => {
                write!(
                    f,
                    "{instances} instances have not confirmed the phase yet, or were heard of a moment ago"
                )
            }
            Self::WritesMayBeLate => f.write_str(
                "a write that was under way may still arrive, or somebody was not heard of; wait a little",
            ),
            Self::NotBackfilled => f.write_str("the backfill has not come to its end"),
            Self::DeadLetters { entities } => {
                write!(
                    f,
                    "{} entities could not be copied; look at the dead letters and retry them",
                    known(entities)
                )
            }
            Self::NotVerified => f.write_str("no comparison has found everything equal since the backfill"),
            Self::ShadowDiffers { reads } => {
                write!(
                    f,
                    "{} reads of shoppers were answered differently by the target; look at them, then compare anew",
                    known(reads)
                )
            }
            Self::NotMirrored { from, entities } => {
                write!(f, "{} entities of the {from} are written and not copied yet", known(entities))
            }
            Self::MirrorIsLate => f.write_str(
                "something was written and has not been copied for longer than alerts.migration.mirror_age; see the log of \
                 the instances",
            ),
            Self::Outdated => f.write_str("the report belongs to an earlier phase"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_well() -> Seen {
        Seen {
            unconfirmed: 0,
            writes_may_be_late: false,
            source_backlog: Some(0),
            target_backlog: Some(0),
            mirror_is_late: false,
            dead_letters: Some(0),
            shadow_differences: Some(0),
        }
    }

    fn at(phase: Phase) -> Control {
        Control { phase, epoch: 7, backfilled: true, verified: true }
    }

    #[test]
    fn a_migration_climbs_the_ladder_when_all_is_well() {
        let mut control = Control::default();
        let mut met = vec![control.phase];
        loop {
            let epoch = control.epoch;
            match control.phase {
                Phase::Backfill => {
                    control = next(&control, Event::Backfilled { epoch }, &all_well()).unwrap();
                }
                Phase::Verify => {
                    let compared =
                        Event::Compared { epoch, ranges_planned: 4, ranges_compared: 4, differences: 0 };
                    control = next(&control, compared, &all_well()).unwrap();
                }
                _ => {}
            }
            match next(&control, Event::Advance, &all_well()) {
                Ok(above) => control = above,
                Err(refusals) => {
                    assert_eq!(refusals, [Refusal::AtTheEnd]);
                    break;
                }
            }
            met.push(control.phase);
        }
        assert_eq!(met, Phase::ALL);
        assert_eq!(control.epoch, Control::FIRST_EPOCH + 7);
    }

    #[test]
    fn nobody_moves_while_an_instance_is_behind() {
        let seen = Seen { unconfirmed: 1, ..all_well() };
        for phase in Phase::ALL {
            for event in [Event::Advance, Event::Rollback] {
                assert!(next(&at(phase), event, &seen).is_err(), "{phase} {event:?}");
            }
        }
    }

    #[test]
    fn neighbours_never_let_two_stores_decide() {
        for (lower, upper) in Phase::ALL.into_iter().zip(Phase::ALL.into_iter().skip(1)) {
            if let (Writes::To { store: one, .. }, Writes::To { store: other, .. }) =
                (lower.rights().writes, upper.rights().writes)
            {
                assert_eq!(one, other, "{lower} beside {upper}");
            }
        }
    }

    #[test]
    fn every_gate_names_what_is_missing() {
        let nothing_known = Seen {
            unconfirmed: 2,
            writes_may_be_late: true,
            source_backlog: None,
            target_backlog: None,
            mirror_is_late: true,
            dead_letters: None,
            shadow_differences: None,
        };
        let unproven = |phase| Control { phase, epoch: 7, backfilled: false, verified: false };
        let reasons = |phase, event| -> Vec<String> {
            let refusals = next(&unproven(phase), event, &nothing_known).unwrap_err();
            refusals.iter().map(Refusal::to_string).collect()
        };
        assert_eq!(reasons(Phase::Verify, Event::Advance).len(), 8);
        assert_eq!(reasons(Phase::Handover, Event::Advance).len(), 5);
        assert_eq!(reasons(Phase::Switch, Event::Rollback).len(), 4);
        assert_eq!(reasons(Phase::ReadTarget, Event::Rollback).len(), 4);
        assert_eq!(reasons(Phase::Target, Event::Rollback).len(), 1);
    }

    /// It may have become one after the last gate that asked, and is then in no backlog.
    #[test]
    fn reads_do_not_move_past_a_dead_letter() {
        let seen = Seen { dead_letters: Some(1), ..all_well() };
        for (phase, event) in [(Phase::Handover, Event::Advance), (Phase::Switch, Event::Rollback)] {
            let refusals = next(&at(phase), event, &seen).unwrap_err();
            assert_eq!(refusals, [Refusal::DeadLetters { entities: Some(1) }], "{phase} {event:?}");
        }
        assert!(next(&at(Phase::Handover), Event::Rollback, &seen).is_ok());
        assert!(next(&at(Phase::Switch), Event::Advance, &seen).is_ok());
    }

    #[test]
    fn no_gate_asks_for_what_is_not_counted() {
        for phase in Phase::ALL {
            for event in [Event::Advance, Event::Rollback] {
                let known = |which| phase.counted(event).contains(&which).then_some(0);
                let (source_backlog, target_backlog) = (known(Which::Source), known(Which::Target));
                let seen = Seen { source_backlog, target_backlog, ..all_well() };
                assert_eq!(
                    next(&at(phase), event, &seen),
                    next(&at(phase), event, &all_well()),
                    "{phase} {event:?}"
                );
            }
        }
    }

    #[test]
    fn nobody_waits_for_a_handover_that_cannot_be() {
        let dead = Seen { writes_may_be_late: true, ..all_well() };
        let no_target = Seen { target_backlog: None, ..all_well() };
        let no_source = Seen { source_backlog: None, ..all_well() };
        for (phase, event, seen) in [
            (Phase::Verify, Event::Advance, &dead),
            (Phase::Verify, Event::Advance, &no_target),
            (Phase::ReadTarget, Event::Rollback, &dead),
            (Phase::ReadTarget, Event::Rollback, &no_source),
            (Phase::ReadTarget, Event::Rollback, &no_target),
        ] {
            assert_eq!(next(&at(phase), event, seen).unwrap_err().len(), 1, "{phase} {seen:?}");
            // Out of one that has begun, the way is always open.
            assert!(next(&at(Phase::Handover), Event::Rollback, seen).is_ok());
            assert!(next(&at(Phase::Switch), Event::Advance, seen).is_ok());
        }
    }

    #[test]
    fn what_was_proven_is_forgotten_on_the_way_down() {
        let verify = next(&at(Phase::Handover), Event::Rollback, &all_well()).unwrap();
        assert!(verify.backfilled && !verify.verified);
        let backfill = next(&verify, Event::Rollback, &all_well()).unwrap();
        let dual_write = next(&backfill, Event::Rollback, &all_well()).unwrap();
        assert!(!dual_write.backfilled);
    }

    #[test]
    fn a_comparison_counts_only_if_it_is_whole_and_of_now() {
        let compared = |epoch, ranges_planned, ranges_compared, differences| Event::Compared {
            epoch,
            ranges_planned,
            ranges_compared,
            differences,
        };
        let control = Control { verified: false, ..at(Phase::Verify) };
        let verified = |event| next(&control, event, &all_well()).map(|control| control.verified);
        assert_eq!(verified(compared(7, 4, 4, 0)), Ok(true));
        assert_eq!(verified(compared(7, 4, 3, 0)), Ok(false));
        assert_eq!(verified(compared(7, 0, 0, 0)), Ok(false));
        assert_eq!(verified(compared(7, 4, 4, 1)), Ok(false));
        assert_eq!(verified(compared(6, 4, 4, 0)), Err(vec![Refusal::Outdated]));
    }
}
