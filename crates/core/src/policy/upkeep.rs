//! How Cassandra's tables are kept in order: compaction and repair.

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::{
    reader::Value,
    values::{Period, serialize_as_text, words},
};

/// `"stcs"`, `"lcs"` or `"twcs 1d"` with its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    SizeTiered,
    Leveled,
    TimeWindow(Period),
}

/// `"none"`, an interval like `"24h"`, or a time in UTC: `"Sunday 02:00"`, or `"day 1 03:00"` of the month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    None,
    Every(Period),
    Weekly(Weekday, TimeOfDay),
    Monthly(u8, TimeOfDay),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOfDay {
    pub hour: u8,
    pub minute: u8,
}

words! {
    Weekday {
        Monday = "Monday",
        Tuesday = "Tuesday",
        Wednesday = "Wednesday",
        Thursday = "Thursday",
        Friday = "Friday",
        Saturday = "Saturday",
        Sunday = "Sunday",
    }
}

/// The last day that every month has.
const MONTH_DAY_MAX: u8 = 28;

impl Compaction {
    /// Windows are whole minutes, the smallest unit that Cassandra takes.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "stcs" => Some(Self::SizeTiered),
            "lcs" => Some(Self::Leveled),
            _ => {
                let window = Period::parse(text.strip_prefix("twcs ")?)?;
                let whole = window.as_ms() > 0 && window.as_ms() % Period::minutes(1).as_ms() == 0;
                whole.then_some(Self::TimeWindow(window))
            }
        }
    }
}

impl Repair {
    pub const EVERY_MIN: Period = Period::hours(1);

    /// The longest time from one repair to the next; `None` when none is planned.
    pub fn interval(self) -> Option<Period> {
        match self {
            Self::None => None,
            Self::Every(period) => Some(period),
            Self::Weekly(..) => Some(Period::days(7)),
            Self::Monthly(..) => Some(Period::days(31)),
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self::None);
        }
        if let Some(period) = Period::parse(text) {
            return (period >= Self::EVERY_MIN).then_some(Self::Every(period));
        }
        let (day, time) = text.rsplit_once(' ')?;
        let time = TimeOfDay::parse(time)?;
        if let Some(weekday) = Weekday::parse(day) {
            return Some(Self::Weekly(weekday, time));
        }
        let day: u8 = day.strip_prefix("day ")?.parse().ok()?;
        (1..=MONTH_DAY_MAX).contains(&day).then_some(Self::Monthly(day, time))
    }
}

impl TimeOfDay {
    fn parse(text: &str) -> Option<Self> {
        let (hour, minute) = text.split_once(':')?;
        let number = |part: &str| -> Option<u8> {
            (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse().ok())?
        };
        let time = Self { hour: number(hour)?, minute: number(minute)? };
        (time.hour < 24 && time.minute < 60).then_some(time)
    }
}

impl std::fmt::Display for Compaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SizeTiered => f.write_str("stcs"),
            Self::Leveled => f.write_str("lcs"),
            Self::TimeWindow(window) => write!(f, "twcs {window}"),
        }
    }
}

impl std::fmt::Display for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Every(period) => write!(f, "{period}"),
            Self::Weekly(day, time) => write!(f, "{day} {time}"),
            Self::Monthly(day, time) => write!(f, "day {day} {time}"),
        }
    }
}

impl std::fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)
    }
}

serialize_as_text!(Compaction, Repair);

impl Value for Compaction {
    fn expected() -> String {
        "\"stcs\", \"lcs\" or \"twcs 1d\" with a window of whole minutes".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
}

impl Value for Repair {
    fn expected() -> String {
        "\"none\", an interval of at least \"1h\", or a time like \"Sunday 02:00\" or \"day 1 03:00\""
            .to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_never_an_interval_or_a_time() {
        for text in ["none", "1d", "Sunday 02:00", "day 1 03:00"] {
            assert_eq!(Repair::parse(text).unwrap().to_string(), text);
        }
        for bad in [
            "",
            "59m",
            "Sunday",
            "Sunday 2:00",
            "Sunday 24:00",
            "day 29 03:00",
            "day 0 03:00",
            "sunday 02:00",
        ] {
            assert_eq!(Repair::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_time_window_is_of_whole_minutes() {
        for text in ["stcs", "lcs", "twcs 1d", "twcs 90m"] {
            assert_eq!(Compaction::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "twcs", "twcs 0d", "twcs 90s", "STCS"] {
            assert_eq!(Compaction::parse(bad), None, "{bad}");
        }
    }
}
