//! The front page: categories, and goods that others buy.

use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;
use axum::{Extension, extract::State, response::Response};
use futures_util::future::join_all;
use mobimir_core::{
    id::ProductId,
    ports::StoreError,
    product::{Product, ProductQuery, ProductSort},
    time::Timestamp,
};
use mobimir_shop::Shop;

use super::{
    assets,
    catalogue::Card,
    fault::{Fault, or_fault},
    links,
    page::{self, Frame},
    pictures::Picture,
    visit::Visit,
};
use crate::state::AppState;

const SHELF_ITEMS_MAX: usize = 12;
const SHELF_CATEGORIES_MAX: usize = 24;
/// Goods of a category that are looked at for the shelf.
const CANDIDATES_MAX: usize = 100;
/// How long a choice of goods stands. What they cost and whether they are there is read anew every time.
const SHELF_MS: i64 = 300_000;

#[derive(Template)]
#[template(path = "storefront/home.html")]
struct HomePage {
    frame: Frame,
    tiles: Vec<Tile>,
    cards: Vec<Card>,
    zone_code: String,
    all_picture: String,
    art: String,
}

struct Tile {
    name: String,
    link: String,
    picture: String,
}

/// The goods chosen for the front page, and when.
#[derive(Default)]
pub(super) struct Shelf(Mutex<Option<(Timestamp, Vec<ProductId>)>>);

pub(super) async fn show(
    State(state): State<AppState>,
    Extension(shelf): Extension<Arc<Shelf>>,
    visit: Visit,
) -> Response {
    let done = render(&state, &shelf, &visit).await;
    or_fault(&state, &visit, done).await
}

async fn render(state: &AppState, shelf: &Shelf, visit: &Visit) -> Result<Response, Fault> {
    let caller = visit.caller_if_known(&state.shop).await;
    let categories = state.shop.categories().await?;
    let chosen = shelf.chosen(&state.shop, &categories).await?;
    let products = state.shop.products(&chosen).await?;
    let cards =
        chosen.iter().filter_map(|id| products.get(id)).map(|product| Card::of(product, None)).collect();
    let all_picture = Picture::generic(categories.len()).url();
    let tiles = categories
        .into_iter()
        .enumerate()
        .map(|(place, name)| Tile {
            link: links::category(&name),
            picture: Picture::of_category(&name, place).url(),
            name,
        })
        .collect();
    let frame = Frame::of(&state.shop, visit, caller.as_ref(), "Мобильный мир — интернет-магазин").await;
    Ok(page::ok(
        visit,
        &HomePage {
            frame,
            tiles,
            cards,
            zone_code: String::new(),
            all_picture,
            art: assets::url("hero.svg"),
        },
    ))
}

impl Shelf {
    async fn chosen(&self, shop: &Shop, categories: &[String]) -> Result<Vec<ProductId>, StoreError> {
        let now = shop.now();
        let stands = |at: &Timestamp| (0..SHELF_MS).contains(&now.since(*at));
        if let Some((at, ids)) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner)
            && stands(at)
            && !ids.is_empty()
        {
            return Ok(ids.clone());
        }
        let ids = choose(shop, categories).await?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, ids.clone()));
        Ok(ids)
    }
}

/// What sells best of every category, one of each in turn.
async fn choose(shop: &Shop, categories: &[String]) -> Result<Vec<ProductId>, StoreError> {
    let pages = join_all(categories.iter().take(SHELF_CATEGORIES_MAX).map(|category| {
        let query = ProductQuery {
            category: Some(category.clone()),
            ..ProductQuery::all(ProductSort::Name, CANDIDATES_MAX)
        };
        shop.list_products(query)
    }));
    let mut ranked = Vec::new();
    for page in pages.await {
        let mut products: Vec<Arc<Product>> = page?.items;
        products.retain(|product| product.best_available(None) > 0);
        products.sort_by_key(|product| (std::cmp::Reverse(sold(product)), scattered(product.id)));
        ranked.push(products);
    }
    let mut chosen = Vec::new();
    for place in 0..SHELF_ITEMS_MAX {
        chosen.extend(ranked.iter().filter_map(|products| products.get(place)).map(|product| product.id));
    }
    chosen.truncate(SHELF_ITEMS_MAX);
    Ok(chosen)
}

fn sold(product: &Product) -> u64 {
    product.stock.values().map(|stock| stock.sold).sum()
}

/// Some order that has nothing to do with names.
fn scattered(id: ProductId) -> u64 {
    id.0.as_u64_pair().1.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
