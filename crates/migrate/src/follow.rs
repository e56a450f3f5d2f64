//! How an instance follows a migration, and how a migration is moved on.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use mobimir_core::{
    invariant::{Invariant, InvariantCounters},
    moving::{Movable, Whole},
    ports::{StoreError, StoreResult},
    tasks::{Spawn, TokioTasks},
    time::Clock,
};
use thiserror::Error;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    environment::{Joined, Planted, run},
    lease::{Followers, Lease, Watch},
    phase::{Control, Event, Phase, Refusal, Seen, Which, Writes, next},
    record::{Notes, Record},
    standing::Standing,
    throttle::{Nobody, Pressure},
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
    invariants: Arc<InvariantCounters>,
    pressure: Arc<dyn Pressure>,
    /// What opens the target, while it takes longer than a beat.
    preparing: Option<Joined<bool>>,
    tasks: Arc<dyn Spawn>,
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
    planted: Option<Planted>,
}

#[derive(Debug, Error)]
pub enum MoveError {
    #[error("there is no migration of {0}")]
    NoMigration(&'static str),
    #[error("{}", Refusal::list(.0))]
    Refused(Vec<Refusal>),
    #[error("a migration of {entity} is under way already, in phase {phase}")]
    UnderWay { entity: &'static str, phase: Phase },
    #[error("{action} has no meaning in the phase {phase}")]
    NotNow { action: &'static str, phase: Phase },
    #[error("{0} are of the present and belong to no months; only orders do")]
    NoMonths(&'static str),
    #[error("the target {0} cannot be opened; see the log of this instance")]
    NoTarget(String),
    #[error("a repair is under way; wait until it has ended")]
    Repairing,
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
            invariants: Arc::default(),
            pressure: Arc::new(Nobody),
            preparing: None,
            tasks: Arc::new(TokioTasks),
        }
    }

    /// Has tasks run there.
    #[must_use]
    pub fn with_tasks(self, tasks: Arc<dyn Spawn>) -> Self {
        Self { tasks, ..self }
    }

    /// Counts what it sees of promises kept and broken.
    #[must_use]
    pub fn counting_in(self, invariants: Arc<InvariantCounters>) -> Self {
        Self { invariants, ..self }
    }

    /// Tells the others what shoppers feel here.
    #[must_use]
    pub fn feeling(self, pressure: Arc<dyn Pressure>) -> Self {
        Self { pressure, ..self }
    }

    /// Says that this instance is there, learns how far the migration is, and does as it says.
    ///
    /// The lease is written before the record is read: whoever moves the migration on after that has seen the lease. As
    /// long as there is no migration nobody writes leases, but all look for one, and serve only as long as they can: a
    /// migration waits at its beginning until all must have seen it.
    ///
    /// `prepare` opens what the migration needs; as long as it cannot, this instance does not confirm, unless the
    /// migration goes back to where nobody needs it. A migration that begins elsewhere than where this instance has the
    /// entity is not followed at all: what it calls its source is another store here.
    pub async fn beat(&mut self, prepare: &Prepare) -> StoreResult<Control> {
        let lease = self.standing.lease_from_now();
        if !self.is_counted {
            let record = self.notes.record().await?;
            self.is_counted = record.is_some_and(|read| !read.value.is_over(&self.home));
        }
        let (mut control, mut is_prepared, mut goes_back) = (Control::NONE, true, false);
        if self.is_counted {
            self.beat += 1;
            let felt_permille = permille(self.pressure.now().level);
            let (instance, confirmed, beat) = (self.instance, self.confirmed, self.beat);
            self.notes.renew(&Lease { instance, confirmed, beat, felt_permille }).await?;
            if let Some(read) = self.notes.record().await? {
                let record = read.value;
                if record.is_over(&self.home) {
                    // What goes on from here begins with another one.
                    self.is_counted = false;
                    self.standing.follow(&Control::NONE, lease);
                    return Ok(Control::NONE);
                }
                if record.source != self.home {
                    tracing::error!(
                        entity = self.notes.entity(),
                        home = self.home,
                        source = record.source,
                        "a migration begins elsewhere than this instance's policy says; it stops serving"
                    );
                    return Ok(record.control);
                }
                (control, goes_back) = (record.control, record.goes_back());
                is_prepared = self.is_prepared(prepare, record).await;
            }
        }
        // Without the target only the source can be served, and nobody goes beyond that before all have confirmed.
        let reads_source = control.phase.rights().reads == Which::Source;
        if is_prepared || reads_source {
            let is_near = self.standing.follow(&control, lease);
            if self.is_counted && !self.invariants.check(Invariant::Mig3, is_near) {
                tracing::error!(entity = self.notes.entity(), phase = %control.phase, "this instance was left behind");
            }
        }
        let can_confirm = is_prepared || (reads_source && goes_back);
        if self.confirmed != control.epoch && can_confirm && self.is_drained(control.epoch).await {
            self.confirmed = control.epoch;
        }
        Ok(control)
    }

    /// Not waited for longer than a beat, or the lease would end over it; it goes on beside the next ones.
    async fn is_prepared(&mut self, prepare: &Prepare, record: Record) -> bool {
        let mut preparing = self.preparing.take().unwrap_or_else(|| run(&*self.tasks, prepare(record)));
        match tokio::time::timeout(self.timing.beat, preparing.outcome()).await {
            Ok(prepared) => prepared.unwrap_or(false),
            Err(_) => {
                self.preparing = Some(preparing);
                false
            }
        }
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
        Self { notes, source, target, clock, timing, watch: Watch::new(&timing), planted: None }
    }

    /// With a fault that a test puts back.
    #[must_use]
    pub fn with_planted(self, planted: Option<Planted>) -> Self {
        Self { planted, ..self }
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
        let seen = self.seen(&read.value, event).await?;
        Ok(next(&read.value.control, event, &seen).err().unwrap_or_default())
    }

    /// Does what is asked if nothing speaks against it. An instance that was just heard of for the first time may be one
    /// that is gone, so whoever asks once is told to wait.
    pub async fn apply(&mut self, event: Event, why: &str) -> Result<Control, MoveError> {
        self.apply_if(event, why, |_| true).await
    }

    /// The same, if the record is still what the event is about.
    pub async fn apply_if(
        &mut self,
        event: Event,
        why: &str,
        is_meant: impl Fn(&Record) -> bool,
    ) -> Result<Control, MoveError> {
        let read = self.notes.record().await?.ok_or(MoveError::NoMigration(self.notes.entity()))?;
        if !is_meant(&read.value) {
            return Err(MoveError::Overtaken);
        }
        let control = read.value.control;
        let seen = self.seen(&read.value, event).await?;
        self.settle(&control, &seen).await;
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

    /// In a handover that all have confirmed nobody writes, so whoever left a mark without an end is not at it any more.
    async fn settle(&self, control: &Control, seen: &Seen) {
        let waits = control.phase.rights().writes == Writes::Wait;
        if !waits || seen.unconfirmed > 0 || seen.writes_may_be_late {
            return;
        }
        for (store, backlog) in [(&self.source, seen.source_backlog), (&self.target, seen.target_backlog)] {
            if backlog.is_some_and(|entities| entities > 0)
                && let Err(error) = store.nobody_writes().await
            {
                tracing::debug!(%error, entity = self.notes.entity(), "what was left could not be looked at");
            }
        }
    }

    /// What shoppers of other instances feel, where they feel most, when it was last looked.
    pub fn felt(&self, not_at: Uuid) -> f64 {
        f64::from(self.watch.felt_permille(not_at, Instant::now())) / 1_000.0
    }

    /// Removes what those have left who will not come back.
    pub async fn forget(&mut self) -> StoreResult<()> {
        for instance in self.watch.forgotten(Instant::now()) {
            self.notes.end_lease(instance).await?;
        }
        Ok(())
    }

    async fn seen(&mut self, record: &Record, event: Event) -> Result<Seen, MoveError> {
        let (control, leases) = (&record.control, self.notes.leases().await?);
        let now = Instant::now();
        self.watch.look(&leases, now);
        let followers = self.watch.followers(control.epoch, now);
        let is_first = control.phase == Phase::Source;
        // Somebody who cannot read the notes serves until his lease is over, and what he began then may still come.
        let until_aware = self.timing.lease + self.timing.lease_margin + self.timing.write_timeout;
        let unaware = is_first && followers.settled_for.is_none_or(|settled| settled < until_aware);
        // Whoever has confirmed and died since would be waited for by everybody.
        let is_before_handover = matches!(control.phase, Phase::Verify | Phase::ReadTarget);
        let writes_may_be_late =
            unaware || followers.may_be_late || (is_before_handover && followers.is_anyone_silent);
        // In this order: what is written while the one is counted is marked before the other is.
        let (mut source_backlog, mut target_backlog, mut mirror_is_late) = (None, None, false);
        for which in control.phase.counted(event) {
            let (store, backlog) = match which {
                Which::Source => (&self.source, &mut source_backlog),
                Which::Target => (&self.target, &mut target_backlog),
            };
            let waits = store.backlog().await.ok();
            let decides = control.phase.rights().reads == *which;
            if let Some(oldest) = waits.and_then(|waits| waits.oldest).filter(|_| decides) {
                let age_ms = u128::try_from(self.clock.now().since(oldest)).unwrap_or_default();
                mirror_is_late = age_ms > self.timing.mirror_age_max.as_millis();
            }
            *backlog = waits.map(|waits| waits.entities);
        }
        let dead_letters = self.notes.dead_letters().await.ok();
        let shadow_differences = match control.phase {
            Phase::Verify => {
                self.notes.shadow(record.comparison_number()).await.ok().map(|told| told.different)
            }
            _ => Some(0),
        };
        let seen = Seen {
            unconfirmed: followers.behind.len() as u64,
            writes_may_be_late,
            source_backlog,
            target_backlog,
            mirror_is_late,
            dead_letters,
            shadow_differences,
        };
        Ok(self.with_fault(seen))
    }

    fn with_fault(&self, seen: Seen) -> Seen {
        match self.planted {
            Some(Planted::UnconfirmedPhaseLeft) => Seen { unconfirmed: 0, writes_may_be_late: false, ..seen },
            _ => seen,
        }
    }
}

fn permille(level: f64) -> u32 {
    (level.clamp(0.0, 1_000.0) * 1_000.0) as u32
}

impl Refusal {
    fn list(refusals: &[Refusal]) -> String {
        refusals.iter().map(Refusal::to_string).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use mobimir_core::time::SystemClock;
    use mobimir_testkit::model::ModelStore;

    use super::*;

    async fn following(phase: Phase) -> (Follower, Arc<Standing>) {
        following_record("here", phase, None).await
    }

    async fn following_record(
        source: &str,
        phase: Phase,
        wanted: Option<Phase>,
    ) -> (Follower, Arc<Standing>) {
        let (timing, notes) = (Timing::default(), Notes::new(Arc::new(ModelStore::default()), "carts"));
        let mut record = Record::new(source, "there", SystemClock.now());
        (record.control.phase, record.wanted) = (phase, wanted);
        assert!(notes.replace_record(None, &record).await.unwrap());
        let standing = Standing::new(&timing);
        (Follower::new(notes, standing.clone(), Uuid::from_u128(1), timing, "here"), standing)
    }

    /// The target hangs, and whoever starts just then sells all the same, for as long as it takes.
    #[tokio::test(start_paused = true)]
    async fn the_source_is_served_while_the_target_does_not_open() {
        let (mut follower, standing) = following(Phase::DualWrite).await;
        let never: Prepare = Box::new(|_| Box::pin(std::future::pending()));
        for _ in 0..20 {
            follower.beat(&never).await.unwrap();
            assert_eq!(standing.read_from().unwrap(), Which::Source);
            assert!(standing.begin_write().await.unwrap().mirrored);
            tokio::time::sleep(follower.timing.beat).await;
        }
        assert_eq!(follower.confirmed, Control::NONE.epoch, "it cannot do what the phase asks for");
    }

    /// The others have been told already that the entity lives elsewhere.
    #[tokio::test(start_paused = true)]
    async fn a_migration_from_another_store_than_this_instances_is_not_followed() {
        let (mut follower, standing) = following_record("elsewhere", Phase::Source, None).await;
        let at_once: Prepare = Box::new(|_| Box::pin(async { true }));
        for _ in 0..3 {
            follower.beat(&at_once).await.unwrap();
        }
        assert!(standing.read_from().is_err() && standing.begin_write().await.is_err());
        assert_eq!(follower.confirmed, Control::NONE.epoch);
    }

    /// Else everybody would wait in a handover that is given up because the target does not open.
    #[tokio::test(start_paused = true)]
    async fn whoever_goes_back_needs_no_target() {
        let never: Prepare = Box::new(|_| Box::pin(std::future::pending()));
        for (wanted, is_confirmed) in [(Phase::ReadTarget, false), (Phase::Verify, true)] {
            let (mut follower, _) = following_record("here", Phase::Handover, Some(wanted)).await;
            let control = follower.beat(&never).await.unwrap();
            assert_eq!(follower.confirmed == control.epoch, is_confirmed, "{wanted}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_target_is_served_when_it_is_open_however_long_that_takes() {
        let (mut follower, standing) = following(Phase::ReadTarget).await;
        let slow: Prepare = Box::new(|_| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                true
            })
        });
        follower.beat(&slow).await.unwrap();
        assert!(standing.read_from().is_err());
        for _ in 0..5 {
            follower.beat(&slow).await.unwrap();
        }
        assert_eq!(standing.read_from().unwrap(), Which::Target);
    }
}
