//! The HTTP side of the shop: the API, its description, and the storefront.

mod admission;
mod api;
mod console;
mod cookies;
mod cursor;
mod docs;
mod edge;
mod extract;
mod latency;
mod limits;
mod metrics;
mod problem;
mod product_json;
mod proxies;
mod read_after;
mod role;
mod server;
mod state;
mod storefront;
#[cfg(test)]
mod test_app;
mod views;

pub use docs::openapi_json;
pub use edge::App;
pub use latency::Latency;
pub use limits::Limits;
pub use role::Role;
pub use server::serve;
pub use state::{AppState, Backend, NOT_INCLUDED};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use http::StatusCode;

use crate::problem::Problem;

/// The shop behind HTTP, or the part of it that the state's role answers for.
pub fn app(state: AppState) -> App {
    let role = state.role;
    let (api, _) = api::of(role).merge(api::of_every_role()).split_for_parts();
    let mut served = api.merge(docs::router());
    if role == Role::All {
        served = served.merge(pages());
    }
    let mut router = named(served).method_not_allowed_fallback(method_not_allowed);
    if role != Role::All {
        for other in Role::SERVICES.into_iter().filter(|other| *other != role) {
            let (routes, _) = api::of(other).split_for_parts();
            router = router.merge(misdirected(routes, role, other));
        }
        router = router.merge(misdirected(pages(), role, Role::All));
    }
    let router = router.fallback(not_found).with_state(state.clone());
    App::new(state, router)
}

/// What people look at in a browser.
fn pages() -> Router<AppState> {
    console::router().merge(storefront::router())
}

/// The same paths, and for each the answer that somebody else has to be asked.
fn misdirected(routes: Router<AppState>, own: Role, wanted: Role) -> Router<AppState> {
    let refuse = move |_: Request, _: Next| async move { Problem::misdirected(own, wanted) };
    named(routes.route_layer(middleware::from_fn(refuse)))
}

fn named(routes: Router<AppState>) -> Router<AppState> {
    routes.route_layer(middleware::from_fn(edge::name_route))
}

async fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "this path knows other methods".to_owned(),
    )
}

async fn not_found(State(state): State<AppState>, request: Request) -> Response {
    let path = request.uri().path();
    if state.role != Role::All || path == "/v1" || path.starts_with("/v1/") {
        return Problem::not_found("the path").into_response();
    }
    storefront::not_found_page(&state, request.headers()).await
}
