//! Orders, and a separate history of them, as a migration sees them.

use std::sync::Arc;

use mobimir_core::{
    id::OrderId,
    moving::{HistoryEntry, HistoryKey, HistorySide, OrderSide, Side, WholeOrder},
    policy::Entity,
    ports::StoreResult,
    time::Timestamp,
};
use mongodb::bson::{Bson, Document, RawDocument, doc};

use super::{MongoOrderHistory, MongoOrders, document::OrderDoc};
use crate::{
    deployment::Deployment,
    leaves::{id, literal, time, uuid, uuid_of},
    moving::{InDocuments, Moving, Put, Tracking, document},
};

impl MongoOrders {
    /// The orders of a deployment, as a migration sees them.
    pub fn side(deployment: Arc<Deployment>) -> OrderSide {
        let tracked = Self { tracking: Tracking::On, ..Self::new(deployment.clone()) };
        Side {
            port: Arc::new(Self::new(deployment.clone())),
            tracked: Arc::new(tracked),
            moving: Arc::new(Moving::<WholeOrder>::new(deployment)),
        }
    }
}

impl InDocuments for WholeOrder {
    const ENTITY: Entity = Entity::Orders;
    const COLLECTIONS: &'static [&'static str] = &["orders"];

    fn spot(key: OrderId) -> (usize, Bson) {
        (0, uuid(key.0).into())
    }

    fn key_at(_collection: usize, stored: Bson, _document: &RawDocument) -> Option<OrderId> {
        uuid_of(&stored).map(id)
    }

    fn of_document(_collection: usize, stored: &RawDocument) -> StoreResult<Self> {
        let stored: OrderDoc = document("orders", stored)?;
        Ok(Self { order: stored.clone().order()?, history: stored.history()? })
    }

    fn document(&self) -> Document {
        doc! { "_id": uuid(self.order.id.0), "user_id": uuid(self.order.user_id.0) }
    }

    fn put(self, _now: Timestamp) -> StoreResult<Put> {
        let order = OrderDoc::whole(self);
        let update = vec![doc! { "$replaceWith": literal(&order)? }];
        Ok(Put { older: order.older(), update: update.into() })
    }
}

impl MongoOrderHistory {
    /// The separate order history of a deployment, as a migration sees it.
    pub fn side(deployment: Arc<Deployment>) -> HistorySide {
        Side {
            port: Arc::new(Self::new(deployment.clone())),
            tracked: Arc::new(Self::new(deployment.clone()).tracked()),
            moving: Arc::new(Moving::<HistoryEntry>::new(deployment)),
        }
    }
}

impl InDocuments for HistoryEntry {
    const ENTITY: Entity = Entity::OrderHistory;
    const COLLECTIONS: &'static [&'static str] = &["order_history"];
    const KEY_FIELDS: &'static [&'static str] = &["user_id", "created_at"];

    fn spot(key: HistoryKey) -> (usize, Bson) {
        (0, uuid(key.order.0).into())
    }

    fn key_at(_collection: usize, stored: Bson, document: &RawDocument) -> Option<HistoryKey> {
        let user = Bson::try_from(document.get("user_id").ok()??).ok()?;
        let created_at = document.get_datetime("created_at").ok()?;
        Some(HistoryKey {
            user: uuid_of(&user).map(id)?,
            created_at: time(created_at),
            order: uuid_of(&stored).map(id)?,
        })
    }

    fn of_document(_collection: usize, stored: &RawDocument) -> StoreResult<Self> {
        let stored: OrderDoc = document("order_history", stored)?;
        Ok(Self(stored.order()?))
    }

    fn document(&self) -> Document {
        doc! { "_id": uuid(self.0.id.0), "user_id": uuid(self.0.user_id.0) }
    }

    fn put(self, _now: Timestamp) -> StoreResult<Put> {
        let order = OrderDoc::copy(self.0);
        let update = vec![doc! { "$replaceWith": literal(&order)? }];
        Ok(Put { older: order.older(), update: update.into() })
    }
}
