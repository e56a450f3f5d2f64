//! `/v1/cart` of the caller, `/v1/carts` for operators.

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use mobimir_core::{id::ProductId, zone::Zone};
use mobimir_shop::{CartContents, CartError};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    api::products::quantity,
    cursor,
    extract::{Body, Holder, Operator, PathId, Query, idempotency_key, json, page_limit},
    problem::Problem,
    state::AppState,
    views::{CartView, List},
};

const CURSOR_KIND: &str = "carts";

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(get, clear))
        .routes(routes!(add))
        .routes(routes!(set, remove))
        .routes(routes!(abandoned))
}

/// The caller's cart
#[utoipa::path(get, path = "/v1/cart", tag = "cart", security(("token" = [])), responses((status = 200, body = CartView)))]
async fn get(State(state): State<AppState>, Holder(caller): Holder) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &CartView::own(state.shop.cart(&caller).await?)))
}

#[derive(Deserialize, ToSchema)]
struct AddBody {
    product_id: Uuid,
    /// 1 to 1,000,000, added to what is there.
    quantity: u64,
    #[schema(value_type = Option<String>, example = "MSK")]
    geo_zone: Option<Zone>,
}

/// Put more of a product into the cart
#[utoipa::path(post, path = "/v1/cart/items", tag = "cart", request_body = AddBody, security(("token" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "a retry under the same key counts once")),
    responses((status = 200, body = CartView), (status = 409, description = "`out_of_stock`", body = Problem, content_type = "application/problem+json"), (status = 422, description = "`unknown_product`, `unknown_zone`, `cart_full`, `idempotency_mismatch`", body = Problem, content_type = "application/problem+json")))]
async fn add(
    State(state): State<AppState>,
    Holder(caller): Holder,
    headers: HeaderMap,
    Body(body): Body<AddBody>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let product = ProductId(body.product_id);
    let cart = state.shop.add_to_cart(&caller, product, quantity(body.quantity)?, body.geo_zone, key).await?;
    Ok(json(StatusCode::OK, &CartView::own(cart)))
}

#[derive(Deserialize, ToSchema)]
struct SetBody {
    /// 1 to 1,000,000, instead of what is there.
    quantity: u64,
    #[schema(value_type = Option<String>, example = "MSK")]
    geo_zone: Option<Zone>,
}

/// Set a line of the cart
#[utoipa::path(put, path = "/v1/cart/items/{product_id}", tag = "cart", params(("product_id" = Uuid, Path)), request_body = SetBody,
    security(("token" = [])),
    responses((status = 200, body = CartView), (status = 404, body = Problem, content_type = "application/problem+json"), (status = 409, description = "`out_of_stock`", body = Problem, content_type = "application/problem+json")))]
async fn set(
    State(state): State<AppState>,
    Holder(caller): Holder,
    PathId(id): PathId,
    Body(body): Body<SetBody>,
) -> Result<Response, Problem> {
    of_path(state.shop.set_in_cart(&caller, ProductId(id), quantity(body.quantity)?, body.geo_zone).await)
}

/// The answer to a change of a line whose product stands in the path: there, an unknown one is 404.
fn of_path(changed: Result<CartContents, CartError>) -> Result<Response, Problem> {
    match changed {
        Ok(cart) => Ok(json(StatusCode::OK, &CartView::own(cart))),
        Err(CartError::UnknownProduct(_)) => Err(Problem::not_found("the product")),
        Err(error) => Err(error.into()),
    }
}

/// Take a line out of the cart
#[utoipa::path(delete, path = "/v1/cart/items/{product_id}", tag = "cart", params(("product_id" = Uuid, Path)), security(("token" = [])),
    responses((status = 200, body = CartView)))]
async fn remove(
    State(state): State<AppState>,
    Holder(caller): Holder,
    PathId(id): PathId,
) -> Result<Response, Problem> {
    of_path(state.shop.remove_from_cart(&caller, ProductId(id)).await)
}

/// Empty the cart
#[utoipa::path(delete, path = "/v1/cart", tag = "cart", security(("token" = [])), responses((status = 200, body = CartView)))]
async fn clear(State(state): State<AppState>, Holder(caller): Holder) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &CartView::own(state.shop.clear_cart(&caller).await?)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AbandonedQuery {
    /// `abandoned`
    #[param(required)]
    status: Option<String>,
    /// 1 to 100, default 20.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    after: Option<String>,
}

/// Carts that nobody has touched for a while, longest first
#[utoipa::path(get, path = "/v1/carts", tag = "reports", params(AbandonedQuery), security(("token" = [])),
    responses((status = 200, body = List<CartView>), (status = 400, body = Problem, content_type = "application/problem+json")))]
async fn abandoned(
    State(state): State<AppState>,
    _: Operator,
    Query(query): Query<AbandonedQuery>,
) -> Result<Response, Problem> {
    if query.status.as_deref() != Some("abandoned") {
        return Err(Problem::bad_request("status: expected abandoned"));
    }
    let after = query
        .after
        .map(|text| cursor::decode(CURSOR_KIND, &text).map_err(|_| Problem::bad_cursor()))
        .transpose()?;
    let page = state.shop.abandoned_carts(after, page_limit(query.limit.as_deref())?).await?;
    Ok(json(StatusCode::OK, &List::of(CURSOR_KIND, page, CartView::of_somebody)))
}
