//! What is known of one member, and whether it may answer. Pure: the time is passed in.

use std::time::{Duration, Instant};

use mobimir_core::reading::Position;

use super::beats::{Beat, Beats};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberRole {
    Primary,
    Secondary,
    /// Away, starting, recovering, or no bearer of data.
    Other,
}

#[derive(Debug)]
pub(super) struct Member {
    role: MemberRole,
    seen: Option<Seen>,
    /// The highest beat it ever showed.
    highest: u64,
    /// It is not asked before this, because it failed or showed less than before.
    rests_until: Option<Instant>,
    /// Rises when the member may have become another process; what was asked before then says nothing.
    epoch: u64,
}

/// The last that a member showed.
#[derive(Clone, Copy, Debug)]
struct Seen {
    beat: Beat,
    when: Instant,
}

/// How long what a member showed is believed without hearing from it again. Its age keeps counting all the same; this
/// is for a member that hangs, which would only cost whoever asks it their time.
pub(super) const SILENCE_MAX: Duration = Duration::from_millis(1_000);
/// How long a member is left alone after a read there failed.
pub(super) const REST_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long a member is not believed after it showed less than before: it was rolled back, restored, or started from an
/// older state.
pub(super) const REST_AFTER_STEP_BACK: Duration = Duration::from_secs(5);
/// What has to be left of the budget when a read starts, for the read itself.
pub(super) const MARGIN: Duration = Duration::from_millis(20);

impl Member {
    pub(super) fn new(role: MemberRole) -> Self {
        Self { role, seen: None, highest: 0, rests_until: None, epoch: 0 }
    }

    pub(super) fn role(&self) -> MemberRole {
        self.role
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn set_role(&mut self, role: MemberRole) {
        if self.role != role {
            self.role = role;
            self.forget();
        }
    }

    /// It answered, and showed beat `shown`.
    pub(super) fn showed(&mut self, shown: u64, epoch: u64, beats: &Beats, now: Instant) {
        if epoch != self.epoch {
            return;
        }
        if shown < self.highest {
            self.highest = shown;
            self.rest(now + REST_AFTER_STEP_BACK);
            self.forget();
            return;
        }
        self.highest = shown;
        self.seen = beats.at_or_before(shown).map(|beat| Seen { beat, when: now });
    }

    /// It did not answer: nothing is known of it.
    pub(super) fn kept_silent(&mut self) {
        self.forget();
    }

    /// Somebody read there in vain.
    pub(super) fn failed(&mut self, now: Instant) {
        self.rest(now + REST_AFTER_FAILURE);
        self.forget();
    }

    /// How old an answer can be at most; `None` when nobody knows.
    pub(super) fn lag(&self, now: Instant) -> Option<Duration> {
        let seen = self.seen.filter(|seen| now.saturating_duration_since(seen.when) <= SILENCE_MAX)?;
        (self.role == MemberRole::Secondary).then(|| now.saturating_duration_since(seen.beat.sent))
    }

    /// The beat to trust it by, if it can answer within the budget and nothing from before `after`.
    pub(super) fn fits(&self, budget: Duration, after: Position, now: Instant) -> Option<Beat> {
        let lag = self.lag(now)?;
        let beat = self.seen?.beat;
        let rests = self.rests_until.is_some_and(|until| now < until);
        (!rests && lag + MARGIN <= budget && beat.at >= after).then_some(beat)
    }

    fn rest(&mut self, until: Instant) {
        self.rests_until = self.rests_until.max(Some(until));
    }

    fn forget(&mut self) {
        self.seen = None;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_secs(2);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Beat `n` was sent `n` tenths of a second after the start, and stands at `n`.
    fn beats(start: Instant) -> Beats {
        let mut beats = Beats::default();
        for number in 1..=100 {
            beats.push(Beat { number, at: Position(number), sent: start + ms(number * 100) });
        }
        beats
    }

    fn secondary_that_showed(shown: u64, start: Instant, now: Instant) -> Member {
        let mut member = Member::new(MemberRole::Secondary);
        member.showed(shown, member.epoch(), &beats(start), now);
        member
    }

    #[test]
    fn a_member_is_as_old_as_the_beat_it_showed() {
        let start = Instant::now();
        let now = start + ms(3_000);
        let member = secondary_that_showed(20, start, now);
        assert_eq!(member.lag(now), Some(ms(1_000)));
        assert_eq!(member.lag(now + ms(500)), Some(ms(1_500)), "it ages while nobody asks");
        assert!(member.fits(BUDGET, Position(20), now).is_some());
        assert!(member.fits(BUDGET, Position(21), now).is_none(), "somebody has seen more");
        assert!(member.fits(ms(1_000), Position(0), now).is_none(), "the read itself takes time");
        assert!(member.fits(ms(1_000) + MARGIN, Position(0), now).is_some());
    }

    #[test]
    fn silence_failure_and_another_role_make_it_unknown() {
        let start = Instant::now();
        let now = start + ms(2_000);
        let shown = || secondary_that_showed(20, start, now);
        assert!(shown().fits(BUDGET, Position(0), now).is_some());

        let hangs = shown();
        assert_eq!(hangs.lag(now + SILENCE_MAX + ms(1)), None);

        let mut failed = shown();
        failed.failed(now);
        assert_eq!(failed.lag(now), None);
        failed.showed(20, failed.epoch(), &beats(start), now);
        assert!(failed.fits(BUDGET, Position(0), now).is_none(), "it rests");
        let later = now + REST_AFTER_FAILURE;
        failed.showed(40, failed.epoch(), &beats(start), later);
        assert!(failed.fits(BUDGET, Position(0), later).is_some());

        let mut elected = shown();
        elected.set_role(MemberRole::Primary);
        assert_eq!(elected.lag(now), None);
    }

    #[test]
    fn a_member_that_steps_back_is_not_believed_for_a_while() {
        let start = Instant::now();
        let now = start + ms(3_000);
        let mut member = secondary_that_showed(30, start, now);
        member.showed(29, member.epoch(), &beats(start), now);
        assert_eq!(member.lag(now), None);
        member.showed(30, member.epoch(), &beats(start), now);
        assert!(member.fits(BUDGET, Position(0), now).is_none());
        let later = now + REST_AFTER_STEP_BACK;
        member.showed(80, member.epoch(), &beats(start), later);
        assert!(member.fits(BUDGET, Position(0), later).is_some());
    }

    #[test]
    fn what_was_asked_of_an_earlier_process_says_nothing() {
        let start = Instant::now();
        let now = start + ms(3_000);
        let mut member = secondary_that_showed(10, start, now);
        let asked_in = member.epoch();
        member.set_role(MemberRole::Other);
        member.set_role(MemberRole::Secondary);
        member.showed(30, asked_in, &beats(start), now);
        assert_eq!(member.lag(now), None);
    }
}
