//! What shoppers do, in whichever store: at a rate, whatever becomes of the requests before, or as much as they can.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use futures_util::future::BoxFuture;
use mobimir_core::{
    cart::Owner,
    id::{self, OrderId, UserId},
    order::{OrderStatus, StatusChange},
    ports::{CartStore, OrderStore, Transition},
    time::{Clock, SystemClock},
    zone::Zone,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::values;
use crate::sides::{self, CART_TTL_MS};

/// What they write at the same time is of different users, and in different carts.
const USERS: usize = 256;
const CARTS: usize = 256;

/// Something that shoppers write.
pub(super) trait Shopping<P: ?Sized>: Send + Sync + Sized + 'static {
    /// What is timed, one after the other.
    const OPERATIONS: &'static [&'static str];

    fn begin(store: &Arc<P>) -> impl Future<Output = Result<Self>> + Send;

    /// The same where nothing has been written before, so that every write is a copy of its own.
    fn go_on_apart(&self, store: Arc<P>, number: usize) -> BoxFuture<'static, Result<Vec<f64>>> {
        self.go_on(store, number)
    }

    /// Says how long each operation took, in milliseconds.
    fn go_on(&self, store: Arc<P>, number: usize) -> BoxFuture<'static, Result<Vec<f64>>>;
}

/// An order is placed, and then moved.
pub(super) struct Buying {
    users: Vec<UserId>,
    zone: Zone,
}

/// Something is put into a cart that is there.
pub(super) struct Filling {
    carts: Vec<Owner>,
}

impl Shopping<dyn OrderStore> for Buying {
    const OPERATIONS: &'static [&'static str] = &["order_insert", "order_transition"];

    async fn begin(_: &Arc<dyn OrderStore>) -> Result<Self> {
        let now = SystemClock.now();
        Ok(Self { users: (0..USERS).map(|_| UserId(id::fresh(now))).collect(), zone: values::zone()? })
    }

    fn go_on(&self, store: Arc<dyn OrderStore>, number: usize) -> BoxFuture<'static, Result<Vec<f64>>> {
        let (user, zone) = (self.users[number % self.users.len()], self.zone);
        Box::pin(async move {
            let order = sides::order(user, number, zone, SystemClock.now());
            let (id, from) = (order.id, order.status);
            let started = Instant::now();
            ensure!(store.insert(vec![order]).await? == 1, "an order was there before");
            let inserted = ms_since(started);
            let change = StatusChange { status: OrderStatus::Paid, at: SystemClock.now(), operator: None };
            let started = Instant::now();
            let outcome = store.transition(id, from, change).await?;
            ensure!(matches!(outcome, Transition::Moved(_)), "an order was not moved: {outcome:?}");
            Ok(vec![inserted, ms_since(started)])
        })
    }
}

impl Buying {
    /// Places an order; says which.
    pub(super) fn place(
        &self,
        store: Arc<dyn OrderStore>,
        number: usize,
    ) -> impl Future<Output = Result<OrderId>> + Send + use<> {
        let order = sides::order(self.users[number % self.users.len()], number, self.zone, SystemClock.now());
        async move {
            let id = order.id;
            ensure!(store.insert(vec![order]).await? == 1, "an order was there before");
            Ok(id)
        }
    }
}

impl Shopping<dyn CartStore> for Filling {
    const OPERATIONS: &'static [&'static str] = &["cart_append"];

    async fn begin(store: &Arc<dyn CartStore>) -> Result<Self> {
        let carts: Vec<Owner> = (0..CARTS).map(|_| sides::new_cart(SystemClock.now())).collect();
        for owner in &carts {
            append(store.clone(), *owner, 0).await?;
        }
        Ok(Self { carts })
    }

    fn go_on(&self, store: Arc<dyn CartStore>, number: usize) -> BoxFuture<'static, Result<Vec<f64>>> {
        fill(store, self.cart(number), number)
    }

    fn go_on_apart(&self, store: Arc<dyn CartStore>, number: usize) -> BoxFuture<'static, Result<Vec<f64>>> {
        fill(store, sides::new_cart(SystemClock.now()), number)
    }
}

impl Filling {
    pub(super) fn cart(&self, number: usize) -> Owner {
        self.carts[number % self.carts.len()]
    }
}

fn fill(store: Arc<dyn CartStore>, owner: Owner, number: usize) -> BoxFuture<'static, Result<Vec<f64>>> {
    Box::pin(async move {
        let started = Instant::now();
        append(store, owner, number).await?;
        Ok(vec![ms_since(started)])
    })
}

async fn append(store: Arc<dyn CartStore>, owner: Owner, number: usize) -> Result<()> {
    let now = SystemClock.now();
    let change = sides::change(owner, number, now);
    Ok(store.append(owner, vec![change], now.plus_ms(CART_TTL_MS), now).await?)
}

pub(super) fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// Begins so many a second, numbered, and waits for all of them. Gives what each of them gave.
pub(super) async fn at_rate<T, F, Fut>(rate: f64, lasts: Duration, shop: F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Fn(usize) -> Fut,
    Fut: Future<Output = Result<T>> + Send + 'static,
{
    let (started, count) = (Instant::now(), (rate * lasts.as_secs_f64()) as usize);
    let mut shopping = JoinSet::new();
    for number in 0..count {
        sleep_until(started + Duration::from_secs_f64(number as f64 / rate)).await;
        shopping.spawn(shop(number));
    }
    let mut given = Vec::with_capacity(count);
    while let Some(one) = shopping.join_next().await {
        given.push(one??);
    }
    ensure!(!given.is_empty(), "nothing was done in {lasts:?}");
    Ok(given)
}

/// As many as so many clients can, one after the other; says how many that were.
pub(super) async fn at_most<T, F, Fut>(clients: usize, lasts: Duration, shop: F) -> Result<usize>
where
    T: Send + 'static,
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<T>> + Send + 'static,
{
    let (started, next, mut shopping) = (Instant::now(), Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..clients {
        let (shop, next) = (shop.clone(), next.clone());
        shopping.spawn(async move {
            while started.elapsed() < lasts {
                shop(next.fetch_add(1, Ordering::Relaxed)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(one) = shopping.join_next().await {
        one??;
    }
    Ok(next.load(Ordering::Relaxed))
}
