//! Why a request failed, and what that says about whether it happened.

use std::time::Duration;

use mobimir_core::ports::StoreError;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};

use super::rules::Lack;

#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    /// This attempt, or one before it, may have been carried out.
    lost: bool,
    error: Option<ExecutionError>,
    what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No node could be asked.
    NeverSent,
    /// It was not sent: there was no room among the requests that a node has of ours, or it would have
    /// promised too much.
    NotTried,
    /// The coordinator saw too few replicas alive and asked nobody.
    TooFewReplicas,
    /// The coordinator did not take it on.
    TurnedAway,
    /// Too few replicas answered in time, or the answer did not come.
    NoAnswer { of_replicas: bool },
    /// It makes no sense to the server; the same again will not.
    Wrong,
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        let kind = match &error {
            ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) => Kind::NeverSent,
            ExecutionError::RequestTimeout(_) => Kind::NoAnswer { of_replicas: false },
            ExecutionError::LastAttemptError(attempt) => of_attempt(attempt),
            _ => Kind::Wrong,
        };
        let what = error.to_string();
        Self { kind, lost: matches!(kind, Kind::NoAnswer { .. }), error: Some(error), what }
    }
}

fn of_attempt(error: &RequestAttemptError) -> Kind {
    match error {
        RequestAttemptError::DbError(error, _) => match error {
            DbError::Unavailable { .. } => Kind::TooFewReplicas,
            DbError::Overloaded | DbError::IsBootstrapping => Kind::TurnedAway,
            DbError::WriteTimeout { .. }
            | DbError::ReadTimeout { .. }
            | DbError::WriteFailure { .. }
            | DbError::ReadFailure { .. } => Kind::NoAnswer { of_replicas: true },
            // A coordinator that is about to end says so, whatever it has done before.
            DbError::ServerError | DbError::TruncateError => Kind::NoAnswer { of_replicas: false },
            // "CAS contention": others were faster, and whether this one went through is open.
            DbError::Other(_) => Kind::NoAnswer { of_replicas: true },
            _ => Kind::Wrong,
        },
        RequestAttemptError::UnableToAllocStreamId => Kind::NotTried,
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => {
            Kind::Wrong
        }
        _ => Kind::NoAnswer { of_replicas: false },
    }
}

impl Failure {
    pub(super) fn timed_out(after: Duration) -> Self {
        let what = format!("no answer within {} ms", after.as_millis());
        Self { kind: Kind::NoAnswer { of_replicas: false }, lost: true, error: None, what }
    }

    /// It was not even tried, because what it would have promised cannot be kept.
    pub(super) fn refused(why: String) -> Self {
        Self { kind: Kind::NotTried, lost: false, error: None, what: why }
    }

    #[must_use]
    pub(super) fn lost_before(mut self, lost: bool) -> Self {
        self.lost |= lost;
        self
    }

    /// Whether somebody there had too much to do: he said so, or did not come to an answer.
    pub(super) fn is_overload(&self) -> bool {
        matches!(self.kind, Kind::TurnedAway | Kind::NoAnswer { .. })
    }

    pub(super) fn may_have_happened(&self) -> bool {
        self.lost
    }

    pub(super) fn was_never_sent(&self) -> bool {
        matches!(self.kind, Kind::NeverSent | Kind::NotTried | Kind::TurnedAway | Kind::Wrong) && !self.lost
    }

    pub(super) fn is_worth_repeating(&self) -> bool {
        // A pool without connections is refilled only later; too few replicas, though, may be one node's opinion.
        !matches!(self.kind, Kind::Wrong | Kind::NeverSent | Kind::NotTried)
    }

    pub(super) fn lack(&self) -> Lack {
        Lack { replicas: self.lacks_replicas(), dc: self.lacks_dc() }
    }

    /// Whether replicas were missing, which is what a lost data centre looks like.
    fn lacks_replicas(&self) -> bool {
        matches!(self.kind, Kind::TooFewReplicas | Kind::NoAnswer { of_replicas: true })
    }

    /// Whether the one data centre that was asked is lost: nobody there can be reached, or too few replicas
    /// are alive. An answer that is late says nothing of the kind, because the others would be as late with
    /// twice the work.
    fn lacks_dc(&self) -> bool {
        matches!(self.kind, Kind::NeverSent | Kind::TooFewReplicas)
    }

    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::NeverSent => "no_node",
            Kind::NotTried => "not_tried",
            Kind::TooFewReplicas => "too_few_replicas",
            Kind::TurnedAway => "turned_away",
            Kind::NoAnswer { .. } => "no_answer",
            Kind::Wrong => "refused",
        }
    }

    pub(super) fn of_read(self, name: &str) -> StoreError {
        StoreError::Unavailable { what: format!("Cassandra, {name}: {}", self.what), source: self.source() }
    }

    pub(crate) fn of_write(self, name: &str) -> StoreError {
        let what = format!("Cassandra, {name}: {}", self.what);
        if self.lost {
            StoreError::Unknown { what, source: self.source() }
        } else {
            StoreError::Unavailable { what, source: self.source() }
        }
    }

    fn source(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        self.error.map(|error| Box::new(error) as _)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}
