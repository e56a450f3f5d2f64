//! What a shop takes from the machine that it runs on: time, randomness and tasks. Passed in, so that a
//! simulation decides over all of it; `clippy.toml` forbids to take them from anywhere else.

use std::{pin::Pin, sync::Arc};

use mobimir_core::{
    entropy::{Entropy, SystemEntropy},
    id::IdSource,
    time::Clock,
};

pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
pub type BlockingTask = Box<dyn FnOnce() + Send>;

/// Runs what goes on when the request that began it is answered, or gone.
pub trait Spawn: Send + Sync {
    fn spawn(&self, task: Task);

    /// Runs what takes long and never waits.
    fn spawn_blocking(&self, task: BlockingTask);
}

#[derive(Clone)]
pub struct Environment {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub ids: Arc<IdSource>,
    pub tasks: Arc<dyn Spawn>,
}

impl Environment {
    /// The machine's own, but for the clock.
    pub fn system(clock: Arc<dyn Clock>) -> Self {
        Self::new(clock, Arc::new(SystemEntropy), Arc::new(TokioTasks))
    }

    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>, tasks: Arc<dyn Spawn>) -> Self {
        let ids = Arc::new(IdSource::new(entropy.clone()));
        Self { clock, entropy, ids, tasks }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(Box::pin(task));
    }
}

/// Tasks of the runtime that calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioTasks;

impl Spawn for TokioTasks {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    fn spawn(&self, task: Task) {
        tokio::spawn(task);
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    fn spawn_blocking(&self, task: BlockingTask) {
        tokio::task::spawn_blocking(task);
    }
}
