//! What could not be copied, and why. Somebody has to look at it before reads may move.

use mobimir_core::{notes::Expected, ports::StoreResult, time::Timestamp};
use serde::{Deserialize, Serialize};

use crate::record::Notes;

const PREFIX: &str = "/dead/";
/// Dead letters that are counted; a migration with more of them has another problem.
const COUNTED_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub key: String,
    pub reason: String,
    pub at: Timestamp,
    pub attempts: u32,
}

impl Notes {
    /// Remembers what could not be copied.
    pub async fn put_aside(&self, key: &str, reason: String, at: Timestamp) -> StoreResult<()> {
        let name = format!("{PREFIX}{key}");
        let attempts = self.get::<DeadLetter>(&name).await?.map_or(0, |read| read.value.attempts);
        let letter = DeadLetter { key: key.to_owned(), reason, at, attempts: attempts + 1 };
        self.put(&name, Expected::Anything, &letter).await.map(|_| ())
    }

    pub(crate) async fn is_set_aside(&self, key: &str) -> StoreResult<bool> {
        Ok(self.get::<DeadLetter>(&format!("{PREFIX}{key}")).await?.is_some())
    }

    /// Forgets a dead letter, unless it was put aside again since it was read.
    pub async fn take_back(&self, letter: &DeadLetter) -> StoreResult<()> {
        let name = format!("{PREFIX}{}", letter.key);
        match self.get::<DeadLetter>(&name).await? {
            Some(read) if read.value == *letter => self.remove_revision(&name, read.revision).await,
            _ => Ok(()),
        }
    }

    pub async fn list_dead_letters(&self, after: Option<&str>, limit: usize) -> StoreResult<Vec<DeadLetter>> {
        let letters = self.list(PREFIX, after, limit).await?;
        Ok(letters.into_iter().map(|(_, letter)| letter).collect())
    }

    pub async fn dead_letters(&self) -> StoreResult<u64> {
        Ok(self.list_dead_letters(None, COUNTED_MAX).await?.len() as u64)
    }
}
