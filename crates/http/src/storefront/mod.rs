//! The shop that people see: pages in Russian, rendered here, without a line of script.
//!
//! Every page is made of a [`visit::Visit`] (who asks, what was said to them last) and a template. Changes are plain
//! form posts that answer with a redirect; a form that cannot be accepted comes back filled in as it was sent.

mod account;
mod assets;
mod cart;
mod catalogue;
mod checkout;
mod fault;
mod home;
mod links;
mod login;
mod notice;
mod orders;
mod origin;
mod page;
mod pictures;
mod product;
mod visit;
mod wording;

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use axum::{
    Extension, Router,
    body::Body,
    http::HeaderMap,
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;

use crate::state::AppState;

pub(crate) fn router() -> Router<AppState> {
    Router::new()
        .route("/", get(home::show))
        .route("/catalog", get(catalogue::show))
        .route("/product/{id}", get(product::show))
        .route("/cart", get(cart::show))
        .route("/cart/add", post(cart::add))
        .route("/cart/clear", post(cart::clear))
        .route("/cart/items/{id}", post(cart::change))
        .route("/cart/items/{id}/remove", post(cart::remove))
        .route("/checkout", get(checkout::show).post(checkout::place))
        .route("/orders", get(orders::list))
        .route("/orders/{id}", get(orders::show))
        .route("/login", get(login::show_login).post(login::log_in))
        .route("/signup", get(login::show_signup).post(login::sign_up))
        .route("/logout", post(login::log_out))
        .route("/account", get(account::show).post(account::save))
        .method_not_allowed_fallback(fault::wrong_method)
        .route_layer(middleware::from_fn(origin::refuse_foreign_posts))
        .layer(Extension(Arc::new(home::Shelf::default())))
        .route("/favicon.ico", get(assets::favicon))
        .route("/assets/{version}/{name}", get(assets::file))
        .route("/assets/{version}/pictures/{name}", get(assets::picture))
}

/// The page for an address that leads nowhere.
pub(crate) async fn not_found_page(state: &AppState, headers: &HeaderMap) -> Response {
    let visit = visit::Visit::of_headers(headers);
    fault::Fault::NotFound.page(state, &visit).await.into_response()
}

/// The page for whoever is turned away at the door. It is the same for everybody and made once: there, nothing may cost much.
pub(crate) fn crowded_page() -> Response {
    static PAGE: LazyLock<(HeaderMap, Bytes)> = LazyLock::new(|| {
        let (head, body) = page::plain(&fault::Fault::Crowded, &visit::Visit::default()).into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).now_or_never().and_then(Result::ok);
        (head.headers, body.unwrap_or_default())
    });
    let (headers, body) = &*PAGE;
    let mut response = Response::new(Body::from(body.clone()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    *response.headers_mut() = headers.clone();
    response
}
