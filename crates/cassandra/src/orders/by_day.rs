//! The orders of a day, spread over buckets and merged when they are read.
//!
//! Which buckets a day has is registered beside the first order of each. So readers need not know how many there were meant
//! to be when an order was written, and never ask for one that is empty.

use std::collections::{BTreeMap, VecDeque};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    order::{Order, OrderPosition},
    page::Page,
    ports::{DayFilter, Period, StoreError, StoreResult},
    time::Day,
};

use super::{
    listing::{Listing, Names, PAGE_ORDERS_MAX, Span},
    rows::{DayKey, ListRow, Written},
};
use crate::{
    ConnectError, cql,
    link::Link,
    registers::{List, Registers},
};

pub(super) struct DayLists {
    pub(super) listing: Listing,
}

const NAMES: Names = Names {
    table: "orders_by_day",
    partition: ("day", "bucket"),
    part: "day",
    put: "put_by_day",
    at: "by_day_at",
    range: "by_day",
    row: "by_day_row",
};

/// Orders that one call looks at to find those a filter asks for. A page may end here, with a `next`.
const LOOKED_AT_MAX: usize = 5_000;
/// Buckets that are read at the same time.
const BUCKETS_AT_ONCE: usize = 32;
/// Orders of one bucket that are read at once: so many more than its share of the page, then ever twice as many.
const CHUNK_SPARE: usize = 4;
const CHUNK_MAX: usize = 256;

/// A bucket that is being read.
struct Source {
    partition: DayKey,
    /// What is still to be read of it; `None` when that is nothing.
    rest: Option<Span>,
    chunk: usize,
    orders: VecDeque<Order>,
}

impl Source {
    /// Little is left of what was read last. Where orders are spread evenly, all run out at about the same time.
    fn is_low(&self) -> bool {
        self.rest.is_some() && self.orders.len() <= self.chunk / 8
    }

    fn add(&mut self, orders: Vec<Order>) {
        let is_all = orders.len() < self.chunk;
        let end = orders.last().filter(|_| !is_all).map(Order::position);
        self.rest = self.rest.zip(end).map(|(rest, end)| rest.after(end));
        self.chunk = (self.chunk * 2).min(CHUNK_MAX);
        self.orders.extend(orders);
    }
}

impl DayLists {
    pub(super) async fn open(link: &Link) -> Result<Self, ConnectError> {
        Ok(Self { listing: Listing::open(link, &NAMES, cql::LIST_BY_DAY).await? })
    }

    pub(super) fn partition(order: &Order) -> DayKey {
        (order.day().number(), i32::from(order.bucket))
    }

    pub(super) fn row(written: &Written) -> ListRow<'_, DayKey> {
        ListRow { partition: Self::partition(&written.order), written }
    }

    pub(super) async fn put(&self, link: &Link, written: &Written) -> StoreResult<()> {
        self.listing.put(link, Self::row(written).day_values(), written).await
    }

    /// The list in which a day's buckets are registered.
    pub(super) fn register(day: Day) -> List {
        List::OfNumber("buckets", day.number())
    }

    pub(super) async fn page(
        &self,
        link: &Link,
        registers: &Registers,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let next_day = Day::from_number(day.number().saturating_add(1));
        let period = Period { from: Some(day.start()), to: Some(next_day.start()) };
        let Some(span) = Span::of(period, after) else { return Ok(Page::empty()) };
        let limit = limit.min(PAGE_ORDERS_MAX);
        let buckets = registers.entries(link, Self::register(day)).await?;
        let chunk = ((limit + 1) / buckets.len().max(1) + CHUNK_SPARE).min(CHUNK_MAX);
        let source = |bucket| Source {
            partition: (day.number(), bucket),
            rest: Some(span),
            chunk,
            orders: VecDeque::new(),
        };
        let mut sources: Vec<Source> =
            buckets.iter().filter_map(|bucket| i32::try_from(*bucket).ok()).map(source).collect();

        // The newest order of each bucket that is not taken yet, and the bucket.
        let mut heads = BTreeMap::new();
        let mut found = Vec::new();
        let mut looked_at = 0;
        self.fill(link, &mut sources).await?;
        for (at, source) in sources.iter().enumerate() {
            heads.extend(source.orders.front().map(|order| (order.position().key(), at)));
        }
        while let Some((_, at)) = heads.pop_first() {
            let source = &mut sources[at];
            let Some(order) = source.orders.pop_front() else { continue };
            let position = order.position();
            if filter.matches(&order) {
                found.push(order);
                if found.len() > limit {
                    break;
                }
            }
            looked_at += 1;
            if looked_at == LOOKED_AT_MAX {
                return Ok(Page { items: found, next: Some(position) });
            }
            if source.orders.is_empty() && source.rest.is_some() {
                self.fill(link, &mut sources).await?;
            }
            heads.extend(sources[at].orders.front().map(|order| (order.position().key(), at)));
        }
        Ok(Page::cut(found, limit, Order::position))
    }

    /// Reads the next orders of each bucket that is low.
    async fn fill(&self, link: &Link, sources: &mut [Source]) -> StoreResult<()> {
        let wanted: Vec<(usize, DayKey, Span, usize)> = sources
            .iter()
            .enumerate()
            .filter(|(_, source)| source.is_low())
            .filter_map(|(at, source)| Some((at, source.partition, source.rest?, source.chunk)))
            .collect();
        let read: Vec<(usize, Vec<Order>)> = stream::iter(wanted)
            .map(|(at, partition, rest, chunk)| async move {
                Ok::<_, StoreError>((at, self.listing.read(link, partition, rest, chunk).await?))
            })
            .buffer_unordered(BUCKETS_AT_ONCE)
            .try_collect()
            .await?;
        for (at, orders) in read {
            sources[at].add(orders);
        }
        Ok(())
    }
}
