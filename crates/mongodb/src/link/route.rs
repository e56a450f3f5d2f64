//! Where a read goes: to a secondary that is certain to be fresh enough, and to the primary in all other cases.
//!
//! A secondary is chosen by the beat it showed ([`crate::members`]), and is told to answer with nothing older: the server
//! itself waits until it has that. Its answer says how far it was, which is looked at once more. Whatever is wrong then
//! (too old, too late, an error) costs the read its time on the secondary and nothing else: the primary is asked.

use std::time::{Duration, Instant};

use mobimir_core::{
    invariant::Invariant,
    reading::{Position, Reading},
};
use mongodb::error::{Error, ErrorKind};
use tokio::time::timeout_at;

use super::{
    Link,
    failure::{Failure, is_damage},
    meter::From,
    reads::Read,
};
use crate::{
    deployment::{operation_time, position},
    members::{Beat, Chosen},
};

/// A read on a secondary may take this part of a request's time, so that the primary still has the rest.
const SECONDARY_SHARE: u32 = 4;
/// What positions are written with is whole seconds of the primary's clock.
const CLOCK_RESOLUTION: Duration = Duration::from_secs(1);
/// The server was asked for what is ahead of its own time.
const INVALID_OPTIONS: i32 = 72;

/// What an answer of a secondary is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    /// It may be served, and is at most so old.
    Fresh(Duration),
    TooOld,
    /// It says that it is from before what its sender had shown or the reader has seen.
    SteppedBack,
}

impl Link {
    /// The answer, and who gave it.
    pub(super) async fn routed<R: Read>(
        &self,
        reading: Reading,
        started: Instant,
        read: &R,
    ) -> Result<(R::Answer, From), Failure> {
        let until = started + self.timeout;
        let Some((budget, chosen)) = self.chosen(reading, started) else {
            return Ok((self.on_primary(reading.after, until, read).await?, From::Primary));
        };
        match self.on_secondary(&chosen, budget, reading.after, started, read).await {
            Some((answer, staleness)) => Ok((answer, From::Secondary(staleness))),
            None => Ok((self.on_primary(reading.after, until, read).await?, From::Again)),
        }
    }

    fn chosen(&self, reading: Reading, now: Instant) -> Option<(Duration, Chosen)> {
        let operation = reading.operation.filter(|_| !reading.newest)?;
        let budget = self.deployment.budget(operation)?;
        let chosen = self.deployment.members_known().choose(budget, reading.after, now)?;
        Some((budget, chosen))
    }

    /// `None` when the primary has to be asked.
    async fn on_secondary<R: Read>(
        &self,
        chosen: &Chosen,
        budget: Duration,
        after: Position,
        started: Instant,
        read: &R,
    ) -> Option<(R::Answer, Duration)> {
        let Chosen { address, criteria, beat, lost } = chosen;
        let members = self.deployment.members_known();
        // What it shows becomes too old, or it seems to hang, whichever is first.
        let (too_old_at, hangs_at) = (beat.sent + budget, started + self.timeout / SECONDARY_SHARE);
        let within = async {
            let mut session = self.deployment.client().start_session().await?;
            // One short of the beat, so that the answer itself has to say that it has it.
            session.advance_operation_time(operation_time(after.max(just_before(beat.at))));
            let answer = read.run(&mut session, Some(criteria.clone())).await?;
            Ok::<_, Error>((answer, session.operation_time().map_or(Position(0), position)))
        };
        let answer = tokio::select! {
            answer = timeout_at(too_old_at.min(hangs_at).into(), within) => {
                // That there was little time left is no fault of the member.
                if answer.is_err() && too_old_at < hangs_at {
                    return None;
                }
                answer.map_err(|_| "it gave no answer in its share of the time")
            }
            () = lost.notified() => Err("it was lost meanwhile"),
        };
        let (answer, answered_at) = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!(%error, member = address, "a secondary could not answer");
                if !is_ahead(&error) && !is_damage(&error) {
                    members.failed(address, Instant::now());
                }
                return None;
            }
            Err(why) => {
                tracing::debug!(member = address, why, "a secondary is not waited for");
                members.failed(address, Instant::now());
                return None;
            }
        };
        // Before the time is taken: a beat that comes after it says nothing about this answer.
        let newest = members.newest_beat();
        match worth(beat, budget, after, answered_at, Instant::now()) {
            Worth::Fresh(staleness) => {
                let holds = by_the_clock_of_the_primary(newest, answered_at, budget);
                if !self.deployment.config().invariants.check(Invariant::Rd1, holds) {
                    tracing::error!(
                        member = address,
                        ?budget,
                        "RD-1 was about to be broken: a secondary is older than it looks"
                    );
                    members.failed(address, Instant::now());
                    return None;
                }
                Some((answer, staleness))
            }
            Worth::TooOld => None,
            Worth::SteppedBack => {
                members.failed(address, Instant::now());
                None
            }
        }
    }

    /// A primary that was elected just now may not yet show what others have acknowledged before: it is told to.
    async fn on_primary<R: Read>(
        &self,
        after: Position,
        until: Instant,
        read: &R,
    ) -> Result<R::Answer, Failure> {
        let acknowledged = after.max(self.deployment.acknowledged());
        let within = async {
            let mut session = self.deployment.client().start_session().await?;
            if acknowledged > Position(0) {
                session.advance_operation_time(operation_time(acknowledged));
            }
            match read.run(&mut session, None).await {
                Ok(answer) => {
                    self.deployment.note_position(session.operation_time());
                    Ok(answer)
                }
                // Whatever this process or the reader has seen, it was of another history: of a database that has been
                // restored since. What is current is all there is.
                Err(error) if is_ahead(&error) => {
                    let mut session = self.deployment.client().start_session().await?;
                    read.run(&mut session, None).await
                }
                Err(error) => Err(error),
            }
        };
        match timeout_at(until.into(), within).await {
            Ok(answer) => answer.map_err(Failure::Driver),
            Err(_) => Err(Failure::TooLate),
        }
    }
}

fn worth(beat: &Beat, budget: Duration, after: Position, answered_at: Position, now: Instant) -> Worth {
    let staleness = now.saturating_duration_since(beat.sent);
    if answered_at < beat.at || answered_at < after {
        Worth::SteppedBack
    } else if staleness > budget {
        Worth::TooOld
    } else {
        Worth::Fresh(staleness)
    }
}

/// RD-1 once more, by other means: how far the answer was behind by the times that the primary itself wrote.
fn by_the_clock_of_the_primary(newest: Option<Beat>, answered_at: Position, budget: Duration) -> bool {
    let seconds = |position: Position| u64::from(operation_time(position).time);
    let behind = newest.map_or(0, |newest| seconds(newest.at).saturating_sub(seconds(answered_at)));
    Duration::from_secs(behind) <= budget + CLOCK_RESOLUTION
}

fn just_before(position: Position) -> Position {
    Position(position.0.saturating_sub(1))
}

/// Whether the server was asked for what is ahead of its own time.
fn is_ahead(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(error) if error.code == INVALID_OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_secs(2);

    fn beat(at: u64) -> Beat {
        Beat { number: 1, at: Position(at), sent: Instant::now() }
    }

    #[test]
    fn an_answer_is_worth_what_its_own_time_says() {
        let beat = beat(100);
        let judged = |after, answered_at, took| {
            worth(&beat, BUDGET, Position(after), Position(answered_at), beat.sent + took)
        };
        let soon = Duration::from_millis(500);
        assert_eq!(judged(0, 100, soon), Worth::Fresh(soon));
        assert_eq!(judged(100, 105, soon), Worth::Fresh(soon));
        assert_eq!(judged(0, 99, soon), Worth::SteppedBack);
        assert_eq!(judged(103, 102, soon), Worth::SteppedBack);
        assert_eq!(judged(0, 105, BUDGET), Worth::Fresh(BUDGET));
        assert_eq!(judged(0, 105, BUDGET + Duration::from_millis(1)), Worth::TooOld);
    }

    #[test]
    fn the_primary_s_own_clock_finds_what_is_too_old() {
        let at = |seconds: u64| seconds << 32 | 7;
        let newest = Some(beat(at(1_000)));
        let holds = |seconds| by_the_clock_of_the_primary(newest, Position(at(seconds)), BUDGET);
        assert!(holds(1_001));
        assert!(holds(997));
        assert!(!holds(996));
        assert!(by_the_clock_of_the_primary(None, Position(0), BUDGET));
    }
}
