//! The orders of users, kept apart from where they are decided: a copy of each in its newest version.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, TryStreamExt};
use mobimir_core::{
    id::UserId,
    order::{Order, OrderPosition},
    page::Page,
    policy::Entity,
    ports::{OrderHistoryStore, Period, StoreResult},
};
use mongodb::{Collection, bson::doc};

use super::{document::OrderDoc, of_user, page};
use crate::{
    deployment::Deployment,
    leaves::literal,
    link::Link,
    moving::{Tracking, UNMIRRORED},
};

pub struct MongoOrderHistory {
    link: Link,
    orders: Collection<OrderDoc>,
    tracking: Tracking,
}

const WRITTEN_AT_ONCE: usize = 16;

impl MongoOrderHistory {
    pub fn new(deployment: Arc<Deployment>) -> Self {
        let link = Link::new(deployment, Entity::OrderHistory);
        Self { orders: link.collection("order_history"), link, tracking: Tracking::Off }
    }

    pub(super) fn tracked(self) -> Self {
        Self { tracking: Tracking::On, ..self }
    }

    async fn write(&self, order: OrderDoc) -> StoreResult<()> {
        let older = order.older();
        // A mark that is there stays.
        let mut mark = doc! { UNMIRRORED: format!("${UNMIRRORED}") };
        self.tracking.mark(&mut mark);
        let update = vec![doc! { "$replaceWith": { "$mergeObjects": [literal(&order)?, mark] } }];
        self.link.overtake("write_history", &self.orders, older, update).await
    }
}

#[async_trait]
impl OrderHistoryStore for MongoOrderHistory {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        let writes = orders.into_iter().map(|order| Ok(self.write(OrderDoc::copy(order))));
        stream::iter(writes).try_buffer_unordered(WRITTEN_AT_ONCE).try_collect().await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        page(&self.link, "history_by_user", &self.orders, of_user(user, period, after), limit).await
    }
}
