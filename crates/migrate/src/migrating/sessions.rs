use async_trait::async_trait;
use mobimir_core::{
    id::{SessionId, UserId},
    moving::SessionKey,
    page::Page,
    ports::{SessionStore, StoreResult},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Timestamp, Version},
};

use super::MigratingSessions;

#[async_trait]
impl SessionStore for MigratingSessions {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let keys = keys(session.id, refresh.as_ref());
        self.write(keys, |port| async move { port.insert(session, refresh).await }).await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        let session = self.read()?.get(id, now).await?;
        self.compare("a session", &session, move |port| async move { port.get(id, now).await });
        Ok(session)
    }

    async fn get_decided(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.read()?.get_decided(id, now).await
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        let page = self.read()?.by_user(user, after, limit, now).await?;
        self.compare("sessions of a user", &page, move |port| async move {
            port.by_user(user, after, limit, now).await
        });
        Ok(page)
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        let keys = vec![SessionKey::Token(hash)];
        self.write(keys, |port| async move { port.use_refresh(hash, now).await }).await
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let keys = keys(session.id, refresh.as_ref());
        self.write(keys, |port| async move { port.update(session, expected, refresh).await }).await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        self.read()?.unmerged(closed_before, limit, now).await
    }
}

fn keys(session: SessionId, refresh: Option<&RefreshToken>) -> Vec<SessionKey> {
    let token = refresh.map(|token| SessionKey::Token(token.hash));
    [SessionKey::Session(session)].into_iter().chain(token).collect()
}
