//! One entity's migration in one process: follows it, copies what is marked, does the long work if nobody else does, and
//! takes what operators ask for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use mobimir_core::{
    moving::{Backlog, Side, Whole},
    notes::Expected,
    ports::{StoreError, StoreResult},
    time::{Clock, Timestamp},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::MappedMutexGuard,
    task::JoinHandle,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    backfill::Backfill,
    follow::{Controller, Follower, MoveError},
    job::{Ended, Progress, Reached},
    migrating::Migrating,
    phase::{Event, Phase, Which},
    record::{Line, Notes, Record},
    throttle::Pressure,
    timing::Timing,
    verify::{Compared, Comparison, Difference, Kind},
};

/// How often what is marked is copied.
const RECONCILE_PERIOD: Duration = Duration::from_millis(500);
/// How often whoever does the long work looks what there is to do.
const WORK_PERIOD: Duration = Duration::from_millis(300);
/// A handover that takes longer is given up: shoppers wait.
const HANDOVER_MAX_MS: i64 = 20_000;
/// Differences that a status shows.
const SHOWN_DIFFERENCES_MAX: usize = 20;
const SHOWN_LETTERS_MAX: usize = 20;

/// Opens the store that a record names.
pub type Opener<W, P> = Box<dyn Fn(Record) -> BoxFuture<'static, StoreResult<Side<W, P>>> + Send + Sync>;

pub struct Entity<W: Whole, P: ?Sized> {
    pub migrating: Arc<Migrating<W, P>>,
    pub notes: Notes,
    pub open: Opener<W, P>,
    pub clock: Arc<dyn Clock>,
    pub pressure: Arc<dyn Pressure>,
    pub timing: Timing,
    pub instance: Uuid,
    /// The store that it is in without a migration, and the one that it may go to, as the policy calls them.
    pub home: String,
    pub other: String,
    /// Made when there is a migration. One for all, because it remembers who was heard of when.
    pub controller: tokio::sync::Mutex<Option<Controller<W>>>,
}

/// What an operator may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Start,
    Advance,
    Rollback,
    Pause,
    Resume,
    /// Everything is compared anew.
    Verify,
    /// What could not be copied is tried again, and what differs is copied again.
    Repair,
}

/// A migration as people look at it.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub entity: &'static str,
    pub phase: Phase,
    pub source: String,
    pub target: String,
    /// Where it is going by itself.
    pub wanted: Option<Phase>,
    pub is_paused: bool,
    pub instances: Instances,
    pub backlog: BTreeMap<Which, Option<BacklogView>>,
    pub backfill: Option<Reached>,
    pub verification: Option<Verification>,
    pub dead_letters: Vec<crate::dead_letters::DeadLetter>,
    /// Why the next phase cannot begin.
    pub blocked_by: Vec<String>,
    pub phase_since: Option<Timestamp>,
    pub timeline: Vec<Line>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Instances {
    pub confirmed: usize,
    pub behind: usize,
    pub gone: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct BacklogView {
    pub entities: u64,
    pub oldest: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    pub reached: Reached,
    pub is_green: bool,
    pub differences: BTreeMap<Kind, u64>,
    pub first_differences: Vec<Difference>,
}

/// A migration, of whatever entity.
#[async_trait]
pub trait Migration: Send + Sync {
    fn entity(&self) -> &'static str;

    /// `None` when there is none.
    async fn status(&self) -> Result<Option<Status>, MoveError>;

    async fn act(&self, action: Action) -> Result<Status, MoveError>;

    /// Follows and works until it is dropped.
    async fn run(self: Arc<Self>);

    /// Waits until this instance knows how far the migration is, but not for ever.
    async fn ready(&self);

    /// Once nothing is served any more.
    async fn end(&self);
}

/// Who does the long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Worker {
    instance: Uuid,
    beat: u64,
}

#[async_trait]
impl<W: Whole, P: ?Sized + Send + Sync + 'static> Migration for Entity<W, P> {
    fn entity(&self) -> &'static str {
        self.notes.entity()
    }

    async fn status(&self) -> Result<Option<Status>, MoveError> {
        match self.notes.record().await? {
            Some(read) if !read.value.is_over(&self.home) => self.view(read.value).await.map(Some),
            _ => Ok(None),
        }
    }

    async fn act(&self, action: Action) -> Result<Status, MoveError> {
        match action {
            Action::Start => self.start().await?,
            Action::Advance => self.want(Event::Advance).await?,
            Action::Rollback => self.want(Event::Rollback).await?,
            Action::Pause => self.change("paused", |record| record.is_paused = true).await?,
            Action::Resume => self.change("resumed", |record| record.is_paused = false).await?,
            Action::Verify => {
                self.check_phase("verify", &[Phase::Verify]).await?;
                self.change("to be compared anew", |record| {
                    record.comparison += 1;
                    record.control.verified = false;
                })
                .await?;
            }
            Action::Repair => self.repair().await?,
        }
        self.status().await?.ok_or(MoveError::NoMigration(self.entity()))
    }

    async fn run(self: Arc<Self>) {
        let standing = self.migrating.standing().clone();
        let mut follower =
            Follower::new(self.notes.clone(), standing, self.instance, self.timing, &self.home);
        let entity = self.clone();
        let follow = follower.run(Box::new(move |record| {
            let entity = entity.clone();
            Box::pin(async move { entity.prepare(&record).await })
        }));
        let mirror = async {
            loop {
                for which in [Which::Source, Which::Target] {
                    if let Ok(mirror) = self.migrating.mirror_of(which)
                        && let Err(error) = mirror.reconcile().await
                    {
                        tracing::debug!(%error, entity = self.entity(), "what is marked could not be read");
                    }
                }
                sleep(RECONCILE_PERIOD).await;
            }
        };
        tokio::join!(follow, mirror, self.work());
    }

    async fn ready(&self) {
        let known = async {
            while self.migrating.standing().read_from().is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(self.timing.lease, known).await;
    }

    async fn end(&self) {
        // One whose writes may still arrive is counted until its lease has ended by itself.
        let (_, epoch) = self.migrating.standing().phase();
        let drained = self.migrating.standing().drained(epoch + 1);
        if tokio::time::timeout(Duration::from_millis(100), drained).await.is_ok() {
            let _ = self.notes.end_lease(self.instance).await;
        }
    }
}

impl<W: Whole, P: ?Sized + Send + Sync + 'static> Entity<W, P> {
    async fn prepare(&self, record: &Record) -> bool {
        if self.migrating.side(Which::Target).is_ok() {
            return true;
        }
        match (self.open)(record.clone()).await {
            Ok(target) => {
                self.migrating.set_target(target);
                true
            }
            Err(error) => {
                tracing::warn!(%error, entity = self.entity(), target = record.target, "cannot open the target");
                false
            }
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
        let replaced = before.map(|read| read.revision);
        if self.notes.replace_record(replaced, &record).await? { Ok(()) } else { Err(MoveError::Overtaken) }
    }

    /// Copying and comparing everything has a meaning only while the target is being made ready.
    async fn check_phase(&self, action: &'static str, phases: &[Phase]) -> Result<(), MoveError> {
        let read = self.notes.record().await?.ok_or(MoveError::NoMigration(self.entity()))?;
        let phase = read.value.control.phase;
        if phases.contains(&phase) { Ok(()) } else { Err(MoveError::NotNow { action, phase }) }
    }

    /// Sets out for the next phase, if only time speaks against it.
    async fn want(&self, event: Event) -> Result<(), MoveError> {
        let read = self.notes.record().await?.filter(|read| !read.value.is_over(&self.home));
        let record = read.ok_or(MoveError::NoMigration(self.entity()))?.value;
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
        self.change("", |record| {
            // Nobody stays where everybody waits.
            let mut wanted = step(record.control.phase);
            while let Some(Phase::Handover | Phase::Switch) = wanted {
                wanted = wanted.and_then(step);
            }
            record.wanted = wanted;
        })
        .await
    }

    async fn change(&self, what: &str, change: impl Fn(&mut Record)) -> Result<(), MoveError> {
        let read = self.notes.record().await?.ok_or(MoveError::NoMigration(self.entity()))?;
        let mut record = read.value;
        change(&mut record);
        if !what.is_empty() {
            record.note(self.clock.now(), what.to_owned());
        }
        if self.notes.replace_record(Some(read.revision), &record).await? {
            Ok(())
        } else {
            Err(MoveError::Overtaken)
        }
    }

    /// Has everything copied once more, with what could not be; then everything is compared anew.
    async fn repair(&self) -> Result<(), MoveError> {
        self.check_phase("repair", &[Phase::Backfill, Phase::Verify]).await?;
        for letter in self.notes.list_dead_letters(None, usize::MAX >> 1).await? {
            self.notes.take_back(&letter.key).await?;
        }
        self.change("to be repaired: everything is copied once more", |record| {
            record.repair += 1;
            record.is_paused = false;
        })
        .await
    }

    async fn controller(&self) -> StoreResult<MappedMutexGuard<'_, Controller<W>>> {
        let mut held = self.controller.lock().await;
        if held.is_none() {
            let [source, target] = [Which::Source, Which::Target].map(|which| self.migrating.side(which));
            let (source, target) = (source?.moving.clone(), target?.moving.clone());
            let (notes, clock) = (self.notes.clone(), self.clock.clone());
            *held = Some(Controller::new(notes, source, target, clock, self.timing));
        }
        tokio::sync::MutexGuard::try_map(held, Option::as_mut).map_err(|_| StoreError::Unavailable {
            what: "the migration cannot be looked at".to_owned(),
            source: None,
        })
    }

    /// Does the long work, if this instance is the one to do it.
    async fn work(&self) {
        let (mut held, mut seen): (Option<u64>, Option<(Worker, Instant)>) = (None, None);
        let mut running: Option<Running> = None;
        loop {
            sleep(WORK_PERIOD).await;
            let Ok(Some(read)) = self.notes.record().await else { continue };
            let record = read.value;
            held = self.hold(held, &mut seen).await.ok().flatten();
            if held.is_none() {
                running = None;
                continue;
            }
            running = self.go_on(&record, running).await;
            if let Err(error) = self.step(&record).await {
                tracing::debug!(%error, entity = self.entity(), "the migration stays where it is");
            }
            if let Ok(mut controller) = self.controller().await {
                let _ = controller.forget().await;
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
        const NAME: &str = "/worker";
        let stored = self.notes.get::<Worker>(NAME).await?;
        let beat = stored.as_ref().map_or(0, |read| read.value.beat) + 1;
        let mine = Worker { instance: self.instance, beat };
        let Some(read) = stored else { return self.notes.put(NAME, Expected::Nothing, &mine).await };
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
        self.notes.put(NAME, Expected::Revision(read.revision), &mine).await
    }

    /// Begins, ends or reports the work that the phase asks for.
    async fn go_on(&self, record: &Record, running: Option<Running>) -> Option<Running> {
        let wanted = Wanted::of(record);
        if let Some(mut running) = running {
            if Some(running.what) != wanted {
                running.progress.stop();
            }
            if !running.task.is_finished() {
                return Some(running);
            }
            let what = running.what;
            match (&mut running.task).await {
                Ok(Ok(done)) => self.report(what, done).await,
                Ok(Err(error)) => {
                    tracing::warn!(%error, entity = self.entity(), "the work has to be taken up again");
                }
                Err(error) => tracing::error!(%error, "the work ended halfway"),
            }
            return None;
        }
        wanted.and_then(|wanted| self.begin(wanted).ok())
    }

    fn begin(&self, what: Wanted) -> StoreResult<Running> {
        let progress = Arc::<Progress>::default();
        let [source, target] = [Which::Source, Which::Target].map(|which| self.migrating.side(which));
        let (source, target) = (source?.moving.clone(), target?.moving.clone());
        let (notes, clock, pressure) = (self.notes.clone(), self.clock.clone(), self.pressure.clone());
        let task = match what {
            Wanted::Backfill { epoch: number } | Wanted::Repair { number } => {
                let name = if let Wanted::Repair { .. } = what { "repair" } else { "backfill" };
                let backfill = Backfill { notes, from: source, to: target, clock, pressure };
                let run = backfill.run(name, number, progress.clone());
                tokio::spawn(async move { run.await.map(Done::Backfilled) })
            }
            Wanted::Comparison { number, .. } => {
                let comparison = Comparison { notes, source, target, clock, pressure };
                let run = comparison.run(number, progress.clone());
                tokio::spawn(async move { run.await.map(Done::Compared) })
            }
        };
        Ok(Running { what, progress, task })
    }

    async fn report(&self, what: Wanted, done: Done) {
        let (event, why) = match (what, done) {
            (Wanted::Backfill { epoch }, Done::Backfilled(Ended::Whole { ranges })) => {
                (Event::Backfilled { epoch }, format!("everything copied, in {ranges} ranges"))
            }
            (Wanted::Repair { number }, Done::Backfilled(Ended::Whole { .. })) => {
                let _ = self
                    .change("everything was copied once more", |record| {
                        record.repaired = record.repaired.max(number);
                        record.comparison += 1;
                        record.control.verified = false;
                    })
                    .await;
                return;
            }
            (Wanted::Comparison { epoch, .. }, Done::Compared(compared)) => {
                let Ended::Whole { ranges } = compared.ended else { return };
                let (entities, rows, differences) = (compared.entities, compared.rows, compared.total());
                let event =
                    Event::Compared { epoch, ranges_planned: ranges, ranges_compared: ranges, differences };
                let why = format!(
                    "compared {entities} entities in {ranges} ranges and {rows} rows of the target: {differences} differences"
                );
                (event, why)
            }
            _ => return,
        };
        let applied = match self.controller().await {
            Ok(mut controller) => controller.apply(event, &why).await.map(|_| ()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = applied {
            tracing::info!(%error, entity = self.entity(), "the report was not taken");
        }
        // What differs is looked at again when it has been seen to; everything else at once.
        if let Event::Compared { differences: 1.., .. } = event {
            let _ = self
                .change("paused: look at the differences, then repair or compare anew", |record| {
                    record.is_paused = true;
                })
                .await;
        }
    }

    /// A step towards where the migration is to go.
    async fn step(&self, record: &Record) -> Result<(), MoveError> {
        let Some(wanted) = record.wanted else { return Ok(()) };
        let phase = record.control.phase;
        let event = if wanted > phase { Event::Advance } else { Event::Rollback };
        let waits = matches!(phase, Phase::Handover | Phase::Switch);
        let waited_ms = record.phase_since().map_or(0, |since| self.clock.now().since(since));
        let applied = self.controller().await?.apply(event, "").await;
        match applied {
            Ok(_) => Ok(()),
            Err(error) if waits && waited_ms > HANDOVER_MAX_MS => {
                let back = if event == Event::Advance { Phase::Verify } else { Phase::ReadTarget };
                let why = format!("the handover was given up, back to {back}: {error}");
                self.change(&why, |record| record.wanted = Some(back)).await
            }
            Err(error) => Err(error),
        }
    }

    async fn view(&self, record: Record) -> Result<Status, MoveError> {
        let epoch = record.control.epoch;
        let mut backlog = BTreeMap::new();
        for which in [Which::Source, Which::Target] {
            let seen = match self.migrating.side(which) {
                Ok(side) => side.moving.backlog().await.ok(),
                Err(_) => None,
            };
            let view = seen.map(|Backlog { entities, oldest }| BacklogView { entities, oldest });
            backlog.insert(which, view);
        }
        let (mut blocked_by, mut instances) = (Vec::new(), Instances { confirmed: 0, behind: 0, gone: 0 });
        if let Ok(mut controller) = self.controller().await {
            let refusals = controller.refusals(Event::Advance).await?;
            blocked_by = refusals.iter().map(ToString::to_string).collect();
            let (_, followers) = controller.followers().await?;
            instances = Instances {
                confirmed: followers.confirmed.len(),
                behind: followers.behind.len(),
                gone: followers.gone.len(),
            };
        }
        Ok(Status {
            entity: self.entity(),
            phase: record.control.phase,
            wanted: record.wanted,
            is_paused: record.is_paused,
            instances,
            backlog,
            backfill: self.notes.reached("backfill", epoch).await?,
            verification: self.verification(&record).await?,
            dead_letters: self.notes.list_dead_letters(None, SHOWN_LETTERS_MAX).await?,
            blocked_by,
            phase_since: record.phase_since(),
            source: record.source,
            target: record.target,
            timeline: record.timeline,
        })
    }

    async fn verification(&self, record: &Record) -> StoreResult<Option<Verification>> {
        let number = comparison_number(record);
        let Some(reached) = self.notes.reached("verify", number).await? else { return Ok(None) };
        let found = self.notes.differences(number).await?;
        let mut differences = BTreeMap::new();
        found.iter().for_each(|difference| *differences.entry(difference.kind).or_default() += 1);
        let first_differences = found.into_iter().take(SHOWN_DIFFERENCES_MAX).collect();
        Ok(Some(Verification { reached, is_green: record.control.verified, differences, first_differences }))
    }
}

/// Long work that is under way in this process.
struct Running {
    what: Wanted,
    progress: Arc<Progress>,
    task: JoinHandle<StoreResult<Done>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.progress.stop();
    }
}

enum Done {
    Backfilled(Ended),
    Compared(Compared),
}

/// What a migration needs to have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Backfill { epoch: u64 },
    Repair { number: u64 },
    Comparison { epoch: u64, number: u64 },
}

impl Wanted {
    fn of(record: &Record) -> Option<Self> {
        let control = record.control;
        match control.phase {
            _ if record.is_paused => None,
            Phase::Backfill | Phase::Verify if record.repair > record.repaired => {
                Some(Self::Repair { number: record.repair })
            }
            Phase::Backfill if !control.backfilled => Some(Self::Backfill { epoch: control.epoch }),
            Phase::Verify if !control.verified => {
                Some(Self::Comparison { epoch: control.epoch, number: comparison_number(record) })
            }
            _ => None,
        }
    }
}

/// Each comparison of each epoch has a number of its own.
fn comparison_number(record: &Record) -> u64 {
    const COMPARISONS_PER_EPOCH: u64 = 1_000_000;
    record.control.epoch * COMPARISONS_PER_EPOCH + record.comparison
}

impl From<MoveError> for StoreError {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Store(error) => error,
            error => StoreError::Unavailable { what: error.to_string(), source: None },
        }
    }
}
