//! What is copied: orders of the last months with their moves, and carts with a few things in them.

use anyhow::Result;
use mobimir_core::{
    cart::StoredCart,
    id::{self, OrderId, UserId},
    moving::{WholeCart, WholeOrder},
    order::{OrderStatus, StatusChange},
    time::{Clock, SystemClock, Version},
    zone::Zone,
};

use crate::sides::{self, CART_TTL_MS};

const DAY_MS: i64 = 86_400_000;
/// Orders are from so many days.
const DAYS: usize = 90;
/// Of one after the other, so that most of a user's orders are of different months.
const ORDERS_PER_USER: usize = 4;
/// One, two or three lines of history.
pub(super) const MOVES_MAX: usize = 3;
const CHANGES_PER_CART: usize = 3;

pub(super) fn zone() -> Result<Zone> {
    Ok(Zone::parse("MSK")?)
}

/// Orders that nobody has seen before.
pub(super) fn orders(count: usize) -> Result<Vec<WholeOrder>> {
    let (now, zone) = (SystemClock.now(), zone()?);
    let users: Vec<UserId> = (0..=count / ORDERS_PER_USER).map(|_| UserId(id::fresh(now))).collect();
    let order = |number: usize| {
        let at = now.plus_ms(-DAY_MS * (number % DAYS) as i64 - number as i64);
        let mut order = sides::order(users[number / ORDERS_PER_USER], number, zone, at);
        order.id = OrderId(id::fresh(at));
        let mut history = vec![order.first_change()];
        for status in [OrderStatus::Paid, OrderStatus::Shipped].into_iter().take(number % MOVES_MAX) {
            let at = order.updated_at.plus_ms(1_000);
            order = order.moved(status, at);
            history.push(StatusChange { status, at, operator: Some("warehouse".to_owned()) });
        }
        WholeOrder { order, history }
    };
    Ok((0..count).map(order).collect())
}

/// Carts that nobody has seen before.
pub(super) fn carts(count: usize) -> Result<Vec<WholeCart>> {
    let now = SystemClock.now();
    let cart = |_| {
        let owner = sides::new_cart(now);
        let changes = (0..CHANGES_PER_CART).map(|number| sides::change(owner, number, now)).collect();
        let cart =
            StoredCart { changes, created_at: now, updated_at: now, expires_at: now.plus_ms(CART_TTL_MS) };
        WholeCart { owner, cart, version: Version::default().next(now) }
    };
    Ok((0..count).map(cart).collect())
}
