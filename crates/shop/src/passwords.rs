//! Passwords, hashed with Argon2id off the async threads, a few at a time.

use std::sync::{Arc, Mutex, PoisonError};

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::phc::{Output, ParamsString, PasswordHash, Salt},
};
use mobimir_core::entropy::Entropy;
use subtle::ConstantTimeEq;
use thiserror::Error;
use tokio::sync::{Semaphore, oneshot};

use crate::environment::Environment;

const ITERATIONS: u32 = 2;
const SALT_BYTES: usize = 16;
/// Each takes memory and a core for tens of milliseconds; more at once would only slow everything else down.
const HASHES_AT_ONCE_MAX: usize = 2;
/// Callers that may wait for their turn. Beyond it they are sent away at once.
const WAITING_MAX: usize = 1_024;

#[derive(Debug, Error)]
pub enum PasswordError {
    #[error("too many passwords wait to be checked")]
    Busy,
    #[error("hashing a password failed: {0}")]
    Failed(String),
}

pub(crate) struct Passwords {
    hasher: Arc<Hasher>,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// A hash of nothing anyone knows, checked for unknown accounts so that they cannot be told by the time it takes.
    decoy: String,
    environment: Environment,
}

impl Passwords {
    pub(crate) fn new(memory_kib: u32, environment: Environment) -> Self {
        let params = Params::new(memory_kib, ITERATIONS, 1, None).unwrap_or_default();
        let hasher = Hasher { params, memory: Mutex::new(Vec::new()), entropy: environment.entropy.clone() };
        let decoy = hasher.hash(&environment.entropy.bytes::<32>()).unwrap_or_default();
        Self {
            hasher: Arc::new(hasher),
            turns: Arc::new(Semaphore::new(HASHES_AT_ONCE_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            decoy,
            environment,
        }
    }

    pub(crate) async fn hash(&self, password: String) -> Result<String, PasswordError> {
        let hasher = self.hasher.clone();
        self.in_turn(move || hasher.hash(password.as_bytes())).await?
    }

    /// Whether the password is the one that was hashed; `None` stands for an account that does not exist.
    pub(crate) async fn verify(&self, password: String, hash: Option<String>) -> Result<bool, PasswordError> {
        let hasher = self.hasher.clone();
        let hash = hash.filter(|hash| !hash.is_empty());
        let exists = hash.is_some();
        let hash = hash.unwrap_or_else(|| self.decoy.clone());
        let matches = self.in_turn(move || hasher.verify(password.as_bytes(), &hash)).await??;
        Ok(exists && matches)
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _waiting = self.waiting.clone().try_acquire_owned().map_err(|_| PasswordError::Busy)?;
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| PasswordError::Busy)?;
        let (tx, rx) = oneshot::channel();
        self.environment.tasks.spawn_blocking(Box::new(move || {
            let done = work();
            drop(turn);
            // Whoever asked may have gone.
            let _ = tx.send(done);
        }));
        rx.await.map_err(|_| PasswordError::Failed("the work was given up".to_owned()))
    }
}

struct Hasher {
    params: Params,
    /// What Argon2 works in, kept for the next hash: given back to the allocator each time, from ever other threads, it
    /// would add up to hundreds of megabytes.
    memory: Mutex<Vec<Vec<Block>>>,
    entropy: Arc<dyn Entropy>,
}

impl Hasher {
    /// In the PHC string format.
    fn hash(&self, password: &[u8]) -> Result<String, PasswordError> {
        let salt: [u8; SALT_BYTES] = self.entropy.bytes();
        let output = self.compute(password, &salt, Algorithm::Argon2id, Version::V0x13, &self.params)?;
        let hash = PasswordHash {
            algorithm: Algorithm::Argon2id.ident(),
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(&self.params).map_err(failed)?,
            salt: Some(Salt::new(&salt).map_err(failed)?),
            hash: Some(Output::new(&output).map_err(failed)?),
        };
        Ok(hash.to_string())
    }

    fn verify(&self, password: &[u8], hash: &str) -> Result<bool, PasswordError> {
        let hash = PasswordHash::new(hash).map_err(failed)?;
        let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else { return Ok(false) };
        let algorithm = Algorithm::try_from(hash.algorithm.as_str()).map_err(failed)?;
        let version = hash.version.map_or(Ok(Version::V0x13), Version::try_from).map_err(failed)?;
        let params = Params::try_from(&hash).map_err(failed)?;
        let output = self.compute(password, salt, algorithm, version, &params)?;
        Ok(bool::from(output.ct_eq(expected.as_ref())))
    }

    fn compute(
        &self,
        password: &[u8],
        salt: &[u8],
        algorithm: Algorithm,
        version: Version,
        params: &Params,
    ) -> Result<Vec<u8>, PasswordError> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut memory = memory.unwrap_or_default();
        memory.resize(params.block_count(), Block::default());
        let mut output = vec![0; params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN)];
        let argon2 = Argon2::new(algorithm, version, params.clone());
        let computed = argon2.hash_password_into_with_memory(password, salt, &mut output, &mut memory);
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        computed.map(|()| output).map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> PasswordError {
    PasswordError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use mobimir_core::entropy::SystemEntropy;

    use super::*;

    #[test]
    fn a_password_is_known_again_and_another_is_not() {
        let hasher = Hasher {
            params: Params::new(64, 1, 1, None).unwrap(),
            memory: Mutex::new(Vec::new()),
            entropy: Arc::new(SystemEntropy),
        };
        let hash = hasher.hash("пароль 12345".as_bytes()).unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=64,t=1,p=1$"), "{hash}");
        assert!(hasher.verify("пароль 12345".as_bytes(), &hash).unwrap());
        assert!(!hasher.verify(b"another", &hash).unwrap());
        assert_ne!(hash, hasher.hash("пароль 12345".as_bytes()).unwrap(), "each has its own salt");
        // Hashes stay good when the cost is changed.
        let dearer = Hasher {
            params: Params::new(128, 2, 1, None).unwrap(),
            memory: Mutex::new(Vec::new()),
            entropy: Arc::new(SystemEntropy),
        };
        assert!(dearer.verify("пароль 12345".as_bytes(), &hash).unwrap());
        assert!(hasher.verify(b"x", "not a hash").is_err());
    }
}
