//! A past for a shop: users, and orders of the last months, put into its data directory while nobody serves from it.

use std::{path::Path, sync::Arc};

use anyhow::{Result, ensure};
use mobimir_core::{
    id::{OrderId, UserId, derived},
    order::{Order, OrderLine, OrderStatus},
    product::{Product, ProductQuery, ProductSort},
    time::{Clock, SystemClock, Timestamp, Version},
    user::{Email, Profile, User},
    zone::Zone,
};
use mobimir_embedded::{EmbeddedStore, Options};

use crate::{catalogue, progress};

const USERS: usize = 1_000;
const ORDERS_PER_INSERT: usize = 500;
/// How often people are told how far it is.
const ORDERS_PER_WORD: usize = 100_000;
const ORDERS_SPAN_MS: i64 = 90 * 86_400_000;
const LINES_MAX: usize = 3;
const BUCKETS: u16 = 4;

/// Puts users and orders of the last months into the shop. Returns the ids of some of the orders.
pub(crate) fn fill(data: &Path, orders: usize) -> Result<Vec<OrderId>> {
    progress(&format!("making {orders} orders of the last months"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = EmbeddedStore::open(data, &Options::default())?;
        let (stores, now) = (store.stores(), SystemClock.now());
        for number in 0..USERS {
            let id = user_id(number);
            let email = Email::parse(&format!("buyer{number}@example.ru"))?;
            let (password_hash, profile) = (String::new(), Profile::default());
            let version = Version::default().next(now);
            let user = User { id, email, password_hash, profile, created_at: now, updated_at: now, version };
            ensure!(stores.users.insert(user).await?, "a user was there before");
        }
        let products = stores.products.list(ProductQuery::all(ProductSort::PriceAscending, 100)).await?.items;
        ensure!(!products.is_empty(), "the shop has no products");
        let mut ids = Vec::new();
        for first in (0..orders).step_by(ORDERS_PER_INSERT) {
            let batch: Vec<Order> = (first..orders.min(first + ORDERS_PER_INSERT))
                .map(|number| {
                    order(number, now.plus_ms(-ORDERS_SPAN_MS * number as i64 / orders as i64), &products)
                })
                .collect::<Result<_>>()?;
            ids.extend(batch.first().map(|order| order.id));
            let count = batch.len();
            ensure!(stores.orders.insert(batch).await? == count, "an order was there before");
            let made = first + count;
            if made.is_multiple_of(ORDERS_PER_WORD) {
                progress(&format!("{made} of {orders} orders"));
            }
        }
        store.close().await;
        Ok(ids)
    })
}

fn user_id(number: usize) -> UserId {
    UserId(derived("bench-user", &[&number.to_be_bytes()]))
}

fn order(number: usize, created_at: Timestamp, products: &[Arc<Product>]) -> Result<Order> {
    let user_id = user_id(number % USERS);
    let line = |at: usize| {
        let product = &products[(number * 7 + at) % products.len()];
        OrderLine {
            product_id: product.id,
            name: product.name.clone(),
            category: product.category.clone(),
            price: product.price,
            quantity: 1 + at as u64,
        }
    };
    Ok(Order {
        id: OrderId::of(user_id, &number.to_string()),
        user_id,
        status: OrderStatus::Confirmed,
        geo_zone: Zone::parse(catalogue::ZONE)?,
        lines: (0..=number % LINES_MAX).map(line).collect(),
        shipping_address: Some("Москва, ул. Ленина, 1".to_owned()),
        payment_method: Some("card".to_owned()),
        created_at,
        updated_at: created_at,
        bucket: (number % usize::from(BUCKETS)) as u16,
        version: Version::default().next(created_at),
    })
}
