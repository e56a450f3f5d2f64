use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    id::{SessionId, UserId},
    page::Page,
    ports::{SessionStore, StoreResult, Stores},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Timestamp, Version},
};
use mobimir_testkit::conformance;

use crate::{Door, OPTIONS, faulty, must_be_found};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    ReturnsExpiredSessions,
    ListsExpiredSessions,
    TakesExpiredTokens,
    LetsTokensBeUsedTwiceWhenTheyRace,
    IgnoresTheVersion,
    KeepsTheTokenOfALostUpdate,
    LosesTheTokenOfAnUpdate,
    FindsExpiredUnmerged,
    FindsUnmergedTooEarly,
}

#[test]
fn sessions() {
    use Fault::*;
    for fault in [
        ReturnsExpiredSessions,
        ListsExpiredSessions,
        TakesExpiredTokens,
        LetsTokensBeUsedTwiceWhenTheyRace,
        IgnoresTheVersion,
        KeepsTheTokenOfALostUpdate,
        LosesTheTokenOfAnUpdate,
        FindsExpiredUnmerged,
        FindsUnmergedTooEarly,
    ] {
        let stores = || async move {
            faulty(|model| {
                let (inner, door) = (model.sessions.clone(), Door::default());
                Stores { sessions: Arc::new(Faulty { fault, inner, door }), ..model.clone() }
            })
        };
        must_be_found(&fault, || conformance::sessions(&stores, OPTIONS));
    }
}

struct Faulty {
    fault: Fault,
    inner: Arc<dyn SessionStore>,
    door: Door,
}

impl Faulty {
    /// The time, but for what this fault is about.
    fn now(&self, fault: Fault, now: Timestamp) -> Timestamp {
        if self.fault == fault { Timestamp::from_millis(0) } else { now }
    }
}

#[async_trait]
impl SessionStore for Faulty {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        self.inner.insert(session, refresh).await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.inner.get(id, self.now(Fault::ReturnsExpiredSessions, now)).await
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        self.inner.by_user(user, after, limit, self.now(Fault::ListsExpiredSessions, now)).await
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        let is_first = self.door.enter().await;
        let outcome = self.inner.use_refresh(hash, self.now(Fault::TakesExpiredTokens, now)).await?;
        self.door.leave();
        match outcome {
            RefreshUse::Again(session)
                if self.fault == Fault::LetsTokensBeUsedTwiceWhenTheyRace && !is_first =>
            {
                Ok(RefreshUse::First(session))
            }
            other => Ok(other),
        }
    }

    async fn update(
        &self,
        session: Session,
        mut expected: Version,
        mut refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let stored = self.inner.get(session.id, Timestamp::from_millis(0)).await?;
        match (self.fault, stored) {
            (Fault::IgnoresTheVersion, Some(stored)) => expected = stored.version,
            (Fault::KeepsTheTokenOfALostUpdate, Some(stored)) if stored.version != expected => {
                self.inner.update(stored.clone(), stored.version, refresh).await?;
            }
            (Fault::LosesTheTokenOfAnUpdate, _) => refresh = None,
            _ => {}
        }
        self.inner.update(session, expected, refresh).await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        let early = i64::from(self.fault == Fault::FindsUnmergedTooEarly);
        let now = self.now(Fault::FindsExpiredUnmerged, now);
        self.inner.unmerged(closed_before.plus_ms(early), limit, now).await
    }
}
