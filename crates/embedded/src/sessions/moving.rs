//! A session or a refresh token, as a migration sees them.

use std::sync::Arc;

use fjall::{Readable, Snapshot};
use mobimir_core::{
    id::SessionId,
    moving::{Facts, SessionKey, WholeSession},
    ports::StoreResult,
    secret::SecretHash,
    session::Session,
};

use super::{replace, user_key};
use crate::{
    engine::{Key, KeyReader, Space, Table, Txn},
    error::read_failed,
    moving::Stored,
    records::{
        self,
        expiry::{self, Expiring},
        refresh_token::{self, StoredToken},
        session, session_by_user, session_unmerged, unmirrored,
    },
    store::Shared,
};

impl Stored for WholeSession {
    const TABLES: &'static [(&'static str, Table)] = &[
        ("sessions", Table::Session),
        ("refresh_tokens", Table::RefreshToken),
        ("sessions_by_user", Table::SessionByUser),
        ("sessions_unmerged", Table::SessionUnmerged),
    ];
    const NAMES: &'static [&'static str] =
        &["sessions", "refresh_tokens", "sessions_by_user", "sessions_unmerged"];
    const SCANNED: usize = 2;
    const MARKS: Table = Table::UnmirroredSession;

    fn mark_key(key: SessionKey) -> Key {
        unmirrored::session_key(key)
    }

    fn read_mark_key(bytes: &[u8]) -> StoreResult<SessionKey> {
        unmirrored::read_session_key(bytes)
    }

    fn row_key(key: SessionKey) -> Key {
        match key {
            SessionKey::Session(id) => session::key(id),
            SessionKey::Token(hash) => refresh_token::key(hash),
        }
    }

    fn read_key(table: Table, bytes: &[u8]) -> StoreResult<SessionKey> {
        match table {
            Table::RefreshToken => {
                let hash = KeyReader::new(table, bytes)?.bytes()?;
                Ok(SessionKey::Token(SecretHash(hash)))
            }
            Table::SessionByUser => {
                session_by_user::read_key(bytes).map(|position| SessionKey::Session(position.session_id))
            }
            Table::SessionUnmerged => session_unmerged::read_key(bytes).map(SessionKey::Session),
            _ => KeyReader::new(Table::Session, bytes)?.uuid().map(|id| SessionKey::Session(SessionId(id))),
        }
    }

    fn read(shared: &Shared, snapshot: &Snapshot, key: SessionKey) -> StoreResult<Option<Self>> {
        let row = Self::row_key(key);
        let found = snapshot.get(shared.tables.keyspace(Space::Sessions), &row.bytes).map_err(read_failed)?;
        let Some(bytes) = found else { return Ok(None) };
        Ok(Some(match key {
            SessionKey::Session(id) => Self::Session(session::decode(id, &bytes)?),
            SessionKey::Token(hash) => {
                let StoredToken { token, used } = refresh_token::decode(hash, &bytes)?;
                Self::Token { token, used }
            }
        }))
    }

    fn put(self, shared: &Shared, txn: &mut Txn<'_>) -> StoreResult<()> {
        match self {
            Self::Session(session) => put_session(shared, txn, session),
            Self::Token { token, used } => {
                let key = refresh_token::key(token.hash);
                let stored =
                    txn.get(&key)?.map(|bytes| refresh_token::decode(token.hash, &bytes)).transpose()?;
                if stored.is_none() {
                    let expiring = Expiring::RefreshToken(token.hash);
                    txn.put(expiry::key(token.expires_at, expiring), records::nothing());
                }
                // Once used, always used.
                let used = used || stored.is_some_and(|stored| stored.used);
                txn.put(key, refresh_token::encode(&StoredToken { token, used }));
                Ok(())
            }
        }
    }

    fn entries(&self) -> Vec<(&'static str, Key)> {
        let Self::Session(session) = self else { return Vec::new() };
        let by_user = user_key(session).map(|key| ("sessions_by_user", key));
        let unmerged = session_unmerged::key(session).map(|key| ("sessions_unmerged", key));
        by_user.into_iter().chain(unmerged).collect()
    }

    fn told(table: Table, key: &[u8], _value: &[u8]) -> StoreResult<Facts> {
        match table {
            Table::SessionByUser => {
                let created_at = session_by_user::read_key(key)?.created_at;
                Ok(Facts::new([("created_at", created_at.to_string())]))
            }
            _ => Ok(Facts::default()),
        }
    }

    fn remove(shared: &Shared, txn: &mut Txn<'_>, key: SessionKey) -> StoreResult<()> {
        if let SessionKey::Session(id) = key {
            shared.sessions.stage(txn.job(), id, None);
        }
        txn.remove(Self::row_key(key));
        Ok(())
    }
}

fn put_session(shared: &Shared, txn: &mut Txn<'_>, session: Session) -> StoreResult<()> {
    match shared.session_to_change(txn, session.id)? {
        Some(stored) if stored.version >= session.version => Ok(()),
        Some(stored) => {
            replace(txn, user_key(&stored), user_key(&session));
            replace(txn, session_unmerged::key(&stored), session_unmerged::key(&session));
            txn.put(session::key(session.id), session::encode(&session));
            shared.sessions.stage(txn.job(), session.id, Some(Arc::new(session)));
            Ok(())
        }
        None => {
            shared.put_session(txn, None, session);
            Ok(())
        }
    }
}
