//! A handful of small records that instances share and replace by comparison: how far a migration is, who is alive, where a
//! long job stands.

use async_trait::async_trait;

use crate::ports::StoreResult;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub name: String,
    /// Raised with every write, and never used again for this name.
    pub revision: u64,
    pub body: Vec<u8>,
}

/// What has to be there for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Anything,
    Nothing,
    Revision(u64),
}

#[async_trait]
pub trait NoteStore: Send + Sync {
    /// The note as it was written last: never an older one than somebody was told of.
    async fn get(&self, name: &str) -> StoreResult<Option<Note>>;

    /// Notes whose names begin with `prefix`, by rising name, behind `after`.
    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Vec<Note>>;

    /// Writes the note if what is there is as expected; then gives its new revision.
    async fn write(&self, name: &str, expected: Expected, body: Vec<u8>) -> StoreResult<Option<u64>>;

    /// Removes the note if what is there is as expected; says whether it is gone.
    async fn remove(&self, name: &str, expected: Expected) -> StoreResult<bool>;
}

impl Expected {
    /// Whether a note with this revision, or none, is what is expected.
    pub fn is_met_by(self, revision: Option<u64>) -> bool {
        match self {
            Self::Anything => true,
            Self::Nothing => revision.is_none(),
            Self::Revision(expected) => revision == Some(expected),
        }
    }
}
