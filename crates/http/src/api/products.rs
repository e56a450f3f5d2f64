//! `/v1/products`, `/v1/categories`.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use mobimir_core::{
    id::ProductId,
    money::Money,
    product::{Attribute, ProductEdit, ProductQuery, ProductSort, QUANTITY_MAX, STOCK_MAX, StockChange},
    search,
    zone::Zone,
};
use mobimir_shop::NewProduct;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    cursor,
    extract::{Body, Operator, PathId, PathPair, Query, json, page_limit, written_json},
    problem::Problem,
    state::AppState,
    views::{AvailableByZone, List, ProductSchema, ProductView, StockView},
};

const CURSOR_KIND: &str = "products";
const QUERY_CHARS_MAX: usize = 500;

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, edit))
        .routes(routes!(stock))
        .routes(routes!(change_stock))
        .routes(routes!(categories))
}

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    pub(crate) category: Option<String>,
    /// Lowest price, like `1000.00`.
    pub(crate) price_min: Option<String>,
    pub(crate) price_max: Option<String>,
    /// Words of the name, in Russian or English, in any of their forms.
    pub(crate) q: Option<String>,
    /// Only what is available in this zone.
    pub(crate) zone: Option<String>,
    /// `price` (default), `-price` or `name`.
    pub(crate) sort: Option<String>,
    /// 1 to 100, default 20.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    pub(crate) limit: Option<String>,
    pub(crate) after: Option<String>,
}

impl ListQuery {
    fn parse(self) -> Result<Option<ProductQuery>, Problem> {
        let sort = match self.sort.as_deref() {
            None | Some("price") => ProductSort::PriceAscending,
            Some("-price") => ProductSort::PriceDescending,
            Some("name") => ProductSort::Name,
            Some(_) => return Err(Problem::bad_request("sort: expected price, -price or name")),
        };
        let price = |name: &str, text: Option<String>| {
            text.map(|text| {
                Money::parse_price(&text).map_err(|error| Problem::bad_request(format!("{name}: {error}")))
            })
            .transpose()
        };
        let q = self.q.filter(|q| !q.trim().is_empty());
        if q.as_ref().is_some_and(|q| q.chars().count() > QUERY_CHARS_MAX) {
            return Err(Problem::bad_request(format!("q: expected at most {QUERY_CHARS_MAX} characters")));
        }
        let terms = q.as_deref().map(search::terms).unwrap_or_default();
        let after = self
            .after
            .map(|text| cursor::decode(CURSOR_KIND, &text).map_err(|_| Problem::bad_cursor()))
            .transpose()?;
        if after.as_ref().is_some_and(|position| !sort.fits(position)) {
            return Err(Problem::bad_cursor());
        }
        let zone = self
            .zone
            .map(|zone| Zone::parse(&zone).map_err(|error| Problem::bad_request(format!("zone: {error}"))));
        // A question without a word in it is not about any product.
        let about_nothing = q.is_some() && terms.is_empty();
        let query = ProductQuery {
            category: self.category.filter(|category| !category.is_empty()),
            price_min: price("price_min", self.price_min)?,
            price_max: price("price_max", self.price_max)?,
            terms,
            zone: zone.transpose()?,
            sort,
            after,
            limit: page_limit(self.limit.as_deref())?,
        };
        Ok((!about_nothing).then_some(query))
    }
}

/// Products, filtered and sorted
#[utoipa::path(get, path = "/v1/products", tag = "products", params(ListQuery),
    responses((status = 200, body = List<ProductSchema>), (status = 400, body = Problem, content_type = "application/problem+json")))]
async fn list(State(state): State<AppState>, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let (products, next) = match query.parse()? {
        Some(query) => {
            let page = state.shop.list_products(query).await?;
            (page.items, page.next.map(|position| cursor::encode(CURSOR_KIND, &position)))
        }
        None => Default::default(),
    };
    Ok(written_json(StatusCode::OK, state.inner.products.list(&products, next.as_deref())))
}

/// One product
#[utoipa::path(get, path = "/v1/products/{product_id}", tag = "products", params(("product_id" = uuid::Uuid, Path)),
    responses((status = 200, body = ProductSchema), (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn get(State(state): State<AppState>, PathId(id): PathId) -> Result<Response, Problem> {
    let product =
        state.shop.product(ProductId(id)).await?.ok_or_else(|| Problem::not_found("the product"))?;
    Ok(written_json(StatusCode::OK, state.inner.products.of(&product)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StockQuery {
    /// `true` for an operator: what is available, reserved and sold.
    detail: Option<String>,
}

/// A product's stock by zone, always current
#[utoipa::path(get, path = "/v1/products/{product_id}/stock", tag = "products", params(("product_id" = uuid::Uuid, Path), StockQuery),
    responses((status = 200, description = "units by zone", body = BTreeMap<String, u64>), (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn stock(
    State(state): State<AppState>,
    PathId(id): PathId,
    Query(query): Query<StockQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let detail = match query.detail.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Problem::bad_request("detail: expected true or false")),
    };
    if detail {
        Operator::require(&headers, &state).await?;
    }
    let product =
        state.shop.product_now(ProductId(id)).await?.ok_or_else(|| Problem::not_found("the product"))?;
    if detail {
        let zones: BTreeMap<&str, StockView> =
            product.stock.iter().map(|(zone, stock)| (zone.as_str(), StockView::from(*stock))).collect();
        return Ok(json(StatusCode::OK, &zones));
    }
    Ok(json(StatusCode::OK, &AvailableByZone(&product)))
}

/// The categories that products are in
#[utoipa::path(get, path = "/v1/categories", tag = "products", responses((status = 200, body = Vec<String>)))]
async fn categories(State(state): State<AppState>) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &state.shop.categories().await?))
}

#[derive(Deserialize, ToSchema)]
struct NewProductBody {
    name: String,
    category: String,
    #[schema(value_type = String, example = "12000.00")]
    price: Money,
    #[serde(default)]
    #[schema(value_type = Object)]
    attributes: BTreeMap<String, Attribute>,
    /// Initial stock by zone.
    #[serde(default)]
    #[schema(value_type = Object)]
    stock_by_zone: BTreeMap<Zone, u64>,
}

/// Add a product
#[utoipa::path(post, path = "/v1/products", tag = "products", request_body = NewProductBody, security(("token" = [])),
    responses((status = 201, body = ProductSchema), (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn create(
    State(state): State<AppState>,
    _: Operator,
    Body(body): Body<NewProductBody>,
) -> Result<Response, Problem> {
    let new = NewProduct {
        name: body.name,
        category: body.category,
        price: body.price,
        attributes: body.attributes,
        stock: body.stock_by_zone,
    };
    let product = state.shop.add_product(new).await?;
    Ok(json(StatusCode::CREATED, &ProductView(product)))
}

#[derive(Deserialize, ToSchema)]
struct EditProductBody {
    name: Option<String>,
    category: Option<String>,
    #[schema(value_type = Option<String>, example = "11000.00")]
    price: Option<Money>,
    #[schema(value_type = Option<Object>)]
    attributes: Option<BTreeMap<String, Attribute>>,
}

/// Change a product
#[utoipa::path(patch, path = "/v1/products/{product_id}", tag = "products", params(("product_id" = uuid::Uuid, Path)),
    request_body = EditProductBody, security(("token" = [])),
    responses((status = 200, body = ProductSchema), (status = 404, body = Problem, content_type = "application/problem+json"), (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn edit(
    State(state): State<AppState>,
    _: Operator,
    PathId(id): PathId,
    Body(body): Body<EditProductBody>,
) -> Result<Response, Problem> {
    let edit = ProductEdit {
        name: body.name,
        category: body.category,
        price: body.price,
        attributes: body.attributes,
    };
    let product = state.shop.edit_product(ProductId(id), edit).await?;
    Ok(json(StatusCode::OK, &ProductView(product)))
}

/// Either what shall be available, or by how much it changes.
#[derive(Deserialize, ToSchema)]
struct StockBody {
    quantity: Option<u64>,
    delta: Option<i64>,
}

/// Set or change a product's stock in a zone
#[utoipa::path(put, path = "/v1/products/{product_id}/stock/{zone}", tag = "products",
    params(("product_id" = uuid::Uuid, Path), ("zone" = String, Path)), request_body = StockBody, security(("token" = [])),
    responses((status = 200, body = StockView), (status = 404, body = Problem, content_type = "application/problem+json"), (status = 409, body = Problem, content_type = "application/problem+json")))]
async fn change_stock(
    State(state): State<AppState>,
    _: Operator,
    PathPair(id, zone): PathPair,
    Body(body): Body<StockBody>,
) -> Result<Response, Problem> {
    let id = uuid::Uuid::parse_str(&id).map_err(|_| Problem::bad_request("expected a UUID in the path"))?;
    let zone = Zone::parse(&zone).map_err(|error| Problem::bad_request(error.to_string()))?;
    let change = match (body.quantity, body.delta) {
        (Some(quantity), None) if quantity <= STOCK_MAX => StockChange::SetAvailable(quantity),
        (Some(_), None) => return Err(Problem::invalid(format!("quantity: expected 0 to {STOCK_MAX}"))),
        (None, Some(delta)) => StockChange::Delta(delta),
        _ => return Err(Problem::invalid("expected either quantity or delta")),
    };
    let stock = state.shop.change_stock(ProductId(id), zone, change).await?;
    Ok(json(StatusCode::OK, &StockView::from(stock)))
}

/// A quantity of a cart's or an order's line.
pub(crate) fn quantity(quantity: u64) -> Result<u64, Problem> {
    let fits = (1..=QUANTITY_MAX).contains(&quantity);
    fits.then_some(quantity)
        .ok_or_else(|| Problem::invalid(format!("quantity: expected 1 to {QUANTITY_MAX}, got {quantity}")))
}
