use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderStore, Period, StoreResult, Stores, Transition},
    time::Day,
};
use mobimir_testkit::conformance;

use crate::{Door, OPTIONS, faulty, must_be_found};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    ForgetsSomeRowsByDay,
    ForgetsSomeRowsByUser,
    ShowsTheFirstStatusInLists,
    WritesAMoveTwice,
    MovesFromAnywhere,
    TellsEverybodyWhoRacesThatTheyMovedIt,
    FiltersByZoneOnly,
    EndsAPeriodTooLate,
    OrdersEqualTimesByFallingId,
    CountsOrdersThatWereThere,
    TellsNobodyWhoRacesThatTheirOrderWasNew,
}

#[test]
fn orders() {
    use Fault::*;
    for fault in [
        ForgetsSomeRowsByDay,
        ForgetsSomeRowsByUser,
        ShowsTheFirstStatusInLists,
        WritesAMoveTwice,
        MovesFromAnywhere,
        TellsEverybodyWhoRacesThatTheyMovedIt,
        FiltersByZoneOnly,
        EndsAPeriodTooLate,
        OrdersEqualTimesByFallingId,
        CountsOrdersThatWereThere,
        TellsNobodyWhoRacesThatTheirOrderWasNew,
    ] {
        let stores = || async move {
            faulty(|model| {
                let (inner, door) = (model.orders.clone(), Door::default());
                Stores { orders: Arc::new(Faulty { fault, inner, door }), ..model.clone() }
            })
        };
        must_be_found(&fault, || conformance::orders(&stores, OPTIONS));
    }
}

struct Faulty {
    fault: Fault,
    inner: Arc<dyn OrderStore>,
    door: Door,
}

const RACE_YIELDS: usize = 100;

impl Faulty {
    fn is_forgotten(order: &Order) -> bool {
        order.id.0.as_u128().is_multiple_of(4)
    }

    fn spoil(&self, page: &mut Page<Order, OrderPosition>) {
        match self.fault {
            Fault::ShowsTheFirstStatusInLists => {
                page.items.iter_mut().for_each(|order| order.status = OrderStatus::Confirmed);
            }
            Fault::OrdersEqualTimesByFallingId => {
                page.items.sort_by_key(|order| std::cmp::Reverse((order.created_at, order.id)));
            }
            _ => {}
        }
    }
}

#[async_trait]
impl OrderStore for Faulty {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let asked = orders.len();
        let is_first = self.door.enter().await;
        if self.fault == Fault::TellsNobodyWhoRacesThatTheirOrderWasNew && is_first {
            // Somebody else comes first after all.
            for _ in 0..RACE_YIELDS {
                tokio::task::yield_now().await;
            }
        }
        let inserted = self.inner.insert(orders).await?;
        self.door.leave();
        Ok(match self.fault {
            Fault::CountsOrdersThatWereThere => asked,
            Fault::TellsNobodyWhoRacesThatTheirOrderWasNew if !is_first => 0,
            _ => inserted,
        })
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.inner.get(id).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        let mut history = self.inner.history(id).await?;
        if self.fault == Fault::WritesAMoveTwice && history.len() > 2 {
            history.extend(history.last().cloned());
        }
        Ok(history)
    }

    async fn transition(
        &self,
        id: OrderId,
        mut from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let stored = self.inner.get(id).await?;
        if let (Fault::MovesFromAnywhere, Some(order)) = (self.fault, &stored) {
            from = order.status;
        }
        let is_first = self.door.enter().await;
        let outcome = self.inner.transition(id, from, change.clone()).await?;
        self.door.leave();
        match (self.fault, stored) {
            (Fault::TellsEverybodyWhoRacesThatTheyMovedIt, Some(order)) if !is_first => {
                Ok(Transition::Moved(order.moved(change.status, change.at)))
            }
            _ => Ok(outcome),
        }
    }

    async fn by_user(
        &self,
        user: UserId,
        mut period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        if self.fault == Fault::EndsAPeriodTooLate {
            period.to = period.to.map(|to| to.plus_ms(1));
        }
        let mut page = self.inner.by_user(user, period, after, limit).await?;
        if self.fault == Fault::ForgetsSomeRowsByUser {
            page.items.retain(|order| !Self::is_forgotten(order));
        }
        self.spoil(&mut page);
        Ok(page)
    }

    async fn by_day(
        &self,
        day: Day,
        mut filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        if self.fault == Fault::FiltersByZoneOnly {
            filter.status = None;
        }
        let mut page = self.inner.by_day(day, filter, after, limit).await?;
        if self.fault == Fault::ForgetsSomeRowsByDay {
            page.items.retain(|order| !Self::is_forgotten(order));
        }
        self.spoil(&mut page);
        Ok(page)
    }
}
