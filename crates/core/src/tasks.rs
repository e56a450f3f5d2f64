//! Who runs tasks. Passed in where a simulation must decide when they run, and end them with their process.

use std::pin::Pin;

pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
pub type BlockingTask = Box<dyn FnOnce() + Send>;

/// Runs what goes on when the request that began it is answered, or gone.
pub trait Spawn: Send + Sync {
    fn spawn(&self, task: Task);

    /// Runs what takes long and never waits.
    fn spawn_blocking(&self, task: BlockingTask);
}

/// Tasks of the runtime that calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioTasks;

impl Spawn for TokioTasks {
    fn spawn(&self, task: Task) {
        tokio::spawn(task);
    }

    fn spawn_blocking(&self, task: BlockingTask) {
        tokio::task::spawn_blocking(task);
    }
}
