//! A cart's times, as of when it was last listed among the touched ones. They may have moved on since: see
//! [`super::cart_change`].

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::leaves::At;
use mobimir_core::{
    cart::Owner,
    ports::StoreResult,
    time::{Timestamp, Version},
};

use crate::engine::{Key, KeyBuilder, Table};

pub(crate) fn key(owner: Owner) -> Key {
    KeyBuilder::new(Table::Cart).owner(owner).end()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CartTimes {
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// Raised with every change.
    pub(crate) version: Version,
}

#[derive(Encode, Decode)]
struct CartRecord {
    #[n(0)]
    created_at: At,
    #[n(1)]
    updated_at: At,
    #[n(2)]
    expires_at: At,
    #[n(3)]
    version: Option<u64>,
}

pub(crate) fn encode(times: CartTimes) -> Slice {
    super::encode(&CartRecord {
        created_at: At(times.created_at),
        updated_at: At(times.updated_at),
        expires_at: At(times.expires_at),
        version: Some(times.version.0),
    })
}

pub(crate) fn decode(bytes: &[u8]) -> StoreResult<CartTimes> {
    let record: CartRecord = super::decode("cart", bytes)?;
    Ok(CartTimes {
        created_at: record.created_at.0,
        updated_at: record.updated_at.0,
        expires_at: record.expires_at.0,
        version: Version(record.version.unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn times_come_back(created_at in arbitrary::time(), updated_at in arbitrary::time(), expires_at in arbitrary::time(), version in any::<u64>()) {
            let times = CartTimes { created_at, updated_at, expires_at, version: Version(version) };
            prop_assert_eq!(decode(&encode(times)).unwrap(), times);
        }
    }
}
