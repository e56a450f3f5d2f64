//! The HTTP side of the shop: the API, its description, and the storefront.

mod admission;
mod api;
mod console;
mod cookies;
mod cursor;
mod docs;
mod edge;
mod extract;
mod limits;
mod metrics;
mod problem;
mod product_json;
mod read_after;
mod server;
mod state;
mod storefront;
mod views;

pub use docs::openapi_json;
pub use edge::App;
pub use limits::Limits;
pub use server::serve;
pub use state::{AppState, Backend, NOT_INCLUDED};

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;

use crate::problem::Problem;

/// The shop behind HTTP.
pub fn app(state: AppState) -> App {
    let (api, _) = api::router().split_for_parts();
    let router = api
        .merge(docs::router())
        .merge(console::router())
        .merge(storefront::router())
        .route_layer(axum::middleware::from_fn(edge::name_route))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .with_state(state.clone());
    App::new(state, router)
}

async fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "this path knows other methods".to_owned(),
    )
}

async fn not_found(State(state): State<AppState>, request: Request) -> Response {
    if request.uri().path() == "/v1" || request.uri().path().starts_with("/v1/") {
        return Problem::not_found("the path").into_response();
    }
    storefront::not_found_page(&state, request.headers()).await
}
