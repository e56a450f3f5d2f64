//! Orders: each in a partition of its own with its status and history ([`book`]), and whole once more in the list of its
//! owner ([`by_user`]) and of its day ([`by_day`]).
//!
//! - *Writing an order* is a note and a look whether it is there, at the same time, then all its rows, at the same time.
//! - *Moving an order* is one decision in its own partition ([`moves`]). Its rows in lists are written after it, under the
//!   stamp of the order's version, so that a late or repeated write of an earlier version never wins.
//! - What is decided and not yet listed is noted before ([`pending`]), and brought up to date by whoever is there.
//!
//! Over how many buckets a day is spread stands in [`buckets`].

mod book;
mod buckets;
mod by_day;
mod by_user;
mod copies;
mod history;
mod listing;
mod moves;
mod moving;
mod pending;
mod rows;

use std::{collections::HashSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{
    future::{join, join3, try_join4},
    stream::{self, StreamExt, TryStreamExt},
};
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    policy::{CassandraSettings, Entity, OrderBuckets, StatusLayout},
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    time::Day,
};
use uuid::Uuid;

use self::{
    book::Book,
    by_day::DayLists,
    by_user::UserLists,
    copies::Copies,
    pending::Pending,
    rows::{Batched, Written},
};
pub use self::{buckets::BucketPlan, history::CassandraOrderHistory};
use crate::{
    Cluster, ConnectError, DcState,
    link::{Debts, Link, Owed, unknown},
    outbox::Outbox,
    partitions::PartitionKey,
    registers::{RegisterRow, Registers},
    turns::Turns,
};

pub struct CassandraOrders {
    inner: Arc<Inner>,
    /// Whether what is written is marked.
    is_tracked: bool,
}

/// How orders are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderOptions {
    /// How often an instance looks for moves whose lists were not written.
    pub heal_every: Duration,
    /// How old such a move has to be: whoever made it is not about to write them.
    pub heal_after: Duration,
}

struct Inner {
    link: Link,
    options: OrderOptions,
    book: Book,
    copies: Copies,
    outbox: Outbox,
    by_user: UserLists,
    by_day: DayLists,
    registers: Registers,
    pending: Pending,
    turns: Turns,
    plan: Arc<BucketPlan>,
}

/// Orders of one call that are written at the same time.
const ORDERS_AT_ONCE: usize = 32;
impl Default for OrderOptions {
    fn default() -> Self {
        Self { heal_every: Duration::from_secs(5), heal_after: Duration::from_secs(10) }
    }
}

impl CassandraOrders {
    pub async fn open(
        cluster: Arc<Cluster>,
        settings: CassandraSettings,
        buckets: OrderBuckets,
        options: OrderOptions,
    ) -> Result<Self, ConnectError> {
        let layout = settings.status.unwrap_or(StatusLayout::Column);
        let link = Link::open(cluster, Entity::Orders, settings).await?;
        let book = Book::open(&link, layout).await?;
        let copies = Copies::open(&link, layout).await?;
        let by_user = UserLists::open(&link).await?;
        let by_day = DayLists::open(&link).await?;
        let inner = Arc::new(Inner {
            outbox: Outbox::open(&link).await?,
            registers: Registers::open(&link).await?,
            pending: Pending::open(&link).await?,
            plan: Arc::new(BucketPlan::open(&link, buckets).await?),
            turns: Turns::default(),
            book,
            copies,
            by_user,
            by_day,
            link,
            options,
        });
        let debts: Arc<dyn Debts> = inner.clone();
        inner.link.watch(Arc::downgrade(&debts));
        inner.heal_from_now_on();
        inner.plan_from_now_on();
        Ok(Self { inner, is_tracked: false })
    }

    pub fn dc_state(&self) -> DcState {
        self.inner.link.dc_state()
    }

    /// Orders that are being written or moved, or were when somebody died: for those who watch.
    pub async fn pending_notes(&self) -> StoreResult<usize> {
        self.inner.pending_notes().await
    }

    /// Over how many buckets new orders are to be spread. Follows the cluster as long as the store lives.
    pub fn buckets(&self) -> Arc<BucketPlan> {
        self.inner.plan.clone()
    }
}

impl CassandraOrders {
    /// The mark comes before the note, so that whoever finishes what is noted need not mark it.
    async fn insert_one(&self, order: Order) -> StoreResult<bool> {
        let Inner { link, outbox, .. } = &*self.inner;
        outbox.tracked(link, self.is_tracked, &[order.id], self.inner.insert(order)).await
    }
}

#[async_trait]
impl OrderStore for CassandraOrders {
    async fn insert(&self, mut orders: Vec<Order>) -> StoreResult<usize> {
        if orders.len() == 1
            && let Some(order) = orders.pop()
        {
            return self.insert_one(order).await.map(usize::from);
        }
        let mut met = HashSet::with_capacity(orders.len());
        orders.retain(|order| met.insert(order.id));
        stream::iter(orders)
            .map(|order| self.insert_one(order))
            .buffer_unordered(ORDERS_AT_ONCE)
            .try_fold(0, async |new, is_new| Ok(new + usize::from(is_new)))
            .await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        let found = self.inner.book.read(&self.inner.link, id).await?;
        Ok(found.map(|standing| standing.order))
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.inner.book.history(&self.inner.link, id).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let Inner { link, outbox, .. } = &*self.inner;
        outbox.tracked(link, self.is_tracked, &[id], self.inner.transition(id, from, change)).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let Inner { link, by_user, registers, .. } = self.inner.as_ref();
        by_user.page(link, registers, user, period, after, limit).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let Inner { link, by_day, registers, .. } = self.inner.as_ref();
        by_day.page(link, registers, day, filter, after, limit).await
    }
}

impl Inner {
    /// Writes an order unless it is there; says whether it was not.
    async fn insert(self: &Arc<Self>, order: Order) -> StoreResult<bool> {
        let written = Written::new(order);
        // The note has all of the order, and is there before any of its rows: whoever dies, somebody writes them.
        let (found, note) = join(
            self.book.read(&self.link, written.order.id),
            self.pending.note_new(&self.link, &self.registers, &written),
        )
        .await;
        let note = note?;
        // From here on somebody will write the order, whatever becomes of this call.
        if let Some(standing) = found.map_err(unknown)? {
            // Whoever wrote it may not have come to its lists.
            self.list(&Written::new(standing.order)).await.map_err(unknown)?;
            self.remove_later(note);
            return Ok(false);
        }
        self.write_new(&written).await.map_err(unknown)?;
        self.remove_later(note);
        self.plan.wrote(&written.order);
        self.count(&written);
        Ok(true)
    }

    /// Counts an order that is new in its lists.
    fn count(&self, written: &Written) {
        let (day, bucket) = DayLists::partition(&written.order);
        let (user, month) = self.by_user.partition(&written.order);
        let (meter, bytes) = (self.link.partitions(), written.row_bytes());
        meter.wrote("orders_by_day", PartitionKey::OfDay(day, bucket), 1, bytes);
        meter.wrote("orders_by_user", PartitionKey::OfUser(user, month), 1, bytes);
    }

    /// All rows of an order as it is first written. Safe to repeat, by anyone, at any time.
    async fn write_new(&self, written: &Written) -> StoreResult<()> {
        let first = self.book.first_row(written, self.link.stamps().first_write());
        let unknown = self.unregistered(&written.order);
        let mut rows = vec![
            (&self.book.first, Batched::First(first)),
            (&self.by_user.listing.put, Batched::ByUser(self.by_user.row(written))),
            (&self.by_day.listing.put, Batched::ByDay(DayLists::row(written))),
        ];
        rows.extend(unknown.iter().copied().map(|row| (&self.registers.note, Batched::Register(row))));
        self.link.write_all(&rows, owed(written.order.id)).await?;
        unknown.iter().for_each(|row| self.registers.written(row));
        Ok(())
    }

    /// Writes the order's rows in its lists. Safe to repeat, by anyone, at any time.
    async fn list(&self, written: &Written) -> StoreResult<()> {
        let unknown = self.unregistered(&written.order);
        let register = async {
            for row in &unknown {
                self.link.write(&self.registers.note, row.values(), owed(written.order.id)).await?;
                self.registers.written(row);
            }
            Ok(())
        };
        let (by_user, by_day) = (self.by_user.put(&self.link, written), self.by_day.put(&self.link, written));
        // Each to its end: one that is dropped because another failed could still arrive when nobody expects
        // it any more.
        let (registered, by_user, by_day) = join3(register, by_user, by_day).await;
        registered.and(by_user).and(by_day)
    }

    /// Rows that name the partitions of the order's lists, unless this instance knows them to be there.
    fn unregistered(&self, order: &Order) -> Vec<RegisterRow> {
        let stamp = self.link.stamps().next();
        let (_, month) = self.by_user.partition(order);
        let (_, bucket) = DayLists::partition(order);
        let month = self.registers.row(UserLists::register(order.user_id), i64::from(month), stamp);
        let bucket = self.registers.row(DayLists::register(order.day()), i64::from(bucket), stamp);
        month.into_iter().chain(bucket).collect()
    }
}

fn owed(order: OrderId) -> Owed {
    Owed(order.as_bytes().to_vec())
}

#[async_trait]
impl Debts for Inner {
    async fn settle(&self, key: &[u8]) -> StoreResult<()> {
        let Ok(id) = Uuid::from_slice(key).map(OrderId) else { return Ok(()) };
        self.book.settle(&self.link, id).await?;
        self.outbox.settle(&self.link, id).await?;
        let Some(standing) = self.book.read(&self.link, id).await? else { return Ok(()) };
        let order = &standing.order;
        let (months, buckets) = (UserLists::register(order.user_id), DayLists::register(order.day()));
        let at = order.created_at;
        try_join4(
            self.by_user.listing.settle(&self.link, self.by_user.partition(order), at, id.0),
            self.by_day.listing.settle(&self.link, DayLists::partition(order), at, id.0),
            self.registers.settle(&self.link, months),
            self.registers.settle(&self.link, buckets),
        )
        .await?;
        Ok(())
    }
}
