//! Virtual time, randomness, and the trace of what happened.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mobimir_core::{entropy::Entropy, random::Random, time::Timestamp};
use tokio::{sync::Notify, time::Instant};

use crate::{checker::Violation, plan::Plan};

/// When every simulation begins. A few minutes before midnight, so that days change.
const START_MS: i64 = 1_764_373_200_000;

/// All that instances, stores and clients of one run share.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    plan: Plan,
    began: Instant,
    random: Mutex<Random>,
    trace: Mutex<DefaultHasher>,
    tally: Mutex<BTreeMap<&'static str, u64>>,
    violations: Mutex<Vec<Violation>>,
    /// Nothing goes wrong at the beginning, and in the end, so that what is left can be settled.
    is_calm: Mutex<bool>,
    verbose: bool,
}

impl World {
    /// To be called within the runtime of the run.
    pub fn new(plan: Plan) -> Self {
        let random = Random::new(plan.seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x5851_F42D);
        let inner = Inner {
            plan,
            began: Instant::now(),
            random: Mutex::new(random),
            trace: Mutex::new(DefaultHasher::new()),
            tally: Mutex::default(),
            violations: Mutex::default(),
            is_calm: Mutex::new(true),
            verbose: std::env::var_os("MOBIMIR_SIMULATION_TRACE").is_some(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn plan(&self) -> &Plan {
        &self.inner.plan
    }

    /// Milliseconds since the beginning.
    pub fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.inner.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// The true time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(START_MS).plus_ms(self.elapsed_ms())
    }

    /// A number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        lock(&self.inner.random).below(bound.max(1))
    }

    pub fn between(&self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Whether something that happens so often in a thousand times happens now.
    pub fn permille(&self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    pub fn pick<'a, T>(&self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }

    pub async fn sleep_ms(&self, from: u64, to: u64) {
        let ms = self.between(from, to);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// How long a message takes: mostly a millisecond or two, now and then much longer.
    pub async fn travel(&self) {
        let ms = match self.below(1_000) {
            0..=19 if self.inner.plan.faults.slow_messages && !self.is_calm() => self.between(100, 1_500),
            0..=149 => self.between(5, 40),
            _ => self.between(1, 4),
        };
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// What belongs to the world and not to an instance goes on when instances crash.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }

    pub fn set_calm(&self, is_calm: bool) {
        *lock(&self.inner.is_calm) = is_calm;
    }

    pub fn is_calm(&self) -> bool {
        *lock(&self.inner.is_calm)
    }

    /// Counts that something happened, and makes it part of the trace.
    pub fn note(&self, event: &'static str, details: impl Debug) {
        *lock(&self.inner.tally).entry(event).or_default() += 1;
        let at = self.elapsed_ms();
        let details = format!("{details:?}");
        (at, event, &details).hash(&mut *lock(&self.inner.trace));
        if self.inner.verbose {
            eprintln!("{at:>8} {event} {details}");
        }
    }

    /// What was found broken while it happened.
    pub fn violations(&self) -> &Mutex<Vec<Violation>> {
        &self.inner.violations
    }

    pub fn tally(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.inner.tally).clone()
    }

    /// The same for the same seed.
    pub fn trace_hash(&self) -> u64 {
        lock(&self.inner.trace).finish()
    }
}

impl Entropy for World {
    fn fill(&self, bytes: &mut [u8]) {
        let mut random = lock(&self.inner.random);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random.number().to_le_bytes()[..chunk.len()]);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub fn planted(&self, fault: crate::planted::PlantedFault) -> bool {
        self.plan().planted == Some(fault)
    }
}

/// A value that tasks wait for. Unlike `tokio::sync::watch` it wakes them in the order in which they began to
/// wait, not at random.
#[derive(Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut lock(&self.value));
        self.changed.notify_waiters();
    }

    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&lock(&self.value))
    }

    pub async fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_so(&lock(&self.value)) {
                return;
            }
            changed.await;
        }
    }
}
