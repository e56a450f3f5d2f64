//! Orders as a migration sees them.

use std::sync::Arc;

use mobimir_core::{
    id::OrderId,
    moving::{OrderSide, Side, WholeOrder},
    policy::Entity,
    ports::StoreResult,
    time::Timestamp,
};
use mongodb::bson::{Bson, Document, RawDocument, doc};

use super::{MongoOrders, document::OrderDoc};
use crate::{
    deployment::Deployment,
    leaves::{id, literal, uuid, uuid_of},
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

    fn key_at(_collection: usize, stored: Bson) -> Option<OrderId> {
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
