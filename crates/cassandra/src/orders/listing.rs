//! A list of whole orders, newest first, that is spread over partitions: what both lists have in common.

use futures_util::future::try_join;
use mobimir_core::{
    order::{Order, OrderPosition},
    ports::{Period, StoreResult},
    time::Timestamp,
};
use scylla::{
    response::query_result::QueryRowsResult,
    serialize::{row::SerializeRow, value::SerializeValue},
    value::CqlTimestamp,
};
use uuid::Uuid;

use super::rows::{LISTED, RawListed, Written, cql_time, listed};
use crate::{
    ConnectError, StatementKind,
    link::{Link, Statement, damaged},
};

/// Orders that one call gives at most. A page may end here, with a `next`.
pub(super) const PAGE_ORDERS_MAX: usize = 1_000;

/// The statements of one such table.
pub(super) struct Listing {
    pub(super) put: Statement,
    at: Statement,
    range: Statement,
    row: Statement,
    /// Every row there is, part by part.
    pub(super) all: Statement,
    pub(super) remove: Statement,
}

pub(super) struct Names {
    pub(super) table: &'static str,
    /// The two columns of the partition key.
    pub(super) partition: (&'static str, &'static str),
    /// The one of them that an order itself does not have.
    pub(super) part: &'static str,
    pub(super) put: &'static str,
    pub(super) at: &'static str,
    pub(super) range: &'static str,
    pub(super) row: &'static str,
}

/// A column of a partition key.
pub(super) trait KeyPart: SerializeValue + Copy + Send + Sync {}

impl KeyPart for Uuid {}
impl KeyPart for i32 {}

impl Listing {
    pub(super) async fn open(link: &Link, names: &Names, put: &str) -> Result<Self, ConnectError> {
        use StatementKind::{Read, Write};
        let Names { table, partition: (first, second), part, .. } = names;
        let select = |columns: &str, rest: &str| {
            format!("SELECT {columns} FROM {{}}.{table} WHERE {first} = ? AND {second} = ? AND {rest}")
        };
        let at = select(LISTED, "created_at = ? AND order_id > ? LIMIT ?");
        let range = select(LISTED, "created_at >= ? AND created_at < ? LIMIT ?");
        let row = select(LISTED, "created_at = ? AND order_id = ?");
        let token = format!("token({first}, {second})");
        let all = format!("SELECT {part}, {LISTED} FROM {{}}.{table} WHERE {token} > ? AND {token} <= ?");
        let remove = format!(
            "DELETE FROM {{}}.{table} USING TIMESTAMP ? \
            WHERE {first} = ? AND {second} = ? AND created_at = ? AND order_id = ?"
        );
        Ok(Self {
            all: link.prepare_seeing("list_rows", &all).await?,
            remove: link.prepare("remove_listed", Write, &remove).await?,
            put: link.prepare(names.put, Write, put).await?,
            at: link.prepare(names.at, Read, &at).await?,
            range: link.prepare(names.range, Read, &range).await?,
            row: link.prepare_seeing(names.row, &row).await?,
        })
    }

    /// The first orders of a span in one partition; fewer than `limit` when those are all.
    pub(super) async fn read<A: KeyPart, B: KeyPart>(
        &self,
        link: &Link,
        (first, second): (A, B),
        span: Span,
        limit: usize,
    ) -> StoreResult<Vec<Order>> {
        let rows_max = i32::try_from(limit).unwrap_or(i32::MAX);
        let [from, before] = [span.from_ms, span.before_ms].map(CqlTimestamp);
        // Times fall and ids rise, so what follows a row is not one range.
        let tied = async {
            match span.tied_after {
                Some(id) => {
                    let values = (first, second, before, id, rows_max);
                    orders(&link.read(&self.at, values).await?)
                }
                None => Ok(Vec::new()),
            }
        };
        let earlier = async {
            if from.0 >= before.0 {
                return Ok(Vec::new());
            }
            let values = (first, second, from, before, rows_max);
            orders(&link.read(&self.range, values).await?)
        };
        let (mut found, earlier) = try_join(tied, earlier).await?;
        found.extend(earlier);
        found.truncate(limit);
        Ok(found)
    }

    /// One order as its row says.
    pub(super) async fn row<A: KeyPart, B: KeyPart>(
        &self,
        link: &Link,
        (first, second): (A, B),
        created_at: Timestamp,
        order: Uuid,
    ) -> StoreResult<Option<Order>> {
        let values = (first, second, cql_time(created_at), order);
        Ok(orders(&link.read(&self.row, values).await?)?.pop())
    }

    /// Reads one order's row from all replicas, which repairs those that lack it.
    pub(super) async fn settle<A: KeyPart, B: KeyPart>(
        &self,
        link: &Link,
        (first, second): (A, B),
        created_at: Timestamp,
        order: Uuid,
    ) -> StoreResult<()> {
        let values = (first, second, cql_time(created_at), order);
        link.read_of_all_replicas(&self.row, values).await
    }

    pub(super) async fn put(
        &self,
        link: &Link,
        values: impl SerializeRow + Sync,
        written: &Written,
    ) -> StoreResult<()> {
        link.write(&self.put, values, super::owed(written.order.id)).await
    }
}

fn orders(rows: &QueryRowsResult) -> StoreResult<Vec<Order>> {
    let mut found = Vec::with_capacity(rows.rows_num());
    for row in rows.rows::<RawListed<'_>>().map_err(|error| damaged("a list of orders", error))? {
        found.push(listed(row.map_err(|error| damaged("a list of orders", error))?)?);
    }
    Ok(found)
}

/// A part of a list: `from <= created_at < before`, and of the moment `before` those with a larger id, if one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    from_ms: i64,
    before_ms: i64,
    tied_after: Option<Uuid>,
}

impl Span {
    /// What of a period comes after a position; `None` when nothing can.
    pub(super) fn of(period: Period, after: Option<OrderPosition>) -> Option<Self> {
        let whole = Self {
            from_ms: period.from.map_or(i64::MIN, Timestamp::as_millis),
            before_ms: period.to.map_or(i64::MAX, Timestamp::as_millis),
            tied_after: None,
        };
        let span = after.map_or(whole, |after| whole.after(after));
        let is_empty = span.from_ms >= span.before_ms && span.tied_after.is_none();
        (!is_empty).then_some(span)
    }

    pub(super) fn after(self, position: OrderPosition) -> Self {
        let at_ms = position.created_at.as_millis();
        if at_ms >= self.before_ms && !(at_ms == self.before_ms && self.tied_after.is_some()) {
            return self;
        }
        let tied_after = (at_ms >= self.from_ms).then_some(position.order_id.0);
        Self { before_ms: at_ms, tied_after, ..self }
    }

    /// Without what is left of its latest moment.
    pub(super) fn before_that(self) -> Self {
        Self { tied_after: None, ..self }
    }

    /// The first and the last moment there is something of.
    pub(super) fn ends(self) -> (Timestamp, Timestamp) {
        let last_ms = if self.tied_after.is_some() { self.before_ms } else { self.before_ms - 1 };
        (Timestamp::from_millis(self.from_ms), Timestamp::from_millis(last_ms))
    }
}

#[cfg(test)]
mod tests {
    use mobimir_core::id::OrderId;
    use proptest::prelude::*;

    use super::*;

    fn position(at_ms: i64, id: u128) -> OrderPosition {
        OrderPosition { created_at: Timestamp::from_millis(at_ms), order_id: OrderId(Uuid::from_u128(id)) }
    }

    impl Span {
        fn contains(self, position: OrderPosition) -> bool {
            let at_ms = position.created_at.as_millis();
            (self.from_ms..self.before_ms).contains(&at_ms)
                || (at_ms == self.before_ms && self.tied_after.is_some_and(|id| position.order_id.0 > id))
        }
    }

    proptest! {
        #[test]
        fn a_span_is_what_the_port_says(
            from in proptest::option::of(0..6i64), to in proptest::option::of(0..6i64),
            after in proptest::option::of((0..6i64, 0..3u128)), then in proptest::option::of((0..6i64, 0..3u128)),
            at in 0..6i64, id in 0..3u128,
        ) {
            let moment = |ms: Option<i64>| ms.map(Timestamp::from_millis);
            let period = Period { from: moment(from), to: moment(to) };
            let afters: Vec<OrderPosition> =
                [after, then].into_iter().flatten().map(|(at, id)| position(at, id)).collect();
            let mut span = Span::of(period, afters.first().copied());
            if let (Some(first), Some(then)) = (span, afters.get(1)) {
                span = Some(first.after(*then));
            }
            let position = position(at, id);
            // A list only ever goes on further down.
            prop_assume!(afters.windows(2).all(|pair| pair[0].key() < pair[1].key()));
            let expected = period.contains(position.created_at)
                && afters.iter().all(|after| position.key() > after.key());
            prop_assert_eq!(span.is_some_and(|span| span.contains(position)), expected);
        }
    }
}
