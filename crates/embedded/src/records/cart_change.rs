//! The changes of a cart: the packed one, under a key of its own that sorts first, and the others in numbered slots.
//!
//! A row also says what adding it did to the cart's times, so that adding writes no other row of the cart; and in
//! which round it was written, since a slot may still hold a row that has been packed.

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::{
    cart_effect::EffectRecord,
    leaves::{At, Id, OwnerCode},
};
use mobimir_core::{
    cart::{CartChange, Owner},
    id::ChangeId,
    ports::StoreResult,
    time::{Timestamp, Version},
};

use super::cart::CartTimes;
use crate::engine::{Key, KeyBuilder, KeyReader, Table};

pub(crate) fn key(owner: Owner, slot: u32) -> Key {
    KeyBuilder::new(Table::CartChange).owner(owner).bytes(&slot.to_be_bytes()).end()
}

/// Where the packed change of a cart lies; also what the keys of all its changes start with.
pub(crate) fn packed_key(owner: Owner) -> Key {
    KeyBuilder::new(Table::CartChange).owner(owner).end()
}

/// A change as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredChange {
    pub(crate) change: CartChange,
    /// The cart was touched then at least.
    pub(crate) touched_at: Timestamp,
    /// The cart lasts until then at least.
    pub(crate) expires_at: Timestamp,
    /// The cart had this version then at least.
    pub(crate) version: Version,
    pub(crate) round: u32,
    /// Whether it lies under the packed key.
    pub(crate) is_packed: bool,
}

#[derive(Encode, Decode)]
struct ChangeRecord {
    #[n(0)]
    id: Id,
    #[n(1)]
    at: At,
    #[n(2)]
    origin: OwnerCode,
    #[n(3)]
    keyed: bool,
    #[n(4)]
    effect: EffectRecord,
    #[n(5)]
    touched_at: At,
    #[n(6)]
    expires_at: At,
    #[n(7)]
    round: u32,
    #[n(8)]
    version: Option<u64>,
}

pub(crate) fn encode(change: &CartChange, times: CartTimes, round: u32) -> Slice {
    super::encode(&ChangeRecord {
        id: Id(change.id.0),
        at: At(change.at),
        origin: OwnerCode(change.origin),
        keyed: change.keyed,
        effect: EffectRecord::from(&change.effect),
        touched_at: At(times.updated_at),
        expires_at: At(times.expires_at),
        round,
        version: Some(times.version.0),
    })
}

pub(crate) fn decode(key: &[u8], bytes: &[u8]) -> StoreResult<StoredChange> {
    let mut key = KeyReader::new(Table::CartChange, key)?;
    key.owner()?;
    let record: ChangeRecord = super::decode("cart change", bytes)?;
    let change = CartChange {
        id: ChangeId(record.id.0),
        at: record.at.0,
        origin: record.origin.0,
        keyed: record.keyed,
        effect: record.effect.into(),
    };
    Ok(StoredChange {
        change,
        touched_at: record.touched_at.0,
        expires_at: record.expires_at.0,
        version: Version(record.version.unwrap_or_default()),
        round: record.round,
        is_packed: key.is_at_end(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn a_change_comes_back_whole(
            owner in arbitrary::owner(),
            change in arbitrary::cart_change(),
            touched_at in arbitrary::time(),
            expires_at in arbitrary::time(),
            round in any::<u32>(),
            slot in proptest::option::of(any::<u32>()),
        ) {
            let key = slot.map_or(packed_key(owner), |slot| key(owner, slot));
            let times = CartTimes { created_at: touched_at, updated_at: touched_at, expires_at, version: Version(round.into()) };
            let version = Version(round.into());
            let stored = StoredChange { change, touched_at, expires_at, version, round, is_packed: slot.is_none() };
            prop_assert_eq!(decode(&key.bytes, &encode(&stored.change, times, round)).unwrap(), stored);
        }

        #[test]
        fn the_packed_change_comes_first_and_slots_in_order(owner in arbitrary::owner(), a in any::<u32>(), b in any::<u32>()) {
            prop_assert!(packed_key(owner) < key(owner, a));
            prop_assert!(key(owner, a).bytes.starts_with(&packed_key(owner).bytes));
            prop_assert_eq!(key(owner, a).cmp(&key(owner, b)), a.cmp(&b));
        }
    }
}
