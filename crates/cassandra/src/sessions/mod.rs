//! Sessions: a row each, written once and from then on changed by decision only.
//!
//! Every change is one conditional statement on the session's version, and names itself (`changed_by`), so that whoever
//! lost the answer can see whether it was his. What is listed elsewhere is written before the decision when it is needed
//! to find the session (it then stands there in vain if the decision is lost), and after it when it gives somebody a
//! right: a refresh token of a change that did not happen must not work.
//!
//! The lists hold positions and no state. Whoever reads them reads the sessions themselves.
//!
//! | question | table |
//! |---|---|
//! | a session by its id | `sessions` |
//! | the sessions of a user | `sessions_by_user` |
//! | whether a refresh token works | `refresh_tokens` |
//! | guests whose cart may still have to be merged | `sessions_unmerged` |

mod change;
mod debts;
mod listing;
mod moving;
mod rows;
mod tokens;
mod unmerged;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use mobimir_core::{
    id::{self, SessionId, UserId},
    moving::SessionKey,
    page::Page,
    policy::{CassandraSettings, Entity, read_sees_write},
    ports::{SessionStore, StoreResult},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Timestamp, Version},
};
use scylla::response::query_result::QueryRowsResult;

use self::rows::{Batched, InsertRow, ListedRow, RawSession, StoredSession, TokenRow, UnmergedRow};
pub(crate) use self::rows::{COLUMNS, selected};
use crate::{
    Cluster, ConnectError, DcState, StatementKind, cql,
    link::{Debts, Link, Statement, damaged},
    outbox::Outbox,
    partitions::PartitionKey,
    registers::{RegisterRow, Registers},
    stamps,
    turns::Turns,
};

pub struct CassandraSessions {
    inner: Arc<Inner>,
    /// Whether what is written is marked.
    is_tracked: bool,
}

struct Inner {
    turns: Turns,
    link: Link,
    buckets: u16,
    /// Whether a read sees every write that was acknowledged. If not, nothing is concluded from what it lacks.
    sees_writes: bool,
    insert: Statement,
    read: Statement,
    /// What stands in any data centre, with its stamps: to be written in the others.
    written: Statement,
    token_written: Statement,
    use_again: Statement,
    update: Statement,
    list: Statement,
    listed: Statement,
    listed_at: Statement,
    give_token: Statement,
    token: Statement,
    use_token: Statement,
    note_unmerged: Statement,
    unmerged: Statement,
    remove_unmerged: Statement,
    merged: Statement,
    registers: Registers,
    outbox: Outbox,
    copies: moving::Copies,
    /// Up to where this instance has seen a slot of `sessions_unmerged` to be done with, and since when.
    done_to: Mutex<BTreeMap<i64, (Timestamp, Timestamp)>>,
}

/// How often a decision is tried whose answer was lost and that was found not to have happened.
const DECISIONS_MAX: u32 = 3;

/// What a session takes, about.
const SESSION_BYTES: u64 = 400;

impl CassandraSessions {
    pub async fn open(cluster: Arc<Cluster>, settings: CassandraSettings) -> Result<Self, ConnectError> {
        let inner = Arc::new(Inner::open(cluster, settings).await?);
        let debts: Arc<dyn Debts> = inner.clone();
        inner.link.watch(Arc::downgrade(&debts));
        Ok(Self { inner, is_tracked: false })
    }

    pub fn dc_state(&self) -> DcState {
        self.inner.link.dc_state()
    }
}

#[async_trait]
impl SessionStore for CassandraSessions {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let keys = written_keys(&session, refresh.as_ref());
        self.inner.tracked(self.is_tracked, &keys, self.inner.insert(&session, refresh)).await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        let stored = self.inner.stored(id).await?.map(|stored| stored.session);
        Ok(stored.filter(|session| session.expires_at > now))
    }

    async fn get_decided(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        let decided = self.inner.decided(id).await?.map(|stored| stored.session);
        Ok(decided.filter(|session| session.expires_at > now))
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        self.inner.by_user(user, after, limit, now).await
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        self.inner.use_refresh(hash, now, self.is_tracked).await
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let keys = written_keys(&session, refresh.as_ref());
        self.inner.tracked(self.is_tracked, &keys, self.inner.update(session, expected, refresh)).await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        self.inner.unmerged(closed_before, limit, now).await
    }
}

impl Inner {
    async fn open(cluster: Arc<Cluster>, settings: CassandraSettings) -> Result<Self, ConnectError> {
        use StatementKind::{Decision, Read, Write};
        let link = Link::open(cluster, Entity::Sessions, settings).await?;
        let settings = link.settings();
        let (buckets, home) = (settings.buckets.unwrap_or_default(), settings.home_dc.as_str());
        let sees_writes =
            read_sees_write((settings.write, home), (settings.read, home), &settings.replication);
        let (set, by_id) = (cql::set_session(), cql::read_session());
        Ok(Self {
            buckets,
            sees_writes,
            insert: link.prepare("insert", Write, &cql::insert_session()).await?,
            read: link.prepare("read", Read, &by_id).await?,
            written: link.prepare_everywhere("written", &by_id).await?,
            token_written: link
                .prepare_everywhere(
                    "token_written",
                    "SELECT session_id, expires_at, used_by, WRITETIME(session_id), WRITETIME(used_by) \
                    FROM {}.refresh_tokens WHERE hash = ?",
                )
                .await?,
            use_again: link
                .prepare(
                    "use_again",
                    Write,
                    "UPDATE {}.refresh_tokens USING TTL ? AND TIMESTAMP ? SET used_by = ? WHERE hash = ?",
                )
                .await?,
            update: link
                .prepare(
                    "update",
                    Decision,
                    &format!(
                        "UPDATE {{}}.sessions USING TTL :ttl SET {set} \
                        WHERE bucket = :bucket AND session_id = :session_id IF version = :expected"
                    ),
                )
                .await?,
            list: link.prepare("list", Write, cql::LIST_SESSION).await?,
            listed: link
                .prepare(
                    "listed",
                    Read,
                    "SELECT created_at, session_id FROM {}.sessions_by_user \
                    WHERE user_id = ? AND created_at < ? LIMIT ?",
                )
                .await?,
            listed_at: link
                .prepare(
                    "listed_at",
                    Read,
                    "SELECT created_at, session_id FROM {}.sessions_by_user \
                    WHERE user_id = ? AND created_at = ? AND session_id > ? LIMIT ?",
                )
                .await?,
            give_token: link.prepare("give_token", Write, cql::GIVE_TOKEN).await?,
            token: link
                .prepare("token", Read, "SELECT session_id, expires_at, used_by FROM {}.refresh_tokens WHERE hash = ?")
                .await?,
            // The session is named, so that a token which has just expired does not come back as half a row.
            use_token: link
                .prepare(
                    "use_token",
                    Decision,
                    "UPDATE {}.refresh_tokens USING TTL ? SET used_by = ? WHERE hash = ? \
                    IF used_by = null AND session_id = ?",
                )
                .await?,
            note_unmerged: link
                .prepare(
                    "note_unmerged",
                    Write,
                    "INSERT INTO {}.sessions_unmerged (slot, closed_at, session_id, version) VALUES (?, ?, ?, ?) \
                    USING TTL ? AND TIMESTAMP ?",
                )
                .await?,
            unmerged: link
                .prepare(
                    "unmerged",
                    Read,
                    "SELECT closed_at, session_id, version FROM {}.sessions_unmerged \
                    WHERE slot = ? AND closed_at >= ? AND closed_at < ?",
                )
                .await?,
            remove_unmerged: link
                .prepare(
                    "remove_unmerged",
                    Write,
                    "DELETE FROM {}.sessions_unmerged USING TIMESTAMP ? \
                    WHERE slot = ? AND closed_at = ? AND session_id = ? AND version = ?",
                )
                .await?,
            merged: link
                .prepare(
                    "merged",
                    Write,
                    "DELETE FROM {}.sessions_unmerged USING TIMESTAMP ? \
                    WHERE slot = ? AND closed_at = ? AND session_id = ?",
                )
                .await?,
            registers: Registers::open(&link).await?,
            outbox: Outbox::open(&link).await?,
            copies: moving::Copies::open(&link).await?,
            done_to: Mutex::default(),
            turns: Turns::default(),
            link,
        })
    }

    async fn tracked<T>(
        &self,
        is_tracked: bool,
        keys: &[SessionKey],
        write: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        self.outbox.tracked(&self.link, is_tracked, keys, write).await
    }

    async fn insert(&self, session: &Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let (stamp, first) = (self.link.stamps().next(), self.link.stamps().first_write());
        let row = InsertRow::new(session, self.buckets, id::fresh(session.created_at), first);
        self.count(session.id);
        let mut batched = vec![Batched::Session(Box::new(row))];
        batched.extend(ListedRow::of(session, stamp).map(Batched::Listed));
        batched.extend(refresh.map(|token| Batched::Token(TokenRow { token, stamp: first })));
        self.write(batched, UnmergedRow::of(session, stamp), debts::owed(session, refresh.as_ref())).await
    }

    /// Counts a session that is new.
    fn count(&self, id: SessionId) {
        if self.buckets > 0 {
            // Otherwise every partition has one row.
            let (bucket, _) = self.key(id);
            self.link.partitions().wrote("sessions", PartitionKey::Bucket(bucket), 1, SESSION_BYTES);
        }
    }

    /// Writes rows, with what a slot needs to be found. If that is not acknowledged, nobody learns of the session, and what
    /// is there of it goes with its time.
    async fn write(
        &self,
        mut batched: Vec<Batched<'_>>,
        unmerged: Option<UnmergedRow>,
        owed: crate::link::Owed,
    ) -> StoreResult<()> {
        let registered = unmerged.as_ref().and_then(|row| self.register_row(row));
        batched.extend(unmerged.map(Batched::Unmerged));
        batched.extend(registered.map(Batched::Register));
        let rows: Vec<(&Statement, Batched<'_>)> =
            batched.into_iter().map(|row| (self.statement_of(&row), row)).collect();
        self.link.write_all(&rows, owed).await?;
        if let Some(row) = registered {
            self.registers.written(&row);
        }
        Ok(())
    }

    fn register_row(&self, row: &UnmergedRow) -> Option<RegisterRow> {
        self.registers.row(unmerged::SLOTS, rows::slot(row.closed_at), self.link.stamps().next())
    }

    fn statement_of(&self, row: &Batched<'_>) -> &Statement {
        match row {
            Batched::Session(_) => &self.insert,
            Batched::Listed(_) => &self.list,
            Batched::Token(_) => &self.give_token,
            Batched::Unmerged(_) => &self.note_unmerged,
            Batched::Register(_) => &self.registers.note,
        }
    }

    fn key(&self, id: SessionId) -> (i32, uuid::Uuid) {
        (rows::bucket(id, self.buckets), id.0)
    }

    /// Whether it has expired or not.
    async fn stored(&self, id: SessionId) -> StoreResult<Option<StoredSession>> {
        first_session(id, &self.link.read(&self.read, self.key(id)).await?)
    }

    /// The same, after all decisions that were begun before.
    async fn decided(&self, id: SessionId) -> StoreResult<Option<StoredSession>> {
        first_session(id, &self.link.read_decided(&self.read, self.key(id)).await?)
    }
}

fn written_keys(session: &Session, refresh: Option<&RefreshToken>) -> Vec<SessionKey> {
    let token = refresh.map(|token| SessionKey::Token(token.hash));
    [SessionKey::Session(session.id)].into_iter().chain(token).collect()
}

fn first_session(id: SessionId, rows: &QueryRowsResult) -> StoreResult<Option<StoredSession>> {
    let row = rows.maybe_first_row::<RawSession<'_>>().map_err(|error| damaged("a session", error))?;
    row.map(|raw| StoredSession::decode(id, raw)).transpose()
}

/// Before a decision is tried again.
async fn pause(attempt: u32) {
    const PAUSE_MS: u64 = 20;
    tokio::time::sleep(std::time::Duration::from_millis(PAUSE_MS * u64::from(attempt + 1))).await;
}

/// The name of a change.
fn fresh_id() -> uuid::Uuid {
    id::fresh(stamps::real_now())
}
