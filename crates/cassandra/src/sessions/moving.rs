//! Sessions and refresh tokens as a migration sees them.

mod copies;

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    id::{SessionId, UserId},
    moving::{
        Backlog, Facts, Found, InTable, Mark, Movable, Place, Range, Row, Rows, Scanned, SessionKey,
        SessionSide, Side, Whole, WholeSession,
    },
    ports::{StoreError, StoreResult},
    secret::SecretHash,
    time::Timestamp,
};
use scylla::{response::query_result::QueryRowsResult, value::CqlTimestamp};
use uuid::Uuid;

pub(super) use self::copies::Copies;
use super::{
    CassandraSessions, Inner, debts,
    rows::{at, slot, unmerged_since},
    unmerged::SLOTS,
};
use crate::{
    DcState,
    link::Decided,
    outbox::OutboxKey,
    scans::{self, KeyBytes, apart, decoded, key_place, no_table},
};

const SESSIONS: &str = "sessions";
const BY_USER: &str = "sessions_by_user";
const UNMERGED: &str = "sessions_unmerged";
const TOKENS: &str = "refresh_tokens";

/// Stands for a version that is not there.
const NO_VERSION: i64 = i64::MIN;

/// A session's row: bucket, session_id, version
type RawKey = (i32, Uuid, Option<i64>);

impl CassandraSessions {
    /// These sessions, as a migration sees them.
    pub fn side(&self) -> SessionSide {
        let view = |is_tracked| Arc::new(Self { inner: self.inner.clone(), is_tracked });
        Side { port: view(false), tracked: view(true), moving: view(false) }
    }
}

#[async_trait]
impl Movable<WholeSession> for CassandraSessions {
    fn tables(&self) -> &'static [&'static str] {
        &[SESSIONS, TOKENS, BY_USER, UNMERGED]
    }

    async fn whole(&self, key: SessionKey) -> StoreResult<Found<WholeSession>> {
        let waiting = self.inner.outbox.of(&self.inner.link, key).await?;
        let whole = self.inner.whole(key, waiting.is_in_doubt).await?;
        Ok(waiting.found(whole))
    }

    async fn count(&self) -> StoreResult<u64> {
        scans::count(&self.inner.link, &[&self.inner.copies.sessions, &self.inner.copies.tokens]).await
    }

    /// Sessions first, then tokens.
    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        Ok(scans::ranges(2, parts))
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<WholeSession>> {
        let Inner { link, copies, .. } = &*self.inner;
        let step = scans::step(link, &[&copies.sessions, &copies.tokens], range, limit).await?;
        let (keys, nameless) = match &step.rows {
            None => (Vec::new(), Vec::new()),
            Some(rows) if step.table == 0 => {
                let key = |(_, id, _): RawKey| SessionKey::Session(SessionId(id));
                (decoded(rows, "ids of sessions", key)?, Vec::new())
            }
            Some(rows) => token_keys(rows)?,
        };
        let mut scanned = scans::read_each(keys, step.next, |key| self.inner.whole(key, false)).await?;
        scanned.items.extend(nameless.into_iter().map(|key| Err(scans::no_entity(TOKENS, &key))));
        Ok(scanned)
    }

    async fn put(&self, wholes: Vec<WholeSession>, now: Timestamp) -> StoreResult<()> {
        self.inner.put_all(wholes, now, false).await
    }

    async fn put_first(&self, wholes: Vec<WholeSession>, now: Timestamp) -> StoreResult<()> {
        self.inner.put_all(wholes, now, true).await
    }

    async fn in_tables(&self, whole: &WholeSession) -> StoreResult<Vec<InTable>> {
        let Inner { link, copies, registers, .. } = &*self.inner;
        let facts = self.inner.whole(whole.key(), false).await?.map(|stored| stored.facts());
        let WholeSession::Session(session) = whole else {
            return Ok(vec![InTable { table: TOKENS, facts }]);
        };
        let mut tables = vec![InTable { table: SESSIONS, facts }];
        if let Some(user) = session.user() {
            let values = (user.0, at(session.created_at), session.id.0);
            let is_there = link.read(&copies.is_listed, values).await?.rows_num() > 0;
            let facts = is_there.then(|| listed_facts(user, session.created_at));
            tables.push(InTable { table: BY_USER, facts });
        }
        if let Some(closed_at) = unmerged_since(session) {
            let values = (slot(closed_at), at(closed_at), session.id.0);
            // An entry in a slot that no reader knows of is as good as none.
            let is_there = registers.has(link, SLOTS, slot(closed_at)).await?
                && link.read(&copies.is_unmerged, values).await?.rows_num() > 0;
            tables.push(InTable { table: UNMERGED, facts: is_there.then(Facts::default) });
        }
        Ok(tables)
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<SessionKey>> {
        let Inner { link, copies, .. } = &*self.inner;
        let all = match table {
            SESSIONS => &copies.sessions,
            TOKENS => &copies.tokens,
            BY_USER => &copies.listed,
            UNMERGED => &copies.unmerged,
            other => return Err(no_table(other)),
        };
        let (rows, next) = scans::step_of_table(link, all, after, limit).await?;
        let Some(rows) = rows else { return Ok(Rows { items: Vec::new(), nameless: Vec::new(), next }) };
        let mut nameless = Vec::new();
        let items = match table {
            SESSIONS => self.inner.session_rows(&rows).await?,
            TOKENS => {
                let (keys, others) = token_keys(&rows)?;
                nameless = others;
                self.inner.token_rows(keys).await?
            }
            BY_USER => decoded(&rows, "lists of sessions", listed_row)?,
            _ => decoded(&rows, "lists of closed sessions", unmerged_row)?,
        };
        Ok(Rows { items, nameless, next })
    }

    async fn remove(&self, table: &'static str, row: &Row<SessionKey>) -> StoreResult<()> {
        let Inner { link, copies, .. } = &*self.inner;
        // That something is gone is not brought over.
        if link.dc_state() != DcState::Whole && !link.settings().read_repair {
            let what = format!("Cassandra, {table}: nothing is erased while a data centre is lost");
            return Err(StoreError::Unavailable { what, source: None });
        }
        let (stamp, owed, mut key) = (link.stamps().next(), row.key.owed(), KeyBytes(&row.place.0));
        let decided = match (table, row.key) {
            (SESSIONS, SessionKey::Session(id)) => {
                let (bucket, version) = (key.i32()?, key.i64()?);
                let version = (version != NO_VERSION).then_some(version);
                link.decide(&copies.erase, (bucket, id.0, version), owed).await?
            }
            (TOKENS, SessionKey::Token(hash)) => {
                link.decide(&copies.erase_token, (hash.0.as_slice(),), owed).await?
            }
            (BY_USER, SessionKey::Session(id)) => {
                let values = (stamp, key.uuid()?, key.time()?, id.0);
                return link.write(&copies.unlist, values, owed).await;
            }
            (UNMERGED, SessionKey::Session(id)) => {
                let (slot, closed_at, version) = (key.i64()?, key.time()?, key.i64()?);
                let values = (stamp, slot, closed_at, id.0, version);
                return link.write(&self.inner.remove_unmerged, values, debts::owed_slot(slot)).await;
            }
            (other, _) => return Err(no_table(other)),
        };
        match decided {
            // It has changed since it was met: whoever removes it looks again.
            Decided::Applied | Decided::Refused => Ok(()),
            Decided::Lost(failure) => Err(failure.of_write("erase")),
        }
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<SessionKey>>> {
        self.inner.outbox.unmirrored(&self.inner.link, limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.inner.outbox.backlog::<SessionKey>(&self.inner.link).await
    }

    async fn mirrored(&self, marks: &[Mark<SessionKey>], _read_at: Timestamp) -> StoreResult<()> {
        self.inner.outbox.remove(&self.inner.link, marks).await
    }

    async fn nobody_writes(&self) -> StoreResult<()> {
        self.inner.outbox.nobody_writes::<SessionKey>(&self.inner.link).await
    }
}

/// Tokens, and how to find what is in their place and none.
fn token_keys(rows: &QueryRowsResult) -> StoreResult<(Vec<SessionKey>, Vec<String>)> {
    let keys = decoded(rows, "hashes of tokens", |(hash,): (&[u8],)| match hash.try_into() {
        Ok(hash) => Ok(SessionKey::Token(SecretHash(hash))),
        Err(_) => {
            Err(format!("hash 0x{}", hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
        }
    });
    Ok(apart(keys?))
}

fn listed_row((user, created_at, id): (Uuid, CqlTimestamp, Uuid)) -> Row<SessionKey> {
    let facts = listed_facts(UserId(user), Timestamp::from_millis(created_at.0));
    let place = key_place(&[user.as_bytes(), &created_at.0.to_be_bytes()]);
    Row { key: SessionKey::Session(SessionId(id)), facts, place }
}

fn unmerged_row((slot, closed_at, id, version): (i64, CqlTimestamp, Uuid, i64)) -> Row<SessionKey> {
    let [slot, closed_at, version] = [slot, closed_at.0, version].map(i64::to_be_bytes);
    let place = key_place(&[&slot, &closed_at, &version]);
    Row { key: SessionKey::Session(SessionId(id)), facts: Facts::default(), place }
}

fn listed_facts(user: UserId, created_at: Timestamp) -> Facts {
    Facts::new([("user_id", user.to_string()), ("created_at", created_at.to_string())])
}
