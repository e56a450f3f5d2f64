//! How fresh a read has to be, said beside the call instead of in every port.
//!
//! The shop names the operation where it reads ([`of`]), and whoever serves a request says what its sender has seen
//! ([`after`]). A store that could answer from a copy asks [`current`]; where nothing was said it answers with what is
//! current, so that forgetting to say anything costs time and never freshness.

use std::time::Duration;

use crate::policy::ReadOperation;

/// A point in the history of a store: what was written there up to then. Only the store knows what the number means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// What a read is for and what it must not be older than.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Without one, only what is current will do.
    pub operation: Option<ReadOperation>,
    pub after: Position,
    /// Only what is current will do, whatever it is for: the sender has seen something, and nobody here knows what.
    pub newest: bool,
}

/// How one operation was read since the process started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    pub operation: ReadOperation,
    pub reads: u64,
    pub from_secondaries: u64,
    /// Of the reads from the primary those that a secondary was asked first.
    pub again: u64,
    /// How old the answers were at most: half of them, and all but one in a hundred. From the primary counts as 0.
    pub p50: Duration,
    pub p99: Duration,
}

impl Served {
    /// Which part was answered by secondaries.
    pub fn secondary_share(&self) -> f64 {
        self.from_secondaries as f64 / self.reads.max(1) as f64
    }
}

tokio::task_local! {
    static CURRENT: Reading;
}

/// What was said about the read that is going on.
pub fn current() -> Reading {
    CURRENT.try_with(|reading| *reading).unwrap_or_default()
}

/// Reads for an operation of the policy.
pub async fn of<F: Future>(operation: ReadOperation, read: F) -> F::Output {
    CURRENT.scope(Reading { operation: Some(operation), ..current() }, read).await
}

/// Serves somebody who has seen everything up to `position`. What is spawned in between knows nothing of it.
pub async fn after<F: Future>(position: Position, serve: F) -> F::Output {
    CURRENT.scope(Reading { after: position, ..current() }, serve).await
}

/// Goes on under what was said elsewhere: for what is spawned.
pub async fn under<F: Future>(reading: Reading, serve: F) -> F::Output {
    CURRENT.scope(reading, serve).await
}

/// Serves somebody who has seen what cannot be told from here: nothing but what is current is certain not to be older.
pub async fn newest<F: Future>(serve: F) -> F::Output {
    CURRENT.scope(Reading { newest: true, ..current() }, serve).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_said_holds_for_what_is_inside() {
        assert_eq!(current(), Reading::default());
        let inside = async {
            let outer = current();
            let inner = of(ReadOperation::ProductPage, async { current() }).await;
            (outer, inner, current())
        };
        let (outer, inner, again) = after(Position(7), inside).await;
        assert_eq!(outer, Reading { after: Position(7), ..Reading::default() });
        assert_eq!(inner, Reading { operation: Some(ReadOperation::ProductPage), ..outer });
        assert_eq!(again, outer);
    }

    #[tokio::test]
    async fn nothing_inside_lets_an_unknown_past_be_forgotten() {
        let inside = newest(of(ReadOperation::Analytics, after(Position(3), async { current() }))).await;
        assert_eq!(
            inside,
            Reading { operation: Some(ReadOperation::Analytics), after: Position(3), newest: true }
        );
    }
}
