//! An order's partition as a whole: read at once, replaced by a newer state, and removed.
//!
//! All of that is decided, like every move is. A plain write would lose against cells that were decided before, or, stamped
//! ahead of the cluster's clock, win over decisions to come.

use mobimir_core::{
    id::{self, OrderId},
    moving::WholeOrder,
    order::{Order, StatusChange},
    policy::StatusLayout,
    ports::StoreResult,
};
use scylla::{response::query_result::QueryRowsResult, serialize::row::SerializeRow, value::CqlTimestamp};
use uuid::Uuid;

use super::rows::{self, RawOrder, Written, cql_time};
use crate::{
    ConnectError, StatementKind, cql,
    link::{Decided, Link, Owed, Statement, Values, damaged},
};

pub(super) struct Copies {
    layout: StatusLayout,
    whole: Statement,
    pub(super) keys: Statement,
    pub(super) rows: Statement,
    /// Conditional on the version: of the order, or where moves are a log, of one of them.
    replace: Statement,
    erase: Statement,
    fix: Statement,
    add: Statement,
    remove_move: Statement,
    remove_fixed: Statement,
}

/// An order as it stands, and the number of its newest move.
pub(super) struct Standing {
    pub(super) whole: WholeOrder,
    newest: i32,
}

/// user_id, geo_zone, created_at, bucket, body, status, updated_at, version; then a move: its number, status, at, operator
type RawWhole<'a> = (
    Uuid,
    &'a str,
    CqlTimestamp,
    i32,
    &'a [u8],
    &'a str,
    CqlTimestamp,
    i64,
    i32,
    &'a str,
    CqlTimestamp,
    Option<&'a str>,
);

/// order_id, number of the newest move; then what [`RawWhole`] begins with, as far as it is there
pub(super) type RawRow<'a> = (
    Uuid,
    Option<i32>,
    Option<Uuid>,
    Option<&'a str>,
    Option<CqlTimestamp>,
    Option<i32>,
    Option<&'a [u8]>,
    Option<&'a str>,
    Option<CqlTimestamp>,
    Option<i64>,
);

impl Copies {
    pub(super) async fn open(link: &Link, layout: StatusLayout) -> Result<Self, ConnectError> {
        use StatementKind::{Decision, Write};
        let status = match layout {
            StatusLayout::Column => "stands_at",
            StatusLayout::Log => "status",
        };
        let order = format!("user_id, geo_zone, created_at, bucket, body, {status}, updated_at, version");
        let part = "WHERE token(order_id) > ? AND token(order_id) <= ?";
        let (replace, add, erase) = match layout {
            StatusLayout::Column => (
                cql::REPLACE_ORDER,
                cql::COPY_MOVE,
                "DELETE stands_at, updated_at, version, moves FROM {}.orders WHERE order_id = ? IF version = ?",
            ),
            StatusLayout::Log => (
                "UPDATE {}.orders SET status = ?, at = ?, operator = ?, move_id = ?, updated_at = ?, version = ? \
                WHERE order_id = ? AND seq = ? IF version = ?",
                "INSERT INTO {}.orders (order_id, seq, status, at, operator, move_id, updated_at, version) \
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                "DELETE FROM {}.orders WHERE order_id = ? AND seq = ? IF version = ?",
            ),
        };
        Ok(Self {
            layout,
            whole: link
                .prepare_seeing(
                    "whole",
                    &format!("SELECT {order}, seq, status, at, operator FROM {{}}.orders WHERE order_id = ?"),
                )
                .await?,
            keys: link
                .prepare_seeing("keys", &format!("SELECT DISTINCT order_id FROM {{}}.orders {part}"))
                .await?,
            rows: link
                .prepare_seeing(
                    "rows",
                    &format!("SELECT order_id, seq, {order} FROM {{}}.orders {part} PER PARTITION LIMIT 1"),
                )
                .await?,
            replace: link.prepare("replace", Decision, replace).await?,
            erase: link.prepare("erase", Decision, erase).await?,
            fix: link.prepare("fix", Write, cql::FIX_ORDER).await?,
            add: link.prepare("copy_move", Write, add).await?,
            remove_move: link
                .prepare("remove_move", Write, "DELETE FROM {}.orders WHERE order_id = ? AND seq = ?")
                .await?,
            remove_fixed: link
                .prepare(
                    "remove_fixed",
                    Write,
                    "DELETE user_id, geo_zone, created_at, bucket, total, body FROM {}.orders WHERE order_id = ?",
                )
                .await?,
        })
    }

    pub(super) async fn read(&self, link: &Link, id: OrderId) -> StoreResult<Option<Standing>> {
        standing(id, &link.read(&self.whole, (id.0,)).await?)
    }

    /// The same, after everything that was being decided is.
    pub(super) async fn read_decided(&self, link: &Link, id: OrderId) -> StoreResult<Option<Standing>> {
        standing(id, &link.read_decided(&self.whole, (id.0,)).await?)
    }

    /// Makes the partition say what `whole` says, if it still stands as it was read.
    pub(super) async fn replace(
        &self,
        link: &Link,
        whole: &WholeOrder,
        written: &Written,
        stands: Option<&Standing>,
        owed: Owed,
    ) -> StoreResult<Decided> {
        let WholeOrder { order, history } = whole;
        let stood = stands.map_or(-1, |stands| stands.newest);
        let expected = stands.map(|stands| stands.whole.order.version.0.cast_signed());
        let newest = i32::try_from(history.len()).unwrap_or(i32::MAX) - 1;
        let mut rows: Vec<(&Statement, Values<'_>)> = vec![(&self.fix, fixed_values(written))];
        if self.layout == StatusLayout::Column {
            rows.push((&self.replace, Box::new(stand_values(order, newest, expected))));
        }
        let last = newest.max(stood + i32::from(self.layout == StatusLayout::Log));
        let mut changes = history.iter();
        for seq in 0..=last {
            let condition = self.condition(seq, stood, expected);
            rows.push(match (changes.next(), condition) {
                (Some(change), None) => (&self.add, self.move_values(order, seq, change)),
                (Some(change), Some(expected)) => (&self.replace, log_values(order, seq, change, expected)),
                (None, None) => (&self.remove_move, Box::new((order.id.0, seq))),
                (None, Some(expected)) => (&self.erase, Box::new((order.id.0, seq, expected))),
            });
        }
        link.decide_all("replace", rows, owed).await
    }

    /// Removes all of an order that still has this version, and whose newest move has this number.
    pub(super) async fn erase(
        &self,
        link: &Link,
        id: OrderId,
        newest: i32,
        version: Option<i64>,
        owed: Owed,
    ) -> StoreResult<Decided> {
        let mut rows: Vec<(&Statement, Values<'_>)> = vec![(&self.remove_fixed, Box::new((id.0,)))];
        if self.layout == StatusLayout::Column {
            rows.push((&self.erase, Box::new((id.0, version))));
        }
        for seq in 0..=newest {
            rows.push(match self.condition(seq, newest, version) {
                None => (&self.remove_move, Box::new((id.0, seq))),
                Some(expected) => (&self.erase, Box::new((id.0, seq, expected))),
            });
        }
        link.decide_all("erase", rows, owed).await
    }

    /// The version that the move with this number must have. Where moves are a log, the newest is the one that was
    /// read, and nobody has taken the number after it.
    fn condition(&self, seq: i32, newest: i32, version: Option<i64>) -> Option<Option<i64>> {
        let is_log = self.layout == StatusLayout::Log;
        match seq - newest {
            0 if is_log => Some(version),
            1 if is_log => Some(None),
            _ => None,
        }
    }

    fn move_values<'a>(&self, order: &Order, seq: i32, change: &'a StatusChange) -> Values<'a> {
        let StatusChange { status, at, operator } = change;
        let (status, at, operator) = (status.as_str(), cql_time(*at), operator.as_deref());
        let (id, move_id) = (order.id.0, copied_move_id(order.id, seq));
        match self.layout {
            StatusLayout::Column => Box::new((id, seq, status, at, operator, move_id)),
            StatusLayout::Log => {
                let (updated_at, version) = (cql_time(order.updated_at), order.version.0.cast_signed());
                Box::new((id, seq, status, at, operator, move_id, updated_at, version))
            }
        }
    }
}

fn stand_values(order: &Order, newest: i32, expected: Option<i64>) -> impl SerializeRow + use<> {
    let Order { id, status, updated_at, version, .. } = order;
    (status.as_str(), cql_time(*updated_at), version.0.cast_signed(), newest, id.0, expected)
}

/// A row of the log. Only that of the newest move is asked for its version, so all may have the order's.
fn log_values<'a>(order: &Order, seq: i32, change: &'a StatusChange, expected: Option<i64>) -> Values<'a> {
    let StatusChange { status, at, operator } = change;
    let (status, at, operator) = (status.as_str(), cql_time(*at), operator.as_deref());
    let (updated_at, version) = (cql_time(order.updated_at), order.version.0.cast_signed());
    let move_id = copied_move_id(order.id, seq);
    Box::new((status, at, operator, move_id, updated_at, version, order.id.0, seq, expected))
}

fn fixed_values(written: &Written) -> Values<'_> {
    let Order { id, user_id, geo_zone, created_at, bucket, .. } = &written.order;
    let (bucket, total) = (i32::from(*bucket), written.order.total().to_string());
    let body = written.body.as_slice();
    Box::new((user_id.0, geo_zone.as_str(), cql_time(*created_at), bucket, total, body, id.0))
}

/// The same whoever copies it, and no id of a move that was made here.
fn copied_move_id(order: OrderId, seq: i32) -> Uuid {
    id::derived("order-move-copied", &[order.as_bytes(), &seq.to_be_bytes()])
}

fn standing(id: OrderId, rows: &QueryRowsResult) -> StoreResult<Option<Standing>> {
    let mut standing: Option<Standing> = None;
    for row in rows.rows::<RawWhole<'_>>().map_err(|error| damaged("an order", error))? {
        let (
            user_id,
            geo_zone,
            created_at,
            bucket,
            body,
            stands_at,
            updated_at,
            version,
            seq,
            status,
            at,
            by,
        ) = row.map_err(|error| damaged("an order", error))?;
        let standing = match &mut standing {
            Some(standing) => standing,
            // The newest move comes first.
            none => {
                let status = stands_at;
                let raw = RawOrder {
                    id: id.0,
                    user_id,
                    geo_zone,
                    created_at,
                    bucket,
                    body,
                    status,
                    updated_at,
                    version,
                };
                let whole = WholeOrder { order: raw.decode()?, history: Vec::new() };
                none.insert(Standing { whole, newest: seq })
            }
        };
        standing.whole.history.push(StatusChange {
            status: rows::parse_status(status)?,
            at: rows::time(at),
            operator: by.map(str::to_owned),
        });
    }
    if let Some(standing) = &mut standing {
        standing.whole.history.reverse();
    }
    Ok(standing)
}
