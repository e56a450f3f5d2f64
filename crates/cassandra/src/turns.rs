//! Turns among the callers of one instance.

use tokio::sync::{Mutex, MutexGuard};

/// Callers of this instance who want something decided about the same thing come one after the other; all others at the
/// same time. Without it they would only outbid each other in the cluster.
pub(crate) struct Turns(Vec<Mutex<()>>);

const TURNS: usize = 1_024;

impl Default for Turns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::default()).collect())
    }
}

impl Turns {
    /// Waits for the turn of an id or a hash.
    pub(crate) async fn of(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        let sum = key.iter().rev().take(2).fold(0, |sum, byte| sum * 256 + usize::from(*byte));
        self.0[sum % self.0.len()].lock().await
    }
}
