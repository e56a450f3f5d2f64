//! The threads that read the tables for the async ones, which must never wait for a disk.
//!
//! Under load what costs is to wake threads. So one reader works while it keeps up, one read after the other, and looks
//! around a little before it goes to sleep. Another is woken only when reads pile up or the first of them has
//! waited so long that the reader must be waiting for the disk; and it is the one that slept last, whose caches are warm.
//! At worst a read waits for one other.

use std::{
    cell::Cell,
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use mobimir_core::ports::StoreResult;
use tokio::sync::oneshot;

use crate::error::unavailable;

const READERS: usize = 8;
/// Reads that wait for each working reader before another is woken.
const BACKLOG_PER_READER_MAX: usize = 8;
/// A read that has waited so long is behind one that waits for the disk.
const STUCK_AFTER: Duration = Duration::from_millis(1);
/// How often a reader with nothing to do lets others run before it goes to sleep.
const LOOKS_BEFORE_SLEEP: usize = 16;
/// Reads that may wait at all. Beyond it callers are sent away.
const QUEUE_READS_MAX: usize = 8_192;

/// A read in place that took so long may have waited for the disk.
const IN_PLACE_MS_MAX: u64 = 5;
/// How long after that all reads go to the readers.
const DISK_FELT_MS: u64 = 2_000;

pub(crate) struct Readers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    started_at: Instant,
    /// Until when reads in place are off, in milliseconds since the start.
    disk_felt_until_ms: AtomicU64,
}

struct Queue(Mutex<State>);

struct State {
    reads: VecDeque<Read>,
    /// The one that slept last comes last.
    asleep: Vec<Thread>,
    closed: bool,
}

struct Read {
    work: Box<dyn FnOnce() + Send>,
    asked_at: Instant,
}

impl Readers {
    pub(crate) fn start() -> io::Result<Self> {
        let state = State { reads: VecDeque::new(), asleep: Vec::new(), closed: false };
        let queue = Arc::new(Queue(Mutex::new(state)));
        let reader = |n: usize| {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name(format!("mobimir-read-{n}")).spawn(move || queue.work())
        };
        let threads = (0..READERS).map(reader).collect::<io::Result<_>>()?;
        Ok(Self { queue, threads, started_at: Instant::now(), disk_felt_until_ms: AtomicU64::new(0) })
    }

    /// Runs `work`, which is short and finds what it needs in memory as a rule, right here: to hand it over would cost
    /// more than the work itself. Once a read was seen to wait for the disk, all go to the readers for a while.
    pub(crate) async fn run_in_place<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let started_ms = self.now_ms();
        if started_ms < self.disk_felt_until_ms.load(Ordering::Relaxed) {
            return self.run(work).await;
        }
        let result = work();
        let ended_ms = self.now_ms();
        if ended_ms - started_ms > IN_PLACE_MS_MAX && has_read_from_disk() {
            self.disk_felt_until_ms.store(ended_ms + DISK_FELT_MS, Ordering::Relaxed);
        }
        result
    }

    fn now_ms(&self) -> u64 {
        self.started_at.elapsed().as_millis() as u64
    }

    /// Runs `work` on a reader.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(move || {
            // Whoever asked may have left.
            let _ = reply.send(work());
        });
        if !self.queue.push(work) {
            return Err(unavailable("too many reads wait"));
        }
        answer.await.unwrap_or_else(|_| Err(unavailable("the read was abandoned, because its code panicked")))
    }
}

thread_local! {
    /// What this thread had read from the disk when it was asked last.
    static BYTES_READ: Cell<u64> = const { Cell::new(0) };
}

/// Whether this thread has read from the disk since it was asked last. On a busy machine a read is late far more often because
/// others ran. Where the system does not tell, it is taken for the disk.
fn has_read_from_disk() -> bool {
    let told = std::fs::read_to_string("/proc/thread-self/io").ok();
    let bytes =
        told.and_then(|text| text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()));
    bytes.is_none_or(|bytes| BYTES_READ.replace(bytes) != bytes)
}

impl Drop for Readers {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.closed = true;
        state.asleep.drain(..).for_each(|reader| reader.unpark());
        drop(state);
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
    fn push(&self, work: Box<dyn FnOnce() + Send>) -> bool {
        let asked_at = Instant::now();
        let mut state = self.state();
        if state.reads.len() >= QUEUE_READS_MAX {
            return false;
        }
        state.reads.push_back(Read { work, asked_at });
        let awake = READERS.saturating_sub(state.asleep.len());
        // With nobody awake, the first read is a pile already.
        let piled_up = state.reads.len() > awake * BACKLOG_PER_READER_MAX;
        let stuck =
            state.reads.front().is_some_and(|first| asked_at.duration_since(first.asked_at) > STUCK_AFTER);
        let woken = if piled_up || stuck { state.asleep.pop() } else { None };
        drop(state);
        if let Some(reader) = woken {
            reader.unpark();
        }
        true
    }

    fn work(&self) {
        let mut looks = 0;
        loop {
            let mut state = self.state();
            if let Some(read) = state.reads.pop_front() {
                drop(state);
                // A read that panics is answered by the end of its channel.
                let _ = catch_unwind(AssertUnwindSafe(read.work));
                looks = 0;
            } else if state.closed {
                return;
            } else if looks < LOOKS_BEFORE_SLEEP {
                drop(state);
                looks += 1;
                thread::yield_now();
            } else {
                let this = thread::current();
                state.asleep.push(this.clone());
                drop(state);
                thread::park();
                // Woken for no reason, it is still in the list.
                self.state().asleep.retain(|sleeper| sleeper.id() != this.id());
                looks = 0;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[tokio::test]
    async fn after_a_slow_read_in_place_the_readers_read() {
        let readers = Readers::start().unwrap();
        let here = thread::current().id();
        let read_here =
            async || readers.run_in_place(move || Ok(thread::current().id() == here)).await.unwrap();
        assert!(read_here().await);
        readers.disk_felt_until_ms.store(0, Ordering::Relaxed);
        let slow = || {
            readers.run_in_place(|| {
                thread::sleep(Duration::from_millis(IN_PLACE_MS_MAX + 2));
                Ok(())
            })
        };
        has_read_from_disk();
        slow().await.unwrap();
        assert_eq!(readers.disk_felt_until_ms.load(Ordering::Relaxed), 0, "late, but not for the disk");
        // As if something had been read from there.
        BYTES_READ.set(u64::MAX);
        slow().await.unwrap();
        assert!(readers.disk_felt_until_ms.load(Ordering::Relaxed) > 0);
        // However long the machine takes from there to here.
        readers.disk_felt_until_ms.store(u64::MAX, Ordering::Relaxed);
        assert!(!read_here().await);
        readers.disk_felt_until_ms.store(0, Ordering::Relaxed);
        assert!(read_here().await);
    }

    /// Reads that wait for the disk do not stop others for long: whoever comes a moment later wakes another reader.
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
        let read = |n: usize| {
            let readers = readers.clone();
            tokio::spawn(async move { readers.run(move || Ok(n)).await.unwrap() })
        };
        let behind: Vec<_> = (0..4).map(read).collect();
        // The one that is stuck may be the only one awake, and then somebody has to come.
        while !behind.iter().all(|read| read.is_finished()) {
            tokio::time::sleep(STUCK_AFTER * 5).await;
            read(4);
        }
        for (n, read) in behind.into_iter().enumerate() {
            assert_eq!(read.await.unwrap(), n);
        }
        tokio::task::spawn_blocking(move || stuck.wait()).await.unwrap();
        first.await.unwrap().unwrap();
    }
}
