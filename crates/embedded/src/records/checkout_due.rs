//! Checkouts that the reconciler should look at, by when.

use mobimir_core::{id::OrderId, ports::StoreResult, time::Timestamp};

use crate::engine::{Key, KeyBuilder, KeyReader, Table};

pub(crate) fn key(due_at: Timestamp, id: OrderId) -> Key {
    KeyBuilder::new(Table::CheckoutDue).time(due_at).uuid(id.0).end()
}

pub(crate) fn all() -> Key {
    KeyBuilder::new(Table::CheckoutDue).end()
}

/// Before everything that is due at `time` or later.
pub(crate) fn start_of(time: Timestamp) -> Key {
    KeyBuilder::new(Table::CheckoutDue).time(time).end()
}

pub(crate) fn read_key(key: &[u8]) -> StoreResult<(Timestamp, OrderId)> {
    let mut key = KeyReader::new(Table::CheckoutDue, key)?;
    Ok((key.time()?, OrderId(key.uuid()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn keys_sort_by_time_and_come_back(a in arbitrary::time(), b in arbitrary::time(), x in arbitrary::id(), y in arbitrary::id()) {
            let (x, y) = (OrderId(x), OrderId(y));
            prop_assert_eq!(key(a, x).cmp(&key(b, y)), (a, x).cmp(&(b, y)));
            prop_assert_eq!(key(a, x) < start_of(b), a < b);
            prop_assert_eq!(read_key(&key(a, x).bytes).unwrap(), (a, x));
        }
    }
}
