//! Orders: each in a partition of its own with its status and history ([`book`]), and whole once more in the list of its
//! owner ([`by_user`]) and of its day ([`by_day`]).
//!
//! - *Writing an order* is one read and one logged batch over all its rows.
//! - *Moving an order* is one decision in its own partition ([`moves`]). Its rows in lists are written after it, under the
//!   stamp of the order's version, so that a late or repeated write of an earlier version never wins.
//! - What is decided and not yet listed is noted before ([`pending`]), and brought up to date by whoever is there.
//!
//! Over how many buckets a day is spread stands in [`buckets`].

mod book;
mod buckets;
mod by_day;
mod by_user;
mod history;
mod listing;
mod moves;
mod pending;
mod rows;

use std::{collections::HashSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{
    future::{try_join3, try_join4},
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
    moves::Turns,
    pending::{Pending, move_id},
    rows::{Batched, Written},
};
pub use self::{buckets::BucketPlan, history::CassandraOrderHistory};
use crate::{
    Cluster, ConnectError, DcState,
    link::{BatchOf, Debts, Link, Owed, Statement},
    registers::{RegisterRow, Registers},
};

pub struct CassandraOrders {
    inner: Arc<Inner>,
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
    by_user: UserLists,
    by_day: DayLists,
    registers: Registers,
    pending: Pending,
    turns: Turns,
    plan: Arc<BucketPlan>,
    /// All rows of a new order, in partitions that are registered.
    insert_known: BatchOf,
}

/// Orders of one call that are written at the same time.
const ORDERS_AT_ONCE: usize = 32;
/// The cluster refuses batches of 50 KiB and warns of lesser ones; beyond this an order is written row by row.
const BATCHED_BYTES_MAX: usize = 40 * 1_024;
/// Rows of a new order that carry its body, and about what the rest of them takes.
const BODIES: usize = 3;
const REST_BYTES: usize = 2_048;

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
        let by_user = UserLists::open(&link).await?;
        let by_day = DayLists::open(&link).await?;
        let known = [&book.first, &by_user.listing.put, &by_day.listing.put];
        let inner = Arc::new(Inner {
            insert_known: link.batch("insert", true, &known),
            registers: Registers::open(&link).await?,
            pending: Pending::open(&link).await?,
            plan: Arc::new(BucketPlan::open(&link, buckets).await?),
            turns: Turns::default(),
            book,
            by_user,
            by_day,
            link,
            options,
        });
        let debts: Arc<dyn Debts> = inner.clone();
        inner.link.watch(Arc::downgrade(&debts));
        inner.heal_from_now_on();
        inner.plan_from_now_on();
        Ok(Self { inner })
    }

    pub fn dc_state(&self) -> DcState {
        self.inner.link.dc_state()
    }

    /// Over how many buckets new orders are to be spread. Follows the cluster as long as the store lives.
    pub fn buckets(&self) -> Arc<BucketPlan> {
        self.inner.plan.clone()
    }
}

#[async_trait]
impl OrderStore for CassandraOrders {
    async fn insert(&self, mut orders: Vec<Order>) -> StoreResult<usize> {
        let mut met = HashSet::with_capacity(orders.len());
        orders.retain(|order| met.insert(order.id));
        stream::iter(orders)
            .map(|order| self.inner.insert(order))
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
        self.inner.transition(id, from, change).await
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
        if let Some(standing) = self.book.read(&self.link, order.id).await? {
            // Whoever wrote it may not have come to its lists.
            self.list(&Written::new(standing.order)).await?;
            return Ok(false);
        }
        let written = Written::new(order);
        if written.body.len() * BODIES + REST_BYTES > BATCHED_BYTES_MAX {
            self.insert_apart(&written).await?;
        } else {
            self.insert_at_once(&written).await?;
        }
        self.plan.wrote(&written.order);
        let (day, bucket) = DayLists::partition(&written.order);
        let (user, month) = self.by_user.partition(&written.order);
        let (meter, bytes) = (self.link.partitions(), written.row_bytes());
        meter.wrote("orders_by_day", format!("{day},{bucket}"), 1, bytes);
        meter.wrote("orders_by_user", format!("{user},{month}"), 1, bytes);
        Ok(true)
    }

    async fn insert_at_once(&self, written: &Written) -> StoreResult<()> {
        let stamps = self.link.stamps();
        let mut batched = vec![
            Batched::First(self.book.first_row(written, stamps.first_write())),
            Batched::ByUser(self.by_user.row(written)),
            Batched::ByDay(DayLists::row(written)),
        ];
        let unknown = self.unregistered(&written.order);
        if unknown.is_empty() {
            return self.link.write_batch(&self.insert_known, &batched, owed(written.order.id)).await;
        }
        let mut statements: Vec<&Statement> =
            vec![&self.book.first, &self.by_user.listing.put, &self.by_day.listing.put];
        statements.extend(unknown.iter().map(|_| &self.registers.note));
        batched.extend(unknown.iter().cloned().map(Batched::Register));
        let batch = self.link.batch("insert", true, &statements);
        self.link.write_batch(&batch, &batched, owed(written.order.id)).await?;
        unknown.iter().for_each(|row| self.registers.written(row));
        Ok(())
    }

    /// An order too large for a batch. A note takes the batch's place.
    async fn insert_apart(self: &Arc<Self>, written: &Written) -> StoreResult<()> {
        let id = written.order.id;
        let note = self.pending.note(&self.link, &self.registers, id, move_id(), 0).await?;
        let first = self.book.first_row(written, self.link.stamps().first_write());
        self.link.write(&self.book.first, first, owed(id)).await?;
        self.list(written).await?;
        self.remove_later(note);
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
        try_join3(register, by_user, by_day).await?;
        Ok(())
    }

    /// Rows that name the partitions of the order's lists, unless this instance knows them to be there.
    fn unregistered(&self, order: &Order) -> Vec<RegisterRow> {
        let stamp = self.link.stamps().next();
        let (_, month) = self.by_user.partition(order);
        let (_, bucket) = DayLists::partition(order);
        let month = self.registers.row(&UserLists::register(order.user_id), i64::from(month), stamp);
        let bucket = self.registers.row(&DayLists::register(order.day()), i64::from(bucket), stamp);
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
        let Some(standing) = self.book.read(&self.link, id).await? else { return Ok(()) };
        let order = &standing.order;
        let (months, buckets) = (UserLists::register(order.user_id), DayLists::register(order.day()));
        let at = order.created_at;
        try_join4(
            self.by_user.listing.settle(&self.link, self.by_user.partition(order), at, id.0),
            self.by_day.listing.settle(&self.link, DayLists::partition(order), at, id.0),
            self.registers.settle(&self.link, &months),
            self.registers.settle(&self.link, &buckets),
        )
        .await?;
        Ok(())
    }
}
