//! What expires, by when. An entry is only a reminder: what it names may last longer by then, or be gone.

use mobimir_core::{cart::Owner, id::SessionId, ports::StoreResult, secret::SecretHash, time::Timestamp};

use crate::{
    engine::{Key, KeyBuilder, KeyReader, Table},
    error::damaged,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiring {
    Cart(Owner),
    Session(SessionId),
    RefreshToken(SecretHash),
}

const KIND_CART: u8 = 1;
const KIND_SESSION: u8 = 2;
const KIND_REFRESH_TOKEN: u8 = 3;

pub(crate) fn key(expires_at: Timestamp, what: Expiring) -> Key {
    let key = KeyBuilder::new(Table::Expiry).time(expires_at);
    match what {
        Expiring::Cart(owner) => key.byte(KIND_CART).owner(owner),
        Expiring::Session(id) => key.byte(KIND_SESSION).uuid(id.0),
        Expiring::RefreshToken(hash) => key.byte(KIND_REFRESH_TOKEN).bytes(&hash.0),
    }
    .end()
}

pub(crate) fn all() -> Key {
    KeyBuilder::new(Table::Expiry).end()
}

/// Before everything that expires after `time`.
pub(crate) fn end_of(time: Timestamp) -> Key {
    KeyBuilder::new(Table::Expiry).time(time).byte(u8::MAX).end()
}

pub(crate) fn read_key(key: &[u8]) -> StoreResult<(Timestamp, Expiring)> {
    let mut key = KeyReader::new(Table::Expiry, key)?;
    let expires_at = key.time()?;
    let what = match key.byte()? {
        KIND_CART => Expiring::Cart(key.owner()?),
        KIND_SESSION => Expiring::Session(SessionId(key.uuid()?)),
        KIND_REFRESH_TOKEN => Expiring::RefreshToken(SecretHash(key.bytes()?)),
        other => return Err(damaged(format!("expected a kind 1 to 3 in an expiry key, got {other}"))),
    };
    Ok((expires_at, what))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    fn expiring() -> impl Strategy<Value = Expiring> {
        prop_oneof![
            arbitrary::owner().prop_map(Expiring::Cart),
            arbitrary::id().prop_map(|id| Expiring::Session(SessionId(id))),
            any::<[u8; 32]>().prop_map(|hash| Expiring::RefreshToken(SecretHash(hash))),
        ]
    }

    proptest! {
        #[test]
        fn keys_sort_by_time_and_come_back(a in arbitrary::time(), b in arbitrary::time(), x in expiring(), y in expiring()) {
            prop_assert_eq!(key(a, x) < key(b, y), a < b || a == b && key(a, x) < key(a, y));
            prop_assert_eq!(key(a, x) < end_of(b), a <= b);
            prop_assert_eq!(read_key(&key(a, x).bytes).unwrap(), (a, x));
        }
    }
}
