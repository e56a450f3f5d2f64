//! Products: a document each, with its stock by zone and the holds on it. Whatever changes is one guarded update of that
//! document ([`updates`]); a guard that refuses is explained by core's own rules, applied to what is read then. The stock of
//! a very hot product can be split over several documents ([`stripes`]).

mod cart_claims;
mod catalogue;
mod checkouts;
mod document;
mod stripes;
mod updates;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use mobimir_core::{
    checkout::Checkout,
    id::{OrderId, ProductId, UserId},
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
    options::{CollectionOptions, ReadConcern, ReturnDocument},
};
use serde::{Deserialize, Serialize};

pub use self::stripes::{StripeFaults, StripeStep};
use self::{
    cart_claims::CartClaims,
    checkouts::Checkouts,
    document::ProductDoc,
    stripes::{Known, STRIPES, StripeDoc},
};
use crate::{
    deployment::Deployment,
    leaves::{id, time, uuid},
    link::{Link, damaged},
};

pub struct MongoProducts {
    link: Link,
    products: Collection<ProductDoc>,
    /// The same documents, for queries that must see all they read as it was at one moment.
    at_one_moment: Collection<ProductDoc>,
    stripes: Collection<StripeDoc>,
    checkouts: Checkouts,
    claims: CartClaims,
    known: Known,
    faults: StripeFaults,
    stripes_of_new: Option<u16>,
}

/// How often a guard may refuse for a reason that is gone when one looks, before the caller is asked to come back.
const REFUSALS_MAX: u32 = 64;

/// The longest pause before one looks again, when others change the same thing.
const PAUSE_MS_MAX: u64 = 32;

/// Products that are inserted by one command.
const INSERT_DOCUMENTS_MAX: usize = 1_000;

impl MongoProducts {
    pub fn new(deployment: Arc<Deployment>) -> Self {
        let at_one_moment = CollectionOptions::builder().read_concern(ReadConcern::snapshot()).build();
        let at_one_moment = deployment.database().collection_with_options("products", at_one_moment);
        let link = Link::new(deployment, Entity::Products);
        Self {
            products: link.collection("products"),
            at_one_moment,
            stripes: link.collection(STRIPES),
            checkouts: Checkouts::new(&link),
            claims: CartClaims::new(&link),
            link,
            known: Known::default(),
            faults: StripeFaults::none(),
            stripes_of_new: None,
        }
    }

    /// Stops at steps of the work on stripes, for tests.
    #[must_use]
    pub fn with_faults(self, faults: StripeFaults) -> Self {
        Self { faults, ..self }
    }

    /// Splits every product as it is inserted, for tests.
    #[must_use]
    pub fn with_stripes_of_new(self, count: u16) -> Self {
        Self { stripes_of_new: Some(count), ..self }
    }

    /// The product's document as it is now, wherever other reads may go.
    async fn current(&self, id: ProductId) -> StoreResult<Option<ProductDoc>> {
        let found = self.link.find_one("product_to_change", &self.products, by_id(id));
        reading::of(ReadOperation::StockAtCheckout, found).await
    }

    /// [`Product::hold`] on a product that is whole; `None` if that has to be tried again.
    async fn hold_in_whole(
        &self,
        id: ProductId,
        hold: &Hold,
        now: Timestamp,
    ) -> StoreResult<Option<HoldOutcome>> {
        let change = updates::hold(hold, HOLDS_PER_PRODUCT_MAX, 0, now).of(whole(id));
        let held = self.link.update_one("hold", &self.products, change.guard, change.pipeline, false).await?;
        if held.matched {
            return Ok(Some(HoldOutcome::Held));
        }
        let Some(document) = self.current(id).await? else { return Ok(Some(HoldOutcome::NoSuchProduct)) };
        if self.notes_split(&document) {
            return Ok(None);
        }
        match document.product()?.hold(*hold, now) {
            HoldOutcome::Held => Ok(None),
            refused => Ok(Some(refused)),
        }
    }

    /// [`Product::settle`] on a product that is whole; `None` if that has to be tried again.
    async fn settle_in_whole(
        &self,
        id: ProductId,
        order: OrderId,
        verdict: Verdict,
        now: Timestamp,
    ) -> StoreResult<Option<bool>> {
        let Some(change) = updates::settle(order, verdict, now) else { return Ok(Some(false)) };
        let change = change.of(whole(id));
        let settled =
            self.link.update_one("settle", &self.products, change.guard, change.pipeline, false).await?;
        if settled.matched {
            return Ok(Some(true));
        }
        let Some(document) = self.current(id).await? else { return Ok(Some(false)) };
        if self.notes_split(&document) {
            return Ok(None);
        }
        let changes = document.product()?.settle(order, verdict, now);
        Ok((!changes).then_some(false))
    }

    /// The product under everything that it may be sharded by: behind a mongos, a document that is to be changed and returned
    /// at once has to be named so. Its category may be another by then; then nothing is found.
    async fn routed(&self, id: ProductId) -> StoreResult<Option<Document>> {
        let Some(document) = self.current(id).await? else { return Ok(None) };
        Ok(Some(doc! { "_id": document.id, "category": document.category }))
    }

    /// [`Product::change_stock`] on a product that is whole; one that is split is put together first, and
    /// `was_split` says so then.
    async fn change_whole(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
        now: Timestamp,
        was_split: &mut bool,
    ) -> StoreResult<StockOutcome> {
        for round in 0..REFUSALS_MAX {
            let Some(mut filter) = self.routed(id).await? else { return Ok(StockOutcome::NoSuchProduct) };
            filter.extend(whole(id));
            let updates::Change { guard, pipeline } = updates::change_stock(zone, change, now).of(filter);
            let changed = self
                .link
                .find_one_and_update("change_stock", &self.products, guard, pipeline, ReturnDocument::After)
                .await?;
            if let Some(changed) = changed {
                let stock = changed.product()?.stock.get(&zone).copied();
                return Ok(StockOutcome::Changed(stock.unwrap_or_default()));
            }
            let Some(document) = self.current(id).await? else { return Ok(StockOutcome::NoSuchProduct) };
            if self.notes_split(&document) {
                *was_split = true;
                self.close(id).await?;
                continue;
            }
            match document.product()?.change_stock(zone, change, now) {
                StockOutcome::Changed(_) => pause(round).await,
                refused => return Ok(refused),
            }
        }
        Err(restless(id))
    }
}

#[async_trait]
impl ProductStore for MongoProducts {
    fn clock(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(self.link.clock_ahead_ms())
    }

    async fn insert(&self, products: Vec<Product>) -> StoreResult<usize> {
        let products: Vec<ProductDoc> = products.into_iter().map(ProductDoc::of).collect();
        let mut inserted = 0;
        for some in products.chunks(INSERT_DOCUMENTS_MAX) {
            inserted += self.link.insert_many("insert_products", &self.products, some).await?;
        }
        if let Some(count) = self.stripes_of_new {
            for product in &products {
                self.stripe(id(product.id), count, time(product.created_at)).await?;
            }
        }
        Ok(inserted)
    }

    async fn get(&self, id: ProductId) -> StoreResult<Option<Arc<Product>>> {
        let found = self.link.find_one("product", &self.products, by_id(id)).await?;
        Ok(self.shown(found.into_iter().collect()).await?.pop())
    }

    async fn get_many(&self, ids: &[ProductId]) -> StoreResult<HashMap<ProductId, Arc<Product>>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let these = doc! { "_id": { "$in": ids.iter().map(|id| uuid(id.0)).collect::<Vec<_>>() } };
        let options = catalogue::page(doc! { "_id": 1 }, ids.len());
        let found = self.link.find("products", &self.products, these, options).await?;
        Ok(self.shown(found).await?.into_iter().map(|product| (product.id, product)).collect())
    }

    async fn edit(
        &self,
        id: ProductId,
        edit: ProductEdit,
        now: Timestamp,
    ) -> StoreResult<Option<Arc<Product>>> {
        for round in 0..REFUSALS_MAX {
            let update = updates::edit(edit.clone(), now).map_err(|error| damaged(error.to_string()))?;
            let Some(filter) = self.routed(id).await? else { return Ok(None) };
            let edited = self
                .link
                .find_one_and_update("edit_product", &self.products, filter, update, ReturnDocument::After)
                .await?;
            if edited.is_some() {
                return Ok(self.shown(edited.into_iter().collect()).await?.pop());
            }
            pause(round).await;
        }
        Err(restless(id))
    }

    async fn change_stock(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
        now: Timestamp,
    ) -> StoreResult<StockOutcome> {
        let mut was_split = false;
        let outcome = self.change_whole(id, zone, change, now, &mut was_split).await;
        if was_split && let Err(error) = self.reconcile_stripes(id, now).await {
            // It is sold from one document meanwhile, and right.
            tracing::warn!(product = %id, %error, "a product stays whole until its stripes are tended");
        }
        outcome
    }

    async fn hold(&self, id: ProductId, hold: Hold, now: Timestamp) -> StoreResult<HoldOutcome> {
        for round in 0..REFUSALS_MAX {
            let outcome = match self.known.get(id) {
                None => self.hold_in_whole(id, &hold, now).await?,
                Some(split) => self.hold_in_stripe(&split, &hold, now).await?,
            };
            match outcome {
                Some(outcome) => return Ok(outcome),
                None => pause(round).await,
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
        for round in 0..REFUSALS_MAX {
            let settled = match self.known.get(id) {
                None => self.settle_in_whole(id, order, verdict, now).await?,
                Some(split) => self.settle_in_stripe(&split, order, verdict, now).await?,
            };
            match settled {
                Some(settled) => return Ok(settled),
                None => pause(round).await,
            }
        }
        Err(restless(id))
    }

    async fn list(&self, query: ProductQuery) -> StoreResult<Page<Arc<Product>, ProductPosition>> {
        let options = catalogue::options(query.sort, query.limit.saturating_add(1));
        let found =
            self.link.find("list_products", &self.products, catalogue::filter(&query), options).await?;
        let items = self.shown(found).await?;
        let page = Page::cut(items, query.limit, |product| query.sort.position(product));
        // Of a product that is split only all stripes together tell whether there is any.
        let is_there = |product: &Arc<Product>| query.zone.is_none_or(|zone| product.available_in(zone) > 0);
        Ok(Page { items: page.items.into_iter().filter(is_there).collect(), next: page.next })
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
        let mut held: Vec<Arc<Product>> = Vec::new();
        let mut after = after;
        loop {
            let ids = self.perhaps_with_holds(placed_before, after, limit).await?;
            let (Some(last), are_all) = (ids.last(), ids.len() < limit) else { break };
            after = Some(id(*last));
            let options = catalogue::page(doc! { "_id": 1 }, ids.len());
            let these = doc! { "_id": { "$in": ids } };
            let found = self.link.find("products_with_holds", &self.products, these, options).await?;
            let products = self.shown(found).await?.into_iter();
            held.extend(products.filter(|it| it.holds.iter().any(|hold| hold.placed_at < placed_before)));
            if are_all || held.len() >= limit {
                break;
            }
        }
        held.truncate(limit);
        Ok(held)
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

    async fn due_uncommitted(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        self.checkouts.due_uncommitted(&self.link, now, limit).await
    }

    async fn cart_claim(&self, user: UserId) -> StoreResult<Option<OrderId>> {
        self.claims.get(&self.link, user).await
    }

    async fn claim_cart(&self, user: UserId, expected: Option<OrderId>, order: OrderId) -> StoreResult<bool> {
        self.claims.set(&self.link, user, expected, order).await
    }
}

fn by_id(id: ProductId) -> Document {
    doc! { "_id": uuid(id.0) }
}

/// The product, as long as its stock is in one document.
fn whole(id: ProductId) -> Document {
    doc! { "_id": uuid(id.0), "stripes.split": { "$exists": false } }
}

/// Before one looks again: not at all at first, then longer and longer, and never all at the same moment.
async fn pause(round: u32) {
    let Some(doublings) = round.checked_sub(2) else { return };
    let longest = PAUSE_MS_MAX.min(1 << doublings.min(10));
    let [random] = mobimir_core::secret::random_bytes::<1>();
    tokio::time::sleep(Duration::from_micros(longest * 1_000 * u64::from(random) / 256)).await;
}

/// Nothing was done: whenever one looked, what had refused was over.
fn restless(id: ProductId) -> StoreError {
    StoreError::Unavailable {
        what: format!("product {id} changes faster than it can be looked at"),
        source: None,
    }
}
