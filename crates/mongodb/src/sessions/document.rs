//! A session and a refresh token as they are stored.

use std::net::IpAddr;

use mobimir_core::{
    id::{SessionId, UserId},
    ports::StoreResult,
    secret::SecretHash,
    session::{Holder, RefreshToken, Session, SessionState},
    time::{Timestamp, Version},
};
use mongodb::bson::{Binary, DateTime, Uuid, spec::BinarySubtype};
use serde::{Deserialize, Serialize};

use crate::{
    expiry::gone_at,
    leaves::{date, id, number, time, uuid, version},
    link::damaged,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionDoc {
    #[serde(rename = "_id")]
    id: Uuid,
    /// Nobody's, for a guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<Uuid>,
    token_hash: Binary,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_at: Option<DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_into: Option<Uuid>,
    /// There as long as a closed guest's cart is not known to be merged: what the index of these goes by.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmerged_since: Option<DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    created_at: DateTime,
    last_active: DateTime,
    expires_at: DateTime,
    gone_at: DateTime,
    pub(super) version: i64,
    /// Since when it is written and not copied, while a migration runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmirrored: Option<DateTime>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TokenDoc {
    #[serde(rename = "_id")]
    hash: Binary,
    session_id: Uuid,
    pub(super) expires_at: DateTime,
    gone_at: DateTime,
    /// Since when it works no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) used_at: Option<DateTime>,
    version: i64,
    /// Since when it is written and not copied, while a migration runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmirrored: Option<DateTime>,
}

pub(super) const LIVE: &str = "live";
const REVOKED: &str = "revoked";
const CLOSED: &str = "closed";

impl SessionDoc {
    pub(super) fn of(session: &Session) -> Self {
        let (state, state_at, closed_into, merged) = match session.state {
            SessionState::Live => (LIVE, None, None, true),
            SessionState::Revoked { at } => (REVOKED, Some(date(at)), None, true),
            SessionState::Closed { at, into, merged } => (CLOSED, Some(date(at)), Some(uuid(into.0)), merged),
        };
        Self {
            id: uuid(session.id.0),
            user_id: session.user().map(|user| uuid(user.0)),
            token_hash: hash(session.token_hash),
            state: state.to_owned(),
            state_at,
            closed_into,
            unmerged_since: state_at.filter(|_| !merged),
            ip_address: session.ip_address.map(|address| address.to_string()),
            user_agent: session.user_agent.clone(),
            device: session.device.clone(),
            created_at: date(session.created_at),
            last_active: date(session.last_active),
            expires_at: date(session.expires_at),
            // Nobody who has the session lives earlier than when it was last used.
            gone_at: gone_at(session.expires_at, session.last_active),
            version: number(session.version),
            unmirrored: None,
        }
    }

    pub(super) fn marked(self, unmirrored: Option<DateTime>) -> Self {
        Self { unmirrored, ..self }
    }

    /// A session that came as a whole, to be kept as long as it lasts from `now` on.
    pub(super) fn whole(session: &Session, now: Timestamp) -> Self {
        Self { gone_at: gone_at(session.expires_at, now), ..Self::of(session) }
    }

    pub(super) fn session(self) -> StoreResult<Session> {
        let session_id: SessionId = id(self.id);
        let wrong = |what: &str| damaged(format!("the session {session_id} has no {what} that makes sense"));
        let state = match (self.state.as_str(), self.state_at, self.closed_into) {
            (LIVE, ..) => SessionState::Live,
            (REVOKED, Some(at), _) => SessionState::Revoked { at: time(at) },
            (CLOSED, Some(at), Some(into)) => {
                SessionState::Closed { at: time(at), into: id(into), merged: self.unmerged_since.is_none() }
            }
            _ => return Err(wrong("state")),
        };
        let address = |text: String| text.parse::<IpAddr>().map_err(|_| wrong("address"));
        Ok(Session {
            id: session_id,
            holder: self.user_id.map_or(Holder::Guest, |user| Holder::User(id::<UserId>(user))),
            token_hash: SecretHash(self.token_hash.bytes.try_into().map_err(|_| wrong("token"))?),
            state,
            ip_address: self.ip_address.map(address).transpose()?,
            user_agent: self.user_agent,
            device: self.device,
            created_at: time(self.created_at),
            last_active: time(self.last_active),
            expires_at: time(self.expires_at),
            version: version(self.version),
        })
    }
}

impl TokenDoc {
    /// A token given out with a session, at the time and under the version of that.
    pub(super) fn of(token: RefreshToken, with: &Session) -> Self {
        Self {
            hash: hash(token.hash),
            session_id: uuid(token.session.0),
            expires_at: date(token.expires_at),
            gone_at: gone_at(token.expires_at, with.last_active),
            used_at: None,
            version: number(with.version),
            unmirrored: None,
        }
    }

    pub(super) fn marked(self, unmirrored: Option<DateTime>) -> Self {
        Self { unmirrored, ..self }
    }

    /// A token that came as a whole, at `now`; it has no version that would come with it.
    pub(super) fn whole(token: RefreshToken, used: bool, now: Timestamp) -> Self {
        Self {
            hash: hash(token.hash),
            session_id: uuid(token.session.0),
            expires_at: date(token.expires_at),
            gone_at: gone_at(token.expires_at, now),
            used_at: used.then(|| date(now)),
            version: number(Version::default().next(now)),
            unmirrored: None,
        }
    }

    pub(super) fn token(self) -> StoreResult<RefreshToken> {
        let hash = self.hash.bytes.try_into().map_err(|_| damaged("a refresh token has no hash"))?;
        let (session, expires_at) = (id(self.session_id), time(self.expires_at));
        Ok(RefreshToken { hash: SecretHash(hash), session, expires_at })
    }

    pub(super) fn session(&self) -> SessionId {
        id(self.session_id)
    }

    pub(super) fn is_there(&self, now: Timestamp) -> bool {
        time(self.expires_at) > now
    }
}

pub(super) fn hash(secret: SecretHash) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: secret.0.to_vec() }
}

#[cfg(test)]
mod tests {
    use mobimir_testkit::arbitrary;
    use mongodb::bson::{deserialize_from_slice, serialize_to_vec};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_session_comes_back_as_it_was(session in arbitrary::session()) {
            let bytes = serialize_to_vec(&SessionDoc::of(&session)).unwrap();
            let stored: SessionDoc = deserialize_from_slice(&bytes).unwrap();
            prop_assert_eq!(stored.session().unwrap(), session);
        }

        #[test]
        fn a_token_comes_back_as_it_was(session in arbitrary::session(), hash in any::<[u8; 32]>()) {
            let token = RefreshToken { hash: SecretHash(hash), session: session.id, expires_at: session.expires_at };
            let document = TokenDoc::of(token, &session);
            let stored: TokenDoc = deserialize_from_slice(&serialize_to_vec(&document).unwrap()).unwrap();
            prop_assert_eq!(stored.session(), session.id);
            prop_assert_eq!(stored, document);
        }
    }
}
