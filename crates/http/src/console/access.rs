//! Who may see the console: whoever gives the operator's token as the password, under any name.

use askama::Template;
use axum::{extract::FromRequestParts, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};

use crate::state::AppState;

pub(super) struct ConsoleOperator;

#[derive(Template)]
#[template(path = "console/locked.html")]
struct LockedPage {
    /// Whether there is a token that would open it.
    has_token: bool,
}

impl FromRequestParts<AppState> for ConsoleOperator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Response> {
        if password(&parts.headers).is_some_and(|password| state.is_operator(&password)) {
            return Ok(Self);
        }
        let page = LockedPage { has_token: !state.inner.operators.is_empty() };
        let mut response = super::respond(StatusCode::UNAUTHORIZED, &page);
        let challenge = HeaderValue::from_static("Basic realm=\"mobimir\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        Err(response)
    }
}

fn password(headers: &HeaderMap) -> Option<String> {
    let (scheme, credentials) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (_, password) = text.split_once(':')?;
    Some(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        password(&headers)
    }

    #[test]
    fn the_password_is_what_follows_the_first_colon() {
        assert_eq!(given(&format!("Basic {}", STANDARD.encode("anna:to:ken"))).as_deref(), Some("to:ken"));
        assert_eq!(given(&format!("basic {}", STANDARD.encode(":token"))).as_deref(), Some("token"));
    }

    #[test]
    fn what_is_not_basic_gives_no_password() {
        for bad in ["Bearer token", "Basic", "Basic ###", "Basic dG9rZW4="] {
            assert_eq!(given(bad), None, "{bad}");
        }
    }
}
