//! The long work of a migration, done by one instance at a time, and the steps that it takes by itself.

use std::{sync::Arc, time::Duration};

use mobimir_core::{
    invariant::Invariant,
    moving::{Movable, Whole},
    notes::Expected,
    ports::StoreResult,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{Entity, Migration};
use crate::{
    backfill::{Backfill, Months, Selection},
    environment::Joined,
    follow::MoveError,
    job::{Ended, Progress},
    phase::{Event, Phase, Which},
    record::{Outcome, Record},
    throttle::Everybody,
    verify::{Compared, Comparison, Kind, Purpose},
};

/// How often whoever does the long work looks what there is to do.
const WORK_PERIOD: Duration = Duration::from_millis(300);
/// A handover that takes longer is given up: shoppers wait.
const HANDOVER_MAX_MS: i64 = 20_000;

/// Who does the long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Worker {
    pub(super) instance: Uuid,
    beat: u64,
}

impl Worker {
    pub(super) const NAME: &str = "/worker";
}

/// Long work that is under way in this process.
struct Running {
    what: Wanted,
    progress: Arc<Progress>,
    task: Joined<StoreResult<Done>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.progress.stop();
    }
}

enum Done {
    Copied(Ended),
    Compared(Compared),
}

/// What a migration needs to have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Backfill {
        epoch: u64,
    },
    Months {
        number: u64,
        epoch: u64,
        months: Months,
    },
    Comparison {
        epoch: u64,
        number: u64,
    },
    /// The `nth` that was asked for; `reversed` once the target decides.
    Repair {
        nth: u64,
        number: u64,
        reversed: bool,
    },
    Recheck {
        number: u64,
    },
}

impl Wanted {
    /// As operators call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Backfill { .. } => "backfill",
            Self::Months { .. } => "months",
            Self::Comparison { .. } => "verify",
            Self::Repair { .. } => "repair",
            Self::Recheck { .. } => "recheck",
        }
    }

    pub(super) fn of(record: &Record, now: Timestamp, recheck_period: Duration) -> Option<Self> {
        let (control, phase) = (record.control, record.control.phase);
        let reversed = phase == Phase::ReadTarget;
        match phase {
            _ if record.is_paused => None,
            Phase::Backfill | Phase::Verify | Phase::ReadTarget if record.repair > record.repaired => {
                Some(Self::Repair { nth: record.repair, number: record.repair_number(), reversed })
            }
            Phase::Backfill if !control.backfilled => match (record.months, record.months_to_copy()) {
                (None, _) => Some(Self::Backfill { epoch: control.epoch }),
                (Some(_), Some(months)) => {
                    Some(Self::Months { number: record.selection_number(), epoch: control.epoch, months })
                }
                // They are there, and somebody has to say what is next.
                (Some(_), None) => None,
            },
            Phase::Verify if !control.verified => {
                Some(Self::Comparison { epoch: control.epoch, number: record.comparison_number() })
            }
            Phase::ReadTarget => {
                let period_ms = i64::try_from(recheck_period.as_millis()).unwrap_or(i64::MAX);
                let is_due = record.rechecked_at.is_none_or(|last| now.since(last) >= period_ms);
                is_due.then(|| Self::Recheck { number: record.recheck_number() })
            }
            _ => None,
        }
    }
}

impl<W: Whole, P: ?Sized + Send + Sync + 'static> Entity<W, P> {
    /// Does the long work, if this instance is the one to do it.
    pub(super) async fn work(&self) {
        let (mut held, mut seen): (Option<u64>, Option<(Worker, Instant)>) = (None, None);
        let mut running: Option<Running> = None;
        let everybody = Everybody::new(self.pressure.clone());
        loop {
            sleep(WORK_PERIOD).await;
            let Ok(Some(read)) = self.notes.record().await else { continue };
            let record = read.value;
            held = self.hold(held, &mut seen).await.ok().flatten();
            if held.is_none() {
                running = None;
                continue;
            }
            running = self.go_on(&record, running, &everybody).await;
            if let Err(error) = self.step(&record).await {
                tracing::debug!(%error, entity = self.entity(), "the migration stays where it is");
            }
            if let Ok(mut controller) = self.controller().await {
                let _ = controller.forget().await;
                everybody.hear(controller.felt(self.instance));
            }
        }
    }

    /// Keeps being the one who works, or becomes it when whoever was has not been heard of. Gives the revision of the note
    /// that says so.
    async fn hold(
        &self,
        held: Option<u64>,
        seen: &mut Option<(Worker, Instant)>,
    ) -> StoreResult<Option<u64>> {
        let stored = self.notes.get::<Worker>(Worker::NAME).await?;
        let beat = stored.as_ref().map_or(0, |read| read.value.beat) + 1;
        let mine = Worker { instance: self.instance, beat };
        let Some(read) = stored else { return self.notes.put(Worker::NAME, Expected::Nothing, &mine).await };
        let is_mine = read.value.instance == self.instance && held == Some(read.revision);
        if !is_mine {
            let since = match seen {
                Some((worker, since)) if *worker == read.value => *since,
                _ => Instant::now(),
            };
            *seen = Some((read.value, since));
            if since.elapsed() < self.timing.lease {
                return Ok(None);
            }
        }
        self.notes.put(Worker::NAME, Expected::Revision(read.revision), &mine).await
    }

    /// Begins, ends or reports the work that the phase asks for.
    async fn go_on(
        &self,
        record: &Record,
        running: Option<Running>,
        everybody: &Arc<Everybody>,
    ) -> Option<Running> {
        let wanted = Wanted::of(record, self.clock.now(), self.recheck_period);
        if let Some(mut running) = running {
            if Some(running.what) != wanted {
                running.progress.stop();
            }
            if !running.task.is_finished() {
                return Some(running);
            }
            let what = running.what;
            match running.task.outcome().await {
                Ok(Ok(done)) => {
                    if let Err(error) = self.report(record, what, done).await {
                        tracing::info!(%error, entity = self.entity(), "the report was not taken");
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, entity = self.entity(), "the work has to be taken up again");
                }
                Err(_) => tracing::error!(entity = self.entity(), "the work ended halfway"),
            }
            return None;
        }
        wanted.and_then(|wanted| self.begin(record, wanted, everybody).ok())
    }

    fn begin(&self, record: &Record, what: Wanted, everybody: &Arc<Everybody>) -> StoreResult<Running> {
        let (progress, environment) = (Arc::<Progress>::default(), self.migrating.environment());
        let moving = |which| Ok(self.migrating.side(which)?.moving.clone());
        let sides: [StoreResult<Arc<dyn Movable<W>>>; 2] = [moving(Which::Source), moving(Which::Target)];
        let [source, target] = sides;
        let (source, target) = (source?, target?);
        let backfill = |only, name: &'static str, number| {
            let selection = Selection { only, without: record.months_copied.clone() };
            let backfill = Backfill {
                notes: self.notes.clone(),
                from: source.clone(),
                to: target.clone(),
                clock: self.clock.clone(),
                pressure: everybody.clone(),
                selection,
                into_nothing: record.into_nothing,
            };
            let run = backfill.run(name, number, progress.clone());
            environment.run(async move { run.await.map(Done::Copied) })
        };
        let compare = |purpose, number, reversed: bool| {
            let (one, other) = if reversed { (&target, &source) } else { (&source, &target) };
            let comparison = Comparison {
                notes: self.notes.clone(),
                source: one.clone(),
                target: other.clone(),
                clock: self.clock.clone(),
                pressure: everybody.clone(),
                purpose,
                number,
                is_forward: !reversed,
            };
            let run = comparison.run(progress.clone());
            environment.run(async move { run.await.map(Done::Compared) })
        };
        let task = match what {
            Wanted::Backfill { epoch } => backfill(None, "backfill", epoch),
            Wanted::Months { number, months, .. } => backfill(Some(months), "months", number),
            Wanted::Comparison { number, .. } => compare(Purpose::Verify, number, false),
            Wanted::Repair { number, reversed, .. } => compare(Purpose::Repair, number, reversed),
            Wanted::Recheck { number } => compare(Purpose::Recheck, number, true),
        };
        Ok(Running { what, progress, task })
    }

    /// Says what the work came to.
    async fn report(&self, record: &Record, what: Wanted, done: Done) -> Result<(), MoveError> {
        match (what, done) {
            (Wanted::Backfill { epoch }, Done::Copied(Ended::Whole { ranges })) => {
                let why = format!("everything copied, in {ranges} ranges");
                self.controller().await?.apply(Event::Backfilled { epoch }, &why).await.map(|_| ())
            }
            (Wanted::Months { epoch, months, .. }, Done::Copied(Ended::Whole { .. })) => {
                // As for a whole backfill: while somebody may write without a mark, something may be behind the scan.
                let refusals = self.controller().await?.refusals(Event::Backfilled { epoch }).await?;
                if !refusals.is_empty() {
                    return Err(MoveError::Refused(refusals));
                }
                let Months { from, to } = months;
                self.change(&format!("copied from {from} to {to}"), |record| {
                    record.months_copied.extend(months.all());
                })
                .await
            }
            (_, Done::Compared(compared)) => match compared.ended {
                Ended::Stopped if !compared.is_given_up() => Ok(()),
                _ => self.report_compared(record, what, &compared).await,
            },
            (_, Done::Copied(_)) => Ok(()),
        }
    }

    async fn report_compared(
        &self,
        record: &Record,
        what: Wanted,
        compared: &Compared,
    ) -> Result<(), MoveError> {
        let Compared { planned, done, entities, rows, mended, .. } = *compared;
        let (now, differences) = (self.clock.now(), compared.total());
        let outcome = |purpose| Outcome {
            at: now,
            purpose,
            entities,
            rows,
            ranges: done,
            ranges_planned: planned,
            differences: compared.by_kind.clone(),
            mended,
        };
        let said = format!(
            "{entities} entities and {rows} rows of the other store, {done} of {planned} ranges and tables: {differences} differences"
        );
        match what {
            Wanted::Comparison { epoch, number } => {
                let event =
                    Event::Compared { epoch, ranges_planned: planned, ranges_compared: done, differences };
                // Somebody may have asked for another one meanwhile.
                let is_this = |record: &Record| record.comparison_number() == number;
                self.controller().await?.apply_if(event, &format!("compared {said}"), is_this).await?;
                // What differs is looked at again when it has been seen to.
                let what = if differences > 0 {
                    "paused: look at the differences, then repair or compare anew"
                } else {
                    ""
                };
                self.change(what, |record| {
                    record.is_paused |= differences > 0;
                    record.came_to(outcome(Purpose::Verify));
                })
                .await
            }
            Wanted::Repair { nth, reversed, .. } => {
                self.change(&format!("repaired {said}, {mended} mended"), |record| {
                    record.repaired = record.repaired.max(nth);
                    record.came_to(outcome(Purpose::Repair));
                    if reversed {
                        record.rechecked_at = None;
                    } else {
                        record.comparison += 1;
                        record.control.verified = false;
                    }
                })
                .await
            }
            Wanted::Recheck { number } => {
                let is_lost = compared.by_kind.contains_key(&Kind::Extra);
                self.invariants.check(Invariant::Mig1, differences == 0);
                self.invariants.check(Invariant::Mig2, !is_lost);
                if differences > 0 {
                    tracing::error!(
                        entity = self.entity(),
                        differences,
                        "the stores differ after the switch"
                    );
                }
                // Once is enough to say that nothing happened.
                let is_news = differences > 0 || record.recheck == 0;
                self.change(
                    &if is_news { format!("compared again {said}") } else { String::new() },
                    |record| {
                        record.rechecked_at = Some(now);
                        record.recheck += 1;
                        record.came_to(outcome(Purpose::Recheck));
                    },
                )
                .await?;
                if record.recheck > 0 {
                    self.notes.forget_comparison(Purpose::Recheck, number - 1).await?;
                }
                Ok(())
            }
            Wanted::Backfill { .. } | Wanted::Months { .. } => Ok(()),
        }
    }

    /// A step towards where the migration is to go.
    async fn step(&self, record: &Record) -> Result<(), MoveError> {
        let Some(wanted) = record.wanted else { return Ok(()) };
        let phase = record.control.phase;
        let event = if wanted > phase { Event::Advance } else { Event::Rollback };
        let is_meant = |now: &Record| (now.wanted, now.control) == (record.wanted, record.control);
        let applied = self.controller().await?.apply_if(event, "", is_meant).await;
        let Err(error) = applied else { return Ok(()) };
        let takes_too_long = record.handover.is_some_and(|handover| {
            !handover.is_given_up && self.clock.now().since(handover.since) > HANDOVER_MAX_MS
        });
        // The other halves of the way only wait for the instances, as the way back would.
        let back = match (phase, event) {
            (Phase::Handover, Event::Advance) => Phase::Verify,
            (Phase::Switch, Event::Rollback) => Phase::ReadTarget,
            _ => return Err(error),
        };
        if !takes_too_long {
            return Err(error);
        }
        self.change(&format!("the handover was given up, back to {back}: {error}"), |record| {
            if let Some(handover) = &mut record.handover {
                // Once, or it would go to and fro while everybody waits.
                (handover.is_given_up, record.wanted) = (true, Some(back));
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use mobimir_core::time::Month;

    use super::*;
    use crate::phase::Control;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(phase: Phase) -> Record {
        let mut record = Record::new("source", "target", Timestamp::from_millis(0));
        record.control = Control { phase, epoch: 3, backfilled: phase > Phase::Backfill, verified: false };
        record
    }

    fn wanted(record: &Record, now_ms: i64) -> Option<Wanted> {
        Wanted::of(record, Timestamp::from_millis(now_ms), HOUR)
    }

    #[test]
    fn chosen_months_come_first_and_the_rest_waits_to_be_asked_for() {
        let mut record = at(Phase::Backfill);
        assert_eq!(wanted(&record, 0), Some(Wanted::Backfill { epoch: 3 }));
        let [from, to] = ["2011-01", "2011-02"].map(|month| Month::parse(month).unwrap());
        record.months = Some(Months { from, to });
        assert!(matches!(wanted(&record, 0), Some(Wanted::Months { .. })));
        record.months_copied.extend([from, to]);
        assert_eq!(wanted(&record, 0), None);
        record.months = None;
        assert_eq!(wanted(&record, 0), Some(Wanted::Backfill { epoch: 3 }));
    }

    #[test]
    fn after_the_switch_everything_is_compared_at_once_and_then_on_a_schedule() {
        let mut record = at(Phase::ReadTarget);
        let first = record.recheck_number();
        assert_eq!(wanted(&record, 0), Some(Wanted::Recheck { number: first }));
        (record.rechecked_at, record.recheck) = (Some(Timestamp::from_millis(1_000)), 1);
        assert_eq!(wanted(&record, 2_000), None);
        assert_eq!(wanted(&record, 3_601_000), Some(Wanted::Recheck { number: first + 1 }));
        record.repair = 1;
        assert!(matches!(wanted(&record, 2_000), Some(Wanted::Repair { nth: 1, reversed: true, .. })));
        record.is_paused = true;
        assert_eq!(wanted(&record, 2_000), None);
    }
}
