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
    /// Whether [`Self::go_on_apart`] is something else than [`Self::go_on`].
    const HAS_APART: bool = false;

    fn begin(store: &Arc<P>) -> impl Future<Output = Result<Self>> + Send;

    /// The same where nothing has been written before, so that every write is a copy of its own.
    fn go_on_apart(
        &self,
        store: Arc<P>,
        number: usize,
        due: Instant,
    ) -> BoxFuture<'static, Result<Vec<f64>>> {
        self.go_on(store, number, due)
    }

    /// Returns how long each operation took, in milliseconds: the first from when it was due, each of the
    /// others from the answer of the one before.
    fn go_on(&self, store: Arc<P>, number: usize, due: Instant) -> BoxFuture<'static, Result<Vec<f64>>>;
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

    fn go_on(
        &self,
        store: Arc<dyn OrderStore>,
        number: usize,
        due: Instant,
    ) -> BoxFuture<'static, Result<Vec<f64>>> {
        let (user, zone) = (self.users[number % self.users.len()], self.zone);
        Box::pin(async move {
            let order = sides::order(user, number, zone, SystemClock.now());
            let (id, from) = (order.id, order.status);
            ensure!(store.insert(vec![order]).await? == 1, "an order was there before");
            let inserted_at = Instant::now();
            let change = StatusChange { status: OrderStatus::Paid, at: SystemClock.now(), operator: None };
            let outcome = store.transition(id, from, change).await?;
            ensure!(matches!(outcome, Transition::Moved(_)), "an order was not moved: {outcome:?}");
            Ok(vec![ms(inserted_at - due), ms(inserted_at.elapsed())])
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
    const HAS_APART: bool = true;

    async fn begin(store: &Arc<dyn CartStore>) -> Result<Self> {
        let carts: Vec<Owner> = (0..CARTS).map(|_| sides::new_cart(SystemClock.now())).collect();
        for owner in &carts {
            append(store.clone(), *owner, 0).await?;
        }
        Ok(Self { carts })
    }

    fn go_on(
        &self,
        store: Arc<dyn CartStore>,
        number: usize,
        due: Instant,
    ) -> BoxFuture<'static, Result<Vec<f64>>> {
        fill(store, self.cart(number), number, due)
    }

    fn go_on_apart(
        &self,
        store: Arc<dyn CartStore>,
        number: usize,
        due: Instant,
    ) -> BoxFuture<'static, Result<Vec<f64>>> {
        fill(store, sides::new_cart(SystemClock.now()), number, due)
    }
}

impl Filling {
    pub(super) fn cart(&self, number: usize) -> Owner {
        self.carts[number % self.carts.len()]
    }
}

fn fill(
    store: Arc<dyn CartStore>,
    owner: Owner,
    number: usize,
    due: Instant,
) -> BoxFuture<'static, Result<Vec<f64>>> {
    Box::pin(async move {
        append(store, owner, number).await?;
        Ok(vec![ms(due.elapsed())])
    })
}

async fn append(store: Arc<dyn CartStore>, owner: Owner, number: usize) -> Result<()> {
    let now = SystemClock.now();
    let change = sides::change(owner, number, now);
    Ok(store.append(owner, vec![change], now.plus_ms(CART_TTL_MS), now).await?)
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// When the request of this number is due. That follows from the rate alone, whatever becomes of the requests
/// before.
fn due_at(started: Instant, number: usize, rate: f64) -> Instant {
    started + Duration::from_secs_f64(number as f64 / rate)
}

/// Begins so many a second, numbered, and waits for all of them. Gives what each of them gave.
///
/// Each is given when it was due, which is what its time counts from: when this process or the stores stand
/// still, the requests that were due meanwhile have waited, too (coordinated omission).
pub(super) async fn at_rate<T, F, Fut>(rate: f64, lasts: Duration, shop: F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Fn(usize, Instant) -> Fut,
    Fut: Future<Output = Result<T>> + Send + 'static,
{
    let (started, count) = (Instant::now(), (rate * lasts.as_secs_f64()) as usize);
    let mut shopping = JoinSet::new();
    for number in 0..count {
        let due = due_at(started, number, rate);
        sleep_until(due).await;
        shopping.spawn(shop(number, due));
    }
    let mut given = Vec::with_capacity(count);
    while let Some(one) = shopping.join_next().await {
        given.push(one??);
    }
    ensure!(!given.is_empty(), "nothing was done in {lasts:?}");
    Ok(given)
}

/// As many as so many clients can, one after the other; returns how many that were. Each is due when it
/// begins.
pub(super) async fn at_most<T, F, Fut>(clients: usize, lasts: Duration, shop: F) -> Result<usize>
where
    T: Send + 'static,
    F: Fn(usize, Instant) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<T>> + Send + 'static,
{
    let (started, next, mut shopping) = (Instant::now(), Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..clients {
        let (shop, next) = (shop.clone(), next.clone());
        shopping.spawn(async move {
            while started.elapsed() < lasts {
                shop(next.fetch_add(1, Ordering::Relaxed), Instant::now()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(one) = shopping.join_next().await {
        one??;
    }
    Ok(next.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_the_rate_whatever_happens() {
        let started = Instant::now();
        let due_ms: Vec<u128> =
            (0..4).map(|number| (due_at(started, number, 20.0) - started).as_millis()).collect();
        assert_eq!(due_ms, [0, 50, 100, 150]);
    }

    /// The first request keeps the only thread for longer than all of them take. Those who were due meanwhile
    /// are polled late, and have waited for it.
    #[test]
    fn a_request_that_is_polled_late_has_waited_since_it_was_due() {
        const RATE: f64 = 100.0;
        const LASTS: Duration = Duration::from_millis(100);
        const STALL: Duration = Duration::from_millis(300);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let started = Instant::now();
        let shop = |number, due: Instant| async move {
            if number == 0 {
                std::thread::sleep(STALL);
            }
            Ok((number, due, due.elapsed()))
        };
        let took = runtime.block_on(at_rate(RATE, LASTS, shop)).unwrap();
        assert_eq!(took.len(), 10);
        let first = took.iter().map(|(_, due, _)| *due).min().unwrap();
        for (number, due, waited) in took {
            // However late it was begun.
            assert_eq!(due, due_at(first, number, RATE));
            // Nobody was polled before the stall was over.
            assert!(due + waited >= started + STALL, "{waited:?}");
        }
    }
}
