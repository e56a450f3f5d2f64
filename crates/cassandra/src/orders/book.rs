//! One order's partition: what it is, where it stands, and every move it made.
//!
//! It is written first by a plain insert, stamped an hour back, and from then on changed by decisions only, which carry
//! the cluster's own stamps and so always win over a first write that is repeated late.
//!
//! Moves are numbered, and a move takes the number after the one it was planned on. With `status = "column"` the
//! decision is that the order still has the version it was read with; with `status = "log"`, that nobody has taken the
//! number.

use mobimir_core::{
    id::OrderId,
    order::{Order, StatusChange},
    policy::StatusLayout,
    ports::{StoreError, StoreResult},
    time::Version,
};
use scylla::{
    errors::SerializationError,
    response::query_result::QueryRowsResult,
    serialize::{
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
    value::CqlTimestamp,
};
use uuid::Uuid;

use super::rows::{self, RawOrder, Written, cql_time};
use crate::{
    ConnectError, StatementKind, cql,
    link::{BatchOf, Decided, Link, Owed, Statement, damaged},
};

pub(super) struct Book {
    layout: StatusLayout,
    pub(super) first: Statement,
    read: Statement,
    history: Statement,
    moves: Statement,
    whole: Statement,
    decide: Decide,
}

enum Decide {
    Column(Box<BatchOf>),
    Log(Box<Statement>),
}

/// An order as it stands, and the number of its newest move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) order: Order,
    pub(super) seq: i32,
}

/// A move that is to be decided.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// Tells it from every other, also from the same asked for by somebody else.
    pub(super) id: Uuid,
    pub(super) seq: i32,
    /// The order after it.
    pub(super) moved: Order,
    change: StatusChange,
    expected: Version,
}

impl Move {
    pub(super) fn plan(standing: &Standing, change: StatusChange, id: Uuid) -> Self {
        let moved = standing.order.moved(change.status, change.at);
        // A move that was decided before another was written stands after it, and so does its time.
        let change = StatusChange { at: moved.updated_at, ..change };
        Self { id, seq: standing.seq + 1, moved, change, expected: standing.order.version }
    }
}

/// user_id, geo_zone, created_at, bucket, body, status, updated_at, version, number of the newest move
type Raw<'a> = (Uuid, &'a str, CqlTimestamp, i32, &'a [u8], &'a str, CqlTimestamp, i64, i32);

impl Book {
    pub(super) async fn open(link: &Link, layout: StatusLayout) -> Result<Self, ConnectError> {
        use StatementKind::{Decision, Read, Write};
        let (first, read) = match layout {
            StatusLayout::Column => (cql::INSERT_ORDER, cql::READ_ORDER),
            StatusLayout::Log => (
                "INSERT INTO {}.orders (order_id, seq, user_id, geo_zone, created_at, bucket, total, body, status, at, \
                updated_at, version) VALUES (?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
                "SELECT user_id, geo_zone, created_at, bucket, body, status, updated_at, version, seq \
                FROM {}.orders WHERE order_id = ? LIMIT 1",
            ),
        };
        let decide = match layout {
            StatusLayout::Column => {
                let stand = link
                    .prepare(
                        "stand",
                        Decision,
                        "UPDATE {}.orders SET stands_at = ?, updated_at = ?, version = ?, moves = ? \
                        WHERE order_id = ? IF version = ?",
                    )
                    .await?;
                let add = link
                    .prepare(
                        "add_move",
                        Write,
                        "INSERT INTO {}.orders (order_id, seq, status, at, operator, move_id) \
                        VALUES (?, ?, ?, ?, ?, ?)",
                    )
                    .await?;
                Decide::Column(Box::new(link.batch("move", &[&stand, &add])))
            }
            StatusLayout::Log => {
                let add = link
                    .prepare(
                        "move",
                        Decision,
                        "INSERT INTO {}.orders (order_id, seq, status, at, operator, move_id, updated_at, version) \
                        VALUES (?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS",
                    )
                    .await?;
                Decide::Log(Box::new(add))
            }
        };
        Ok(Self {
            layout,
            first: link.prepare("insert", Write, first).await?,
            read: link.prepare("get", Read, read).await?,
            history: link
                .prepare(
                    "history",
                    Read,
                    "SELECT status, at, operator FROM {}.orders WHERE order_id = ? ORDER BY seq ASC",
                )
                .await?,
            moves: link
                .prepare("moves", Read, "SELECT seq, status, move_id FROM {}.orders WHERE order_id = ?")
                .await?,
            whole: link.prepare("whole", Read, "SELECT * FROM {}.orders WHERE order_id = ?").await?,
            decide,
        })
    }

    pub(super) fn first_row<'a>(&self, written: &'a Written, stamp: i64) -> FirstRow<'a> {
        FirstRow { layout: self.layout, written, stamp }
    }

    pub(super) async fn read(&self, link: &Link, id: OrderId) -> StoreResult<Option<Standing>> {
        match standing(id, &link.read(&self.read, (id.0,)).await?) {
            // What was decided of it may have come here before the order has.
            Err(StoreError::Corrupt { .. }) => self.read_decided(link, id).await,
            read => read,
        }
    }

    /// The same, after everything that was being decided is.
    pub(super) async fn read_decided(&self, link: &Link, id: OrderId) -> StoreResult<Option<Standing>> {
        standing(id, &link.read_decided(&self.read, (id.0,)).await?)
    }

    /// Reads it from all replicas, which repairs those that lack something.
    pub(super) async fn settle(&self, link: &Link, id: OrderId) -> StoreResult<()> {
        link.read_of_all_replicas(&self.whole, (id.0,)).await
    }

    pub(super) async fn history(&self, link: &Link, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        let rows = link.read(&self.history, (id.0,)).await?;
        let lines = rows
            .rows::<(&str, CqlTimestamp, Option<&str>)>()
            .map_err(|error| damaged("an order's history", error))?;
        lines
            .map(|line| {
                let (status, at, operator) = line.map_err(|error| damaged("an order's history", error))?;
                Ok(StatusChange {
                    status: rows::parse_status(status)?,
                    at: rows::time(at),
                    operator: operator.map(str::to_owned),
                })
            })
            .collect()
    }

    pub(super) async fn decide(&self, link: &Link, planned: &Move, owed: Owed) -> StoreResult<Decided> {
        match &self.decide {
            Decide::Column(batch) => {
                let rows = [DecisionRow::Stand(planned), DecisionRow::Add(planned)];
                link.decide_batch(batch, &rows, owed).await
            }
            Decide::Log(statement) => link.decide(statement, DecisionRow::Log(planned), owed).await,
        }
    }

    /// Who made the move with this number, if that is decided: its id, and where the order stands now.
    pub(super) async fn decided_move(
        &self,
        link: &Link,
        id: OrderId,
        seq: i32,
    ) -> StoreResult<Option<(Option<Uuid>, mobimir_core::order::OrderStatus)>> {
        let rows = link.read_decided(&self.moves, (id.0,)).await?;
        let moves =
            rows.rows::<(i32, &str, Option<Uuid>)>().map_err(|error| damaged("an order's history", error))?;
        let mut newest = None;
        for row in moves {
            let (number, status, move_id) = row.map_err(|error| damaged("an order's history", error))?;
            // Newest first.
            if newest.is_none() {
                newest = Some(rows::parse_status(status)?);
            }
            if let (true, Some(newest)) = (number == seq, newest) {
                return Ok(Some((move_id, newest)));
            }
        }
        Ok(None)
    }
}

fn standing(id: OrderId, rows: &QueryRowsResult) -> StoreResult<Option<Standing>> {
    let row = rows.maybe_first_row::<Raw<'_>>().map_err(|error| damaged("an order", error))?;
    let Some((user_id, geo_zone, created_at, bucket, body, status, updated_at, version, seq)) = row else {
        return Ok(None);
    };
    let raw = RawOrder { id: id.0, user_id, geo_zone, created_at, bucket, body, status, updated_at, version };
    Ok(Some(Standing { order: raw.decode()?, seq }))
}

/// An order with the first line of its history.
pub(super) struct FirstRow<'a> {
    layout: StatusLayout,
    written: &'a Written,
    stamp: i64,
}

impl SerializeRow for FirstRow<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        let order = &self.written.order;
        let line = order.first_change();
        let (total, status) = (order.total().to_string(), order.status.as_str());
        let (at, updated_at) = (cql_time(line.at), cql_time(order.updated_at));
        let version = order.version.0.cast_signed();
        let (zone, body) = (order.geo_zone.as_str(), self.written.body.as_slice());
        let (created_at, bucket) = (cql_time(order.created_at), i32::from(order.bucket));
        let (id, user) = (order.id.0, order.user_id.0);
        let stamp = self.stamp;
        match self.layout {
            StatusLayout::Column => (
                id, user, zone, created_at, bucket, total, body, status, at, updated_at, version, status,
                stamp,
            )
                .serialize(context, writer),
            StatusLayout::Log => {
                (id, user, zone, created_at, bucket, total, body, status, at, updated_at, version, stamp)
                    .serialize(context, writer)
            }
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

enum DecisionRow<'a> {
    Stand(&'a Move),
    Add(&'a Move),
    Log(&'a Move),
}

impl SerializeRow for DecisionRow<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        let (Self::Stand(planned) | Self::Add(planned) | Self::Log(planned)) = self;
        let Move { id: move_id, seq, moved, change, expected } = planned;
        let (status, operator) = (change.status.as_str(), change.operator.as_deref());
        let (at, updated_at) = (cql_time(change.at), cql_time(moved.updated_at));
        let [version, expected] = [moved.version, *expected].map(|version| version.0.cast_signed());
        match self {
            Self::Stand(_) => {
                (status, updated_at, version, *seq, moved.id.0, expected).serialize(context, writer)
            }
            Self::Add(_) => (moved.id.0, *seq, status, at, operator, *move_id).serialize(context, writer),
            Self::Log(_) => (moved.id.0, *seq, status, at, operator, *move_id, updated_at, version)
                .serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}
