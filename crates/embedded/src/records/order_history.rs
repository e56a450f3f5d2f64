//! The moves of an order, in the order they were made.

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::leaves::{At, StatusCode};
use mobimir_core::{id::OrderId, order::StatusChange, ports::StoreResult};

use crate::engine::{Key, KeyBuilder, Table};

pub(crate) fn key(id: OrderId, line: u32) -> Key {
    KeyBuilder::new(Table::OrderHistory).uuid(id.0).bytes(&line.to_be_bytes()).end()
}

pub(crate) fn all(id: OrderId) -> Key {
    KeyBuilder::new(Table::OrderHistory).uuid(id.0).end()
}

#[derive(Encode, Decode)]
struct StatusChangeRecord<'a> {
    #[n(0)]
    status: StatusCode,
    #[n(1)]
    at: At,
    #[b(2)]
    operator: Option<&'a str>,
}

pub(crate) fn encode(change: &StatusChange) -> Slice {
    super::encode(&StatusChangeRecord {
        status: StatusCode(change.status),
        at: At(change.at),
        operator: change.operator.as_deref(),
    })
}

pub(crate) fn decode(bytes: &[u8]) -> StoreResult<StatusChange> {
    let record: StatusChangeRecord<'_> = super::decode("order history", bytes)?;
    Ok(StatusChange { status: record.status.0, at: record.at.0, operator: record.operator.map(Into::into) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn a_line_comes_back_and_lines_stay_in_order(order in arbitrary::order(), operator in proptest::option::of(".{0,8}"), a in any::<u32>(), b in any::<u32>()) {
            let change = StatusChange { operator, ..order.first_change() };
            prop_assert_eq!(decode(&encode(&change)).unwrap(), change);
            prop_assert_eq!(key(order.id, a).cmp(&key(order.id, b)), a.cmp(&b));
            prop_assert!(key(order.id, a).bytes.starts_with(&all(order.id).bytes));
        }
    }
}
