//! The suite that says what the ports mean. Every store passes it: those that are there, and those to come.
//!
//! For each kind of data it does three things:
//! - random sequences of operations are applied to the store and to the model, and every answer must be the same;
//! - the numbered promises are put under race, 64 callers at once;
//! - examples of what is known to go wrong: expiry, equal times, names that are prefixes, the longest and oddest data.
//!
//! A store plugs in by a [`Factory`]; its whole test file is
//!
//! ```
//! use mobimir_testkit::{conformance_tests, model::ModelStore};
//!
//! conformance_tests!(|| async { ModelStore::stores() });
//! ```
//!
//! A store of some kinds of data only names those, and lets the model stand in for the rest:
//! `conformance_tests!(factory(); carts, orders, sessions);`.
//!
//! A history of orders with a home of its own is tried by [`order_history`], whose factory gives that store alone.
//!
//! What a migration asks of a store is tried by `moving_orders`, `moving_order_history`, `moving_carts` and
//! `moving_sessions`.
//!
//! The suite asks for one fresh set of stores for each kind of data and keeps every case in a universe of its own
//! ([`arena`]), so that stores which take long to set up are set up rarely.

mod arena;
mod carts;
mod check;
mod moving;
mod notes;
mod order_history;
mod orders;
mod patience;
mod products;
mod sessions;
mod users;

use std::{cell::RefCell, fmt::Debug, str::FromStr, sync::Arc, time::Duration};

use async_trait::async_trait;
use mobimir_core::{
    moving::{HistorySide, Movables},
    notes::NoteStore,
    ports::{OrderHistoryStore, Stores},
    secret::random_bytes,
};
use proptest::{
    collection,
    strategy::Strategy,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use tokio::runtime::Runtime;

use self::{
    arena::{Arena, Bench, Modelled},
    check::Checked,
};

/// Makes stores to test: all of a shop's, or the one that is named.
#[async_trait]
pub trait Factory<S = Stores>: Send + Sync {
    /// Stores that are empty and share nothing with any given out before.
    async fn fresh(&self) -> S;
}

#[async_trait]
impl<F, T, S> Factory<S> for F
where
    F: Fn() -> T + Send + Sync,
    T: Future<Output = S> + Send,
{
    async fn fresh(&self) -> S {
        self().await
    }
}

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConformanceOptions {
    /// Random sequences for each kind of data.
    pub cases: u32,
    /// Operations in the longest sequence.
    pub steps: usize,
    /// How often each race is run.
    pub rounds: u32,
    /// Attempts to make a failing sequence shorter.
    pub shrink_attempts: u32,
    /// How long a read may answer otherwise than the model, and is asked again. For policies that give up seeing what was
    /// acknowledged at once; zero demands it.
    pub patience: Duration,
    /// What the random sequences and ids follow from. A failure says its own, so that the same can be tried again.
    pub seed: u64,
}

/// Overrides [`ConformanceOptions::cases`].
pub const CASES_VARIABLE: &str = "MOBIMIR_CONFORMANCE_CASES";
/// Overrides [`ConformanceOptions::seed`].
pub const SEED_VARIABLE: &str = "MOBIMIR_CONFORMANCE_SEED";

const WORKER_THREADS: usize = 4;

impl Default for ConformanceOptions {
    fn default() -> Self {
        let seed = variable(SEED_VARIABLE).unwrap_or_else(|| u64::from_le_bytes(random_bytes()));
        Self { cases: 48, steps: 60, rounds: 4, shrink_attempts: 500, patience: Duration::ZERO, seed }
    }
}

/// A number that the environment may have.
fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("expected a number in {name}, got {text:?}")))
}

impl ConformanceOptions {
    /// The default, with what the environment says about it.
    pub fn from_env() -> Self {
        let default = Self::default();
        Self { cases: variable(CASES_VARIABLE).unwrap_or(default.cases), ..default }
    }
}

pub fn products(factory: &impl Factory, options: ConformanceOptions) {
    products::conform(&Suite::new(factory, options));
}

pub fn users(factory: &impl Factory, options: ConformanceOptions) {
    users::conform(&Suite::new(factory, options));
}

pub fn carts(factory: &impl Factory, options: ConformanceOptions) {
    carts::conform(&Suite::new(factory, options));
}

pub fn orders(factory: &impl Factory, options: ConformanceOptions) {
    orders::conform(&Suite::new(factory, options));
}

/// A history that has a home of its own.
pub fn order_history(factory: &impl Factory<Arc<dyn OrderHistoryStore>>, options: ConformanceOptions) {
    order_history::conform(&Suite::new(factory, options));
}

pub fn sessions(factory: &impl Factory, options: ConformanceOptions) {
    sessions::conform(&Suite::new(factory, options));
}

/// Orders, as a migration sees them.
pub fn moving_orders(factory: &impl Factory<Movables>, options: ConformanceOptions) {
    moving::conform_orders(&Suite::new(factory, options));
}

/// A history that has a home of its own, as a migration sees it.
pub fn moving_order_history(factory: &impl Factory<HistorySide>, options: ConformanceOptions) {
    moving::conform_order_history(&Suite::new(factory, options));
}

/// Carts, as a migration sees them.
pub fn moving_carts(factory: &impl Factory<Movables>, options: ConformanceOptions) {
    moving::conform_carts(&Suite::new(factory, options));
}

/// Sessions, as a migration sees them.
pub fn moving_sessions(factory: &impl Factory<Movables>, options: ConformanceOptions) {
    moving::conform_sessions(&Suite::new(factory, options));
}

/// Small records that instances share.
pub fn notes(factory: &impl Factory<Arc<dyn NoteStore>>, options: ConformanceOptions) {
    notes::conform(&Suite::new(factory, options));
}

/// Everything that the stores of a shop hold.
pub fn all(factory: &impl Factory, options: ConformanceOptions) {
    products(factory, options);
    users(factory, options);
    carts(factory, options);
    orders(factory, options);
    sessions(factory, options);
}

/// One `#[test]` for each kind of data, or for each that is named after the factory.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::conformance_tests!($factory; products, users, carts, orders, sessions);
    };
    ($factory:expr; $($area:ident),+ $(,)?) => {$(
        #[test]
        fn $area() {
            $crate::conformance::$area(&$factory, $crate::conformance::ConformanceOptions::from_env());
        }
    )+};
}

/// The stores under test, and the runtime that they live on.
struct Suite<S = Stores> {
    options: ConformanceOptions,
    arena: Arena<S>,
    runtime: Runtime,
}

impl<S: Modelled> Suite<S> {
    fn new(factory: &impl Factory<S>, options: ConformanceOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .enable_all()
            .build()
            .expect("a runtime can be started");
        let stores = runtime.block_on(factory.fresh());
        Self { options, arena: Arena::new(stores, options.patience, options.seed), runtime }
    }

    /// Applies random sequences of steps to the store and to the model; a failure panics with the sequence that showed it,
    /// with the shortest one that was found to do so, and with the seed of both. What depends on time need not fail
    /// again, and then a shorter sequence says little.
    fn compare_with_model<T: Debug>(
        &self,
        what: &str,
        step: impl Strategy<Value = T>,
        run: impl AsyncFn(&Bench<S>, &[T]) -> Checked,
    ) {
        let config = Config {
            cases: self.options.cases,
            max_shrink_iters: self.options.shrink_attempts,
            failure_persistence: None,
            ..Config::default()
        };
        let steps = collection::vec(step, 1..=self.options.steps);
        let listed = |steps: &[T]| steps.iter().map(|step| format!("\n  {step:?}")).collect::<String>();
        let seed = self.options.seed;
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
        let first_failure = RefCell::new(None);
        let outcome = TestRunner::new_with_rng(config, rng).run(&steps, |steps| {
            let checked =
                self.runtime.block_on(run(&self.arena.bench(), &steps)).map_err(TestCaseError::from);
            if let Err(reason) = &checked {
                let told = || format!("{reason}\nafter the steps{}", listed(&steps));
                first_failure.borrow_mut().get_or_insert_with(told);
            }
            checked
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, steps)) => panic!(
                "{what} differ from the model: {}\n\nthe shortest that failed: {reason}\nafter the steps{}\n\n\
                again with {SEED_VARIABLE}={seed}",
                first_failure.take().unwrap_or_default(),
                listed(&steps)
            ),
            Err(TestError::Abort(reason)) => panic!("no steps for {what} could be made up: {reason}"),
        }
    }

    /// Runs a race several times, each time in a universe of its own.
    fn race(&self, promise: &str, run: impl AsyncFn(&Bench<S>) -> Checked) {
        for round in 0..self.options.rounds {
            if let Err(reason) = self.runtime.block_on(run(&self.arena.bench())) {
                panic!("{promise} is broken in round {round}: {reason}");
            }
        }
    }

    fn example(&self, what: &str, run: impl AsyncFn(&Bench<S>) -> Checked) {
        if let Err(reason) = self.runtime.block_on(run(&self.arena.bench())) {
            panic!("{what}: {reason}");
        }
    }
}
