//! Opaque cursors: where a page ended, packed so that clients do not take it apart.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};

const CURSOR_CHARS_MAX: usize = 4_096;

/// The text is no cursor of this list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadCursor;

/// `kind` names the list, so that a cursor of one is refused by another.
pub(crate) fn encode<T: Serialize>(kind: &str, position: &T) -> String {
    let json = serde_json::to_vec(&(kind, position)).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(json)
}

pub(crate) fn decode<T: DeserializeOwned>(kind: &str, text: &str) -> Result<T, BadCursor> {
    if text.len() > CURSOR_CHARS_MAX {
        return Err(BadCursor);
    }
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadCursor)?;
    let (found, position): (String, T) = serde_json::from_slice(&json).map_err(|_| BadCursor)?;
    if found == kind { Ok(position) } else { Err(BadCursor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_belongs_to_its_list() {
        let cursor = encode("orders", &(1, "x"));
        assert_eq!(decode("orders", &cursor), Ok((1, "x".to_owned())));
        assert_eq!(decode::<(i32, String)>("products", &cursor), Err(BadCursor));
        for broken in ["", "x", "%%%", &cursor[1..], &"A".repeat(5_000)] {
            assert_eq!(decode::<(i32, String)>("orders", broken), Err(BadCursor), "{broken}");
        }
    }
}
