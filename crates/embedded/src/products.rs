//! Products with their stock on the engine.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use mobimir_core::{
    checkout::Checkout,
    id::{OrderId, ProductId, UserId},
    page::Page,
    ports::{ProductStore, StoreResult},
    product::{
        Hold, HoldOutcome, Product, ProductEdit, ProductPosition, ProductQuery, StockChange, StockOutcome,
        Verdict,
    },
    time::{Timestamp, Version},
    zone::Zone,
};

use crate::{
    EmbeddedStore, catalogue,
    engine::{Space, Txn, after_key, after_prefix},
    error::read_failed,
    records::{product, product_holds, product_index},
    store::Shared,
};

#[async_trait]
impl ProductStore for EmbeddedStore {
    async fn insert(&self, products: Vec<Product>) -> StoreResult<usize> {
        self.write(move |shared, txn| {
            let mut inserted = 0;
            for product in products {
                if !txn.contains(&product::key(product.id))? {
                    shared.put_product(txn, None, product);
                    inserted += 1;
                }
            }
            Ok(inserted)
        })
        .await
    }

    async fn get(&self, id: ProductId) -> StoreResult<Option<Arc<Product>>> {
        match self.shared().products.get(&id) {
            Some(product) => Ok(Some(product)),
            None => self.read_in_place(move |shared| shared.product(id)).await,
        }
    }

    async fn get_many(&self, ids: &[ProductId]) -> StoreResult<HashMap<ProductId, Arc<Product>>> {
        let mut found = HashMap::with_capacity(ids.len());
        let mut missing = Vec::new();
        for id in ids {
            match self.shared().products.get(id) {
                Some(product) => {
                    found.insert(*id, product);
                }
                None => missing.push(*id),
            }
        }
        if !missing.is_empty() {
            let read = self.read_in_place(move |shared| {
                let products = missing.into_iter().map(|id| shared.product(id));
                products.filter_map(Result::transpose).collect::<StoreResult<Vec<_>>>()
            });
            found.extend(read.await?.into_iter().map(|product| (product.id, product)));
        }
        Ok(found)
    }

    async fn edit(
        &self,
        id: ProductId,
        edit: ProductEdit,
        now: Timestamp,
    ) -> StoreResult<Option<Arc<Product>>> {
        self.write(move |shared, txn| {
            let Some(stored) = shared.product_to_change(txn, id)? else { return Ok(None) };
            let mut product = Product::clone(&stored);
            product.edit(&edit, now);
            Ok(Some(shared.put_product(txn, Some(&stored), product)))
        })
        .await
    }

    async fn change_stock(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
        now: Timestamp,
    ) -> StoreResult<StockOutcome> {
        self.write(move |shared, txn| {
            let Some(stored) = shared.product_to_change(txn, id)? else {
                return Ok(StockOutcome::NoSuchProduct);
            };
            let mut product = Product::clone(&stored);
            let outcome = product.change_stock(zone, change, now);
            if matches!(outcome, StockOutcome::Changed(_)) {
                shared.put_product(txn, Some(&stored), product);
            }
            Ok(outcome)
        })
        .await
    }

    async fn hold(&self, id: ProductId, hold: Hold, now: Timestamp) -> StoreResult<HoldOutcome> {
        self.write(move |shared, txn| {
            let Some(stored) = shared.product_to_change(txn, id)? else {
                return Ok(HoldOutcome::NoSuchProduct);
            };
            let mut product = Product::clone(&stored);
            let outcome = product.hold(hold, now);
            if outcome == HoldOutcome::Held {
                shared.put_product(txn, Some(&stored), product);
            }
            Ok(outcome)
        })
        .await
    }

    async fn settle(
        &self,
        id: ProductId,
        order: OrderId,
        verdict: Verdict,
        now: Timestamp,
    ) -> StoreResult<bool> {
        self.write(move |shared, txn| {
            let Some(stored) = shared.product_to_change(txn, id)? else { return Ok(false) };
            let mut product = Product::clone(&stored);
            let changed = product.settle(order, verdict, now);
            if changed {
                shared.put_product(txn, Some(&stored), product);
            }
            Ok(changed)
        })
        .await
    }

    async fn list(&self, query: ProductQuery) -> StoreResult<Page<Arc<Product>, ProductPosition>> {
        let is_short = catalogue::costs_its_page(&query) || self.shared().pages.has(&query);
        let read = move |shared: &Shared| {
            let found = shared.pages.get_or_find(&query, || catalogue::find(&shared.tables, &query))?;
            // The index was read a moment before the products; one that was changed in between may match no more.
            // Its name is not stemmed again for that: it cannot have become something else altogether.
            let conditions = ProductQuery { terms: BTreeSet::new(), ..query };
            let mut items = Vec::with_capacity(found.ids.len());
            for id in &found.ids {
                items.extend(shared.product(*id)?.filter(|product| conditions.matches(product)));
            }
            Ok(Page { items, next: found.next.clone() })
        };
        if is_short { self.read_in_place(read).await } else { self.read(read).await }
    }

    async fn categories(&self) -> StoreResult<Vec<String>> {
        self.read_in_place(|shared| catalogue::categories(&shared.tables)).await
    }

    async fn with_holds(
        &self,
        placed_before: Timestamp,
        after: Option<ProductId>,
        limit: usize,
    ) -> StoreResult<Vec<Arc<Product>>> {
        self.read(move |shared| {
            let all = product_holds::all();
            let start = after.map_or(all.clone(), |after| after_key(&product_holds::key(after)));
            let end = after_prefix(&all);
            let mut held = Vec::new();
            for row in shared.tables.keyspace(Space::Catalogue).range(start.bytes..end.bytes) {
                if held.len() >= limit {
                    break;
                }
                let (key, oldest) = row.into_inner().map_err(read_failed)?;
                if product_holds::decode(&oldest)? < placed_before {
                    held.extend(shared.product(product_holds::read_key(&key)?)?);
                }
            }
            Ok(held)
        })
        .await
    }

    async fn insert_checkout(&self, checkout: Checkout) -> StoreResult<Option<Checkout>> {
        self.checkout_insert(checkout).await
    }

    async fn get_checkout(&self, id: OrderId) -> StoreResult<Option<Checkout>> {
        self.checkout_get(id).await
    }

    async fn update_checkout(&self, checkout: Checkout, expected: Version) -> StoreResult<bool> {
        self.checkout_update(checkout, expected).await
    }

    async fn due_checkouts(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        self.checkouts_due(now, |_| true, limit).await
    }

    async fn due_uncommitted(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        self.checkouts_due(now, |checkout| !checkout.is_committed(), limit).await
    }

    async fn cart_claim(&self, user: UserId) -> StoreResult<Option<OrderId>> {
        self.cart_claim_get(user).await
    }

    async fn claim_cart(&self, user: UserId, expected: Option<OrderId>, order: OrderId) -> StoreResult<bool> {
        self.cart_claim_set(user, expected, order).await
    }
}

impl Shared {
    fn product(&self, id: ProductId) -> StoreResult<Option<Arc<Product>>> {
        self.products.get_or_read(&id, || {
            self.tables.get(&product::key(id))?.map(|bytes| product::decode(id, &bytes)).transpose()
        })
    }

    fn product_to_change(&self, txn: &Txn<'_>, id: ProductId) -> StoreResult<Option<Arc<Product>>> {
        self.products
            .current(&id, || txn.get(&product::key(id))?.map(|bytes| product::decode(id, &bytes)).transpose())
    }

    /// Writes a product over the stored one, and what has changed in the indexes.
    fn put_product(&self, txn: &mut Txn<'_>, stored: Option<&Product>, product: Product) -> Arc<Product> {
        if stored.is_none_or(|stored| !product_index::same_entries(stored, &product)) {
            let entries = product_index::entries(&product);
            let mut before = stored.map(product_index::entries).unwrap_or_default();
            for (key, value) in entries {
                if before.remove(&key).as_ref() != Some(&value) {
                    txn.put(key, value);
                }
            }
            before.into_keys().for_each(|key| txn.remove(key));
            self.pages.stage(stored, &product);
        }
        let oldest_hold = product_holds::oldest(&product);
        if stored.and_then(product_holds::oldest) != oldest_hold {
            match oldest_hold {
                Some(oldest) => txn.put(product_holds::key(product.id), product_holds::encode(oldest)),
                None => txn.remove(product_holds::key(product.id)),
            }
        }
        txn.put(product::key(product.id), product::encode(&product));
        let product = Arc::new(product);
        self.products.stage(txn.job(), product.id, Some(Arc::clone(&product)));
        product
    }
}
