//! Orders by id, by customer and by day; the history of customers apart.

use mobimir_core::policy::Entity;
use mongodb::bson::doc;

use super::{CollectionPlan, Index, Stands, unmirrored};

pub(super) fn orders() -> Vec<CollectionPlan> {
    vec![CollectionPlan {
        entity: Entity::Orders,
        name: "orders",
        indexes: vec![
            by_user(),
            // Status and zone decide whether an order is wanted before it is read.
            Index::new("by_day", doc! { "day": 1, "created_at": -1, "_id": 1, "status": 1, "geo_zone": 1 }),
            unmirrored(),
        ],
        stands: Stands::Alone,
    }]
}

pub(super) fn history() -> Vec<CollectionPlan> {
    vec![CollectionPlan {
        entity: Entity::OrderHistory,
        name: "order_history",
        indexes: vec![by_user(), unmirrored()],
        stands: Stands::Alone,
    }]
}

fn by_user() -> Index {
    Index::new("by_user", doc! { "user_id": 1, "created_at": -1, "_id": 1 })
}
