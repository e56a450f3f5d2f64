//! What a user has ordered.

use askama::Template;
use axum::{extract::State, response::Response};
use mobimir_core::{
    id::OrderId,
    order::{Order, OrderLine, OrderPosition, OrderStatus, StatusChange},
    ports::Period,
};
use serde::Deserialize;

use super::{
    checkout,
    fault::{Fault, Parameters, PathId, or_fault},
    links,
    page::{self, Frame},
    pictures::Picture,
    visit::Visit,
    wording,
};
use crate::{cursor, state::AppState};

const ORDERS_PER_PAGE: usize = 10;
const CURSOR_KIND: &str = "storefront-orders";
/// Pictures that a line of the list has room for.
const THUMBNAILS_MAX: usize = 5;

#[derive(Template)]
#[template(path = "storefront/orders.html")]
struct OrdersPage {
    frame: Frame,
    orders: Vec<OrderCard>,
    next: Option<String>,
    is_first: bool,
    stale: bool,
}

struct OrderCard {
    link: String,
    number: String,
    at: String,
    status: &'static str,
    mark: &'static str,
    total: String,
    count: String,
    thumbnails: Vec<Thumbnail>,
    more: usize,
}

struct Thumbnail {
    picture: String,
    name: String,
}

#[derive(Template)]
#[template(path = "storefront/order.html")]
struct OrderPage {
    frame: Frame,
    number: String,
    at: String,
    status: &'static str,
    mark: &'static str,
    lines: Vec<OrderedLine>,
    total: String,
    count: String,
    city: String,
    address: Option<String>,
    payment_method: Option<String>,
    steps: Vec<Step>,
}

struct OrderedLine {
    link: String,
    name: String,
    picture: String,
    label: &'static str,
    price: String,
    quantity: u64,
    amount: String,
}

/// A step of an order's way: taken, with its time, or still ahead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) words: &'static str,
    pub(super) at: Option<String>,
    pub(super) is_last_taken: bool,
    pub(super) is_cancellation: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Paging {
    after: String,
}

pub(super) async fn list(
    State(state): State<AppState>,
    visit: Visit,
    Parameters(paging): Parameters<Paging>,
) -> Response {
    let done = render_list(&state, &visit, &paging).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn show(State(state): State<AppState>, visit: Visit, PathId(id): PathId) -> Response {
    let done = render_order(&state, &visit, OrderId(id)).await;
    or_fault(&state, &visit, done).await
}

async fn render_list(state: &AppState, visit: &Visit, paging: &Paging) -> Result<Response, Fault> {
    let shop = &state.shop;
    let (caller, user_id) = visit.user(shop).await?;
    let after = cursor::decode::<OrderPosition>(CURSOR_KIND, &paging.after).ok();
    let page = shop.orders_of(user_id, Period::default(), after, ORDERS_PER_PAGE).await?;
    let next = page.next.map(|position| cursor::encode(CURSOR_KIND, &position));
    let view = OrdersPage {
        frame: Frame::of(shop, visit, Some(&caller), "Мои заказы — Мобильный мир").await,
        orders: page.items.iter().map(OrderCard::of).collect(),
        next: next.map(|next| links::with_query("/orders", &[("after", &next)])),
        is_first: after.is_none(),
        stale: after.is_none() && !paging.after.is_empty(),
    };
    Ok(page::ok(visit, &view))
}

async fn render_order(state: &AppState, visit: &Visit, id: OrderId) -> Result<Response, Fault> {
    let shop = &state.shop;
    let (caller, user_id) = visit.user(shop).await?;
    // Whether somebody else has such an order is nobody's business.
    let order = shop.order(id).await?.filter(|order| order.user_id == user_id).ok_or(Fault::NotFound)?;
    let history = shop.order_history(id).await?;
    let number = wording::order_number(&id.to_string());
    let view = OrderPage {
        frame: Frame::of(shop, visit, Some(&caller), format!("Заказ № {number} — Мобильный мир")).await,
        number,
        at: wording::time(order.created_at),
        status: wording::status(order.status),
        mark: mark(order.status),
        total: wording::price(order.total()),
        count: wording::goods(units(&order)),
        city: wording::zone(order.geo_zone),
        payment_method: order.payment_method.as_deref().map(checkout::payment_words).map(str::to_owned),
        steps: steps(&history),
        lines: order.lines.iter().map(OrderedLine::of).collect(),
        address: order.shipping_address,
    };
    Ok(page::ok(visit, &view))
}

/// The way of an order: what its history tells, then what usually follows.
pub(super) fn steps(history: &[StatusChange]) -> Vec<Step> {
    const WAY: [OrderStatus; 4] =
        [OrderStatus::Confirmed, OrderStatus::Paid, OrderStatus::Shipped, OrderStatus::Delivered];
    let taken = history.iter().enumerate().map(|(place, change)| Step {
        words: wording::status(change.status),
        at: Some(wording::time(change.at)),
        is_last_taken: place + 1 == history.len(),
        is_cancellation: change.status == OrderStatus::Cancelled,
    });
    let last = history.last().map(|change| change.status);
    let ahead = WAY.into_iter().filter(|status| last.is_some_and(|last| last < *status)).map(|status| Step {
        words: wording::status(status),
        at: None,
        is_last_taken: false,
        is_cancellation: false,
    });
    taken.chain(ahead).collect()
}

impl OrderCard {
    fn of(order: &Order) -> Self {
        let thumbnail = |line: &OrderLine| Thumbnail {
            picture: Picture::of_product(line.product_id, &line.name, &line.category).url(),
            name: line.name.clone(),
        };
        Self {
            link: format!("/orders/{}", order.id),
            number: wording::order_number(&order.id.to_string()),
            at: wording::time(order.created_at),
            status: wording::status(order.status),
            mark: mark(order.status),
            total: wording::price(order.total()),
            count: wording::goods(units(order)),
            thumbnails: order.lines.iter().take(THUMBNAILS_MAX).map(thumbnail).collect(),
            more: order.lines.len().saturating_sub(THUMBNAILS_MAX),
        }
    }
}

impl OrderedLine {
    fn of(line: &OrderLine) -> Self {
        let picture = Picture::of_product(line.product_id, &line.name, &line.category);
        Self {
            link: format!("/product/{}", line.product_id),
            name: line.name.clone(),
            picture: picture.url(),
            label: picture.label(),
            price: wording::price(line.price),
            quantity: line.quantity,
            amount: wording::price(line.amount()),
        }
    }
}

/// How the style sheet colours a status.
fn mark(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::Pending | OrderStatus::Confirmed => "mark-new",
        OrderStatus::Paid | OrderStatus::Shipped => "mark-moving",
        OrderStatus::Delivered => "mark-done",
        OrderStatus::Cancelled => "mark-off",
    }
}

fn units(order: &Order) -> u64 {
    order.lines.iter().fold(0, |sum, line| sum.saturating_add(line.quantity))
}
