//! An order.

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::{
    leaves::{At, Id, StatusCode, ZoneCode},
    order_lines::LineRecord,
};
use mobimir_core::{
    id::{OrderId, UserId},
    order::Order,
    ports::StoreResult,
    time::Version,
};

use crate::engine::{Key, KeyBuilder, Table};

pub(crate) fn key(id: OrderId) -> Key {
    KeyBuilder::new(Table::Order).uuid(id.0).end()
}

/// An order as it is stored, with the length of its history, so that a move knows where to write itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredOrder {
    pub(crate) order: Order,
    pub(crate) history_lines: u32,
}

#[derive(Encode, Decode)]
struct OrderRecord<'a> {
    #[n(0)]
    user_id: Id,
    #[n(1)]
    status: StatusCode,
    #[n(2)]
    geo_zone: ZoneCode,
    #[b(3)]
    lines: Vec<LineRecord<'a>>,
    #[b(4)]
    shipping_address: Option<&'a str>,
    #[b(5)]
    payment_method: Option<&'a str>,
    #[n(6)]
    created_at: At,
    #[n(7)]
    updated_at: At,
    #[n(8)]
    bucket: u16,
    #[n(9)]
    version: u64,
    #[n(10)]
    history_lines: u32,
}

pub(crate) fn encode(stored: &StoredOrder) -> Slice {
    let order = &stored.order;
    super::encode(&OrderRecord {
        user_id: Id(order.user_id.0),
        status: StatusCode(order.status),
        geo_zone: ZoneCode(order.geo_zone),
        lines: order.lines.iter().map(LineRecord::from).collect(),
        shipping_address: order.shipping_address.as_deref(),
        payment_method: order.payment_method.as_deref(),
        created_at: At(order.created_at),
        updated_at: At(order.updated_at),
        bucket: order.bucket,
        version: order.version.0,
        history_lines: stored.history_lines,
    })
}

pub(crate) fn decode(id: OrderId, bytes: &[u8]) -> StoreResult<StoredOrder> {
    let record: OrderRecord<'_> = super::decode("order", bytes)?;
    let order = Order {
        id,
        user_id: UserId(record.user_id.0),
        status: record.status.0,
        geo_zone: record.geo_zone.0,
        lines: record.lines.into_iter().map(Into::into).collect(),
        shipping_address: record.shipping_address.map(Into::into),
        payment_method: record.payment_method.map(Into::into),
        created_at: record.created_at.0,
        updated_at: record.updated_at.0,
        bucket: record.bucket,
        version: Version(record.version),
    };
    Ok(StoredOrder { order, history_lines: record.history_lines })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn an_order_comes_back_whole(order in arbitrary::order(), history_lines in any::<u32>()) {
            let stored = StoredOrder { order, history_lines };
            prop_assert_eq!(decode(stored.order.id, &encode(&stored)).unwrap(), stored);
        }
    }
}
