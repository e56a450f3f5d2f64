//! Orders after they were placed: read, moved along their status machine, cancelled.

use std::time::Duration;

use futures_util::future::join_all;
use mobimir_core::{
    checkout::{Checkout, Fate},
    id::{AttemptId, OrderId, UserId},
    invariant::Invariant,
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    policy::ReadOperation,
    ports::{DayFilter, Period, StoreError, Transition},
    product::{Decision, Hold, HoldKind, HoldOutcome, Verdict},
    reading,
    time::Day,
};
use thiserror::Error;

use crate::{
    Shop,
    faults::{Planted, Step, Stopped},
};

#[derive(Debug, Error)]
pub enum MoveOrderError {
    #[error("no order has this id")]
    NoSuchOrder,
    #[error("an order that is {from} cannot become {to}")]
    BadTransition { from: OrderStatus, to: OrderStatus },
    #[error("too many orders of one product are being settled")]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

const RACES_MAX: usize = 32;
/// How long to wait before asking again for a product whose hold list is full.
const FULL_WAIT: Duration = Duration::from_millis(5);

impl Shop {
    /// For whoever looks at it. Nobody is shown a copy of an order that seems unpaid, or seems not to be there: who
    /// believes that may pay, or order, a second time.
    pub async fn order(&self, id: OrderId) -> Result<Option<Order>, StoreError> {
        let order = reading::of(ReadOperation::OrderCard, self.stores().orders.get(id)).await?;
        if self.settings().orders_from_copies && order.as_ref().is_none_or(|order| is_unpaid(order.status)) {
            return reading::of(ReadOperation::PaidStatus, self.stores().orders.get(id)).await;
        }
        Ok(order)
    }

    /// For whoever acts on it.
    pub async fn order_now(&self, id: OrderId) -> Result<Option<Order>, StoreError> {
        reading::of(ReadOperation::OrderProcessing, self.stores().orders.get(id)).await
    }

    pub async fn order_history(&self, id: OrderId) -> Result<Vec<StatusChange>, StoreError> {
        let mut history = reading::of(ReadOperation::OrderStatus, self.stores().orders.history(id)).await?;
        let may_be_behind = history.last().is_none_or(|change| is_unpaid(change.status));
        if self.settings().orders_from_copies && may_be_behind {
            history = reading::of(ReadOperation::PaidStatus, self.stores().orders.history(id)).await?;
        }
        let along_the_machine = history.windows(2).all(|pair| pair[0].status.can_become(pair[1].status));
        if !self.inner.invariants.check(Invariant::Ord3, along_the_machine) {
            tracing::error!(order = %id, "ORD-3 is broken: this order's history does not follow the status machine");
        }
        Ok(history)
    }

    pub async fn orders_of(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> Result<Page<Order, OrderPosition>, StoreError> {
        let page = self.stores().orders.by_user(user, period, after, limit);
        reading::of(ReadOperation::OrderHistory, page).await
    }

    pub async fn orders_of_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> Result<Page<Order, OrderPosition>, StoreError> {
        let page = self.stores().orders.by_day(day, filter, after, limit);
        reading::of(ReadOperation::Analytics, page).await
    }

    pub async fn move_order(
        &self,
        id: OrderId,
        to: OrderStatus,
        operator: &str,
    ) -> Result<Order, MoveOrderError> {
        let order = self.order_now(id).await?.ok_or(MoveOrderError::NoSuchOrder)?;
        let bad = |from| MoveOrderError::BadTransition { from, to };
        if !order.status.can_become(to) {
            return Err(bad(order.status));
        }
        match to {
            OrderStatus::Cancelled => return self.cancel_order(order, operator).await,
            OrderStatus::Shipped => self.decide_dispatch(&order).await?,
            _ => {}
        }
        let change = StatusChange { status: to, at: self.now(), operator: Some(operator.to_owned()) };
        match self.stores().orders.transition(id, order.status, change).await? {
            Transition::Moved(order) => Ok(order),
            Transition::StandsAt(status) => Err(bad(status)),
            Transition::NoSuchOrder => Err(MoveOrderError::NoSuchOrder),
        }
    }

    /// Goods that go out can no longer be cancelled, so both are decided in the checkout record.
    async fn decide_dispatch(&self, order: &Order) -> Result<(), MoveOrderError> {
        for _ in 0..RACES_MAX {
            // An imported order has no record, and nobody to race with.
            let Some(checkout) = self.stores().products.get_checkout(order.id).await? else { return Ok(()) };
            match checkout.fate {
                Fate::Dispatched => return Ok(()),
                Fate::Cancelled { .. } => {
                    return Err(MoveOrderError::BadTransition {
                        from: OrderStatus::Cancelled,
                        to: OrderStatus::Shipped,
                    });
                }
                Fate::InStore => {}
            }
            let Ok(decided) = checkout.dispatch(self.now()) else { return Err(lost_race().into()) };
            if self.stores().products.update_checkout(decided, checkout.version).await? {
                self.inner.faults.reached(Step::DispatchDecided).await?;
                return Ok(());
            }
        }
        Err(lost_race().into())
    }

    /// Cancelling is decided as the sale was: mark what would come back, let the record name one run, settle.
    async fn cancel_order(&self, order: Order, operator: &str) -> Result<Order, MoveOrderError> {
        for _ in 0..RACES_MAX {
            let Some(checkout) = self.stores().products.get_checkout(order.id).await? else {
                return self
                    .write_cancellation(order.id, order.status, self.now(), Some(operator.to_owned()))
                    .await;
            };
            if checkout.fate != Fate::InStore {
                let from = if checkout.fate == Fate::Dispatched {
                    OrderStatus::Shipped
                } else {
                    OrderStatus::Cancelled
                };
                return Err(MoveOrderError::BadTransition { from, to: OrderStatus::Cancelled });
            }
            let attempt = AttemptId(self.fresh_id());
            self.hold_returns(&checkout, attempt).await?;
            let Ok(decided) = checkout.cancel(attempt, Some(operator.to_owned()), self.store_now()) else {
                return Err(lost_race().into());
            };
            if self.stores().products.update_checkout(decided.clone(), checkout.version).await?
                || self.plants(Planted::CancelledWithoutDecision)
            {
                self.inner.faults.reached(Step::CancellationDecided).await?;
                return self.carry_out_cancellation(&decided).await;
            }
            self.drop_returns(&checkout, attempt).await?;
        }
        Err(lost_race().into())
    }

    async fn hold_returns(&self, checkout: &Checkout, attempt: AttemptId) -> Result<(), MoveOrderError> {
        let give_up_at = self.now().plus_ms(self.settings().checkout_request_ms_max);
        let holds = join_all(checkout.lines.iter().map(|line| async move {
            loop {
                let now = self.now();
                let hold = Hold {
                    order: checkout.order_id,
                    attempt,
                    kind: HoldKind::Return,
                    zone: checkout.geo_zone,
                    quantity: line.quantity,
                    placed_at: self.store_now(),
                };
                match self.stores().products.hold(line.product_id, hold, now).await? {
                    HoldOutcome::Full if now < give_up_at => tokio::time::sleep(FULL_WAIT).await,
                    outcome => return Ok::<_, StoreError>(outcome),
                }
            }
        }));
        for held in holds.await {
            if !matches!(held?, HoldOutcome::Held | HoldOutcome::AlreadyHeld) {
                self.drop_returns(checkout, attempt).await?;
                return Err(MoveOrderError::Busy);
            }
        }
        self.inner.faults.reached(Step::ReturnHeld).await?;
        Ok(())
    }

    pub(crate) async fn drop_returns(
        &self,
        checkout: &Checkout,
        attempt: AttemptId,
    ) -> Result<(), StoreError> {
        self.settle_lines(
            checkout,
            Verdict { sale: Decision::Undecided, cancellation: Decision::Failed(attempt) },
        )
        .await
    }

    /// Writes what a decided cancellation means, as often as need be.
    pub(crate) async fn carry_out_cancellation(&self, checkout: &Checkout) -> Result<Order, MoveOrderError> {
        let Fate::Cancelled { at, operator, .. } = &checkout.fate else { return Err(lost_race().into()) };
        let order = self.order_now(checkout.order_id).await?.ok_or(MoveOrderError::NoSuchOrder)?;
        let order = self.write_cancellation(order.id, order.status, *at, operator.clone()).await?;
        self.inner.faults.reached(Step::CancellationWritten).await?;
        self.settle_lines(checkout, checkout.verdict()).await?;
        self.inner.faults.reached(Step::ReturnsSettled).await?;
        // CRT-4: whoever placed the order may have died before its cart was told. Without that the record stays due.
        match self.take_cart(checkout).await {
            Ok(()) => {
                let settled = checkout.settled(self.store_now());
                self.stores().products.update_checkout(settled, checkout.version).await?;
            }
            Err(error) => {
                tracing::warn!(order = %order.id, %error, "the cart of a cancelled order is not told yet");
                self.postpone(checkout).await;
            }
        }
        Ok(order)
    }

    async fn write_cancellation(
        &self,
        id: OrderId,
        mut from: OrderStatus,
        at: mobimir_core::time::Timestamp,
        operator: Option<String>,
    ) -> Result<Order, MoveOrderError> {
        for _ in 0..RACES_MAX {
            if from == OrderStatus::Cancelled {
                return self.order_now(id).await?.ok_or(MoveOrderError::NoSuchOrder);
            }
            let legal = from.can_become(OrderStatus::Cancelled);
            if !self.inner.invariants.check(Invariant::Ord3, legal) {
                tracing::error!(order = %id, status = %from, "ORD-3 is broken: a cancelled order has gone on");
                return Err(MoveOrderError::BadTransition { from, to: OrderStatus::Cancelled });
            }
            let change = StatusChange { status: OrderStatus::Cancelled, at, operator: operator.clone() };
            match self.stores().orders.transition(id, from, change).await? {
                Transition::Moved(order) => return Ok(order),
                Transition::StandsAt(status) => from = status,
                Transition::NoSuchOrder => return Err(MoveOrderError::NoSuchOrder),
            }
        }
        Err(lost_race().into())
    }
}

/// Whether somebody might still pay for it.
fn is_unpaid(status: OrderStatus) -> bool {
    matches!(status, OrderStatus::Pending | OrderStatus::Confirmed)
}

fn lost_race() -> StoreError {
    StoreError::Unavailable { what: "the order is being changed by too many at once".into(), source: None }
}
