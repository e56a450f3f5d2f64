//! Carts as a migration sees them.
//!
//! A copy becomes the packed row, by the same decision that packing is, and all other rows that were read go with
//! it. What is added meanwhile stays, as it does when a cart is packed.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    cart::Owner,
    id::{self, ChangeId},
    moving::{
        Backlog, CartSide, Facts, Found, InTable, Mark, Movable, Place, Range, Row, Rows, Scanned, Side,
        Whole, WholeCart,
    },
    ports::{StoreError, StoreResult},
    time::{Day, Timestamp},
};
use scylla::{response::PagingState, value::CqlTimestamp};
use uuid::Uuid;

use super::{
    CassandraCarts, Inner, LISTED_FOR_MS, decode_into,
    gather::Gathered,
    kept_until,
    listing::DAYS,
    owed,
    rows::{self, owner_of, touch_shard},
};
use crate::{
    ConnectError, StatementKind,
    link::{Decided, Link, Owed, Statement, Values},
    outbox::OutboxKey,
    scans::{self, KeyBytes, PUT_AT_ONCE, READ_AT_ONCE, apart, decoded, key_place, no_table, said},
    stamps,
};

const CHANGES: &str = "cart_changes";
const TOUCHED: &str = "carts_by_touch";

/// How often a copy is put to decision while others change the same cart.
const PUT_DECISIONS_MAX: usize = 8;

pub(super) struct Copies {
    read: Statement,
    keys: Statement,
    touches: Statement,
    erase: Statement,
    remove_at: Statement,
    untouch: Statement,
}

impl Copies {
    pub(super) async fn open(link: &Link) -> Result<Self, ConnectError> {
        use StatementKind::{Decision, Write};
        let of_row = "WHERE owner_kind = ? AND owner = ? AND change_id = ? AND written_us = ?";
        let read =
            format!("SELECT {} FROM {{}}.cart_changes WHERE owner_kind = ? AND owner = ?", rows::COLUMNS);
        Ok(Self {
            read: link.prepare_seeing("whole", &read).await?,
            keys: link
                .prepare_seeing(
                    "keys",
                    "SELECT DISTINCT owner_kind, owner FROM {}.cart_changes \
                    WHERE token(owner_kind, owner) > ? AND token(owner_kind, owner) <= ?",
                )
                .await?,
            touches: link
                .prepare_seeing(
                    "all_touches",
                    "SELECT day, shard, touched_at, owner_kind, owner FROM {}.carts_by_touch \
                    WHERE token(day, shard) > ? AND token(day, shard) <= ?",
                )
                .await?,
            erase: link
                .prepare("erase", Decision, &format!("DELETE FROM {{}}.cart_changes {of_row} IF pack_id = ?"))
                .await?,
            remove_at: link
                .prepare(
                    "remove_at",
                    Write,
                    &format!("DELETE FROM {{}}.cart_changes USING TIMESTAMP ? {of_row}"),
                )
                .await?,
            untouch: link
                .prepare(
                    "untouch",
                    Write,
                    "DELETE FROM {}.carts_by_touch USING TIMESTAMP ? \
                    WHERE day = ? AND shard = ? AND touched_at = ? AND owner_kind = ? AND owner = ?",
                )
                .await?,
        })
    }
}

impl CassandraCarts {
    /// These carts, as a migration sees them.
    pub fn side(&self) -> CartSide {
        let view = |is_tracked| Arc::new(Self { inner: self.inner.clone(), is_tracked });
        Side { port: view(false), tracked: view(true), moving: view(false) }
    }
}

impl OutboxKey for Owner {
    fn to_bytes(self) -> Vec<u8> {
        self.owed().0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, id) = bytes.split_first()?;
        owner_of((kind.cast_signed(), Uuid::from_slice(id).ok()?)).ok()
    }

    fn owed(self) -> Owed {
        owed(self)
    }
}

#[async_trait]
impl Movable<WholeCart> for CassandraCarts {
    fn tables(&self) -> &'static [&'static str] {
        &[CHANGES, TOUCHED]
    }

    /// Packing changes nothing that a cart says, nor how new it is, so it leaves no mark.
    async fn whole(&self, owner: Owner) -> StoreResult<Found<WholeCart>> {
        let waiting = self.inner.outbox.of(&self.inner.link, owner).await?;
        Ok(waiting.found(self.inner.whole(owner).await?))
    }

    async fn count(&self) -> StoreResult<u64> {
        scans::count(&self.inner.link, &[&self.inner.copies.keys]).await
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        Ok(scans::ranges(1, parts))
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<WholeCart>> {
        let Inner { link, copies, .. } = &*self.inner;
        let step = scans::step(link, &[&copies.keys], range, limit).await?;
        let keys = step.rows.map(|rows| decoded(&rows, "owners of carts", named_owner)).transpose()?;
        let (owners, nameless) = apart(keys.unwrap_or_default());
        let mut scanned = scans::read_each(owners, step.next, |owner| self.inner.whole(owner)).await?;
        scanned.items.extend(nameless.into_iter().map(|key| Err(scans::no_entity(CHANGES, &key))));
        Ok(scanned)
    }

    async fn put(&self, wholes: Vec<WholeCart>, now: Timestamp) -> StoreResult<()> {
        self.inner.put_all(wholes, now, false).await
    }

    async fn put_first(&self, wholes: Vec<WholeCart>, now: Timestamp) -> StoreResult<()> {
        self.inner.put_all(wholes, now, true).await
    }

    async fn in_tables(&self, whole: &WholeCart) -> StoreResult<Vec<InTable>> {
        let stored = self.inner.whole(whole.owner).await?;
        let is_touched = self.inner.is_touched(whole.owner, whole.cart.updated_at).await?;
        Ok(vec![
            InTable { table: CHANGES, facts: stored.map(|stored| stored.facts()) },
            InTable { table: TOUCHED, facts: is_touched.then(Facts::default) },
        ])
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<Owner>> {
        let Inner { link, copies, .. } = &*self.inner;
        let all = match table {
            CHANGES => &copies.keys,
            TOUCHED => &copies.touches,
            other => return Err(no_table(other)),
        };
        let (rows, next) = scans::step_of_table(link, all, after, limit).await?;
        let Some(rows) = rows else { return Ok(Rows { items: Vec::new(), nameless: Vec::new(), next }) };
        if table == TOUCHED {
            let (items, nameless) = apart(decoded(&rows, "lists of carts", touched_row)?);
            return Ok(Rows { items, nameless, next });
        }
        let (keys, nameless) = apart(decoded(&rows, "owners of carts", named_owner)?);
        let items = stream::iter(keys)
            .map(|key| async move {
                Ok(Row { key, facts: said(self.inner.whole(key).await)?, place: key_place(&[]) })
            })
            .buffered(READ_AT_ONCE)
            .try_collect()
            .await?;
        Ok(Rows { items, nameless, next })
    }

    async fn remove(&self, table: &'static str, row: &Row<Owner>) -> StoreResult<()> {
        let Inner { link, copies, .. } = &*self.inner;
        match table {
            CHANGES => self.inner.erase(row.key).await,
            TOUCHED => {
                let (mut key, (kind, owner)) = (KeyBytes(&row.place.0), rows::key(row.key));
                let (day, [shard], touched_at) = (key.i32()?, key.take()?, key.time()?);
                let values = (link.stamps().next(), day, shard.cast_signed(), touched_at, kind, owner);
                link.write(&copies.untouch, values, owed(row.key)).await
            }
            other => Err(no_table(other)),
        }
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<Owner>>> {
        self.inner.outbox.unmirrored(&self.inner.link, limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.inner.outbox.backlog::<Owner>(&self.inner.link).await
    }

    async fn mirrored(&self, marks: &[Mark<Owner>], _read_at: Timestamp) -> StoreResult<()> {
        self.inner.outbox.remove(&self.inner.link, marks).await
    }

    async fn nobody_writes(&self) -> StoreResult<()> {
        self.inner.outbox.nobody_writes::<Owner>(&self.inner.link).await
    }
}

impl Inner {
    async fn whole(&self, owner: Owner) -> StoreResult<Option<WholeCart>> {
        Ok(self.gather_by(&self.copies.read, owner).await?.whole(owner))
    }

    async fn put_all(&self, wholes: Vec<WholeCart>, now: Timestamp, are_new: bool) -> StoreResult<()> {
        stream::iter(wholes.into_iter().filter(|whole| whole.cart.expires_at > now))
            .map(|whole| async move { self.put(&whole, now, are_new).await })
            .buffer_unordered(PUT_AT_ONCE)
            .try_collect()
            .await
    }

    /// Makes a cart what a copy of it says, unless it is as new already, and lists it as it then is. One that is taken for new
    /// is not read before. The decision sees packed rows alone, and so does not do for carts that shoppers have added to here.
    async fn put(&self, copy: &WholeCart, now: Timestamp, is_new: bool) -> StoreResult<()> {
        let owner = copy.owner;
        let _turn = self.turns.of(owner.uuid().as_bytes()).await;
        let mut gathered =
            if is_new { Gathered::of(Vec::new()) } else { self.gather_by(&self.copies.read, owner).await? };
        for _ in 0..PUT_DECISIONS_MAX {
            if gathered.version() >= copy.version {
                let Some(stored) = gathered.whole(owner) else { return Ok(()) };
                return self.list(&stored).await;
            }
            let plan = gathered.replacement(copy, now, ChangeId(id::fresh(now)));
            if let Decided::Applied = self.carry_out(owner, plan).await? {
                self.remove_fresh(owner, &gathered).await?;
                let touched_at = copy.cart.updated_at;
                return if self.is_listed(owner, touched_at) { Ok(()) } else { self.list(copy).await };
            }
            gathered = self.gather_decided(owner).await?;
        }
        Err(undecided(owner))
    }

    async fn erase(&self, owner: Owner) -> StoreResult<()> {
        let _turn = self.turns.of(owner.uuid().as_bytes()).await;
        let gathered = self.gather_by(&self.copies.read, owner).await?;
        let (kind, id) = rows::key(owner);
        let removed = gathered.unpacked().into_iter().map(|(change, written_us)| {
            let values: Values<'_> = Box::new((kind, id, change, written_us));
            (&self.remove, values)
        });
        let mut all: Vec<(&Statement, Values<'_>)> = removed.collect();
        let packed_id = gathered.packed_id().map(|id| id.0);
        all.push((&self.copies.erase, Box::new((kind, id, Uuid::nil(), 0i64, packed_id))));
        match self.link.decide_all("erase", all, owed(owner)).await? {
            Decided::Applied => self.remove_fresh(owner, &gathered).await,
            // It has changed since: whoever removes it looks again.
            Decided::Refused => Ok(()),
            Decided::Lost(failure) => Err(failure.of_write("erase")),
        }
    }

    /// A decision has the stamp of its coordinator's clock, which may be behind that of who wrote a row just now. Those
    /// rows are removed once more, under the stamps that they have.
    async fn remove_fresh(&self, owner: Owner, gathered: &Gathered) -> StoreResult<()> {
        let (settled_us, (kind, id)) = (self.settled_us().await?, rows::key(owner));
        for (change, written_us) in gathered.unpacked() {
            if written_us > settled_us {
                let values = (written_us, kind, id, change, written_us);
                self.link.write(&self.copies.remove_at, values, owed(owner)).await?;
            }
        }
        Ok(())
    }

    async fn gather_decided(&self, owner: Owner) -> StoreResult<Gathered> {
        let mut stored = Vec::new();
        decode_into(&mut stored, &self.link.read_decided(&self.copies.read, rows::key(owner)).await?)?;
        Ok(Gathered::of(stored))
    }

    async fn list(&self, whole: &WholeCart) -> StoreResult<()> {
        let touched_at = whole.cart.updated_at;
        let ttl_s = stamps::ttl_s(kept_until(touched_at, whole.cart.expires_at));
        let stamp = self.link.stamps().next();
        self.append_listed(&self.add, whole.owner, Vec::new(), touched_at, ttl_s, stamp).await
    }

    /// Whether a cart is listed where one is that was last touched then, and where readers look.
    async fn is_touched(&self, owner: Owner, updated_at: Timestamp) -> StoreResult<bool> {
        let from = updated_at.plus_ms(-LISTED_FOR_MS);
        for day in from.day().number()..=updated_at.day().number() {
            if !self.registers.has(&self.link, DAYS, i64::from(day)).await? {
                continue;
            }
            let start = Day::from_number(day).start().max(from);
            let [start, end] = [start, updated_at].map(|time| CqlTimestamp(time.as_millis()));
            let mut state = PagingState::start();
            loop {
                let values = (day, touch_shard(owner), start, end, i32::MAX);
                let (rows, next) = self.link.read_page(&self.touched, values, state).await?;
                let listed = decoded(&rows, "a list of carts", |(_, kind, id): (CqlTimestamp, i8, Uuid)| {
                    (kind, id) == rows::key(owner)
                })?;
                if listed.contains(&true) {
                    return Ok(true);
                }
                match next {
                    Some(next) => state = next,
                    None => break,
                }
            }
        }
        Ok(false)
    }
}

type RawTouch = (i32, i8, CqlTimestamp, i8, Uuid);

fn touched_row((day, shard, touched_at, kind, owner): RawTouch) -> Result<Row<Owner>, String> {
    let place = key_place(&[&day.to_be_bytes(), &[shard.cast_unsigned()], &touched_at.0.to_be_bytes()]);
    let key = named_owner((kind, owner)).map_err(|key| format!("{key} of day {day}, shard {shard}"))?;
    Ok(Row { key, facts: Facts::default(), place })
}

/// Whose row it is, or how to find one that is nobody's.
fn named_owner((kind, owner): (i8, Uuid)) -> Result<Owner, String> {
    owner_of((kind, owner)).map_err(|_| format!("owner_kind {kind}, owner {owner}"))
}

fn undecided(owner: Owner) -> StoreError {
    StoreError::Unknown {
        what: format!("Cassandra, copy of the cart of {owner}: not decided in time"),
        source: None,
    }
}
