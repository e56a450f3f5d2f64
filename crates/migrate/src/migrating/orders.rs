use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    time::Day,
};

use super::MigratingOrders;

#[async_trait]
impl OrderStore for MigratingOrders {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let keys = orders.iter().map(|order| order.id).collect();
        self.write(keys, |port| async move { port.insert(orders).await }).await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        let found = self.read()?.get(id).await?;
        self.compare("an order", &found, move |port| async move { port.get(id).await });
        Ok(found)
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        let found = self.read()?.history(id).await?;
        self.compare("the moves of an order", &found, move |port| async move { port.history(id).await });
        Ok(found)
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        self.write(vec![id], |port| async move { port.transition(id, from, change).await }).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let page = self.read()?.by_user(user, period, after, limit).await?;
        self.compare("orders of a user", &page, move |port| async move {
            port.by_user(user, period, after, limit).await
        });
        Ok(page)
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let page = self.read()?.by_day(day, filter, after, limit).await?;
        self.compare("orders of a day", &page, move |port| async move {
            port.by_day(day, filter, after, limit).await
        });
        Ok(page)
    }
}
