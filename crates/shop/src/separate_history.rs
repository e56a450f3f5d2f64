//! Orders whose history by customer has a home of its own, as the policy `history-only` wants it.
//!
//! The order store decides and is written first. What it has is then copied to the history, and the shopper never waits
//! for a history that is away: such orders are copied when it is back. Copies carry the order's version, so one that
//! comes late or twice does no harm. A process that ends before it has copied is made up for at the next start, which
//! copies the orders of the last days once more.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use async_trait::async_trait;
use mobimir_core::{
    id::{IdSet, OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderHistoryStore, OrderStore, Period, StoreResult, Transition},
    time::{Day, Timestamp},
};

pub struct SeparateHistory {
    inner: Arc<Inner>,
}

struct Inner {
    orders: Arc<dyn OrderStore>,
    history: Arc<dyn OrderHistoryStore>,
    /// Orders that the history lacks.
    behind: Mutex<IdSet<OrderId>>,
}

const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Days that are copied once more at start.
const CAUGHT_UP_DAYS: i32 = 2;
const PAGE_ORDERS: usize = 100;

impl SeparateHistory {
    pub fn new(orders: Arc<dyn OrderStore>, history: Arc<dyn OrderHistoryStore>) -> Self {
        let inner = Arc::new(Inner { orders, history, behind: Mutex::default() });
        let weak: Weak<Inner> = Arc::downgrade(&inner);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RETRY_PERIOD).await;
                let Some(inner) = weak.upgrade() else { return };
                inner.copy_what_is_behind().await;
            }
        });
        Self { inner }
    }

    /// Copies the orders of the last days once more; says how many that were.
    pub async fn catch_up(&self, now: Timestamp) -> StoreResult<usize> {
        let mut copied = 0;
        for day in (0..CAUGHT_UP_DAYS).map(|ago| Day::from_number(now.day().number() - ago)) {
            let mut after = None;
            loop {
                let page = self.inner.orders.by_day(day, DayFilter::default(), after, PAGE_ORDERS).await?;
                copied += page.items.len();
                self.inner.history.append(page.items).await?;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(copied)
    }
}

#[async_trait]
impl OrderStore for SeparateHistory {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let inserted = self.inner.orders.insert(orders.clone()).await?;
        self.inner.copy(orders).await;
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
        let transition = self.inner.orders.transition(id, from, change).await?;
        if let Transition::Moved(order) = &transition {
            self.inner.copy(vec![order.clone()]).await;
        }
        Ok(transition)
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.inner.history.by_user(user, period, after, limit).await
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
    async fn copy(&self, orders: Vec<Order>) {
        let ids: Vec<OrderId> = orders.iter().map(|order| order.id).collect();
        if let Err(error) = self.history.append(orders).await {
            tracing::warn!(%error, orders = ids.len(), "the order history is behind");
            self.behind().extend(ids);
        }
    }

    async fn copy_what_is_behind(&self) {
        let behind: Vec<OrderId> = self.behind().iter().copied().collect();
        for id in behind {
            let copied = match self.orders.get(id).await {
                Ok(Some(order)) => self.history.append(vec![order]).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            match copied {
                Ok(()) => {
                    self.behind().remove(&id);
                }
                // It is still away, and so is the rest.
                Err(_) => return,
            }
        }
    }

    fn behind(&self) -> std::sync::MutexGuard<'_, IdSet<OrderId>> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
