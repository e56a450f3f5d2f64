//! How an instance follows a migration, and how a migration is moved on.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use mobimir_core::{
    moving::{Movable, Whole},
    ports::{StoreError, StoreResult},
    time::Clock,
};
use thiserror::Error;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    lease::{Followers, Lease, Watch},
    phase::{Control, Event, Phase, Refusal, Seen, next},
    record::{Notes, Record},
    standing::Standing,
    timing::Timing,
};

/// One instance that follows.
pub struct Follower {
    notes: Notes,
    standing: Arc<Standing>,
    timing: Timing,
    instance: Uuid,
    /// Where the entity is without a migration.
    home: String,
    /// Whether there is a migration that this instance has to be counted in.
    is_counted: bool,
    confirmed: u64,
    beat: u64,
}

/// Opens what a migration needs; says whether it could.
pub type Prepare = Box<dyn Fn(Record) -> BoxFuture<'static, bool> + Send + Sync>;

/// Moves a migration on, if everything is as it must be.
pub struct Controller<W: Whole> {
    notes: Notes,
    source: Arc<dyn Movable<W>>,
    target: Arc<dyn Movable<W>>,
    clock: Arc<dyn Clock>,
    timing: Timing,
    watch: Watch,
}

#[derive(Debug, Error)]
pub enum MoveError {
    #[error("there is no migration of {0}")]
    NoMigration(&'static str),
    #[error("{}", Refusal::list(.0))]
    Refused(Vec<Refusal>),
    #[error("a migration of {entity} is under way already, in phase {phase}")]
    UnderWay { entity: &'static str, phase: Phase },
    #[error("{action} is for a migration that copies or compares, and this one is in the phase {phase}")]
    NotNow { action: &'static str, phase: Phase },
    #[error("the target {0} cannot be opened; see the log of this instance")]
    NoTarget(String),
    #[error("somebody else has moved the migration at the same moment; look and try again")]
    Overtaken,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Follower {
    pub fn new(notes: Notes, standing: Arc<Standing>, instance: Uuid, timing: Timing, home: &str) -> Self {
        let home = home.to_owned();
        Self {
            notes,
            standing,
            timing,
            instance,
            home,
            is_counted: false,
            confirmed: Control::NONE.epoch,
            beat: 0,
        }
    }

    /// Says that this instance is there, learns how far the migration is, and does as it says.
    ///
    /// The lease is written before the record is read: whoever moves the migration on after that has seen the lease. As
    /// long as there is no migration nobody writes leases, but all look for one, and serve only as long as they can: a
    /// migration waits at its beginning until all must have seen it.
    ///
    /// `prepare` opens what the migration needs; as long as it cannot, this instance does not confirm.
    pub async fn beat(&mut self, prepare: &Prepare) -> StoreResult<Control> {
        let started = Instant::now();
        if !self.is_counted {
            let record = self.notes.record().await?;
            self.is_counted = record.is_some_and(|read| !read.value.is_over(&self.home));
        }
        let (mut control, mut is_prepared) = (Control::NONE, true);
        if self.is_counted {
            self.beat += 1;
            let lease = Lease { instance: self.instance, confirmed: self.confirmed, beat: self.beat };
            self.notes.renew(&lease).await?;
            if let Some(record) = self.notes.record().await? {
                control = record.value.control;
                is_prepared = prepare(record.value).await;
            }
        }
        // Without the target only the source can be served, and nobody goes beyond that before all have confirmed.
        self.standing.follow(&control, started + self.timing.lease);
        if self.confirmed != control.epoch && is_prepared && self.is_drained(control.epoch).await {
            self.confirmed = control.epoch;
        }
        Ok(control)
    }

    async fn is_drained(&self, epoch: u64) -> bool {
        // Not longer, or the lease would end over it.
        tokio::time::timeout(self.timing.beat, self.standing.drained(epoch)).await.is_ok()
    }

    /// Follows until the future that runs this is dropped.
    pub async fn run(&mut self, prepare: Prepare) {
        loop {
            let before = self.confirmed;
            if let Err(error) = self.beat(&prepare).await {
                tracing::warn!(%error, entity = self.notes.entity(), "cannot follow the migration");
            }
            // What has just been confirmed is said at once: others wait for it.
            let pause = if self.confirmed == before { self.timing.beat } else { Duration::ZERO };
            tokio::time::sleep(pause).await;
        }
    }

    /// The instance serves nothing any more.
    pub async fn end(&self) -> StoreResult<()> {
        self.notes.end_lease(self.instance).await
    }
}

impl<W: Whole> Controller<W> {
    pub fn new(
        notes: Notes,
        source: Arc<dyn Movable<W>>,
        target: Arc<dyn Movable<W>>,
        clock: Arc<dyn Clock>,
        timing: Timing,
    ) -> Self {
        Self { notes, source, target, clock, timing, watch: Watch::new(&timing) }
    }

    /// Who follows the phase that the migration is in.
    pub async fn followers(&mut self) -> Result<(Record, Followers), MoveError> {
        let record = self.notes.record().await?.ok_or(MoveError::NoMigration(self.notes.entity()))?;
        let leases = self.notes.leases().await?;
        let now = Instant::now();
        self.watch.look(&leases, now);
        let followers = self.watch.followers(record.value.control.epoch, now);
        Ok((record.value, followers))
    }

    /// What speaks against it now. Some of it goes away by waiting.
    pub async fn refusals(&mut self, event: Event) -> Result<Vec<Refusal>, MoveError> {
        let read = self.notes.record().await?.ok_or(MoveError::NoMigration(self.notes.entity()))?;
        let seen = self.seen(&read.value.control).await?;
        Ok(next(&read.value.control, event, &seen).err().unwrap_or_default())
    }

    /// Does what is asked if nothing speaks against it. An instance that was just heard of for the first time may be one
    /// that is gone, so whoever asks once is told to wait.
    pub async fn apply(&mut self, event: Event, why: &str) -> Result<Control, MoveError> {
        let read = self.notes.record().await?.ok_or(MoveError::NoMigration(self.notes.entity()))?;
        let control = read.value.control;
        let seen = self.seen(&control).await?;
        let moved = next(&control, event, &seen).map_err(MoveError::Refused)?;
        let what = match (control.phase == moved.phase, why) {
            (true, why) => why.to_owned(),
            (false, "") => format!("{} after {}", moved.phase, control.phase),
            (false, why) => format!("{} after {}: {why}", moved.phase, control.phase),
        };
        let record = read.value.with(moved, self.clock.now(), what);
        if self.notes.replace_record(Some(read.revision), &record).await? {
            Ok(moved)
        } else {
            Err(MoveError::Overtaken)
        }
    }

    /// Removes what those have left who will not come back.
    pub async fn forget(&mut self) -> StoreResult<()> {
        for instance in self.watch.forgotten(Instant::now()) {
            self.notes.end_lease(instance).await?;
        }
        Ok(())
    }

    async fn seen(&mut self, control: &Control) -> Result<Seen, MoveError> {
        let leases = self.notes.leases().await?;
        let now = Instant::now();
        self.watch.look(&leases, now);
        let followers = self.watch.followers(control.epoch, now);
        let is_first = control.phase == Phase::Source;
        let unaware =
            is_first && followers.settled_for.is_none_or(|settled| settled < self.timing.write_timeout);
        let writes_may_be_late = unaware || followers.may_be_late;
        // In this order: what is written while the one is counted is marked before the other is.
        let source_backlog = self.source.backlog().await.ok().map(|backlog| backlog.entities);
        let target_backlog = self.target.backlog().await.ok().map(|backlog| backlog.entities);
        let dead_letters = self.notes.dead_letters().await.ok();
        Ok(Seen {
            unconfirmed: followers.behind.len() as u64,
            writes_may_be_late,
            source_backlog,
            target_backlog,
            dead_letters,
        })
    }
}

impl Refusal {
    fn list(refusals: &[Refusal]) -> String {
        refusals.iter().map(Refusal::to_string).collect::<Vec<_>>().join("; ")
    }
}
