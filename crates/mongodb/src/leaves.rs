//! The smallest parts of documents: ids as UUIDs, times as dates, versions and kopecks as 64-bit integers.

use mobimir_core::{
    money::Money,
    ports::StoreResult,
    time::{Timestamp, Version},
    zone::Zone,
};
use mongodb::bson::{Bson, DateTime, Document, Uuid, doc, serialize_to_bson};
use serde::Serialize;

use crate::link::damaged;

pub(crate) fn uuid(id: uuid::Uuid) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

pub(crate) fn id<T: From<uuid::Uuid>>(stored: Uuid) -> T {
    uuid::Uuid::from_bytes(stored.bytes()).into()
}

/// Of an `_id` that may be anything.
pub(crate) fn uuid_of(stored: &Bson) -> Option<Uuid> {
    match stored {
        Bson::Binary(binary) => binary.to_uuid().ok(),
        _ => None,
    }
}

pub(crate) fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

pub(crate) fn time(stored: DateTime) -> Timestamp {
    Timestamp::from_millis(stored.timestamp_millis())
}

pub(crate) fn number(version: Version) -> i64 {
    // Microseconds since 1970 leave room for 290,000 years.
    version.0.cast_signed()
}

pub(crate) fn version(stored: i64) -> Version {
    Version(stored.cast_unsigned())
}

/// How many units; never negative.
pub(crate) fn units(stored: i64) -> StoreResult<u64> {
    u64::try_from(stored).map_err(|_| damaged(format!("expected a number of units, got {stored}")))
}

pub(crate) fn zone(stored: &str) -> StoreResult<Zone> {
    Zone::parse(stored).map_err(|error| damaged(format!("a zone: {error}")))
}

/// A price; totals can be larger than what fits here, and are summed from the lines.
pub(crate) fn kopecks(price: Money) -> i64 {
    i64::try_from(price.kopecks()).unwrap_or(i64::MAX)
}

pub(crate) fn price(stored: i64) -> Money {
    Money::from_kopecks(stored.into())
}

/// The same the other way round. More than 63 bits of units nobody has.
pub(crate) fn counted(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// What the version of a document becomes by a change at `now`, as an update says it: [`Version::next`].
pub(crate) fn next_version(now: Timestamp) -> Document {
    let by_the_clock = number(Version::default().next(now));
    doc! { "$max": [by_the_clock, { "$add": [{ "$ifNull": ["$version", 0_i64] }, 1_i64] }] }
}

/// A value inside an update that is meant as it stands, whatever dollars it has.
pub(crate) fn literal(value: &(impl Serialize + ?Sized)) -> StoreResult<Document> {
    let value = serialize_to_bson(value).map_err(|error| damaged(error.to_string()))?;
    Ok(doc! { "$literal": value })
}
