//! A store that is slow, forgets to answer, answers late, does things twice and after its caller has gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mobimir_core::{
    cart::{CartChange, CartPosition, Owner, StoredCart},
    id::{OrderId, SessionId, UserId},
    moving::{
        Backlog, Found, HistorySide, InTable, Mark, Movable, Movables, Place, Range, Row, Rows, Scanned,
        Side, Whole,
    },
    notes::{Expected, Note, NoteStore},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{
        CartStore, DayFilter, OrderHistoryStore, OrderStore, Period, SessionStore, StoreError, StoreResult,
        Transition,
    },
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Day, Timestamp, Version},
};
use tokio::time::{Instant, sleep};

use crate::chance::Chance;

/// The longest that a write may be under way, and so be late.
pub(crate) const LATE_MAX: Duration = Duration::from_secs(2);

/// How a store misbehaves, in times out of a thousand.
pub(crate) struct Faults {
    chance: Chance,
    /// Off at the end, when everything has to come to rest.
    is_on: AtomicBool,
    permille: u64,
    /// Until then it does not answer at all.
    hangs: AtomicBool,
    /// Whether there is something in every table that is no entity.
    pub(crate) has_a_stranger: AtomicBool,
    /// Whether a row that was removed could not be written again under the same version.
    pub(crate) keeps_rows: AtomicBool,
    pub(crate) late_writes: AtomicU64,
    /// How much longer a copy takes than everything else.
    pub(crate) put_takes_ms: AtomicU64,
}

impl Faults {
    pub(crate) fn new(chance: Chance, permille: u64) -> Arc<Self> {
        Arc::new(Self {
            chance,
            is_on: AtomicBool::new(true),
            permille,
            hangs: AtomicBool::new(false),
            has_a_stranger: AtomicBool::new(false),
            keeps_rows: AtomicBool::new(false),
            late_writes: AtomicU64::new(0),
            put_takes_ms: AtomicU64::new(0),
        })
    }

    pub(crate) fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        self.hangs.store(false, Ordering::Relaxed);
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.hangs.store(hangs && self.is_on.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn strikes(&self) -> bool {
        self.is_on.load(Ordering::Relaxed) && self.chance.permille(self.permille)
    }

    async fn lag(&self) {
        sleep(Duration::from_millis(self.chance.below(20))).await;
        if self.strikes() {
            sleep(Duration::from_millis(self.chance.below(900))).await;
        }
        let mut waited = Duration::ZERO;
        while self.hangs.load(Ordering::Relaxed) && waited < LATE_MAX {
            sleep(Duration::from_millis(100)).await;
            waited += Duration::from_millis(100);
        }
    }

    async fn read<T>(&self, read: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        self.lag().await;
        if self.strikes() || self.hangs.load(Ordering::Relaxed) {
            return Err(away());
        }
        let answer = read.await;
        self.lag().await;
        answer
    }

    /// `repeats`: whether the store may do it twice, as a driver that repeats a write does.
    async fn write<T, F, Fut>(self: &Arc<Self>, repeats: bool, write: F) -> StoreResult<T>
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = StoreResult<T>> + Send,
        T: Send + 'static,
    {
        // What was sent arrives, whatever becomes of who sent it.
        let faults = self.clone();
        let deadline = Instant::now() + LATE_MAX;
        let sent = tokio::spawn(async move {
            faults.lag().await;
            if faults.strikes() || faults.hangs.load(Ordering::Relaxed) {
                return Err(away());
            }
            let is_late = faults.strikes();
            if is_late {
                faults.late_writes.fetch_add(1, Ordering::Relaxed);
                let write = write();
                let left = deadline.saturating_duration_since(Instant::now());
                sleep(Duration::from_millis(faults.chance.below(1 + left.as_millis() as u64))).await;
                let _ = write.await;
                return Err(lost());
            }
            let answer = write().await;
            if repeats && faults.strikes() {
                let _ = write().await;
            }
            if faults.strikes() { Err(lost()) } else { answer }
        });
        sent.await.unwrap_or_else(|_| Err(lost()))
    }
}

fn away() -> StoreError {
    StoreError::Unavailable { what: "it is away".to_owned(), source: None }
}

fn lost() -> StoreError {
    StoreError::Unknown { what: "the answer was lost".to_owned(), source: None }
}

/// A store behind its faults.
pub(crate) struct Faulty<S: ?Sized> {
    pub(crate) store: Arc<S>,
    pub(crate) faults: Arc<Faults>,
}

fn side<W: Whole, P: ?Sized>(
    side: &Side<W, P>,
    faults: &Arc<Faults>,
    port: impl Fn(Faulty<P>) -> Arc<P>,
) -> Side<W, P> {
    let faulty = |store: &Arc<P>| port(Faulty { store: store.clone(), faults: faults.clone() });
    Side {
        port: faulty(&side.port),
        tracked: faulty(&side.tracked),
        moving: Arc::new(Faulty { store: side.moving.clone(), faults: faults.clone() }),
    }
}

pub(crate) fn order_history(store: &HistorySide, faults: &Arc<Faults>) -> HistorySide {
    side(store, faults, |faulty| Arc::new(faulty))
}

pub(crate) fn movables(store: &Movables, faults: &Arc<Faults>) -> Movables {
    Movables {
        orders: side(&store.orders, faults, |faulty| Arc::new(faulty)),
        carts: side(&store.carts, faults, |faulty| Arc::new(faulty)),
        sessions: side(&store.sessions, faults, |faulty| Arc::new(faulty)),
    }
}

#[async_trait]
impl<W: Whole> Movable<W> for Faulty<dyn Movable<W>> {
    fn tables(&self) -> &'static [&'static str] {
        self.store.tables()
    }

    async fn whole(&self, key: W::Key) -> StoreResult<Found<W>> {
        self.faults.read(self.store.whole(key)).await
    }

    async fn count(&self) -> StoreResult<u64> {
        self.faults.read(self.store.count()).await
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        self.faults.read(self.store.ranges(parts.min(3))).await
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<W>> {
        self.faults.read(self.store.scan(range, limit.min(3))).await
    }

    async fn put(&self, wholes: Vec<W>, now: Timestamp) -> StoreResult<()> {
        let takes_ms = self.faults.put_takes_ms.load(Ordering::Relaxed);
        if takes_ms > 0 {
            sleep(Duration::from_millis(takes_ms)).await;
        }
        let store = self.store.clone();
        let put = move || {
            let (store, wholes) = (store.clone(), wholes.clone());
            async move { store.put(wholes, now).await }
        };
        self.faults.write(true, put).await
    }

    async fn in_tables(&self, whole: &W) -> StoreResult<Vec<InTable>> {
        self.faults.read(self.store.in_tables(whole)).await
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<W::Key>> {
        let mut rows = self.faults.read(self.store.rows(table, after, limit)).await?;
        if rows.next.is_none() && self.faults.has_a_stranger.load(Ordering::Relaxed) {
            rows.nameless.push("stranger".to_owned());
        }
        Ok(rows)
    }

    fn is_replaceable(&self, table: &str) -> bool {
        self.store.is_replaceable(table) && !self.faults.keeps_rows.load(Ordering::Relaxed)
    }

    async fn remove(&self, table: &'static str, row: &Row<W::Key>) -> StoreResult<()> {
        self.store.remove(table, row).await
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<W::Key>>> {
        self.faults.read(self.store.unmirrored(limit)).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.faults.read(self.store.backlog()).await
    }

    async fn mirrored(&self, marks: &[Mark<W::Key>], read_at: Timestamp) -> StoreResult<()> {
        let (store, marks) = (self.store.clone(), marks.to_vec());
        let mirrored = move || {
            let (store, marks) = (store.clone(), marks.clone());
            async move { store.mirrored(&marks, read_at).await }
        };
        self.faults.write(true, mirrored).await
    }
}

#[async_trait]
impl NoteStore for Faulty<dyn NoteStore> {
    async fn get(&self, name: &str) -> StoreResult<Option<Note>> {
        self.faults.read(self.store.get(name)).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Vec<Note>> {
        self.faults.read(self.store.list(prefix, after, limit)).await
    }

    async fn write(&self, name: &str, expected: Expected, body: Vec<u8>) -> StoreResult<Option<u64>> {
        let (store, name) = (self.store.clone(), name.to_owned());
        let write = move || {
            let (store, name, body) = (store.clone(), name.clone(), body.clone());
            async move { store.write(&name, expected, body).await }
        };
        self.faults.write(false, write).await
    }

    async fn remove(&self, name: &str, expected: Expected) -> StoreResult<bool> {
        self.faults.read(self.store.remove(name, expected)).await
    }
}

#[async_trait]
impl OrderStore for Faulty<dyn OrderStore> {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let store = self.store.clone();
        let insert = move || {
            let (store, orders) = (store.clone(), orders.clone());
            async move { store.insert(orders).await }
        };
        self.faults.write(true, insert).await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.faults.read(self.store.get(id)).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.faults.read(self.store.history(id)).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let store = self.store.clone();
        let transition = move || {
            let (store, change) = (store.clone(), change.clone());
            async move { store.transition(id, from, change).await }
        };
        self.faults.write(false, transition).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.faults.read(self.store.by_user(user, period, after, limit)).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.faults.read(self.store.by_day(day, filter, after, limit)).await
    }
}

#[async_trait]
impl OrderHistoryStore for Faulty<dyn OrderHistoryStore> {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        let store = self.store.clone();
        let append = move || {
            let (store, orders) = (store.clone(), orders.clone());
            async move { store.append(orders).await }
        };
        self.faults.write(true, append).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.faults.read(self.store.by_user(user, period, after, limit)).await
    }
}

#[async_trait]
impl CartStore for Faulty<dyn CartStore> {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let store = self.store.clone();
        let append = move || {
            let (store, changes) = (store.clone(), changes.clone());
            async move { store.append(owner, changes, expires_at, now).await }
        };
        self.faults.write(true, append).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        self.faults.read(self.store.read(owner, now)).await
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.faults.read(self.store.untouched(untouched_since, after, limit, now)).await
    }
}

#[async_trait]
impl SessionStore for Faulty<dyn SessionStore> {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let store = self.store.clone();
        let insert = move || {
            let (store, session) = (store.clone(), session.clone());
            async move { store.insert(session, refresh).await }
        };
        self.faults.write(false, insert).await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.faults.read(self.store.get(id, now)).await
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        self.faults.read(self.store.by_user(user, after, limit, now)).await
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        let store = self.store.clone();
        let use_refresh = move || {
            let store = store.clone();
            async move { store.use_refresh(hash, now).await }
        };
        self.faults.write(false, use_refresh).await
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let store = self.store.clone();
        let update = move || {
            let (store, session) = (store.clone(), session.clone());
            async move { store.update(session, expected, refresh).await }
        };
        self.faults.write(false, update).await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        self.faults.read(self.store.unmerged(closed_before, limit, now)).await
    }
}
