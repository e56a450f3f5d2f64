//! The page of one product.

use std::sync::Arc;

use askama::Template;
use axum::{extract::State, response::Response};
use mobimir_core::{
    id::ProductId,
    money::Money,
    ports::StoreError,
    product::{Product, ProductQuery, ProductSort},
};
use mobimir_shop::Shop;

use super::{
    catalogue::Card,
    fault::{Fault, PathId, or_fault},
    links,
    page::{self, Frame},
    visit::Visit,
    wording,
};
use crate::state::AppState;

const SIMILAR_ITEMS_MAX: usize = 6;

#[derive(Template)]
#[template(path = "storefront/product.html")]
struct ProductPage {
    frame: Frame,
    card: Card,
    category: String,
    category_link: String,
    attributes: Vec<(String, String)>,
    cities: Vec<City>,
    quantity_max: u64,
    cards: Vec<Card>,
    zone_code: String,
}

/// The stock of a city.
struct City {
    code: String,
    name: String,
    available: u64,
    chosen: bool,
    words: String,
}

pub(super) async fn show(State(state): State<AppState>, visit: Visit, PathId(id): PathId) -> Response {
    let done = render(&state, &visit, ProductId(id)).await;
    or_fault(&state, &visit, done).await
}

async fn render(state: &AppState, visit: &Visit, id: ProductId) -> Result<Response, Fault> {
    let shop = &state.shop;
    let caller = visit.caller_if_known(shop).await;
    let product = shop.product(id).await?.ok_or(Fault::NotFound)?;
    let cards = similar(shop, &product).await?;
    let frame = Frame::of(shop, visit, caller.as_ref(), format!("{} — Мобильный мир", product.name)).await;
    let view = ProductPage {
        frame,
        card: Card::of(&product, None),
        category: product.category.clone(),
        category_link: links::category(&product.category),
        attributes: attributes(&product),
        cities: cities(shop, &product),
        quantity_max: product.best_available(None).max(1),
        cards: cards.iter().map(|product| Card::of(product, None)).collect(),
        zone_code: String::new(),
    };
    Ok(page::ok(visit, &view))
}

fn attributes(product: &Product) -> Vec<(String, String)> {
    let known = product.attributes.iter();
    known.map(|(name, value)| (wording::capitalised(name), wording::attribute(value))).collect()
}

/// The shop's cities with what is there; the one that has it first is chosen.
fn cities(shop: &Shop, product: &Product) -> Vec<City> {
    let first = shop.settings().zones.iter().find(|zone| product.available_in(**zone) > 0);
    let city = |zone: &mobimir_core::zone::Zone| {
        let available = product.available_in(*zone);
        City {
            code: zone.to_string(),
            name: wording::zone(*zone),
            available,
            chosen: first == Some(zone),
            words: if available == 0 {
                "нет в наличии".to_owned()
            } else {
                wording::pieces(available)
            },
        }
    };
    shop.settings().zones.iter().map(city).collect()
}

/// Goods of the category that cost about as much.
async fn similar(shop: &Shop, product: &Product) -> Result<Vec<Arc<Product>>, StoreError> {
    let query = |sort, price_min, price_max| ProductQuery {
        category: Some(product.category.clone()),
        price_min,
        price_max,
        ..ProductQuery::all(sort, SIMILAR_ITEMS_MAX + 1)
    };
    let dearer = shop.list_products(query(ProductSort::PriceAscending, Some(product.price), None)).await?;
    let cheaper = shop.list_products(query(ProductSort::PriceDescending, None, Some(product.price))).await?;
    let mut found = dearer.items;
    found.extend(cheaper.items);
    found.sort_by_key(|other| (distance(other.price, product.price), other.id));
    found.dedup_by_key(|other| other.id);
    found.retain(|other| other.id != product.id);
    found.truncate(SIMILAR_ITEMS_MAX);
    Ok(found)
}

fn distance(one: Money, other: Money) -> u128 {
    one.kopecks().abs_diff(other.kopecks())
}
