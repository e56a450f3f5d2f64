//! Products by id and in every order that the catalogue is asked for, and the checkouts that decide over their stock.

use mobimir_core::policy::Entity;
use mongodb::bson::doc;

use super::{CollectionPlan, Index, Stands};

pub(super) fn collections() -> Vec<CollectionPlan> {
    vec![products(), stripes(), checkouts(), cart_claims()]
}

/// Every index of the catalogue ends in what is sorted by and the id, so a page is read from where it starts.
fn products() -> CollectionPlan {
    CollectionPlan {
        entity: Entity::Products,
        name: "products",
        indexes: vec![
            Index::new("category_price", doc! { "category": 1, "price": 1, "_id": 1 }),
            Index::new("price", doc! { "price": 1, "_id": 1 }),
            Index::new("category_name", doc! { "category": 1, "name_key": 1, "_id": 1 }),
            Index::new("name", doc! { "name_key": 1, "_id": 1 }),
            Index::new("terms_price", doc! { "terms": 1, "price": 1, "_id": 1 }),
            Index::new("terms_name", doc! { "terms": 1, "name_key": 1, "_id": 1 }),
            // Only of products that have holds, so it is short whatever the catalogue's length.
            Index::new("holds", doc! { "_id": 1, "oldest_hold": 1 })
                .only(doc! { "oldest_hold": { "$exists": true } }),
            Index::new("stripes", doc! { "_id": 1, "stripes.wanted": 1 })
                .only(doc! { "stripes.wanted": { "$exists": true } }),
        ],
        stands: Stands::Alone,
    }
}

/// The other documents of products whose stock is split.
fn stripes() -> CollectionPlan {
    CollectionPlan {
        entity: Entity::Products,
        name: "product_stripes",
        indexes: vec![
            Index::new("epoch", doc! { "epoch": 1 }),
            Index::new("product", doc! { "product": 1 }),
            Index::new("holds", doc! { "oldest_hold": 1, "product": 1 })
                .only(doc! { "oldest_hold": { "$exists": true } }),
        ],
        stands: Stands::Beside,
    }
}

fn checkouts() -> CollectionPlan {
    CollectionPlan {
        entity: Entity::Products,
        name: "checkouts",
        indexes: vec![
            // A checkout that is settled is never due again, and not in it.
            Index::new("due", doc! { "due_at": 1 }).only(doc! { "due_at": { "$exists": true } }),
        ],
        stands: Stands::Beside,
    }
}

/// A document a user who has ever ordered a cart, found by its id.
fn cart_claims() -> CollectionPlan {
    CollectionPlan {
        entity: Entity::Products,
        name: "cart_claims",
        indexes: Vec::new(),
        stands: Stands::Beside,
    }
}
