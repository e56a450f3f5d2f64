//! Marks of what was written and not copied since, while a migration goes on.

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::leaves::At;
use mobimir_core::{
    cart::Owner,
    id::{OrderId, SessionId},
    moving::SessionKey,
    ports::StoreResult,
    secret::SecretHash,
    time::Timestamp,
};

use crate::{
    engine::{Key, KeyBuilder, KeyReader, Table},
    error::damaged,
};

const SESSION: u8 = 0;
const TOKEN: u8 = 1;

pub(crate) fn order_key(id: OrderId) -> Key {
    KeyBuilder::new(Table::UnmirroredOrder).uuid(id.0).end()
}

pub(crate) fn cart_key(owner: Owner) -> Key {
    KeyBuilder::new(Table::UnmirroredCart).owner(owner).end()
}

pub(crate) fn session_key(key: SessionKey) -> Key {
    let builder = KeyBuilder::new(Table::UnmirroredSession);
    match key {
        SessionKey::Session(id) => builder.byte(SESSION).uuid(id.0),
        SessionKey::Token(hash) => builder.byte(TOKEN).bytes(&hash.0),
    }
    .end()
}

/// What the keys of a table of marks start with.
pub(crate) fn all(table: Table) -> Key {
    KeyBuilder::new(table).end()
}

pub(crate) fn read_order_key(key: &[u8]) -> StoreResult<OrderId> {
    KeyReader::new(Table::UnmirroredOrder, key)?.uuid().map(OrderId)
}

pub(crate) fn read_cart_key(key: &[u8]) -> StoreResult<Owner> {
    KeyReader::new(Table::UnmirroredCart, key)?.owner()
}

pub(crate) fn read_session_key(key: &[u8]) -> StoreResult<SessionKey> {
    let mut key = KeyReader::new(Table::UnmirroredSession, key)?;
    match key.byte()? {
        SESSION => Ok(SessionKey::Session(SessionId(key.uuid()?))),
        TOKEN => Ok(SessionKey::Token(SecretHash(key.bytes()?))),
        other => Err(damaged(format!("expected a session or a token in a key, got {other}"))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredMark {
    pub(crate) since: Timestamp,
    pub(crate) seal: u64,
}

#[derive(Encode, Decode)]
struct MarkRecord {
    #[n(0)]
    since: At,
    #[n(1)]
    seal: u64,
}

pub(crate) fn encode(mark: StoredMark) -> Slice {
    super::encode(&MarkRecord { since: At(mark.since), seal: mark.seal })
}

pub(crate) fn decode(bytes: &[u8]) -> StoreResult<StoredMark> {
    let record: MarkRecord = super::decode("mark", bytes)?;
    Ok(StoredMark { since: record.since.0, seal: record.seal })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn marks_and_their_keys_come_back(id in arbitrary::id(), owner in arbitrary::owner(), hash in any::<[u8; 32]>(), since in arbitrary::time(), seal in any::<u64>()) {
            let mark = StoredMark { since, seal };
            prop_assert_eq!(decode(&encode(mark)).unwrap(), mark);
            prop_assert_eq!(read_order_key(&order_key(OrderId(id)).bytes).unwrap(), OrderId(id));
            prop_assert_eq!(read_cart_key(&cart_key(owner).bytes).unwrap(), owner);
            for key in [SessionKey::Session(SessionId(id)), SessionKey::Token(SecretHash(hash))] {
                prop_assert_eq!(read_session_key(&session_key(key).bytes).unwrap(), key);
            }
        }
    }
}
