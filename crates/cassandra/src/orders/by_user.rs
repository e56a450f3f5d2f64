//! The orders of a user, in one partition a month, or in one for all (month 0).
//!
//! Which months a user has is registered, so a page costs the months that it is made of, however old they are. The register
//! also says whether there is a month 0, so a history that was cut otherwise before is still read whole; an order that
//! stands in both is the later version of it.

use std::collections::BTreeMap;

use futures_util::future::{try_join, try_join_all};
use mobimir_core::{
    id::UserId,
    moving::HistoryKey,
    order::{Order, OrderPosition},
    page::Page,
    policy::HistoryBucket,
    ports::{Period, StoreResult},
    time::Timestamp,
};
use uuid::Uuid;

use super::{
    listing::{Listing, Names, PAGE_ORDERS_MAX, Span},
    rows::{ListRow, UserKey, Written},
};
use crate::{
    ConnectError, cql,
    link::Link,
    registers::{List, Registers},
};

pub(super) struct UserLists {
    pub(super) listing: Listing,
    bucket: HistoryBucket,
}

const NAMES: Names = Names {
    table: "orders_by_user",
    partition: ("user_id", "month"),
    part: "month",
    put: "put_by_user",
    at: "by_user_at",
    range: "by_user",
    row: "by_user_row",
};

/// Where months are not kept apart.
const ALL_MONTHS: i32 = 0;
/// Months that are read at the same time, when one was not enough.
const MONTHS_AT_ONCE_MAX: usize = 8;

impl UserLists {
    pub(super) async fn open(link: &Link) -> Result<Self, ConnectError> {
        let bucket = link.settings().history_bucket.unwrap_or(HistoryBucket::Month);
        Ok(Self { listing: Listing::open(link, &NAMES, cql::LIST_BY_USER).await?, bucket })
    }

    pub(super) fn partition(&self, order: &Order) -> UserKey {
        self.partition_at(order.user_id, order.created_at)
    }

    pub(super) fn partition_at(&self, user: UserId, created_at: Timestamp) -> UserKey {
        let month = match self.bucket {
            HistoryBucket::Month => month_of(created_at),
            HistoryBucket::None => ALL_MONTHS,
        };
        (user.0, month)
    }

    pub(super) fn row<'a>(&self, written: &'a Written) -> ListRow<'a, UserKey> {
        ListRow { partition: self.partition(&written.order), written }
    }

    pub(super) async fn put(&self, link: &Link, written: &Written) -> StoreResult<()> {
        self.listing.put(link, self.row(written).user_values(), written).await
    }

    /// An order as each partition has it in which it may stand, however the list was cut when it was written.
    pub(super) async fn standing(
        &self,
        link: &Link,
        user: UserId,
        created_at: Timestamp,
        order: Uuid,
    ) -> StoreResult<Vec<(i32, Order)>> {
        let read = [ALL_MONTHS, month_of(created_at)].map(|month| async move {
            let found = self.listing.row(link, (user.0, month), created_at, order).await?;
            StoreResult::Ok(found.map(|order| (month, order)))
        });
        Ok(try_join_all(read).await?.into_iter().flatten().collect())
    }

    /// Reads an order from all replicas, which repairs those that lack it.
    pub(super) async fn settle(&self, link: &Link, key: HistoryKey) -> StoreResult<()> {
        let HistoryKey { user, created_at, order } = key;
        self.listing.settle(link, self.partition_at(user, created_at), created_at, order.0).await
    }

    /// The list in which a user's months are registered.
    pub(super) fn register(user: UserId) -> List {
        List::OfId("months", user.0)
    }

    pub(super) async fn page(
        &self,
        link: &Link,
        registers: &Registers,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let Some(span) = Span::of(period, after) else { return Ok(Page::empty()) };
        let limit = limit.min(PAGE_ORDERS_MAX);
        let (first, last) = span.ends();
        let (first, last) = (month_of(first), month_of(last));
        let registered = registers.entries(link, Self::register(user)).await?;
        let registered = registered.iter().filter_map(|month| i32::try_from(*month).ok());
        let (uncut, mut months): (Vec<i32>, Vec<i32>) = registered.partition(|month| *month == ALL_MONTHS);
        months.retain(|month| (first..=last).contains(month));
        months.reverse();

        let by_month = self.read_months(link, user, &months, span, limit + 1);
        if uncut.is_empty() {
            return Ok(Page::cut(by_month.await?, limit, Order::position));
        }
        let uncut = self.listing.read(link, (user.0, ALL_MONTHS), span, limit + 1);
        let (by_month, uncut) = try_join(by_month, uncut).await?;
        Ok(Page::cut(latest_of_each(by_month, uncut), limit, Order::position))
    }

    /// The first orders of a span, month by month from the newest, in steps that grow.
    async fn read_months(
        &self,
        link: &Link,
        user: UserId,
        mut months: &[i32],
        span: Span,
        limit: usize,
    ) -> StoreResult<Vec<Order>> {
        let latest = month_of(span.ends().1);
        let mut orders = Vec::new();
        let mut at_once = 1;
        while !months.is_empty() && orders.len() < limit {
            let (now, later) = months.split_at(at_once.min(months.len()));
            let left = limit - orders.len();
            let read = now.iter().map(|month| {
                let span = if *month == latest { span } else { span.before_that() };
                self.listing.read(link, (user.0, *month), span, left)
            });
            orders.extend(try_join_all(read).await?.into_iter().flatten());
            months = later;
            at_once = (at_once * 2).min(MONTHS_AT_ONCE_MAX);
        }
        orders.truncate(limit);
        Ok(orders)
    }
}

fn latest_of_each(one: Vec<Order>, other: Vec<Order>) -> Vec<Order> {
    let mut latest = BTreeMap::new();
    for order in one.into_iter().chain(other) {
        let stands = latest.entry(order.position().key()).or_insert_with(|| order.clone());
        if stands.version < order.version {
            *stands = order;
        }
    }
    latest.into_values().collect()
}

/// Months since the year 0, in UTC.
fn month_of(time: Timestamp) -> i32 {
    time.day().month()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_each_other_in_utc() {
        let month = |text| month_of(Timestamp::parse(text).unwrap());
        assert_eq!(month("2025-11-30T23:59:59.999Z"), 2025 * 12 + 10);
        assert_eq!(month("2025-12-01T00:00:00Z"), month("2025-11-30T23:59:59Z") + 1);
        assert_eq!(month("2026-01-01T00:00:00Z"), month("2025-12-31T23:59:59Z") + 1);
        assert_eq!(month("2025-12-01T02:59:59+03:00"), month("2025-11-01T00:00:00Z"));
        assert!(month_of(Timestamp::from_millis(i64::MIN)) <= month_of(Timestamp::from_millis(i64::MAX)));
    }
}
