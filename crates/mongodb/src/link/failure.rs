//! What a failed request means to whoever asked.

use mobimir_core::ports::StoreError;
use mongodb::error::{Error, ErrorKind, WriteFailure};

/// Why a request came to nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    Driver(Error),
    /// There was no answer in time.
    TooLate,
}

const DUPLICATE_KEY: i32 = 11_000;
/// Puts a label on an error that came before anything was written.
const NO_WRITES_PERFORMED: &str = "NoWritesPerformed";
/// What a server refuses whenever it is asked: BadValue, FailedToParse, Unauthorized, AuthenticationFailed,
/// NamespaceNotFound, ShardKeyNotFound, InvalidNamespace, DocumentValidationFailure, BSONObjectTooLarge.
const REFUSALS: [i32; 9] = [2, 9, 13, 18, 26, 61, 73, 121, 10_334];

impl Failure {
    /// A word for metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::TooLate => "timeout",
            Self::Driver(error) => match &*error.kind {
                ErrorKind::ServerSelection { .. } => "no_server",
                ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => "connection",
                ErrorKind::Command(_) => "command",
                ErrorKind::Write(_) | ErrorKind::InsertMany(_) => "write",
                ErrorKind::BsonDeserialization(_) | ErrorKind::Bson(_) => "damaged",
                _ => "other",
            },
        }
    }

    pub(crate) fn of_read(self, name: &'static str) -> StoreError {
        match self {
            Self::TooLate => {
                StoreError::Unavailable { what: format!("MongoDB, {name}: no answer in time"), source: None }
            }
            Self::Driver(error) if is_damage(&error) => damaged(name, error),
            Self::Driver(error) => StoreError::Unavailable {
                what: format!("MongoDB, {name}: {error}"),
                source: Some(Box::new(error)),
            },
        }
    }

    /// A write that was sent may have been done, unless it is certain that no server has seen it.
    pub(crate) fn of_write(self, name: &'static str) -> StoreError {
        match self {
            Self::TooLate => {
                StoreError::Unknown { what: format!("MongoDB, {name}: no answer in time"), source: None }
            }
            Self::Driver(error) if is_damage(&error) => damaged(name, error),
            Self::Driver(error) if was_never_done(&error) => StoreError::Unavailable {
                what: format!("MongoDB, {name}: {error}"),
                source: Some(Box::new(error)),
            },
            Self::Driver(error) => StoreError::Unknown {
                what: format!("MongoDB, {name}: {error}"),
                source: Some(Box::new(error)),
            },
        }
    }
}

/// A unique index has such a document already.
pub(crate) fn is_duplicate(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::Write(WriteFailure::WriteError(error)) => error.code == DUPLICATE_KEY,
        ErrorKind::Command(error) => error.code == DUPLICATE_KEY,
        _ => false,
    }
}

/// No server has done it, and none will. A connection that was lost says nothing: what it carried may have arrived.
fn was_never_done(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::ServerSelection { .. } | ErrorKind::Authentication { .. } => true,
        // Of this one statement, which another attempt could not do either.
        ErrorKind::Write(WriteFailure::WriteError(_)) => true,
        ErrorKind::Command(refusal) => {
            error.contains_label(NO_WRITES_PERFORMED) || REFUSALS.contains(&refusal.code)
        }
        _ => false,
    }
}

pub(super) fn is_damage(error: &Error) -> bool {
    matches!(*error.kind, ErrorKind::BsonDeserialization(_) | ErrorKind::Bson(_))
}

fn damaged(name: &'static str, error: Error) -> StoreError {
    StoreError::Corrupt { what: format!("MongoDB, {name}: {error}"), source: Some(Box::new(error)) }
}

pub(crate) fn is_duplicate_of(error: &mongodb::error::IndexedWriteError) -> bool {
    error.code == DUPLICATE_KEY
}
