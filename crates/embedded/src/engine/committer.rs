//! The thread that commits.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock, atomic::Ordering},
    thread,
};

use mobimir_core::ports::{StoreError, StoreResult};
use tokio::sync::{mpsc, oneshot};

use super::{EngineStats, GroupObserver, Tables, Txn};
use crate::error::unavailable;

/// Jobs that share one commit at most, so that the first of a long queue does not wait for the last.
pub(super) const GROUP_JOBS_MAX: usize = 1_024;

/// How often others are let run before a group is committed.
const YIELDS_MAX: usize = 4;

pub(super) enum Message {
    Job(Box<dyn Job>),
    Close,
}

/// A write: first it runs, then, when the group has been committed or lost, it answers.
pub(super) trait Job: Send {
    /// Says whether its writes are to be kept.
    fn run(&mut self, txn: &mut Txn<'_>) -> bool;
    fn answer(self: Box<Self>, outcome: Outcome<'_>);
}

#[derive(Clone, Copy)]
pub(super) enum Outcome<'a> {
    Committed,
    /// The commit failed, and what is on disk is not known.
    Lost(&'a str),
    /// The job was not run.
    Refused(&'a str),
}

pub(super) struct TypedJob<T, F> {
    work: Option<F>,
    result: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<T, F> TypedJob<T, F> {
    pub(super) fn new(work: F, reply: oneshot::Sender<StoreResult<T>>) -> Self {
        Self { work: Some(work), result: None, reply }
    }
}

impl<T, F> Job for TypedJob<T, F>
where
    T: Send,
    F: FnOnce(&mut Txn<'_>) -> StoreResult<T> + Send,
{
    fn run(&mut self, txn: &mut Txn<'_>) -> bool {
        self.result = self.work.take().map(|work| work(txn));
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, outcome: Outcome<'_>) {
        let answer = match outcome {
            Outcome::Committed => self.result.unwrap_or_else(|| {
                Err(unavailable("the write was abandoned, because the code that decides it panicked"))
            }),
            Outcome::Lost(reason) => Err(StoreError::Unknown { what: reason.into(), source: None }),
            Outcome::Refused(reason) => Err(unavailable(reason)),
        };
        // Whoever asked may have left; the write stands all the same.
        let _ = self.reply.send(answer);
    }
}

pub(super) struct Committer {
    pub(super) tables: Tables,
    pub(super) observers: Vec<Arc<dyn GroupObserver>>,
    pub(super) jobs: mpsc::Receiver<Message>,
    pub(super) stats: Arc<EngineStats>,
    pub(super) failure: Arc<OnceLock<String>>,
}

impl Committer {
    pub(super) fn run(mut self) {
        let mut messages = Vec::with_capacity(GROUP_JOBS_MAX);
        // Zero messages: the channel is closed and empty.
        while self.jobs.blocking_recv_many(&mut messages, GROUP_JOBS_MAX) > 0 {
            self.gather(&mut messages);
            let mut group = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                match message {
                    Message::Job(job) => group.push(job),
                    // What has been taken is still finished.
                    Message::Close => self.jobs.close(),
                }
            }
            self.commit(group);
        }
    }

    /// To make a group durable costs about the same for one job and for many. On a busy machine others are let run
    /// first for as long as they bring more; on one with a free processor that takes no time, and brings nothing.
    fn gather(&mut self, messages: &mut Vec<Message>) {
        for _ in 0..YIELDS_MAX {
            thread::yield_now();
            let before = messages.len();
            while messages.len() < GROUP_JOBS_MAX
                && let Ok(message) = self.jobs.try_recv()
            {
                messages.push(message);
            }
            if messages.len() == before {
                return;
            }
        }
    }

    fn commit(&self, mut group: Vec<Box<dyn Job>>) {
        if let Some(reason) = self.failure.get() {
            group.into_iter().for_each(|job| job.answer(Outcome::Refused(reason)));
            return;
        }
        self.stats.jobs.fetch_add(group.len() as u64, Ordering::Relaxed);
        let mut txn = Txn::new(&self.tables);
        for job in &mut group {
            // The unwound job is never looked into again, and its writes are undone.
            let kept = catch_unwind(AssertUnwindSafe(|| job.run(&mut txn)));
            match kept {
                Ok(true) => {}
                Ok(false) => self.undo(&mut txn),
                Err(_) => {
                    self.stats.panics.fetch_add(1, Ordering::Relaxed);
                    self.undo(&mut txn);
                }
            }
            txn.next_job();
        }
        let outcome = self.write(txn, group.len());
        match &outcome {
            Ok(()) => self.observers.iter().for_each(|observer| observer.group_committed()),
            Err(_) => self.observers.iter().for_each(|observer| observer.group_lost()),
        }
        // A job that wrote nothing waits as well: what it decided may rest on a write of this group.
        for job in group {
            match &outcome {
                Ok(()) => job.answer(Outcome::Committed),
                Err(reason) => job.answer(Outcome::Lost(reason)),
            }
        }
    }

    /// fjall syncs the journal before it applies a batch to what readers see, so nothing is visible to anybody
    /// before it is durable.
    fn write(&self, txn: Txn<'_>, jobs: usize) -> Result<(), String> {
        let Some(batch) = txn.into_batch() else { return Ok(()) };
        match batch.commit() {
            Ok(()) => {
                self.stats.record_commit(jobs);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "commit failed; writes are refused until the process starts anew");
                let reason = format!("an earlier commit failed ({error}): check the disk, then restart");
                // Only this thread sets it, and only once: after it no batch is written.
                let _ = self.failure.set(reason);
                Err(format!("the commit failed ({error})"))
            }
        }
    }

    fn undo(&self, txn: &mut Txn<'_>) {
        let job = txn.job();
        txn.undo_job();
        self.observers.iter().for_each(|observer| observer.job_undone(job));
    }
}
