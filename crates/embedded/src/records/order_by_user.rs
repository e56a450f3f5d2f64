//! The orders of a user, newest first.

use mobimir_core::{
    id::{OrderId, UserId},
    order::OrderPosition,
    ports::StoreResult,
    time::Timestamp,
};

use crate::engine::{Key, KeyBuilder, KeyReader, Table};

pub(crate) fn key(user: UserId, position: OrderPosition) -> Key {
    KeyBuilder::new(Table::OrderByUser)
        .uuid(user.0)
        .time_descending(position.created_at)
        .uuid(position.order_id.0)
        .end()
}

pub(crate) fn all(user: UserId) -> Key {
    KeyBuilder::new(Table::OrderByUser).uuid(user.0).end()
}

/// What the keys of the orders of that very time start with.
pub(crate) fn at(user: UserId, time: Timestamp) -> Key {
    KeyBuilder::new(Table::OrderByUser).uuid(user.0).time_descending(time).end()
}

pub(crate) fn read_key(key: &[u8]) -> StoreResult<OrderPosition> {
    let mut key = KeyReader::new(Table::OrderByUser, key)?;
    key.uuid()?;
    Ok(OrderPosition { created_at: key.time_descending()?, order_id: OrderId(key.uuid()?) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn keys_sort_as_positions_do_and_come_back(a in arbitrary::order(), b in arbitrary::order()) {
            let (at, other) = (a.position(), b.position());
            prop_assert_eq!(key(a.user_id, at).cmp(&key(a.user_id, other)), at.key().cmp(&other.key()));
            prop_assert_eq!(read_key(&key(a.user_id, at).bytes).unwrap(), at);
            prop_assert_eq!(key(a.user_id, at) >= super::at(a.user_id, b.created_at), a.created_at <= b.created_at);
        }
    }
}
