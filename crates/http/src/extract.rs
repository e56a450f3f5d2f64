//! What handlers take out of a request, with every malformed one answered as a problem.

use std::net::IpAddr;

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use mobimir_core::{
    id::UserId,
    page::{PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX},
    reading, secret,
};
use mobimir_shop::{Caller, ClientInfo};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{problem::Problem, state::AppState};

/// The address of whoever asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker(pub(crate) IpAddr);

/// A JSON body. Broken JSON is 400, JSON that is not what was asked for is 422.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let bytes = read_body(request, state).await?;
        parse(&bytes).map(Body)
    }
}

/// A JSON body that may be left out.
pub(crate) struct OptionalBody<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> FromRequest<AppState> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let bytes = read_body(request, state).await?;
        if bytes.is_empty() { Ok(Self(None)) } else { parse(&bytes).map(|value| Self(Some(value))) }
    }
}

pub(crate) async fn read_body(request: Request, state: &AppState) -> Result<Bytes, Problem> {
    let limit = state.inner.limits.body_bytes_max;
    let too_large = || {
        let detail = format!("expected a body of at most {limit} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    };
    let announced =
        request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: usize| bytes > limit) && request.headers().contains_key(header::EXPECT) {
        // The client asks before it sends.
        return Err(too_large());
    }
    let mut stream = request.into_body();
    let mut body = BytesMut::new();
    let mut seen = 0;
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|_| Problem::bad_request("the body ended early or is not well-formed"))?;
        let Some(chunk) = frame.data_ref() else { continue };
        seen += chunk.len();
        if seen <= limit {
            body.extend_from_slice(chunk);
        } else if seen > limit + REFUSED_BYTES_READ_MAX {
            break;
        }
        // What is too long is read on for a while: a client that is still sending would not see the answer.
    }
    if seen > limit { Err(too_large()) } else { Ok(body.freeze()) }
}

const REFUSED_BYTES_READ_MAX: usize = 16 * 1024 * 1024;

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Every body is an object; serde would take an array for one, field by field.
    let is_array = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if is_array && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() {
        return Err(Problem::invalid("expected a JSON object, got an array"));
    }
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Problem::invalid(secret::without_value(&error.to_string())),
        _ => Problem::new(StatusCode::BAD_REQUEST, "bad_json", format!("expected a JSON body: {error}")),
    })
}

/// A query string.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(query) => Ok(Self(query.0)),
            Err(rejection) => Err(Problem::bad_request(rejection.body_text())),
        }
    }
}

/// An id in the path.
pub(crate) struct PathId(pub(crate) Uuid);

impl FromRequestParts<AppState> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let path = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|path| Uuid::parse_str(&path.0).ok());
        id.map(PathId).ok_or_else(|| Problem::bad_request("expected a UUID in the path"))
    }
}

/// A segment of the path.
pub(crate) struct PathText(pub(crate) String);

impl FromRequestParts<AppState> for PathText {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        match axum::extract::Path::<String>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(text)) => Ok(Self(text)),
            Err(_) => Err(Problem::bad_request("the path is not well-formed")),
        }
    }
}

/// Two segments of the path.
pub(crate) struct PathPair(pub(crate) String, pub(crate) String);

impl FromRequestParts<AppState> for PathPair {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        match axum::extract::Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path((first, second))) => Ok(Self(first, second)),
            Err(_) => Err(Problem::bad_request("the path is not well-formed")),
        }
    }
}

/// A guest or a user.
pub(crate) struct Holder(pub(crate) Caller);

impl FromRequestParts<AppState> for Holder {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let token = bearer(&parts.headers).ok_or_else(Problem::unauthorized)?;
        match state.shop.authenticate(token).await? {
            Some(caller) => Ok(Self(caller)),
            None if state.is_operator(token) => Err(Problem::forbidden(
                "an operator has no cart, orders or sessions: use the token of a guest or a user",
            )),
            None => Err(Problem::unauthorized()),
        }
    }
}

/// A user.
pub(crate) struct User {
    pub(crate) id: UserId,
    pub(crate) caller: Caller,
}

impl FromRequestParts<AppState> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let Holder(caller) = Holder::from_request_parts(parts, state).await?;
        match caller.user() {
            Some(id) => Ok(Self { id, caller }),
            None => Err(Problem::forbidden("this is for users: log in first")),
        }
    }
}

/// The operator.
pub(crate) struct Operator;

impl FromRequestParts<AppState> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        Self::require(&parts.headers, state).await
    }
}

impl Operator {
    pub(crate) async fn require(headers: &HeaderMap, state: &AppState) -> Result<Self, Problem> {
        let token = bearer(headers).ok_or_else(Problem::unauthorized)?;
        if state.is_operator(token) {
            return Ok(Self);
        }
        match state.shop.authenticate(token).await? {
            Some(_) => Err(Problem::forbidden("this is for operators")),
            None => Err(Problem::unauthorized()),
        }
    }
}

/// A user or the operator.
pub(crate) enum Reader {
    User(UserId),
    Operator,
}

impl FromRequestParts<AppState> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        match bearer(&parts.headers) {
            Some(token) if state.is_operator(token) => Ok(Self::Operator),
            _ => User::from_request_parts(parts, state).await.map(|user| Self::User(user.id)),
        }
    }
}

impl Reader {
    pub(crate) fn may_read(&self, owner: UserId) -> bool {
        match self {
            Reader::User(user) => *user == owner,
            Reader::Operator => true,
        }
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// What a client tells about itself.
pub(crate) struct Client(pub(crate) ClientInfo);

impl FromRequestParts<AppState> for Client {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Self::Rejection> {
        let text =
            |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Self(ClientInfo {
            ip_address: parts.extensions.get::<Asker>().map(|asker| asker.0),
            user_agent: text("user-agent"),
            device: text("x-device"),
        }))
    }
}

/// The `Idempotency-Key` header, if there is one.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let max = mobimir_core::checkout::IDEMPOTENCY_KEY_CHARS_MAX;
    let key =
        std::str::from_utf8(value.as_bytes()).ok().filter(|key| (1..=max).contains(&key.chars().count()));
    key.map(Some).ok_or_else(|| {
        let detail = format!("expected an Idempotency-Key of 1 to {max} characters");
        Problem::new(StatusCode::BAD_REQUEST, "bad_idempotency_key", detail)
    })
}

pub(crate) fn page_limit(limit: Option<&str>) -> Result<usize, Problem> {
    let Some(text) = limit else { return Ok(PAGE_ITEMS_DEFAULT) };
    let limit = text.parse::<usize>().ok().filter(|limit| (1..=PAGE_ITEMS_MAX).contains(limit));
    limit.ok_or_else(|| Problem::bad_request(format!("limit: expected a number from 1 to {PAGE_ITEMS_MAX}")))
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    const TYPICAL_BYTES: usize = 1024;
    let mut body = Vec::with_capacity(TYPICAL_BYTES);
    let written = serde_json::to_writer(&mut body, value);
    written_json(status, written.map(|()| body))
}

/// An answer that was written by somebody else.
pub(crate) fn written_json(
    status: StatusCode,
    body: serde_json::Result<impl Into<axum::body::Body>>,
) -> Response {
    let body = match body {
        Ok(body) => body.into(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            return Problem::internal().into_response();
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Runs work that should be finished even when the client hangs up.
///
/// Boxed at once: the future of an order takes 8 KB, and to spawn it copies it a dozen times.
pub(crate) fn detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, Problem>> + Send {
    let work = Box::pin(work);
    async {
        tokio::spawn(reading::under(reading::current(), work)).await.map_err(|error| {
            tracing::error!(%error, "a handler failed");
            Problem::internal()
        })
    }
}
