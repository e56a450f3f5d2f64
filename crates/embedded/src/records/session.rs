//! A session.

use std::net::IpAddr;

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::leaves::{At, Digest, Id};
use mobimir_core::{
    id::{SessionId, UserId},
    ports::StoreResult,
    secret::SecretHash,
    session::{Holder, Session, SessionState},
    time::Version,
};

use crate::engine::{Key, KeyBuilder, Table};

pub(crate) fn key(id: SessionId) -> Key {
    KeyBuilder::new(Table::Session).uuid(id.0).end()
}

#[derive(Encode, Decode)]
struct SessionRecord<'a> {
    /// `None` for a guest.
    #[n(0)]
    user: Option<Id>,
    #[n(1)]
    token_hash: Digest,
    #[n(2)]
    state: StateRecord,
    #[n(3)]
    ip_address: Option<IpAddr>,
    #[b(4)]
    user_agent: Option<&'a str>,
    #[b(5)]
    device: Option<&'a str>,
    #[n(6)]
    created_at: At,
    #[n(7)]
    last_active: At,
    #[n(8)]
    expires_at: At,
    #[n(9)]
    version: u64,
}

#[derive(Encode, Decode)]
enum StateRecord {
    #[n(0)]
    Live,
    #[n(1)]
    Revoked(#[n(0)] At),
    #[n(2)]
    Closed {
        #[n(0)]
        at: At,
        #[n(1)]
        into: Id,
        #[n(2)]
        merged: bool,
    },
}

pub(crate) fn encode(session: &Session) -> Slice {
    super::encode(&SessionRecord {
        user: session.user().map(|user| Id(user.0)),
        token_hash: Digest(session.token_hash.0),
        state: match session.state {
            SessionState::Live => StateRecord::Live,
            SessionState::Revoked { at } => StateRecord::Revoked(At(at)),
            SessionState::Closed { at, into, merged } => {
                StateRecord::Closed { at: At(at), into: Id(into.0), merged }
            }
        },
        ip_address: session.ip_address,
        user_agent: session.user_agent.as_deref(),
        device: session.device.as_deref(),
        created_at: At(session.created_at),
        last_active: At(session.last_active),
        expires_at: At(session.expires_at),
        version: session.version.0,
    })
}

pub(crate) fn decode(id: SessionId, bytes: &[u8]) -> StoreResult<Session> {
    let record: SessionRecord<'_> = super::decode("session", bytes)?;
    Ok(Session {
        id,
        holder: record.user.map_or(Holder::Guest, |user| Holder::User(UserId(user.0))),
        token_hash: SecretHash(record.token_hash.0),
        state: match record.state {
            StateRecord::Live => SessionState::Live,
            StateRecord::Revoked(at) => SessionState::Revoked { at: at.0 },
            StateRecord::Closed { at, into, merged } => {
                SessionState::Closed { at: at.0, into: UserId(into.0), merged }
            }
        },
        ip_address: record.ip_address,
        user_agent: record.user_agent.map(Into::into),
        device: record.device.map(Into::into),
        created_at: record.created_at.0,
        last_active: record.last_active.0,
        expires_at: record.expires_at.0,
        version: Version(record.version),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary;

    proptest! {
        #[test]
        fn a_session_comes_back_whole(session in arbitrary::session()) {
            prop_assert_eq!(super::decode(session.id, &super::encode(&session)).unwrap(), session);
        }
    }
}
