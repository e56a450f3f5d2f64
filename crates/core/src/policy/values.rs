//! What stands behind the keys: durations, sizes and the words that a key may hold.

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::reader::Value;

/// A length of time, written like `"15s"`: a whole number and one of ms, s, m, h, d.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(i64);

/// How long something is kept: a duration, or `"never"` when it never expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ttl {
    After(Period),
    Never,
}

/// An amount of data, written like `"64MiB"`: a whole number and one of B, KiB, MiB, GiB, TiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

const PERIOD_UNITS: [(&str, i64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
const BYTE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Period {
    /// A hundred years: longer than anything here has to last.
    pub const MAX: Period = Period::days(36_500);

    pub const fn millis(ms: i64) -> Self {
        Self(ms)
    }

    pub const fn seconds(s: i64) -> Self {
        Self(s * 1000)
    }

    pub const fn minutes(m: i64) -> Self {
        Self::seconds(m * 60)
    }

    pub const fn hours(h: i64) -> Self {
        Self::minutes(h * 60)
    }

    pub const fn days(d: i64) -> Self {
        Self::hours(d * 24)
    }

    pub const fn as_ms(self) -> i64 {
        self.0
    }

    pub const fn plus(self, more: Period) -> Self {
        Self(self.0 + more.0)
    }

    pub const fn times(self, n: i64) -> Self {
        Self(self.0 * n)
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (digits, unit) = split_unit(text)?;
        let (_, factor) = PERIOD_UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let period = Self(digits.parse::<i64>().ok()?.checked_mul(factor)?);
        (period <= Self::MAX).then_some(period)
    }
}

impl Bytes {
    pub const fn mebi(n: u64) -> Self {
        Self(n << 20)
    }

    pub const fn gibi(n: u64) -> Self {
        Self(n << 30)
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (digits, unit) = split_unit(text)?;
        let (_, factor) = BYTE_UNITS.into_iter().find(|(name, _)| *name == unit)?;
        Some(Self(digits.parse::<u64>().ok()?.checked_mul(factor)?))
    }
}

impl Ttl {
    pub fn as_ms(self) -> Option<i64> {
        match self {
            Self::After(period) => Some(period.as_ms()),
            Self::Never => None,
        }
    }
}

/// `"15s"` into `"15"` and `"s"`.
fn split_unit(text: &str) -> Option<(&str, &str)> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    (!digits.is_empty()).then_some((digits, unit))
}

impl std::fmt::Display for Period {
    /// In the largest unit that divides it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match PERIOD_UNITS.iter().find(|(_, factor)| self.0 != 0 && self.0 % factor == 0) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}s", self.0),
        }
    }
}

impl std::fmt::Display for Ttl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::After(period) => write!(f, "{period}"),
            Self::Never => f.write_str("never"),
        }
    }
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match BYTE_UNITS.iter().find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor)) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Value for Period {
    fn expected() -> String {
        "a duration like \"7d\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
}

impl Value for Ttl {
    fn expected() -> String {
        "a duration like \"7d\", or \"never\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        match value.as_str()? {
            "never" => Some(Self::Never),
            text => Some(Self::After(Period::parse(text)?)),
        }
    }
}

impl Value for Bytes {
    fn expected() -> String {
        "a size like \"64MiB\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
}

impl Value for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_bool()
    }
}

impl Value for String {
    fn expected() -> String {
        "a text".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

/// Serialises a type as the text that it is written as.
macro_rules! serialize_as_text {
    ($($name:ty),* $(,)?) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
pub(super) use serialize_as_text;

serialize_as_text!(Period, Ttl, Bytes);

/// An enum whose variants are words in the file.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant),* }

        impl $name {
            pub const ALL: &'static [$name] = &[$(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl $crate::policy::reader::Value for $name {
            fn expected() -> String {
                let quoted = |word: &Self| format!("{:?}", word.as_str());
                format!("one of {}", Self::ALL.iter().map(quoted).collect::<Vec<_>>().join(", "))
            }

            fn read(value: &toml::de::DeValue<'_>) -> Option<Self> {
                Self::parse(value.as_str()?)
            }
        }
    };
}
pub(super) use words;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_is_a_number_and_one_unit() {
        assert_eq!(Period::parse("15s"), Some(Period::seconds(15)));
        assert_eq!(Period::parse("50ms"), Some(Period::millis(50)));
        assert_eq!(Period::parse("24h").unwrap().to_string(), "1d");
        assert_eq!(Period::parse("0s").unwrap().to_string(), "0s");
        for bad in ["", "7 days", "7", "d", "-1s", "1.5h", "1h30m", "7D", "9223372036854775807d", "36501d"] {
            assert_eq!(Period::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_duration_survives_being_written(ms in 0..=Period::MAX.as_ms()) {
            let period = Period::millis(ms);
            prop_assert_eq!(Period::parse(&period.to_string()), Some(period));
        }

        #[test]
        fn a_size_survives_being_written(bytes in any::<u64>()) {
            prop_assert_eq!(Bytes::parse(&Bytes(bytes).to_string()), Some(Bytes(bytes)));
        }
    }
}
