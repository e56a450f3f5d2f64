//! Sessions and their refresh tokens on the engine.

use std::sync::Arc;

use async_trait::async_trait;
use fjall::Readable;
use mobimir_core::{
    id::{SessionId, UserId},
    moving::SessionKey,
    page::Page,
    ports::{SessionStore, StoreResult},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Timestamp, Version},
};

use crate::{
    EmbeddedStore,
    engine::{Key, Space, Txn, after_key, after_prefix},
    error::read_failed,
    moving::Marking,
    records::{
        self,
        expiry::{self, Expiring},
        refresh_token::{self, StoredToken},
        session, session_by_user, session_unmerged, unmirrored,
    },
    store::Shared,
};

mod moving;

/// Sessions of one user that one call looks at to find the live ones. A page may end here, with a `next`.
const USER_SCAN_SESSIONS_MAX: usize = 1_000;

#[async_trait]
impl SessionStore for EmbeddedStore {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let marking = self.marking();
        self.write(move |shared, txn| {
            let stored = shared.session_to_change(txn, session.id)?;
            mark(marking, shared, txn, session.id, refresh.as_ref())?;
            shared.put_session(txn, stored.as_deref(), session);
            put_token(txn, refresh);
            Ok(())
        })
        .await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        let session = match self.shared().sessions.get(&id) {
            Some(session) => Some(session),
            None => self.read_in_place(move |shared| shared.session(id)).await?,
        };
        Ok(session.filter(|session| session.expires_at > now).map(|session| Session::clone(&session)))
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        self.read(move |shared| {
            let all = session_by_user::all(user);
            let start = after.map_or(all.clone(), |after| after_key(&session_by_user::key(user, after)));
            let end = after_prefix(&all);
            if start >= end {
                return Ok(Page::empty());
            }
            let mut sessions = Vec::new();
            let rows = shared.tables.keyspace(Space::Sessions).range(start.bytes..end.bytes);
            for (looked_at, row) in rows.enumerate() {
                let position = session_by_user::read_key(&row.key().map_err(read_failed)?)?;
                let session = shared.session(position.session_id)?.filter(|session| session.is_live(now));
                sessions.extend(session.map(|session| Session::clone(&session)));
                if sessions.len() > limit {
                    break;
                }
                if looked_at + 1 == USER_SCAN_SESSIONS_MAX {
                    return Ok(Page { items: sessions, next: Some(position) });
                }
            }
            Ok(Page::cut(sessions, limit, Session::position))
        })
        .await
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        let marking = self.marking();
        self.write(move |shared, txn| {
            let key = refresh_token::key(hash);
            let Some(stored) = txn.get(&key)? else { return Ok(RefreshUse::Unknown) };
            let StoredToken { token, used } = refresh_token::decode(hash, &stored)?;
            if token.expires_at <= now {
                return Ok(RefreshUse::Unknown);
            }
            if used {
                return Ok(RefreshUse::Again(token.session));
            }
            marking.leave(shared, txn, unmirrored::session_key(SessionKey::Token(hash)))?;
            txn.put(key, refresh_token::encode(&StoredToken { token, used: true }));
            Ok(RefreshUse::First(token.session))
        })
        .await
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let marking = self.marking();
        self.write(move |shared, txn| {
            let Some(stored) = shared.session_to_change(txn, session.id)? else { return Ok(false) };
            if stored.version != expected {
                return Ok(false);
            }
            let session = Session { holder: stored.holder, created_at: stored.created_at, ..session };
            mark(marking, shared, txn, session.id, refresh.as_ref())?;
            shared.put_session(txn, Some(&stored), session);
            put_token(txn, refresh);
            Ok(true)
        })
        .await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        self.read(move |shared| {
            let (start, end) = (session_unmerged::all(), session_unmerged::start_of(closed_before));
            let snapshot = shared.tables.snapshot();
            let keyspace = shared.tables.keyspace(Space::Sessions);
            let mut sessions = Vec::new();
            for row in snapshot.range(keyspace, start.bytes..end.bytes) {
                if sessions.len() >= limit {
                    break;
                }
                let id = session_unmerged::read_key(&row.key().map_err(read_failed)?)?;
                let Key { bytes, .. } = session::key(id);
                let Some(bytes) = snapshot.get(keyspace, &bytes).map_err(read_failed)? else { continue };
                let session = session::decode(id, &bytes)?;
                sessions.extend((session.expires_at > now).then_some(session));
            }
            Ok(sessions)
        })
        .await
    }
}

impl Shared {
    fn session(&self, id: SessionId) -> StoreResult<Option<Arc<Session>>> {
        self.sessions.get_or_read(&id, || {
            self.tables.get(&session::key(id))?.map(|bytes| session::decode(id, &bytes)).transpose()
        })
    }

    fn session_to_change(&self, txn: &Txn<'_>, id: SessionId) -> StoreResult<Option<Arc<Session>>> {
        self.sessions
            .current(&id, || txn.get(&session::key(id))?.map(|bytes| session::decode(id, &bytes)).transpose())
    }

    /// Writes a session over the stored one, and what has changed in the indexes.
    fn put_session(&self, txn: &mut Txn<'_>, stored: Option<&Session>, session: Session) {
        let before = stored.and_then(user_key);
        let after = user_key(&session);
        replace(txn, before, after);
        replace(txn, stored.and_then(session_unmerged::key), session_unmerged::key(&session));
        if stored.is_none() {
            // When the session is extended this stays as it is: whoever sweeps looks at the session again.
            txn.put(expiry::key(session.expires_at, Expiring::Session(session.id)), records::nothing());
        }
        txn.put(session::key(session.id), session::encode(&session));
        self.sessions.stage(txn.job(), session.id, Some(Arc::new(session)));
    }

    /// Removes a session that has expired by `now`; otherwise says until when it lasts.
    pub(crate) fn expire_session(
        &self,
        txn: &mut Txn<'_>,
        id: SessionId,
        now: Timestamp,
    ) -> StoreResult<Option<Timestamp>> {
        let Some(stored) = self.session_to_change(txn, id)? else { return Ok(None) };
        if stored.expires_at > now {
            return Ok(Some(stored.expires_at));
        }
        replace(txn, user_key(&stored), None);
        replace(txn, session_unmerged::key(&stored), None);
        txn.remove(session::key(id));
        self.sessions.stage(txn.job(), id, None);
        Ok(None)
    }
}

/// Removes a refresh token that has expired by `now`; otherwise says until when it lasts.
pub(crate) fn expire_token(
    txn: &mut Txn<'_>,
    hash: SecretHash,
    now: Timestamp,
) -> StoreResult<Option<Timestamp>> {
    let key = refresh_token::key(hash);
    let Some(stored) = txn.get(&key)? else { return Ok(None) };
    let StoredToken { token, .. } = refresh_token::decode(hash, &stored)?;
    if token.expires_at > now {
        return Ok(Some(token.expires_at));
    }
    txn.remove(key);
    Ok(None)
}

fn mark(
    marking: Marking,
    shared: &Shared,
    txn: &mut Txn<'_>,
    session: SessionId,
    refresh: Option<&RefreshToken>,
) -> StoreResult<()> {
    let token = refresh.map(|token| SessionKey::Token(token.hash));
    let mut keys = token.into_iter().chain([SessionKey::Session(session)]);
    keys.try_for_each(|key| marking.leave(shared, txn, unmirrored::session_key(key)))
}

fn put_token(txn: &mut Txn<'_>, refresh: Option<RefreshToken>) {
    let Some(token) = refresh else { return };
    txn.put(expiry::key(token.expires_at, Expiring::RefreshToken(token.hash)), records::nothing());
    txn.put(refresh_token::key(token.hash), refresh_token::encode(&StoredToken { token, used: false }));
}

fn user_key(session: &Session) -> Option<Key> {
    session.user().map(|user| session_by_user::key(user, session.position()))
}

/// Changes an index entry, if it has changed.
fn replace(txn: &mut Txn<'_>, before: Option<Key>, after: Option<Key>) {
    if before == after {
        return;
    }
    if let Some(before) = before {
        txn.remove(before);
    }
    if let Some(after) = after {
        txn.put(after, records::nothing());
    }
}
