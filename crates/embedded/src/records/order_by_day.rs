//! The orders of a day in UTC, newest first, with what a report filters by.

use fjall::Slice;
use mobimir_codec::leaves::{status_number, status_of};
use mobimir_core::{
    id::OrderId,
    order::{Order, OrderPosition, OrderStatus},
    ports::{DayFilter, StoreResult},
    time::Day,
    zone::Zone,
};

use crate::{
    engine::{Key, KeyBuilder, KeyReader, Table},
    error::damaged,
};

pub(crate) fn key(day: Day, position: OrderPosition) -> Key {
    KeyBuilder::new(Table::OrderByDay)
        .number(i64::from(day.number()))
        .time_descending(position.created_at)
        .uuid(position.order_id.0)
        .end()
}

pub(crate) fn all(day: Day) -> Key {
    KeyBuilder::new(Table::OrderByDay).number(i64::from(day.number())).end()
}

pub(crate) fn read_key(key: &[u8]) -> StoreResult<OrderPosition> {
    let mut key = KeyReader::new(Table::OrderByDay, key)?;
    key.number()?;
    Ok(OrderPosition { created_at: key.time_descending()?, order_id: OrderId(key.uuid()?) })
}

/// What of an order a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) status: OrderStatus,
    pub(crate) zone: Zone,
}

impl Traits {
    pub(crate) fn of(order: &Order) -> Self {
        Self { status: order.status, zone: order.geo_zone }
    }

    pub(crate) fn match_filter(&self, filter: &DayFilter) -> bool {
        filter.status.is_none_or(|status| status == self.status)
            && filter.zone.is_none_or(|zone| zone == self.zone)
    }
}

pub(crate) fn encode(traits: Traits) -> Slice {
    let mut bytes = vec![status_number(traits.status)];
    bytes.extend_from_slice(traits.zone.as_str().as_bytes());
    bytes.into()
}

pub(crate) fn decode(bytes: &[u8]) -> StoreResult<Traits> {
    let traits = bytes.split_first().and_then(|(status, zone)| {
        let zone = Zone::parse(std::str::from_utf8(zone).ok()?).ok()?;
        Some(Traits { status: status_of(*status)?, zone })
    });
    traits.ok_or_else(|| damaged("expected status and zone of an order in its day's table"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn keys_sort_as_positions_do_and_come_back(a in arbitrary::order(), b in arbitrary::order()) {
            let (at, other) = (a.position(), b.position());
            prop_assert_eq!(key(a.day(), at).cmp(&key(a.day(), other)), at.key().cmp(&other.key()));
            prop_assert_eq!(key(a.day(), at).bytes.starts_with(&all(b.day()).bytes), a.day() == b.day());
            prop_assert_eq!(read_key(&key(a.day(), at).bytes).unwrap(), at);
        }

        #[test]
        fn traits_come_back_and_match_as_the_order_does(order in arbitrary::order(), other in arbitrary::order()) {
            let traits = Traits::of(&order);
            prop_assert_eq!(decode(&encode(traits)).unwrap(), traits);
            let filter = DayFilter { status: Some(other.status), zone: Some(other.geo_zone) };
            prop_assert_eq!(traits.match_filter(&filter), filter.matches(&order));
        }
    }
}
