//! What can happen next in a world, and what becomes of it.

use mobimir_migrate::phase::{Event, Phase, Which, Writes};

use crate::{
    rules::{Part, Rules},
    world::{
        Bounds, Change, Copied, EPOCH, Entity, Flight, Glance, HalfCompared, Instance, Look, Reason, Row,
        STORES, World, index, other,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// An instance begins a write, as far as the phase that it follows lets it.
    Begin {
        instance: usize,
        key: usize,
        change: Change,
    },
    Land {
        instance: usize,
    },
    /// A write takes too long. The instance waits no more; the store may do it all the same.
    GiveUp {
        instance: usize,
    },
    LandLate {
        orphan: usize,
    },
    Vanish {
        orphan: usize,
    },

    /// A store packs what an instance has read from it.
    Pack {
        instance: usize,
        key: usize,
    },

    Learn {
        instance: usize,
    },
    Crash {
        instance: usize,
    },
    /// Of an instance that is gone, or cut off and so stops itself.
    EndLease {
        instance: usize,
    },
    TakeLease {
        instance: usize,
    },

    ReadMarked {
        store: Which,
        key: usize,
    },
    Scan {
        key: usize,
    },
    Put {
        copied: usize,
    },
    /// The answer is lost, so it will be put again.
    PutAgain {
        copied: usize,
    },
    /// It is believed to have been put.
    LoseRow {
        copied: usize,
    },
    Unmark {
        copied: usize,
    },
    /// Whoever copied died.
    Drop {
        copied: usize,
    },
    /// It fails for good, and a dead letter is left.
    SetAside {
        copied: usize,
    },
    /// Somebody has looked at a dead letter: it is marked again.
    Retry {
        store: Which,
        key: usize,
    },

    CompareOne {
        store: Which,
        key: usize,
    },
    CompareOther,

    /// The controller looks at everything at once and decides.
    Decide {
        event: Event,
    },
    LookFirst {
        event: Event,
    },
    LookOn,
    Replace,
    ReportBackfilled {
        epoch: u64,
    },
    ReportCompared {
        epoch: u64,
    },
}

/// Everything that may happen; not all of it does, see [`apply`].
pub(crate) fn list(world: &World, bounds: &Bounds, actions: &mut Vec<Action>) {
    for (instance, state) in world.instances.iter().enumerate() {
        list_of_instance(world, bounds, instance, state, actions);
    }
    for (orphan, flight) in world.orphans.iter().enumerate() {
        if flight.is_some() {
            actions.extend([Action::LandLate { orphan }, Action::Vanish { orphan }]);
        }
    }
    list_of_copies(world, bounds, actions);
    list_of_comparison(world, bounds, actions);
    list_of_control(world, bounds, actions);
}

fn list_of_instance(
    world: &World,
    bounds: &Bounds,
    instance: usize,
    state: &Instance,
    actions: &mut Vec<Action>,
) {
    let may_fail = world.faults < bounds.faults;
    match state {
        Instance::Down => actions.push(Action::TakeLease { instance }),
        Instance::Starting | Instance::Listening { .. } => actions.push(Action::Learn { instance }),
        Instance::Unaware { write } => {
            list_of_writes(world, bounds, instance, write.is_some(), actions);
            actions.push(Action::Learn { instance });
        }
        Instance::Serving { behind, write, .. } => {
            list_of_writes(world, bounds, instance, write.is_some(), actions);
            if *behind > 0 {
                actions.push(Action::Learn { instance });
            }
            if may_fail {
                actions.extend([Action::Crash { instance }, Action::EndLease { instance }]);
            }
            if world.packs < bounds.packs {
                actions.extend((0..bounds.keys).map(|key| Action::Pack { instance, key }));
            }
        }
        Instance::Gone { .. } => actions.push(Action::EndLease { instance }),
    }
}

fn list_of_writes(
    world: &World,
    bounds: &Bounds,
    instance: usize,
    is_writing: bool,
    actions: &mut Vec<Action>,
) {
    if is_writing {
        actions.push(Action::Land { instance });
        if world.faults < bounds.faults {
            actions.push(Action::GiveUp { instance });
        }
    } else if world.begun < bounds.writes {
        for key in 0..bounds.keys {
            actions.push(Action::Begin { instance, key, change: Change::Set });
            actions.push(Action::Begin { instance, key, change: Change::Delete });
        }
    }
}

fn list_of_copies(world: &World, bounds: &Bounds, actions: &mut Vec<Action>) {
    let is_free = world.copies.iter().flatten().count() < bounds.copies;
    for key in 0..bounds.keys {
        for store in STORES {
            if is_free && world.row(store, key).mark.is_some() {
                actions.push(Action::ReadMarked { store, key });
            }
            if world.dead_letters[index(store)][key] {
                actions.push(Action::Retry { store, key });
            }
        }
        if is_free && world.control.phase == Phase::Backfill && !world.control.backfilled {
            actions.push(Action::Scan { key });
        }
    }
    for (copied, copy) in world.copies.iter().enumerate() {
        let Some(copy) = copy else { continue };
        actions.push(Action::Drop { copied });
        match copy {
            Copied::Read { reason, .. } => {
                actions.extend([Action::Put { copied }, Action::PutAgain { copied }]);
                let is_scan = matches!(reason, Reason::Backfill { is_current: true });
                if is_scan && world.lost_rows < bounds.lost_rows {
                    actions.push(Action::LoseRow { copied });
                }
                if world.dead_letters.iter().flatten().filter(|is_dead| **is_dead).count()
                    < usize::from(bounds.dead_letters)
                {
                    actions.push(Action::SetAside { copied });
                }
            }
            Copied::Put { .. } => actions.push(Action::Unmark { copied }),
        }
    }
}

fn list_of_comparison(world: &World, bounds: &Bounds, actions: &mut Vec<Action>) {
    if world.control.phase != Phase::Verify || world.control.verified {
        return;
    }
    if world.comparing.is_some() {
        actions.push(Action::CompareOther);
    }
    for key in 0..bounds.keys {
        if !world.comparison.done[key] {
            actions.extend(STORES.map(|store| Action::CompareOne { store, key }));
        }
    }
}

fn list_of_control(world: &World, bounds: &Bounds, actions: &mut Vec<Action>) {
    for event in [Event::Advance, Event::Rollback] {
        actions.push(match bounds.late_looks {
            true => Action::LookFirst { event },
            false => Action::Decide { event },
        });
    }
    match world.look {
        None => {}
        Some(Look::Begun { .. }) => actions.push(Action::LookOn),
        Some(Look::Decided { .. }) => actions.push(Action::Replace),
    }
    if world.backfill.is_whole(bounds) {
        actions.push(Action::ReportBackfilled { epoch: EPOCH });
    }
    if world.backfill.is_reported_late {
        actions.push(Action::ReportBackfilled { epoch: EPOCH - 1 });
    }
    if world.comparison.is_whole(bounds) {
        actions.push(Action::ReportCompared { epoch: EPOCH });
    }
    if world.comparison.is_reported_late {
        actions.push(Action::ReportCompared { epoch: EPOCH - 1 });
    }
}

/// The world after it, or `None` if it does not happen or changes nothing.
pub(crate) fn apply(world: &World, action: Action, rules: &Rules, bounds: &Bounds) -> Option<World> {
    let mut after = *world;
    after.act(action, rules, bounds)?;
    (after != *world).then(|| after.in_order())
}

impl World {
    fn act(&mut self, action: Action, rules: &Rules, bounds: &Bounds) -> Option<()> {
        match action {
            Action::Begin { instance, key, change } => self.begin_write(instance, key, change, rules),
            Action::Land { instance } => {
                let flight = self.take_write(instance)?;
                self.land(flight, rules);
                Some(())
            }
            Action::GiveUp { instance } => {
                let flight = self.take_write(instance)?;
                self.faults += 1;
                self.orphan(flight)
            }
            Action::LandLate { orphan } => {
                let flight = self.orphans[orphan].take()?;
                self.land(flight, rules);
                Some(())
            }
            Action::Vanish { orphan } => self.orphans[orphan].take().map(drop),
            Action::Pack { instance, key } => {
                let Instance::Serving { phase, .. } = self.instances[instance] else { return None };
                let row = self.row_mut((rules.rights)(phase).reads, key);
                let before = *row;
                *row = (rules.pack)(before);
                self.packs += u8::from(*row != before);
                Some(())
            }
            Action::Learn { instance } => self.learn(instance),
            Action::Crash { instance } => self.crash(instance),
            Action::EndLease { instance } => self.end_lease(instance),
            Action::TakeLease { instance } => self.take_lease(instance, rules),
            Action::ReadMarked { store, key } => self.read_marked(store, key),
            Action::Scan { key } => {
                let entity = self.row(Which::Source, key).entity;
                let reason = Reason::Backfill { is_current: true };
                self.carry(Copied::Read { from: Which::Source, key, entity, reason })
            }
            Action::Put { copied } => {
                self.put(copied, rules)?;
                self.copies[copied] = self.copies[copied]?.after_put();
                Some(())
            }
            Action::PutAgain { copied } => self.put(copied, rules),
            Action::LoseRow { copied } => {
                self.lost_rows += 1;
                let Copied::Read { key, .. } = self.copies[copied].take()? else { return None };
                self.backfill.done[key] = true;
                Some(())
            }
            Action::Unmark { copied } => {
                let Copied::Put { from, key, seal } = self.copies[copied].take()? else { return None };
                self.unmark(from, key, seal, rules);
                Some(())
            }
            Action::Drop { copied } => self.copies[copied].take().map(drop),
            Action::SetAside { copied } => self.set_aside(copied, rules),
            Action::Retry { store, key } => {
                self.dead_letters[index(store)][key] = false;
                let row = self.row_mut(store, key);
                row.mark = row.mark.or(Some(row.entity.version));
                Some(())
            }
            Action::CompareOne { store, key } => {
                let entity = self.row(store, key).entity;
                self.comparing = Some(HalfCompared { key, store, entity });
                Some(())
            }
            Action::CompareOther => self.compare_other(bounds),
            Action::Decide { event } => {
                let control = (rules.next)(&self.control, event, &self.glance().seen()).ok()?;
                self.set_control(control, bounds);
                Some(())
            }
            Action::LookFirst { event } => self.look(event, Glance::default(), 0, rules, bounds),
            Action::LookOn => {
                let Look::Begun { event, glance, parts } = self.look? else { return None };
                self.look(event, glance, parts, rules, bounds)
            }
            Action::Replace => {
                let Look::Decided { control } = self.look? else { return None };
                self.set_control(control, bounds);
                Some(())
            }
            Action::ReportBackfilled { epoch } => self.report(Event::Backfilled { epoch }, rules, bounds),
            Action::ReportCompared { epoch } => {
                let ranges = bounds.keys as u64;
                let event = Event::Compared {
                    epoch,
                    ranges_planned: ranges,
                    ranges_compared: ranges,
                    differences: 0,
                };
                self.report(event, rules, bounds)
            }
        }
    }

    fn begin_write(&mut self, instance: usize, key: usize, change: Change, rules: &Rules) -> Option<()> {
        let (phase, behind, write) = match &mut self.instances[instance] {
            Instance::Serving { phase, behind, write } => (*phase, *behind, write),
            // What it began before there was a migration is of an earlier epoch than the migration's first.
            Instance::Unaware { write } => (Phase::Source, 1, write),
            _ => return None,
        };
        let Writes::To { store, mirrored } = (rules.rights)(phase).writes else { return None };
        *write = Some(Flight { key, change, store, is_mirrored: mirrored, behind });
        self.begun += 1;
        Some(())
    }

    fn take_write(&mut self, instance: usize) -> Option<Flight> {
        match &mut self.instances[instance] {
            Instance::Serving { write, .. } | Instance::Unaware { write } => write.take(),
            _ => None,
        }
    }

    /// A write is one step of its store: it changes what is there, under the next version, and leaves a mark.
    fn land(&mut self, flight: Flight, rules: &Rules) {
        let Flight { key, change, store, is_mirrored, .. } = flight;
        let id = 1 << self.landed;
        self.landed += 1;
        self.target_was_written |= store == Which::Target;
        let row = self.row_mut(store, key);
        let version = row.entity.version + 1;
        row.entity = match change {
            Change::Set => Entity { version, ids: row.entity.ids | id },
            Change::Delete => (rules.delete)(row.entity),
        };
        if is_mirrored {
            row.mark = Some(version);
        }
        let truth = &mut self.truth[key];
        *truth = match change {
            Change::Set => *truth | id,
            Change::Delete => 0,
        };
    }

    fn orphan(&mut self, flight: Flight) -> Option<()> {
        *self.orphans.iter_mut().find(|slot| slot.is_none())? = Some(flight);
        Some(())
    }

    fn learn(&mut self, instance: usize) -> Option<()> {
        let phase = self.control.phase;
        let state = &mut self.instances[instance];
        *state = match *state {
            Instance::Starting => Instance::Serving { phase, behind: 0, write: None },
            Instance::Serving { write, .. } | Instance::Unaware { write } => {
                Instance::Serving { phase, behind: 0, write }
            }
            // Takes its lease only now, and believes what it read before.
            Instance::Listening { phase, behind } => Instance::Serving { phase, behind, write: None },
            Instance::Down | Instance::Gone { .. } => return None,
        };
        Some(())
    }

    fn crash(&mut self, instance: usize) -> Option<()> {
        let is_confirmed = self.instances[instance].is_settled();
        let write = self.take_write(instance);
        self.instances[instance] = Instance::Gone { is_confirmed };
        self.faults += 1;
        write.map_or(Some(()), |flight| self.orphan(flight))
    }

    fn end_lease(&mut self, instance: usize) -> Option<()> {
        if !matches!(self.instances[instance], Instance::Gone { .. }) {
            self.crash(instance)?;
        }
        self.instances[instance] = Instance::Down;
        Some(())
    }

    fn take_lease(&mut self, instance: usize, rules: &Rules) -> Option<()> {
        self.instances[instance] = match rules.is_leased_first {
            true => Instance::Starting,
            false => Instance::Listening { phase: self.control.phase, behind: 0 },
        };
        Some(())
    }

    fn carry(&mut self, copied: Copied) -> Option<()> {
        *self.copies.iter_mut().find(|slot| slot.is_none())? = Some(copied);
        Some(())
    }

    fn read_marked(&mut self, from: Which, key: usize) -> Option<()> {
        let Row { entity, mark } = self.row(from, key);
        self.carry(Copied::Read { from, key, entity, reason: Reason::Marked { seal: mark? } })
    }

    fn put(&mut self, copied: usize, rules: &Rules) -> Option<()> {
        let Copied::Read { from, key, entity, reason } = self.copies[copied]? else { return None };
        let row = self.row_mut(other(from), key);
        row.entity = (rules.put)(row.entity, entity);
        if reason == (Reason::Backfill { is_current: true }) {
            self.backfill.done[key] = true;
        }
        Some(())
    }

    fn unmark(&mut self, store: Which, key: usize, seal: u8, rules: &Rules) {
        let row = self.row_mut(store, key);
        let Some(mark) = row.mark else { return };
        row.mark = (rules.unmark)(mark, seal);
        if row.mark.is_none() {
            row.entity = (rules.settle)(row.entity);
        }
    }

    fn set_aside(&mut self, copied: usize, rules: &Rules) -> Option<()> {
        let Copied::Read { from, key, reason, .. } = self.copies[copied].take()? else { return None };
        self.dead_letters[index(from)][key] = true;
        match reason {
            Reason::Marked { .. } if rules.is_mark_kept => {}
            Reason::Marked { seal } => self.unmark(from, key, seal, rules),
            Reason::Backfill { is_current } => self.backfill.done[key] |= is_current,
            Reason::Repair => {}
        }
        Some(())
    }

    fn compare_other(&mut self, bounds: &Bounds) -> Option<()> {
        let HalfCompared { key, store, entity } = self.comparing.take()?;
        if self.row(other(store), key).entity == entity {
            self.comparison.done[key] = true;
        } else if self.copies.iter().flatten().count() < bounds.copies {
            let entity = self.row(Which::Source, key).entity;
            self.carry(Copied::Read { from: Which::Source, key, entity, reason: Reason::Repair })?;
        }
        Some(())
    }

    /// Looks at the next part. What is not seen yet is taken to be well: if it is refused even so, it will be.
    fn look(
        &mut self,
        event: Event,
        glance: Glance,
        parts: u8,
        rules: &Rules,
        bounds: &Bounds,
    ) -> Option<()> {
        let is_needed = |part: &Part| *part != Part::DeadLetters || bounds.dead_letters > 0;
        let mut left = rules.looks.into_iter().filter(is_needed).skip(parts.into());
        let glance = self.glance_at(left.next()?, glance);
        let control = (rules.next)(&self.control, event, &glance.seen()).ok()?;
        self.look = Some(match left.next() {
            Some(_) => Look::Begun { event, glance, parts: parts + 1 },
            None => Look::Decided { control },
        });
        Some(())
    }

    fn report(&mut self, event: Event, rules: &Rules, bounds: &Bounds) -> Option<()> {
        let control = (rules.next)(&self.control, event, &self.glance().seen()).ok()?;
        if control == self.control {
            return None;
        }
        self.set_control(control, bounds);
        Some(())
    }
}

impl Copied {
    /// What is left to do when it has been put.
    fn after_put(self) -> Option<Self> {
        match self {
            Self::Read { from, key, reason: Reason::Marked { seal }, .. } => {
                Some(Self::Put { from, key, seal })
            }
            _ => None,
        }
    }
}
