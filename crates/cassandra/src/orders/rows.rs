//! The rows of orders, as they are bound and read.

use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderStatus},
    ports::{StoreError, StoreResult},
    time::{Timestamp, Version},
    zone::Zone,
};
use scylla::{
    errors::SerializationError,
    serialize::{
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
    value::CqlTimestamp,
};
use uuid::Uuid;

use super::book::FirstRow;
use crate::{link::damaged, registers::RegisterRow};

/// An order with its body encoded, which all its rows share.
pub(super) struct Written {
    pub(super) order: Order,
    pub(super) body: Vec<u8>,
}

impl Written {
    pub(super) fn new(order: Order) -> Self {
        let body = mobimir_codec::order_body::encode(&order);
        Self { order, body }
    }

    /// About what a row of it takes.
    pub(super) fn row_bytes(&self) -> u64 {
        const OTHER_COLUMNS_BYTES: usize = 120;
        (self.body.len() + OTHER_COLUMNS_BYTES) as u64
    }

    /// The stamp of its rows in lists: a later version wins over an earlier, whichever is written last.
    pub(super) fn list_stamp(&self) -> i64 {
        i64::try_from(self.order.version.0).unwrap_or(i64::MAX)
    }
}

/// A whole order in a list, under the two columns of the list's partition key.
pub(super) struct ListRow<'a, K> {
    pub(super) partition: K,
    pub(super) written: &'a Written,
}

pub(super) type UserKey = (Uuid, i32);
pub(super) type DayKey = (i32, i32);

impl ListRow<'_, UserKey> {
    pub(super) fn user_values(&self) -> impl SerializeRow + '_ {
        let Order { id, geo_zone, status, created_at, updated_at, bucket, version, .. } = &self.written.order;
        let (user, month) = self.partition;
        (
            user,
            month,
            cql_time(*created_at),
            id.0,
            geo_zone.as_str(),
            status.as_str(),
            cql_time(*updated_at),
            version.0.cast_signed(),
            i32::from(*bucket),
            self.written.body.as_slice(),
            self.written.list_stamp(),
        )
    }
}

impl ListRow<'_, DayKey> {
    pub(super) fn day_values(&self) -> impl SerializeRow + '_ {
        let Order { id, user_id, geo_zone, status, created_at, updated_at, version, .. } =
            &self.written.order;
        let (day, bucket) = self.partition;
        (
            day,
            bucket,
            cql_time(*created_at),
            id.0,
            user_id.0,
            geo_zone.as_str(),
            status.as_str(),
            cql_time(*updated_at),
            version.0.cast_signed(),
            self.written.body.as_slice(),
            self.written.list_stamp(),
        )
    }
}

/// What stands together in a batch.
pub(super) enum Batched<'a> {
    First(FirstRow<'a>),
    ByUser(ListRow<'a, UserKey>),
    ByDay(ListRow<'a, DayKey>),
    Register(RegisterRow),
}

impl SerializeRow for Batched<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            Self::First(row) => row.serialize(context, writer),
            Self::ByUser(row) => row.user_values().serialize(context, writer),
            Self::ByDay(row) => row.day_values().serialize(context, writer),
            Self::Register(row) => row.values().serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// What is asked of a row in a list: created_at, order_id, and [`RawOrder`].
pub(super) const LISTED: &str =
    "created_at, order_id, user_id, geo_zone, bucket, body, status, updated_at, version";

pub(super) type RawListed<'a> =
    (CqlTimestamp, Uuid, Uuid, &'a str, i32, &'a [u8], &'a str, CqlTimestamp, i64);

/// The month or the day that the row stands under, and [`RawListed`] as far as it is there.
pub(super) type RawListRow<'a> = (
    i32,
    CqlTimestamp,
    Uuid,
    Option<Uuid>,
    Option<&'a str>,
    Option<i32>,
    Option<&'a [u8]>,
    Option<&'a str>,
    Option<CqlTimestamp>,
    Option<i64>,
);

pub(super) fn listed(
    (created_at, id, user_id, geo_zone, bucket, body, status, updated_at, version): RawListed<'_>,
) -> StoreResult<Order> {
    RawOrder { id, user_id, geo_zone, created_at, bucket, body, status, updated_at, version }.decode()
}

/// An order's columns, in whichever table.
pub(super) struct RawOrder<'a> {
    pub(super) id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) geo_zone: &'a str,
    pub(super) created_at: CqlTimestamp,
    pub(super) bucket: i32,
    pub(super) body: &'a [u8],
    pub(super) status: &'a str,
    pub(super) updated_at: CqlTimestamp,
    pub(super) version: i64,
}

impl RawOrder<'_> {
    pub(super) fn decode(self) -> StoreResult<Order> {
        let body =
            mobimir_codec::order_body::decode(self.body).map_err(|error| damaged("an order", error))?;
        Ok(Order {
            id: OrderId(self.id),
            user_id: UserId(self.user_id),
            status: parse_status(self.status)?,
            geo_zone: Zone::parse(self.geo_zone).map_err(|error| damaged("an order's zone", error))?,
            lines: body.lines,
            shipping_address: body.shipping_address,
            payment_method: body.payment_method,
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            bucket: u16::try_from(self.bucket).map_err(|error| damaged("an order's bucket", error))?,
            version: Version(self.version.cast_unsigned()),
        })
    }
}

pub(super) fn parse_status(text: &str) -> StoreResult<OrderStatus> {
    OrderStatus::parse(text).ok_or_else(|| StoreError::Corrupt {
        what: format!("expected the status of an order, got {text:?}"),
        source: None,
    })
}

pub(super) fn cql_time(time: Timestamp) -> CqlTimestamp {
    CqlTimestamp(time.as_millis())
}

pub(super) fn time(time: CqlTimestamp) -> Timestamp {
    Timestamp::from_millis(time.0)
}
