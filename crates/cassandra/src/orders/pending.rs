//! Notes of what is about to be done to an order, so that its lists are brought up to date whoever dies meanwhile.
//!
//! A note is durable before the order itself is touched, and removed when the lists are written. Every instance looks for
//! notes that nobody removed, writes the lists once more from what was decided, and removes them.
//!
//! Notes stand in slots of time, so that what was removed does not pile up where it is read: an instance reads on from where
//! nothing was left, all from the beginning now and then, and takes a slot off the register when it is old and empty.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::{
    future::try_join,
    stream::{self, StreamExt, TryStreamExt},
};
use mobimir_core::{
    id::{self, OrderId},
    order::Order,
    ports::StoreResult,
};
use scylla::{response::PagingState, value::CqlTimestamp};
use uuid::Uuid;

use super::{
    Inner, OrderOptions,
    rows::{RawOrder, Written, cql_time},
};
use crate::{
    ConnectError, StatementKind, cql,
    link::{Link, Statement, damaged},
    registers::{List, Registers},
    stamps,
};

pub(super) struct Pending {
    note: Statement,
    note_new: Statement,
    remove: Statement,
    notes: Statement,
    seen: Mutex<Seen>,
}

/// How far this instance has looked.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Before this nothing is left.
    until_us: i64,
    /// When everything was looked at last.
    all_at_us: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Note {
    /// A new order, as it is to be written.
    new: Option<Box<Order>>,
    noted_us: i64,
    pub(super) order: OrderId,
    move_id: Uuid,
    /// The number of the move in the order's history.
    seq: i32,
}

/// The register of slots.
const SLOTS: List = List::Whole("moves");
const SLOT_US: i64 = 60_000_000;
/// Partitions of a slot.
const SHARDS: i8 = 16;
const SHARDS_AT_ONCE: usize = 8;
const NOTES_AT_ONCE: usize = 8;
/// How often all slots are read from their beginning, for notes of instances with a slow clock.
const ALL_EVERY_US: i64 = 600_000_000;
/// Slots this old are written to no more.
const SLOT_ENDS_US: i64 = 30 * SLOT_US;
/// How much later than its stamp a note may still arrive, beside the time that a request takes.
const LATE_US: i64 = 30_000_000;

/// noted_us, order_id, move_id, seq; and of a new order user_id, geo_zone, created_at, bucket, body, status,
/// updated_at, version
type RawNote<'a> = (
    i64,
    Uuid,
    Uuid,
    i32,
    Option<Uuid>,
    Option<&'a str>,
    Option<CqlTimestamp>,
    Option<i32>,
    Option<&'a [u8]>,
    Option<&'a str>,
    Option<CqlTimestamp>,
    Option<i64>,
);

impl Note {
    fn decode(
        (noted_us, id, move_id, seq, user, zone, created, bucket, body, status, updated, version): RawNote<
            '_,
        >,
    ) -> StoreResult<Self> {
        let new = (|| {
            Some(RawOrder {
                id,
                user_id: user?,
                geo_zone: zone?,
                created_at: created?,
                bucket: bucket?,
                body: body?,
                status: status?,
                updated_at: updated?,
                version: version?,
            })
        })();
        let new = new.map(RawOrder::decode).transpose()?.map(Box::new);
        Ok(Self { noted_us, order: OrderId(id), move_id, seq, new })
    }

    fn slot(&self) -> i64 {
        self.noted_us.div_euclid(SLOT_US)
    }

    fn shard(&self) -> i8 {
        (self.order.as_bytes()[15] % SHARDS.unsigned_abs()).cast_signed()
    }
}

impl Pending {
    pub(super) async fn open(link: &Link) -> Result<Self, ConnectError> {
        use StatementKind::{Read, Write};
        Ok(Self {
            note: link
                .prepare(
                    "note",
                    Write,
                    "INSERT INTO {}.pending_moves (slot, shard, noted_us, order_id, move_id, seq) \
                    VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
                )
                .await?,
            note_new: link.prepare("note_new", Write, cql::NOTE_NEW_ORDER).await?,
            remove: link.prepare("remove_note", Write, cql::REMOVE_NOTE).await?,
            notes: link
                .prepare(
                    "notes",
                    Read,
                    "SELECT noted_us, order_id, move_id, seq, user_id, geo_zone, created_at, bucket, body, status, updated_at, version \
                    FROM {}.pending_moves \
                    WHERE slot = ? AND shard = ? AND noted_us >= ? AND noted_us < ?",
                )
                .await?,
            seen: Mutex::default(),
        })
    }

    /// Writes down that the order is about to get the row `seq` of its history.
    pub(super) async fn note(
        &self,
        link: &Link,
        registers: &Registers,
        order: OrderId,
        move_id: Uuid,
        seq: i32,
    ) -> StoreResult<Note> {
        let note = Note { noted_us: link.stamps().next(), order, move_id, seq, new: None };
        let values = (note.slot(), note.shard(), note.noted_us, order.0, move_id, seq, note.noted_us);
        // Both are there before the order is touched.
        try_join(
            registers.ensure(link, SLOTS, note.slot(), super::owed(order)),
            link.write(&self.note, values, super::owed(order)),
        )
        .await?;
        Ok(note)
    }

    /// Writes down a new order, before any of its rows.
    pub(super) async fn note_new(
        &self,
        link: &Link,
        registers: &Registers,
        written: &Written,
    ) -> StoreResult<Note> {
        let order = &written.order;
        let (noted_us, move_id) = (link.stamps().next(), move_id());
        let note = Note { noted_us, order: order.id, move_id, seq: 0, new: None };
        let values = (
            note.slot(),
            note.shard(),
            noted_us,
            order.id.0,
            move_id,
            order.user_id.0,
            order.geo_zone.as_str(),
            cql_time(order.created_at),
            i32::from(order.bucket),
            written.body.as_slice(),
            order.status.as_str(),
            cql_time(order.updated_at),
            order.version.0.cast_signed(),
            noted_us,
        );
        try_join(
            registers.ensure(link, SLOTS, note.slot(), super::owed(order.id)),
            link.write(&self.note_new, values, super::owed(order.id)),
        )
        .await?;
        Ok(note)
    }

    pub(super) async fn remove(&self, link: &Link, note: &Note) -> StoreResult<()> {
        // Another instance's clock may be ahead.
        let stamp = link.stamps().next().max(note.noted_us + 1);
        let values = (stamp, note.slot(), note.shard(), note.noted_us, note.order.0, note.move_id);
        link.write(&self.remove, values, super::owed(note.order)).await
    }

    async fn read(
        &self,
        link: &Link,
        slot: i64,
        shard: i8,
        from_us: i64,
        to_us: i64,
    ) -> StoreResult<Vec<Note>> {
        let mut notes = Vec::new();
        let mut from = PagingState::start();
        loop {
            let values = (slot, shard, from_us, to_us);
            let (rows, next) = link.read_page(&self.notes, values, from).await?;
            for row in rows.rows::<RawNote<'_>>().map_err(|error| damaged("a note of a move", error))? {
                notes.push(Note::decode(row.map_err(|error| damaged("a note of a move", error))?)?);
            }
            match next {
                Some(state) => from = state,
                None => return Ok(notes),
            }
        }
    }
}

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Removed,
    Left,
}

impl Inner {
    /// Looks after notes that nobody removed, as long as the store lives.
    pub(super) fn heal_from_now_on(self: &Arc<Self>) {
        let inner: Weak<Self> = Arc::downgrade(self);
        let period = self.options.heal_every;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(period).await;
                let Some(inner) = inner.upgrade() else { return };
                if let Err(error) = inner.heal().await {
                    tracing::debug!(%error, "what was left of moves could not be looked at");
                }
            }
        });
    }

    /// Brings the lists up to date for every note that is old enough; says for how many.
    pub(super) async fn heal(&self) -> StoreResult<usize> {
        let OrderOptions { heal_after, .. } = self.options;
        let now_us = stamps::real_now().as_millis() * 1_000;
        let to_us = now_us - i64::try_from(heal_after.as_micros()).unwrap_or(i64::MAX);
        let seen = *self.pending.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let all = now_us - seen.all_at_us >= ALL_EVERY_US;
        let from_us = if all { i64::MIN } else { seen.until_us };

        let mut healed = 0;
        let late_us = LATE_US + self.link.settings().timeout.as_ms() * 2_000;
        let mut until_us = to_us - late_us;
        for slot in self.registers.entries(&self.link, SLOTS).await? {
            let (starts_us, ends_us) = (slot * SLOT_US, (slot + 1) * SLOT_US);
            if ends_us <= from_us {
                continue;
            }
            let looked_at = self.link.stamps().next();
            let shards: Vec<(usize, Option<i64>)> = stream::iter(0..SHARDS)
                .map(|shard| self.heal_shard(slot, shard, from_us.max(starts_us), to_us))
                .buffer_unordered(SHARDS_AT_ONCE)
                .try_collect()
                .await?;
            healed += shards.iter().map(|(healed, _)| healed).sum::<usize>();
            let oldest_left = shards.iter().filter_map(|(_, oldest_left)| *oldest_left).min();
            until_us = until_us.min(oldest_left.unwrap_or(i64::MAX));
            if all && oldest_left.is_none() && ends_us + SLOT_ENDS_US < now_us {
                self.registers.forget(&self.link, SLOTS, slot, looked_at).await?;
            }
        }
        let mut seen = self.pending.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.until_us = until_us;
        if all {
            seen.all_at_us = now_us;
        }
        Ok(healed)
    }

    pub(super) async fn pending_notes(&self) -> StoreResult<usize> {
        let mut notes = 0;
        for slot in self.registers.entries(&self.link, SLOTS).await? {
            for shard in 0..SHARDS {
                notes += self.pending.read(&self.link, slot, shard, i64::MIN, i64::MAX).await?.len();
            }
        }
        Ok(notes)
    }

    /// How many notes of a shard were seen to, and the oldest that had to be left.
    async fn heal_shard(
        &self,
        slot: i64,
        shard: i8,
        from_us: i64,
        to_us: i64,
    ) -> StoreResult<(usize, Option<i64>)> {
        let notes = self.pending.read(&self.link, slot, shard, from_us, to_us).await?;
        let fates: Vec<(i64, Fate)> = stream::iter(notes)
            .map(|note| async move {
                // One order that cannot be read keeps nobody from healing the others.
                let fate = self.heal_order(&note).await.unwrap_or_else(|error| {
                    tracing::debug!(order = %note.order, %error, "the lists of an order could not be brought up to date");
                    Fate::Left
                });
                (note.noted_us, fate)
            })
            .buffer_unordered(NOTES_AT_ONCE)
            .collect()
            .await;
        let left = fates.iter().filter(|(_, fate)| *fate == Fate::Left).map(|(noted_us, _)| *noted_us);
        let healed = fates.iter().filter(|(_, fate)| *fate == Fate::Removed).count();
        Ok((healed, left.min()))
    }

    async fn heal_order(&self, note: &Note) -> StoreResult<Fate> {
        let stands = self.book.read_decided(&self.link, note.order).await?;
        if let (None, Some(new)) = (&stands, &note.new) {
            self.write_new(&Written::new(Order::clone(new))).await?;
            self.pending.remove(&self.link, note).await?;
            return Ok(Fate::Removed);
        }
        // As long as nobody has taken its number and somebody may wait for it, the move may still be decided.
        let is_decided = stands.as_ref().is_some_and(|stands| stands.seq >= note.seq);
        let age_us = stamps::real_now().as_millis() * 1_000 - note.noted_us;
        if !is_decided && age_us < self.link.given_up_after_us() {
            return Ok(Fate::Left);
        }
        if let Some(stands) = stands {
            self.list(&Written::new(stands.order)).await?;
        }
        self.pending.remove(&self.link, note).await?;
        Ok(Fate::Removed)
    }

    /// Nobody waits for this: a note that stays is looked at once more, in vain.
    pub(super) fn remove_later(self: &Arc<Self>, note: Note) {
        let inner = self.clone();
        tokio::spawn(async move {
            if let Err(error) = inner.pending.remove(&inner.link, &note).await {
                tracing::debug!(order = %note.order, %error, "a note of a move stays for now");
            }
        });
    }
}

/// A fresh id of a move.
pub(super) fn move_id() -> Uuid {
    id::fresh(stamps::real_now())
}
