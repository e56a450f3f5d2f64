//! Sessions: a row each, changed by conditional writes on its version; refresh tokens that are used up by a
//! conditional write; and positions in the lists of a user and of guests to be merged.

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    id::{SessionId, UserId},
    page::Page,
    policy::Entity,
    ports::{SessionStore, StoreError, StoreResult},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition, SessionState},
    time::{Timestamp, Version},
};
use mobimir_shop::environment::Environment;
use uuid::Uuid;

use super::{Cell, Debts, Key, Level, Link, Outcome, Ring, Rows, Stamps, Value, open};
use crate::{
    network::{Network, unavailable, unknown},
    planted::PlantedFault,
};

pub(super) const SESSIONS: &str = "sessions";
pub(super) const BY_USER: &str = "sessions_by_user";
pub(super) const TOKENS: &str = "refresh_tokens";
pub(super) const UNMERGED: &str = "sessions_unmerged";
const DECISIONS_MAX: usize = 3;

#[derive(Clone)]
pub struct Sessions {
    pub(super) ring: Ring,
    pub(super) link: Link,
    pub(super) environment: Environment,
    pub(super) stamps: Stamps,
}

impl Sessions {
    pub fn open(ring: Ring, network: Network, environment: Environment, dc: usize) -> Arc<Self> {
        let stamps = Stamps::new(environment.clock.clone());
        let link = Link::open(ring.clone(), network, &environment, Entity::Sessions, dc);
        let sessions = Arc::new(Self { ring, link, environment, stamps });
        let debts: Arc<dyn Debts> = sessions.clone();
        sessions.link.watch(Arc::downgrade(&debts), &sessions.environment);
        sessions
    }

    pub(super) async fn write(
        &self,
        name: &'static str,
        cells: Vec<(Key, Cell)>,
        owed: &[u8],
    ) -> StoreResult<()> {
        self.link.write(name, Level::LocalQuorum, cells, owed).await
    }

    pub(super) async fn rows(
        &self,
        name: &'static str,
        table: &'static str,
        partition: &[u8],
        is_decided: bool,
    ) -> StoreResult<Rows> {
        if is_decided {
            self.link.read_decided(name, table, partition).await
        } else {
            self.link.read(name, table, partition).await
        }
    }

    /// Writes a session in every data centre as it is in one, under the stamps that it has, with what lists it.
    async fn bring(&self, id: SessionId) -> StoreResult<()> {
        if self.ring.world().planted(PlantedFault::SessionsNotWrittenAgain) {
            return Ok(());
        }
        let mut rows = self.link.read_everywhere("session_written", SESSIONS, id.as_bytes()).await?;
        rows.retain(|_, cell| cell.value.is_some());
        let Some((session, _)) = session_of(&rows) else { return Ok(()) };
        let cells = rows.into_iter().chain(self.listed(&session)).collect();
        self.link.write_everywhere("session_again", cells).await
    }

    /// The same of a refresh token, and of its having been used.
    async fn bring_token(&self, hash: SecretHash) -> StoreResult<()> {
        if self.ring.world().planted(PlantedFault::SessionsNotWrittenAgain) {
            return Ok(());
        }
        let rows = self.link.read_everywhere("token_written", TOKENS, &hash.0).await?;
        self.link.write_everywhere("token_again", rows.into_iter().collect()).await
    }

    pub(super) async fn stored(
        &self,
        id: SessionId,
        is_decided: bool,
    ) -> StoreResult<Option<(Session, Uuid)>> {
        Ok(session_of(&self.rows("session_get", SESSIONS, id.as_bytes(), is_decided).await?))
    }

    pub(super) async fn token(
        &self,
        hash: SecretHash,
        is_decided: bool,
    ) -> StoreResult<Option<(RefreshToken, Option<Uuid>)>> {
        Ok(token_of(&self.rows("token_get", TOKENS, &hash.0, is_decided).await?))
    }

    fn token_cell(&self, token: RefreshToken) -> (Key, Cell) {
        let cell = Cell::new(self.stamps.first_write(), Value::Token(token, None)).until(token.expires_at);
        (Key::new(TOKENS, &token.hash.0, b""), cell)
    }

    pub(super) fn listed(&self, session: &Session) -> Vec<(Key, Cell)> {
        let of_session = || Cell::new(self.stamps.next(), Value::SessionOf(session.id));
        let by_user = session.user().map(|user| Key::new(BY_USER, user.as_bytes(), session.id.as_bytes()));
        let unmerged = matches!(session.state, SessionState::Closed { merged: false, .. })
            .then(|| Key::new(UNMERGED, b"", session.id.as_bytes()));
        by_user.into_iter().chain(unmerged).map(|key| (key, of_session())).collect()
    }
}

/// What is owed of a session: a letter and a key for each partition.
pub(super) fn owed(session: SessionId, token: Option<SecretHash>) -> Vec<u8> {
    let mut key = [b"s", session.as_bytes().as_slice()].concat();
    token.into_iter().for_each(|hash| key.extend(owed_token(hash)));
    key
}

pub(super) fn owed_token(hash: SecretHash) -> Vec<u8> {
    [b"t", hash.0.as_slice()].concat()
}

#[async_trait]
impl Debts for Sessions {
    /// Without read repair what is there is written once more.
    async fn settle(&self, mut key: &[u8]) -> StoreResult<()> {
        while let Some((letter, rest)) = key.split_first() {
            key = if *letter == b's'
                && let Some((id, rest)) = rest.split_first_chunk()
            {
                self.bring(SessionId(Uuid::from_bytes(*id))).await?;
                rest
            } else if let Some((hash, rest)) = rest.split_first_chunk() {
                self.bring_token(SecretHash(*hash)).await?;
                rest
            } else {
                return Ok(());
            };
        }
        Ok(())
    }
}

pub(super) fn session_of(rows: &Rows) -> Option<(Session, Uuid)> {
    rows.values().find_map(|cell| match &cell.value {
        Some(Value::Session(session, changed_by)) => Some(((**session).clone(), *changed_by)),
        _ => None,
    })
}

pub(super) fn token_of(rows: &Rows) -> Option<(RefreshToken, Option<Uuid>)> {
    rows.values().find_map(|cell| match &cell.value {
        Some(Value::Token(token, used_by)) => Some((*token, *used_by)),
        _ => None,
    })
}

pub(super) fn session_cell(session: &Session, changed_by: Uuid, stamp: i64) -> (Key, Cell) {
    let value = Value::Session(Box::new(session.clone()), changed_by);
    (Key::new(SESSIONS, session.id.as_bytes(), b""), Cell::new(stamp, value).until(session.expires_at))
}

#[async_trait]
impl SessionStore for Sessions {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let mut cells = vec![session_cell(&session, Uuid::nil(), self.stamps.first_write())];
        cells.extend(self.listed(&session));
        cells.extend(refresh.map(|token| self.token_cell(token)));
        self.write("session_insert", cells, &owed(session.id, refresh.map(|token| token.hash))).await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        let stored = self.stored(id, false).await?;
        Ok(stored.map(|(session, _)| session).filter(|session| session.expires_at > now))
    }

    async fn get_decided(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        let stored = self.stored(id, true).await?;
        Ok(stored.map(|(session, _)| session).filter(|session| session.expires_at > now))
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        let mut sessions = Vec::new();
        for cell in self.rows("session_list", BY_USER, user.as_bytes(), false).await?.into_values() {
            if let Some(Value::SessionOf(id)) = cell.value
                && let Some((session, _)) = self.stored(id, false).await?
                && session.is_live(now)
            {
                sessions.push(session);
            }
        }
        sessions.sort_by_key(|session| session.position().key());
        sessions.retain(|session| after.is_none_or(|after| session.position().key() > after.key()));
        Ok(Page::cut(sessions, limit, Session::position))
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        // Whether a read sees every write that was acknowledged, also in the other data centre.
        let is_decided = !self.ring.features().loses_data_centres;
        let stored = self.token(hash, is_decided).await?;
        let Some((token, used_by)) = stored.filter(|(token, _)| token.expires_at > now) else {
            return Ok(RefreshUse::Unknown);
        };
        if used_by.is_some() {
            return Ok(RefreshUse::Again(token.session));
        }
        if self.ring.world().planted(PlantedFault::TokenUsedWithoutDecision) {
            let used = Value::Token(token, Some(Uuid::max()));
            let cell = Cell::new(self.stamps.next(), used).until(token.expires_at);
            let cells = vec![(Key::new(TOKENS, &hash.0, b""), cell)];
            self.write("token_use", cells, &owed_token(hash)).await?;
            return Ok(RefreshUse::First(token.session));
        }
        let ours = self.environment.ids.fresh(now);
        let mut was_lost = false;
        for _ in 0..DECISIONS_MAX {
            let plan = move |rows: &Rows| {
                let (token, used_by) = token_of(rows)?;
                let used = Value::Token(token, Some(ours));
                let cell = Cell::new(0, used).until(token.expires_at);
                used_by.is_none().then(|| vec![(Key::new(TOKENS, &hash.0, b""), cell)])
            };
            let owed = owed_token(hash);
            let decide =
                self.link.decide("token_use", Level::LocalQuorum, TOKENS, &hash.0, &owed, plan).await;
            match decide {
                Ok(Outcome::Applied) => return Ok(RefreshUse::First(token.session)),
                Ok(Outcome::Refused) => {}
                Ok(Outcome::Lost) | Err(StoreError::Unknown { .. }) => was_lost = true,
                Err(error) if !was_lost => return Err(error),
                Err(error) => return Err(open(error)),
            }
            match self.token(hash, true).await.map_err(open)? {
                Some((_, Some(by))) if by == ours => return Ok(RefreshUse::First(token.session)),
                Some((_, Some(_))) => return Ok(RefreshUse::Again(token.session)),
                Some(_) => {}
                // It may have been given out elsewhere, and never have arrived where tokens are decided.
                None => {
                    self.ring.world().note("brought to where it is decided", "token");
                    let brought = self.bring_token(hash).await;
                    brought.map_err(|error| if was_lost { open(error) } else { error })?;
                }
            }
        }
        Err(if was_lost { unknown("token_use") } else { unavailable("token_use") })
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let stored = match self.stored(session.id, false).await? {
            Some(stored) if stored.0.version >= expected => Some(stored),
            _ => self.stored(session.id, true).await?,
        };
        let Some((stored, _)) = stored.filter(|(stored, _)| stored.version == expected) else {
            return Ok(false);
        };
        let session = Session { holder: stored.holder, created_at: stored.created_at, ..session };
        let listed = self.listed(&session);
        if !listed.is_empty() {
            self.write("session_list", listed, &owed(session.id, None)).await?;
        }
        let ours = self.environment.ids.fresh(session.last_active);
        let ignores = self.ring.world().planted(PlantedFault::SessionUpdatedUnconditionally);
        let mut was_lost = false;
        let (mut won, mut is_brought) = (false, false);
        for _ in 0..DECISIONS_MAX {
            let (session, id, wanted) = (session.clone(), session.id, session.version);
            let plan = move |rows: &Rows| {
                let (seen, _) = session_of(rows)?;
                (seen.version == expected || ignores).then(|| vec![session_cell(&session, ours, 0)])
            };
            let (key, owed) = (id.as_bytes(), owed(id, None));
            let decide = self.link.decide("session_update", Level::LocalQuorum, SESSIONS, key, &owed, plan);
            match decide.await {
                Ok(Outcome::Applied) => {
                    won = true;
                    break;
                }
                Ok(Outcome::Refused) if !was_lost => {
                    // It may have been written elsewhere, and never have arrived where sessions are decided.
                    if is_brought || !matches!(self.stored(id, true).await, Ok(None)) {
                        return Ok(false);
                    }
                    self.ring.world().note("brought to where it is decided", "session");
                    self.bring(id).await?;
                    is_brought = true;
                    continue;
                }
                Ok(Outcome::Refused) => {}
                Ok(Outcome::Lost) | Err(StoreError::Unknown { .. }) => was_lost = true,
                Err(error) if !was_lost => return Err(error),
                Err(error) => return Err(open(error)),
            }
            match self.stored(id, true).await.map_err(open)? {
                Some((_, changed_by)) if changed_by == ours => {
                    won = true;
                    break;
                }
                None => return Ok(false),
                Some((found, _)) if found.version == expected => {}
                Some((found, _)) if found.version <= wanted => return Ok(false),
                Some(_) => break,
            }
        }
        if !won {
            return Err(unknown("session_update"));
        }
        if let Some(token) = refresh {
            let owed = owed(session.id, Some(token.hash));
            self.write("token_give", vec![self.token_cell(token)], &owed).await.map_err(open)?;
        }
        Ok(true)
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        let mut unmerged = Vec::new();
        for (key, cell) in self.rows("unmerged", UNMERGED, b"", false).await? {
            let Some(Value::SessionOf(id)) = cell.value else { continue };
            let Some((session, _)) = self.stored(id, true).await? else { continue };
            match session.state {
                SessionState::Closed { at, merged: false, .. }
                    if at < closed_before && session.expires_at > now =>
                {
                    unmerged.push((at, session));
                }
                SessionState::Closed { merged: true, .. } => {
                    let removed = vec![(key, Cell::tombstone(self.stamps.next()))];
                    self.write("unmerged_remove", removed, &owed(session.id, None)).await?;
                }
                _ => {}
            }
        }
        unmerged.sort_by_key(|(at, _)| *at);
        if unmerged.len() > limit {
            return Err(unavailable("more guests are to be merged than are simulated"));
        }
        Ok(unmerged.into_iter().map(|(_, session)| session).collect())
    }
}
