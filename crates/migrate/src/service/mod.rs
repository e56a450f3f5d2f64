//! One entity's migration in one process: follows it, copies what is marked, does the long work if nobody else does, and
//! takes what operators ask for.
//!
//! - [`wishes`]: what operators ask for; [`work`]: the long work, and the steps of the migration;
//! - [`status`]: all of it as people look at it; [`metrics`]: as machines do.

mod metrics;
mod status;
mod wishes;
mod work;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use mobimir_core::{
    invariant::InvariantCounters,
    moving::{Side, Whole},
    ports::{StoreError, StoreResult},
    time::Clock,
};
use tokio::{sync::MappedMutexGuard, time::sleep};
use uuid::Uuid;

use crate::{
    backfill::Months,
    dry_run::{self, DryRun},
    follow::{Controller, Follower, MoveError},
    migrating::Migrating,
    phase::Which,
    record::{Notes, Record},
    throttle::Pressure,
    timing::Timing,
};

pub use self::status::{BacklogView, Instances, JobView, LookedThrough, RepairView, Status, Verification};

/// How often what is marked is copied.
const RECONCILE_PERIOD: Duration = Duration::from_millis(500);
/// How often an instance tells what its shadow reads came to.
const SHADOW_TOLD_PERIOD: Duration = Duration::from_secs(2);
/// How often the migration is looked at for those who watch by machine.
const OBSERVE_PERIOD: Duration = Duration::from_secs(10);

/// How long a dry run waits for the target.
const PLAN_OPENS_MAX: Duration = Duration::from_secs(3);

/// Opens the store that a record names.
pub type Opener<W, P> = Box<dyn Fn(Record) -> BoxFuture<'static, StoreResult<Side<W, P>>> + Send + Sync>;

pub struct Entity<W: Whole, P: ?Sized> {
    pub migrating: Arc<Migrating<W, P>>,
    pub notes: Notes,
    pub open: Opener<W, P>,
    pub clock: Arc<dyn Clock>,
    pub pressure: Arc<dyn Pressure>,
    pub invariants: Arc<InvariantCounters>,
    pub timing: Timing,
    /// How often everything is compared again after the switch.
    pub recheck_period: Duration,
    pub instance: Uuid,
    /// The store that it is in without a migration, and the one that it may go to, as the policy calls them.
    pub home: String,
    pub other: String,
    /// Made when there is a migration. One for all, because it remembers who was heard of when.
    pub controller: tokio::sync::Mutex<Option<Controller<W>>>,
    /// As it was when it was last looked at.
    pub observed: Mutex<Option<Status>>,
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
    /// What differs is mended, and what could not be copied is tried again.
    Repair,
    /// These months are copied first, or everything.
    Months(Option<Months>),
}

/// A migration, of whatever entity.
#[async_trait]
pub trait Migration: Send + Sync {
    fn entity(&self) -> &'static str;

    /// `None` when there is none.
    async fn status(&self) -> Result<Option<Status>, MoveError>;

    /// What a migration would be. Writes nothing.
    async fn plan(&self) -> Result<DryRun, MoveError>;

    async fn act(&self, action: Action) -> Result<Status, MoveError>;

    /// Lines for `/metrics`, in the OpenMetrics text format.
    fn metrics(&self) -> Vec<metrics::Line>;

    /// Follows and works until it is dropped.
    async fn run(self: Arc<Self>);

    /// Waits until this instance knows how far the migration is, but not for ever.
    async fn ready(&self);

    /// Once nothing is served any more.
    async fn end(&self);
}

pub use self::metrics::text as metrics_text;

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

    async fn plan(&self) -> Result<DryRun, MoveError> {
        let source = self.migrating.side(Which::Source)?;
        let record = Record::new(&self.home, &self.other, self.clock.now());
        let target = match self.migrating.side(Which::Target) {
            Ok(target) => Ok(target.clone()),
            Err(_) => match tokio::time::timeout(PLAN_OPENS_MAX, (self.open)(record)).await {
                Ok(opened) => opened,
                Err(_) => Err(StoreError::Unavailable { what: "it took too long".to_owned(), source: None }),
            },
        };
        let target = target.map(|target| target.moving).map_err(|error| error.to_string());
        let names = [self.home.clone(), self.other.clone()];
        Ok(dry_run::look(self.entity(), names, &*source.moving, target).await?)
    }

    async fn act(&self, action: Action) -> Result<Status, MoveError> {
        self.take(action).await?;
        self.status().await?.ok_or(MoveError::NoMigration(self.entity()))
    }

    fn metrics(&self) -> Vec<metrics::Line> {
        self.lines()
    }

    async fn run(self: Arc<Self>) {
        let standing = self.migrating.standing().clone();
        let environment = self.migrating.environment();
        let mut follower =
            Follower::new(self.notes.clone(), standing, self.instance, self.timing, &self.home)
                .counting_in(self.invariants.clone())
                .feeling(self.pressure.clone())
                .with_tasks(environment.tasks.clone());
        let entity = self.clone();
        let follow = follower.run(Box::new(move |record| {
            let entity = entity.clone();
            Box::pin(async move {
                entity.migrating.shadow().follow(&record);
                entity.prepare(&record).await
            })
        }));
        tokio::join!(follow, self.reconcile(), self.work(), self.tell_shadow(), self.observe());
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
        if record.target != self.other {
            tracing::error!(
                entity = self.entity(),
                target = record.target,
                migration_store = self.other,
                "a migration goes elsewhere than this instance's policy says"
            );
            return false;
        }
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

    async fn controller(&self) -> StoreResult<MappedMutexGuard<'_, Controller<W>>> {
        let mut held = self.controller.lock().await;
        if held.is_none() {
            let [source, target] = [Which::Source, Which::Target].map(|which| self.migrating.side(which));
            let (source, target) = (source?.moving.clone(), target?.moving.clone());
            let (notes, clock) = (self.notes.clone(), self.clock.clone());
            let controller = Controller::new(notes, source, target, clock, self.timing);
            *held = Some(controller.with_planted(self.migrating.environment().planted));
        }
        tokio::sync::MutexGuard::try_map(held, Option::as_mut).map_err(|_| StoreError::Unavailable {
            what: "the migration cannot be looked at".to_owned(),
            source: None,
        })
    }

    async fn reconcile(&self) {
        loop {
            let (phase, _) = self.migrating.standing().phase();
            for which in phase.marked().iter().copied() {
                let Ok(mirror) = self.migrating.mirror_of(which) else { continue };
                match mirror.reconcile().await {
                    Ok(reconciled) => self.set_aside(reconciled.failed).await,
                    Err(error) => {
                        tracing::debug!(%error, entity = self.entity(), "what is marked could not be read");
                    }
                }
            }
            sleep(RECONCILE_PERIOD).await;
        }
    }

    /// What can never be copied is for somebody to look at. Its mark stays, and so nothing goes on without it.
    async fn set_aside(&self, failed: Vec<(String, StoreError)>) {
        for (key, error) in failed {
            if !matches!(error, StoreError::Corrupt { .. })
                || self.notes.is_set_aside(&key).await.unwrap_or(true)
            {
                continue;
            }
            tracing::warn!(entity = self.entity(), key, %error, "cannot be copied");
            let _ = self.notes.put_aside(&key, error.to_string(), self.clock.now()).await;
        }
    }

    async fn tell_shadow(&self) {
        let mut told = None;
        loop {
            sleep(SHADOW_TOLD_PERIOD).await;
            let current = self.migrating.shadow().current();
            if let Some((number, counted)) = &current
                && told != current
                && self.notes.tell_shadow(*number, self.instance, counted).await.is_ok()
            {
                told = current;
            }
        }
    }

    async fn observe(&self) {
        loop {
            sleep(OBSERVE_PERIOD).await;
            let status = self.status().await.ok().flatten();
            *self.observed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = status;
        }
    }
}

impl From<MoveError> for StoreError {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Store(error) => error,
            error => StoreError::Unavailable { what: error.to_string(), source: None },
        }
    }
}
