//! The sessions of a user.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    id::{SessionId, UserId},
    page::Page,
    ports::{StoreError, StoreResult},
    session::{Session, SessionPosition},
    time::Timestamp,
};
use scylla::{response::query_result::QueryRowsResult, value::CqlTimestamp};
use uuid::Uuid;

use super::{Inner, rows::at};
use crate::link::damaged;

/// Positions that are read at once at least, since some will be of sessions that have ended.
const POSITIONS_AT_ONCE_MIN: usize = 32;
/// Sessions of one user that one call looks at to find the live ones. A page may end here, with a `next`.
const POSITIONS_LOOKED_AT_MAX: usize = 1_000;
pub(super) const SESSIONS_READ_AT_ONCE: usize = 16;

impl Inner {
    pub(super) async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        let at_once = limit.saturating_add(1).clamp(POSITIONS_AT_ONCE_MIN, POSITIONS_LOOKED_AT_MAX);
        let mut after = after;
        let mut live = Vec::new();
        let mut looked_at = 0;
        loop {
            let positions = self.positions(user, after, at_once).await?;
            let is_last = positions.len() < at_once;
            looked_at += positions.len();
            after = positions.last().copied();
            let ids = positions.into_iter().map(|position| position.session_id).collect();
            live.extend(self.sessions(ids).await?.into_iter().filter(|session| session.is_live(now)));
            if is_last || live.len() > limit {
                return Ok(Page::cut(live, limit, Session::position));
            }
            if looked_at >= POSITIONS_LOOKED_AT_MAX {
                return Ok(Page { items: live, next: after });
            }
        }
    }

    /// The next `count` positions, or all that are left.
    async fn positions(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        count: usize,
    ) -> StoreResult<Vec<SessionPosition>> {
        let limit = i32::try_from(count).unwrap_or(i32::MAX);
        let Some(SessionPosition { created_at, session_id }) = after else {
            let all = (user.0, CqlTimestamp(i64::MAX), limit);
            return positions_in(&self.link.read(&self.listed, all).await?);
        };
        // Times fall and, within one of them, ids rise: that is no range, but two.
        let (of_then, before) = futures_util::try_join!(
            self.link.read(&self.listed_at, (user.0, at(created_at), session_id.0, limit)),
            self.link.read(&self.listed, (user.0, at(created_at), limit)),
        )?;
        let mut positions = positions_in(&of_then)?;
        positions.extend(positions_in(&before)?);
        positions.truncate(count);
        Ok(positions)
    }

    /// Those that exist, in the order in which they are named.
    pub(super) async fn sessions(&self, ids: Vec<SessionId>) -> StoreResult<Vec<Session>> {
        let found: Vec<Option<Session>> = stream::iter(ids)
            .map(async |id| Ok::<_, StoreError>(self.stored(id).await?.map(|stored| stored.session)))
            .buffered(SESSIONS_READ_AT_ONCE)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }
}

fn positions_in(rows: &QueryRowsResult) -> StoreResult<Vec<SessionPosition>> {
    let rows = rows.rows::<(CqlTimestamp, Uuid)>().map_err(|error| damaged("a list of sessions", error))?;
    rows.map(|row| {
        let (created_at, id) = row.map_err(|error| damaged("a list of sessions", error))?;
        Ok(SessionPosition { created_at: Timestamp::from_millis(created_at.0), session_id: SessionId(id) })
    })
    .collect()
}
