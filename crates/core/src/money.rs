//! Money in kopecks. On the wire it is a decimal string with two places, `"12000.00"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// An amount of roubles, kept in kopecks. A price fits into 64 bits ([`PRICE_MAX`]); a total of many lines may not,
/// so an amount has 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(i128);

/// 9999999999.99 roubles.
pub const PRICE_MAX: Money = Money(999_999_999_999);

#[derive(Debug, Error, PartialEq, Eq)]
pub enum MoneyError {
    #[error("expected an amount like \"12000.00\", got {0:?}")]
    Malformed(String),
    #[error("expected at most two decimal places, got {0:?}")]
    TooPrecise(String),
    #[error("expected an amount between 0.00 and 9999999999.99, got {0:?}")]
    OutOfRange(String),
}

impl Money {
    pub const ZERO: Money = Money(0);

    pub const fn from_kopecks(kopecks: i128) -> Self {
        Self(kopecks)
    }

    pub const fn kopecks(self) -> i128 {
        self.0
    }

    /// A price from a request: not negative, at most [`PRICE_MAX`], at most two places.
    pub fn parse_price(text: &str) -> Result<Self, MoneyError> {
        let malformed = || MoneyError::Malformed(shortened(text));
        let (whole, places) = text.split_once('.').unwrap_or((text, "00"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if let Some(rest) = text.strip_prefix('-') {
            let looks_like_money = rest.split('.').all(digits);
            return Err(if looks_like_money { MoneyError::OutOfRange(shortened(text)) } else { malformed() });
        }
        if !digits(whole) || !digits(places) {
            return Err(malformed());
        }
        if places.len() > 2 {
            return Err(MoneyError::TooPrecise(shortened(text)));
        }
        let out_of_range = || MoneyError::OutOfRange(shortened(text));
        let roubles: i128 = whole.parse().map_err(|_| out_of_range())?;
        let mut kopecks: i128 = places.parse().map_err(|_| malformed())?;
        if places.len() == 1 {
            kopecks *= 10;
        }
        let price = roubles
            .checked_mul(100)
            .and_then(|whole| whole.checked_add(kopecks))
            .map(Money)
            .ok_or_else(out_of_range)?;
        if price > PRICE_MAX { Err(out_of_range()) } else { Ok(price) }
    }

    pub fn times(self, quantity: u64) -> Self {
        Self(self.0.saturating_mul(i128::from(quantity)))
    }
}

/// What a message may quote of a text somebody sent.
fn shortened(text: &str) -> String {
    const QUOTED_CHARS_MAX: usize = 40;
    text.chars().take(QUOTED_CHARS_MAX).collect()
}

impl std::fmt::Display for Money {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let kopecks = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:02}", kopecks / 100, kopecks % 100)
    }
}

impl std::iter::Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, |sum, next| Self(sum.0.saturating_add(next.0)))
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Ok(mut rest) = u64::try_from(self.0) else { return serializer.collect_str(self) };
        // By hand, because a page of products has dozens of them. From the end: two places, the point, the roubles.
        let mut text = [b'0'; 24];
        let mut at = text.len();
        for place in 0.. {
            at -= 1;
            if place == 2 {
                text[at] = b'.';
                continue;
            }
            text[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 && place >= 3 {
                break;
            }
        }
        serializer.serialize_str(std::str::from_utf8(&text[at..]).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Money::parse_price(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_may_be_left_out_but_not_exceeded() {
        assert_eq!(Money::parse_price("12000").unwrap().to_string(), "12000.00");
        assert_eq!(Money::parse_price("0.5").unwrap().to_string(), "0.50");
        assert_eq!(Money::parse_price("9999999999.99").unwrap(), PRICE_MAX);
        assert!(matches!(Money::parse_price("1.001"), Err(MoneyError::TooPrecise(_))));
        for out_of_range in [
            "10000000000",
            "-1",
            "99999999999999999999999999999999999999999999999",
            "1701411834604692317316873037158841057.99",
        ] {
            assert!(
                matches!(Money::parse_price(out_of_range), Err(MoneyError::OutOfRange(_))),
                "{out_of_range}"
            );
        }
        for malformed in ["", ".", "1.", ".5", "+1", "1e3", " 1", "1,50", "NaN", "--1", "١"] {
            assert!(matches!(Money::parse_price(malformed), Err(MoneyError::Malformed(_))), "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn a_price_survives_the_wire(kopecks in 0..=PRICE_MAX.kopecks()) {
            let price = Money::from_kopecks(kopecks);
            prop_assert_eq!(Money::parse_price(&price.to_string()), Ok(price));
            prop_assert_eq!(serde_json::to_string(&price).unwrap(), format!("\"{price}\""));
        }

        #[test]
        fn an_amount_is_written_as_it_is_shown(kopecks in any::<i128>()) {
            let amount = Money::from_kopecks(kopecks / 1_000);
            prop_assert_eq!(serde_json::to_string(&amount).unwrap(), format!("\"{amount}\""));
            let amount = Money::from_kopecks(i128::from(kopecks as u64));
            prop_assert_eq!(serde_json::to_string(&amount).unwrap(), format!("\"{amount}\""));
        }
    }
}
