//! What operators ask of a migration.

use std::time::Duration;

use mobimir_core::moving::Whole;

use super::{Action, Entity, Migration};
use crate::{
    backfill::Months,
    follow::MoveError,
    phase::{Event, Phase, Which},
    record::{HandoverRecord, Read, Record},
};

/// How long the target may take to say whether it has anything.
const COUNT_MAX: Duration = Duration::from_secs(2);

/// What may be asked for in which phases.
const CHOSEN: [Phase; 3] = [Phase::Source, Phase::DualWrite, Phase::Backfill];
const COMPARED: [Phase; 2] = [Phase::Verify, Phase::ReadTarget];
const REPAIRED: [Phase; 3] = [Phase::Backfill, Phase::Verify, Phase::ReadTarget];

impl<W: Whole, P: ?Sized + Send + Sync + 'static> Entity<W, P> {
    pub(super) async fn take(&self, action: Action) -> Result<(), MoveError> {
        match action {
            Action::Start => self.start().await,
            Action::Advance => self.want(Event::Advance).await,
            Action::Rollback => self.want(Event::Rollback).await,
            Action::Pause => self.change("paused", |record| record.is_paused = true).await,
            Action::Resume => self.change("resumed", |record| record.is_paused = false).await,
            Action::Verify => self.verify().await,
            Action::Repair => self.repair().await,
            Action::Months(months) => self.choose(months).await,
        }
    }

    async fn start(&self) -> Result<(), MoveError> {
        let before = self.notes.record().await?;
        if let Some(read) = &before
            && !read.value.is_over(&self.home)
        {
            return Err(MoveError::UnderWay { entity: self.entity(), phase: read.value.control.phase });
        }
        let mut record = Record::new(&self.home, &self.other, self.clock.now());
        if let Some(read) = &before {
            // Epochs go on, so that nobody takes it for the one before.
            record.control.epoch = read.value.control.epoch + 1;
        }
        // Refused here rather than found out by everybody.
        if !self.prepare(&record).await {
            return Err(MoveError::NoTarget(self.other.clone()));
        }
        let target = self.migrating.side(Which::Target)?.moving.clone();
        // Who cannot say it in time is taken to have something.
        let count = tokio::time::timeout(COUNT_MAX, target.count()).await;
        record.into_nothing = matches!(count, Ok(Ok(0)));
        let replaced = before.map(|read| read.revision);
        if self.notes.replace_record(replaced, &record).await? { Ok(()) } else { Err(MoveError::Overtaken) }
    }

    /// Sets out for the next phase, if only time speaks against it.
    async fn want(&self, event: Event) -> Result<(), MoveError> {
        let read = self.notes.record().await?.filter(|read| !read.value.is_over(&self.home));
        let Read { value: record, revision } = read.ok_or(MoveError::NoMigration(self.entity()))?;
        if record.control.phase == Phase::ReadTarget && record.repair > record.repaired {
            // What could not be copied has been forgotten and not been tried again yet.
            return Err(MoveError::Repairing);
        }
        if !self.prepare(&record).await {
            return Err(MoveError::NoTarget(record.target));
        }
        let mut controller = self.controller().await?;
        let refusals = controller.refusals(event).await?;
        drop(controller);
        let refusals: Vec<_> = refusals.into_iter().filter(|refusal| !refusal.is_passing()).collect();
        if !refusals.is_empty() {
            return Err(MoveError::Refused(refusals));
        }
        let step = |phase: Phase| match event {
            Event::Rollback => phase.below(),
            _ => phase.above(),
        };
        // Nobody stays where everybody waits.
        let mut wanted = step(record.control.phase);
        while let Some(Phase::Handover | Phase::Switch) = wanted {
            wanted = wanted.and_then(step);
        }
        let since = self.clock.now();
        let handover = record.handover.map(|_| HandoverRecord { since, is_given_up: false });
        // Of the record that was asked for its gates, and of no later one.
        self.replace(Read { revision, value: Record { wanted, handover, ..record } }, "").await
    }

    /// Before the switch the target is compared with the source, and after it the source with the target.
    async fn verify(&self) -> Result<(), MoveError> {
        let phase = self.check_phase("verify", &COMPARED).await?;
        self.change("to be compared anew", |record| {
            if phase == Phase::ReadTarget {
                record.rechecked_at = None;
            } else {
                record.comparison += 1;
                record.control.verified = false;
            }
            record.is_paused = false;
        })
        .await
    }

    /// Has everything compared and mended, with what could not be copied; then everything is compared anew.
    async fn repair(&self) -> Result<(), MoveError> {
        self.check_phase("repair", &REPAIRED).await?;
        let letters = self.notes.list_dead_letters(None, usize::MAX >> 1).await?;
        // Before they are forgotten: as long as they stand, and from here on, reads stay where they are.
        self.change("to be repaired", |record| {
            record.repair += 1;
            record.control.verified = false;
            record.is_paused = false;
        })
        .await?;
        for letter in &letters {
            self.notes.take_back(letter).await?;
        }
        Ok(())
    }

    async fn choose(&self, months: Option<Months>) -> Result<(), MoveError> {
        if !W::IS_DATED {
            return Err(MoveError::NoMonths(self.entity()));
        }
        self.check_phase("choosing months", &CHOSEN).await?;
        let what = match months {
            Some(Months { from, to }) => format!("from {from} to {to} is copied first"),
            None => "everything is copied".to_owned(),
        };
        self.change(&what, |record| {
            record.months = months;
            record.selection += 1;
        })
        .await
    }

    async fn check_phase(&self, action: &'static str, phases: &[Phase]) -> Result<Phase, MoveError> {
        let read = self.notes.record().await?.ok_or(MoveError::NoMigration(self.entity()))?;
        let phase = read.value.control.phase;
        if phases.contains(&phase) { Ok(phase) } else { Err(MoveError::NotNow { action, phase }) }
    }

    pub(super) async fn change(&self, what: &str, change: impl Fn(&mut Record)) -> Result<(), MoveError> {
        let mut read = self.notes.record().await?.ok_or(MoveError::NoMigration(self.entity()))?;
        change(&mut read.value);
        self.replace(read, what).await
    }

    async fn replace(&self, read: Read<Record>, what: &str) -> Result<(), MoveError> {
        let mut record = read.value;
        if !what.is_empty() {
            record.note(self.clock.now(), what.to_owned());
        }
        if self.notes.replace_record(Some(read.revision), &record).await? {
            Ok(())
        } else {
            Err(MoveError::Overtaken)
        }
    }
}
