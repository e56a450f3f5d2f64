use async_trait::async_trait;
use mobimir_core::{
    id::UserId,
    moving::HistoryKey,
    order::{Order, OrderPosition},
    page::Page,
    ports::{OrderHistoryStore, Period, StoreResult},
};

use super::MigratingHistory;

#[async_trait]
impl OrderHistoryStore for MigratingHistory {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        let keys = orders.iter().map(HistoryKey::of).collect();
        self.write(keys, |port| async move { port.append(orders).await }).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let page = self.read()?.by_user(user, period, after, limit).await?;
        self.compare("the history of a user", &page, move |port| async move {
            port.by_user(user, period, after, limit).await
        });
        Ok(page)
    }
}
