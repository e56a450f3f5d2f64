//! Orders: a document each, with its status and its history in it, so that a move and its line in the history are one
//! update (ORD-3).
//!
//! Shards are chosen by `user_id`, and an `_id` is unique within a shard only. An order's id follows from its user and the
//! idempotency key ([`OrderId::of`]), so the same id always comes with the same user and meets itself in the same shard:
//! there is one of each (ORD-2). What knows the user says so and asks one shard; reading by id alone asks all.

mod document;
mod history;
mod moving;

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    policy::Entity,
    ports::{DayFilter, OrderStore, Period, StoreError, StoreResult, Transition},
    time::Day,
};
use mongodb::{
    Collection,
    bson::{Document, doc},
    options::ReturnDocument,
};

use self::document::{OrderDoc, status};
use crate::{
    deployment::Deployment,
    leaves::{date, literal, next_version, uuid},
    link::Link,
    moving::Tracking,
    paging::{by_age, newest_first, page_of},
};

pub use self::history::MongoOrderHistory;

pub struct MongoOrders {
    link: Link,
    orders: Collection<OrderDoc>,
    tracking: Tracking,
}

/// How often a move is tried of an order that stands where it should when somebody looks, and not when it is to move.
const MOVES_MAX: u32 = 8;

impl MongoOrders {
    pub fn new(deployment: Arc<Deployment>) -> Self {
        let link = Link::new(deployment, Entity::Orders);
        Self { orders: link.collection("orders"), link, tracking: Tracking::Off }
    }

    async fn stored(&self, id: OrderId) -> StoreResult<Option<OrderDoc>> {
        self.link.find_one("order", &self.orders, doc! { "_id": uuid(id.0) }).await
    }
}

#[async_trait]
impl OrderStore for MongoOrders {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let first = |order: Order| OrderDoc::first(order).marked(self.tracking.since());
        let orders: Vec<OrderDoc> = orders.into_iter().map(first).collect();
        self.link.insert_many("insert_orders", &self.orders, &orders).await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.stored(id).await?.map(OrderDoc::order).transpose()
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        Ok(self.stored(id).await?.map(OrderDoc::history).transpose()?.unwrap_or_default())
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        for _ in 0..MOVES_MAX {
            // Also tells whose it is: only then one shard can be asked to decide.
            let Some(stored) = self.stored(id).await? else { return Ok(Transition::NoSuchOrder) };
            let stands_at = status(&stored.status)?;
            if stands_at != from {
                return Ok(Transition::StandsAt(stands_at));
            }
            let filter = doc! { "_id": stored.id, "user_id": stored.user_id, "status": from.as_str() };
            let moved = self.link.find_one_and_update(
                "move_order",
                &self.orders,
                filter,
                moved(&change, self.tracking)?,
                ReturnDocument::After,
            );
            if let Some(moved) = moved.await? {
                return Ok(Transition::Moved(moved.order()?));
            }
        }
        let what = format!("MongoDB, move_order: the order was moved by others {MOVES_MAX} times");
        Err(StoreError::Unavailable { what, source: None })
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        page(&self.link, "orders_by_user", &self.orders, of_user(user, period, after), limit).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        page(&self.link, "orders_by_day", &self.orders, of_day(day, filter, after), limit).await
    }
}

/// What a move does to an order, as [`Order::moved`] says. All fields are those from before the move.
fn moved(change: &StatusChange, tracking: Tracking) -> StoreResult<Vec<Document>> {
    let at = doc! { "$max": ["$updated_at", date(change.at)] };
    let mut line = doc! { "status": change.status.as_str(), "at": at.clone() };
    if let Some(operator) = &change.operator {
        line.insert("operator", literal(operator)?);
    }
    let mut fields = doc! {
        "status": change.status.as_str(),
        "updated_at": at,
        "version": next_version(change.at),
        "history": { "$concatArrays": ["$history", [line]] },
    };
    tracking.mark(&mut fields);
    Ok(vec![doc! { "$set": fields }])
}

fn of_user(user: UserId, period: Period, after: Option<OrderPosition>) -> Document {
    newest_first(doc! { "user_id": uuid(user.0) }, period, position(after))
}

fn of_day(day: Day, DayFilter { status, zone }: DayFilter, after: Option<OrderPosition>) -> Document {
    let mut wanted = doc! { "day": day.number() };
    if let Some(status) = status {
        wanted.insert("status", status.as_str());
    }
    if let Some(zone) = zone {
        wanted.insert("geo_zone", zone.as_str());
    }
    newest_first(wanted, Period::default(), position(after))
}

fn position(after: Option<OrderPosition>) -> Option<(mobimir_core::time::Timestamp, uuid::Uuid)> {
    after.map(|OrderPosition { created_at, order_id }| (created_at, order_id.0))
}

async fn page(
    link: &Link,
    name: &'static str,
    orders: &Collection<OrderDoc>,
    filter: Document,
    limit: usize,
) -> StoreResult<Page<Order, OrderPosition>> {
    let found = link.find(name, orders, filter, page_of(limit, by_age())).await?;
    let orders: StoreResult<Vec<Order>> = found.into_iter().map(OrderDoc::order).collect();
    Ok(Page::cut(orders?, limit, Order::position))
}
