//! Closed guest sessions whose cart is not known to be merged, by when they were closed.

use mobimir_core::{
    id::SessionId,
    ports::StoreResult,
    session::{Session, SessionState},
    time::Timestamp,
};

use crate::engine::{Key, KeyBuilder, KeyReader, Table};

/// The entry of a session that has one.
pub(crate) fn key(session: &Session) -> Option<Key> {
    match session.state {
        SessionState::Closed { at, merged: false, .. } => {
            Some(KeyBuilder::new(Table::SessionUnmerged).time(at).uuid(session.id.0).end())
        }
        _ => None,
    }
}

pub(crate) fn all() -> Key {
    KeyBuilder::new(Table::SessionUnmerged).end()
}

/// Where the sessions start that were closed at `time` or later.
pub(crate) fn start_of(time: Timestamp) -> Key {
    KeyBuilder::new(Table::SessionUnmerged).time(time).end()
}

pub(crate) fn read_key(key: &[u8]) -> StoreResult<SessionId> {
    let mut key = KeyReader::new(Table::SessionUnmerged, key)?;
    key.time()?;
    key.uuid().map(SessionId)
}

#[cfg(test)]
mod tests {
    use mobimir_core::id::UserId;
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn only_unmerged_ones_have_a_key_and_it_sorts_by_closing(session in arbitrary::session(), a in arbitrary::time(), b in arbitrary::time()) {
            let closed = |at, merged| Session { state: SessionState::Closed { at, into: UserId(session.id.0), merged }, ..session.clone() };
            prop_assert_eq!(key(&closed(a, true)), None);
            prop_assert_eq!(key(&closed(a, false)).cmp(&key(&closed(b, false))), a.cmp(&b));
            let key = key(&closed(a, false)).unwrap();
            prop_assert_eq!(key < start_of(b), a < b);
            prop_assert_eq!(read_key(&key.bytes).unwrap(), session.id);
        }
    }
}
