//! `/v1/orders` and the orders of a day.

use axum::{extract::State, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode};
use mobimir_core::{
    checkout::{ADDRESS_CHARS_MAX, Asked, LINES_MAX, PAYMENT_METHOD_CHARS_MAX},
    id::{OrderId, ProductId},
    order::OrderStatus,
    ports::{DayFilter, Period},
    time::{Day, Timestamp},
    zone::Zone,
};
use mobimir_shop::OrderRequest;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    api::products::quantity,
    cursor,
    extract::{Body, Operator, PathId, Query, Reader, User, detached, idempotency_key, json, page_limit},
    problem::Problem,
    state::AppState,
    views::{List, OrderView, StatusChangeView},
};

const OWN_CURSOR_KIND: &str = "orders";
const DAY_CURSOR_KIND: &str = "orders-of-day";
/// Operators share one token, so this is all that a history can say of who it was.
const OPERATOR: &str = "operator";

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(place, own))
        .routes(routes!(get))
        .routes(routes!(history))
        .routes(routes!(change_status))
        .routes(routes!(of_day))
}

#[derive(Deserialize, ToSchema)]
struct OrderBody {
    #[schema(value_type = String, example = "MSK")]
    geo_zone: Zone,
    /// 1 to 200 lines; without them the cart is ordered.
    items: Option<Vec<OrderItemBody>>,
    shipping_address: Option<String>,
    payment_method: Option<String>,
}

#[derive(Deserialize, ToSchema)]
struct OrderItemBody {
    product_id: Uuid,
    quantity: u64,
}

impl OrderBody {
    fn into_request(self) -> Result<OrderRequest, Problem> {
        let items = match self.items {
            None => None,
            Some(items) if items.is_empty() => {
                return Err(Problem::invalid("items: expected at least one line"));
            }
            Some(items) if items.len() > LINES_MAX => {
                return Err(Problem::invalid(format!(
                    "items: expected at most {LINES_MAX} lines, got {}",
                    items.len()
                )));
            }
            Some(items) => {
                let line = |item: OrderItemBody| Ok((ProductId(item.product_id), quantity(item.quantity)?));
                Some(items.into_iter().map(line).collect::<Result<Vec<_>, Problem>>()?)
            }
        };
        let geo_zone = self.geo_zone;
        let shipping_address = fitting("shipping_address", self.shipping_address, ADDRESS_CHARS_MAX)?;
        let payment_method = fitting("payment_method", self.payment_method, PAYMENT_METHOD_CHARS_MAX)?;
        let asked = Asked {
            geo_zone,
            items: items.as_deref(),
            shipping_address: shipping_address.as_deref(),
            payment_method: payment_method.as_deref(),
        };
        let hash = asked.hash();
        Ok(OrderRequest { geo_zone, items, shipping_address, payment_method, hash, shown: None })
    }
}

fn fitting(field: &str, text: Option<String>, chars_max: usize) -> Result<Option<String>, Problem> {
    match text {
        Some(text) if text.chars().count() > chars_max => {
            Err(Problem::invalid(format!("{field}: expected at most {chars_max} characters")))
        }
        text => Ok(text),
    }
}

/// Place an order
#[utoipa::path(post, path = "/v1/orders", tag = "orders", request_body = OrderBody, security(("token" = [])),
    params(("Idempotency-Key" = String, Header, description = "1 to 255 characters; one key makes at most one order")),
    responses(
        (status = 201, description = "placed; with `Idempotent-Replayed: true` the answer that the key got before", body = OrderView),
        (status = 409, description = "`out_of_stock` with the short lines, `empty_cart` or `cart_ordered` with the `order_id` that took the cart, or `in_progress` while the first request with this key runs", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "`idempotency_mismatch`, `unknown_product` or invalid", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "`unavailable`: try again with the same key", body = Problem, content_type = "application/problem+json")))]
async fn place(
    State(state): State<AppState>,
    user: User,
    headers: HeaderMap,
    Body(body): Body<OrderBody>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?.map(str::to_owned).ok_or_else(|| {
        let detail = "expected an Idempotency-Key header of 1 to 255 characters".to_owned();
        Problem::new(StatusCode::BAD_REQUEST, "idempotency_key_required", detail)
    })?;
    let request = body.into_request()?;
    let placed = detached(async move { state.shop.place_order(user.id, &key, request).await }).await??;
    let mut response = json(StatusCode::CREATED, &OrderView::from(placed.order));
    if placed.replayed {
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    Ok(response)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OwnQuery {
    /// 1 to 100, default 20.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    after: Option<String>,
    /// Placed at or after this time.
    from: Option<String>,
    /// Placed before this time.
    to: Option<String>,
}

/// The user's orders, newest first
#[utoipa::path(get, path = "/v1/orders", tag = "orders", params(OwnQuery), security(("token" = [])),
    responses((status = 200, body = List<OrderView>), (status = 400, body = Problem, content_type = "application/problem+json")))]
async fn own(
    State(state): State<AppState>,
    user: User,
    Query(query): Query<OwnQuery>,
) -> Result<Response, Problem> {
    let time = |name: &str, text: Option<String>| {
        text.map(|text| {
            Timestamp::parse(&text).map_err(|error| Problem::bad_request(format!("{name}: {error}")))
        })
        .transpose()
    };
    let period = Period { from: time("from", query.from)?, to: time("to", query.to)? };
    let after = query
        .after
        .map(|text| cursor::decode(OWN_CURSOR_KIND, &text).map_err(|_| Problem::bad_cursor()))
        .transpose()?;
    let page = state.shop.orders_of(user.id, period, after, page_limit(query.limit.as_deref())?).await?;
    Ok(json(StatusCode::OK, &List::of(OWN_CURSOR_KIND, page, OrderView::from)))
}

/// One order
#[utoipa::path(get, path = "/v1/orders/{order_id}", tag = "orders", params(("order_id" = Uuid, Path)), security(("token" = [])),
    responses((status = 200, body = OrderView), (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn get(State(state): State<AppState>, reader: Reader, PathId(id): PathId) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &OrderView::from(readable(&state, &reader, OrderId(id)).await?)))
}

/// How an order's status moved
#[utoipa::path(get, path = "/v1/orders/{order_id}/history", tag = "orders", params(("order_id" = Uuid, Path)), security(("token" = [])),
    responses((status = 200, body = Vec<StatusChangeView>), (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn history(
    State(state): State<AppState>,
    reader: Reader,
    PathId(id): PathId,
) -> Result<Response, Problem> {
    let order = readable(&state, &reader, OrderId(id)).await?;
    let history = state.shop.order_history(order.id).await?;
    let views: Vec<StatusChangeView> = history.into_iter().map(StatusChangeView::from).collect();
    Ok(json(StatusCode::OK, &views))
}

/// An order of somebody else does not exist, as far as one can see.
async fn readable(
    state: &AppState,
    reader: &Reader,
    id: OrderId,
) -> Result<mobimir_core::order::Order, Problem> {
    let order = state.shop.order(id).await?.filter(|order| reader.may_read(order.user_id));
    order.ok_or_else(|| Problem::not_found("the order"))
}

#[derive(Deserialize, ToSchema)]
struct StatusBody {
    /// `paid`, `shipped`, `delivered` or `cancelled`
    status: String,
}

/// Move an order along its statuses
#[utoipa::path(post, path = "/v1/orders/{order_id}/status", tag = "orders", params(("order_id" = Uuid, Path)), request_body = StatusBody,
    security(("token" = [])),
    responses((status = 200, body = OrderView), (status = 404, body = Problem, content_type = "application/problem+json"), (status = 409, description = "`bad_transition`", body = Problem, content_type = "application/problem+json")))]
async fn change_status(
    State(state): State<AppState>,
    _: Operator,
    PathId(id): PathId,
    Body(body): Body<StatusBody>,
) -> Result<Response, Problem> {
    let to = status(&body.status).map_err(Problem::invalid)?;
    let moved = detached(async move { state.shop.move_order(OrderId(id), to, OPERATOR).await }).await??;
    Ok(json(StatusCode::OK, &OrderView::from(moved)))
}

fn status(text: &str) -> Result<OrderStatus, String> {
    OrderStatus::parse(text).ok_or_else(|| {
        "status: expected pending, confirmed, paid, shipped, delivered or cancelled".to_owned()
    })
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DayQuery {
    /// A day in UTC, like `2025-11-28`.
    #[param(required)]
    day: Option<String>,
    status: Option<String>,
    geo_zone: Option<String>,
    /// 1 to 100, default 20.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    limit: Option<String>,
    after: Option<String>,
}

/// The orders of a day, newest first
#[utoipa::path(get, path = "/v1/reports/orders", tag = "reports", params(DayQuery), security(("token" = [])),
    responses((status = 200, body = List<OrderView>), (status = 400, body = Problem, content_type = "application/problem+json")))]
async fn of_day(
    State(state): State<AppState>,
    _: Operator,
    Query(query): Query<DayQuery>,
) -> Result<Response, Problem> {
    let day = query.day.ok_or_else(|| Problem::bad_request("day: expected a day like 2025-11-28"))?;
    let day = Day::parse(&day).map_err(|error| Problem::bad_request(format!("day: {error}")))?;
    let filter = DayFilter {
        status: query.status.map(|text| status(&text).map_err(Problem::bad_request)).transpose()?,
        zone: query
            .geo_zone
            .map(|text| {
                Zone::parse(&text).map_err(|error| Problem::bad_request(format!("geo_zone: {error}")))
            })
            .transpose()?,
    };
    let after = query
        .after
        .map(|text| cursor::decode(DAY_CURSOR_KIND, &text).map_err(|_| Problem::bad_cursor()))
        .transpose()?;
    let page = state.shop.orders_of_day(day, filter, after, page_limit(query.limit.as_deref())?).await?;
    Ok(json(StatusCode::OK, &List::of(DAY_CURSOR_KIND, page, OrderView::from)))
}
