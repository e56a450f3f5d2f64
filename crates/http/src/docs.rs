//! `/openapi.json`, from the code, and `/docs`, a page to try it.

use std::sync::LazyLock;

use axum::{Router, response::IntoResponse, routing::get};
use http::header;
use utoipa::{
    OpenApi,
    openapi::security::{Http, HttpAuthScheme, SecurityScheme},
};

use crate::{api, role::Role, state::AppState};

const PAGE: &str = include_str!("../assets/docs.html");
const SCRIPT: &str = include_str!("../assets/docs.js");
const STYLE: &str = include_str!("../assets/docs.css");
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "mobimir",
        description = "The data platform of the shop «Мобильный мир»: products and stock by zone, carts, orders, sessions.\n\n\
        Money is a decimal string with two places, ids are UUIDs, times are RFC 3339 in UTC. Lists are `{items, next}`; give `next` as \
        `after` for the following page. Errors are `application/problem+json` with a stable `code`.\n\n\
        Every answer to POST, PUT, PATCH and DELETE has a header `Read-After` with an opaque token. A request that brings the newest one \
        back in the same header is served nothing older than that write, by whichever instance; without it, what others may answer from \
        copies can be as old as the policy allows.\n\n\
        When there is too much to do, any call may be answered 503 `overloaded` with `Retry-After`: then nothing was begun.\n\n\
        A shop may be several services behind a load balancer. An instance that has one role only answers the calls of the others 421 \
        `misdirected`, and says which role answers them; a load balancer that is set up right never asks it for those.",
        license(name = "MIT")
    ),
    tags(
        (name = "products", description = "The catalogue and its stock"),
        (name = "cart", description = "The cart of a guest or a user"),
        (name = "orders", description = "Placing orders and following them"),
        (name = "sessions", description = "Guests, logins, refresh tokens"),
        (name = "users", description = "Signing up and the profile"),
        (name = "reports", description = "For operators"),
        (name = "operations", description = "For the people who run the shop"),
        (name = "health", description = "For machines that watch")
    )
)]
struct Description;

static OPENAPI_JSON: LazyLock<String> = LazyLock::new(|| {
    let (_, mut description) = utoipa_axum::router::OpenApiRouter::with_openapi(Description::openapi())
        .merge(api::of(Role::All))
        .merge(api::of_every_role())
        .split_for_parts();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    description.components.get_or_insert_default().add_security_scheme("token", bearer);
    description.to_pretty_json().unwrap_or_default()
});

/// The API's description, as it is served.
pub fn openapi_json() -> &'static str {
    &OPENAPI_JSON
}

pub(crate) fn router() -> Router<AppState> {
    let asset = |kind: &'static str, text: &'static str| {
        get(move || async move {
            ([(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)], text).into_response()
        })
    };
    Router::new()
        .route(
            "/openapi.json",
            get(|| async { ([(header::CONTENT_TYPE, "application/json")], openapi_json()) }),
        )
        .route("/docs", asset("text/html; charset=utf-8", PAGE))
        .route("/docs/docs.js", asset("text/javascript; charset=utf-8", SCRIPT))
        .route("/docs/docs.css", asset("text/css; charset=utf-8", STYLE))
}
