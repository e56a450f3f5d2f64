//! The suite can fail: each store here has one planted fault, and the suite must find it.

mod carts;
mod order_history;
mod orders;
mod products;
mod sessions;
mod users;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use mobimir_core::ports::Stores;
use mobimir_testkit::conformance::ConformanceOptions;

/// Always the same sequences, so that chance never decides whether a fault is found.
const OPTIONS: ConformanceOptions = ConformanceOptions {
    cases: 64,
    steps: 60,
    rounds: 4,
    shrink_attempts: 0,
    patience: Duration::ZERO,
    seed: 1,
};

/// Runs a part of the suite, which must fail; what it said is printed, to see that it says what is wrong.
fn must_be_found(fault: &dyn std::fmt::Debug, suite: impl FnOnce()) {
    let outcome = catch_unwind(AssertUnwindSafe(suite));
    let Err(said) = outcome else { panic!("nobody noticed that a store {fault:?}") };
    let said = said.downcast_ref::<String>().expect("the suite fails with a message");
    eprintln!("{fault:?} was found: {}", said.chars().take(SAID_CHARS_MAX).collect::<String>());
}

const SAID_CHARS_MAX: usize = 1_000;

/// Stores of the model, one of which is replaced.
fn faulty(replace: impl FnOnce(&Stores) -> Stores) -> Stores {
    replace(&mobimir_testkit::model::ModelStore::stores())
}

/// Tells whether somebody else is inside, which is how these stores find a race to lose.
#[derive(Default)]
struct Door(AtomicBool);

impl Door {
    /// Others get a chance to come in before this returns.
    async fn enter(&self) -> bool {
        let is_first = !self.0.swap(true, Ordering::SeqCst);
        tokio::task::yield_now().await;
        is_first
    }

    fn leave(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
