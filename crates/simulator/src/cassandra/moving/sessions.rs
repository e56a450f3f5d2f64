//! Sessions and refresh tokens: a copy is listed first and then put where the session stands as it was read;
//! a token that was used stays so.

use async_trait::async_trait;
use mobimir_core::{
    id::{SessionId, UserId},
    moving::{
        Backlog, Facts, Found, InTable, Mark, Movable, Place, Range, Row, Rows as MovedRows, Scanned,
        SessionKey, Whole, WholeSession,
    },
    page::Page,
    ports::{SessionStore, StoreResult},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition, SessionState},
    time::{Timestamp, Version},
};
use uuid::Uuid;

use super::{
    super::{
        Cell, Key, Level, Outcome, Rows, Sessions, Value,
        sessions::{
            BY_USER, SESSIONS, TOKENS, UNMERGED, owed, owed_token, session_cell, session_of, token_of,
        },
    },
    Moving, PUT_DECISIONS_MAX,
};
use crate::{
    network::{unavailable, unknown},
    planted::PlantedFault,
};

fn is_unmerged(session: &Session) -> bool {
    matches!(session.state, SessionState::Closed { merged: false, .. })
}

fn listed_facts(user: &[u8]) -> Facts {
    let user = Uuid::from_slice(user).unwrap_or_default();
    Facts::new([("user_id", UserId(user).to_string())])
}

impl Moving<Sessions> {
    async fn session(&self, id: SessionId, is_decided: bool) -> StoreResult<Option<Session>> {
        Ok(self.store.stored(id, is_decided).await?.map(|(session, _)| session))
    }

    async fn token(&self, hash: SecretHash, is_decided: bool) -> StoreResult<Option<(RefreshToken, bool)>> {
        let rows = self.store.rows("token_get", TOKENS, &hash.0, is_decided).await?;
        Ok(token_of(&rows).map(|(token, used_by)| (token, used_by.is_some())))
    }

    async fn as_whole(&self, key: SessionKey, is_in_doubt: bool) -> StoreResult<Option<WholeSession>> {
        match key {
            SessionKey::Session(id) => {
                let decided = if is_in_doubt { self.session(id, true).await? } else { None };
                let sessions = [decided, self.session(id, false).await?].into_iter().flatten();
                Ok(sessions.max_by_key(|session| session.version).map(WholeSession::Session))
            }
            SessionKey::Token(hash) => {
                let decided = if is_in_doubt { self.token(hash, true).await? } else { None };
                let tokens = [decided, self.token(hash, false).await?].into_iter().flatten();
                let newest = tokens.max_by_key(|(_, used)| *used);
                Ok(newest.map(|(token, used)| WholeSession::Token { token, used }))
            }
        }
    }

    async fn all(&self) -> StoreResult<Vec<WholeSession>> {
        let sessions = self.table("sessions", SESSIONS).await?.into_values();
        let tokens = self.table("tokens", TOKENS).await?.into_values();
        let wholes = sessions.chain(tokens).filter_map(|cell| match cell.value {
            Some(Value::Session(session, _)) => Some(WholeSession::Session(*session)),
            Some(Value::Token(token, used_by)) => {
                Some(WholeSession::Token { token, used: used_by.is_some() })
            }
            _ => None,
        });
        Ok(wholes.collect())
    }

    async fn list(&self, session: &Session) -> StoreResult<()> {
        let listed = self.store.listed(session);
        if listed.is_empty() {
            Ok(())
        } else {
            self.store.write("session_list", listed, &owed(session.id, None)).await
        }
    }

    async fn put_session(&self, session: &Session, now: Timestamp) -> StoreResult<()> {
        let id = session.id;
        let mut stored = self.session(id, false).await?;
        for _ in 0..PUT_DECISIONS_MAX {
            let ignores_versions = self.ring.world().planted(PlantedFault::CopiedWithoutVersion);
            let newer = stored.as_ref().filter(|stored| stored.version >= session.version);
            if let Some(stored) = newer.filter(|_| !ignores_versions) {
                return self.list(stored).await;
            }
            // What is listed in vain is seen to be.
            self.list(session).await?;
            let expected = stored.as_ref().map(|stored| stored.version);
            let changed_by = self.store.environment.ids.fresh(now);
            let copy = session.clone();
            let put = move |rows: &Rows| {
                let seen = session_of(rows).map(|(seen, _)| seen.version);
                (seen == expected).then(|| vec![session_cell(&copy, changed_by, 0)])
            };
            let (link, key, owes) = (&self.store.link, id.as_bytes(), owed(id, None));
            if let Outcome::Applied =
                link.decide("session_put", Level::LocalQuorum, SESSIONS, key, &owes, put).await?
            {
                if stored.is_some_and(|stored| is_unmerged(&stored)) && !is_unmerged(session) {
                    let gone = Cell::tombstone(self.store.stamps.next());
                    let key = Key::new(UNMERGED, b"", id.as_bytes());
                    // Whoever meets it later sees that nothing is to be done.
                    let _ = self.store.write("session_unlist", vec![(key, gone)], &owed(id, None)).await;
                }
                return Ok(());
            }
            stored = self.session(id, true).await?;
        }
        Err(unknown("session_put"))
    }

    async fn put_token(&self, token: RefreshToken, is_used: bool, now: Timestamp) -> StoreResult<()> {
        let hash = token.hash;
        let mut stored = self.token(hash, false).await?;
        for _ in 0..PUT_DECISIONS_MAX {
            match stored {
                Some((_, false)) if is_used => return self.store.use_refresh(hash, now).await.map(|_| ()),
                Some(_) => return Ok(()),
                None => {}
            }
            let used_by = is_used.then(|| self.store.environment.ids.fresh(now));
            let put = move |rows: &Rows| {
                let cell = Cell::new(0, Value::Token(token, used_by)).until(token.expires_at);
                token_of(rows).is_none().then(|| vec![(Key::new(TOKENS, &hash.0, b""), cell)])
            };
            let (link, owes) = (&self.store.link, owed_token(hash));
            if let Outcome::Applied =
                link.decide("token_put", Level::LocalQuorum, TOKENS, &hash.0, &owes, put).await?
            {
                return Ok(());
            }
            stored = self.token(hash, true).await?;
        }
        Err(unknown("token_put"))
    }

    /// Whether a list has the session.
    async fn is_in(&self, table: &'static str, partition: &[u8], id: SessionId) -> StoreResult<bool> {
        let rows = self.store.rows("session_list", table, partition, false).await?;
        Ok(rows.get(&Key::new(table, partition, id.as_bytes())).is_some_and(|cell| cell.value.is_some()))
    }
}

#[async_trait]
impl Movable<WholeSession> for Moving<Sessions> {
    fn tables(&self) -> &'static [&'static str] {
        &[SESSIONS, TOKENS, BY_USER, UNMERGED]
    }

    async fn whole(&self, key: SessionKey) -> StoreResult<Found<WholeSession>> {
        let waiting = self.outbox.of(key).await?;
        let whole = self.as_whole(key, waiting.is_in_doubt).await?;
        Ok(waiting.found(whole))
    }

    async fn count(&self) -> StoreResult<u64> {
        Ok(self.all().await?.len() as u64)
    }

    async fn ranges(&self, _parts: usize) -> StoreResult<Vec<Range>> {
        Ok(vec![Range::default()])
    }

    async fn scan(&self, _range: &Range, _limit: usize) -> StoreResult<Scanned<WholeSession>> {
        Ok(Scanned { items: self.all().await?.into_iter().map(Ok).collect(), next: None })
    }

    async fn put(&self, wholes: Vec<WholeSession>, now: Timestamp) -> StoreResult<()> {
        for whole in wholes {
            if whole.expires_at().is_some_and(|expires_at| expires_at <= now) {
                continue;
            }
            match whole {
                WholeSession::Session(session) => self.put_session(&session, now).await?,
                WholeSession::Token { token, used } => self.put_token(token, used, now).await?,
            }
        }
        Ok(())
    }

    async fn in_tables(&self, whole: &WholeSession) -> StoreResult<Vec<InTable>> {
        let facts = self.as_whole(whole.key(), false).await?.map(|stored| stored.facts());
        let WholeSession::Session(session) = whole else {
            return Ok(vec![InTable { table: TOKENS, facts }]);
        };
        let mut tables = vec![InTable { table: SESSIONS, facts }];
        if let Some(user) = session.user() {
            let is_there = self.is_in(BY_USER, user.as_bytes(), session.id).await?;
            let facts = is_there.then(|| listed_facts(user.as_bytes()));
            tables.push(InTable { table: BY_USER, facts });
        }
        if is_unmerged(session) {
            let is_there = self.is_in(UNMERGED, b"", session.id).await?;
            tables.push(InTable { table: UNMERGED, facts: is_there.then(Facts::default) });
        }
        Ok(tables)
    }

    async fn rows(
        &self,
        table: &'static str,
        _after: Option<&Place>,
        _limit: usize,
    ) -> StoreResult<MovedRows<SessionKey>> {
        let row = |(key, cell): (Key, Cell)| {
            let (of, facts) = match cell.value? {
                Value::Session(session, _) => {
                    let whole = WholeSession::Session(*session);
                    (whole.key(), whole.facts())
                }
                Value::Token(token, used_by) => {
                    let whole = WholeSession::Token { token, used: used_by.is_some() };
                    (whole.key(), whole.facts())
                }
                Value::SessionOf(id) if table == BY_USER => {
                    (SessionKey::Session(id), listed_facts(&key.partition))
                }
                Value::SessionOf(id) => (SessionKey::Session(id), Facts::default()),
                _ => return None,
            };
            Some(Row { key: of, facts, place: Place([key.partition, key.row].concat()) })
        };
        let items = self.table("session_rows", table).await?.into_iter().filter_map(row).collect();
        Ok(MovedRows { items, nameless: Vec::new(), next: None })
    }

    async fn remove(&self, _table: &'static str, _row: &Row<SessionKey>) -> StoreResult<()> {
        Err(unavailable("repairs are not simulated"))
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<SessionKey>>> {
        self.outbox.unmirrored(limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.outbox.backlog::<SessionKey>().await
    }

    async fn mirrored(&self, marks: &[Mark<SessionKey>], _read_at: Timestamp) -> StoreResult<()> {
        self.outbox.remove(marks).await
    }

    async fn nobody_writes(&self) -> StoreResult<()> {
        self.outbox.nobody_writes::<SessionKey>().await
    }
}

fn keys(session: SessionId, refresh: Option<&RefreshToken>) -> Vec<SessionKey> {
    let token = refresh.map(|token| SessionKey::Token(token.hash));
    [SessionKey::Session(session)].into_iter().chain(token).collect()
}

#[async_trait]
impl SessionStore for Moving<Sessions> {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let keys = keys(session.id, refresh.as_ref());
        self.write(&keys, self.store.insert(session, refresh)).await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.store.get(id, now).await
    }

    async fn get_decided(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.store.get_decided(id, now).await
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        self.store.by_user(user, after, limit, now).await
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        self.write(&[SessionKey::Token(hash)], self.store.use_refresh(hash, now)).await
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let keys = keys(session.id, refresh.as_ref());
        self.write(&keys, self.store.update(session, expected, refresh)).await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        self.store.unmerged(closed_before, limit, now).await
    }
}
