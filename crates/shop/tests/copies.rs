//! What the shop shows when orders may be read from a copy that is behind, and under which name it reads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    policy::ReadOperation,
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    reading,
    time::Day,
};
use mobimir_shop::{Shop, ShopSettings, faults::Faults};
use mobimir_testkit::model::ModelStore;

use self::support::World;

/// What may be read from a copy is, and the copy is as far as the test says.
struct CopiedOrders {
    current: Arc<dyn OrderStore>,
    copy: Arc<dyn OrderStore>,
    reads: Mutex<Vec<Option<ReadOperation>>>,
}

impl CopiedOrders {
    fn place(&self) -> &dyn OrderStore {
        let operation = reading::current().operation;
        self.reads.lock().unwrap().push(operation);
        match operation.and_then(ReadOperation::default_budget) {
            Some(_) => &*self.copy,
            None => &*self.current,
        }
    }

    fn take_reads(&self) -> Vec<ReadOperation> {
        std::mem::take(&mut *self.reads.lock().unwrap()).into_iter().flatten().collect()
    }
}

#[async_trait]
impl OrderStore for CopiedOrders {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        self.current.insert(orders).await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.place().get(id).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.place().history(id).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        self.current.transition(id, from, change).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.place().by_user(user, period, after, limit).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.place().by_day(day, filter, after, limit).await
    }
}

#[tokio::test]
async fn no_order_is_shown_unpaid_or_missing_by_a_copy() {
    use ReadOperation::{
        Analytics, OrderCard, OrderHistory, OrderProcessing, OrderStatus as Status, PaidStatus,
    };
    let mut world = World::new();
    let orders = Arc::new(CopiedOrders {
        current: world.stores.orders.clone(),
        copy: ModelStore::stores().orders,
        reads: Mutex::default(),
    });
    world.stores.orders = orders.clone();
    let settings = ShopSettings { orders_from_copies: true, ..world.shop(Faults::none()).settings().clone() };
    let shop = Shop::new(world.stores.clone(), world.clock.clone(), settings);

    let products = world.products(1, 5).await;
    let user = world.user();
    let order = shop.place_order(user, "key", world.order_of(&products, 1)).await.unwrap().order;
    orders.take_reads();

    // The copy has not heard of it.
    assert_eq!(shop.order(order.id).await.unwrap().unwrap().status, OrderStatus::Confirmed);
    assert_eq!(shop.order_history(order.id).await.unwrap().len(), 1);
    assert_eq!(orders.take_reads(), [OrderCard, PaidStatus, Status, PaidStatus]);

    // The copy still shows it unpaid.
    orders.copy.insert(vec![order.clone()]).await.unwrap();
    shop.move_order(order.id, OrderStatus::Paid, "operator").await.unwrap();
    assert_eq!(orders.take_reads(), [OrderProcessing], "whoever acts on an order reads it as it is");
    assert_eq!(shop.order(order.id).await.unwrap().unwrap().status, OrderStatus::Paid);
    assert_eq!(shop.order_history(order.id).await.unwrap().len(), 2);
    orders.take_reads();

    // Paid is paid: what comes later may be late.
    let change = StatusChange { status: OrderStatus::Paid, at: shop.now(), operator: None };
    orders.copy.transition(order.id, OrderStatus::Confirmed, change).await.unwrap();
    shop.move_order(order.id, OrderStatus::Shipped, "operator").await.unwrap();
    orders.take_reads();
    assert_eq!(shop.order(order.id).await.unwrap().unwrap().status, OrderStatus::Paid);
    assert_eq!(shop.order_history(order.id).await.unwrap().len(), 2);
    shop.orders_of(user, Period::default(), None, 10).await.unwrap();
    shop.orders_of_day(shop.now().day(), DayFilter::default(), None, 10).await.unwrap();
    assert_eq!(orders.take_reads(), [OrderCard, Status, OrderHistory, Analytics]);
}

#[tokio::test]
async fn where_there_are_no_copies_nothing_is_read_twice() {
    let mut world = World::new();
    let orders = Arc::new(CopiedOrders {
        current: world.stores.orders.clone(),
        copy: world.stores.orders.clone(),
        reads: Mutex::default(),
    });
    world.stores.orders = orders.clone();
    let shop = world.shop(Faults::none());
    let products = world.products(1, 5).await;
    let request = world.order_of(&products, 1);
    let order = shop.place_order(world.user(), "key", request).await.unwrap().order;
    orders.take_reads();
    shop.order(order.id).await.unwrap();
    assert_eq!(orders.take_reads(), [ReadOperation::OrderCard]);
}
