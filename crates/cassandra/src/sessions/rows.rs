//! The rows of sessions, as they are bound and read.

use std::net::IpAddr;

use mobimir_core::{
    id::{SessionId, UserId},
    ports::{StoreError, StoreResult},
    secret::SecretHash,
    session::{Holder, RefreshToken, Session, SessionState},
    time::{Timestamp, Version},
};
use scylla::{
    DeserializeRow, SerializeRow,
    errors::SerializationError,
    serialize::{
        row::{RowSerializationContext, SerializeRow as Bound},
        writers::RowWriter,
    },
    value::{CqlTimestamp, MaybeUnset},
};
use uuid::Uuid;

use crate::{registers::RegisterRow, stamps};

/// The columns of `sessions` that are not its key.
pub(crate) const COLUMNS: [&str; 14] = [
    "user_id",
    "token_hash",
    "state",
    "state_at",
    "closed_into",
    "merged",
    "ip_address",
    "user_agent",
    "device",
    "created_at",
    "last_active",
    "expires_at",
    "version",
    "changed_by",
];

/// What is asked of a session: [`RawSession`].
pub(crate) fn selected() -> String {
    format!("{}, WRITETIME(version) AS written_us", COLUMNS.join(", "))
}

const LIVE: &str = "live";
const REVOKED: &str = "revoked";
const CLOSED: &str = "closed";

const SLOT_MS: i64 = 10 * 60_000;

/// The bucket that a session stands in.
pub(super) fn bucket(id: SessionId, buckets: u16) -> i32 {
    // FNV-1a: stored keys depend on it, so it has to stay what it is.
    let hash = id.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    match u64::from(buckets) {
        0 => 0,
        buckets => i32::try_from(hash % buckets).unwrap_or_default(),
    }
}

/// The partition of `sessions_unmerged` for those closed at a time.
pub(super) fn slot(closed_at: Timestamp) -> i64 {
    closed_at.as_millis().div_euclid(SLOT_MS)
}

/// The first moment after a slot.
pub(super) fn slot_end(slot: i64) -> Timestamp {
    Timestamp::from_millis(slot.saturating_add(1).saturating_mul(SLOT_MS))
}

pub(super) fn at(time: Timestamp) -> CqlTimestamp {
    CqlTimestamp(time.as_millis())
}

/// When a guest's session was closed, if its cart is not known to be merged.
pub(super) fn unmerged_since(session: &Session) -> Option<Timestamp> {
    match session.state {
        SessionState::Closed { at, merged: false, .. } => Some(at),
        _ => None,
    }
}

/// A session as it is bound, in the order of [`COLUMNS`], with its key.
#[derive(SerializeRow)]
#[scylla(flavor = "enforce_order")]
pub(super) struct SessionRow<'a> {
    user_id: MaybeUnset<Option<Uuid>>,
    token_hash: &'a [u8],
    state: &'static str,
    state_at: MaybeUnset<Option<CqlTimestamp>>,
    closed_into: MaybeUnset<Option<Uuid>>,
    merged: MaybeUnset<Option<bool>>,
    ip_address: MaybeUnset<Option<IpAddr>>,
    user_agent: MaybeUnset<Option<&'a str>>,
    device: MaybeUnset<Option<&'a str>>,
    created_at: CqlTimestamp,
    last_active: CqlTimestamp,
    expires_at: CqlTimestamp,
    version: i64,
    changed_by: Uuid,
    bucket: i32,
    session_id: Uuid,
}

#[derive(SerializeRow)]
#[scylla(flavor = "enforce_order")]
pub(super) struct InsertRow<'a> {
    ttl: i32,
    stamp: i64,
    #[scylla(flatten)]
    session: SessionRow<'a>,
}

#[derive(SerializeRow)]
#[scylla(flavor = "enforce_order")]
pub(super) struct UpdateRow<'a> {
    ttl: i32,
    #[scylla(flatten)]
    session: SessionRow<'a>,
    /// None where there is no session yet.
    expected: Option<i64>,
}

impl<'a> InsertRow<'a> {
    pub(super) fn new(session: &'a Session, buckets: u16, changed_by: Uuid, stamp: i64) -> Self {
        let columns = SessionRow::new(session, None, buckets, changed_by);
        Self { ttl: stamps::ttl_s(session.expires_at), stamp, session: columns }
    }

    /// What is stored, once more and exactly as it was written then, emptiness included.
    pub(super) fn again(stored: &'a StoredSession, buckets: u16) -> Self {
        let changed_by = stored.changed_by.unwrap_or_default();
        let ttl = stamps::ttl_s(stored.session.expires_at);
        let session = SessionRow::whole(&stored.session, buckets, changed_by);
        Self { ttl, stamp: stored.written_us, session }
    }
}

impl<'a> UpdateRow<'a> {
    pub(super) fn new(of: &Session, session: SessionRow<'a>, expected: Option<i64>) -> Self {
        Self { ttl: stamps::ttl_s(of.expires_at), session, expected }
    }
}

impl<'a> SessionRow<'a> {
    /// The row that makes `stored` into `session`.
    pub(super) fn new(
        session: &'a Session,
        stored: Option<&Session>,
        buckets: u16,
        changed_by: Uuid,
    ) -> Self {
        let (state, state_at, closed_into, merged) = state_columns(session.state);
        let (_, was_at, was_into, was_merged) =
            stored.map_or((LIVE, None, None, None), |stored| state_columns(stored.state));
        let had = |has: fn(&Session) -> bool| stored.is_some_and(has);
        Self {
            bucket: bucket(session.id, buckets),
            session_id: session.id.0,
            user_id: change(session.user().map(|user| user.0), had(|stored| stored.user().is_some())),
            token_hash: &session.token_hash.0,
            state,
            state_at: change(state_at, was_at.is_some()),
            closed_into: change(closed_into, was_into.is_some()),
            merged: change(merged, was_merged.is_some()),
            ip_address: change(session.ip_address, had(|stored| stored.ip_address.is_some())),
            user_agent: change(session.user_agent.as_deref(), had(|stored| stored.user_agent.is_some())),
            device: change(session.device.as_deref(), had(|stored| stored.device.is_some())),
            created_at: at(session.created_at),
            last_active: at(session.last_active),
            expires_at: at(session.expires_at),
            version: session.version.0.cast_signed(),
            changed_by,
        }
    }

    /// The row that makes whatever is there into `session`, also what arrives late and was written before.
    pub(super) fn whole(session: &'a Session, buckets: u16, changed_by: Uuid) -> Self {
        fn set<T>(column: MaybeUnset<Option<T>>) -> MaybeUnset<Option<T>> {
            match column {
                MaybeUnset::Unset => MaybeUnset::Set(None),
                set => set,
            }
        }
        let row = Self::new(session, None, buckets, changed_by);
        Self {
            user_id: set(row.user_id),
            state_at: set(row.state_at),
            closed_into: set(row.closed_into),
            merged: set(row.merged),
            ip_address: set(row.ip_address),
            user_agent: set(row.user_agent),
            device: set(row.device),
            ..row
        }
    }
}

/// A column that was empty and stays so is left alone: to write that it is empty would leave a tombstone.
fn change<T>(value: Option<T>, had_one: bool) -> MaybeUnset<Option<T>> {
    match value {
        None if !had_one => MaybeUnset::Unset,
        value => MaybeUnset::Set(value),
    }
}

fn state_columns(state: SessionState) -> (&'static str, Option<CqlTimestamp>, Option<Uuid>, Option<bool>) {
    match state {
        SessionState::Live => (LIVE, None, None, None),
        SessionState::Revoked { at: time } => (REVOKED, Some(at(time)), None, None),
        SessionState::Closed { at: time, into, merged } => {
            (CLOSED, Some(at(time)), Some(into.0), Some(merged))
        }
    }
}

/// Where a user's session stands in the list of them.
pub(super) struct ListedRow {
    pub(super) user: UserId,
    pub(super) created_at: Timestamp,
    pub(super) session: SessionId,
    pub(super) ttl_s: i32,
    pub(super) stamp: i64,
}

impl ListedRow {
    /// For a user's session; a guest's is not listed.
    pub(super) fn of(session: &Session, stamp: i64) -> Option<Self> {
        Some(Self {
            user: session.user()?,
            created_at: session.created_at,
            session: session.id,
            ttl_s: stamps::ttl_s(session.expires_at),
            stamp,
        })
    }

    pub(super) fn values(&self) -> impl Bound {
        (self.user.0, at(self.created_at), self.session.0, self.ttl_s, self.stamp)
    }
}

pub(super) struct TokenRow {
    pub(super) token: RefreshToken,
    pub(super) stamp: i64,
}

impl TokenRow {
    pub(super) fn values(&self) -> impl Bound + '_ {
        let RefreshToken { hash, session, expires_at } = &self.token;
        (hash.0.as_slice(), session.0, at(*expires_at), stamps::ttl_s(*expires_at), self.stamp)
    }
}

/// That a session may be closed by then, with this version.
pub(super) struct UnmergedRow {
    pub(super) closed_at: Timestamp,
    session: SessionId,
    version: Version,
    ttl_s: i32,
    stamp: i64,
}

impl UnmergedRow {
    /// For a session whose guest's cart is not known to be merged.
    pub(super) fn of(session: &Session, stamp: i64) -> Option<Self> {
        Some(Self {
            closed_at: unmerged_since(session)?,
            session: session.id,
            version: session.version,
            ttl_s: stamps::ttl_s(session.expires_at),
            stamp,
        })
    }

    pub(super) fn values(&self) -> impl Bound {
        let version = self.version.0.cast_signed();
        (slot(self.closed_at), at(self.closed_at), self.session.0, version, self.ttl_s, self.stamp)
    }
}

/// What stands together in a batch.
pub(super) enum Batched<'a> {
    Session(Box<InsertRow<'a>>),
    Listed(ListedRow),
    Token(TokenRow),
    Unmerged(UnmergedRow),
    Register(RegisterRow),
}

impl Bound for Batched<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            Self::Session(row) => row.serialize(context, writer),
            Self::Listed(row) => row.values().serialize(context, writer),
            Self::Token(row) => row.values().serialize(context, writer),
            Self::Unmerged(row) => row.values().serialize(context, writer),
            Self::Register(row) => row.values().serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// A session as it was read, in the order of [`selected`].
#[derive(DeserializeRow)]
#[scylla(flavor = "enforce_order")]
pub(super) struct RawSession<'a> {
    user_id: Option<Uuid>,
    token_hash: Option<&'a [u8]>,
    state: Option<&'a str>,
    state_at: Option<CqlTimestamp>,
    closed_into: Option<Uuid>,
    merged: Option<bool>,
    ip_address: Option<IpAddr>,
    user_agent: Option<&'a str>,
    device: Option<&'a str>,
    created_at: Option<CqlTimestamp>,
    last_active: Option<CqlTimestamp>,
    expires_at: Option<CqlTimestamp>,
    version: Option<i64>,
    changed_by: Option<Uuid>,
    written_us: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredSession {
    pub(super) session: Session,
    /// Of the write that made it so.
    pub(super) changed_by: Option<Uuid>,
    /// The stamp of all its columns: every write writes all that are not empty.
    pub(super) written_us: i64,
}

impl StoredSession {
    pub(super) fn decode(id: SessionId, raw: RawSession<'_>) -> StoreResult<Self> {
        let session = raw.session(id).ok_or_else(|| damaged_session(id))?;
        Ok(Self { session, changed_by: raw.changed_by, written_us: raw.written_us.unwrap_or_default() })
    }
}

impl RawSession<'_> {
    fn session(&self, id: SessionId) -> Option<Session> {
        let time = |time: CqlTimestamp| Timestamp::from_millis(time.0);
        let state = match self.state? {
            LIVE => SessionState::Live,
            REVOKED => SessionState::Revoked { at: time(self.state_at?) },
            CLOSED => SessionState::Closed {
                at: time(self.state_at?),
                into: UserId(self.closed_into?),
                merged: self.merged?,
            },
            _ => return None,
        };
        Some(Session {
            id,
            holder: self.user_id.map_or(Holder::Guest, |user| Holder::User(UserId(user))),
            token_hash: SecretHash(self.token_hash?.try_into().ok()?),
            state,
            ip_address: self.ip_address,
            user_agent: self.user_agent.map(str::to_owned),
            device: self.device.map(str::to_owned),
            created_at: time(self.created_at?),
            last_active: time(self.last_active?),
            expires_at: time(self.expires_at?),
            version: Version(self.version?.cast_unsigned()),
        })
    }
}

fn damaged_session(id: SessionId) -> StoreError {
    StoreError::Corrupt {
        what: format!("the session {id} lacks columns, or has a state that is none"),
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_spread_over_all_buckets_and_always_the_same_way() {
        let id = |n: u128| SessionId(Uuid::from_u128(n << 64 | 0x8000_0000_0000_0000));
        let mut sessions = [0; 8];
        for n in 0..8_000 {
            sessions[usize::try_from(bucket(id(n), 8)).unwrap()] += 1;
        }
        assert!(sessions.iter().all(|count| (800..1_200).contains(count)), "{sessions:?}");
        assert_eq!(bucket(id(7), 0), 0);
        // Whoever changes this loses all sessions that are stored.
        assert_eq!((bucket(id(7), 100), bucket(id(8), 100)), (12, 37));
    }

    #[test]
    fn a_slot_is_ten_minutes() {
        let time = Timestamp::from_millis(1_200_000);
        assert_eq!((slot(time), slot(time.plus_ms(-1)), slot_end(slot(time))), (2, 1, time.plus_ms(600_000)));
    }
}
