//! Sessions by id, by user, and those of guests whose cart may have to be merged; refresh tokens by hash.

use mobimir_core::policy::Entity;
use mongodb::bson::doc;

use super::{CollectionPlan, Index, Stands, unmirrored};

pub(super) fn collections() -> Vec<CollectionPlan> {
    let gone = || Index::new("gone", doc! { "gone_at": 1 }).expires();
    vec![
        CollectionPlan {
            entity: Entity::Sessions,
            name: "sessions",
            indexes: vec![
                Index::new("by_user", doc! { "user_id": 1, "created_at": -1, "_id": 1 })
                    .only(doc! { "user_id": { "$exists": true } }),
                Index::new("unmerged", doc! { "unmerged_since": 1 })
                    .only(doc! { "unmerged_since": { "$exists": true } }),
                gone(),
                unmirrored(),
            ],
            stands: Stands::Alone,
        },
        CollectionPlan {
            entity: Entity::Sessions,
            name: "refresh_tokens",
            indexes: vec![gone(), unmirrored()],
            stands: Stands::Beside,
        },
    ]
}
