//! Sessions and refresh tokens as a whole: read, replaced by a newer state, met one after the other.
//!
//! What is copied is decided, as every change of a session is. What a copy says is empty is written as empty, so that
//! nothing of an earlier state shows through, not even of one that is written late.

use futures_util::{
    future::ready,
    stream::{self, StreamExt, TryStreamExt},
};
use mobimir_core::{
    id::SessionId,
    moving::{Facts, Row, SessionKey, Whole, WholeSession},
    ports::{StoreError, StoreResult},
    secret::SecretHash,
    session::{RefreshToken, Session},
    time::Timestamp,
};
use scylla::{response::query_result::QueryRowsResult, value::MaybeUnset};

use super::{
    super::{
        DECISIONS_MAX, Inner, debts, first_session, fresh_id, pause,
        rows::{self, Batched, ListedRow, SessionRow, StoredSession, UnmergedRow, UpdateRow, unmerged_since},
        tokens::{StoredToken, USE_KEPT_BEYOND_S, first_token},
        unmerged::SLOTS,
    },
    NO_VERSION, RawKey,
};
use crate::{
    ConnectError, StatementKind,
    link::{Decided, Link, Statement},
    registers::RegisterRow,
    scans::{PUT_AT_ONCE, READ_AT_ONCE, decoded, key_place, said},
    stamps,
};

pub(crate) struct Copies {
    session: Statement,
    token: Statement,
    add_token: Statement,
    pub(super) erase: Statement,
    pub(super) erase_token: Statement,
    pub(super) unlist: Statement,
    pub(super) is_listed: Statement,
    pub(super) is_unmerged: Statement,
    /// All rows of a table, part by part.
    pub(super) sessions: Statement,
    pub(super) tokens: Statement,
    pub(super) listed: Statement,
    pub(super) unmerged: Statement,
}

impl Copies {
    pub(crate) async fn open(link: &Link) -> Result<Self, ConnectError> {
        use StatementKind::{Decision, Read, Write};
        let is_shared = link.settings().buckets.is_some_and(|buckets| buckets > 0);
        let all = async |name, columns: &str, table: &str, key: &str| {
            let part = format!("token({key}) > ? AND token({key}) <= ?");
            link.prepare_seeing(name, &format!("SELECT {columns} FROM {{}}.{table} WHERE {part}")).await
        };
        let session_key = if is_shared { "bucket" } else { "bucket, session_id" };
        let session =
            format!("SELECT {} FROM {{}}.sessions WHERE bucket = ? AND session_id = ?", rows::selected());
        let token = "SELECT session_id, expires_at, used_by FROM {}.refresh_tokens WHERE hash = ?";
        Ok(Self {
            session: link.prepare_seeing("whole", &session).await?,
            token: link.prepare_seeing("whole_token", token).await?,
            add_token: link
                .prepare(
                    "add_token",
                    Decision,
                    "INSERT INTO {}.refresh_tokens (hash, session_id, expires_at, used_by) VALUES (?, ?, ?, ?) \
                    IF NOT EXISTS USING TTL ?",
                )
                .await?,
            erase: link
                .prepare(
                    "erase",
                    Decision,
                    "DELETE FROM {}.sessions WHERE bucket = ? AND session_id = ? IF version = ?",
                )
                .await?,
            erase_token: link
                .prepare("erase_token", Decision, "DELETE FROM {}.refresh_tokens WHERE hash = ? IF EXISTS")
                .await?,
            unlist: link
                .prepare(
                    "unlist",
                    Write,
                    "DELETE FROM {}.sessions_by_user USING TIMESTAMP ? \
                    WHERE user_id = ? AND created_at = ? AND session_id = ?",
                )
                .await?,
            is_listed: link
                .prepare(
                    "is_listed",
                    Read,
                    "SELECT session_id FROM {}.sessions_by_user \
                    WHERE user_id = ? AND created_at = ? AND session_id = ?",
                )
                .await?,
            is_unmerged: link
                .prepare(
                    "is_unmerged",
                    Read,
                    "SELECT session_id FROM {}.sessions_unmerged \
                    WHERE slot = ? AND closed_at = ? AND session_id = ? LIMIT 1",
                )
                .await?,
            sessions: all("all_sessions", "bucket, session_id, version", "sessions", session_key).await?,
            tokens: all("all_tokens", "hash", "refresh_tokens", "hash").await?,
            listed: all("all_listed", "user_id, created_at, session_id", "sessions_by_user", "user_id")
                .await?,
            unmerged: all(
                "all_unmerged",
                "slot, closed_at, session_id, version",
                "sessions_unmerged",
                "slot",
            )
            .await?,
        })
    }
}

impl Inner {
    /// As it is, whether it has expired or not; after all decisions that were begun, if that is in doubt. Where those are made
    /// not everything has arrived that was written elsewhere, and not elsewhere what has just been decided: the newest counts.
    pub(super) async fn whole(
        &self,
        key: SessionKey,
        is_in_doubt: bool,
    ) -> StoreResult<Option<WholeSession>> {
        match key {
            SessionKey::Session(id) => {
                let decided = if is_in_doubt { self.decided(id).await? } else { None };
                let sessions = [decided, self.seen_session(id).await?].into_iter().flatten();
                let newest = sessions.map(|stored| stored.session).max_by_key(|session| session.version);
                Ok(newest.map(WholeSession::Session))
            }
            SessionKey::Token(hash) => {
                let decided = if is_in_doubt { self.decided_token(hash).await? } else { None };
                let tokens = [decided, self.seen_token(hash).await?].into_iter().flatten();
                let newest = tokens.max_by_key(|token| token.used_by.is_some());
                Ok(newest.map(|StoredToken { session, expires_at, used_by }| WholeSession::Token {
                    token: RefreshToken { hash, session, expires_at },
                    used: used_by.is_some(),
                }))
            }
        }
    }

    async fn seen_session(&self, id: SessionId) -> StoreResult<Option<StoredSession>> {
        first_session(id, &self.link.read(&self.copies.session, self.key(id)).await?)
    }

    async fn seen_token(&self, hash: SecretHash) -> StoreResult<Option<StoredToken>> {
        first_token(&self.link.read(&self.copies.token, (hash.0.as_slice(),)).await?)
    }

    /// Makes a session what a copy of it says, unless it is as new already, and lists it as it then is.
    pub(super) async fn put_all(
        &self,
        wholes: Vec<WholeSession>,
        now: Timestamp,
        are_new: bool,
    ) -> StoreResult<()> {
        let is_left = |whole: &WholeSession| whole.expires_at().is_none_or(|expires_at| expires_at > now);
        stream::iter(wholes.into_iter().filter(is_left))
            .map(|whole| async move {
                match whole {
                    WholeSession::Session(session) => self.put_session(&session, are_new).await,
                    WholeSession::Token { token, used } => self.put_token(&token, used, now).await,
                }
            })
            .buffer_unordered(PUT_AT_ONCE)
            .try_collect()
            .await
    }

    /// One that is taken for new is not read before: the decision is refused where that was wrong.
    async fn put_session(&self, session: &Session, is_new: bool) -> StoreResult<()> {
        let _turn = self.turns.of(session.id.as_bytes()).await;
        let mut stored = match is_new {
            true => None,
            false => self.seen_session(session.id).await?.map(|stored| stored.session),
        };
        for attempt in 0..PUT_DECISIONS_MAX {
            if let Some(stored) = stored.as_ref().filter(|stored| stored.version >= session.version) {
                return self.list_copy(stored).await;
            }
            // As in every change: what is listed in vain is seen to be.
            self.list_copy(session).await?;
            let columns = SessionRow::whole(session, self.buckets, fresh_id());
            let expected = stored.as_ref().map(|stored| stored.version.0.cast_signed());
            let row = UpdateRow::new(session, columns, expected);
            if let Decided::Applied = self.link.decide(&self.update, row, debts::owed(session, None)).await? {
                match stored {
                    Some(stored) if unmerged_since(&stored) != unmerged_since(session) => {
                        self.unlist_merged(&stored).await;
                    }
                    Some(_) => {}
                    None => self.count(session.id),
                }
                return Ok(());
            }
            pause(attempt).await;
            stored = self.decided(session.id).await?.map(|stored| stored.session);
        }
        Err(undecided(format!("session {}", session.id)))
    }

    async fn list_copy(&self, session: &Session) -> StoreResult<()> {
        let stamp = self.link.stamps().next();
        let mut rows: Vec<Batched<'_>> =
            ListedRow::of(session, stamp).into_iter().map(Batched::Listed).collect();
        let unmerged = UnmergedRow::of(session, stamp);
        // It may be one that somebody was done with long ago.
        let slot = unmerged.as_ref().map(|row| rows::slot(row.closed_at));
        let register = |entry| RegisterRow { list: SLOTS, entry, stamp };
        rows.extend(slot.map(register).map(Batched::Register));
        self.write(rows, unmerged, debts::owed(session, None)).await?;
        slot.into_iter().for_each(|slot| self.set_done_to(slot, None));
        Ok(())
    }

    /// A token that was used stays so, whatever a copy says.
    async fn put_token(&self, token: &RefreshToken, is_used: bool, now: Timestamp) -> StoreResult<()> {
        let RefreshToken { hash, session, expires_at } = token;
        let mut stored = self.seen_token(*hash).await?;
        for attempt in 0..PUT_DECISIONS_MAX {
            match &stored {
                Some(StoredToken { used_by: None, .. }) if is_used => {
                    return self.use_refresh(*hash, now, false).await.map(|_| ());
                }
                Some(_) => return Ok(()),
                None => {}
            }
            let (kept_until, used_by) = if is_used {
                (expires_at.plus_s(USE_KEPT_BEYOND_S), MaybeUnset::Set(fresh_id()))
            } else {
                (*expires_at, MaybeUnset::Unset)
            };
            let ttl_s = stamps::ttl_s(kept_until);
            let values = (hash.0.as_slice(), session.0, rows::at(*expires_at), used_by, ttl_s);
            let owed = debts::owed_token(*hash);
            if let Decided::Applied = self.link.decide(&self.copies.add_token, values, owed).await? {
                return Ok(());
            }
            pause(attempt).await;
            stored = self.decided_token(*hash).await?;
        }
        Err(undecided(SessionKey::Token(*hash).to_string()))
    }

    /// Rows of sessions, with what the sessions say.
    pub(super) async fn session_rows(&self, rows: &QueryRowsResult) -> StoreResult<Vec<Row<SessionKey>>> {
        let keys = decoded(rows, "ids of sessions", |key: RawKey| key)?;
        stream::iter(keys)
            .map(|(bucket, id, version)| async move {
                let key = SessionKey::Session(SessionId(id));
                let is_elsewhere = bucket != self.key(SessionId(id)).0;
                let facts =
                    if is_elsewhere { Facts::unreadable() } else { said(self.whole(key, false).await)? };
                let version = version.unwrap_or(NO_VERSION);
                let place = key_place(&[&bucket.to_be_bytes(), &version.to_be_bytes()]);
                Ok(Row { key, facts, place })
            })
            .buffered(READ_AT_ONCE)
            .try_collect()
            .await
    }

    /// Rows of tokens. One that has expired is none, though that it was used is remembered a little longer.
    pub(super) async fn token_rows(&self, keys: Vec<SessionKey>) -> StoreResult<Vec<Row<SessionKey>>> {
        stream::iter(keys)
            .map(|key| async move {
                let token = self.whole(key, false).await;
                let row = |facts| Row { key, facts, place: key_place(&[]) };
                Ok(if matches!(token, Ok(None)) { None } else { Some(row(said(token)?)) })
            })
            .buffered(READ_AT_ONCE)
            .try_filter_map(|row| ready(Ok(row)))
            .try_collect()
            .await
    }
}

/// How often a copy is put to decision while others change the same.
const PUT_DECISIONS_MAX: u32 = 2 * DECISIONS_MAX;

fn undecided(what: String) -> StoreError {
    StoreError::Unknown { what: format!("Cassandra, copy of {what}: not decided in time"), source: None }
}
