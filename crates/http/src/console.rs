//! `/console`: what the people who run the shop keep open on a wall. Rendered here, without a script; they speak
//! Russian.

mod access;
mod orders;
mod policy;
mod promises;
mod traffic;
mod wording;

use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;
use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderValue, StatusCode, Uri, header};

use self::{
    access::ConsoleOperator,
    orders::{Carts, Orders},
    policy::PolicyPart,
    promises::Promise,
    traffic::{Pulse, Traffic},
};
use crate::{api::ops::measured_policy, state::AppState};

const STYLE: &str = include_str!("../assets/console/console.css");
/// Nothing but our own style; no scripts, no forms.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";
const REFRESH_S: u32 = 5;

pub(crate) fn router() -> Router<AppState> {
    let pulse = Arc::new(Mutex::new(Pulse::default()));
    let show = move |_: ConsoleOperator, State(state): State<AppState>, uri: Uri| async move {
        let paused = uri.query() == Some("paused");
        show(&state, &pulse, paused).await
    };
    Router::new().route("/console", get(show)).route("/console/console.css", get(style))
}

async fn style() -> Response {
    (
        [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "public, max-age=60")],
        STYLE,
    )
        .into_response()
}

#[derive(Template)]
#[template(path = "console/page.html")]
struct ConsolePage {
    /// Why the shop cannot serve, if it cannot.
    trouble: Option<String>,
    now: String,
    refresh_s: Option<u32>,
    promises: Vec<Promise>,
    broken_promises: usize,
    checked_promises: usize,
    traffic: Traffic,
    orders: Result<Orders, String>,
    carts: Result<Carts, String>,
    policy: Vec<PolicyPart>,
}

async fn show(state: &AppState, pulse: &Mutex<Pulse>, paused: bool) -> Response {
    let (orders, carts) = futures_util::join!(Orders::of_today(&state.shop), Carts::left_behind(&state.shop));
    let now = state.shop.now();
    let promises = promises::all(state.shop.invariants());
    let page = ConsolePage {
        trouble: state.inner.backend.trouble(),
        now: wording::moment(now),
        refresh_s: (!paused).then_some(REFRESH_S),
        broken_promises: promises.iter().filter(|promise| promise.is_broken()).count(),
        checked_promises: promises.iter().filter(|promise| promise.was_checked()).count(),
        promises,
        traffic: Traffic::of(state, &mut pulse.lock().unwrap_or_else(PoisonError::into_inner), now),
        orders,
        carts,
        policy: policy::parts(&measured_policy(state)),
    };
    respond(StatusCode::OK, &page)
}

fn respond(status: StatusCode, page: &impl Template) -> Response {
    let html = match page.render() {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, "the console could not be rendered");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let mut response = (status, html).into_response();
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
