//! The smallest parts of documents: ids as UUIDs, times as dates, versions and kopecks as 64-bit integers.

use mobimir_core::{
    money::Money,
    ports::StoreResult,
    time::{Timestamp, Version},
    zone::Zone,
};
use mongodb::bson::{DateTime, Uuid};

use crate::link::damaged;

pub(crate) fn uuid(id: uuid::Uuid) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

pub(crate) fn id<T: From<uuid::Uuid>>(stored: Uuid) -> T {
    uuid::Uuid::from_bytes(stored.bytes()).into()
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
