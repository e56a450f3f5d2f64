use async_trait::async_trait;
use mobimir_core::{
    id::UserId,
    moving::HistoryKey,
    order::{Order, OrderPosition},
    page::Page,
    ports::{OrderHistoryStore, Period, StoreResult},
};

use super::{ModelStore, page};

#[async_trait]
impl OrderHistoryStore for ModelStore {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        let mut state = self.state();
        for order in orders {
            let stored = state.order_history.get(&order.id);
            if stored.is_none_or(|stored| stored.version < order.version) {
                state.history_marks.leave(self.is_tracked, HistoryKey::of(&order), order.updated_at);
                state.order_history.insert(order.id, order);
            }
        }
        Ok(())
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let state = self.state();
        let wanted = |order: &&Order| order.user_id == user && period.contains(order.created_at);
        let orders = state.order_history.values().filter(wanted).cloned().collect();
        Ok(page(orders, after, limit, Order::position, OrderPosition::key))
    }
}
