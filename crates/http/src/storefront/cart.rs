//! The cart: seen, filled, changed.

use askama::Template;
use axum::{extract::State, response::Response};
use mobimir_core::{id::ProductId, product::QUANTITY_MAX, zone::Zone};
use mobimir_shop::{Caller, CartContents, CartError, Shop};
use serde::Deserialize;

use super::{
    fault::{Fault, Fields, PathId, or_fault},
    links,
    notice::Notice,
    page::{self, Frame},
    pictures::Picture,
    visit::Visit,
    wording,
};
use crate::state::AppState;

#[derive(Template)]
#[template(path = "storefront/cart.html")]
struct CartPage {
    frame: Frame,
    lines: Vec<Line>,
    amount: String,
    count: String,
    city: Option<String>,
    any_short: bool,
}

/// A line of the cart, as the pages of the cart and the checkout show it.
pub(super) struct Line {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) picture: String,
    pub(super) label: &'static str,
    pub(super) price: String,
    pub(super) amount: String,
    pub(super) quantity: u64,
    /// How many there are, when that is fewer than wanted.
    pub(super) short: Option<u64>,
    pub(super) short_words: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AddForm {
    product_id: String,
    quantity: String,
    zone: String,
    next: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChangeForm {
    quantity: String,
    /// One more or one less than `quantity`.
    step: String,
    next: String,
}

pub(super) async fn show(State(state): State<AppState>, visit: Visit) -> Response {
    let done = render(&state, &visit).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn add(
    State(state): State<AppState>,
    visit: Visit,
    Fields(form): Fields<AddForm>,
) -> Response {
    let done = put(&state, &visit, &form).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn change(
    State(state): State<AppState>,
    visit: Visit,
    PathId(id): PathId,
    Fields(form): Fields<ChangeForm>,
) -> Response {
    let done = set(&state, &visit, ProductId(id), &form).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn remove(
    State(state): State<AppState>,
    visit: Visit,
    PathId(id): PathId,
    Fields(form): Fields<ChangeForm>,
) -> Response {
    let done = take_out(&state, &visit, ProductId(id), &form).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn clear(State(state): State<AppState>, visit: Visit) -> Response {
    let done = empty(&state, &visit).await;
    or_fault(&state, &visit, done).await
}

async fn render(state: &AppState, visit: &Visit) -> Result<Response, Fault> {
    let shop = &state.shop;
    let caller = visit.caller(shop).await?;
    let mut frame = Frame::of(shop, visit, caller.as_ref(), "Корзина — Мобильный мир").await;
    frame.path = "/cart".to_owned();
    let Some(caller) = caller else {
        return Ok(page::ok(visit, &CartPage::empty(frame)));
    };
    let contents = shop.cart(&caller).await?;
    let lines = lines(shop, &contents, contents.geo_zone).await?;
    let count = contents.items.iter().fold(0_u64, |sum, item| sum.saturating_add(item.quantity));
    let view = CartPage {
        frame,
        any_short: lines.iter().any(|line| line.short.is_some()),
        lines,
        amount: wording::price(contents.amount),
        count: wording::goods(count),
        city: contents.geo_zone.map(wording::zone),
    };
    Ok(page::ok(visit, &view))
}

/// The lines of a cart, each compared with what `zone` has; without one, with the city that has most.
pub(super) async fn lines(
    shop: &Shop,
    contents: &CartContents,
    zone: Option<Zone>,
) -> Result<Vec<Line>, Fault> {
    let ids: Vec<ProductId> = contents.items.iter().map(|item| item.product_id).collect();
    let products = if ids.is_empty() { Default::default() } else { shop.products_now(&ids).await? };
    let place = zone.map(|zone| format!(", {}", wording::zone(zone))).unwrap_or_default();
    let line = |item: &mobimir_shop::CartItem| {
        let picture = Picture::of_product(item.product_id, &item.name, &item.category);
        let available = products.get(&item.product_id).map_or(0, |product| product.best_available(zone));
        let short_words = match available {
            0 => format!("Нет в наличии{place}"),
            left => format!("Осталось {}{place}", wording::pieces(left)),
        };
        Line {
            id: item.product_id.to_string(),
            name: item.name.clone(),
            picture: picture.url(),
            label: picture.label(),
            price: wording::price(item.price),
            amount: wording::price(item.price.times(item.quantity)),
            quantity: item.quantity,
            short: (available < item.quantity).then_some(available),
            short_words,
        }
    };
    Ok(contents.items.iter().map(line).collect())
}

impl CartPage {
    fn empty(frame: Frame) -> Self {
        Self {
            frame,
            lines: Vec::new(),
            amount: String::new(),
            count: String::new(),
            city: None,
            any_short: false,
        }
    }
}

async fn put(state: &AppState, visit: &Visit, form: &AddForm) -> Result<Response, Fault> {
    let shop = &state.shop;
    let product = ProductId(form.product_id.trim().parse().map_err(|_| Fault::NotFound)?);
    let zone = match form.zone.as_str() {
        "" => None,
        code => Some(Zone::parse(code).map_err(|_| Fault::BadForm)?),
    };
    let back_to = links::local_path(&form.next).unwrap_or("/cart");
    let quantity = match form.quantity.trim() {
        "" => Some(1),
        text => typed_quantity(text).filter(|quantity| *quantity > 0),
    };
    let Some(quantity) = quantity else {
        return Ok(page::see_other(visit, back_to, Some(Notice::BadQuantity)));
    };
    let known = visit.caller(shop).await?;
    // Whoever only looks around gets no session; this is where one is needed. Nor does a product that cannot be had
    // start one.
    if known.is_none() {
        let found = shop.product_now(product).await?.ok_or(Fault::NotFound)?;
        if found.best_available(zone) < quantity {
            return Ok(page::see_other(visit, back_to, Some(shortage(found.best_available(zone)))));
        }
    }
    let (caller, started) = match known {
        Some(caller) => (caller, None),
        None => {
            let started = shop.start_guest_session(visit.client.clone()).await?;
            let caller = shop
                .authenticate(&started.token)
                .await?
                .ok_or(Fault::Busy("the new session is not there".into()))?;
            (caller, Some(started))
        }
    };
    let notice = match shop.add_to_cart(&caller, product, quantity, zone, None).await {
        Ok(_) => Notice::Added,
        Err(CartError::OutOfStock { available, .. }) => shortage(available),
        Err(CartError::Full) => Notice::FullCart,
        Err(error) => return Err(error.into()),
    };
    let mut response = page::see_other(visit, back_to, Some(notice));
    if let Some(started) = started {
        let max_age_s = started.expires_at.since(shop.now()) / 1_000;
        page::keep_session(&mut response, visit, Some((&started.token, max_age_s)));
    }
    Ok(response)
}

async fn set(
    state: &AppState,
    visit: &Visit,
    product: ProductId,
    form: &ChangeForm,
) -> Result<Response, Fault> {
    let back_to = links::local_path(&form.next).unwrap_or("/cart");
    let caller = holder(state, visit).await?;
    let Some(typed) = typed_quantity(&form.quantity) else {
        return Ok(page::see_other(visit, back_to, Some(Notice::BadQuantity)));
    };
    let quantity = match form.step.as_str() {
        "more" => typed.saturating_add(1).min(QUANTITY_MAX),
        "less" => typed.saturating_sub(1),
        _ => typed,
    };
    if quantity == 0 {
        state.shop.remove_from_cart(&caller, product).await?;
        return Ok(page::see_other(visit, back_to, Some(Notice::Removed)));
    }
    let zone = state.shop.cart(&caller).await?.geo_zone;
    let notice = match state.shop.set_in_cart(&caller, product, quantity, zone).await {
        Ok(_) => Notice::CartChanged,
        Err(CartError::OutOfStock { available, .. }) => shortage(available),
        Err(CartError::Full) => Notice::FullCart,
        Err(CartError::UnknownProduct(_)) => Notice::GoneProduct,
        Err(error) => return Err(error.into()),
    };
    Ok(page::see_other(visit, back_to, Some(notice)))
}

async fn take_out(
    state: &AppState,
    visit: &Visit,
    product: ProductId,
    form: &ChangeForm,
) -> Result<Response, Fault> {
    let caller = holder(state, visit).await?;
    state.shop.remove_from_cart(&caller, product).await?;
    let back_to = links::local_path(&form.next).unwrap_or("/cart");
    Ok(page::see_other(visit, back_to, Some(Notice::Removed)))
}

async fn empty(state: &AppState, visit: &Visit) -> Result<Response, Fault> {
    let caller = holder(state, visit).await?;
    state.shop.clear_cart(&caller).await?;
    Ok(page::see_other(visit, "/cart", Some(Notice::Cleared)))
}

/// Whoever has a cart to change. When the session has ended meanwhile there is none, and the cart's page says so.
async fn holder(state: &AppState, visit: &Visit) -> Result<Caller, Fault> {
    visit.caller(&state.shop).await?.ok_or(Fault::NoCart)
}

fn shortage(available: u64) -> Notice {
    if available == 0 { Notice::SoldOut } else { Notice::Short(available) }
}

/// A number of pieces as people type it; 0 is one too.
fn typed_quantity(text: &str) -> Option<u64> {
    let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    bare.parse().ok().filter(|quantity| *quantity <= QUANTITY_MAX)
}
