//! Carts by when they were last touched.
//!
//! A cart stands in the list under the time of a touch, and anew when that was [`LISTED_FOR_MS`] ago. So a cart last touched
//! at `t` stands somewhere between `t - LISTED_FOR_MS` and `t`: whoever has seen all entries up to `t` has met every
//! cart that was last touched by then, and can put them in order.

use std::collections::{BTreeMap, HashSet};

use futures_util::{
    future::try_join_all,
    stream::{self, StreamExt, TryStreamExt},
};
use mobimir_core::{
    cart::{CartPosition, Owner, StoredCart},
    page::Page,
    ports::StoreResult,
    time::{Day, Timestamp},
};
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::{
    Inner, LISTED_FOR_MS,
    rows::{TOUCH_SHARDS, owner_of},
};
use crate::{link::damaged, registers::List};

/// The register of days on which carts were touched.
pub(super) const DAYS: List = List::Whole("touched");

/// Entries of a shard that are read at once.
const SHARD_ENTRIES: i32 = 64;
/// Carts that one call looks at. A page may end here, with a `next`.
const CARTS_LOOKED_AT_MAX: usize = 2_000;
const CARTS_READ_AT_ONCE: usize = 16;

type CartPage = Page<(Owner, StoredCart), CartPosition>;

impl Inner {
    pub(super) async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<CartPage> {
        let mut from =
            after.map_or(Timestamp::from_millis(i64::MIN), |after| after.updated_at.plus_ms(-LISTED_FOR_MS));
        let mut found = BTreeMap::<(Timestamp, bool, Uuid), (Owner, StoredCart)>::new();
        let mut met = HashSet::<Owner>::new();
        let days = self.registers.entries(&self.link, DAYS).await?;
        let day_of = |entry: &i64| i32::try_from(*entry).ok().map(Day::from_number);
        for day in days.iter().filter_map(day_of).filter(|day| *day <= untouched_since.day()) {
            if day < from.day() {
                continue;
            }
            loop {
                let (entries, seen_to) = self.entries(day, from, untouched_since).await?;
                let new: Vec<Owner> = entries.into_iter().filter(|owner| met.insert(*owner)).collect();
                let carts: Vec<Option<(Owner, StoredCart)>> = stream::iter(new)
                    .map(|owner| async move {
                        let cart = self.gather(owner).await?.live(now);
                        Ok::<_, mobimir_core::ports::StoreError>(cart.map(|cart| (owner, cart)))
                    })
                    .buffer_unordered(CARTS_READ_AT_ONCE)
                    .try_collect()
                    .await?;
                for (owner, cart) in carts.into_iter().flatten() {
                    let position = CartPosition::of(owner, cart.updated_at);
                    let is_next = after.is_none_or(|after| position.key() > after.key());
                    if is_next && cart.updated_at <= untouched_since {
                        found.insert(position.key(), (owner, cart));
                    }
                }
                // Up to here every cart has been met.
                let settled = found.range(..(seen_to.plus_ms(1), false, Uuid::nil())).count();
                if settled > limit {
                    return Ok(page(found, limit));
                }
                if met.len() >= CARTS_LOOKED_AT_MAX && seen_to < untouched_since {
                    return Ok(unfinished(found, seen_to, after));
                }
                if seen_to.plus_ms(1).day() > day || seen_to >= untouched_since {
                    break;
                }
                from = seen_to.plus_ms(1);
            }
            from = from.max(day.start().plus_ms(1));
        }
        Ok(page(found, limit))
    }

    /// The entries of a day from a moment on, and up to when these are all.
    async fn entries(
        &self,
        day: Day,
        from: Timestamp,
        to: Timestamp,
    ) -> StoreResult<(Vec<Owner>, Timestamp)> {
        let end_of_day = Day::from_number(day.number() + 1).start().plus_ms(-1);
        let (from, to) = (from.max(day.start()), to.min(end_of_day));
        let shards = (0..TOUCH_SHARDS).map(|shard| async move {
            let times = [from, to].map(|time| CqlTimestamp(time.as_millis()));
            let mut limit = SHARD_ENTRIES;
            loop {
                let values = (day.number(), shard, times[0], times[1], limit);
                let rows = self.link.read(&self.touched, values).await?;
                let is_full = rows.rows_num() >= usize::try_from(limit).unwrap_or_default();
                let mut entries = Vec::with_capacity(rows.rows_num());
                let decoded = rows
                    .rows::<(CqlTimestamp, i8, Uuid)>()
                    .map_err(|error| damaged("a list of carts", error))?;
                for row in decoded {
                    let (touched_at, kind, owner) = row.map_err(|error| damaged("a list of carts", error))?;
                    entries.push((Timestamp::from_millis(touched_at.0), owner_of((kind, owner))?));
                }
                let last = entries.last().map(|(at, _)| *at);
                match last {
                    // More may stand under the same time as the last that was read.
                    Some(last) if is_full && last > from => return Ok((entries, last.plus_ms(-1))),
                    Some(_) if is_full => limit = limit.saturating_mul(2),
                    _ => return Ok((entries, to)),
                }
            }
        });
        let shards: Vec<(Vec<(Timestamp, Owner)>, Timestamp)> = try_join_all(shards).await?;
        let seen_to = shards.iter().map(|(_, seen_to)| *seen_to).min().unwrap_or(to);
        let mut entries: Vec<(Timestamp, Owner)> =
            shards.into_iter().flat_map(|(entries, _)| entries).collect();
        entries.retain(|(at, _)| *at <= seen_to);
        Ok((entries.into_iter().map(|(_, owner)| owner).collect(), seen_to))
    }
}

fn page(found: BTreeMap<(Timestamp, bool, Uuid), (Owner, StoredCart)>, limit: usize) -> CartPage {
    let carts: Vec<(Owner, StoredCart)> = found.into_values().collect();
    Page::cut(carts, limit, |(owner, cart)| CartPosition::of(*owner, cart.updated_at))
}

/// What stands before the end of what was seen, and from where to go on.
fn unfinished(
    mut found: BTreeMap<(Timestamp, bool, Uuid), (Owner, StoredCart)>,
    seen_to: Timestamp,
    after: Option<CartPosition>,
) -> CartPage {
    let end = CartPosition { updated_at: seen_to, is_guest: true, owner: Uuid::max() };
    found.split_off(&(seen_to.plus_ms(1), false, Uuid::nil()));
    let next = after.filter(|after| after.key() > end.key()).unwrap_or(end);
    Page { items: found.into_values().collect(), next: Some(next) }
}
