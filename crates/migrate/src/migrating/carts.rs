use async_trait::async_trait;
use mobimir_core::{
    cart::{CartChange, CartPosition, Owner, StoredCart},
    page::Page,
    ports::{CartStore, StoreResult},
    time::Timestamp,
};

use super::MigratingCarts;

#[async_trait]
impl CartStore for MigratingCarts {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let append = |port: std::sync::Arc<dyn CartStore>| async move {
            port.append(owner, changes, expires_at, now).await
        };
        self.write(vec![owner], append).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let cart = Self::read(self)?.read(owner, now).await?;
        self.compare("a cart", &cart, move |port| async move { port.read(owner, now).await });
        Ok(cart)
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        Self::read(self)?.untouched(untouched_since, after, limit, now).await
    }
}
