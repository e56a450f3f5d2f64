//! The separate history of orders: full copies by customer, under the stamp of the order's version.

use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition},
    page::Page,
    policy::Entity,
    ports::{Period, StoreResult},
};
use mobimir_shop::environment::Environment;

use super::{Cell, HOME, Key, Level, Link, Ring, Value};
use crate::{mongodb::ReplicaSet, network::Network, planted::PlantedFault};

const TABLE: &str = "order_history_by_user";

pub struct OrderHistory {
    ring: Ring,
    set: ReplicaSet,
    link: Link,
}

impl OrderHistory {
    pub fn open(ring: Ring, set: ReplicaSet, network: Network, environment: &Environment) -> Self {
        let link = Link::open(ring.clone(), network, environment, Entity::Orders, HOME);
        Self { ring, set, link }
    }

    pub fn planted(&self, fault: PlantedFault) -> bool {
        self.ring.world().planted(fault)
    }

    /// That a copy is owed is forgotten before the copy is made.
    pub async fn forget(&self, order: OrderId) {
        self.set.forget_owed(&order.to_string()).await;
    }

    pub fn behind(&self) {
        self.ring.world().note("history is behind", "");
    }

    pub async fn put(&self, order: Order) -> StoreResult<()> {
        let key = Key::new(TABLE, order.user_id.as_bytes(), order.id.as_bytes());
        let cell = Cell::new(order.version.0.cast_signed(), Value::Listed(Box::new(order)));
        self.link.write("history_append", Level::LocalQuorum, vec![(key, cell)], b"").await
    }

    pub async fn page(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let rows = self.link.read("history_list", TABLE, user.as_bytes()).await?;
        let listed = rows.into_values().filter_map(|cell| match cell.value {
            Some(Value::Listed(order)) if period.contains(order.created_at) => Some(*order),
            _ => None,
        });
        let mut orders: Vec<Order> = listed.collect();
        orders.sort_by_key(|order| order.position().key());
        orders.retain(|order| after.is_none_or(|after| order.position().key() > after.key()));
        Ok(Page::cut(orders, limit, Order::position))
    }
}
