//! All stripes of a product, read at one moment.

use std::{collections::HashMap, sync::Arc};

use mobimir_core::{
    id::ProductId, policy::ReadOperation, ports::StoreResult, product::Product, reading, time::Timestamp,
};
use mongodb::bson::{Uuid, doc};
use serde::{Deserialize, Serialize};

use super::{
    super::{MongoProducts, document::ProductDoc},
    STRIPES,
    whole::Whole,
};
use crate::leaves::{date, uuid};

impl MongoProducts {
    /// The product with its stripes as they are now, wherever other reads may go.
    pub(super) async fn look(&self, id: ProductId) -> StoreResult<Option<Whole>> {
        let found = reading::of(ReadOperation::StockAtCheckout, self.wholes(&[uuid(id.0)])).await?;
        Ok(found.into_iter().next())
    }

    /// What documents come to, with the stripes of those that have some: one more query, and only for them.
    pub(in super::super) async fn shown(&self, documents: Vec<ProductDoc>) -> StoreResult<Vec<Arc<Product>>> {
        let split: Vec<Uuid> = documents.iter().filter(|it| it.split().is_some()).map(|it| it.id).collect();
        let mut wholes = HashMap::new();
        if !split.is_empty() {
            wholes.extend(self.wholes(&split).await?.into_iter().map(|whole| (whole.product.id, whole)));
        }
        let shown = documents.into_iter().map(|document| match wholes.remove(&document.id) {
            Some(whole) => whole.together(),
            None => document.product(),
        });
        shown.map(|product| product.map(Arc::new)).collect()
    }

    /// The first products, by rising id, that have a hold placed before, in their own document or in a stripe. One that was
    /// just settled may be among them.
    pub(in super::super) async fn perhaps_with_holds(
        &self,
        placed_before: Timestamp,
        after: Option<ProductId>,
        limit: usize,
    ) -> StoreResult<Vec<Uuid>> {
        #[derive(Serialize, Deserialize)]
        struct Held {
            #[serde(rename = "_id")]
            id: Uuid,
        }
        let older = |id: &str| {
            let mut held = doc! { "oldest_hold": { "$lt": date(placed_before) } };
            if let Some(after) = after {
                held.insert(id, doc! { "$gt": uuid(after.0) });
            }
            doc! { "$match": held }
        };
        let by_id = doc! { "$sort": { "_id": 1 } };
        let first = doc! { "$limit": i64::try_from(limit).unwrap_or(i64::MAX) };
        let products = vec![older("_id"), by_id.clone(), first.clone(), doc! { "$project": { "_id": 1 } }];
        let stripes = vec![older("product"), doc! { "$group": { "_id": "$product" } }, by_id, first];
        let mut held: Vec<Held> = self.link.aggregate("held_products", &self.products, products).await?;
        let stripes: Vec<Held> = self.link.aggregate("held_stripes", &self.stripes, stripes).await?;
        held.extend(stripes);
        let mut ids: Vec<Uuid> = held.into_iter().map(|held| held.id).collect();
        ids.sort_by_key(|id| id.bytes());
        ids.dedup();
        ids.truncate(limit);
        Ok(ids)
    }

    async fn wholes(&self, ids: &[Uuid]) -> StoreResult<Vec<Whole>> {
        let pipeline = vec![
            doc! { "$match": { "_id": { "$in": ids } } },
            doc! { "$replaceWith": { "product": "$$ROOT" } },
            doc! { "$lookup": {
                "from": STRIPES,
                "localField": "product.stripes.split.epoch",
                "foreignField": "epoch",
                "as": "stripes",
            } },
        ];
        self.link.aggregate("product_with_stripes", &self.at_one_moment, pipeline).await
    }
}
