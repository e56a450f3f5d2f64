//! Cookies, read and written by hand: three names, and values that need no quoting.

use axum::http::{HeaderMap, HeaderValue, header};

/// The session's access token.
pub(crate) const SESSION: &str = "mobimir_session";
/// What the next page should say.
pub(crate) const NOTICE: &str = "mobimir_notice";
/// What the visitor has seen ([`crate::read_after`]).
pub(crate) const READ_AFTER: &str = "mobimir_read_after";

/// The first cookie of that name.
pub(crate) fn find<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.trim_matches('"'))
}

/// A cookie that no script and no other site gets hold of. `None` when the value would not survive as one.
pub(crate) fn set(name: &str, value: &str, max_age_s: i64, secure: bool) -> Option<HeaderValue> {
    let fits = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b));
    let secure = if secure { "; Secure" } else { "" };
    let line = format!("{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}");
    fits.then(|| HeaderValue::from_str(&line).ok()).flatten()
}

/// Whether the browser reached us over TLS, as far as a proxy tells.
pub(crate) fn is_secure(headers: &HeaderMap) -> bool {
    let proto = headers.get("x-forwarded-proto");
    proto.is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}

/// Takes a cookie away.
pub(crate) fn unset(name: &str, secure: bool) -> Option<HeaderValue> {
    set(name, "", 0, secure)
}
