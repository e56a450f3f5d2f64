//! How failures of the engine become the ports' [`StoreError`].

use fjall::LsmError;
use mobimir_core::ports::StoreError;

/// A read that did not succeed. What fails its checksum is damaged; anything else may work another time.
pub(crate) fn read_failed(error: fjall::Error) -> StoreError {
    let what = String::from("reading from the data directory failed");
    match &error {
        fjall::Error::Io(_) | fjall::Error::Poisoned | fjall::Error::Storage(LsmError::Io(_)) => {
            StoreError::Unavailable { what, source: Some(error.into()) }
        }
        _ => StoreError::Corrupt { what, source: Some(error.into()) },
    }
}

pub(crate) fn unavailable(what: impl Into<String>) -> StoreError {
    StoreError::Unavailable { what: what.into(), source: None }
}

pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Corrupt { what: what.into(), source: None }
}
