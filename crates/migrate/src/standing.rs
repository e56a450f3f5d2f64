//! What this instance may do now, and what it is doing.
//!
//! Every operation asks here first. A write holds a [`Permit`] until it has ended; an instance says that it follows a new
//! phase only when no write is left that began in an earlier one, and none that ended without an answer can still arrive.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mobimir_core::{
    ports::{StoreError, StoreResult},
    time::{Clock, Moment},
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    phase::{Control, Phase, Which, Writes},
    timing::Timing,
};

pub struct Standing {
    timing: Timing,
    clock: Option<Arc<dyn Clock>>,
    state: Mutex<State>,
    /// Told of every change: of the phase, of the lease, and of the last write of a phase.
    changes: Notify,
}

struct State {
    phase: Phase,
    epoch: u64,
    /// Until when this instance may serve. `None` before it has ever been told.
    until: Option<LeaseEnd>,
    /// Writes under way, by the epoch in which they began.
    under_way: BTreeMap<u64, usize>,
    /// When a write last ended without anybody knowing whether it will still happen, by the epoch in which it began.
    uncertain: BTreeMap<u64, Instant>,
    in_doubt: InDoubt,
}

/// Writes that ended while nobody knew whether they will still happen. A handover waits until they cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InDoubt {
    /// The store did not say what became of them.
    pub unanswered: u64,
    /// Whoever ran them stopped before the store answered.
    pub abandoned: u64,
}

/// What is known of a write when its permit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Answered,
    Unanswered,
    Abandoned,
}

/// When a lease ends, by the monotonic clock and by those of the machine. In a virtual machine that was paused
/// the monotonic clock stood still while the others took the instance for dead.
#[derive(Clone, Copy, Debug)]
pub struct LeaseEnd {
    at: Instant,
    began: Option<(Moment, i64)>,
}

impl From<Instant> for LeaseEnd {
    fn from(at: Instant) -> Self {
        Self { at, began: None }
    }
}

/// A write under way.
pub struct Permit {
    standing: Arc<Standing>,
    epoch: u64,
    pub store: Which,
    pub mirrored: bool,
    outcome: Outcome,
}

impl Standing {
    /// Of an instance that has not been told anything yet, and serves nothing.
    pub fn new(timing: &Timing) -> Arc<Self> {
        Self::build(timing, None)
    }

    /// The same, where leases end by these clocks, too.
    pub fn with_clock(timing: &Timing, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::build(timing, Some(clock))
    }

    fn build(timing: &Timing, clock: Option<Arc<dyn Clock>>) -> Arc<Self> {
        let state = State {
            phase: Phase::Source,
            epoch: 0,
            until: None,
            under_way: BTreeMap::new(),
            uncertain: BTreeMap::new(),
            in_doubt: InDoubt::default(),
        };
        Arc::new(Self { timing: *timing, clock, state: Mutex::new(state), changes: Notify::new() })
    }

    /// Where reads go.
    pub fn read_from(&self) -> StoreResult<Which> {
        let state = self.state();
        self.serves(&state)?;
        Ok(state.phase.rights().reads)
    }

    /// Waits until this instance may write, but not for ever.
    pub async fn begin_write(self: &Arc<Self>) -> StoreResult<Permit> {
        let deadline = Instant::now() + self.timing.handover_wait_max;
        loop {
            // Before the look, so that no change after it is missed.
            let mut changed = pin!(self.changes.notified());
            changed.as_mut().enable();
            if let Some(permit) = self.permit()? {
                return Ok(permit);
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Err(unavailable("writes are being handed over to another store and wait; try again"));
            }
        }
    }

    /// `None` while writes wait.
    fn permit(self: &Arc<Self>) -> StoreResult<Option<Permit>> {
        let mut state = self.state();
        self.serves(&state)?;
        let Writes::To { store, mirrored } = state.phase.rights().writes else { return Ok(None) };
        let epoch = state.epoch;
        *state.under_way.entry(epoch).or_default() += 1;
        let outcome = Outcome::Abandoned;
        Ok(Some(Permit { standing: self.clone(), epoch, store, mirrored, outcome }))
    }

    /// When a lease that begins now ends.
    pub fn lease_from_now(&self) -> LeaseEnd {
        let lease = self.timing.lease;
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let began = self.clock.as_ref().map(|clock| (clock.moment(), lease_ms));
        LeaseEnd { at: Instant::now() + lease, began }
    }

    fn has_ended(&self, lease: LeaseEnd) -> bool {
        let ended_by_clocks = match (&self.clock, lease.began) {
            (Some(clock), Some((began, lease_ms))) => clock.moment().since(began) >= lease_ms,
            _ => false,
        };
        ended_by_clocks || Instant::now() >= lease.at
    }

    /// An instance that has not been heard of for long enough is taken for dead by the others, so it must not
    /// serve.
    fn serves(&self, state: &State) -> StoreResult<()> {
        match state.until {
            Some(until) if !self.has_ended(until) => Ok(()),
            Some(_) => {
                Err(unavailable("this instance has lost touch with the migration and stopped serving"))
            }
            None => Err(unavailable("this instance does not know yet how far the migration is")),
        }
    }

    /// From now on this instance does as the phase says, and until `until` if it is told nothing else. Says whether that
    /// is no more than one phase from what it has done so far, as it must be if it still served.
    pub fn follow(&self, control: &Control, until: impl Into<LeaseEnd>) -> bool {
        let is_near;
        let until = until.into();
        {
            let mut state = self.state();
            let served = state.until.is_some_and(|until| !self.has_ended(until));
            is_near = !served || state.phase.is_within_a_step_of(control.phase);
            (state.phase, state.epoch, state.until) = (control.phase, control.epoch, Some(until));
        }
        self.changes.notify_waiters();
        is_near
    }

    /// From the beginning of a write until it is given up.
    pub fn write_timeout(&self) -> Duration {
        self.timing.write_timeout
    }

    pub fn in_doubt(&self) -> InDoubt {
        self.state().in_doubt
    }

    pub fn phase(&self) -> (Phase, u64) {
        let state = self.state();
        (state.phase, state.epoch)
    }

    /// Waits until no write that began before `epoch` is under way or can still arrive.
    pub async fn drained(&self, epoch: u64) {
        loop {
            let mut changed = pin!(self.changes.notified());
            changed.as_mut().enable();
            if self.state().under_way.range(..epoch).next().is_none() {
                break;
            }
            changed.await;
        }
        let uncertain = self.state().uncertain.range(..epoch).map(|(_, ended_at)| *ended_at).max();
        if let Some(ended_at) = uncertain {
            tokio::time::sleep_until(ended_at + self.timing.write_timeout).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The store has said what became of the write, so nothing of it comes later.
    pub fn answered(mut self) {
        self.outcome = Outcome::Answered;
    }

    /// The store has not said it, and the write may still arrive.
    pub fn unanswered(mut self) {
        self.outcome = Outcome::Unanswered;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        {
            let mut state = self.standing.state();
            match self.outcome {
                Outcome::Answered => {}
                Outcome::Unanswered => state.in_doubt.unanswered += 1,
                Outcome::Abandoned => state.in_doubt.abandoned += 1,
            }
            if self.outcome != Outcome::Answered {
                let (now, write_timeout) = (Instant::now(), self.standing.timing.write_timeout);
                state.uncertain.retain(|_, ended_at| now.duration_since(*ended_at) < write_timeout);
                state.uncertain.insert(self.epoch, now);
            }
            if let Some(under_way) = state.under_way.get_mut(&self.epoch) {
                *under_way -= 1;
                if *under_way == 0 {
                    state.under_way.remove(&self.epoch);
                }
            }
        }
        self.standing.changes.notify_waiters();
    }
}

fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable { what: what.to_owned(), source: None }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a unit test has a runtime of its own")]
mod tests {
    use mobimir_core::time::{ManualClock, Timestamp};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn at(phase: Phase, epoch: u64) -> Control {
        Control { phase, epoch, ..Control::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_serves_only_while_its_lease_lasts() {
        let standing = Standing::new(&Timing::default());
        assert!(standing.read_from().is_err());
        standing.follow(&at(Phase::Verify, 3), Instant::now() + LONG);
        assert_eq!(standing.read_from().unwrap(), Which::Source);
        assert!(standing.begin_write().await.unwrap().mirrored);
        tokio::time::advance(LONG).await;
        assert!(standing.read_from().is_err());
        assert!(standing.begin_write().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_the_handover_and_then_goes_to_the_other_store() {
        let standing = Standing::new(&Timing::default());
        standing.follow(&at(Phase::Handover, 4), Instant::now() + LONG);
        let waiting = tokio::spawn({
            let standing = standing.clone();
            async move { standing.begin_write().await.map(|permit| permit.store) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        standing.follow(&at(Phase::ReadTarget, 6), Instant::now() + LONG);
        assert_eq!(waiting.await.unwrap().unwrap(), Which::Target);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let standing = Standing::new(&Timing::default());
        standing.follow(&at(Phase::Handover, 4), Instant::now() + LONG);
        let started = Instant::now();
        assert!(standing.begin_write().await.is_err());
        assert_eq!(started.elapsed(), Timing::default().handover_wait_max);
    }

    #[tokio::test(start_paused = true)]
    async fn a_phase_is_followed_when_the_writes_of_the_one_before_have_ended() {
        let standing = Standing::new(&Timing::default());
        standing.follow(&at(Phase::Verify, 3), Instant::now() + LONG);
        let permit = standing.begin_write().await.unwrap();
        standing.follow(&at(Phase::Handover, 4), Instant::now() + LONG);
        let drained = tokio::spawn({
            let standing = standing.clone();
            async move { standing.drained(4).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!drained.is_finished());
        permit.answered();
        drained.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_is_waited_for_until_it_cannot_arrive_any_more() {
        let standing = Standing::new(&Timing::default());
        standing.follow(&at(Phase::Verify, 3), Instant::now() + LONG);
        standing.begin_write().await.unwrap().unanswered();
        drop(standing.begin_write().await.unwrap());
        standing.begin_write().await.unwrap().answered();
        assert_eq!(standing.in_doubt(), InDoubt { unanswered: 1, abandoned: 1 });
        let started = Instant::now();
        standing.drained(3).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        standing.drained(4).await;
        assert_eq!(started.elapsed(), Timing::default().write_timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_write_without_an_answer_does_not_hide_an_earlier_one() {
        let standing = Standing::new(&Timing::default());
        standing.follow(&at(Phase::Source, 3), Instant::now() + LONG);
        let earlier = standing.begin_write().await.unwrap();
        standing.follow(&at(Phase::DualWrite, 4), Instant::now() + LONG);
        drop(earlier);
        drop(standing.begin_write().await.unwrap());
        let started = Instant::now();
        standing.drained(4).await;
        assert_eq!(started.elapsed(), Timing::default().write_timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_also_where_the_monotonic_clock_stood_still() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        let timing = Timing::default();
        let standing = Standing::with_clock(&timing, clock.clone());
        let lease_ms = i64::try_from(timing.lease.as_millis()).unwrap();
        standing.follow(&at(Phase::DualWrite, 3), standing.lease_from_now());
        assert!(standing.read_from().is_ok());
        // The machine was paused, and its wall clock set right afterwards.
        clock.shift_wall_ms(lease_ms);
        assert!(standing.read_from().is_err(), "the others have taken this instance for dead");
        assert!(standing.begin_write().await.is_err());
        standing.follow(&at(Phase::DualWrite, 3), standing.lease_from_now());
        clock.shift_wall_ms(-60_000);
        clock.advance_ms(lease_ms - 1);
        assert!(standing.read_from().is_ok(), "a clock that is set back ends nothing early");
        clock.advance_ms(1);
        assert!(standing.read_from().is_err(), "suspended");
    }
}
