//! A past for a shop: users, and orders of the last months, put into its data directory while nobody serves from it.

use std::{path::Path, sync::Arc};

use anyhow::{Result, ensure};
use mobimir_core::{
    entropy::SystemEntropy,
    id::{OrderId, SessionId, UserId, derived, fresh},
    order::{Order, OrderLine, OrderStatus},
    product::{Product, ProductQuery, ProductSort},
    random::Random,
    secret::AccessToken,
    session::{Holder, Session, SessionState},
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
/// So many of the orders are named for those who read them.
const ORDERS_TOLD: usize = 5_000;
const SESSION_TTL_MS: i64 = 86_400_000;
const BUCKETS: u16 = 4;

/// Orders of the past, spread evenly over all of them, and who may read them.
pub(crate) struct Past {
    pub(crate) orders: Vec<PastOrder>,
    /// Tokens of all users.
    pub(crate) tokens: Vec<String>,
}

pub(crate) struct PastOrder {
    pub(crate) id: OrderId,
    /// Of its owner, among the tokens.
    pub(crate) owner: usize,
}

/// Puts users, each with a session, and orders of the last months into the shop.
pub(crate) fn fill(data: &Path, orders: usize) -> Result<Past> {
    progress(&format!("making {orders} orders of the last months"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = EmbeddedStore::open(data, &Options::default())?;
        let (stores, now) = (store.stores(), SystemClock.now());
        let mut tokens = Vec::with_capacity(USERS);
        for number in 0..USERS {
            let id = user_id(number);
            let email = Email::parse(&format!("buyer{number}@example.ru"))?;
            let (password_hash, profile) = (String::new(), Profile::default());
            let version = Version::default().next(now);
            let user = User { id, email, password_hash, profile, created_at: now, updated_at: now, version };
            ensure!(stores.users.insert(user).await?, "a user was there before");
            let (session, token) = session(id, now);
            stores.sessions.insert(session, None).await?;
            tokens.push(token);
        }
        let products = stores.products.list(ProductQuery::all(ProductSort::PriceAscending, 100)).await?.items;
        ensure!(!products.is_empty(), "the shop has no products");
        for first in (0..orders).step_by(ORDERS_PER_INSERT) {
            let batch: Vec<Order> = (first..orders.min(first + ORDERS_PER_INSERT))
                .map(|number| {
                    order(number, now.plus_ms(-ORDERS_SPAN_MS * number as i64 / orders as i64), &products)
                })
                .collect::<Result<_>>()?;
            let count = batch.len();
            ensure!(stores.orders.insert(batch).await? == count, "an order was there before");
            let made = first + count;
            if made.is_multiple_of(ORDERS_PER_WORD) {
                progress(&format!("{made} of {orders} orders"));
            }
        }
        store.close().await;
        let told = spread(orders, ORDERS_TOLD)
            .map(|number| PastOrder { id: order_id(number), owner: number % USERS });
        Ok(Past { orders: told.collect(), tokens })
    })
}

/// As many numbers below `count` as are wanted, or all, at about equal distances. At exactly equal ones they
/// would be orders of the same few users.
fn spread(count: usize, wanted: usize) -> impl Iterator<Item = usize> {
    let wanted = wanted.min(count);
    let mut random = Random::new(1);
    (0..wanted).map(move |at| {
        let (first, next) = (at * count / wanted, (at + 1) * count / wanted);
        first + random.below((next - first) as u64) as usize
    })
}

/// A session of a user who has logged in, and its token.
fn session(user: UserId, now: Timestamp) -> (Session, String) {
    let token = AccessToken::generate(SessionId(fresh(now)), &SystemEntropy);
    let session = Session {
        id: token.session,
        holder: Holder::User(user),
        token_hash: token.hash(),
        state: SessionState::Live,
        ip_address: None,
        user_agent: None,
        device: None,
        created_at: now,
        last_active: now,
        expires_at: now.plus_ms(SESSION_TTL_MS),
        version: Version::default().next(now),
    };
    (session, token.encode())
}

fn order_id(number: usize) -> OrderId {
    OrderId::of(user_id(number % USERS), &number.to_string())
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
        id: order_id(number),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn orders_that_are_read_are_spread_over_all_and_of_many_users() {
        assert_eq!(spread(3, 5).collect::<Vec<_>>(), [0, 1, 2]);
        for orders in [ORDERS_TOLD, 100_000, 1_000_000, 5_000_000] {
            let (told, step) = (spread(orders, ORDERS_TOLD).collect::<Vec<_>>(), orders / ORDERS_TOLD);
            assert_eq!(told.len(), ORDERS_TOLD);
            assert!(told.iter().enumerate().all(|(at, number)| number / step == at));
            let owners: BTreeSet<usize> = told.iter().map(|number| number % USERS).collect();
            assert!(owners.len() > USERS * 9 / 10, "{} users", owners.len());
        }
    }
}
