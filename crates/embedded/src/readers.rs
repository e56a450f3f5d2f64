//! The threads that read the tables for the async ones, which must never wait for a disk.
//!
//! Under load what matters is how often a thread has to be woken. So one reader works while it keeps up, taking one read
//! after the other without going to sleep in between, and another is woken only when reads pile up, or when one has
//! waited so long that the first reader must be waiting for the disk.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use mobimir_core::ports::StoreResult;
use tokio::sync::oneshot;

use crate::error::unavailable;

const READERS: usize = 8;
/// Reads that wait for each working reader before another is woken.
const BACKLOG_PER_READER_MAX: usize = 8;
/// Whoever has waited so long for an answer wakes another reader.
const PATIENCE: Duration = Duration::from_millis(5);
/// Reads that may wait at all. Beyond it callers are sent away.
const QUEUE_READS_MAX: usize = 8_192;

type Read = Box<dyn FnOnce() + Send>;

pub(crate) struct Readers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

struct Queue {
    state: Mutex<State>,
    woken: Condvar,
}

struct State {
    reads: VecDeque<Read>,
    asleep: usize,
    closed: bool,
}

impl Readers {
    pub(crate) fn start() -> io::Result<Self> {
        let state = State { reads: VecDeque::new(), asleep: 0, closed: false };
        let queue = Arc::new(Queue { state: Mutex::new(state), woken: Condvar::new() });
        let reader = |n: usize| {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name(format!("mobimir-read-{n}")).spawn(move || queue.work())
        };
        let threads = (0..READERS).map(reader).collect::<io::Result<_>>()?;
        Ok(Self { queue, threads })
    }

    /// Runs `work` on a reader.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, mut answer) = oneshot::channel();
        let read = Box::new(move || {
            // Whoever asked may have left.
            let _ = reply.send(work());
        });
        if !self.queue.push(read) {
            return Err(unavailable("too many reads wait"));
        }
        let answer = match tokio::time::timeout(PATIENCE, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                self.queue.nudge();
                answer.await
            }
        };
        answer.unwrap_or_else(|_| Err(unavailable("the read was abandoned, because its code panicked")))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.state().closed = true;
        self.queue.woken.notify_all();
        let this = thread::current().id();
        for reader in self.threads.drain(..) {
            // The last handle may be dropped by a reader's own work.
            if reader.thread().id() != this {
                let _ = reader.join();
            }
        }
    }
}

impl Queue {
    /// Says whether there was room.
    fn push(&self, read: Read) -> bool {
        let mut state = self.state();
        if state.reads.len() >= QUEUE_READS_MAX {
            return false;
        }
        state.reads.push_back(read);
        let awake = READERS.saturating_sub(state.asleep);
        // With nobody awake, the first read is a pile already.
        let wake = state.asleep > 0 && state.reads.len() > awake * BACKLOG_PER_READER_MAX;
        drop(state);
        if wake {
            self.woken.notify_one();
        }
        true
    }

    /// The readers that are awake may all wait for the disk.
    fn nudge(&self) {
        let state = self.state();
        let wake = state.asleep > 0 && !state.reads.is_empty();
        drop(state);
        if wake {
            self.woken.notify_one();
        }
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            match state.reads.pop_front() {
                Some(read) => {
                    drop(state);
                    // A read that panics is answered by the end of its channel.
                    let _ = catch_unwind(AssertUnwindSafe(read));
                    state = self.state();
                }
                None if state.closed => return,
                None => {
                    state.asleep += 1;
                    state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.asleep -= 1;
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn reads_are_answered_and_a_panic_harms_nobody() {
        let readers = Readers::start().unwrap();
        assert_eq!(readers.run(|| Ok(7)).await.unwrap(), 7);
        assert!(readers.run::<()>(|| panic!("on purpose")).await.is_err());
        for n in 0..1_000 {
            assert_eq!(readers.run(move || Ok(n)).await.unwrap(), n);
        }
    }

    /// Reads that wait for the disk do not stop others, however few these are.
    #[tokio::test]
    async fn a_stuck_read_does_not_stop_those_behind_it() {
        let readers = Arc::new(Readers::start().unwrap());
        let stuck = Arc::new(Barrier::new(2));
        let (task_readers, barrier) = (readers.clone(), stuck.clone());
        let first = tokio::spawn(async move {
            task_readers
                .run(move || {
                    barrier.wait();
                    Ok(())
                })
                .await
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let others: Vec<_> = (0..3)
            .map(|n| {
                let readers = readers.clone();
                tokio::spawn(async move { readers.run(move || Ok(n)).await.unwrap() })
            })
            .collect();
        for other in others {
            other.await.unwrap();
        }
        tokio::task::spawn_blocking(move || stuck.wait()).await.unwrap();
        first.await.unwrap().unwrap();
    }
}
