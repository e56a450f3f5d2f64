//! Changes of a session.

use mobimir_core::{
    id::SessionId,
    ports::{StoreError, StoreResult},
    session::{RefreshToken, Session},
    time::Version,
};
use uuid::Uuid;

use super::{
    DECISIONS_MAX, Inner, debts, fresh_id, pause,
    rows::{Batched, ListedRow, SessionRow, StoredSession, TokenRow, UnmergedRow, UpdateRow, unmerged_since},
};
use crate::link::{Decided, unknown};

/// What the stored session says about a change whose answer was lost.
enum Found {
    Ours,
    Anothers,
    /// As it was before.
    Neither,
    /// Somebody has changed it since, perhaps after us and perhaps instead of us.
    ChangedSince,
}

impl Inner {
    pub(super) async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let _turn = self.turns.of(session.id.as_bytes()).await;
        let Some(stored) = self.stored_at(session.id, expected).await? else { return Ok(false) };
        let stored = stored.session;
        let session = Session { holder: stored.holder, created_at: stored.created_at, ..session };
        self.list_first(&stored, &session).await?;
        if !self.decide(&stored, &session).await? {
            return Ok(false);
        }
        if let Some(token) = refresh {
            let row = TokenRow { token, stamp: self.link.stamps().first_write() };
            let written =
                self.link.write(&self.give_token, row.values(), debts::owed(&session, Some(&token))).await;
            written.map_err(unknown)?;
        }
        if unmerged_since(&stored).is_some() && unmerged_since(&session).is_none() {
            self.unlist_merged(&stored).await;
        }
        Ok(true)
    }

    /// The session, if its version is the expected one.
    async fn stored_at(&self, id: SessionId, expected: Version) -> StoreResult<Option<StoredSession>> {
        let has_moved_on = |stored: &StoredSession| stored.session.version > expected;
        let is_expected = |stored: &StoredSession| stored.session.version == expected;
        let stored = self.stored(id).await?;
        if stored.as_ref().is_some_and(|stored| is_expected(stored) || has_moved_on(stored)) {
            return Ok(stored.filter(is_expected));
        }
        // A read may come too early to see it.
        Ok(self.decided(id).await?.filter(is_expected))
    }

    /// What has to be there if the change happens, and does no harm if it does not.
    async fn list_first(&self, stored: &Session, session: &Session) -> StoreResult<()> {
        let lasts_longer = session.expires_at > stored.expires_at;
        let stamp = self.link.stamps().next();
        let listed = ListedRow::of(session, stamp).filter(|_| lasts_longer);
        let is_new = lasts_longer || unmerged_since(stored) != unmerged_since(session);
        let unmerged = UnmergedRow::of(session, stamp).filter(|_| is_new);
        let rows = listed.into_iter().map(Batched::Listed).collect();
        self.write(rows, unmerged, debts::owed(session, None)).await
    }

    async fn decide(&self, stored: &Session, session: &Session) -> StoreResult<bool> {
        let ours = fresh_id();
        let mut was_lost = None;
        let mut is_brought = false;
        for attempt in 0..DECISIONS_MAX {
            let columns = SessionRow::new(session, Some(stored), self.buckets, ours);
            let row = UpdateRow::new(session, columns, Some(stored.version.0.cast_signed()));
            match self.link.decide(&self.update, row, debts::owed(session, None)).await {
                Ok(Decided::Applied) => return Ok(true),
                Ok(Decided::Refused) if was_lost.is_none() => {
                    // It may have been written elsewhere, and never have arrived where sessions are decided.
                    if is_brought || !matches!(self.decided(session.id).await, Ok(None)) {
                        return Ok(false);
                    }
                    self.bring(session.id).await?;
                    is_brought = true;
                    continue;
                }
                // The condition may have failed because of ourselves.
                Ok(Decided::Refused) => {}
                Ok(Decided::Lost(failure)) => was_lost = Some(failure),
                Err(error) if was_lost.is_none() => return Err(error),
                Err(error) => return Err(unknown(error)),
            }
            let found = self.decided(session.id).await.map_err(unknown)?;
            match found_of(found.as_ref(), stored, session, ours) {
                Found::Ours => return Ok(true),
                Found::Anothers => return Ok(false),
                Found::Neither => pause(attempt).await,
                Found::ChangedSince => break,
            }
        }
        let why = was_lost.map_or_else(String::new, |failure| format!(": {failure}"));
        Err(StoreError::Unknown { what: format!("Cassandra, update of a session{why}"), source: None })
    }

    /// Only tidies up: who reads the list would find out, too.
    pub(super) async fn unlist_merged(&self, stored: &Session) {
        let Some(closed_at) = unmerged_since(stored) else { return };
        let (slot, stamp) = (super::rows::slot(closed_at), self.link.stamps().next());
        let values = (stamp, slot, super::rows::at(closed_at), stored.id.0);
        if let Err(error) = self.link.write(&self.merged, values, debts::owed(stored, None)).await {
            tracing::debug!(%error, "a merged session stays listed for now");
        }
    }
}

fn found_of(found: Option<&StoredSession>, before: &Session, session: &Session, ours: Uuid) -> Found {
    match found {
        Some(found) if found.changed_by == Some(ours) => Found::Ours,
        // It has expired.
        None => Found::Anothers,
        Some(found) if found.session.version == before.version => Found::Neither,
        // A change that came after ours would have a later version.
        Some(found) if found.session.version <= session.version => Found::Anothers,
        Some(_) => Found::ChangedSince,
    }
}
