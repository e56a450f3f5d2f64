//! Carts by when they were last touched.

use mobimir_core::{
    cart::{CartPosition, Owner},
    ports::StoreResult,
    time::Timestamp,
};

use crate::engine::{Key, KeyBuilder, KeyReader, Table};

pub(crate) fn key(updated_at: Timestamp, owner: Owner) -> Key {
    KeyBuilder::new(Table::CartTouched).time(updated_at).owner(owner).end()
}

pub(crate) fn all() -> Key {
    KeyBuilder::new(Table::CartTouched).end()
}

/// Where the carts start that were touched at `time` or later.
pub(crate) fn start_of(time: Timestamp) -> Key {
    KeyBuilder::new(Table::CartTouched).time(time).end()
}

pub(crate) fn position_key(position: &CartPosition) -> Key {
    KeyBuilder::new(Table::CartTouched)
        .time(position.updated_at)
        .byte(u8::from(position.is_guest))
        .uuid(position.owner)
        .end()
}

pub(crate) fn read_key(key: &[u8]) -> StoreResult<(Timestamp, Owner)> {
    let mut key = KeyReader::new(Table::CartTouched, key)?;
    Ok((key.time()?, key.owner()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn keys_sort_as_positions_do_and_come_back(a in arbitrary::time(), b in arbitrary::time(), x in arbitrary::owner(), y in arbitrary::owner()) {
            let (at, other) = (CartPosition::of(x, a), CartPosition::of(y, b));
            prop_assert_eq!(key(a, x).cmp(&key(b, y)), at.key().cmp(&other.key()));
            prop_assert_eq!(position_key(&at), key(a, x));
            prop_assert_eq!(key(a, x) < start_of(b), a < b);
            prop_assert_eq!(read_key(&key(a, x).bytes).unwrap(), (a, x));
        }
    }
}
