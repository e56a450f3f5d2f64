//! Passwords, hashed with Argon2id off the async threads, a few at a time.

use std::sync::Arc;

use argon2::{
    Algorithm, Argon2, Params, Version,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use thiserror::Error;
use tokio::sync::Semaphore;

const ITERATIONS: u32 = 2;
/// Each takes memory and a core for tens of milliseconds; more at once would only slow everything else down.
const HASHES_AT_ONCE_MAX: usize = 2;
/// Callers that may wait for their turn. Beyond it they are sent away at once.
const WAITING_MAX: usize = 256;

#[derive(Debug, Error)]
pub enum PasswordError {
    #[error("too many passwords wait to be checked")]
    Busy,
    #[error("hashing a password failed: {0}")]
    Failed(String),
}

pub(crate) struct Passwords {
    argon2: Argon2<'static>,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// A hash of nothing anyone knows, checked for unknown accounts so that they cannot be told by the time it takes.
    decoy: String,
}

impl Passwords {
    pub(crate) fn new(memory_kib: u32) -> Self {
        let params = Params::new(memory_kib, ITERATIONS, 1, None).unwrap_or_default();
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let decoy =
            argon2.hash_password(&mobimir_core::secret::random_bytes::<32>()).map(|hash| hash.to_string());
        Self {
            argon2,
            turns: Arc::new(Semaphore::new(HASHES_AT_ONCE_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            decoy: decoy.unwrap_or_default(),
        }
    }

    pub(crate) async fn hash(&self, password: String) -> Result<String, PasswordError> {
        let argon2 = self.argon2.clone();
        self.in_turn(move || {
            argon2
                .hash_password(password.as_bytes())
                .map(|hash| hash.to_string())
                .map_err(|e| PasswordError::Failed(e.to_string()))
        })
        .await?
    }

    /// Whether the password is the one that was hashed; `None` stands for an account that does not exist.
    pub(crate) async fn verify(&self, password: String, hash: Option<String>) -> Result<bool, PasswordError> {
        let argon2 = self.argon2.clone();
        let exists = hash.as_deref().is_some_and(|hash| !hash.is_empty());
        let hash = hash.filter(|hash| !hash.is_empty()).unwrap_or_else(|| self.decoy.clone());
        let matches = self
            .in_turn(move || {
                let parsed = PasswordHash::new(&hash).map_err(|e| PasswordError::Failed(e.to_string()))?;
                Ok::<_, PasswordError>(argon2.verify_password(password.as_bytes(), &parsed).is_ok())
            })
            .await??;
        Ok(exists && matches)
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _waiting = self.waiting.clone().try_acquire_owned().map_err(|_| PasswordError::Busy)?;
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| PasswordError::Busy)?;
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        })
        .await
        .map_err(|e| PasswordError::Failed(e.to_string()))
    }
}
