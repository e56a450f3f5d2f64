//! `/v1/ops`: what the people who run the shop look at.

use std::time::Duration;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use mobimir_core::{invariant::Invariant, reading::Served};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    extract::{Operator, json},
    problem::Problem,
    state::{AppState, NOT_INCLUDED},
    views::List,
};

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(policy)).routes(routes!(invariants)).routes(routes!(backup))
}

/// The policy in force, and beside each budget how old the answers were
///
/// Each operation of `reads` that was read has `served`: how many `reads`, how many `from_secondaries` and their
/// `secondary_share`, how many were read `again` on the primary because a secondary would not do, and the age that half of the
/// answers (`p50_ms`) and all but one in a hundred (`p99_ms`) did not exceed. An answer of the primary counts as 0.
#[utoipa::path(get, path = "/v1/ops/policy", tag = "operations", security(("token" = [])), responses((status = 200, body = Object)))]
async fn policy(State(state): State<AppState>, _: Operator) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &measured_policy(&state)))
}

/// The policy, and beside each budget how the operation was read.
pub(crate) fn measured_policy(state: &AppState) -> Value {
    let mut policy = state.inner.policy.clone();
    for served in state.inner.backend.served() {
        if let Some(Value::Object(rule)) = policy.pointer_mut(&format!("/reads/{}", served.operation)) {
            rule.insert("served".to_owned(), ServedView::from(served).into());
        }
    }
    policy
}

/// How an operation was read since the process started.
#[derive(Serialize)]
struct ServedView {
    reads: u64,
    from_secondaries: u64,
    secondary_share: f64,
    again: u64,
    p50_ms: u64,
    p99_ms: u64,
}

impl From<Served> for ServedView {
    fn from(served: Served) -> Self {
        let ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Self {
            reads: served.reads,
            from_secondaries: served.from_secondaries,
            secondary_share: served.secondary_share(),
            again: served.again,
            p50_ms: ms(served.p50),
            p99_ms: ms(served.p99),
        }
    }
}

impl From<ServedView> for Value {
    fn from(view: ServedView) -> Self {
        serde_json::to_value(view).unwrap_or_default()
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct InvariantView {
    #[schema(example = "STK-1")]
    pub(crate) name: &'static str,
    pub(crate) promise: &'static str,
    /// How often it was looked at since the process started.
    pub(crate) checks: u64,
    /// How often it did not hold. Stays at zero.
    pub(crate) violations: u64,
}

pub(crate) fn invariant_views(state: &AppState) -> Vec<InvariantView> {
    let counters = state.shop.invariants();
    let view = |invariant: Invariant| InvariantView {
        name: invariant.name(),
        promise: invariant.promise(),
        checks: counters.checks(invariant),
        violations: counters.violations(invariant),
    };
    Invariant::ALL.into_iter().map(view).collect()
}

/// The promises, and whether one was ever seen broken
#[utoipa::path(get, path = "/v1/ops/invariants", tag = "operations", security(("token" = [])),
    responses((status = 200, body = List<InvariantView>)))]
async fn invariants(State(state): State<AppState>, _: Operator) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &List::whole(invariant_views(&state))))
}

/// A consistent copy of all data, as `mobimir restore` takes it
///
/// What the policy places in Cassandra is not in it; the header `mobimir-not-included` then names it.
#[utoipa::path(get, path = "/v1/ops/backup", tag = "operations", security(("token" = [])),
    responses((status = 200, description = "the copy; whole only if its last record says so", body = Vec<u8>, content_type = "application/octet-stream")))]
async fn backup(State(state): State<AppState>, _: Operator) -> Result<Response, Problem> {
    let not_included = state.inner.backend.not_dumped();
    let (sender, mut receiver) = mpsc::channel(BACKUP_CHUNKS_MAX);
    tokio::task::spawn_blocking(move || {
        let mut out = std::io::BufWriter::with_capacity(BACKUP_CHUNK_BYTES, Chunks(sender.clone()));
        let written = state.inner.backend.dump(&mut out).and_then(|()| std::io::Write::flush(&mut out));
        if let Err(error) = written {
            tracing::warn!(%error, "a backup was not finished");
            // Ends the answer early, so that nobody takes it for a whole one.
            let _ = sender.blocking_send(Err(error));
        }
    });
    let chunks = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
    let mut answer =
        ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(chunks)).into_response();
    if let Some(value) = not_included.and_then(|text| HeaderValue::from_str(&text).ok()) {
        answer.headers_mut().insert(NOT_INCLUDED, value);
    }
    Ok(answer)
}

const BACKUP_CHUNK_BYTES: usize = 256 * 1024;
const BACKUP_CHUNKS_MAX: usize = 8;

/// A writer that hands chunks to an answer's body, and waits while the client is slow.
struct Chunks(mpsc::Sender<std::io::Result<Bytes>>);

impl std::io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let gone = |_| std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the client is gone");
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
