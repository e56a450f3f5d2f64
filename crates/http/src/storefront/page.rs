//! What all pages have in common: the frame around them and the headers that go with them.

use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use mobimir_shop::{Caller, Shop};

use super::{
    assets,
    fault::Fault,
    notice::{NOTICE_MAX_AGE_S, Notice},
    pictures::Picture,
    visit::{self, Visit},
    wording,
};
use crate::cookies;

/// Nothing but our own styles and pictures; no scripts at all.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Past it the cart's badge says `99+`.
const BADGE_COUNT_MAX: u64 = 99;

/// The colour of the empty box, among those of the pictures.
const BOX_TINT: usize = 0;

/// The frame: title, search box, links with the cart's count, the notice.
pub(super) struct Frame {
    pub(super) title: String,
    /// What stands in the search box.
    pub(super) search: String,
    pub(super) is_user: bool,
    pub(super) badge: Option<String>,
    pub(super) notice: Option<Notice>,
    /// Where this page is, for forms that come back to it.
    pub(super) path: String,
    /// Where the shop delivers to, in words.
    pub(super) cities: String,
}

impl Frame {
    pub(super) async fn of(
        shop: &Shop,
        visit: &Visit,
        caller: Option<&Caller>,
        title: impl Into<String>,
    ) -> Self {
        let count = visit::cart_count(shop, caller).await;
        let badge = count.map(|count| {
            if count > BADGE_COUNT_MAX { format!("{BADGE_COUNT_MAX}+") } else { count.to_string() }
        });
        Self {
            is_user: caller.is_some_and(|caller| caller.user().is_some()),
            badge,
            cities: cities(shop),
            ..Self::bare(visit, title)
        }
    }

    /// Without asking any store.
    pub(super) fn bare(visit: &Visit, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            search: String::new(),
            is_user: false,
            badge: None,
            notice: visit.notice,
            path: visit.path.clone(),
            cities: String::new(),
        }
    }

    pub(super) fn style_url(&self) -> String {
        assets::url("style.css")
    }

    pub(super) fn icon_url(&self) -> String {
        assets::url("favicon.svg")
    }

    /// A drawing for pages that have nothing to show.
    pub(super) fn box_url(&self) -> String {
        Picture::generic(BOX_TINT).url()
    }
}

#[derive(Template)]
#[template(path = "storefront/fault.html")]
struct FaultPage {
    frame: Frame,
    heading: &'static str,
    text: String,
}

/// A finished page.
pub(super) fn respond(visit: &Visit, status: StatusCode, page: &impl Template) -> Response {
    let html = match page.render() {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Posts must name their origin, which a stricter policy would hide.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::VARY, HeaderValue::from_static("Cookie"));
    let caching = if visit.is_personal() { "no-store" } else { "private, no-cache" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    if visit.notice.is_some()
        && let Some(cookie) = cookies::unset(cookies::NOTICE, visit.secure)
    {
        headers.append(header::SET_COOKIE, cookie);
    }
    response
}

pub(super) fn ok(visit: &Visit, page: &impl Template) -> Response {
    respond(visit, StatusCode::OK, page)
}

fn cities(shop: &Shop) -> String {
    shop.settings().zones.iter().copied().map(wording::zone).collect::<Vec<_>>().join(", ")
}

/// A page about what went wrong, without asking any store.
pub(super) fn plain(fault: &Fault, visit: &Visit) -> Response {
    fault_in(Frame::bare(visit, fault.heading()), fault, visit)
}

pub(super) fn fault_in(frame: Frame, fault: &Fault, visit: &Visit) -> Response {
    let page = FaultPage { frame, heading: fault.heading(), text: fault.text() };
    let mut response = respond(visit, fault.status(), &page);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = fault.retry_after_s() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Sends the browser on after a change, with something to say there.
pub(super) fn see_other(visit: &Visit, path: &str, notice: Option<Notice>) -> Response {
    // A warning stands at the top of the page, so one does not come back to some place further down.
    let warns = notice.is_some_and(Notice::is_warning);
    let path = if warns { path.split('#').next().unwrap_or(path) } else { path };
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/")));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let cookie = notice
        .and_then(|notice| cookies::set(cookies::NOTICE, &notice.encode(), NOTICE_MAX_AGE_S, visit.secure));
    if let Some(cookie) = cookie {
        headers.append(header::SET_COOKIE, cookie);
    }
    response
}

/// Lets the browser keep the session that was started for it, or forget the one that ended.
pub(super) fn keep_session(response: &mut Response, visit: &Visit, session: Option<(&str, i64)>) {
    let cookie = match session {
        Some((token, max_age_s)) => cookies::set(cookies::SESSION, token, max_age_s, visit.secure),
        None => cookies::unset(cookies::SESSION, visit.secure),
    };
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
