//! The engine: all writes go through one committer thread, which runs them one after the other and makes a group of
//! them durable with one fsync.
//!
//! Since writes run serially, a write that reads, decides and changes needs no lock and cannot race. Since a group
//! shares its fsync, many writers at once cost hardly more than one.

mod committer;
mod key;
mod stats;
mod tables;
mod txn;

use std::{
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::{self, JoinHandle},
};

use mobimir_core::ports::{StoreError, StoreResult};
use tokio::sync::{mpsc, oneshot};

use crate::error::unavailable;

pub(crate) use key::{
    KEY_BYTES_MAX, Key, KeyBuilder, KeyReader, Table, after_key, after_prefix, ordered, push_text,
};
pub use stats::{EngineStats, GROUP_SIZE_BOUNDS_JOBS};
pub use tables::Space;
pub(crate) use tables::{Tables, TablesOptions};
pub use txn::Txn;

use committer::{Committer, Job, Message, TypedJob};

/// Writes that may wait for the committer. Whoever comes later waits for a place.
pub const QUEUE_JOBS_MAX: usize = 4_096;

/// Follows what the committer does, to keep something in memory in step with it. Called on the committer thread.
pub(crate) trait GroupObserver: Send + Sync {
    /// Forget what the job with this number staged.
    fn job_undone(&self, job: u64);
    /// All that was staged is durable and readable.
    fn group_committed(&self);
    /// All that was staged is lost.
    fn group_lost(&self);
}

pub struct Engine {
    queue: mpsc::Sender<Message>,
    stats: Arc<EngineStats>,
    failure: Arc<OnceLock<String>>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// An engine of its own in `dir`, without the stores on top: for benchmarks of the bare engine.
    pub fn open(dir: &Path) -> Result<Self, fjall::Error> {
        let tables = Tables::open(dir, &TablesOptions::default())?;
        Self::start(tables, Vec::new()).map_err(fjall::Error::Io)
    }

    pub(crate) fn start(
        tables: Tables,
        observers: Vec<Arc<dyn GroupObserver>>,
    ) -> Result<Self, std::io::Error> {
        let (queue, jobs) = mpsc::channel(QUEUE_JOBS_MAX);
        let stats = Arc::new(EngineStats::default());
        let failure = Arc::new(OnceLock::new());
        let committer =
            Committer { tables, observers, jobs, stats: Arc::clone(&stats), failure: Arc::clone(&failure) };
        let thread = thread::Builder::new().name("mobimir-commit".into()).spawn(move || committer.run())?;
        Ok(Self { queue, stats, failure, committer: Mutex::new(Some(thread)) })
    }

    /// Runs `work` after all writes before it, and answers once everything it wrote, and everything it may have
    /// seen, is durable. If it fails or panics, nothing of it is written.
    pub async fn write<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Txn<'_>) -> StoreResult<T> + Send + 'static,
    {
        if let Some(reason) = self.failure.get() {
            return Err(unavailable(reason.clone()));
        }
        let (reply, answer) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(TypedJob::new(work, reply));
        self.queue.send(Message::Job(job)).await.map_err(|_| unavailable("the store has been closed"))?;
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::Unknown { what: "the committer ended before it answered".into(), source: None })
        })
    }

    /// Writes one key as it stands, durably. This is what a benchmark compares a store's write with; no store uses
    /// it, since a key that no table knows is never read.
    pub async fn put(&self, space: Space, key: Vec<u8>, value: Vec<u8>) -> StoreResult<()> {
        self.write(move |txn| {
            txn.put(Key { space, bytes: key.into() }, value.into());
            Ok(())
        })
        .await
    }

    /// False once a commit has failed: reads go on, every write is refused until the process starts anew.
    pub fn healthy(&self) -> bool {
        self.failure.get().is_none()
    }

    /// Whether it is healthy and has not been closed.
    pub fn takes_writes(&self) -> bool {
        self.healthy() && !self.queue.is_closed()
    }

    pub fn stats(&self) -> &EngineStats {
        &self.stats
    }

    /// Writes that wait for the committer now.
    pub fn queue_depth(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Takes no more writes, finishes those it has taken, and ends the committer.
    pub async fn close(&self) {
        // An error means that the committer has ended already.
        let _ = self.queue.send(Message::Close).await;
        if let Some(committer) = self.take_committer() {
            let _ = tokio::task::spawn_blocking(move || committer.join()).await;
        }
    }

    fn take_committer(&self) -> Option<JoinHandle<()>> {
        self.committer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Engine {
    /// As [`Engine::close`], but blocks: for at most the writes that are queued.
    fn drop(&mut self) {
        let Some(committer) = self.take_committer() else { return };
        // Without a sender the channel ends after what is in it.
        let (closed, _) = mpsc::channel(1);
        self.queue = closed;
        // A job may own the last handle of the engine; a thread cannot wait for its own end.
        if committer.thread().id() != thread::current().id() {
            let _ = committer.join();
        }
    }
}
