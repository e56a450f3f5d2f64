//! `/v1/sessions`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    cursor,
    extract::{Body, Client, Holder, OptionalBody, Query, User, bearer, detached, json, page_limit},
    problem::Problem,
    state::AppState,
    views::{GuestSessionView, List, SessionView, UserSessionView},
};

const CURSOR_KIND: &str = "sessions";

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(start, own))
        .routes(routes!(log_in))
        .routes(routes!(refresh))
        .routes(routes!(log_out))
}

/// Nothing has to be said.
#[derive(Deserialize, ToSchema)]
struct StartBody {}

/// Start a guest's session
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = StartBody,
    responses((status = 201, body = GuestSessionView)))]
async fn start(
    State(state): State<AppState>,
    Client(client): Client,
    OptionalBody(_): OptionalBody<StartBody>,
) -> Result<Response, Problem> {
    let session = state.shop.start_guest_session(client).await?;
    Ok(secret(json(StatusCode::CREATED, &GuestSessionView::from(session))))
}

#[derive(Deserialize, ToSchema)]
struct LoginBody {
    email: String,
    password: String,
}

/// Log in; the cart of a guest whose token comes along is merged
#[utoipa::path(post, path = "/v1/sessions/login", tag = "sessions", request_body = LoginBody, security((), ("token" = [])),
    responses((status = 200, body = UserSessionView), (status = 401, description = "`bad_credentials`", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "`too_many_attempts`", body = Problem, content_type = "application/problem+json")))]
async fn log_in(
    State(state): State<AppState>,
    Client(client): Client,
    headers: HeaderMap,
    Body(body): Body<LoginBody>,
) -> Result<Response, Problem> {
    let guest = match bearer(&headers) {
        Some(token) => state.shop.authenticate(token).await?,
        None => None,
    };
    let session =
        detached(async move { state.shop.log_in(&body.email, &body.password, guest, client).await })
            .await??;
    Ok(secret(json(StatusCode::OK, &UserSessionView::from(session))))
}

#[derive(Deserialize, ToSchema)]
struct RefreshBody {
    refresh_token: String,
}

/// A new pair of tokens for a refresh token, which works once
#[utoipa::path(post, path = "/v1/sessions/refresh", tag = "sessions", request_body = RefreshBody,
    responses((status = 200, body = UserSessionView), (status = 401, description = "`bad_refresh_token` or `refresh_token_used`", body = Problem, content_type = "application/problem+json")))]
async fn refresh(State(state): State<AppState>, Body(body): Body<RefreshBody>) -> Result<Response, Problem> {
    let session = detached(async move { state.shop.refresh(&body.refresh_token).await }).await??;
    Ok(secret(json(StatusCode::OK, &UserSessionView::from(session))))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OwnQuery {
    /// 1 to 100, default 20.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    after: Option<String>,
}

/// The user's live sessions, newest first
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(OwnQuery), security(("token" = [])),
    responses((status = 200, body = List<SessionView>)))]
async fn own(
    State(state): State<AppState>,
    user: User,
    Query(query): Query<OwnQuery>,
) -> Result<Response, Problem> {
    let after = query
        .after
        .map(|text| cursor::decode(CURSOR_KIND, &text).map_err(|_| Problem::bad_cursor()))
        .transpose()?;
    let page = state.shop.sessions_of(user.id, after, page_limit(query.limit.as_deref())?).await?;
    let current = user.caller.session.id.0;
    Ok(json(StatusCode::OK, &List::of(CURSOR_KIND, page, |session| SessionView::of(session, current))))
}

/// Log out
#[utoipa::path(delete, path = "/v1/sessions/current", tag = "sessions", security(("token" = [])), responses((status = 204)))]
async fn log_out(State(state): State<AppState>, Holder(caller): Holder) -> Result<Response, Problem> {
    state.shop.log_out(&caller).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// An answer with tokens in it, which nobody should keep on the way.
fn secret(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
