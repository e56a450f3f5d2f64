//! Users by id, and each email once.

use mobimir_core::policy::Entity;
use mongodb::bson::doc;

use super::{CollectionPlan, Index, Stands};

pub(super) fn collections() -> Vec<CollectionPlan> {
    vec![CollectionPlan {
        entity: Entity::Users,
        name: "users",
        indexes: vec![Index::new("email", doc! { "email": 1 }).unique()],
        stands: Stands::Alone,
    }]
}
