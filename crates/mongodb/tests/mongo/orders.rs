//! Orders and the history of customers on a real replica set.

use std::sync::Arc;

use mobimir_core::{
    id::{OrderId, ProductId, UserId},
    money::PRICE_MAX,
    order::{Order, OrderLine, OrderStatus, StatusChange},
    policy::Entity,
    ports::{OrderHistoryStore, OrderStore, Stores, Transition},
    product::QUANTITY_MAX,
    time::{Clock, SystemClock, Timestamp, Version},
    zone::Zone,
};
use mobimir_mongodb::{MongoOrderHistory, MongoOrders};
use mobimir_testkit::{conformance, model::ModelStore};
use uuid::Uuid;

use crate::support::{self, Kept};

#[test]
fn conformance() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        let deployment = kept.keep(support::fresh(shared.mongo, &[Entity::Orders]).await);
        Stores { orders: Arc::new(MongoOrders::new(deployment)), ..ModelStore::stores() }
    };
    conformance::orders(&factory, support::options(12));
}

#[test]
fn conformance_of_the_history() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        let deployment = kept.keep(support::fresh(shared.mongo, &[Entity::OrderHistory]).await);
        Arc::new(MongoOrderHistory::new(deployment)) as Arc<dyn OrderHistoryStore>
    };
    conformance::order_history(&factory, support::options(12));
}

pub(crate) fn order(user: UserId, key: &str, now: Timestamp) -> Order {
    let line = OrderLine {
        product_id: ProductId(Uuid::from_u128(1)),
        name: "Смартфон".to_owned(),
        category: "$телефоны".to_owned(),
        price: PRICE_MAX,
        quantity: QUANTITY_MAX,
    };
    Order {
        id: OrderId::of(user, key),
        user_id: user,
        status: OrderStatus::Confirmed,
        geo_zone: Zone::parse("MSK").unwrap(),
        lines: vec![line; 20],
        shipping_address: None,
        payment_method: None,
        created_at: now,
        updated_at: now,
        bucket: 0,
        version: Version::default().next(now),
    }
}

/// Words that mean something to the server are words, and a total that no integer of it holds is exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_wrote_stays_what_it_is() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Orders, Entity::OrderHistory]).await;
    let orders = MongoOrders::new(fresh.deployment.clone());
    let history = MongoOrderHistory::new(fresh.deployment.clone());
    let now = SystemClock.now();
    let user = UserId(Uuid::from_u128(7));
    let order = Order { shipping_address: Some("$$ROOT.user_id".to_owned()), ..order(user, "k", now) };
    assert!(order.total().kopecks() > i128::from(i64::MAX));
    assert_eq!(orders.insert(vec![order.clone()]).await.unwrap(), 1);
    assert_eq!(orders.get(order.id).await.unwrap().as_ref(), Some(&order));
    let change = StatusChange { status: OrderStatus::Paid, at: now, operator: Some("$status".to_owned()) };
    let moved = orders.transition(order.id, OrderStatus::Confirmed, change.clone()).await.unwrap();
    let Transition::Moved(moved) = moved else { panic!("{moved:?}") };
    assert_eq!(moved, order.moved(OrderStatus::Paid, now));
    assert_eq!(orders.history(order.id).await.unwrap(), [order.first_change(), change]);
    history.append(vec![moved.clone(), order]).await.unwrap();
    let page = history.by_user(user, Default::default(), None, 10).await.unwrap();
    assert_eq!(page.items, [moved]);
}
