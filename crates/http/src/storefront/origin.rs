//! Refuses form posts that another site's page has sent.
//!
//! `SameSite=Lax` keeps the session out of them already; this also covers logins, which need no session.

use axum::{
    extract::Request,
    http::{HeaderMap, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{fault::Fault, page, visit::Visit};

pub(super) async fn refuse_foreign_posts(request: Request, next: Next) -> Response {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if safe || is_own(request.headers()) {
        return next.run(request).await;
    }
    let visit = Visit::of_headers(request.headers());
    page::plain(&Fault::Foreign, &visit).into_response()
}

/// Whether the page that sent this was ours. Every browser names the origin of a post; what names neither origin nor
/// referrer is no browser, and carries nobody's cookies by accident.
pub(super) fn is_own(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let from = match (headers.contains_key(header::ORIGIN), headers.contains_key(header::REFERER)) {
        (true, _) => text(header::ORIGIN),
        (false, true) => text(header::REFERER),
        (false, false) => return true,
    };
    let Some(from) = from.and_then(authority) else { return false };
    // A proxy may have put its own name into `Host`; no page of another site can send the second header.
    let forwarded = headers.get("x-forwarded-host").and_then(|value| value.to_str().ok());
    [text(header::HOST), forwarded].into_iter().flatten().any(|host| host.eq_ignore_ascii_case(from))
}

/// `host:port` of an address, as a browser writes it into `Host`.
fn authority(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    (known && !authority.is_empty() && !authority.contains('@')).then_some(authority)
}
