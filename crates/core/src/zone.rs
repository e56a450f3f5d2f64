//! Geographical zones, the places stock lies in.

use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

/// A zone's code: `[A-Z0-9_-]{1,16}`, kept in place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone {
    code: [u8; ZONE_BYTES_MAX],
    length: u8,
}

pub const ZONE_BYTES_MAX: usize = 16;

#[derive(Debug, Error, PartialEq, Eq)]
#[error("expected a zone of 1 to 16 characters out of A-Z, 0-9, '_' and '-', got {0:?}")]
pub struct ZoneError(String);

impl Zone {
    pub fn parse(text: &str) -> Result<Self, ZoneError> {
        let allowed = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if text.is_empty() || text.len() > ZONE_BYTES_MAX || !text.bytes().all(allowed) {
            return Err(ZoneError(text.chars().take(40).collect()));
        }
        let mut code = [0; ZONE_BYTES_MAX];
        code[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { code, length: text.len() as u8 })
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.code[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl std::fmt::Debug for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zone({})", self.as_str())
    }
}

impl std::fmt::Display for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Zone {
    type Err = ZoneError;

    fn from_str(text: &str) -> Result<Self, ZoneError> {
        Self::parse(text)
    }
}

impl Serialize for Zone {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_a_short_upper_case_code() {
        assert_eq!(Zone::parse("MSK").unwrap().as_str(), "MSK");
        assert_eq!(Zone::parse("A-Z_0123456789AB").unwrap().to_string().len(), 16);
        for bad in ["", "msk", "МСК", "M SK", "ABCDEFGHIJKLMNOPQ"] {
            assert!(Zone::parse(bad).is_err(), "{bad}");
        }
    }
}
