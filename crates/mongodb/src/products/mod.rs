//! Products: a document each, with its stock by zone and the holds on it. Whatever changes is one guarded update of that
//! document ([`updates`]); a guard that refuses is explained by core's own rules, applied to what is read then.

mod catalogue;
mod checkouts;
mod document;
mod updates;

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use mobimir_core::{
    checkout::Checkout,
    id::{OrderId, ProductId},
    page::Page,
    policy::{Entity, ReadOperation},
    ports::{ProductStore, StoreError, StoreResult},
    product::{
        HOLDS_PER_PRODUCT_MAX, Hold, HoldOutcome, Product, ProductEdit, ProductPosition, ProductQuery,
        StockChange, StockOutcome, Verdict,
    },
    reading,
    time::{Timestamp, Version},
    zone::Zone,
};
use mongodb::{
    Collection,
    bson::{Document, doc},
    options::ReturnDocument,
};
use serde::{Deserialize, Serialize};

use self::{checkouts::Checkouts, document::ProductDoc};
use crate::{
    deployment::Deployment,
    leaves::{date, uuid},
    link::{Link, damaged},
};

pub struct MongoProducts {
    link: Link,
    products: Collection<ProductDoc>,
    checkouts: Checkouts,
}

/// How often a guard may refuse for a reason that is gone when one looks, before the caller is asked to come back.
const REFUSALS_MAX: usize = 64;

/// Products that are inserted by one command.
const INSERT_DOCUMENTS_MAX: usize = 1_000;

impl MongoProducts {
    pub fn new(deployment: Arc<Deployment>) -> Self {
        let link = Link::new(deployment, Entity::Products);
        Self { products: link.collection("products"), checkouts: Checkouts::new(&link), link }
    }

    /// The product as it is now, wherever other reads may go.
    async fn current(&self, id: ProductId) -> StoreResult<Option<Product>> {
        let found = self.link.find_one("product_to_change", &self.products, by_id(id));
        let found = reading::of(ReadOperation::StockAtCheckout, found).await?;
        found.map(ProductDoc::product).transpose()
    }
}

#[async_trait]
impl ProductStore for MongoProducts {
    async fn insert(&self, products: Vec<Product>) -> StoreResult<usize> {
        let products: Vec<ProductDoc> = products.into_iter().map(ProductDoc::of).collect();
        let mut inserted = 0;
        for some in products.chunks(INSERT_DOCUMENTS_MAX) {
            inserted += self.link.insert_many("insert_products", &self.products, some).await?;
        }
        Ok(inserted)
    }

    async fn get(&self, id: ProductId) -> StoreResult<Option<Arc<Product>>> {
        let found = self.link.find_one("product", &self.products, by_id(id)).await?;
        found.map(shown).transpose()
    }

    async fn get_many(&self, ids: &[ProductId]) -> StoreResult<HashMap<ProductId, Arc<Product>>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let these = doc! { "_id": { "$in": ids.iter().map(|id| uuid(id.0)).collect::<Vec<_>>() } };
        let options = catalogue::page(doc! { "_id": 1 }, ids.len());
        let found = self.link.find("products", &self.products, these, options).await?;
        found.into_iter().map(|document| shown(document).map(|product| (product.id, product))).collect()
    }

    async fn edit(
        &self,
        id: ProductId,
        edit: ProductEdit,
        now: Timestamp,
    ) -> StoreResult<Option<Arc<Product>>> {
        let update = updates::edit(edit, now).map_err(|error| damaged(error.to_string()))?;
        let edited = self
            .link
            .find_one_and_update("edit_product", &self.products, by_id(id), update, ReturnDocument::After)
            .await?;
        edited.map(shown).transpose()
    }

    async fn change_stock(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
        now: Timestamp,
    ) -> StoreResult<StockOutcome> {
        for _ in 0..REFUSALS_MAX {
            let updates::Change { guard, pipeline } = updates::change_stock(zone, change, now).of(by_id(id));
            let changed = self
                .link
                .find_one_and_update("change_stock", &self.products, guard, pipeline, ReturnDocument::After)
                .await?;
            if let Some(changed) = changed {
                let stock = changed.product()?.stock.get(&zone).copied();
                return Ok(StockOutcome::Changed(stock.unwrap_or_default()));
            }
            let Some(mut product) = self.current(id).await? else { return Ok(StockOutcome::NoSuchProduct) };
            match product.change_stock(zone, change, now) {
                StockOutcome::Changed(_) => {}
                refused => return Ok(refused),
            }
        }
        Err(restless(id))
    }

    async fn hold(&self, id: ProductId, hold: Hold, now: Timestamp) -> StoreResult<HoldOutcome> {
        for _ in 0..REFUSALS_MAX {
            let change = updates::hold(&hold, HOLDS_PER_PRODUCT_MAX, 0, now).of(by_id(id));
            let held =
                self.link.update_one("hold", &self.products, change.guard, change.pipeline, false).await?;
            if held.matched {
                return Ok(HoldOutcome::Held);
            }
            let Some(mut product) = self.current(id).await? else { return Ok(HoldOutcome::NoSuchProduct) };
            match product.hold(hold, now) {
                HoldOutcome::Held => {}
                refused => return Ok(refused),
            }
        }
        Err(restless(id))
    }

    async fn settle(
        &self,
        id: ProductId,
        order: OrderId,
        verdict: Verdict,
        now: Timestamp,
    ) -> StoreResult<bool> {
        let Some(change) = updates::settle(order, verdict, now) else { return Ok(false) };
        let change = change.of(by_id(id));
        let settled =
            self.link.update_one("settle", &self.products, change.guard, change.pipeline, false).await?;
        Ok(settled.matched)
    }

    async fn list(&self, query: ProductQuery) -> StoreResult<Page<Arc<Product>, ProductPosition>> {
        let options = catalogue::options(query.sort, query.limit.saturating_add(1));
        let found =
            self.link.find("list_products", &self.products, catalogue::filter(&query), options).await?;
        let items = found.into_iter().map(shown).collect::<StoreResult<Vec<_>>>()?;
        Ok(Page::cut(items, query.limit, |product| query.sort.position(product)))
    }

    async fn categories(&self) -> StoreResult<Vec<String>> {
        #[derive(Serialize, Deserialize)]
        struct Category {
            #[serde(rename = "_id")]
            name: String,
        }
        // Grouped by what an index begins with, the server jumps from one to the next.
        let each_once = vec![doc! { "$group": { "_id": "$category" } }];
        let found: Vec<Category> = self.link.aggregate("categories", &self.products, each_once).await?;
        let mut names: Vec<String> = found.into_iter().map(|category| category.name).collect();
        names.sort_unstable();
        Ok(names)
    }

    async fn with_holds(
        &self,
        placed_before: Timestamp,
        after: Option<ProductId>,
        limit: usize,
    ) -> StoreResult<Vec<Arc<Product>>> {
        let mut filter = doc! { "oldest_hold": { "$lt": date(placed_before) } };
        if let Some(after) = after {
            filter.insert("_id", doc! { "$gt": uuid(after.0) });
        }
        let options = catalogue::page(doc! { "_id": 1 }, limit);
        let found = self.link.find("products_with_holds", &self.products, filter, options).await?;
        found.into_iter().map(shown).collect()
    }

    async fn insert_checkout(&self, checkout: Checkout) -> StoreResult<Option<Checkout>> {
        self.checkouts.insert(&self.link, checkout).await
    }

    async fn get_checkout(&self, id: OrderId) -> StoreResult<Option<Checkout>> {
        self.checkouts.get(&self.link, id).await
    }

    async fn update_checkout(&self, checkout: Checkout, expected: Version) -> StoreResult<bool> {
        self.checkouts.update(&self.link, checkout, expected).await
    }

    async fn due_checkouts(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        self.checkouts.due(&self.link, now, limit).await
    }
}

fn by_id(id: ProductId) -> Document {
    doc! { "_id": uuid(id.0) }
}

fn shown(document: ProductDoc) -> StoreResult<Arc<Product>> {
    document.product().map(Arc::new)
}

/// Nothing was done: whenever one looked, what had refused was over.
fn restless(id: ProductId) -> StoreError {
    StoreError::Unavailable {
        what: format!("product {id} changes faster than it can be looked at"),
        source: None,
    }
}
