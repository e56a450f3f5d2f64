//! The rules that a world follows: those of production, and wrong ones that differ from them in one thing each.

use mobimir_migrate::phase::{self, Control, Event, Phase, Refusal, Rights, Seen};

use crate::world::{Entity, Row};

#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) next: fn(&Control, Event, &Seen) -> Result<Control, Vec<Refusal>>,
    pub(crate) rights: fn(Phase) -> Rights,
    /// What a store has after it was given a copy.
    pub(crate) put: fn(there: Entity, copy: Entity) -> Entity,
    /// What a delete leaves.
    pub(crate) delete: fn(there: Entity) -> Entity,
    /// What is left of a mark when somebody has copied what was marked with this seal.
    pub(crate) unmark: fn(mark: u8, seal: u8) -> Option<u8>,
    /// What is left of an entity that has no mark any more.
    pub(crate) settle: fn(Entity) -> Entity,
    /// What a store makes of an entity that was read, because it is then shorter.
    pub(crate) pack: fn(Row) -> Row,
    /// An instance takes its lease and then reads the phase, not the other way round.
    pub(crate) is_leased_first: bool,
    /// What the controller looks at, one after the other.
    pub(crate) looks: [Part; 3],
    /// What could not be copied is still written and not copied; a dead letter does not take the mark's place.
    pub(crate) is_mark_kept: bool,
}

/// A part of what the controller sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Instances,
    Backlogs,
    DeadLetters,
}

pub(crate) const PRODUCTION: Rules = Rules {
    next: phase::next,
    rights: Phase::rights,
    put: |there, copy| if copy.version > there.version { copy } else { there },
    delete: |there| Entity { version: there.version + 1, ids: 0 },
    unmark: |mark, seal| (mark != seal).then_some(mark),
    settle: |entity| entity,
    pack: |row| row,
    is_leased_first: true,
    looks: [Part::Instances, Part::Backlogs, Part::DeadLetters],
    is_mark_kept: true,
};

/// The mirror's gate is left out.
pub(crate) const SOURCE_BACKLOG_IGNORED: Rules = Rules {
    next: |control, event, seen| {
        phase::next(control, event, &Seen { source_backlog: Some(0), ..seen.clone() })
    },
    ..PRODUCTION
};

/// The way back is open whether the source has everything or not.
pub(crate) const TARGET_BACKLOG_IGNORED: Rules = Rules {
    next: |control, event, seen| {
        phase::next(control, event, &Seen { target_backlog: Some(0), ..seen.clone() })
    },
    ..PRODUCTION
};

pub(crate) const INSTANCES_IGNORED: Rules = Rules {
    next: |control, event, seen| phase::next(control, event, &Seen { unconfirmed: 0, ..seen.clone() }),
    ..PRODUCTION
};

/// Nobody waits for late writes, or for instances that know of no migration, before the past is copied.
pub(crate) const LATE_WRITES_IGNORED_BEFORE_BACKFILL: Rules = Rules {
    next: |control, event, seen| match control.phase {
        Phase::Source => without_late(Phase::Source, control, event, seen),
        _ => without_late(Phase::DualWrite, control, event, seen),
    },
    ..PRODUCTION
};

/// Nobody waits for late writes to the source before reads move to the target.
pub(crate) const LATE_WRITES_IGNORED_IN_HANDOVER: Rules =
    Rules { next: |control, event, seen| without_late(Phase::Handover, control, event, seen), ..PRODUCTION };

/// Nobody waits for late writes to the target before reads move back.
pub(crate) const LATE_WRITES_IGNORED_IN_SWITCH: Rules =
    Rules { next: |control, event, seen| without_late(Phase::Switch, control, event, seen), ..PRODUCTION };

/// Reads and writes move in one step.
pub(crate) const SWITCH_LEFT_OUT: Rules = Rules {
    next: |control, event, seen| {
        let moved = phase::next(control, event, seen)?;
        let is_switch = control.phase == Phase::Handover && moved.phase == Phase::Switch;
        Ok(if is_switch { Control { phase: Phase::ReadTarget, ..moved } } else { moved })
    },
    ..PRODUCTION
};

pub(crate) const BACKFILL_LEFT_OUT: Rules = Rules {
    next: |control, event, seen| phase::next(&Control { backfilled: true, ..*control }, event, seen),
    ..PRODUCTION
};

pub(crate) const COMPARISON_LEFT_OUT: Rules = Rules {
    next: |control, event, seen| phase::next(&Control { verified: true, ..*control }, event, seen),
    ..PRODUCTION
};

pub(crate) const BACKFILL_AND_COMPARISON_LEFT_OUT: Rules = Rules {
    next: |control, event, seen| {
        phase::next(&Control { backfilled: true, verified: true, ..*control }, event, seen)
    },
    ..PRODUCTION
};

/// Reports are taken for some of the present epoch.
pub(crate) const EPOCHS_IGNORED: Rules = Rules {
    next: |control, event, seen| {
        let epoch = control.epoch;
        let event = match event {
            Event::Backfilled { .. } => Event::Backfilled { epoch },
            Event::Compared { ranges_planned, ranges_compared, differences, .. } => {
                Event::Compared { epoch, ranges_planned, ranges_compared, differences }
            }
            event => event,
        };
        phase::next(control, event, seen)
    },
    ..PRODUCTION
};

/// Whoever puts last is right.
pub(crate) const VERSIONS_IGNORED: Rules = Rules { put: |_, copy| copy, ..PRODUCTION };

/// A delete leaves nothing that a late copy could be compared with.
pub(crate) const TOMBSTONES_FORGOTTEN: Rules = Rules {
    delete: |_| Entity::default(),
    put: |there, copy| if copy == Entity::default() { copy } else { (PRODUCTION.put)(there, copy) },
    ..PRODUCTION
};

/// A tombstone is swept as soon as it has been copied.
pub(crate) const TOMBSTONES_SWEPT: Rules =
    Rules { settle: |entity| if entity.ids == 0 { Entity::default() } else { entity }, ..PRODUCTION };

/// A mark is removed although somebody has written since.
pub(crate) const LATER_MARKS_REMOVED: Rules = Rules { unmark: |_, _| None, ..PRODUCTION };

/// Whoever reads may leave a newer version, although it says the same.
pub(crate) const PACKS_VERSIONED: Rules =
    Rules { pack: |Row { entity, mark }| Row { entity: packed(entity), mark }, ..PRODUCTION };

/// And a mark, so that it is copied.
pub(crate) const PACKS_MARKED: Rules = Rules {
    pack: |Row { entity, .. }| Row { entity: packed(entity), mark: Some(packed(entity).version) },
    ..PRODUCTION
};

fn packed(entity: Entity) -> Entity {
    Entity { version: entity.version + 1, ..entity }
}

pub(crate) const PHASE_READ_BEFORE_LEASE: Rules = Rules { is_leased_first: false, ..PRODUCTION };

pub(crate) const BACKLOGS_COUNTED_FIRST: Rules =
    Rules { looks: [Part::Backlogs, Part::DeadLetters, Part::Instances], ..PRODUCTION };

pub(crate) const MARKS_REPLACED: Rules = Rules { is_mark_kept: false, ..PRODUCTION };

pub(crate) const MARKS_REPLACED_AND_COUNTED_LAST: Rules =
    Rules { looks: [Part::Instances, Part::DeadLetters, Part::Backlogs], ..MARKS_REPLACED };

pub(crate) const MARKS_REPLACED_AND_IGNORED_IN_HANDOVER: Rules = Rules {
    next: |control, event, seen| without_dead_letters(Phase::Handover, control, event, seen),
    ..MARKS_REPLACED
};

pub(crate) const MARKS_REPLACED_AND_IGNORED_IN_SWITCH: Rules = Rules {
    next: |control, event, seen| without_dead_letters(Phase::Switch, control, event, seen),
    ..MARKS_REPLACED
};

fn without_dead_letters(
    at: Phase,
    control: &Control,
    event: Event,
    seen: &Seen,
) -> Result<Control, Vec<Refusal>> {
    let dead_letters = seen.dead_letters.filter(|_| control.phase != at).or(Some(0));
    phase::next(control, event, &Seen { dead_letters, ..seen.clone() })
}

fn without_late(at: Phase, control: &Control, event: Event, seen: &Seen) -> Result<Control, Vec<Refusal>> {
    let writes_may_be_late = seen.writes_may_be_late && control.phase != at;
    phase::next(control, event, &Seen { writes_may_be_late, ..seen.clone() })
}
