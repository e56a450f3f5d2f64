//! What the driver itself may send again: only what no node has taken on. Everything else is decided in [`super::Link`],
//! which knows whether a lost answer matters.

use scylla::{
    errors::{DbError, RequestAttemptError},
    policies::retry::{RequestInfo, RetryDecision, RetryPolicy, RetrySession},
};

#[derive(Debug)]
pub(crate) struct NothingDone;

/// Other nodes that are asked when one turns a request away.
const OTHER_NODES_MAX: usize = 2;

struct Asked(usize);

impl RetryPolicy for NothingDone {
    fn new_session(&self) -> Box<dyn RetrySession> {
        Box::new(Asked(0))
    }
}

impl RetrySession for Asked {
    fn decide_should_retry(&mut self, request: RequestInfo<'_>) -> RetryDecision {
        let nothing_done = matches!(
            request.error,
            RequestAttemptError::UnableToAllocStreamId
                | RequestAttemptError::DbError(DbError::Overloaded | DbError::IsBootstrapping, _)
        );
        if !nothing_done || self.0 >= OTHER_NODES_MAX {
            return RetryDecision::DontRetry;
        }
        self.0 += 1;
        RetryDecision::RetryNextTarget(None)
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}
