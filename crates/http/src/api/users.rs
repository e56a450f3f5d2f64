//! `/v1/users`.

use axum::{extract::State, response::Response};
use http::StatusCode;
use mobimir_core::zone::Zone;
use mobimir_shop::ProfileEdit;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    extract::{Body, User, detached, json},
    problem::Problem,
    state::AppState,
    views::ProfileView,
};

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(register)).routes(routes!(profile, edit_profile))
}

#[derive(Deserialize, ToSchema)]
struct RegisterBody {
    email: String,
    /// 8 to 128 characters.
    password: String,
}

#[derive(Serialize, ToSchema)]
struct Registered {
    user_id: Uuid,
}

/// Sign up
#[utoipa::path(post, path = "/v1/users", tag = "users", request_body = RegisterBody,
    responses((status = 201, body = Registered), (status = 409, description = "`email_taken`", body = Problem, content_type = "application/problem+json"), (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn register(
    State(state): State<AppState>,
    Body(body): Body<RegisterBody>,
) -> Result<Response, Problem> {
    let user = detached(async move { state.shop.register(&body.email, &body.password).await }).await??;
    Ok(json(StatusCode::CREATED, &Registered { user_id: user.0 }))
}

/// The user's profile
#[utoipa::path(get, path = "/v1/users/me", tag = "users", security(("token" = [])), responses((status = 200, body = ProfileView)))]
async fn profile(State(state): State<AppState>, user: User) -> Result<Response, Problem> {
    let user = state.shop.user(user.id).await?.ok_or_else(|| Problem::not_found("the user"))?;
    Ok(json(StatusCode::OK, &ProfileView::from(user)))
}

/// What is left out stays, `null` is taken out.
#[derive(Deserialize, ToSchema)]
struct ProfileBody {
    #[serde(default, deserialize_with = "named")]
    #[schema(value_type = Option<String>)]
    name: Option<Option<String>>,
    #[serde(default, deserialize_with = "named")]
    #[schema(value_type = Option<String>)]
    phone: Option<Option<String>>,
    #[serde(default, deserialize_with = "named")]
    #[schema(value_type = Option<String>)]
    geo_zone: Option<Option<Zone>>,
    #[serde(default, deserialize_with = "named")]
    #[schema(value_type = Option<String>)]
    shipping_address: Option<Option<String>>,
}

/// Tells a `null` from nothing.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

/// Change the profile
#[utoipa::path(patch, path = "/v1/users/me", tag = "users", request_body = ProfileBody, security(("token" = [])),
    responses((status = 200, body = ProfileView), (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn edit_profile(
    State(state): State<AppState>,
    user: User,
    Body(body): Body<ProfileBody>,
) -> Result<Response, Problem> {
    if let Some(Some(zone)) = body.geo_zone
        && !state.shop.settings().knows_zone(zone)
    {
        return Err(Problem::unknown_zone(format!("zone {zone} is not one of this shop's")));
    }
    let edit = ProfileEdit {
        name: body.name,
        phone: body.phone,
        geo_zone: body.geo_zone,
        shipping_address: body.shipping_address,
    };
    let user = state.shop.edit_profile(user.id, edit).await?.ok_or_else(|| Problem::not_found("the user"))?;
    Ok(json(StatusCode::OK, &ProfileView::from(user)))
}
