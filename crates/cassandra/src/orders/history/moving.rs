//! The separate order history as a migration sees it.
//!
//! Its only table is a list whose rows are stamped with the version of their order. So a copy needs no decision:
//! whichever is newer stays, in whatever order they come. The price is that a row which says something else
//! under its version cannot be replaced, only overtaken.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    moving::{
        Backlog, Found, HistoryEntry, HistoryKey, HistorySide, InTable, Mark, Movable, Place, Range, Row,
        Rows, Scanned, Side, Unreadable, Whole,
    },
    ports::StoreResult,
    time::Timestamp,
};

use super::{CassandraOrderHistory, Inner};
use crate::{
    orders::{
        by_user::UserLists,
        moving::{BY_USER, listed_row, remove_by_user},
        rows::{self, RawListRow, RawOrder},
    },
    outbox::OutboxKey,
    scans::{self, PUT_AT_ONCE, decoded, no_table},
};

impl CassandraOrderHistory {
    /// This history, as a migration sees it.
    pub fn side(&self) -> HistorySide {
        let view = |is_tracked| Arc::new(Self { inner: self.inner.clone(), is_tracked });
        Side { port: view(false), tracked: view(true), moving: view(false) }
    }
}

#[async_trait]
impl Movable<HistoryEntry> for CassandraOrderHistory {
    fn tables(&self) -> &'static [&'static str] {
        &[BY_USER]
    }

    async fn whole(&self, key: HistoryKey) -> StoreResult<Found<HistoryEntry>> {
        let Inner { link, outbox, by_user, .. } = &*self.inner;
        let waiting = outbox.of(link, key).await?;
        if waiting.is_in_doubt
            // What of a write that was given up has come to some replicas comes to all of them. It is tried only:
            // whoever appends does so again until it is acknowledged.
            && let Err(error) = by_user.settle(link, key).await
        {
            tracing::debug!(%error, %key, "an entry of the history is not settled on all replicas");
        }
        let standing = by_user.standing(link, key.user, key.created_at, key.order.0).await?;
        let newest = standing.into_iter().map(|(_, order)| order).max_by_key(|order| order.version);
        Ok(waiting.found(newest.map(HistoryEntry)))
    }

    async fn count(&self) -> StoreResult<u64> {
        scans::count(&self.inner.link, &[&self.inner.by_user.listing.all]).await
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        Ok(scans::ranges(1, parts))
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<HistoryEntry>> {
        let Inner { link, by_user, .. } = &*self.inner;
        let step = scans::step(link, &[&by_user.listing.all], range, limit).await?;
        let items = step.rows.map(|rows| decoded(&rows, "lists of orders", entry)).transpose()?;
        Ok(Scanned { items: items.unwrap_or_default(), next: step.next })
    }

    async fn put(&self, wholes: Vec<HistoryEntry>, _now: Timestamp) -> StoreResult<()> {
        stream::iter(wholes)
            .map(|HistoryEntry(order)| self.inner.append(order))
            .buffer_unordered(PUT_AT_ONCE)
            .try_collect()
            .await
    }

    async fn in_tables(&self, whole: &HistoryEntry) -> StoreResult<Vec<InTable>> {
        let Inner { link, by_user, registers, .. } = &*self.inner;
        let HistoryKey { user, created_at, order } = whole.key();
        let list = UserLists::register(user);
        let (_, own) = by_user.partition_at(user, created_at);
        let is_registered = registers.has(link, list, i64::from(own)).await?;
        let mut newest = None;
        for (month, order) in by_user.standing(link, user, created_at, order.0).await? {
            // A row in a partition that no reader knows of is as good as none.
            let is_found = if month == own {
                is_registered
            } else {
                registers.has(link, list, i64::from(month)).await?
            };
            if is_found {
                newest = newest.into_iter().chain([order]).max_by_key(|order| order.version);
            }
        }
        Ok(vec![InTable { table: BY_USER, facts: newest.map(|order| HistoryEntry(order).facts()) }])
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<HistoryKey>> {
        if table != BY_USER {
            return Err(no_table(table));
        }
        let Inner { link, by_user, .. } = &*self.inner;
        let (rows, next) = scans::step_of_table(link, &by_user.listing.all, after, limit).await?;
        let items = rows.map(|rows| decoded(&rows, "lists of orders", history_row)).transpose()?;
        // Every key that the table can hold may be an order's.
        Ok(Rows { items: items.unwrap_or_default(), nameless: Vec::new(), next })
    }

    fn is_replaceable(&self, _table: &str) -> bool {
        false
    }

    async fn remove(&self, table: &'static str, row: &Row<HistoryKey>) -> StoreResult<()> {
        if table != BY_USER {
            return Err(no_table(table));
        }
        let Inner { link, by_user, .. } = &*self.inner;
        remove_by_user(link, by_user, row.key.order, &row.place, row.key.owed()).await
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<HistoryKey>>> {
        self.inner.outbox.unmirrored(&self.inner.link, limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.inner.outbox.backlog::<HistoryKey>(&self.inner.link).await
    }

    async fn mirrored(&self, marks: &[Mark<HistoryKey>], _read_at: Timestamp) -> StoreResult<()> {
        self.inner.outbox.remove(&self.inner.link, marks).await
    }

    async fn nobody_writes(&self) -> StoreResult<()> {
        self.inner.outbox.nobody_writes::<HistoryKey>(&self.inner.link).await
    }
}

fn entry(raw: RawListRow<'_>) -> Result<HistoryEntry, Unreadable> {
    let key = key_of(&raw);
    let (_, created_at, id, user_id, geo_zone, bucket, body, status, updated_at, version) = raw;
    let raw = (|| {
        Some(RawOrder {
            id,
            user_id: user_id?,
            geo_zone: geo_zone?,
            created_at,
            bucket: bucket?,
            body: body?,
            status: status?,
            updated_at: updated_at?,
            version: version?,
        })
    })();
    let Some(raw) = raw else { return Err(scans::no_entity(BY_USER, &key.to_string())) };
    let order = raw.decode().map_err(|error| Unreadable { key: key.to_string(), error })?;
    Ok(HistoryEntry(order))
}

fn history_row(raw: RawListRow<'_>) -> Row<HistoryKey> {
    let (key, Row { facts, place, .. }) = (key_of(&raw), listed_row(raw, BY_USER));
    Row { key, facts, place }
}

/// The user is a column of the partition's key, so it is always there.
fn key_of(raw: &RawListRow<'_>) -> HistoryKey {
    let (_, created_at, order, user, ..) = raw;
    HistoryKey {
        user: mobimir_core::id::UserId(user.unwrap_or_default()),
        created_at: rows::time(*created_at),
        order: mobimir_core::id::OrderId(*order),
    }
}
