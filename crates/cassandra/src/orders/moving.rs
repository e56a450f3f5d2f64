//! Orders as a migration sees them.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    id::OrderId,
    moving::{
        Backlog, Facts, Found, InTable, Mark, Movable, OrderSide, Place, Range, Row, Rows, Scanned, Side,
        Whole, WholeOrder, order_facts,
    },
    order::Order,
    ports::{StoreError, StoreResult},
    time::{Day, Timestamp},
};
use uuid::Uuid;

use super::{
    CassandraOrders, Inner, ORDERS_AT_ONCE,
    by_day::DayLists,
    by_user::UserLists,
    copies::RawRow,
    rows::{self, RawListRow, RawOrder, Written, cql_time},
};
use crate::{
    link::{Decided, Link, Owed},
    outbox::OutboxKey,
    scans::{self, KeyBytes, PUT_AT_ONCE, decoded, key_place, no_table},
};

const ORDERS: &str = "orders";
pub(super) const BY_USER: &str = "orders_by_user";
const BY_DAY: &str = "orders_by_day";

/// How often a copy is put to decision while others put theirs.
const PUT_DECISIONS_MAX: usize = 8;

impl CassandraOrders {
    /// These orders, as a migration sees them.
    pub fn side(&self) -> OrderSide {
        let view = |is_tracked| Arc::new(Self { inner: self.inner.clone(), is_tracked });
        Side { port: view(false), tracked: view(true), moving: view(false) }
    }
}

impl OutboxKey for OrderId {
    fn to_bytes(self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Uuid::from_slice(bytes).ok().map(Self)
    }

    fn owed(self) -> Owed {
        super::owed(self)
    }
}

#[async_trait]
impl Movable<WholeOrder> for CassandraOrders {
    fn tables(&self) -> &'static [&'static str] {
        &[ORDERS, BY_USER, BY_DAY]
    }

    async fn whole(&self, id: OrderId) -> StoreResult<Found<WholeOrder>> {
        let Inner { link, outbox, copies, .. } = &*self.inner;
        let waiting = outbox.of(link, id).await?;
        let mut decided = None;
        if waiting.is_in_doubt {
            // Whoever left the mark may have left a note, too, by which somebody would write the order later.
            self.inner.heal().await?;
            decided = copies.read_decided(link, id).await?;
        }
        // Where moves are decided an order may not have arrived, and elsewhere not what has just been decided.
        let standing = [decided, copies.read(link, id).await?].into_iter().flatten();
        let newest = standing.map(|standing| standing.whole).max_by_key(|whole| whole.order.version);
        Ok(waiting.found(newest))
    }

    async fn count(&self) -> StoreResult<u64> {
        scans::count(&self.inner.link, &[&self.inner.copies.keys]).await
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        Ok(scans::ranges(1, parts))
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<WholeOrder>> {
        let Inner { link, copies, .. } = &*self.inner;
        let step = scans::step(link, &[&copies.keys], range, limit).await?;
        let keys = step.rows.map(|rows| decoded(&rows, "ids of orders", |(id,): (Uuid,)| OrderId(id)));
        scans::read_each(keys.transpose()?.unwrap_or_default(), step.next, |id| async move {
            Ok(copies.read(link, id).await?.map(|standing| standing.whole))
        })
        .await
    }

    async fn put(&self, wholes: Vec<WholeOrder>, _now: Timestamp) -> StoreResult<()> {
        self.inner.put_all(wholes, false).await
    }

    async fn put_first(&self, wholes: Vec<WholeOrder>, _now: Timestamp) -> StoreResult<()> {
        self.inner.put_all(wholes, true).await
    }

    async fn in_tables(&self, whole: &WholeOrder) -> StoreResult<Vec<InTable>> {
        let Inner { link, copies, by_user, by_day, registers, .. } = &*self.inner;
        let order = &whole.order;
        let (of_user, of_day) = (by_user.partition(order), DayLists::partition(order));
        let (months, buckets) = (UserLists::register(order.user_id), DayLists::register(order.day()));
        let (stands, by_user, by_day, has_month, has_bucket) = futures_util::try_join!(
            copies.read(link, order.id),
            by_user.listing.row(link, of_user, order.created_at, order.id.0),
            by_day.listing.row(link, of_day, order.created_at, order.id.0),
            registers.has(link, months, i64::from(of_user.1)),
            registers.has(link, buckets, i64::from(of_day.1)),
        )?;
        // A row in a partition that no reader knows of is as good as none.
        let listed =
            |order: Option<Order>, is_found: bool| order.filter(|_| is_found).as_ref().map(order_facts);
        Ok(vec![
            InTable { table: ORDERS, facts: stands.map(|stands| stands.whole.facts()) },
            InTable { table: BY_USER, facts: listed(by_user, has_month) },
            InTable { table: BY_DAY, facts: listed(by_day, has_bucket) },
        ])
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<OrderId>> {
        let Inner { link, copies, by_user, by_day, .. } = &*self.inner;
        let all = match table {
            ORDERS => &copies.rows,
            BY_USER => &by_user.listing.all,
            BY_DAY => &by_day.listing.all,
            other => return Err(no_table(other)),
        };
        let (rows, next) = scans::step_of_table(link, all, after, limit).await?;
        let Some(rows) = rows else { return Ok(Rows { items: Vec::new(), nameless: Vec::new(), next }) };
        let items = match table {
            ORDERS => self.inner.with_histories(decoded(&rows, "orders", standing_row)?).await?,
            _ => decoded(&rows, "lists of orders", |row: RawListRow<'_>| listed_row(row, table))?,
        };
        // Every key that the tables can hold may be an order's.
        Ok(Rows { items, nameless: Vec::new(), next })
    }

    async fn remove(&self, table: &'static str, row: &Row<OrderId>) -> StoreResult<()> {
        let Inner { link, copies, by_user, by_day, .. } = &*self.inner;
        let (owed, mut key) = (super::owed(row.key), KeyBytes(&row.place.0));
        // Lists are stamped with the order's version: this one goes, and a later one stays.
        let stamp_of = |version| if version == NO_VERSION { link.stamps().next() } else { version };
        match table {
            ORDERS => {
                let (newest, version) = (key.i32()?, key.i64()?);
                let version = (version != NO_VERSION).then_some(version);
                match copies.erase(link, row.key, newest, version, owed).await? {
                    // It has changed since it was met: whoever removes it looks again.
                    Decided::Applied | Decided::Refused => Ok(()),
                    Decided::Lost(failure) => Err(failure.of_write("erase")),
                }
            }
            BY_USER => remove_by_user(link, by_user, row.key, &row.place, owed).await,
            BY_DAY => {
                let (day, bucket, at, stamp) = (key.i32()?, key.i32()?, key.time()?, stamp_of(key.i64()?));
                link.write(&by_day.listing.remove, (stamp, day, bucket, at, row.key.0), owed).await
            }
            other => Err(no_table(other)),
        }
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<OrderId>>> {
        self.inner.outbox.unmirrored(&self.inner.link, limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.inner.outbox.backlog::<OrderId>(&self.inner.link).await
    }

    async fn mirrored(&self, marks: &[Mark<OrderId>], _read_at: Timestamp) -> StoreResult<()> {
        self.inner.outbox.remove(&self.inner.link, marks).await
    }

    async fn nobody_writes(&self) -> StoreResult<()> {
        self.inner.outbox.nobody_writes::<OrderId>(&self.inner.link).await
    }
}

impl Inner {
    /// What each order says together with its moves, which are rows of their own.
    async fn with_histories(&self, rows: Vec<Row<OrderId>>) -> StoreResult<Vec<Row<OrderId>>> {
        stream::iter(rows)
            .map(|row| async move {
                let whole = self.copies.read(&self.link, row.key).await;
                let whole = whole.map(|standing| standing.map(|standing| standing.whole));
                StoreResult::Ok(Row { facts: scans::said(whole)?, ..row })
            })
            .buffered(ORDERS_AT_ONCE)
            .try_collect()
            .await
    }

    async fn put_all(&self, wholes: Vec<WholeOrder>, are_new: bool) -> StoreResult<()> {
        stream::iter(wholes)
            .map(|whole| self.put(whole, are_new))
            .buffer_unordered(PUT_AT_ONCE)
            .try_collect()
            .await
    }

    /// Makes an order what a copy of it says, unless it is as new already, and lists it as it then is. One that is taken for new
    /// is not read before: the decision is refused where that was wrong.
    async fn put(&self, whole: WholeOrder, is_new: bool) -> StoreResult<()> {
        let id = whole.order.id;
        let _turn = self.turns.of(id.as_bytes()).await;
        let written = Written::new(whole.order.clone());
        let mut stands = if is_new { None } else { self.copies.read(&self.link, id).await? };
        let mut lost = None;
        for _ in 0..PUT_DECISIONS_MAX {
            if let Some(stands) = &stands
                && stands.whole.order.version >= whole.order.version
            {
                return self.list(&Written::new(stands.whole.order.clone())).await;
            }
            match self.copies.replace(&self.link, &whole, &written, stands.as_ref(), super::owed(id)).await? {
                Decided::Applied => {
                    if stands.is_none() {
                        self.count(&written);
                    }
                    return self.list(&written).await;
                }
                Decided::Refused => {}
                Decided::Lost(failure) => lost = Some(failure),
            }
            stands = self.copies.read_decided(&self.link, id).await?;
        }
        Err(match lost {
            Some(failure) => failure.of_write("replace"),
            None => StoreError::Unavailable {
                what: format!("Cassandra, replace: order {id} is being changed by others"),
                source: None,
            },
        })
    }
}

/// Stands for a version that is not there.
const NO_VERSION: i64 = i64::MIN;

fn standing_row(raw: RawRow<'_>) -> Row<OrderId> {
    let (id, seq, user_id, geo_zone, created_at, bucket, body, status, updated_at, version) = raw;
    let raw = (|| {
        Some(RawOrder {
            id,
            user_id: user_id?,
            geo_zone: geo_zone?,
            created_at: created_at?,
            bucket: bucket?,
            body: body?,
            status: status?,
            updated_at: updated_at?,
            version: version?,
        })
    })();
    let newest = seq.unwrap_or(-1).to_be_bytes();
    let place = key_place(&[&newest, &version.unwrap_or(NO_VERSION).to_be_bytes()]);
    Row { key: OrderId(id), facts: facts_of(raw), place }
}

/// A list is stamped with the order's version: this row goes, and a later one stays.
pub(super) async fn remove_by_user(
    link: &Link,
    by_user: &UserLists,
    order: OrderId,
    place: &Place,
    owed: Owed,
) -> StoreResult<()> {
    let mut key = KeyBytes(&place.0);
    let (user, month, at, version) = (key.uuid()?, key.i32()?, key.time()?, key.i64()?);
    let stamp = if version == NO_VERSION { link.stamps().next() } else { version };
    link.write(&by_user.listing.remove, (stamp, user, month, at, order.0), owed).await
}

pub(super) fn listed_row(raw: RawListRow<'_>, table: &str) -> Row<OrderId> {
    let (part, created_at, id, user_id, geo_zone, bucket, body, status, updated_at, version) = raw;
    let is_by_day = table == BY_DAY;
    // A row under another day than its own would say so.
    let day = Day::from_number(part);
    let is_elsewhere = is_by_day && rows::time(created_at).day() != day;
    let said_at = if is_elsewhere { cql_time(day.start()) } else { created_at };
    let raw = (|| {
        Some(RawOrder {
            id,
            user_id: user_id?,
            geo_zone: geo_zone?,
            created_at: said_at,
            bucket: bucket?,
            body: body?,
            status: status?,
            updated_at: updated_at?,
            version: version?,
        })
    })();
    let (user, bucket) = (user_id.unwrap_or_default(), bucket.unwrap_or_default().to_be_bytes());
    let (part, version) = (part.to_be_bytes(), version.unwrap_or(NO_VERSION).to_be_bytes());
    let at = created_at.0.to_be_bytes();
    let place = if is_by_day {
        key_place(&[&part, &bucket, &at, &version])
    } else {
        key_place(&[user.as_bytes(), &part, &at, &version])
    };
    Row { key: OrderId(id), facts: facts_of(raw), place }
}

fn facts_of(raw: Option<RawOrder<'_>>) -> Facts {
    raw.and_then(|raw| raw.decode().ok()).map_or_else(Facts::unreadable, |order| order_facts(&order))
}
