//! What a shop takes from the machine that it runs on: time, randomness and tasks. Passed in, so that a
//! simulation decides over all of it; `clippy.toml` forbids to take them from anywhere else.

use std::sync::Arc;

use mobimir_core::{
    entropy::{Entropy, SystemEntropy},
    id::IdSource,
    time::Clock,
};

pub use mobimir_core::tasks::{BlockingTask, Spawn, Task, TokioTasks};

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
