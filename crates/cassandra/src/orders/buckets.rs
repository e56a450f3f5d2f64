//! Over how many buckets the orders of a day are spread.
//!
//! The plan stands in the cluster, numbered entry by entry: so many buckets from such a moment on. All instances follow it.
//! Where the policy says `adaptive`, each instance writes down how many orders went into its fullest bucket, and when
//! all of them together pass what a bucket may get, the count is doubled, some time ahead, so that everybody knows
//! of it when it begins. Two instances that see the same need publish the same number, and one of them is refused. A count
//! is never lowered by itself, not even for a new day: the next peak may come as suddenly.
//!
//! Nothing is ever lost or found twice by this. An order carries its bucket, which was fixed when the order was made; a
//! day's buckets are registered as they are first written ([`super::by_day`]); and who reads asks the register, never
//! the plan. So instances may even disagree about the count for a while.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use mobimir_core::{id, order::Order, policy::OrderBuckets, ports::StoreResult, time::Timestamp};
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::{
    Inner,
    rows::{cql_time, time},
};
use crate::{
    ConnectError, StatementKind,
    link::{Decided, Link, Owed, Statement, damaged},
    stamps,
};

pub struct BucketPlan {
    policy: OrderBuckets,
    /// Newest first.
    entries: RwLock<Vec<Entry>>,
    written: Mutex<BTreeMap<i64, BTreeMap<u16, u64>>>,
    instance: Uuid,
    statements: Statements,
}

struct Statements {
    entries: Statement,
    publish: Statement,
    write_rate: Statement,
    rates: Statement,
}

/// So many buckets from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: i32,
    count: u16,
    effective_from: Timestamp,
}

/// What one instance wrote in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rate {
    orders: u64,
    fullest: u64,
}

/// The one plan there is.
const PLAN: i8 = 0;
/// Entries that are looked at: the ones that hold now and soon.
const ENTRIES_READ: i32 = 16;
/// Periods that are kept: the one that runs, and those not yet written down.
const PERIODS_KEPT: usize = 4;
/// How long after the end of a period all instances have written down what they did in it, if periods are that long.
const SETTLED_AFTER_MAX: Duration = Duration::from_secs(1);

impl BucketPlan {
    pub(super) async fn open(link: &Link, policy: OrderBuckets) -> Result<Self, ConnectError> {
        use StatementKind::{Decision, Read, Write};
        let statements = Statements {
            entries: link
                .prepare(
                    "bucket_plan",
                    Read,
                    "SELECT number, count, effective_from FROM {}.bucket_plan WHERE plan = ? LIMIT ?",
                )
                .await?,
            publish: link
                .prepare(
                    "plan_buckets",
                    Decision,
                    "INSERT INTO {}.bucket_plan (plan, number, count, effective_from) \
                    VALUES (?, ?, ?, ?) IF NOT EXISTS",
                )
                .await?,
            write_rate: link
                .prepare(
                    "bucket_rate",
                    Write,
                    "INSERT INTO {}.bucket_rates (period, instance, orders, fullest) \
                    VALUES (?, ?, ?, ?) USING TTL ?",
                )
                .await?,
            rates: link
                .prepare("bucket_rates", Read, "SELECT orders, fullest FROM {}.bucket_rates WHERE period = ?")
                .await?,
        };
        let plan = Self {
            policy,
            entries: RwLock::default(),
            written: Mutex::default(),
            instance: id::fresh(stamps::real_now()),
            statements,
        };
        plan.begin(link).await?;
        Ok(plan)
    }

    /// Over how many buckets an order that is made now is spread.
    pub fn count_at(&self, now: Timestamp) -> u16 {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let holds = entries.iter().find(|entry| entry.effective_from <= now);
        holds.or(entries.last()).map_or(self.policy.count, |entry| entry.count).max(1)
    }

    /// An order was written. Only today's count: what is imported is spread over days.
    pub(super) fn wrote(&self, order: &Order) {
        let now = stamps::real_now();
        if !self.policy.adaptive || order.day() != now.day() {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        *written.entry(self.period_of(now)).or_default().entry(order.bucket).or_default() += 1;
        while written.len() > PERIODS_KEPT {
            written.pop_first();
        }
    }

    /// Follows the plan that is there, makes one if there is none, and says what the policy wants now.
    ///
    /// Only when an instance starts: two with different policies would otherwise take turns for ever.
    async fn begin(&self, link: &Link) -> StoreResult<()> {
        self.refresh(link).await?;
        if self.newest().is_none() {
            let ever = Timestamp::from_millis(i64::MIN);
            self.publish(link, Entry { number: 0, count: self.policy.count, effective_from: ever }).await?;
        }
        if let Some(newest) = self.newest()
            && let Some(entry) = told(newest, &self.policy, stamps::real_now())
        {
            self.publish(link, entry).await?;
        }
        Ok(())
    }

    async fn refresh(&self, link: &Link) -> StoreResult<()> {
        let rows = link.read(&self.statements.entries, (PLAN, ENTRIES_READ)).await?;
        let mut entries = Vec::with_capacity(rows.rows_num());
        let decoded =
            rows.rows::<(i32, i32, CqlTimestamp)>().map_err(|error| damaged("the plan of buckets", error))?;
        for row in decoded {
            let (number, count, from) = row.map_err(|error| damaged("the plan of buckets", error))?;
            let count = u16::try_from(count).map_err(|error| damaged("the plan of buckets", error))?;
            entries.push(Entry { number, count, effective_from: time(from) });
        }
        if !entries.is_empty() {
            *self.entries.write().unwrap_or_else(PoisonError::into_inner) = entries;
        }
        Ok(())
    }

    /// Publishes an entry, unless somebody else has published one under its number.
    async fn publish(&self, link: &Link, entry: Entry) -> StoreResult<()> {
        let Entry { number, count, effective_from } = entry;
        let values = (PLAN, number, i32::from(count), cql_time(effective_from));
        let decided = link.decide(&self.statements.publish, values, Owed(Vec::new())).await?;
        if matches!(decided, Decided::Applied) && number > 0 {
            tracing::info!(count, %effective_from, "the orders of a day will be spread over another number of buckets");
        }
        // Whoever was first, and also if the answer was lost: what stands there counts.
        self.refresh(link).await
    }

    fn newest(&self) -> Option<Entry> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).first().copied()
    }

    fn period_ms(&self) -> i64 {
        self.policy.refresh.as_ms().max(1)
    }

    fn period_of(&self, now: Timestamp) -> i64 {
        now.as_millis().div_euclid(self.period_ms())
    }

    /// Until the period that runs has ended.
    fn rest_of_period(&self) -> Duration {
        let now = stamps::real_now();
        let end_ms = (self.period_of(now) + 1) * self.period_ms();
        Duration::from_millis(end_ms.saturating_sub(now.as_millis()).unsigned_abs())
    }

    fn settled_after(&self) -> Duration {
        SETTLED_AFTER_MAX.min(Duration::from_millis(self.period_ms().unsigned_abs() / 4))
    }

    /// Writes down what this instance wrote in periods that have ended.
    async fn write_rates(&self, link: &Link) -> StoreResult<()> {
        let runs = self.period_of(stamps::real_now());
        let ended = {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            let still = written.split_off(&runs);
            std::mem::replace(&mut *written, still)
        };
        let ttl_s = i32::try_from(self.period_ms() * 4 / 1_000 + 60).unwrap_or(i32::MAX);
        for (period, buckets) in ended {
            let rate = Rate::of(&buckets);
            let [orders, fullest] = [rate.orders, rate.fullest].map(u64::cast_signed);
            let values = (period, self.instance, orders, fullest, ttl_s);
            link.write(&self.statements.write_rate, values, Owed(Vec::new())).await?;
        }
        Ok(())
    }

    async fn rates(&self, link: &Link, period: i64) -> StoreResult<Vec<Rate>> {
        let rows = link.read(&self.statements.rates, (period,)).await?;
        let rates = rows.rows::<(i64, i64)>().map_err(|error| damaged("the rates of buckets", error))?;
        rates
            .map(|row| {
                let (orders, fullest) = row.map_err(|error| damaged("the rates of buckets", error))?;
                Ok(Rate { orders: orders.max(0).cast_unsigned(), fullest: fullest.max(0).cast_unsigned() })
            })
            .collect()
    }

    /// One period has ended: look at it, and at the plan.
    async fn look(&self, link: &Link, period: i64) -> StoreResult<()> {
        self.refresh(link).await?;
        let (true, Some(newest)) = (self.policy.adaptive, self.newest()) else { return Ok(()) };
        let rates = self.rates(link, period).await?;
        let measured = Measured {
            since: Timestamp::from_millis(period * self.period_ms()),
            lasted_ms: self.period_ms(),
            rates: &rates,
        };
        match plan(&measured, newest, &self.policy, stamps::real_now()) {
            Some(entry) => self.publish(link, entry).await,
            None => Ok(()),
        }
    }
}

impl Rate {
    fn of(buckets: &BTreeMap<u16, u64>) -> Self {
        Self { orders: buckets.values().sum(), fullest: buckets.values().copied().max().unwrap_or(0) }
    }
}

impl Inner {
    /// Follows the plan of buckets, as long as the store lives.
    pub(super) fn plan_from_now_on(self: &Arc<Self>) {
        let inner = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                let Some(rest) = inner.upgrade().map(|inner| inner.plan.rest_of_period()) else { return };
                tokio::time::sleep(rest).await;
                let Some(this) = inner.upgrade() else { return };
                let ended = this.plan.period_of(stamps::real_now()) - 1;
                if let Err(error) = this.plan.write_rates(&this.link).await {
                    tracing::debug!(%error, "how many orders were written could not be written down");
                }
                let settled_after = this.plan.settled_after();
                drop(this);
                tokio::time::sleep(settled_after).await;
                let Some(this) = inner.upgrade() else { return };
                if let Err(error) = this.plan.look(&this.link, ended).await {
                    tracing::debug!(%error, "the plan of buckets could not be looked at");
                }
            }
        });
    }
}

/// What all instances wrote in a period.
#[derive(Clone, Copy, Debug)]
struct Measured<'a> {
    since: Timestamp,
    lasted_ms: i64,
    rates: &'a [Rate],
}

/// The next entry, if the fullest bucket gets more than it may.
fn plan(measured: &Measured<'_>, newest: Entry, policy: &OrderBuckets, now: Timestamp) -> Option<Entry> {
    // What was measured before the newest count held says nothing about it.
    if !policy.adaptive || newest.effective_from > measured.since {
        return None;
    }
    // The fullest of each need not be the same one; together they are at least what the fullest of all got.
    let fullest: u64 = measured.rates.iter().map(|rate| rate.fullest).sum();
    let allowed = u128::from(policy.orders_per_s_max) * u128::from(measured.lasted_ms.unsigned_abs());
    let count = newest.count.saturating_mul(2).min(policy.max);
    let is_too_full = u128::from(fullest) * 1_000 > allowed;
    (is_too_full && count > newest.count).then(|| entry_after(newest, count, policy, now))
}

/// The next entry, if the policy says another count than the plan. An adaptive one was raised for a reason.
fn told(newest: Entry, policy: &OrderBuckets, now: Timestamp) -> Option<Entry> {
    let count = if policy.adaptive { policy.count.max(newest.count) } else { policy.count };
    (count != newest.count).then(|| entry_after(newest, count, policy, now))
}

fn entry_after(newest: Entry, count: u16, policy: &OrderBuckets, now: Timestamp) -> Entry {
    let ahead_ms = policy.ahead.max(policy.refresh.times(2)).as_ms();
    Entry { number: newest.number + 1, count, effective_from: now.plus_ms(ahead_ms) }
}

#[cfg(test)]
mod tests {
    use mobimir_core::policy::Period;

    use super::*;

    const POLICY: OrderBuckets = OrderBuckets {
        count: 8,
        adaptive: true,
        max: 48,
        orders_per_s_max: 500,
        refresh: Period::seconds(30),
        ahead: Period::seconds(60),
    };

    fn at(s: i64) -> Timestamp {
        Timestamp::from_millis(s * 1_000)
    }

    /// What is planned when two instances each wrote so much into their fullest bucket in half a minute.
    fn planned(newest: Entry, fullest: [u64; 2], since_s: i64) -> Option<(i32, u16, Timestamp)> {
        let rates = fullest.map(|fullest| Rate { orders: fullest * 3, fullest });
        let measured = Measured { since: at(since_s), lasted_ms: 30_000, rates: &rates };
        plan(&measured, newest, &POLICY, at(since_s + 31))
            .map(|entry| (entry.number, entry.count, entry.effective_from))
    }

    #[test]
    fn a_count_is_doubled_ahead_of_time_when_all_instances_together_write_too_much() {
        let newest = Entry { number: 3, count: 8, effective_from: at(0) };
        assert_eq!(planned(newest, [7_500, 7_500], 300), None);
        assert_eq!(planned(newest, [7_500, 7_501], 300), Some((4, 16, at(391))));
        assert_eq!(planned(newest, [0, 0], 300), None);
    }

    #[test]
    fn a_raise_is_waited_for_before_the_next() {
        let newest = Entry { number: 4, count: 16, effective_from: at(391) };
        assert_eq!(planned(newest, [90_000, 0], 330), None);
        assert_eq!(planned(newest, [90_000, 0], 390), None);
        assert_eq!(planned(newest, [90_000, 0], 420), Some((5, 32, at(511))));
    }

    #[test]
    fn there_is_a_most() {
        let at_32 = Entry { number: 5, count: 32, effective_from: at(0) };
        assert_eq!(planned(at_32, [90_000, 0], 60).map(|(_, count, _)| count), Some(48));
        assert_eq!(planned(Entry { count: 48, ..at_32 }, [90_000, 0], 60), None);
    }

    #[test]
    fn the_policy_may_say_another_count_but_never_undo_a_raise() {
        let now = at(1_000);
        let newest = Entry { number: 1, count: 16, effective_from: at(0) };
        assert_eq!(told(newest, &POLICY, now), None);
        let more = OrderBuckets { count: 24, ..POLICY };
        assert_eq!(told(newest, &more, now).map(|entry| (entry.number, entry.count)), Some((2, 24)));
        let fixed = OrderBuckets { adaptive: false, ..POLICY };
        let lowered = told(newest, &fixed, now).unwrap();
        assert_eq!((lowered.count, lowered.effective_from), (8, at(1_060)));
        assert_eq!(told(Entry { count: 8, ..newest }, &fixed, now), None);
    }
}
