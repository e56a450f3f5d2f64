//! Timestamps of cells.

use std::sync::atomic::{AtomicI64, Ordering};

use mobimir_core::time::{Clock, SystemClock, Timestamp};

/// Gives out the time in microseconds, each later than the one before.
#[derive(Debug, Default)]
pub(crate) struct Stamps(AtomicI64);

/// What is written first carries a stamp from this long ago, so that a conditional write which comes later, stamped by
/// another machine's clock, always wins over it.
const FIRST_WRITE_BACK_US: i64 = 3_600_000_000;

/// The longest time to live that Cassandra takes: twenty years.
const TTL_S_MAX: i64 = 20 * 365 * 24 * 3_600;

impl Stamps {
    pub(crate) fn next(&self) -> i64 {
        let now_us = real_now().as_millis() * 1_000;
        let mut given = 0;
        // `fetch_update` with a closure that always gives a value cannot fail.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            given = now_us.max(last + 1);
            Some(given)
        });
        given
    }

    /// For a row that will be changed by conditional statements only.
    pub(crate) fn first_write(&self) -> i64 {
        self.next() - FIRST_WRITE_BACK_US
    }
}

/// The time to live of a row that has to be there until `kept_until`, for the cluster's clock; 0 is for ever.
///
/// It is never less than what is left: what reads a row looks at the time that stands in it, and a row that is gone
/// earlier could not be looked at. Hence one second more for the part of one that is cut off here, and one for the part
/// that the server cuts off its clock before it adds the time to live.
pub(crate) fn ttl_s(kept_until: Timestamp) -> i32 {
    let left_ms = kept_until.since(real_now()).max(0);
    let left_s = left_ms / 1_000 + 2;
    if left_s > TTL_S_MAX { 0 } else { i32::try_from(left_s).unwrap_or(0) }
}

/// The machine's clock, which is what the cluster's own clocks are to agree with; `now` of a call may be another.
pub(crate) fn real_now() -> Timestamp {
    SystemClock.now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_rise_and_first_writes_lie_behind() {
        let stamps = Stamps::default();
        let given: Vec<i64> = (0..1_000).map(|_| stamps.next()).collect();
        assert!(given.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(stamps.first_write() < given[0]);
    }

    #[test]
    fn nothing_left_is_not_for_ever() {
        let now = real_now();
        assert_eq!(ttl_s(now.plus_ms(-5_000)), 2);
        assert_eq!(ttl_s(Timestamp::from_millis(i64::MAX)), 0);
        let hour = ttl_s(now.plus_s(3_600));
        // Less what has passed since then.
        let least = 3_601 - real_now().since(now) / 1_000;
        assert!((least..=3_602).contains(&i64::from(hour)), "{hour}");
    }
}
