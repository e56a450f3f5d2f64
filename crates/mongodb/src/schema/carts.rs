//! Carts by owner, and by when they were touched last.

use mobimir_core::policy::Entity;
use mongodb::bson::doc;

use super::{CollectionPlan, Index, Stands, unmirrored};

pub(super) fn collections() -> Vec<CollectionPlan> {
    vec![CollectionPlan {
        entity: Entity::Carts,
        name: "carts",
        indexes: vec![
            Index::new("touched", doc! { "updated_at": 1, "_id": 1 }),
            Index::new("gone", doc! { "gone_at": 1 }).expires(),
            unmirrored(),
        ],
        stands: Stands::Alone,
    }]
}
