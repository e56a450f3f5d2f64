//! The orders of users alone, for a policy that decides orders elsewhere and reads their history here; and this
//! history as a migration sees it ([`moving`]).

mod moving;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    id::{OrderId, UserId},
    moving::HistoryKey,
    order::{Order, OrderPosition},
    page::Page,
    policy::{CassandraSettings, Entity},
    ports::{OrderHistoryStore, Period, StoreResult},
    time::Timestamp,
};
use uuid::Uuid;

use super::{
    ORDERS_AT_ONCE,
    by_user::UserLists,
    rows::{Batched, Written},
};
use crate::{
    Cluster, ConnectError, DcState,
    link::{Debts, Link, Owed},
    outbox::{Outbox, OutboxKey},
    partitions::PartitionKey,
    registers::Registers,
};

pub struct CassandraOrderHistory {
    inner: Arc<Inner>,
    /// Whether what is written is marked.
    is_tracked: bool,
}

struct Inner {
    link: Link,
    outbox: Outbox,
    by_user: UserLists,
    registers: Registers,
}

impl CassandraOrderHistory {
    pub async fn open(cluster: Arc<Cluster>, settings: CassandraSettings) -> Result<Self, ConnectError> {
        let link = Link::open(cluster, Entity::OrderHistory, settings).await?;
        let by_user = UserLists::open(&link).await?;
        let registers = Registers::open(&link).await?;
        let outbox = Outbox::open(&link).await?;
        let inner = Arc::new(Inner { link, outbox, by_user, registers });
        let debts: Arc<dyn Debts> = inner.clone();
        inner.link.watch(Arc::downgrade(&debts));
        Ok(Self { inner, is_tracked: false })
    }

    pub fn dc_state(&self) -> DcState {
        self.inner.link.dc_state()
    }
}

impl CassandraOrderHistory {
    async fn append_one(&self, order: Order) -> StoreResult<()> {
        let (Inner { link, outbox, .. }, key) = (&*self.inner, HistoryKey::of(&order));
        outbox.tracked(link, self.is_tracked, &[key], self.inner.append(order)).await
    }
}

#[async_trait]
impl OrderHistoryStore for CassandraOrderHistory {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        stream::iter(orders)
            .map(|order| self.append_one(order))
            .buffer_unordered(ORDERS_AT_ONCE)
            .try_collect()
            .await
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
}

impl Inner {
    async fn append(&self, order: Order) -> StoreResult<()> {
        let written = Written::new(order);
        let (user, month) = self.by_user.partition(&written.order);
        let list = UserLists::register(UserId(user));
        let stamp = self.link.stamps().next();
        let row = self.by_user.row(&written);
        self.link.partitions().wrote(
            "orders_by_user",
            PartitionKey::OfUser(user, month),
            1,
            written.row_bytes(),
        );
        let Some(register) = self.registers.row(list, i64::from(month), stamp) else {
            let owed = HistoryKey::of(&written.order).owed();
            return self.link.write(&self.by_user.listing.put, row.user_values(), owed).await;
        };
        let rows = [
            (&self.by_user.listing.put, Batched::ByUser(row)),
            (&self.registers.note, Batched::Register(register)),
        ];
        self.link.write_all(&rows, HistoryKey::of(&written.order).owed()).await?;
        self.registers.written(&register);
        Ok(())
    }
}

#[async_trait]
impl Debts for Inner {
    async fn settle(&self, key: &[u8]) -> StoreResult<()> {
        let Some(key) = HistoryKey::from_bytes(key) else { return Ok(()) };
        self.outbox.settle(&self.link, key).await?;
        self.registers.settle(&self.link, UserLists::register(key.user)).await?;
        self.by_user.settle(&self.link, key).await
    }
}

/// Everything that leads to the order's row.
impl OutboxKey for HistoryKey {
    fn to_bytes(self) -> Vec<u8> {
        let mut key = self.user.as_bytes().to_vec();
        key.extend_from_slice(self.order.as_bytes());
        key.extend_from_slice(&self.created_at.as_millis().to_be_bytes());
        key
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (user, rest) = bytes.split_at_checked(16)?;
        let (order, at) = rest.split_at_checked(16)?;
        let created_at = Timestamp::from_millis(i64::from_be_bytes(at.try_into().ok()?));
        let [user, order] = [user, order].map(Uuid::from_slice);
        Some(Self { user: UserId(user.ok()?), created_at, order: OrderId(order.ok()?) })
    }

    fn owed(self) -> Owed {
        Owed(self.to_bytes())
    }
}
