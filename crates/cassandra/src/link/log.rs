//! Every request, written down as the driver sent it. For tests that want to see instead of believe.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use mobimir_core::policy::Entity;
use scylla::{
    errors::{RequestAttemptError, RequestError},
    observability::history::{AttemptId, HistoryListener, RequestId, SpeculativeId},
    policies::retry::RetryDecision,
};
use uuid::Uuid;

/// What a statement is to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    Read,
    /// Idempotent: may be sent again.
    Write,
    /// Conditional: sent once, to the home data centre.
    Decision,
    /// A read at the serial level, to learn what was decided.
    DecidedRead,
}

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSeen {
    pub entity: Entity,
    pub statement: &'static str,
    pub kind: StatementKind,
    /// Under which the cluster keeps what it did, the consistency level included (`system_traces.sessions`).
    pub trace: Option<Uuid>,
}

#[derive(Debug, Default)]
pub struct RequestLog {
    traces: bool,
    answered: Mutex<Vec<RequestSeen>>,
    requests: AtomicUsize,
    attempts: AtomicUsize,
    nodes: Mutex<Vec<SocketAddr>>,
    /// When each request was given to the driver, and when it was answered.
    times: Mutex<BTreeMap<usize, (Instant, Option<Instant>)>>,
}

impl RequestLog {
    /// Also has the cluster write down how it carried every request out, which costs more than the requests.
    pub fn with_traces() -> Self {
        Self { traces: true, ..Self::default() }
    }

    pub(crate) fn traces(&self) -> bool {
        self.traces
    }

    /// Takes all that was written down so far.
    pub fn take(&self) -> Vec<RequestSeen> {
        std::mem::take(&mut self.answered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Requests that the driver was given, and how often it sent one, so far.
    pub fn counts(&self) -> (usize, usize) {
        (self.requests.load(Ordering::Relaxed), self.attempts.load(Ordering::Relaxed))
    }

    /// Round trips, one after the other, of all requests that were answered since this was last called: those that ran at
    /// the same time count as one.
    pub fn take_rounds(&self) -> usize {
        let times = std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ended: Vec<(Instant, Instant)> =
            times.into_values().filter_map(|(start, end)| Some((start, end?))).collect();
        ended.sort_by_key(|(_, end)| *end);
        let mut rounds: Vec<usize> = Vec::with_capacity(ended.len());
        for (at, (start, _)) in ended.iter().enumerate() {
            let before =
                (0..at).filter(|before| ended[*before].1 <= *start).map(|before| rounds[before]).max();
            rounds.push(before.unwrap_or(0) + 1);
        }
        rounds.into_iter().max().unwrap_or(0)
    }

    /// The nodes that were asked since this was last called.
    pub fn take_nodes(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn saw(&self, seen: RequestSeen) {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

impl HistoryListener for RequestLog {
    fn log_request_start(&self) -> RequestId {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.insert(number, (Instant::now(), None));
        RequestId(number)
    }

    fn log_request_success(&self, RequestId(number): RequestId) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, end)) = times.get_mut(&number) {
            *end = Some(Instant::now());
        }
    }

    fn log_request_error(&self, _: RequestId, _: &RequestError) {}

    fn log_new_speculative_fiber(&self, _: RequestId) -> SpeculativeId {
        SpeculativeId(0)
    }

    fn log_attempt_start(&self, _: RequestId, _: Option<SpeculativeId>, node: SocketAddr) -> AttemptId {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(node);
        AttemptId(self.attempts.fetch_add(1, Ordering::Relaxed))
    }

    fn log_attempt_success(&self, _: AttemptId) {}

    fn log_attempt_error(&self, _: AttemptId, _: &RequestAttemptError, _: &RetryDecision) {}
}
