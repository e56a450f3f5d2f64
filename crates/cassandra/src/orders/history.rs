//! The orders of users alone, for a policy that decides orders elsewhere and reads their history here.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    id::UserId,
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
    registers::Registers,
};

pub struct CassandraOrderHistory {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    by_user: UserLists,
    registers: Registers,
}

impl CassandraOrderHistory {
    pub async fn open(cluster: Arc<Cluster>, settings: CassandraSettings) -> Result<Self, ConnectError> {
        let link = Link::open(cluster, Entity::OrderHistory, settings).await?;
        let by_user = UserLists::open(&link).await?;
        let registers = Registers::open(&link).await?;
        let inner = Arc::new(Inner { link, by_user, registers });
        let debts: Arc<dyn Debts> = inner.clone();
        inner.link.watch(Arc::downgrade(&debts));
        Ok(Self { inner })
    }

    pub fn dc_state(&self) -> DcState {
        self.inner.link.dc_state()
    }
}

#[async_trait]
impl OrderHistoryStore for CassandraOrderHistory {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        stream::iter(orders)
            .map(|order| self.inner.append(order))
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
        let Inner { link, by_user, registers } = self.inner.as_ref();
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
        self.link.partitions().wrote("orders_by_user", format!("{user},{month}"), 1, written.row_bytes());
        let Some(register) = self.registers.row(&list, i64::from(month), stamp) else {
            return self.link.write(&self.by_user.listing.put, row.user_values(), owed(&written.order)).await;
        };
        let rows = [
            (&self.by_user.listing.put, Batched::ByUser(row)),
            (&self.registers.note, Batched::Register(register.clone())),
        ];
        self.link.write_all(&rows, owed(&written.order)).await?;
        self.registers.written(&register);
        Ok(())
    }
}

/// Everything that leads to the order's row.
fn owed(order: &Order) -> Owed {
    let mut key = order.user_id.as_bytes().to_vec();
    key.extend_from_slice(order.id.as_bytes());
    key.extend_from_slice(&order.created_at.as_millis().to_be_bytes());
    Owed(key)
}

#[async_trait]
impl Debts for Inner {
    async fn settle(&self, key: &[u8]) -> StoreResult<()> {
        let Some((user, order, created_at)) = owed_order(key) else { return Ok(()) };
        self.registers.settle(&self.link, &UserLists::register(user)).await?;
        let partition = self.by_user.partition_at(user, created_at);
        self.by_user.listing.settle(&self.link, partition, created_at, order).await
    }
}

fn owed_order(key: &[u8]) -> Option<(UserId, Uuid, Timestamp)> {
    let (user, rest) = key.split_at_checked(16)?;
    let (order, at) = rest.split_at_checked(16)?;
    let at_ms = i64::from_be_bytes(at.try_into().ok()?);
    let [user, order] = [user, order].map(Uuid::from_slice);
    Some((UserId(user.ok()?), order.ok()?, Timestamp::from_millis(at_ms)))
}
