//! Everything that a migration's safety depends on, at one moment, as small as it can be told.
//!
//! Three things are left out on purpose, each so that more is covered rather than less:
//! - Epochs are told by how far behind the present one they are. So a world that comes again is recognised, and a migration may
//!   go up and down as often as it likes.
//! - A write counts as acknowledged the moment it lands. Nobody can acknowledge it earlier, somebody may already have read it,
//!   and a promise kept for all that landed is kept for those that were answered, too.
//! - An instance has confirmed a phase as soon as it may. To confirm later is the same as to be looked at later.

use std::array;

use mobimir_migrate::phase::{Control, Event, Phase, Rights, Seen, Which, Writes};

use crate::rules::Part;

pub(crate) const KEYS_MAX: usize = 2;
pub(crate) const INSTANCES: usize = 2;
pub(crate) const COPIES_MAX: usize = 2;
pub(crate) const FAULTS_MAX: usize = 2;
pub(crate) const STORES: [Which; 2] = [Which::Source, Which::Target];

/// The epoch that is always the present one; see the head of this file.
pub(crate) const EPOCH: u64 = 2;
/// Further behind than this makes no difference.
const BEHIND_MAX: u8 = 2;

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) keys: usize,
    pub(crate) writes: u8,
    /// Crashes, instances cut off from the control store, and writes given up, together.
    pub(crate) faults: u8,
    /// Copies under way at once.
    pub(crate) copies: usize,
    /// Whether the controller looks at one thing after the other, and decides later still.
    pub(crate) late_looks: bool,
    /// Whether a finished backfill or comparison may be reported when its phase is over.
    pub(crate) late_reports: bool,
    /// Rows that the backfill believes to have put.
    pub(crate) lost_rows: u8,
    /// Copies that fail for good and wait for somebody to look.
    pub(crate) dead_letters: u8,
    /// Entities that a store packs when they are read.
    pub(crate) packs: u8,
    /// Whether one instance has not heard of the migration when it begins.
    pub(crate) is_one_unaware: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) control: Control,
    /// By key, what a reader has to find: the ids of all writes since the last delete.
    pub(crate) truth: [u8; KEYS_MAX],
    pub(crate) stores: [[Row; KEYS_MAX]; 2],
    pub(crate) instances: [Instance; INSTANCES],
    /// Writes that nobody waits for any more and that may still land.
    pub(crate) orphans: [Option<Flight>; FAULTS_MAX],
    pub(crate) copies: [Option<Copied>; COPIES_MAX],
    pub(crate) backfill: Job,
    pub(crate) comparison: Job,
    /// What the comparison has read of one store and not yet of the other.
    pub(crate) comparing: Option<HalfCompared>,
    pub(crate) look: Option<Look>,
    pub(crate) begun: u8,
    pub(crate) landed: u8,
    pub(crate) faults: u8,
    pub(crate) lost_rows: u8,
    pub(crate) packs: u8,
    /// By store and key.
    pub(crate) dead_letters: [[bool; KEYS_MAX]; 2],
    /// For the examples only: the target was decided on at least once.
    pub(crate) target_was_written: bool,
}

/// An entity as a store has it. Version 0 means that it was never there; no ids under a version, that it was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entity {
    pub(crate) version: u8,
    /// A bit for every write, in the order in which they landed.
    pub(crate) ids: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row {
    pub(crate) entity: Entity,
    /// Written and not copied since; the version of that write tells the mark from later ones.
    pub(crate) mark: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Instance {
    Down,
    /// Serves from the source, since it knows of no migration. Nobody can count it, but everybody knows for how long there
    /// may be one.
    Unaware {
        write: Option<Flight>,
    },
    /// Has a lease and has not read the phase since.
    Starting,
    /// Has read the phase and has no lease yet; only a wrong rule leads here.
    Listening {
        phase: Phase,
        behind: u8,
    },
    Serving {
        phase: Phase,
        behind: u8,
        write: Option<Flight>,
    },
    /// Crashed, and its lease has not ended.
    Gone {
        is_confirmed: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Change {
    Set,
    Delete,
}

/// A write that began and has not landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flight {
    pub(crate) key: usize,
    pub(crate) change: Change,
    pub(crate) store: Which,
    pub(crate) is_mirrored: bool,
    pub(crate) behind: u8,
}

/// A state on its way from one store to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Copied {
    /// Read, because of a mark or by the backfill.
    Read { from: Which, key: usize, entity: Entity, reason: Reason },
    /// Put; the mark is still to be removed.
    Put { from: Which, key: usize, seal: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    Marked {
        seal: u8,
    },
    Backfill {
        is_current: bool,
    },
    /// The comparison found a difference.
    Repair,
}

/// What has been reached of a backfill or a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    /// In the present epoch.
    pub(crate) done: [bool; KEYS_MAX],
    /// One of an earlier epoch came to its end, and its report may still be under way.
    pub(crate) is_reported_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HalfCompared {
    pub(crate) key: usize,
    pub(crate) store: Which,
    pub(crate) entity: Entity,
}

/// How far the controller has come with a change of the phase. It is void when the control record changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Look {
    /// So many of the parts have been looked at.
    Begun {
        event: Event,
        glance: Glance,
        parts: u8,
    },
    Decided {
        control: Control,
    },
}

/// [`Seen`], small enough to be part of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Glance {
    pub(crate) unconfirmed: u8,
    pub(crate) is_late: bool,
    pub(crate) source_backlog: u8,
    pub(crate) target_backlog: u8,
    pub(crate) dead_letters: u8,
}

impl World {
    /// Everything stands in the source, and all instances serve.
    pub(crate) fn begin(bounds: &Bounds) -> Self {
        let first = Entity { version: 1, ids: 1 };
        let truth = array::from_fn(|key| if key < bounds.keys { first.ids } else { 0 });
        let source =
            truth.map(|ids| Row { entity: if ids == 0 { Entity::default() } else { first }, mark: None });
        let mut instances = [Instance::Serving { phase: Phase::Source, behind: 0, write: None }; INSTANCES];
        if bounds.is_one_unaware {
            instances[0] = Instance::Unaware { write: None };
        }
        Self {
            control: Control { epoch: EPOCH, ..Control::default() },
            truth,
            stores: [source, Default::default()],
            instances,
            orphans: Default::default(),
            copies: Default::default(),
            backfill: Job::default(),
            comparison: Job::default(),
            comparing: None,
            look: None,
            begun: 0,
            // The first id is that of what was there before.
            landed: 1,
            faults: 0,
            lost_rows: 0,
            packs: 0,
            dead_letters: Default::default(),
            target_was_written: false,
        }
    }

    pub(crate) fn row(&self, store: Which, key: usize) -> Row {
        self.stores[index(store)][key]
    }

    pub(crate) fn row_mut(&mut self, store: Which, key: usize) -> &mut Row {
        &mut self.stores[index(store)][key]
    }

    /// Whether a reader of this store finds exactly what was written.
    pub(crate) fn tells_the_truth(&self, store: Which) -> bool {
        self.stores[index(store)].iter().zip(self.truth).all(|(row, ids)| row.entity.ids == ids)
    }

    /// The stores that somebody may decide on, now or with a write that is under way.
    pub(crate) fn deciding(&self, rights: fn(Phase) -> Rights) -> [bool; 2] {
        let mut deciding = [false; 2];
        for store in self.serving().filter_map(|phase| match rights(phase).writes {
            Writes::To { store, .. } => Some(store),
            Writes::Wait => None,
        }) {
            deciding[index(store)] = true;
        }
        let under_way = self.instances.iter().filter_map(|instance| instance.write());
        for flight in under_way.chain(self.orphans.into_iter().flatten()) {
            deciding[index(flight.store)] = true;
        }
        deciding
    }

    /// The phases that instances serve by.
    pub(crate) fn serving(&self) -> impl Iterator<Item = Phase> {
        self.instances.into_iter().filter_map(|instance| match instance {
            Instance::Serving { phase, .. } => Some(phase),
            Instance::Unaware { .. } => Some(Phase::Source),
            _ => None,
        })
    }

    /// Whether a write may be under way that began in an earlier epoch and that no lease tells of.
    fn may_be_late(&self) -> bool {
        let is_unaware = |instance: &Instance| matches!(instance, Instance::Unaware { .. });
        self.orphans.iter().flatten().any(|flight| flight.behind > 0) || self.instances.iter().any(is_unaware)
    }

    /// All at once.
    pub(crate) fn glance(&self) -> Glance {
        let parts = [Part::Instances, Part::Backlogs, Part::DeadLetters];
        parts.into_iter().fold(Glance::default(), |glance, part| self.glance_at(part, glance))
    }

    /// What was seen, with what this part shows now.
    pub(crate) fn glance_at(&self, part: Part, glance: Glance) -> Glance {
        match part {
            Part::Instances => Glance {
                unconfirmed: count(self.instances.iter().map(|instance| !instance.is_settled())),
                is_late: self.may_be_late(),
                ..glance
            },
            Part::Backlogs => {
                let [source_backlog, target_backlog] =
                    self.stores.map(|rows| count(rows.iter().map(|row| row.mark.is_some())));
                Glance { source_backlog, target_backlog, ..glance }
            }
            Part::DeadLetters => {
                Glance { dead_letters: count(self.dead_letters.iter().flatten().copied()), ..glance }
            }
        }
    }

    /// The control record is replaced. In a new epoch all that was known is one further behind.
    pub(crate) fn set_control(&mut self, control: Control, bounds: &Bounds) {
        self.look = None;
        let is_same_epoch = control.epoch == self.control.epoch;
        self.control = Control { epoch: EPOCH, ..control };
        if is_same_epoch {
            return;
        }
        for instance in &mut self.instances {
            instance.fall_behind();
        }
        for flight in self.orphans.iter_mut().flatten() {
            flight.behind = further(flight.behind);
        }
        for copied in self.copies.iter_mut().flatten() {
            copied.fall_behind();
        }
        self.comparing = None;
        self.backfill.fall_behind(bounds);
        self.comparison.fall_behind(bounds);
    }

    /// Instances are all alike, and so are copies and orphans: worlds that differ in their order only are one.
    pub(crate) fn in_order(mut self) -> Self {
        self.instances.sort_unstable();
        self.orphans.sort_unstable();
        self.copies.sort_unstable();
        self
    }
}

impl Instance {
    pub(crate) fn write(&self) -> Option<Flight> {
        match self {
            Self::Serving { write, .. } | Self::Unaware { write } => *write,
            _ => None,
        }
    }

    /// Follows the present phase and nothing of an earlier one is under way, or is gone for long enough.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Down | Self::Unaware { .. } | Self::Listening { .. } => true,
            Self::Starting => false,
            Self::Serving { behind, write, .. } => {
                *behind == 0 && write.is_none_or(|flight| flight.behind == 0)
            }
            Self::Gone { is_confirmed } => *is_confirmed,
        }
    }

    fn fall_behind(&mut self) {
        match self {
            Self::Down | Self::Starting => {}
            Self::Unaware { write } => {
                if let Some(flight) = write {
                    flight.behind = further(flight.behind);
                }
            }
            Self::Listening { behind, .. } => *behind = further(*behind),
            Self::Serving { behind, write, .. } => {
                *behind = further(*behind);
                if let Some(flight) = write {
                    flight.behind = further(flight.behind);
                }
            }
            Self::Gone { is_confirmed } => *is_confirmed = false,
        }
    }
}

impl Copied {
    fn fall_behind(&mut self) {
        if let Self::Read { reason: Reason::Backfill { is_current }, .. } = self {
            *is_current = false;
        }
    }
}

impl Job {
    pub(crate) fn is_whole(&self, bounds: &Bounds) -> bool {
        self.done.iter().filter(|is_done| **is_done).count() == bounds.keys
    }

    fn fall_behind(&mut self, bounds: &Bounds) {
        self.is_reported_late |= bounds.late_reports && self.is_whole(bounds);
        self.done = Default::default();
    }
}

impl Glance {
    pub(crate) fn seen(self) -> Seen {
        Seen {
            unconfirmed: self.unconfirmed.into(),
            writes_may_be_late: self.is_late,
            source_backlog: Some(self.source_backlog.into()),
            mirror_is_late: false,
            target_backlog: Some(self.target_backlog.into()),
            dead_letters: Some(self.dead_letters.into()),
            shadow_differences: Some(0),
        }
    }
}

pub(crate) fn index(store: Which) -> usize {
    match store {
        Which::Source => 0,
        Which::Target => 1,
    }
}

pub(crate) fn other(store: Which) -> Which {
    match store {
        Which::Source => Which::Target,
        Which::Target => Which::Source,
    }
}

fn further(behind: u8) -> u8 {
    (behind + 1).min(BEHIND_MAX)
}

fn count(which: impl Iterator<Item = bool>) -> u8 {
    which.map(u8::from).sum()
}
