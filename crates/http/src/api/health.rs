//! `/healthz`, `/readyz`, `/metrics`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde_json::json;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{extract, problem::Problem, state::AppState};

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// The process lives
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = Object)))]
async fn healthz() -> Response {
    extract::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// The shop can serve
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = Object), (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn readyz(State(state): State<AppState>) -> Result<Response, Problem> {
    match state.inner.backend.trouble() {
        None => Ok(extract::json(StatusCode::OK, &json!({ "status": "ready" }))),
        Some(trouble) => Err(Problem::unavailable(trouble)),
    }
}

/// Counters in the Prometheus text format
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String)))]
async fn metrics(State(state): State<AppState>) -> Response {
    let text = state.inner.metrics.render(&state);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
