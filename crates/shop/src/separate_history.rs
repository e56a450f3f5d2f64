//! Orders whose history by customer has a home of its own, as the policy `history-only` wants it.
//!
//! The order store decides and is written first; what it has is then copied to the history. Copies carry the
//! order's version, so one that comes late or twice does no harm. The shopper never waits for a history that
//! is away.
//!
//! - **Outbox.** Before an order moves, an entry in the outbox says that a copy is owed; it goes when the
//!   copy is made. A new order needs none as long as the history answers: whoever places it repeats the
//!   insert until it is answered, and it is answered when the copy is made or owed. A process that dies
//!   leaves its entry, and every instance looks for those.
//! - **Reads.** As long as this process owes a copy of somebody's order, it reads that person's orders from the
//!   store of orders: what it has acknowledged is there, and the history may be back before the copy is made.
//! - **Backfill.** What was ordered before the history had a home of its own is copied in the background,
//!   once. Until all of it is there, histories are read from the store of orders.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    moving::{Movable, Place, Range, WholeOrder},
    notes::{Expected, Note, NoteStore},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderHistoryStore, OrderStore, Period, StoreError, StoreResult, Transition},
    time::Day,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::environment::Environment;

/// How often the outbox is checked, and a backfill that failed is retried.
const PERIOD: Duration = Duration::from_secs(2);
/// An entry that has been there for so long was left behind: no request takes as long. Measured by who looks,
/// so that clocks of instances need not agree.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
const PAGE_ENTRIES: usize = 200;
const PAGE_ORDERS: usize = 100;
/// After so many pages it is written down how far the backfill is.
const PAGES_PER_PROGRESS: usize = 20;

/// `order-history/owed/<order>/<id of the entry>`
const OWED: &str = "order-history/owed/";
const PROGRESS: &str = "order-history/backfill";
const FILLED: &str = "order-history/filled";

pub struct SeparateHistory {
    inner: Arc<Inner>,
}

struct Inner {
    orders: Arc<dyn OrderStore>,
    history: Arc<dyn OrderHistoryStore>,
    outbox: Arc<dyn NoteStore>,
    environment: Environment,
    /// Entries of this process whose order has moved and whose copy failed, by owner and name.
    undelivered: Mutex<BTreeMap<(UserId, String), OrderId>>,
    is_filled: AtomicBool,
}

/// A copy that is owed.
struct Entry {
    name: String,
    order: OrderId,
}

impl SeparateHistory {
    /// `existing` is the store of orders as a backfill reads it.
    pub fn new(
        orders: Arc<dyn OrderStore>,
        history: Arc<dyn OrderHistoryStore>,
        outbox: Arc<dyn NoteStore>,
        existing: Arc<dyn Movable<WholeOrder>>,
        environment: Environment,
    ) -> Self {
        let (undelivered, is_filled) = (Mutex::default(), AtomicBool::new(false));
        let inner = Arc::new(Inner { orders, history, outbox, environment, undelivered, is_filled });
        let weak = Arc::downgrade(&inner);
        inner.environment.spawn(keep_filling(weak.clone(), existing));
        inner.environment.spawn(keep_copying(weak));
        Self { inner }
    }

    /// Whether histories are read from their own home.
    pub fn is_filled(&self) -> bool {
        self.inner.is_filled.load(Ordering::Acquire)
    }

    /// To be called where orders have no separate history: a later one has to be filled anew.
    pub async fn forget_backfill(outbox: &dyn NoteStore) -> StoreResult<()> {
        for name in [FILLED, PROGRESS] {
            outbox.remove(name, Expected::Anything).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl OrderStore for SeparateHistory {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let inserted = self.inner.orders.insert(orders.clone()).await?;
        let owed: Vec<(OrderId, UserId)> = orders.iter().map(|order| (order.id, order.user_id)).collect();
        if let Err(error) = self.inner.history.append(orders).await {
            tracing::warn!(%error, orders = owed.len(), "the order history is behind");
            for (order, user) in owed {
                let entry = self.inner.enqueue(order).await?;
                self.inner.undelivered().insert((user, entry.name), order);
            }
        }
        Ok(inserted)
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.inner.orders.get(id).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.inner.orders.history(id).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let entry = self.inner.enqueue(id).await?;
        let transition = self.inner.orders.transition(id, from, change).await;
        match &transition {
            Ok(Transition::Moved(order)) => match self.inner.history.append(vec![order.clone()]).await {
                Ok(()) => self.inner.remove_later(entry),
                Err(error) => {
                    tracing::warn!(%error, order = %id, "the order history is behind");
                    self.inner.undelivered().insert((order.user_id, entry.name), id);
                }
            },
            // It may have moved, or may still.
            Err(StoreError::Unknown { .. }) => {}
            Ok(Transition::StandsAt(_) | Transition::NoSuchOrder) | Err(_) => self.inner.remove_later(entry),
        }
        transition
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        if self.is_filled() && !self.inner.owes(user) {
            self.inner.history.by_user(user, period, after, limit).await
        } else {
            self.inner.orders.by_user(user, period, after, limit).await
        }
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.inner.orders.by_day(day, filter, after, limit).await
    }
}

impl Inner {
    /// Adds an outbox entry: a copy of the order is owed. Written before anybody can rely on what it will say.
    async fn enqueue(&self, order: OrderId) -> StoreResult<Entry> {
        let name = format!("{OWED}{order}/{}", self.environment.ids.fresh(self.environment.clock.now()));
        let written = self.outbox.write(&name, Expected::Anything, order.as_bytes().to_vec()).await;
        match written {
            Ok(_) => Ok(Entry { name, order }),
            // Nothing has happened to the order.
            Err(error) => Err(StoreError::Unavailable {
                what: format!("the outbox of the order history cannot be written: {error}"),
                source: None,
            }),
        }
    }

    /// Nobody waits for it: an entry that stays is copied once more.
    fn remove_later(&self, entry: Entry) {
        let outbox = self.outbox.clone();
        self.environment.spawn(async move {
            if let Err(error) = outbox.remove(&entry.name, Expected::Anything).await {
                tracing::debug!(order = %entry.order, %error, "an entry stays in the outbox of the order history");
            }
        });
    }

    fn undelivered(&self) -> MutexGuard<'_, BTreeMap<(UserId, String), OrderId>> {
        self.undelivered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the history may lack something of this user that was acknowledged here.
    fn owes(&self, user: UserId) -> bool {
        let first_of_user = (user, String::new());
        self.undelivered().range(first_of_user..).next().is_some_and(|((owner, _), _)| *owner == user)
    }

    /// Copies the order as it stands.
    async fn deliver(&self, entry: &Entry) -> StoreResult<()> {
        if let Some(order) = self.orders.get(entry.order).await? {
            self.history.append(vec![order]).await?;
        }
        self.outbox.remove(&entry.name, Expected::Anything).await?;
        Ok(())
    }

    /// What this process owes, and what others have left behind. `seen` says since when each entry was seen
    /// here.
    async fn deliver_all(&self, seen: &mut BTreeMap<String, Instant>) -> StoreResult<()> {
        let own = self.undelivered().clone();
        for (of_user, order) in own {
            self.deliver(&Entry { name: of_user.1.clone(), order }).await?;
            self.undelivered().remove(&of_user);
        }
        let mut present = BTreeSet::new();
        let mut after: Option<String> = None;
        loop {
            let notes = self.outbox.list(OWED, after.as_deref(), PAGE_ENTRIES).await?;
            for entry in notes.iter().filter_map(entry_of) {
                let since = *seen.entry(entry.name.clone()).or_insert_with(Instant::now);
                if since.elapsed() >= ABANDONED_AFTER {
                    self.deliver(&entry).await?;
                } else {
                    present.insert(entry.name);
                }
            }
            match notes.last() {
                Some(last) if notes.len() == PAGE_ENTRIES => after = Some(last.name.clone()),
                _ => break,
            }
        }
        seen.retain(|name, _| present.contains(name));
        Ok(())
    }

    /// Copies everything that is there, from where an earlier run has stopped.
    async fn fill(&self, existing: &dyn Movable<WholeOrder>) -> StoreResult<()> {
        if self.outbox.get(FILLED).await?.is_none() {
            let progress = self.outbox.get(PROGRESS).await?;
            let mut range = Range { after: progress.map(|note| Place(note.body)), to: None };
            let (mut pages, mut copied) = (0, 0);
            loop {
                let scanned = existing.scan(&range, PAGE_ORDERS).await?;
                let mut orders = Vec::with_capacity(scanned.items.len());
                for item in scanned.items {
                    match item {
                        Ok(whole) => orders.push(whole.order),
                        Err(unreadable) => {
                            tracing::error!(key = unreadable.key, error = %unreadable.error, "no order: left out of the order history");
                        }
                    }
                }
                copied += orders.len();
                self.history.append(orders).await?;
                let Some(next) = scanned.next else { break };
                pages += 1;
                if pages % PAGES_PER_PROGRESS == 0 {
                    self.outbox.write(PROGRESS, Expected::Anything, next.0.clone()).await?;
                    tracing::info!(copied, "filling the order history");
                }
                range.after = Some(next);
            }
            self.outbox.write(FILLED, Expected::Anything, Vec::new()).await?;
            self.outbox.remove(PROGRESS, Expected::Anything).await?;
            if copied > 0 {
                tracing::info!(copied, "the order history is filled");
            }
        }
        self.is_filled.store(true, Ordering::Release);
        Ok(())
    }
}

async fn keep_filling(inner: Weak<Inner>, existing: Arc<dyn Movable<WholeOrder>>) {
    loop {
        let Some(inner) = inner.upgrade() else { return };
        match inner.fill(existing.as_ref()).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "the order history could not be filled yet"),
        }
        drop(inner);
        tokio::time::sleep(PERIOD).await;
    }
}

async fn keep_copying(inner: Weak<Inner>) {
    let mut seen = BTreeMap::new();
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = inner.deliver_all(&mut seen).await {
            tracing::debug!(%error, "the order history is still behind");
        }
    }
}

fn entry_of(note: &Note) -> Option<Entry> {
    let order = OrderId(Uuid::from_slice(&note.body).ok()?);
    Some(Entry { name: note.name.clone(), order })
}
