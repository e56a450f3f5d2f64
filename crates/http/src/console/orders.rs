//! Today's orders and the carts that were left behind.

use std::{fmt::Display, time::Duration};

use mobimir_core::{
    money::Money,
    order::{Order, OrderStatus},
    page::PAGE_ITEMS_MAX,
    ports::{DayFilter, StoreError},
    time::Day,
};
use mobimir_shop::Shop;

use super::wording;

/// A store that hangs must not take along the page that would tell.
const READ_TIME_MAX: Duration = Duration::from_secs(2);
const ORDERS_SHOWN_MAX: usize = 20;

pub(super) struct Orders {
    pub(super) day: Day,
    /// `42`, or `100+` when there are more than were read.
    pub(super) count: String,
    pub(super) read: usize,
    pub(super) has_more: bool,
    /// Of those that were read.
    pub(super) amount: String,
    pub(super) shares: Vec<StatusShare>,
    pub(super) newest: Vec<OrderRow>,
}

/// One piece of the bar of statuses, in hundredths of its width.
pub(super) struct StatusShare {
    pub(super) code: &'static str,
    pub(super) name: &'static str,
    pub(super) count: usize,
    pub(super) start: String,
    pub(super) width: String,
}

pub(super) struct OrderRow {
    pub(super) id: String,
    pub(super) placed_at: String,
    pub(super) status_code: &'static str,
    pub(super) status: &'static str,
    pub(super) zone: String,
    pub(super) lines: usize,
    pub(super) total: String,
}

pub(super) struct Carts {
    /// `42`, or `100+` when there are more than were read.
    pub(super) count: String,
    pub(super) read: usize,
    pub(super) has_more: bool,
    /// Of those that were read.
    pub(super) amount: String,
    pub(super) untouched_for: String,
}

impl Orders {
    pub(super) async fn of_today(shop: &Shop) -> Result<Self, String> {
        let day = shop.now().day();
        let page =
            read("today's orders", shop.orders_of_day(day, DayFilter::default(), None, PAGE_ITEMS_MAX))
                .await?;
        let amount =
            page.items.iter().filter(|order| order.status != OrderStatus::Cancelled).map(Order::total).sum();
        Ok(Self {
            day,
            count: at_least(page.items.len(), page.next.is_some()),
            read: page.items.len(),
            has_more: page.next.is_some(),
            amount: wording::roubles(amount),
            shares: shares(&page.items),
            newest: page.items.iter().take(ORDERS_SHOWN_MAX).map(OrderRow::of).collect(),
        })
    }
}

impl OrderRow {
    fn of(order: &Order) -> Self {
        Self {
            id: order.id.to_string(),
            placed_at: wording::time(order.created_at),
            status_code: order.status.as_str(),
            status: wording::status(order.status),
            zone: order.geo_zone.to_string(),
            lines: order.lines.len(),
            total: wording::roubles(order.total()),
        }
    }
}

impl Carts {
    pub(super) async fn left_behind(shop: &Shop) -> Result<Self, String> {
        let page = read("abandoned carts", shop.abandoned_carts(None, PAGE_ITEMS_MAX)).await?;
        Ok(Self {
            count: at_least(page.items.len(), page.next.is_some()),
            read: page.items.len(),
            has_more: page.next.is_some(),
            amount: wording::roubles(page.items.iter().map(|cart| cart.amount).sum::<Money>()),
            untouched_for: wording::span(shop.settings().abandoned_after_ms),
        })
    }
}

/// What a store answers in time, or what to tell instead.
async fn read<T>(what: &str, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, String> {
    let explain = |error: &dyn Display| {
        tracing::warn!(%error, "the console could not read {what}");
        error.to_string()
    };
    match tokio::time::timeout(READ_TIME_MAX, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(explain(&error)),
        Err(late) => Err(explain(&late)),
    }
}

fn at_least(count: usize, more: bool) -> String {
    format!("{count}{}", if more { "+" } else { "" })
}

fn shares(orders: &[Order]) -> Vec<StatusShare> {
    let per_cent = |count: usize| count as f64 * 100.0 / orders.len().max(1) as f64;
    let mut before = 0;
    let mut shares = Vec::new();
    for status in OrderStatus::ALL {
        let count = orders.iter().filter(|order| order.status == status).count();
        if count == 0 {
            continue;
        }
        shares.push(StatusShare {
            code: status.as_str(),
            name: wording::status(status),
            count,
            start: format!("{:.2}", per_cent(before)),
            width: format!("{:.2}", per_cent(count)),
        });
        before += count;
    }
    shares
}
