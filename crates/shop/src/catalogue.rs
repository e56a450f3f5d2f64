//! Products and their stock.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use mobimir_core::{
    id::ProductId,
    invariant::Invariant,
    money::Money,
    page::Page,
    policy::ReadOperation,
    ports::StoreError,
    product::{
        Attribute, Product, ProductEdit, ProductError, ProductPosition, ProductQuery, StockChange,
        StockOutcome, ZoneStock,
    },
    reading,
    zone::Zone,
};
use thiserror::Error;

use crate::Shop;

pub struct NewProduct {
    pub name: String,
    pub category: String,
    pub price: Money,
    pub attributes: BTreeMap<String, Attribute>,
    pub stock: BTreeMap<Zone, u64>,
}

#[derive(Debug, Error)]
pub enum CatalogueError {
    #[error(transparent)]
    Invalid(#[from] ProductError),
    #[error("zone {0} is not one of this shop's")]
    UnknownZone(Zone),
    #[error("no product has this id")]
    NoSuchProduct,
    #[error("only {available} are available")]
    InsufficientStock { available: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Shop {
    pub async fn add_product(&self, new: NewProduct) -> Result<Arc<Product>, CatalogueError> {
        if let Some(unknown) = new.stock.keys().find(|zone| !self.settings().knows_zone(**zone)) {
            return Err(CatalogueError::UnknownZone(*unknown));
        }
        let now = self.now();
        let id = ProductId(self.fresh_id());
        let product = Product::new(id, new.name, new.category, new.price, new.attributes, new.stock, now)?;
        self.stores().products.insert(vec![product.clone()]).await?;
        Ok(Arc::new(product))
    }

    /// For its page: within the budget that the policy gives that.
    pub async fn product(&self, id: ProductId) -> Result<Option<Arc<Product>>, StoreError> {
        self.product_for(ReadOperation::ProductPage, id).await
    }

    /// As it is now: what is said of its stock is about to be relied on.
    pub async fn product_now(&self, id: ProductId) -> Result<Option<Arc<Product>>, StoreError> {
        self.product_for(ReadOperation::StockBeforeCart, id).await
    }

    async fn product_for(
        &self,
        operation: ReadOperation,
        id: ProductId,
    ) -> Result<Option<Arc<Product>>, StoreError> {
        let product = reading::of(operation, self.stores().products.get(id)).await?;
        if let Some(product) = &product {
            self.check_books(product);
        }
        Ok(product)
    }

    /// For a shelf of the catalogue.
    pub async fn products(&self, ids: &[ProductId]) -> Result<HashMap<ProductId, Arc<Product>>, StoreError> {
        reading::of(ReadOperation::CatalogueSearch, self.stores().products.get_many(ids)).await
    }

    /// As they are now, for a cart that is compared with the stock.
    pub async fn products_now(
        &self,
        ids: &[ProductId],
    ) -> Result<HashMap<ProductId, Arc<Product>>, StoreError> {
        reading::of(ReadOperation::StockBeforeCart, self.stores().products.get_many(ids)).await
    }

    pub async fn edit_product(
        &self,
        id: ProductId,
        edit: ProductEdit,
    ) -> Result<Arc<Product>, CatalogueError> {
        edit.check()?;
        self.stores().products.edit(id, edit, self.now()).await?.ok_or(CatalogueError::NoSuchProduct)
    }

    pub async fn change_stock(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
    ) -> Result<ZoneStock, CatalogueError> {
        if !self.settings().knows_zone(zone) {
            return Err(CatalogueError::UnknownZone(zone));
        }
        match self.stores().products.change_stock(id, zone, change, self.now()).await? {
            StockOutcome::Changed(stock) => Ok(stock),
            StockOutcome::Insufficient { available } => Err(CatalogueError::InsufficientStock { available }),
            StockOutcome::TooMuch => Err(CatalogueError::Invalid(ProductError::BadStock)),
            StockOutcome::NoSuchProduct => Err(CatalogueError::NoSuchProduct),
        }
    }

    pub async fn list_products(
        &self,
        query: ProductQuery,
    ) -> Result<Page<Arc<Product>, ProductPosition>, StoreError> {
        reading::of(ReadOperation::CatalogueSearch, self.stores().products.list(query)).await
    }

    pub async fn categories(&self) -> Result<Vec<String>, StoreError> {
        reading::of(ReadOperation::CatalogueSearch, self.stores().products.categories()).await
    }

    /// STK-1, looked at whenever a product is at hand.
    pub(crate) fn check_books(&self, product: &Product) -> bool {
        self.inner
            .invariants
            .check(Invariant::Stk2, product.stock.values().all(|stock| stock.available <= stock.received));
        let balanced = self.inner.invariants.check(Invariant::Stk1, product.books_balance());
        if !balanced {
            tracing::error!(product = %product.id, "STK-1 is broken: the books of this product do not balance");
        }
        balanced
    }
}
