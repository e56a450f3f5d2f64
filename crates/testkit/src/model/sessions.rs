use async_trait::async_trait;
use mobimir_core::{
    id::{SessionId, UserId},
    moving::SessionKey,
    page::Page,
    ports::{SessionStore, StoreResult},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition, SessionState},
    time::{Timestamp, Version},
};

use super::{ModelStore, State, page};

#[async_trait]
impl SessionStore for ModelStore {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let mut state = self.state();
        state.mark(self.is_tracked, &session, refresh.as_ref());
        state.sessions.insert(session.id, session);
        state.keep(refresh);
        Ok(())
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        Ok(self.state().sessions.get(&id).filter(|session| session.expires_at > now).cloned())
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        let state = self.state();
        let is_wanted = |session: &&Session| session.user() == Some(user) && session.is_live(now);
        let sessions = state.sessions.values().filter(is_wanted).cloned().collect();
        Ok(page(sessions, after, limit, Session::position, SessionPosition::key))
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        let mut state = self.state();
        match state.refresh_tokens.get_mut(&hash) {
            Some((token, used)) if token.expires_at > now => {
                let session = token.session;
                if std::mem::replace(used, true) {
                    return Ok(RefreshUse::Again(session));
                }
                state.session_marks.leave(self.is_tracked, SessionKey::Token(hash), now);
                Ok(RefreshUse::First(session))
            }
            _ => Ok(RefreshUse::Unknown),
        }
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let mut state = self.state();
        match state.sessions.get_mut(&session.id) {
            Some(stored) if stored.version == expected => {
                let session = Session { holder: stored.holder, created_at: stored.created_at, ..session };
                *stored = session.clone();
                state.mark(self.is_tracked, &session, refresh.as_ref());
                state.keep(refresh);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        let state = self.state();
        let mut unmerged: Vec<(Timestamp, Session)> = Vec::new();
        for session in state.sessions.values().filter(|session| session.expires_at > now) {
            if let SessionState::Closed { at, merged: false, .. } = session.state
                && at < closed_before
            {
                unmerged.push((at, session.clone()));
            }
        }
        unmerged.sort_by_key(|(at, _)| *at);
        Ok(unmerged.into_iter().take(limit).map(|(_, session)| session).collect())
    }
}

impl State {
    fn mark(&mut self, is_tracked: bool, session: &Session, refresh: Option<&RefreshToken>) {
        let token = refresh.map(|token| SessionKey::Token(token.hash));
        for key in token.into_iter().chain([SessionKey::Session(session.id)]) {
            self.session_marks.leave(is_tracked, key, session.last_active);
        }
    }

    fn keep(&mut self, refresh: Option<RefreshToken>) {
        if let Some(token) = refresh {
            self.refresh_tokens.insert(token.hash, (token, false));
        }
    }
}
