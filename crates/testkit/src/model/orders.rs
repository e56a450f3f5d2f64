use std::collections::btree_map::Entry;

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    time::Day,
};

use super::{ModelStore, page};

#[async_trait]
impl OrderStore for ModelStore {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let mut state = self.state();
        let mut inserted = 0;
        for order in orders {
            if let Entry::Vacant(place) = state.orders.entry(order.id) {
                let (id, first_change) = (order.id, order.first_change());
                place.insert((order, vec![first_change.clone()]));
                state.order_marks.leave(self.is_tracked, id, first_change.at);
                inserted += 1;
            }
        }
        Ok(inserted)
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        Ok(self.state().orders.get(&id).map(|(order, _)| order.clone()))
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        Ok(self.state().orders.get(&id).map(|(_, history)| history.clone()).unwrap_or_default())
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let mut state = self.state();
        let at = change.at;
        let Some((order, history)) = state.orders.get_mut(&id) else { return Ok(Transition::NoSuchOrder) };
        if order.status != from {
            return Ok(Transition::StandsAt(order.status));
        }
        *order = order.moved(change.status, change.at);
        history.push(StatusChange { at: order.updated_at, ..change });
        let moved = order.clone();
        state.order_marks.leave(self.is_tracked, id, at);
        Ok(Transition::Moved(moved))
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let wanted = |order: &Order| order.user_id == user && period.contains(order.created_at);
        Ok(page(self.orders(wanted), after, limit, Order::position, OrderPosition::key))
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let wanted = |order: &Order| order.day() == day && filter.matches(order);
        Ok(page(self.orders(wanted), after, limit, Order::position, OrderPosition::key))
    }
}

impl ModelStore {
    fn orders(&self, wanted: impl Fn(&Order) -> bool) -> Vec<Order> {
        self.state().orders.values().map(|(order, _)| order).filter(|order| wanted(order)).cloned().collect()
    }
}
