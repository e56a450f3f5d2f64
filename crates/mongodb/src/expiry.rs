//! When the server may remove what has expired.
//!
//! Whoever reads goes by `expires_at` and the time that the caller names. The server removes by its own clock, and late:
//! `gone_at` says when, by that clock, what is left of a thing's life has passed. So neither a caller whose clock is
//! behind nor one who lives in another time altogether (a test, an import) loses anything early.

use mobimir_core::time::{Clock, SystemClock, Timestamp};
use mongodb::bson::DateTime;

use crate::leaves::date;

/// How far the clocks of this machine and of the servers may be apart.
pub(crate) const KEPT_BEYOND_MS: i64 = 60_000;

/// For something that has to be there until `expires_at` for a caller whose time is `now` or later.
pub(crate) fn gone_at(expires_at: Timestamp, now: Timestamp) -> DateTime {
    date(SystemClock.now().plus_ms(expires_at.since(now)).plus_ms(KEPT_BEYOND_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaves::time;

    #[test]
    fn nothing_is_gone_before_its_time_whatever_time_the_caller_has() {
        for now in [Timestamp::from_millis(0), SystemClock.now(), Timestamp::from_millis(64_000_000_000_000)]
        {
            let left_ms = 3_600_000;
            let gone_at = time(gone_at(now.plus_ms(left_ms), now));
            let kept_ms = gone_at.since(SystemClock.now());
            assert!((left_ms..=left_ms + KEPT_BEYOND_MS).contains(&kept_ms), "{kept_ms} ms at {now}");
        }
    }

    #[test]
    fn what_never_expires_is_never_gone() {
        let never = Timestamp::from_millis(i64::MAX);
        assert_eq!(time(gone_at(never, Timestamp::from_millis(0))), never);
    }
}
