use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use mobimir_core::{
    checkout::Checkout,
    id::{OrderId, ProductId, UserId},
    page::Page,
    ports::{ProductStore, StoreResult},
    product::{
        Hold, HoldOutcome, Product, ProductEdit, ProductPosition, ProductQuery, ProductSort, StockChange,
        StockOutcome, Verdict,
    },
    time::{Timestamp, Version},
    zone::Zone,
};

use super::ModelStore;

#[async_trait]
impl ProductStore for ModelStore {
    fn clock(&self, now: Timestamp) -> Timestamp {
        self.clock.as_ref().map_or(now, |clock| clock.now())
    }

    async fn insert(&self, products: Vec<Product>) -> StoreResult<usize> {
        let mut state = self.state();
        let before = state.products.len();
        for product in products {
            state.products.entry(product.id).or_insert(product);
        }
        Ok(state.products.len() - before)
    }

    async fn get(&self, id: ProductId) -> StoreResult<Option<Arc<Product>>> {
        Ok(self.state().products.get(&id).cloned().map(Arc::new))
    }

    async fn get_many(&self, ids: &[ProductId]) -> StoreResult<HashMap<ProductId, Arc<Product>>> {
        let state = self.state();
        let found = ids.iter().filter_map(|id| state.products.get(id));
        Ok(found.map(|product| (product.id, Arc::new(product.clone()))).collect())
    }

    async fn edit(
        &self,
        id: ProductId,
        edit: ProductEdit,
        now: Timestamp,
    ) -> StoreResult<Option<Arc<Product>>> {
        let mut state = self.state();
        let Some(product) = state.products.get_mut(&id) else { return Ok(None) };
        product.edit(&edit, now);
        Ok(Some(Arc::new(product.clone())))
    }

    async fn change_stock(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
        now: Timestamp,
    ) -> StoreResult<StockOutcome> {
        let mut state = self.state();
        let Some(product) = state.products.get_mut(&id) else { return Ok(StockOutcome::NoSuchProduct) };
        Ok(product.change_stock(zone, change, now))
    }

    async fn hold(&self, id: ProductId, hold: Hold, now: Timestamp) -> StoreResult<HoldOutcome> {
        let mut state = self.state();
        let Some(product) = state.products.get_mut(&id) else { return Ok(HoldOutcome::NoSuchProduct) };
        Ok(product.hold(hold, now))
    }

    async fn settle(
        &self,
        id: ProductId,
        order: OrderId,
        verdict: Verdict,
        now: Timestamp,
    ) -> StoreResult<bool> {
        let mut state = self.state();
        Ok(state.products.get_mut(&id).is_some_and(|product| product.settle(order, verdict, now)))
    }

    async fn list(&self, query: ProductQuery) -> StoreResult<Page<Arc<Product>, ProductPosition>> {
        let state = self.state();
        let matching = state.products.values().filter(|product| query.matches(product));
        let mut products: Vec<Arc<Product>> = matching.map(|product| Arc::new(product.clone())).collect();
        drop(state);
        let position = |product: &Arc<Product>| query.sort.position(product);
        products.sort_by_key(position);
        if query.sort == ProductSort::PriceDescending {
            products.reverse();
        }
        if let Some(after) = &query.after {
            products.retain(|product| match query.sort {
                ProductSort::PriceDescending => position(product) < *after,
                ProductSort::PriceAscending | ProductSort::Name => position(product) > *after,
            });
        }
        Ok(Page::cut(products, query.limit, position))
    }

    async fn categories(&self) -> StoreResult<Vec<String>> {
        let state = self.state();
        let mut categories: Vec<String> = state.products.values().map(|p| p.category.clone()).collect();
        categories.sort();
        categories.dedup();
        Ok(categories)
    }

    async fn with_holds(
        &self,
        placed_before: Timestamp,
        after: Option<ProductId>,
        limit: usize,
    ) -> StoreResult<Vec<Arc<Product>>> {
        let state = self.state();
        let held = state.products.values().filter(|product| {
            after.is_none_or(|after| product.id > after)
                && product.holds.iter().any(|hold| hold.placed_at < placed_before)
        });
        Ok(held.take(limit).cloned().map(Arc::new).collect())
    }

    async fn insert_checkout(&self, checkout: Checkout) -> StoreResult<Option<Checkout>> {
        let mut state = self.state();
        if let Some(existing) = state.checkouts.get(&checkout.order_id) {
            return Ok(Some(existing.clone()));
        }
        state.checkouts.insert(checkout.order_id, checkout);
        Ok(None)
    }

    async fn get_checkout(&self, id: OrderId) -> StoreResult<Option<Checkout>> {
        Ok(self.state().checkouts.get(&id).cloned())
    }

    async fn update_checkout(&self, checkout: Checkout, expected: Version) -> StoreResult<bool> {
        let mut state = self.state();
        match state.checkouts.get_mut(&checkout.order_id) {
            Some(stored) if stored.version == expected => {
                *stored = checkout;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn due_checkouts(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        Ok(self.longest_due_first(now, |_| true, limit))
    }

    async fn due_uncommitted(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        Ok(self.longest_due_first(now, |checkout| !checkout.is_committed(), limit))
    }

    async fn cart_claim(&self, user: UserId) -> StoreResult<Option<OrderId>> {
        Ok(self.state().cart_claims.get(&user).copied())
    }

    async fn claim_cart(&self, user: UserId, expected: Option<OrderId>, order: OrderId) -> StoreResult<bool> {
        let mut state = self.state();
        let claim = state.cart_claims.get(&user).copied();
        if claim == expected {
            state.cart_claims.insert(user, order);
        }
        Ok(claim == expected || claim == Some(order))
    }
}

impl ModelStore {
    fn longest_due_first(
        &self,
        now: Timestamp,
        is_wanted: fn(&Checkout) -> bool,
        limit: usize,
    ) -> Vec<Checkout> {
        let state = self.state();
        let is_due = |checkout: &&Checkout| checkout.due_at.is_some_and(|due_at| due_at < now);
        let due = state.checkouts.values().filter(is_due).filter(|checkout| is_wanted(checkout));
        let mut due: Vec<Checkout> = due.cloned().collect();
        due.sort_by_key(|checkout| checkout.due_at);
        due.truncate(limit);
        due
    }
}
