//! Copies what was written in the deciding store to the other one, a moment later.
//!
//! The shopper does not wait for it and never hears of it. Whoever wrote hands the key over; what gets lost on the way
//! (too much to do, the other store away, a process killed) is still marked in the deciding store, and found there by
//! [`Mirror::reconcile`].

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use mobimir_core::{
    moving::{Found, Movable, Whole},
    ports::{StoreError, StoreResult},
};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::environment::{Environment, Planted};

/// Entities that one instance copies at the same time.
const COPIED_AT_ONCE: usize = 32;
/// Entities that may wait to be copied. Those beyond are found by their marks.
const WAITING_ENTITIES_MAX: usize = 10_000;
/// Marked entities that are looked for at a time.
const RECONCILED_AT_ONCE: usize = 500;
const STUCK_ENTITIES_MAX: usize = 50_000;

pub struct Mirror<W: Whole> {
    from: Arc<dyn Movable<W>>,
    to: Arc<dyn Movable<W>>,
    environment: Environment,
    turns: Arc<Semaphore>,
    /// Keys that are being copied by this instance.
    busy: Mutex<HashSet<W::Key>>,
    waiting: AtomicU64,
    copied: AtomicU64,
    failed: AtomicU64,
    /// Copies that failed when it was last looked at the marks. That many more are looked at, or they would hide the rest.
    stuck: AtomicUsize,
}

/// What one look at the marks came to.
#[derive(Debug, Default)]
pub struct Reconciled {
    pub copied: usize,
    /// What could not be copied, and why.
    pub failed: Vec<(String, StoreError)>,
}

impl<W: Whole> Mirror<W> {
    pub fn new(from: Arc<dyn Movable<W>>, to: Arc<dyn Movable<W>>, environment: Environment) -> Arc<Self> {
        Arc::new(Self {
            from,
            to,
            environment,
            turns: Arc::new(Semaphore::new(COPIED_AT_ONCE)),
            busy: Mutex::default(),
            waiting: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            stuck: AtomicUsize::new(0),
        })
    }

    /// Something was written, or perhaps was: it will be copied soon.
    pub fn written(self: &Arc<Self>, key: W::Key) {
        if self.waiting.load(Ordering::Relaxed) >= WAITING_ENTITIES_MAX as u64 {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mirror = self.clone();
        self.environment.spawn(async move {
            let turn = mirror.turns.acquire().await;
            mirror.waiting.fetch_sub(1, Ordering::Relaxed);
            if turn.is_ok()
                && let Err(error) = mirror.copy(key).await
            {
                // Its mark is there, and somebody will try again.
                tracing::debug!(%key, %error, "not copied yet");
            }
        });
    }

    /// Copies an entity as it is now.
    pub async fn copy(&self, key: W::Key) -> StoreResult<()> {
        let Some(_busy) = self.take(key) else {
            // Somebody here is at it. What he has not seen is marked.
            return Ok(());
        };
        let copied = self.copy_alone(key).await;
        let counter = if copied.is_ok() { &self.copied } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        copied
    }

    async fn copy_alone(&self, key: W::Key) -> StoreResult<()> {
        let read_at = self.environment.clock.now();
        let Found { whole, marks, .. } = self.from.whole(key).await?;
        if let Some(whole) = whole {
            let put = self.to.put(vec![whole], self.environment.clock.now()).await;
            if !self.environment.plants(Planted::MarkRemovedAfterFailedCopy) {
                put?;
            }
        }
        if marks.is_empty() { Ok(()) } else { self.from.mirrored(&marks, read_at).await }
    }

    /// Copies what is marked. To be called again and again, by every instance.
    pub async fn reconcile(self: &Arc<Self>) -> StoreResult<Reconciled> {
        let stuck = self.stuck.load(Ordering::Relaxed).min(STUCK_ENTITIES_MAX);
        let marks = self.from.unmirrored(RECONCILED_AT_ONCE + stuck).await?;
        // In their order, so that what happens does not depend on chance.
        let keys: BTreeSet<W::Key> = marks.into_iter().map(|mark| mark.key).collect();
        let (mut running, mut done) = (JoinSet::new(), Reconciled::default());
        for key in keys {
            let mirror = self.clone();
            running.spawn(async move {
                let _turn = mirror.turns.acquire().await;
                (key, mirror.copy(key).await)
            });
        }
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok((_, Ok(()))) => done.copied += 1,
                Ok((key, Err(error))) => done.failed.push((key.to_string(), error)),
                Err(error) => tracing::error!(%error, "a copy ended halfway"),
            }
        }
        self.stuck.store(done.failed.len(), Ordering::Relaxed);
        Ok(done)
    }

    /// How many copies were made, and how many failed.
    pub fn counts(&self) -> (u64, u64) {
        (self.copied.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    fn take(&self, key: W::Key) -> Option<Busy<'_, W>> {
        let is_free = self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        is_free.then_some(Busy { mirror: self, key })
    }
}

struct Busy<'a, W: Whole> {
    mirror: &'a Mirror<W>,
    key: W::Key,
}

impl<W: Whole> Drop for Busy<'_, W> {
    fn drop(&mut self) {
        self.mirror.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
