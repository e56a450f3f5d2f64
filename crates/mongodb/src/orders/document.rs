//! An order as it is stored, with its status and its history.

use mobimir_core::{
    moving::WholeOrder,
    order::{Order, OrderLine, OrderStatus, StatusChange},
    ports::StoreResult,
};
use mongodb::bson::{DateTime, Document, Uuid, doc};
use serde::{Deserialize, Serialize};

use crate::{
    leaves::{counted, date, id, kopecks, number, price, time, units, uuid, version, zone},
    link::damaged,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OrderDoc {
    #[serde(rename = "_id")]
    pub(super) id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) status: String,
    geo_zone: String,
    lines: Vec<LineDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shipping_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_method: Option<String>,
    created_at: DateTime,
    updated_at: DateTime,
    /// In UTC, counted from 1970-01-01.
    day: i32,
    bucket: i32,
    pub(super) version: i64,
    /// Every status that it had, the first one first; not kept with copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    history: Vec<MoveDoc>,
    /// Since when it is written and not copied, while a migration runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmirrored: Option<DateTime>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineDoc {
    product_id: Uuid,
    name: String,
    category: String,
    /// In kopecks. The total of an order may not fit and is summed when it is asked for.
    price: i64,
    quantity: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MoveDoc {
    status: String,
    at: DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
}

impl OrderDoc {
    /// With the first line of its history.
    pub(super) fn first(order: Order) -> Self {
        let history = vec![MoveDoc::of(order.first_change())];
        Self { history, ..Self::copy(order) }
    }

    pub(super) fn marked(self, unmirrored: Option<DateTime>) -> Self {
        Self { unmirrored, ..self }
    }

    /// Without a history.
    pub(super) fn copy(order: Order) -> Self {
        Self {
            id: uuid(order.id.0),
            user_id: uuid(order.user_id.0),
            status: order.status.as_str().to_owned(),
            geo_zone: order.geo_zone.to_string(),
            day: order.day().number(),
            lines: order.lines.into_iter().map(LineDoc::of).collect(),
            shipping_address: order.shipping_address,
            payment_method: order.payment_method,
            created_at: date(order.created_at),
            updated_at: date(order.updated_at),
            bucket: order.bucket.into(),
            version: number(order.version),
            history: Vec::new(),
            unmirrored: None,
        }
    }

    /// With all of its history.
    pub(super) fn whole(WholeOrder { order, history }: WholeOrder) -> Self {
        Self { history: history.into_iter().map(MoveDoc::of).collect(), ..Self::copy(order) }
    }

    /// Where this would be the newest. The user says in which shard.
    pub(super) fn older(&self) -> Document {
        doc! { "_id": self.id, "user_id": self.user_id, "version": { "$lt": self.version } }
    }

    pub(super) fn order(self) -> StoreResult<Order> {
        Ok(Order {
            id: id(self.id),
            user_id: id(self.user_id),
            status: status(&self.status)?,
            geo_zone: zone(&self.geo_zone)?,
            lines: self.lines.into_iter().map(LineDoc::line).collect::<StoreResult<_>>()?,
            shipping_address: self.shipping_address,
            payment_method: self.payment_method,
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            bucket: u16::try_from(self.bucket)
                .map_err(|_| damaged(format!("expected a bucket of an order, got {}", self.bucket)))?,
            version: version(self.version),
        })
    }

    pub(super) fn history(self) -> StoreResult<Vec<StatusChange>> {
        self.history.into_iter().map(MoveDoc::change).collect()
    }
}

impl LineDoc {
    fn of(line: OrderLine) -> Self {
        let OrderLine { product_id, name, category, price, quantity } = line;
        let (price, quantity) = (kopecks(price), counted(quantity));
        Self { product_id: uuid(product_id.0), name, category, price, quantity }
    }

    fn line(self) -> StoreResult<OrderLine> {
        Ok(OrderLine {
            product_id: id(self.product_id),
            name: self.name,
            category: self.category,
            price: price(self.price),
            quantity: units(self.quantity)?,
        })
    }
}

impl MoveDoc {
    fn of(StatusChange { status, at, operator }: StatusChange) -> Self {
        Self { status: status.as_str().to_owned(), at: date(at), operator }
    }

    fn change(self) -> StoreResult<StatusChange> {
        Ok(StatusChange { status: status(&self.status)?, at: time(self.at), operator: self.operator })
    }
}

pub(super) fn status(stored: &str) -> StoreResult<OrderStatus> {
    OrderStatus::parse(stored)
        .ok_or_else(|| damaged(format!("expected the status of an order, got {stored:?}")))
}

#[cfg(test)]
mod tests {
    use mobimir_core::money::Money;
    use mobimir_testkit::arbitrary;
    use mongodb::bson::{deserialize_from_slice, serialize_to_vec};
    use proptest::prelude::*;

    use super::*;

    /// Prices and quantities that something may have.
    fn possible(mut order: Order) -> Order {
        for line in &mut order.lines {
            line.price = Money::from_kopecks(line.price.kopecks() % i128::from(i64::MAX));
            line.quantity &= i64::MAX as u64;
        }
        order
    }

    proptest! {
        #[test]
        fn an_order_comes_back_as_it_was(order in arbitrary::order().prop_map(possible)) {
            let bytes = serialize_to_vec(&OrderDoc::first(order.clone())).unwrap();
            let stored: OrderDoc = deserialize_from_slice(&bytes).unwrap();
            prop_assert_eq!(stored.clone().history().unwrap(), vec![order.first_change()]);
            prop_assert_eq!(stored.order().unwrap(), order.clone());
            let bytes = serialize_to_vec(&OrderDoc::copy(order.clone())).unwrap();
            let stored: OrderDoc = deserialize_from_slice(&bytes).unwrap();
            prop_assert_eq!(stored.order().unwrap(), order);
        }
    }
}
