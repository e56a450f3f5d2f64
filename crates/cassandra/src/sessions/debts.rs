//! What a lost data centre is owed of sessions: the partitions that a write touched.
//!
//! Where the policy has read repair, they are read from all replicas. Where it has none, what stands in any
//! data centre is written once more in every one, under the stamps that it has: that is the same write again,
//! never a newer one, so it may come at any time, beside decisions too. What lists a session follows from the
//! session.
//!
//! Erased rows are not brought over so. Only a migration erases, and it waits until the entity is whole.

use async_trait::async_trait;
use mobimir_core::{
    id::SessionId,
    moving::SessionKey,
    ports::StoreResult,
    secret::SecretHash,
    session::{RefreshToken, Session},
    time::Timestamp,
};
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::{
    Inner, first_session,
    rows::{InsertRow, ListedRow, TokenRow, UnmergedRow, slot, unmerged_since},
    tokens::USE_KEPT_BEYOND_S,
    unmerged::SLOTS,
};
use crate::{
    link::{Debts, Owed, damaged},
    outbox::OutboxKey,
    registers::RegisterRow,
    stamps,
};

/// Each partition is a letter and a key.
const SESSION: u8 = b's';
const USER: u8 = b'u';
const TOKEN: u8 = b't';
const SLOT: u8 = b'm';
/// Of a user's session and its token.
const KEY_BYTES: usize = 3 + 16 + 16 + 32;

#[derive(Debug, PartialEq, Eq)]
enum Partition {
    Session(Uuid),
    User(Uuid),
    Token([u8; 32]),
    Slot(i64),
}

pub(super) fn owed(session: &Session, refresh: Option<&RefreshToken>) -> Owed {
    let mut key = Vec::with_capacity(KEY_BYTES);
    put(&mut key, SESSION, session.id.as_bytes());
    if let Some(user) = session.user() {
        put(&mut key, USER, user.as_bytes());
    }
    if let Some(token) = refresh {
        put(&mut key, TOKEN, &token.hash.0);
    }
    if let Some(closed_at) = unmerged_since(session) {
        put(&mut key, SLOT, &slot(closed_at).to_be_bytes());
    }
    Owed(key)
}

pub(super) fn owed_token(hash: SecretHash) -> Owed {
    let mut key = Vec::new();
    put(&mut key, TOKEN, &hash.0);
    Owed(key)
}

pub(super) fn owed_session(id: SessionId) -> Owed {
    let mut key = Vec::new();
    put(&mut key, SESSION, id.as_bytes());
    Owed(key)
}

pub(super) fn owed_slot(slot: i64) -> Owed {
    let mut key = Vec::new();
    put(&mut key, SLOT, &slot.to_be_bytes());
    Owed(key)
}

fn put(key: &mut Vec<u8>, letter: u8, partition: &[u8]) {
    key.push(letter);
    key.extend_from_slice(partition);
}

/// All partitions that a key names, up to one that it does not know.
fn partitions(mut key: &[u8]) -> Vec<Partition> {
    let mut partitions = Vec::new();
    while let Some((letter, rest)) = key.split_first() {
        let (partition, rest) = match *letter {
            SESSION => taken(rest, |id| Partition::Session(Uuid::from_bytes(id))),
            USER => taken(rest, |id| Partition::User(Uuid::from_bytes(id))),
            TOKEN => taken(rest, Partition::Token),
            SLOT => taken(rest, |slot| Partition::Slot(i64::from_be_bytes(slot))),
            _ => (None, rest),
        };
        let Some(partition) = partition else { break };
        partitions.push(partition);
        key = rest;
    }
    partitions
}

fn taken<const N: usize>(key: &[u8], partition: impl Fn([u8; N]) -> Partition) -> (Option<Partition>, &[u8]) {
    key.split_first_chunk::<N>().map_or((None, key), |(bytes, rest)| (Some(partition(*bytes)), rest))
}

#[async_trait]
impl Debts for Inner {
    async fn settle(&self, key: &[u8]) -> StoreResult<()> {
        let is_repaired = self.link.settings().read_repair;
        for partition in partitions(key) {
            match partition {
                Partition::Session(id) if is_repaired => {
                    self.link.read_of_all_replicas(&self.read, self.key(SessionId(id))).await?;
                    self.outbox.settle(&self.link, SessionKey::Session(SessionId(id))).await?;
                }
                // Marks need not be: they are read where they were left.
                Partition::Session(id) => self.bring(SessionId(id)).await?,
                Partition::User(id) if is_repaired => {
                    let all = (id, CqlTimestamp(i64::MAX), i32::MAX);
                    self.link.read_of_all_replicas(&self.listed, all).await?;
                }
                // Its session stands in the same key.
                Partition::User(_) => {}
                Partition::Token(hash) if is_repaired => {
                    self.link.read_of_all_replicas(&self.token, (hash.as_slice(),)).await?;
                    self.outbox.settle(&self.link, SessionKey::Token(SecretHash(hash))).await?;
                }
                Partition::Token(hash) => self.bring_token(SecretHash(hash)).await?,
                Partition::Slot(slot) if is_repaired => {
                    let end = Timestamp::from_millis(i64::MAX).as_millis();
                    let all = (slot, CqlTimestamp(i64::MIN), CqlTimestamp(end));
                    self.link.read_of_all_replicas(&self.unmerged, all).await?;
                    self.registers.settle(&self.link, SLOTS).await?;
                }
                Partition::Slot(slot) => self.bring_slot(slot).await?,
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Writes a session in every data centre as it is in one, with what lists it.
    pub(super) async fn bring(&self, id: SessionId) -> StoreResult<()> {
        let stored = first_session(id, &self.link.read(&self.written, self.key(id)).await?)?;
        let Some(stored) = stored.filter(|stored| stored.session.expires_at > stamps::real_now()) else {
            return Ok(());
        };
        self.link.write_everywhere(&self.insert, InsertRow::again(&stored, self.buckets)).await?;
        let stamp = self.link.stamps().next();
        if let Some(row) = ListedRow::of(&stored.session, stamp) {
            self.link.write_everywhere(&self.list, row.values()).await?;
        }
        if let Some(row) = UnmergedRow::of(&stored.session, stamp) {
            self.link.write_everywhere(&self.note_unmerged, row.values()).await?;
            self.bring_slot(slot(row.closed_at)).await?;
        }
        Ok(())
    }

    /// The same of a refresh token, and of its having been used.
    pub(super) async fn bring_token(&self, hash: SecretHash) -> StoreResult<()> {
        type Raw = (Option<Uuid>, Option<CqlTimestamp>, Option<Uuid>, Option<i64>, Option<i64>);
        let rows = self.link.read(&self.token_written, (hash.0.as_slice(),)).await?;
        let row = rows.maybe_first_row::<Raw>().map_err(|error| damaged("a refresh token", error))?;
        let Some((Some(session), Some(expires_at), used_by, Some(given_us), used_us)) = row else {
            return Ok(());
        };
        let expires_at = Timestamp::from_millis(expires_at.0);
        if expires_at <= stamps::real_now() {
            return Ok(());
        }
        let token = RefreshToken { hash, session: SessionId(session), expires_at };
        self.link.write_everywhere(&self.give_token, TokenRow { token, stamp: given_us }.values()).await?;
        if let (Some(used_by), Some(used_us)) = (used_by, used_us) {
            let ttl_s = stamps::ttl_s(expires_at.plus_s(USE_KEPT_BEYOND_S));
            let values = (ttl_s, used_us, used_by, hash.0.as_slice());
            self.link.write_everywhere(&self.use_again, values).await?;
        }
        Ok(())
    }

    /// That there is such a slot. One that is empty is forgotten again by who reads it.
    async fn bring_slot(&self, slot: i64) -> StoreResult<()> {
        let row = RegisterRow { list: SLOTS, entry: slot, stamp: self.link.stamps().next() };
        self.link.write_everywhere(&self.registers.note, row.values()).await?;
        self.set_done_to(slot, None);
        Ok(())
    }
}

/// A mark's key is what is owed of it.
impl OutboxKey for SessionKey {
    fn to_bytes(self) -> Vec<u8> {
        self.owed().0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match partitions(bytes)[..] {
            [Partition::Session(id)] => Some(Self::Session(SessionId(id))),
            [Partition::Token(hash)] => Some(Self::Token(SecretHash(hash))),
            _ => None,
        }
    }

    fn owed(self) -> Owed {
        match self {
            Self::Session(id) => owed_session(id),
            Self::Token(hash) => owed_token(hash),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back() {
        for key in
            [SessionKey::Session(SessionId(Uuid::from_u128(7))), SessionKey::Token(SecretHash([9; 32]))]
        {
            assert_eq!(SessionKey::from_bytes(&key.to_bytes()), Some(key));
        }
        assert_eq!(SessionKey::from_bytes(&owed_slot(3).0), None);
    }

    #[test]
    fn a_key_names_every_partition() {
        let mut key = owed_token(SecretHash([7; 32])).0;
        key.extend(owed_slot(-5).0);
        put(&mut key, USER, Uuid::from_u128(9).as_bytes());
        let expected = [Partition::Token([7; 32]), Partition::Slot(-5), Partition::User(Uuid::from_u128(9))];
        assert_eq!(partitions(&key), expected);
        assert_eq!(partitions(&[b'?', 1, 2]), []);
        assert_eq!(partitions(&key[..20]), []);
    }
}
