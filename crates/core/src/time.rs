//! Time as a value. Rules take a [`Timestamp`]; only the edges ask a [`Clock`].

use std::sync::atomic::{AtomicI64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A point in time, to the millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A version of a stored entity: a hybrid clock in microseconds that only moves forward ([`Version::next`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A day in UTC, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i32);

/// A month in UTC, counted from the beginning of the year 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(i32);

#[derive(Debug, Error, PartialEq, Eq)]
pub enum TimeError {
    #[error("expected a time like 2025-11-28T09:00:00Z, got {0:?}")]
    BadTimestamp(String),
    #[error("expected a day like 2025-11-28, got {0:?}")]
    BadDay(String),
    #[error("expected a month like 2025-11, got {0:?}")]
    BadMonth(String),
}

const MS_PER_DAY: i64 = 86_400_000;

/// 0000-01-01 to 9999-12-30T22:00: what RFC 3339 can write, less the last hours, which have no place in every time
/// zone.
const MILLIS_MIN: i64 = -62_167_219_200_000;
const MILLIS_MAX: i64 = 253_402_207_200_000;

impl Timestamp {
    pub const fn from_millis(ms: i64) -> Self {
        Self(if ms < MILLIS_MIN {
            MILLIS_MIN
        } else if ms > MILLIS_MAX {
            MILLIS_MAX
        } else {
            ms
        })
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    pub fn plus_ms(self, ms: i64) -> Self {
        Self::from_millis(self.0.saturating_add(ms))
    }

    pub fn plus_s(self, s: i64) -> Self {
        self.plus_ms(s.saturating_mul(1000))
    }

    /// Milliseconds from `earlier` to here; negative when it lies ahead.
    pub fn since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    pub fn day(self) -> Day {
        Day(i32::try_from(self.0.div_euclid(MS_PER_DAY)).unwrap_or(i32::MAX))
    }

    /// `2025-11-28T09:00:00.000Z`. By hand, because a page of products has dozens of them.
    fn rfc3339(self) -> [u8; 24] {
        let days = self.0.div_euclid(MS_PER_DAY);
        let ms = self.0.rem_euclid(MS_PER_DAY);
        let (year, month, day) = civil(days);

        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, digits: usize, mut number: i64| {
            for place in (at..at + digits).rev() {
                text[place] = b'0' + (number % 10) as u8;
                number /= 10;
            }
        };
        put(0, 4, year);
        put(5, 2, month);
        put(8, 2, day);
        put(11, 2, ms / 3_600_000);
        put(14, 2, ms / 60_000 % 60);
        put(17, 2, ms / 1_000 % 60);
        put(20, 3, ms % 1_000);
        text
    }

    pub fn parse(text: &str) -> Result<Self, TimeError> {
        if let Ok(parsed) = text.parse::<jiff::Timestamp>() {
            return Ok(Self::from_millis(parsed.as_millisecond()));
        }
        // People write the last second there is to mean "for ever".
        let is_the_end = text.starts_with("9999-12-3")
            && text.get(..19).is_some_and(|text| text.parse::<jiff::civil::DateTime>().is_ok());
        if is_the_end {
            Ok(Self(MILLIS_MAX))
        } else {
            Err(TimeError::BadTimestamp(text.chars().take(40).collect()))
        }
    }
}

impl std::fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.rfc3339()).unwrap_or_default())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.rfc3339();
        serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Version {
    /// The version of the next write: the clock in microseconds, but always past the one before.
    pub fn next(self, now: Timestamp) -> Version {
        let now_us = now.as_millis().max(0).cast_unsigned().saturating_mul(1000);
        Version(now_us.max(self.0 + 1))
    }
}

/// Year, month and day of a day since 1970, counted in eras of 400 years that begin on the first of March.
fn civil(days: i64) -> (i64, i64, i64) {
    let since_era = days + 719_468;
    let (era, day_of_era) = (since_era.div_euclid(146_097), since_era.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

impl Day {
    pub fn from_number(days_since_epoch: i32) -> Self {
        Self(days_since_epoch)
    }

    pub fn number(self) -> i32 {
        self.0
    }

    /// Months since the year 0.
    pub fn month(self) -> i32 {
        let (year, month, _) = civil(i64::from(self.0));
        i32::try_from(year * 12 + month - 1).unwrap_or_default()
    }

    pub fn start(self) -> Timestamp {
        Timestamp::from_millis(i64::from(self.0) * MS_PER_DAY)
    }

    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let bad = || TimeError::BadDay(text.chars().take(40).collect());
        let shape = text.len() == 10
            && text
                .bytes()
                .enumerate()
                .all(|(at, b)| if at == 4 || at == 7 { b == b'-' } else { b.is_ascii_digit() });
        if !shape {
            return Err(bad());
        }
        let date: jiff::civil::Date = text.parse().map_err(|_| bad())?;
        let days = date.duration_since(jiff::civil::date(1970, 1, 1)).as_hours() / 24;
        Ok(Self(i32::try_from(days).map_err(|_| bad())?))
    }
}

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let days = jiff::Span::new().try_days(self.0).map_err(|_| std::fmt::Error)?;
        let date = jiff::civil::date(1970, 1, 1).checked_add(days).map_err(|_| std::fmt::Error)?;
        write!(f, "{date}")
    }
}

impl Month {
    pub fn of(day: Day) -> Self {
        Self(day.month())
    }

    /// Like `2011-03`.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let bad = || TimeError::BadMonth(text.chars().take(40).collect());
        Day::parse(&format!("{text}-01")).map(Self::of).map_err(|_| bad())
    }

    /// This one and those up to `last`.
    pub fn up_to(self, last: Month) -> impl Iterator<Item = Month> {
        (self.0..=last.0).map(Month)
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", self.0.div_euclid(12), self.0.rem_euclid(12) + 1)
    }
}

impl Serialize for Month {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Month {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A moment by both clocks of a machine, to measure how old something in memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub wall: Timestamp,
    pub boot_ms: i64,
}

impl Moment {
    /// Milliseconds since `earlier`, by the clock that has advanced further: the wall clock can be set back,
    /// and the boot clock of a virtual machine can stand still while the machine does.
    pub fn since(self, earlier: Moment) -> i64 {
        self.wall.since(earlier.wall).max(self.boot_ms.saturating_sub(earlier.boot_ms))
    }
}

/// Where the edges get the time from.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// Milliseconds since the machine was started, suspended time included. Nobody sets this clock.
    fn boot_ms(&self) -> i64 {
        self.now().as_millis()
    }

    fn moment(&self) -> Moment {
        Moment { wall: self.now(), boot_ms: self.boot_ms() }
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
    }

    fn boot_ms(&self) -> i64 {
        // The monotonic clock does not count the time for which the machine was suspended.
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
    }
}

/// A clock that stands still until it is moved, for tests.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    boot_ms: AtomicI64,
}

impl ManualClock {
    pub fn at(start: Timestamp) -> Self {
        Self { wall_ms: AtomicI64::new(start.as_millis()), boot_ms: AtomicI64::new(0) }
    }

    pub fn advance_ms(&self, ms: i64) {
        self.shift_wall_ms(ms);
        self.boot_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock forward or back, as an administrator or NTP does.
    pub fn shift_wall_ms(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.wall_ms.load(Ordering::SeqCst))
    }

    fn boot_ms(&self) -> i64 {
        self.boot_ms.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_written_with_milliseconds_in_utc() {
        let time = Timestamp::parse("2025-11-28T12:00:00.5+03:00").unwrap();
        assert_eq!(time.to_string(), "2025-11-28T09:00:00.500Z");
        assert_eq!(time.day().to_string(), "2025-11-28");
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        let end = Timestamp::parse("9999-12-31T23:59:59Z").unwrap();
        assert_eq!(end, Timestamp::from_millis(i64::MAX));
        assert_eq!(end.to_string(), "9999-12-30T22:00:00.000Z");
    }

    #[test]
    fn a_day_is_a_real_one() {
        for day in ["2024-02-29", "1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31"] {
            assert_eq!(Day::parse(day).unwrap().to_string(), day);
        }
        assert_eq!(
            Day::parse("2025-11-28").unwrap(),
            Timestamp::parse("2025-11-28T23:59:59.999Z").unwrap().day()
        );
        for bad in ["2025-02-29", "2025-1-1", "28.11.2025", "", "2025-11-28T00:00:00Z", "+002025-11-28"] {
            assert!(Day::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_month_is_written_as_it_is_read() {
        for month in ["2011-03", "1999-12", "2024-01"] {
            assert_eq!(Month::parse(month).unwrap().to_string(), month);
            assert_eq!(Month::of(Day::parse(&format!("{month}-28")).unwrap()).to_string(), month);
        }
        let [from, to] = ["2010-11", "2011-02"].map(|month| Month::parse(month).unwrap());
        let months: Vec<String> = from.up_to(to).map(|month| month.to_string()).collect();
        assert_eq!(months, ["2010-11", "2010-12", "2011-01", "2011-02"]);
        for bad in ["2025-13", "2025", "2025-1", "11-2025", "2025-11-01", ""] {
            assert!(Month::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_age_is_that_of_the_clock_that_advanced_further() {
        let clock = ManualClock::at(Timestamp::from_millis(1_000_000));
        let earlier = clock.moment();
        clock.advance_ms(500);
        assert_eq!(clock.moment().since(earlier), 500);
        clock.shift_wall_ms(-10_000);
        assert_eq!(clock.moment().since(earlier), 500, "the wall clock was set back");
        clock.shift_wall_ms(70_000);
        assert_eq!(clock.moment().since(earlier), 60_500, "the boot clock stood still");
    }

    #[test]
    fn the_boot_clock_of_the_machine_moves_forward() {
        let earlier = SystemClock.boot_ms();
        assert!(earlier > 0 && SystemClock.boot_ms() >= earlier);
    }

    proptest! {
        #[test]
        fn a_time_survives_the_wire(ms in MILLIS_MIN..=MILLIS_MAX) {
            let time = Timestamp::from_millis(ms);
            prop_assert_eq!(Timestamp::parse(&time.to_string()), Ok(time));
            let by_the_book = jiff::Timestamp::from_millisecond(ms).unwrap();
            prop_assert_eq!(time.to_string(), format!("{by_the_book:.3}"));
        }

        #[test]
        fn versions_only_move_forward(previous in 0..u64::MAX / 2, now in any::<i64>()) {
            prop_assert!(Version(previous).next(Timestamp::from_millis(now)) > Version(previous));
        }
    }
}
