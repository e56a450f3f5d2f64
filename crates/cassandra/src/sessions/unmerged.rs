//! Guests who logged in and whose cart may still have to be merged.
//!
//! An entry is written before the decision that closes the session, and says which version the session will then have.
//! If it comes to have that version or a later one and is not closed as the entry says, it never will be: that
//! entry is of no more use, and whoever sees it removes it.
//!
//! Removed entries leave tombstones that every later read has to pass. So an instance remembers up to where a slot
//! was done, and slots that are done as a whole are taken out of the register.

use std::{collections::HashMap, sync::PoisonError};

use mobimir_core::{
    id::SessionId,
    ports::StoreResult,
    session::Session,
    time::{Timestamp, Version},
};
use scylla::{response::PagingState, value::CqlTimestamp};
use uuid::Uuid;

use super::{
    Inner, debts,
    rows::{at, slot, slot_end, unmerged_since},
};
use crate::{link::damaged, registers::List, stamps};

/// The register of slots.
pub(super) const SLOTS: List = List::Whole("unmerged");

/// An entry is there this long after the time it names, at the latest, or it will not be: no request runs that long.
const ENTRIES_LATE_MS_MAX: i64 = 5 * 60_000;
/// Empty slots are taken out of the register when they ended this long ago.
const SLOTS_KEPT_MS: i64 = 3_600_000;
/// Unless they were noted since: by somebody whose clock is late.
const SLOTS_NOTED_LATE_US_MAX: i64 = 1_800_000_000;
/// How long an instance believes that a slot is done up to where it was: copies of sessions come later than anything.
const DONE_BELIEVED_MS: i64 = 600_000;
/// Entries that one call looks at. The rest is for the next.
const ENTRIES_LOOKED_AT_MAX: usize = 5_000;

#[derive(Clone, Copy)]
struct Entry {
    closed_at: Timestamp,
    session: SessionId,
    version: Version,
}

impl Inner {
    pub(super) async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        let mut unmerged = Vec::new();
        let mut looked_at = 0;
        let last_slot = slot(closed_before.plus_ms(-1));
        for slot in self.registers.entries(&self.link, SLOTS).await? {
            if slot > last_slot || unmerged.len() >= limit || looked_at >= ENTRIES_LOOKED_AT_MAX {
                break;
            }
            looked_at += self.unmerged_in(slot, closed_before, limit, now, &mut unmerged).await?;
        }
        Ok(unmerged)
    }

    /// Adds those of one slot, and says how many entries it looked at.
    async fn unmerged_in(
        &self,
        slot: i64,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
        unmerged: &mut Vec<Session>,
    ) -> StoreResult<usize> {
        let (seen_at, real_now) = (self.link.stamps().next(), stamps::real_now());
        let done_to = self.done_to(slot);
        let end = slot_end(slot).min(closed_before);
        let mut first_kept = None;
        let mut looked_at = 0;
        let mut from = PagingState::start();
        loop {
            let values = (slot, at(done_to), at(end));
            let (rows, next) = self.link.read_page(&self.unmerged, values, from).await?;
            let mut entries = Vec::with_capacity(rows.rows_num());
            type Raw = (CqlTimestamp, Uuid, i64);
            for row in rows.rows::<Raw>().map_err(|error| damaged("a list of closed sessions", error))? {
                let (closed_at, session, version) =
                    row.map_err(|error| damaged("a list of closed sessions", error))?;
                entries.push(Entry {
                    closed_at: Timestamp::from_millis(closed_at.0),
                    session: SessionId(session),
                    version: Version(version.cast_unsigned()),
                });
            }
            for entries in entries.chunks(super::listing::SESSIONS_READ_AT_ONCE) {
                looked_at += entries.len();
                let ids = entries.iter().map(|entry| entry.session).collect();
                let sessions: HashMap<SessionId, Session> =
                    self.sessions(ids).await?.into_iter().map(|session| (session.id, session)).collect();
                for entry in entries {
                    let session = sessions.get(&entry.session);
                    if session.is_some_and(|session| entry.is_void(session)) {
                        self.remove(slot, entry).await;
                        continue;
                    }
                    first_kept.get_or_insert(entry.closed_at);
                    let is_wanted = |session: &&Session| {
                        unmerged_since(session) == Some(entry.closed_at) && session.expires_at > now
                    };
                    // Whoever tried twice at the same time has two entries.
                    let is_new =
                        |session: &&Session| unmerged.iter().rev().all(|found| found.id != session.id);
                    if let Some(session) = session.filter(is_wanted).filter(is_new) {
                        unmerged.push(session.clone());
                        if unmerged.len() >= limit {
                            return Ok(looked_at);
                        }
                    }
                }
            }
            match next {
                Some(next) if looked_at < ENTRIES_LOOKED_AT_MAX => from = next,
                Some(_) => return Ok(looked_at),
                None => break,
            }
        }
        let is_empty = first_kept.is_none() && end == slot_end(slot);
        if is_empty && real_now.since(end) > SLOTS_KEPT_MS {
            self.registers.forget(&self.link, SLOTS, slot, seen_at - SLOTS_NOTED_LATE_US_MAX).await?;
            self.set_done_to(slot, None);
        } else {
            let done_to = first_kept.unwrap_or(end).min(real_now.plus_ms(-ENTRIES_LATE_MS_MAX));
            self.set_done_to(slot, Some(done_to));
        }
        Ok(looked_at)
    }

    fn done_to(&self, slot: i64) -> Timestamp {
        let done_to = self.done_to.lock().unwrap_or_else(PoisonError::into_inner);
        let believed =
            |(_, since): &&(Timestamp, Timestamp)| stamps::real_now().since(*since) < DONE_BELIEVED_MS;
        done_to.get(&slot).filter(believed).map_or_else(|| slot_end(slot - 1), |(done_to, _)| *done_to)
    }

    pub(super) fn set_done_to(&self, slot: i64, time: Option<Timestamp>) {
        let mut done_to = self.done_to.lock().unwrap_or_else(PoisonError::into_inner);
        match time.filter(|time| *time > slot_end(slot - 1)) {
            Some(time) => {
                let now = stamps::real_now();
                let (_, since) = done_to.get(&slot).copied().unwrap_or((time, now));
                let since = if now.since(since) < DONE_BELIEVED_MS { since } else { now };
                done_to.insert(slot, (time, since));
            }
            None => drop(done_to.remove(&slot)),
        }
    }

    async fn remove(&self, slot: i64, entry: &Entry) {
        let stamp = self.link.stamps().next();
        let values = (stamp, slot, at(entry.closed_at), entry.session.0, entry.version.0.cast_signed());
        if let Err(error) = self.link.write(&self.remove_unmerged, values, debts::owed_slot(slot)).await {
            // The next who sees it will try again.
            tracing::debug!(%error, "a session that was dealt with stays listed for now");
        }
    }
}

impl Entry {
    /// Whether the session was not closed by what this entry announced, and cannot be any more.
    fn is_void(&self, session: &Session) -> bool {
        session.version >= self.version && unmerged_since(session) != Some(self.closed_at)
    }
}

#[cfg(test)]
mod tests {
    use mobimir_core::{
        id::UserId,
        secret::SecretHash,
        session::{Holder, SessionState},
    };

    use super::*;

    fn session(version: u64, state: SessionState) -> Session {
        let time = Timestamp::from_millis(1_000);
        Session {
            id: SessionId(Uuid::from_u128(1)),
            holder: Holder::Guest,
            token_hash: SecretHash([0; 32]),
            state,
            ip_address: None,
            user_agent: None,
            device: None,
            created_at: time,
            last_active: time,
            expires_at: time,
            version: Version(version),
        }
    }

    #[test]
    fn an_entry_is_void_when_its_session_went_another_way() {
        let closed = |at_ms: i64, merged: bool| SessionState::Closed {
            at: Timestamp::from_millis(at_ms),
            into: UserId(Uuid::from_u128(2)),
            merged,
        };
        let entry = Entry {
            closed_at: Timestamp::from_millis(5),
            session: SessionId(Uuid::from_u128(1)),
            version: Version(7),
        };
        // The decision may still come.
        assert!(!entry.is_void(&session(6, SessionState::Live)));
        assert!(!entry.is_void(&session(7, closed(5, false))));
        assert!(!entry.is_void(&session(9, closed(5, false))));
        assert!(entry.is_void(&session(8, closed(5, true))));
        assert!(entry.is_void(&session(7, closed(6, false))));
        assert!(entry.is_void(&session(8, SessionState::Live)));
    }
}
