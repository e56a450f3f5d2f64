use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use mobimir_core::{
    checkout::Checkout,
    id::{OrderId, ProductId, UserId},
    page::Page,
    ports::{ProductStore, StoreResult, Stores},
    product::{
        Hold, HoldOutcome, Product, ProductEdit, ProductPosition, ProductQuery, ProductSort, StockChange,
        StockOutcome, Verdict,
    },
    time::{Timestamp, Version},
    zone::Zone,
};
use mobimir_testkit::conformance;
use tokio::sync::Mutex;

use crate::{Door, OPTIONS, faulty, must_be_found};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    SettlesTwice,
    SellsMoreThanThereIs,
    HoldsTwiceWhenRunsRace,
    ForgetsProductsWithHolds,
    EditsStockAway,
    IgnoresTheVersionOfACheckout,
    InsertsACheckoutTwiceWhenCallersRace,
    FindsDueCheckoutsTooEarly,
    FindsCommittedAmongUncommitted,
    ClaimsACartWhoeverHasIt,
    RefusesAClaimThatIsHeldAlready,
    TakesPrefixesOfCategories,
    ListsWhatIsNotInTheZone,
    OrdersEqualPricesByRisingIdWhenDescending,
    SkipsTheFirstOfAPage,
    KeepsCategoriesThatWereLeft,
    InsertsOver,
}

#[test]
fn products() {
    use Fault::*;
    for fault in [
        SettlesTwice,
        SellsMoreThanThereIs,
        HoldsTwiceWhenRunsRace,
        ForgetsProductsWithHolds,
        EditsStockAway,
        IgnoresTheVersionOfACheckout,
        InsertsACheckoutTwiceWhenCallersRace,
        FindsDueCheckoutsTooEarly,
        FindsCommittedAmongUncommitted,
        ClaimsACartWhoeverHasIt,
        RefusesAClaimThatIsHeldAlready,
        TakesPrefixesOfCategories,
        ListsWhatIsNotInTheZone,
        OrdersEqualPricesByRisingIdWhenDescending,
        SkipsTheFirstOfAPage,
        KeepsCategoriesThatWereLeft,
        InsertsOver,
    ] {
        let stores = || async move {
            faulty(|model| {
                let (inner, door) = (model.products.clone(), Door::default());
                Stores {
                    products: Arc::new(Faulty { fault, inner, door, seen_categories: Mutex::default() }),
                    ..model.clone()
                }
            })
        };
        must_be_found(&fault, || conformance::products(&stores, OPTIONS));
    }
}

struct Faulty {
    fault: Fault,
    inner: Arc<dyn ProductStore>,
    door: Door,
    seen_categories: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl ProductStore for Faulty {
    fn clock(&self, now: Timestamp) -> Timestamp {
        self.inner.clock(now)
    }

    async fn insert(&self, products: Vec<Product>) -> StoreResult<usize> {
        if self.fault == Fault::InsertsOver {
            for product in &products {
                let edit = ProductEdit { name: Some(product.name.clone()), ..ProductEdit::default() };
                self.inner.edit(product.id, edit, product.created_at).await?;
            }
        }
        self.inner.insert(products).await
    }

    async fn get(&self, id: ProductId) -> StoreResult<Option<Arc<Product>>> {
        self.inner.get(id).await
    }

    async fn get_many(&self, ids: &[ProductId]) -> StoreResult<HashMap<ProductId, Arc<Product>>> {
        self.inner.get_many(ids).await
    }

    async fn edit(
        &self,
        id: ProductId,
        edit: ProductEdit,
        now: Timestamp,
    ) -> StoreResult<Option<Arc<Product>>> {
        let before = self.inner.get(id).await?;
        tokio::task::yield_now().await;
        let meanwhile = self.inner.get(id).await?;
        if let (Fault::EditsStockAway, Some(before), Some(meanwhile)) = (self.fault, before, meanwhile)
            && before.stock != meanwhile.stock
        {
            // As whoever writes the whole product back that was read before.
            for (zone, stock) in &before.stock {
                self.inner.change_stock(id, *zone, StockChange::SetAvailable(stock.available), now).await?;
            }
        }
        self.inner.edit(id, edit, now).await
    }

    async fn change_stock(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
        now: Timestamp,
    ) -> StoreResult<StockOutcome> {
        self.inner.change_stock(id, zone, change, now).await
    }

    async fn hold(&self, id: ProductId, hold: Hold, now: Timestamp) -> StoreResult<HoldOutcome> {
        let is_first = self.door.enter().await;
        let mut outcome = self.inner.hold(id, hold, now).await?;
        self.door.leave();
        match (self.fault, &outcome) {
            (Fault::SellsMoreThanThereIs, HoldOutcome::Short { .. }) => {
                let more = StockChange::SetAvailable(hold.quantity);
                self.inner.change_stock(id, hold.zone, more, now).await?;
                outcome = self.inner.hold(id, hold, now).await?;
            }
            (Fault::HoldsTwiceWhenRunsRace, HoldOutcome::AlreadyHeld) if !is_first => {
                outcome = HoldOutcome::Held;
            }
            _ => {}
        }
        Ok(outcome)
    }

    async fn settle(
        &self,
        id: ProductId,
        order: OrderId,
        verdict: Verdict,
        now: Timestamp,
    ) -> StoreResult<bool> {
        let before = self.inner.get(id).await?;
        let settled = self.inner.settle(id, order, verdict, now).await?;
        if let (Fault::SettlesTwice, true, Some(before)) = (self.fault, settled, before) {
            for hold in before.holds.iter().filter(|hold| hold.order == order) {
                self.inner.hold(id, *hold, now).await?;
            }
            let sale_only = Verdict { cancellation: mobimir_core::product::Decision::Lost, ..verdict };
            self.inner.settle(id, order, sale_only, now).await?;
        }
        Ok(settled)
    }

    async fn list(&self, mut query: ProductQuery) -> StoreResult<Page<Arc<Product>, ProductPosition>> {
        match self.fault {
            Fault::ListsWhatIsNotInTheZone => query.zone = None,
            Fault::TakesPrefixesOfCategories => {
                let prefix = query.category.take().unwrap_or_default();
                let limit = std::mem::replace(&mut query.limit, usize::MAX);
                let sort = query.sort;
                let mut all = self.inner.list(query).await?.items;
                all.retain(|product| product.category.starts_with(&prefix));
                return Ok(Page::cut(all, limit, |product| sort.position(product)));
            }
            _ => {}
        }
        let (sort, goes_on) = (query.sort, query.after.is_some());
        let mut page = self.inner.list(query).await?;
        if self.fault == Fault::SkipsTheFirstOfAPage && goes_on && !page.items.is_empty() {
            page.items.remove(0);
        }
        if self.fault == Fault::OrdersEqualPricesByRisingIdWhenDescending
            && sort == ProductSort::PriceDescending
        {
            page.items.sort_by_key(|product| (std::cmp::Reverse(product.price), product.id));
        }
        Ok(page)
    }

    async fn categories(&self) -> StoreResult<Vec<String>> {
        let categories = self.inner.categories().await?;
        if self.fault != Fault::KeepsCategoriesThatWereLeft {
            return Ok(categories);
        }
        let mut seen = self.seen_categories.lock().await;
        seen.extend(categories);
        Ok(seen.iter().cloned().collect())
    }

    async fn with_holds(
        &self,
        placed_before: Timestamp,
        after: Option<ProductId>,
        limit: usize,
    ) -> StoreResult<Vec<Arc<Product>>> {
        let mut found = self.inner.with_holds(placed_before, after, limit).await?;
        if self.fault == Fault::ForgetsProductsWithHolds {
            found.retain(|product| product.holds.len() > 1);
        }
        Ok(found)
    }

    async fn insert_checkout(&self, checkout: Checkout) -> StoreResult<Option<Checkout>> {
        let is_first = self.door.enter().await;
        let existing = self.inner.insert_checkout(checkout).await?;
        self.door.leave();
        let loses = self.fault == Fault::InsertsACheckoutTwiceWhenCallersRace && !is_first;
        Ok(existing.filter(|_| !loses))
    }

    async fn get_checkout(&self, id: OrderId) -> StoreResult<Option<Checkout>> {
        self.inner.get_checkout(id).await
    }

    async fn update_checkout(&self, checkout: Checkout, mut expected: Version) -> StoreResult<bool> {
        if self.fault == Fault::IgnoresTheVersionOfACheckout
            && let Some(stored) = self.inner.get_checkout(checkout.order_id).await?
        {
            expected = stored.version;
        }
        self.inner.update_checkout(checkout, expected).await
    }

    async fn due_checkouts(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        let early = i64::from(self.fault == Fault::FindsDueCheckoutsTooEarly);
        self.inner.due_checkouts(now.plus_ms(early), limit).await
    }

    async fn due_uncommitted(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        if self.fault == Fault::FindsCommittedAmongUncommitted {
            return self.inner.due_checkouts(now, limit).await;
        }
        self.inner.due_uncommitted(now, limit).await
    }

    async fn cart_claim(&self, user: UserId) -> StoreResult<Option<OrderId>> {
        self.inner.cart_claim(user).await
    }

    async fn claim_cart(
        &self,
        user: UserId,
        mut expected: Option<OrderId>,
        order: OrderId,
    ) -> StoreResult<bool> {
        let claim = self.inner.cart_claim(user).await?;
        match self.fault {
            Fault::ClaimsACartWhoeverHasIt => expected = claim,
            Fault::RefusesAClaimThatIsHeldAlready if claim == Some(order) => return Ok(false),
            _ => {}
        }
        self.inner.claim_cart(user, expected, order).await
    }
}
