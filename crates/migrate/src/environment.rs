//! What a migration takes from the process that it runs in: time and tasks. Passed in, so that a simulation
//! decides over both; `clippy.toml` forbids to take them from anywhere else. And faults that a test puts back.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use mobimir_core::{
    tasks::{Spawn, TokioTasks},
    time::Clock,
};
use tokio::sync::oneshot;

#[derive(Clone)]
pub struct Environment {
    pub clock: Arc<dyn Clock>,
    pub tasks: Arc<dyn Spawn>,
    /// In production there is none.
    pub planted: Option<Planted>,
}

/// Faults that a test puts back, to see that they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// A phase ends although instances have not confirmed it.
    UnconfirmedPhaseLeft,
    /// A write whose outcome is unknown keeps its permit for ever.
    UnknownKeepsPermit,
    /// A mark is removed although the copy failed.
    MarkRemovedAfterFailedCopy,
    /// Writes leave no mark; they are copied by who wrote, if he lives.
    WritesNotMarked,
    /// Writes of `read-target` are not mirrored to the source.
    TargetNotMirrored,
}

impl Environment {
    /// The process's own.
    pub fn system(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tasks: Arc::new(TokioTasks), planted: None }
    }

    pub(crate) fn plants(&self, fault: Planted) -> bool {
        self.planted == Some(fault)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(Box::pin(task));
    }

    pub(crate) fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Joined<T> {
        run(&*self.tasks, task)
    }
}

/// Runs a task whose outcome somebody waits for. It goes on when nobody does.
pub(crate) fn run<T: Send + 'static>(
    tasks: &dyn Spawn,
    task: impl Future<Output = T> + Send + 'static,
) -> Joined<T> {
    let (tx, rx) = oneshot::channel();
    tasks.spawn(Box::pin(async move {
        let outcome = AssertUnwindSafe(task).catch_unwind().await;
        // Whoever asked may be gone.
        let _ = tx.send(outcome);
    }));
    Joined(rx)
}

/// A task, to wait for.
pub(crate) struct Joined<T>(oneshot::Receiver<Result<T, Box<dyn Any + Send>>>);

/// A task that did not come to its end.
pub(crate) enum Halfway {
    Panicked(Box<dyn Any + Send>),
    /// The process ended first.
    Dropped,
}

impl<T> Joined<T> {
    pub(crate) async fn outcome(&mut self) -> Result<T, Halfway> {
        match (&mut self.0).await {
            Ok(outcome) => outcome.map_err(Halfway::Panicked),
            Err(_) => Err(Halfway::Dropped),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_terminated() || !self.0.is_empty()
    }
}
