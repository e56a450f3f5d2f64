//! A store that is read late passes a patient suite and no other; one that is wrong passes neither.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use mobimir_core::{
    cart::{CartChange, CartPosition, Owner, StoredCart},
    id::{OrderId, SessionId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{
        CartStore, DayFilter, OrderHistoryStore, OrderStore, Period, SessionStore, StoreResult, Stores,
        Transition,
    },
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Day, Timestamp, Version},
};
use mobimir_testkit::{
    conformance::{self, ConformanceOptions},
    model::ModelStore,
};
use tokio::{sync::Mutex, time::Instant};

/// How long after a write reads begin to see it.
const LAG: Duration = Duration::from_millis(8);
/// So long that no test sees what was written, however slow the machine is.
const LONG_LAG: Duration = Duration::from_secs(3_600);

const IMPATIENT: ConformanceOptions = ConformanceOptions {
    cases: 8,
    steps: 40,
    rounds: 1,
    shrink_attempts: 0,
    patience: Duration::ZERO,
    seed: 1,
};
const PATIENT: ConformanceOptions = ConformanceOptions { patience: Duration::from_secs(120), ..IMPATIENT };
/// Less than the lag.
const TOO_IMPATIENT: ConformanceOptions =
    ConformanceOptions { patience: Duration::from_millis(1), ..IMPATIENT };

macro_rules! late_but_right {
    ($($area:ident: $factory:expr;)+) => {$(
        #[test]
        fn $area() {
            conformance::$area(&$factory(LAG), PATIENT);
            for options in [IMPATIENT, TOO_IMPATIENT] {
                let outcome = catch_unwind(AssertUnwindSafe(|| conformance::$area(&$factory(LONG_LAG), options)));
                assert!(outcome.is_err(), "nobody noticed that reads come late");
            }
            // However patient, what never comes is missed.
            let options = ConformanceOptions { patience: LAG, ..IMPATIENT };
            let outcome = catch_unwind(AssertUnwindSafe(|| conformance::$area(&$factory(Duration::MAX), options)));
            assert!(outcome.is_err(), "nobody noticed that reads see nothing");
        }
    )+};
}

late_but_right! {
    carts: shop;
    orders: shop;
    sessions: shop;
    order_history: history;
}

fn shop(lag: Duration) -> impl Fn() -> std::future::Ready<Stores> {
    move || {
        let late = Arc::new(Late::new(lag, ModelStore::stores));
        std::future::ready(Stores {
            carts: late.clone(),
            orders: late.clone(),
            sessions: late,
            ..ModelStore::stores()
        })
    }
}

fn history(lag: Duration) -> impl Fn() -> std::future::Ready<Arc<dyn OrderHistoryStore>> {
    move || std::future::ready(Arc::new(Late::new(lag, ModelStore::order_history)))
}

/// Writes are decided by one store at once, and read from another that does the same some time later.
struct Late<S> {
    lag: Duration,
    current: S,
    read: S,
    pending: Mutex<VecDeque<(Option<Instant>, Replay<S>)>>,
}

type Replay<S> = Box<dyn FnOnce(S) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

impl<S: Clone + Send + Sync + 'static> Late<S> {
    fn new(lag: Duration, model: impl Fn() -> S) -> Self {
        Self { lag, current: model(), read: model(), pending: Mutex::default() }
    }

    async fn write<T, F>(&self, run: impl Fn(S) -> F + Send + 'static) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>> + Send + 'static,
        T: Send,
    {
        // Nobody else writes meanwhile, so that what is replayed has the same order.
        let mut pending = self.pending.lock().await;
        let answer = run(self.current.clone()).await?;
        let replay: Replay<S> = Box::new(move |store| {
            let again = run(store);
            Box::pin(async move {
                again.await.expect("the model does not fail");
            })
        });
        pending.push_back((Instant::now().checked_add(self.lag), replay));
        Ok(answer)
    }

    async fn seen(&self) -> &S {
        let mut pending = self.pending.lock().await;
        let now = Instant::now();
        while pending.front().is_some_and(|(due, _)| due.is_some_and(|due| due <= now)) {
            if let Some((_, replay)) = pending.pop_front() {
                replay(self.read.clone()).await;
            }
        }
        &self.read
    }
}

#[async_trait]
impl CartStore for Late<Stores> {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        self.write(move |stores| {
            let changes = changes.clone();
            async move { stores.carts.append(owner, changes, expires_at, now).await }
        })
        .await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        self.seen().await.carts.read(owner, now).await
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.seen().await.carts.untouched(untouched_since, after, limit, now).await
    }
}

#[async_trait]
impl OrderStore for Late<Stores> {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        self.write(move |stores| {
            let orders = orders.clone();
            async move { stores.orders.insert(orders).await }
        })
        .await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.seen().await.orders.get(id).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.seen().await.orders.history(id).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        self.write(move |stores| {
            let change = change.clone();
            async move { stores.orders.transition(id, from, change).await }
        })
        .await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.seen().await.orders.by_user(user, period, after, limit).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.seen().await.orders.by_day(day, filter, after, limit).await
    }
}

#[async_trait]
impl SessionStore for Late<Stores> {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        self.write(move |stores| {
            let session = session.clone();
            async move { stores.sessions.insert(session, refresh).await }
        })
        .await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.seen().await.sessions.get(id, now).await
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        self.seen().await.sessions.by_user(user, after, limit, now).await
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        self.write(move |stores| async move { stores.sessions.use_refresh(hash, now).await }).await
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        self.write(move |stores| {
            let session = session.clone();
            async move { stores.sessions.update(session, expected, refresh).await }
        })
        .await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        self.seen().await.sessions.unmerged(closed_before, limit, now).await
    }
}

#[async_trait]
impl OrderHistoryStore for Late<Arc<dyn OrderHistoryStore>> {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        self.write(move |store| {
            let orders = orders.clone();
            async move { store.append(orders).await }
        })
        .await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.seen().await.by_user(user, period, after, limit).await
    }
}
