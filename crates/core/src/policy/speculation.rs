//! When Cassandra asks one more replica instead of waiting for a slow one.

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::{
    reader::Value,
    values::{Period, serialize_as_text},
};

/// A table's `speculative_retry`, as CQL takes it: `"none"`, `"always"`, `"99p"`, `"50ms"`, or the earlier or later
/// of a percentile and a time, `"MIN(99p,50ms)"` and `"MAX(99p,50ms)"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeculativeRetry {
    None,
    Always,
    Percentile(Percentile),
    After(Period),
    Earlier(Percentile, Period),
    Later(Percentile, Period),
}

/// More than 0 and less than 100 percent of a table's reads, in the steps that Cassandra keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile {
    ten_thousandths: u32,
}

const PERCENTILE_DIGITS_MAX: usize = 4;
const PERCENT: u32 = 10_u32.pow(4);

impl SpeculativeRetry {
    /// Cassandra does not distinguish capital letters here, so neither is it done in a policy.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let both = |name: &str| {
            let inside = text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
            let (one, other) = inside.split_once(',')?;
            one_of_each(one.trim_ascii(), other.trim_ascii())
        };
        match text.as_str() {
            "none" | "never" => Some(Self::None),
            "always" => Some(Self::Always),
            _ => Percentile::parse(&text)
                .map(Self::Percentile)
                .or_else(|| parse_ms(&text).map(Self::After))
                .or_else(|| both("min").map(|(percentile, time)| Self::Earlier(percentile, time)))
                .or_else(|| both("max").map(|(percentile, time)| Self::Later(percentile, time))),
        }
    }

    /// The time before which no further replica is asked, whatever the table's reads usually take.
    pub fn not_before(self) -> Option<Period> {
        match self {
            Self::After(time) | Self::Later(_, time) => Some(time),
            Self::None | Self::Always | Self::Percentile(_) | Self::Earlier(..) => None,
        }
    }
}

impl Percentile {
    pub const P99: Percentile = Percentile { ten_thousandths: 99 * PERCENT };

    fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix("percentile").or_else(|| text.strip_suffix('p'))?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > PERCENTILE_DIGITS_MAX {
            return None;
        }
        let whole = whole.parse::<u32>().ok()?.checked_mul(PERCENT)?;
        let part = format!("{part:0<PERCENTILE_DIGITS_MAX$}").parse::<u32>().ok()?;
        let ten_thousandths = whole.checked_add(part)?;
        (0 < ten_thousandths && ten_thousandths < 100 * PERCENT).then_some(Self { ten_thousandths })
    }
}

/// The two that CQL combines are of different kinds, in either order.
fn one_of_each(one: &str, other: &str) -> Option<(Percentile, Period)> {
    let pair = |percentile: &str, time: &str| Some((Percentile::parse(percentile)?, parse_ms(time)?));
    pair(one, other).or_else(|| pair(other, one))
}

/// CQL writes this time in milliseconds only.
fn parse_ms(text: &str) -> Option<Period> {
    let time = Period::parse(text).filter(|_| text.ends_with("ms"))?;
    (time > Period::millis(0)).then_some(time)
}

impl std::fmt::Display for SpeculativeRetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Always => f.write_str("always"),
            Self::Percentile(percentile) => write!(f, "{percentile}"),
            Self::After(time) => write!(f, "{}ms", time.as_ms()),
            Self::Earlier(percentile, time) => write!(f, "MIN({percentile},{}ms)", time.as_ms()),
            Self::Later(percentile, time) => write!(f, "MAX({percentile},{}ms)", time.as_ms()),
        }
    }
}

impl std::fmt::Display for Percentile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = (self.ten_thousandths / PERCENT, self.ten_thousandths % PERCENT);
        let part = format!(".{part:0PERCENTILE_DIGITS_MAX$}");
        write!(f, "{whole}{}p", part.trim_end_matches('0').trim_end_matches('.'))
    }
}

serialize_as_text!(SpeculativeRetry);

impl Value for SpeculativeRetry {
    fn expected() -> String {
        "\"none\", \"always\", a percentile like \"99p\", a time like \"50ms\", or MIN or MAX of both like \
         \"MIN(99p,50ms)\""
            .to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cql_takes_is_written_one_way() {
        for (text, written) in [
            ("none", "none"),
            ("NEVER", "none"),
            ("ALWAYS", "always"),
            ("99p", "99p"),
            ("99.90PERCENTILE", "99.9p"),
            ("0.0001p", "0.0001p"),
            ("50MS", "50ms"),
            ("2000ms", "2000ms"),
            ("min(99p, 50ms)", "MIN(99p,50ms)"),
            ("MAX(50ms,99.5p)", "MAX(99.5p,50ms)"),
        ] {
            assert_eq!(SpeculativeRetry::parse(text).unwrap().to_string(), written, "{text}");
        }
        assert_eq!(SpeculativeRetry::parse("99p"), Some(SpeculativeRetry::Percentile(Percentile::P99)));
    }

    #[test]
    fn what_cql_refuses_is_refused() {
        for bad in [
            "",
            "p",
            "99",
            "0p",
            "0.0p",
            "100p",
            "99.p",
            ".9p",
            "-1p",
            "99.00001p",
            "4294967296p",
            "50",
            "0ms",
            "1.5ms",
            "1s",
            "MIN(99p)",
            "MIN(99p,95p)",
            "MIN(50ms,60ms)",
            "MIN(99p,1s)",
            "MIN(99p,50ms,60ms)",
            "MIN(none,50ms)",
            "AVG(99p,50ms)",
            "MIN(99p,50ms",
        ] {
            assert_eq!(SpeculativeRetry::parse(bad), None, "{bad}");
        }
    }

    fn any_retry() -> impl Strategy<Value = SpeculativeRetry> {
        let percentile = || (1..100 * PERCENT).prop_map(|ten_thousandths| Percentile { ten_thousandths });
        let time = || (1..100_000i64).prop_map(Period::millis);
        prop_oneof![
            Just(SpeculativeRetry::None),
            Just(SpeculativeRetry::Always),
            percentile().prop_map(SpeculativeRetry::Percentile),
            time().prop_map(SpeculativeRetry::After),
            (percentile(), time()).prop_map(|(percentile, time)| SpeculativeRetry::Earlier(percentile, time)),
            (percentile(), time()).prop_map(|(percentile, time)| SpeculativeRetry::Later(percentile, time)),
        ]
    }

    proptest! {
        #[test]
        fn a_retry_survives_being_written(retry in any_retry()) {
            prop_assert_eq!(SpeculativeRetry::parse(&retry.to_string()), Some(retry));
        }
    }
}
