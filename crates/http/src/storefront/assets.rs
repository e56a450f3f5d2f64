//! Styles, the icon and the pictures, built into the program. Their addresses carry a hash of all of them, so that a
//! browser keeps what it has until it changes.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

use super::pictures::{self, Picture};

const STYLE: &str = include_str!("../../assets/style.css");
const FAVICON: &str = include_str!("../../assets/favicon.svg");
const HERO: &str = include_str!("../../assets/hero.svg");

const HASH_BYTES: usize = 6;

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    hash.update(STYLE);
    hash.update(FAVICON);
    hash.update(HERO);
    pictures::drawings().for_each(|drawing| hash.update(drawing));
    hash.finalize()[..HASH_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
});

pub(super) fn url(name: &str) -> String {
    format!("/assets/{}/{name}", *VERSION)
}

pub(super) async fn file(Path((version, name)): Path<(String, String)>) -> Response {
    match name.as_str() {
        "style.css" => answer(&version, "text/css; charset=utf-8", STYLE.into()),
        "favicon.svg" => answer(&version, "image/svg+xml; charset=utf-8", FAVICON.into()),
        "hero.svg" => answer(&version, "image/svg+xml; charset=utf-8", HERO.into()),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

pub(super) async fn picture(Path((version, name)): Path<(String, String)>) -> Response {
    match Picture::of_file(&name) {
        Some(picture) => answer(&version, "image/svg+xml; charset=utf-8", picture.draw()),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

pub(super) async fn favicon() -> Response {
    answer("", "image/svg+xml; charset=utf-8", FAVICON.into())
}

/// While instances of two versions run, a page of one may ask the other for its styles: better these than none, but
/// not to keep.
fn answer(version: &str, content_type: &'static str, body: String) -> Response {
    let caching =
        if version == *VERSION { "public, max-age=31536000, immutable" } else { "public, max-age=60" };
    let headers: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, caching),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // A picture opened by itself is a document, and must not run anything either.
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; sandbox"),
    ];
    let mut response = body.into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
