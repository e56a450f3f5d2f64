//! The sessions of a user, newest first.

use mobimir_core::{
    id::{SessionId, UserId},
    ports::StoreResult,
    session::SessionPosition,
};

use crate::engine::{Key, KeyBuilder, KeyReader, Table};

pub(crate) fn key(user: UserId, position: SessionPosition) -> Key {
    KeyBuilder::new(Table::SessionByUser)
        .uuid(user.0)
        .time_descending(position.created_at)
        .uuid(position.session_id.0)
        .end()
}

pub(crate) fn all(user: UserId) -> Key {
    KeyBuilder::new(Table::SessionByUser).uuid(user.0).end()
}

pub(crate) fn read_key(key: &[u8]) -> StoreResult<SessionPosition> {
    let mut key = KeyReader::new(Table::SessionByUser, key)?;
    key.uuid()?;
    Ok(SessionPosition { created_at: key.time_descending()?, session_id: SessionId(key.uuid()?) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn keys_sort_as_positions_do_and_come_back(user in arbitrary::id(), a in arbitrary::session(), b in arbitrary::session()) {
            let (user, at, other) = (UserId(user), a.position(), b.position());
            prop_assert_eq!(key(user, at).cmp(&key(user, other)), at.key().cmp(&other.key()));
            prop_assert!(key(user, at).bytes.starts_with(&all(user).bytes));
            prop_assert_eq!(read_key(&key(user, at).bytes).unwrap(), at);
        }
    }
}
