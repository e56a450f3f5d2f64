//! `/healthz`, `/readyz`, `/metrics`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    extract::{self, Query},
    problem::Problem,
    state::AppState,
};

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
        .routes(routes!(fixed))
}

/// The process lives
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = Object)))]
async fn healthz() -> Response {
    extract::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// The shop can serve
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = Object), (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn readyz(State(state): State<AppState>) -> Result<Response, Problem> {
    if state.inner.is_ending() {
        return Err(Problem::unavailable("this instance is ending: ask another one"));
    }
    match state.inner.backend.trouble() {
        None => Ok(extract::json(StatusCode::OK, &json!({ "status": "ready" }))),
        Some(trouble) => Err(Problem::unavailable(trouble)),
    }
}

/// Counters in the Prometheus text format
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String)))]
async fn metrics(State(state): State<AppState>) -> Response {
    let text = state.inner.metrics.render(&state);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
        .into_response()
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FixedQuery {
    /// 2 to 65536, default 600.
    #[param(value_type = Option<u32>, minimum = 2, maximum = 65536)]
    bytes: Option<String>,
}

const FIXED_BYTES_DEFAULT: usize = 600;
const FIXED_BYTES_MAX: usize = 65_536;
/// `{}` after white space: a JSON object of any length is the end of this.
static FIXED: [u8; FIXED_BYTES_MAX] = {
    let mut text = [b' '; FIXED_BYTES_MAX];
    text[FIXED_BYTES_MAX - 2] = b'{';
    text[FIXED_BYTES_MAX - 1] = b'}';
    text
};

/// A fixed JSON of so many bytes: what HTTP alone costs here, to compare other answers with
#[utoipa::path(get, path = "/healthz/fixed", tag = "health", params(FixedQuery), responses((status = 200, body = Object)))]
async fn fixed(Query(query): Query<FixedQuery>) -> Result<Response, Problem> {
    let bytes = match query.bytes.as_deref() {
        None => Some(FIXED_BYTES_DEFAULT),
        Some(text) => text.parse().ok().filter(|bytes| (2..=FIXED_BYTES_MAX).contains(bytes)),
    };
    let bytes = bytes.ok_or_else(|| {
        Problem::bad_request(format!("bytes: expected a number from 2 to {FIXED_BYTES_MAX}"))
    })?;
    // No copy, so that nothing but HTTP is measured.
    let body = Bytes::from_static(&FIXED[FIXED_BYTES_MAX - bytes..]);
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}
