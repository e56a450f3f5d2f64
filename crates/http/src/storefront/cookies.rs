//! Cookies, read and written by hand: two names, and values that need no quoting.

use axum::http::{HeaderMap, HeaderValue, header};

/// The session's access token.
pub(super) const SESSION: &str = "mobimir_session";
/// What the next page should say ([`super::notice::Notice`]).
pub(super) const NOTICE: &str = "mobimir_notice";

/// The first cookie of that name.
pub(super) fn find<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
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
pub(super) fn set(name: &str, value: &str, max_age_s: i64, secure: bool) -> Option<HeaderValue> {
    let fits = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b));
    let secure = if secure { "; Secure" } else { "" };
    let line = format!("{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}");
    fits.then(|| HeaderValue::from_str(&line).ok()).flatten()
}

/// Takes a cookie away.
pub(super) fn unset(name: &str, secure: bool) -> Option<HeaderValue> {
    set(name, "", 0, secure)
}
