//! Refresh tokens: each works once (SES-2).

use mobimir_core::{
    id::SessionId,
    moving::SessionKey,
    ports::{StoreError, StoreResult},
    secret::SecretHash,
    session::RefreshUse,
    time::Timestamp,
};
use scylla::{response::query_result::QueryRowsResult, value::CqlTimestamp};
use uuid::Uuid;

use super::{DECISIONS_MAX, Inner, debts, fresh_id, pause};
use crate::{
    link::{Decided, damaged, unknown},
    stamps,
};

pub(super) struct StoredToken {
    pub(super) session: SessionId,
    pub(super) expires_at: Timestamp,
    pub(super) used_by: Option<Uuid>,
}

/// That a token was used is remembered longer than the token, so that it is never forgotten before.
pub(super) const USE_KEPT_BEYOND_S: i64 = 60;

impl Inner {
    pub(super) async fn use_refresh(
        &self,
        hash: SecretHash,
        now: Timestamp,
        is_tracked: bool,
    ) -> StoreResult<RefreshUse> {
        let _turn = self.turns.of(&hash.0).await;
        let stored = match self.token(hash).await? {
            None if !self.sees_writes => self.decided_token(hash).await?,
            stored => stored,
        };
        let Some(token) = stored.filter(|token| token.expires_at > now) else {
            return Ok(RefreshUse::Unknown);
        };
        if token.used_by.is_some() {
            return Ok(RefreshUse::Again(token.session));
        }
        // Only from here on something changes: whoever tries tokens that are none leaves no marks.
        let keys = [SessionKey::Token(hash)];
        self.tracked(is_tracked, &keys, self.use_up(hash, &token)).await
    }

    async fn use_up(&self, hash: SecretHash, token: &StoredToken) -> StoreResult<RefreshUse> {
        let ours = fresh_id();
        let mut was_lost = None;
        for attempt in 0..DECISIONS_MAX {
            let ttl_s = stamps::ttl_s(token.expires_at.plus_s(USE_KEPT_BEYOND_S));
            let values = (ttl_s, ours, hash.0.as_slice(), token.session.0);
            match self.link.decide(&self.use_token, values, debts::owed_token(hash)).await {
                Ok(Decided::Applied) => return Ok(RefreshUse::First(token.session)),
                // It may have been used by ourselves, or not have arrived where tokens are decided.
                Ok(Decided::Refused) => {}
                Ok(Decided::Lost(failure)) => was_lost = Some(failure),
                Err(error) if was_lost.is_none() => return Err(error),
                Err(error) => return Err(unknown(error)),
            }
            match self.decided_token(hash).await.map_err(unknown)? {
                Some(StoredToken { used_by: Some(by), .. }) if by == ours => {
                    return Ok(RefreshUse::First(token.session));
                }
                Some(StoredToken { used_by: Some(_), .. }) => return Ok(RefreshUse::Again(token.session)),
                None if token.expires_at <= stamps::real_now() => return Ok(RefreshUse::Unknown),
                // It may have been given out elsewhere, and never have arrived where tokens are decided.
                None => match self.bring_token(hash).await {
                    Err(error) if was_lost.is_some() => return Err(unknown(error)),
                    brought => brought?,
                },
                Some(_) => pause(attempt).await,
            }
        }
        Err(match was_lost {
            Some(failure) => {
                let what = format!("Cassandra, use of a refresh token: {failure}");
                StoreError::Unknown { what, source: None }
            }
            None => StoreError::Unavailable {
                what: "Cassandra, use of a refresh token: it is not yet where tokens are decided".to_owned(),
                source: None,
            },
        })
    }

    async fn token(&self, hash: SecretHash) -> StoreResult<Option<StoredToken>> {
        first_token(&self.link.read(&self.token, (hash.0.as_slice(),)).await?)
    }

    pub(super) async fn decided_token(&self, hash: SecretHash) -> StoreResult<Option<StoredToken>> {
        first_token(&self.link.read_decided(&self.token, (hash.0.as_slice(),)).await?)
    }
}

pub(super) fn first_token(rows: &QueryRowsResult) -> StoreResult<Option<StoredToken>> {
    type Raw = (Option<Uuid>, Option<CqlTimestamp>, Option<Uuid>);
    let row = rows.maybe_first_row::<Raw>().map_err(|error| damaged("a refresh token", error))?;
    // Without its session it has expired, and only its use is left.
    Ok(row.and_then(|(session, expires_at, used_by)| {
        let expires_at = Timestamp::from_millis(expires_at?.0);
        Some(StoredToken { session: SessionId(session?), expires_at, used_by })
    }))
}
