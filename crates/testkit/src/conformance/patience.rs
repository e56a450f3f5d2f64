//! Where a policy gives an invariant up, what is observed need not be right at once: it is observed again.
//!
//! Only reads are. An operation that changes something and answers is called once and must answer as the model does.

use std::{fmt::Debug, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    arena::Bench,
    check::{Checked, Failure, same},
};

/// Before something is observed again.
const PAUSE: Duration = Duration::from_millis(5);

impl<S> Bench<S> {
    /// Observes until it finds no difference, or until the patience is over. Without patience that is once; and what is
    /// broken stays broken.
    pub(super) async fn eventually<T>(
        &self,
        observe: impl AsyncFn() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + self.patience;
        loop {
            match observe().await {
                Err(Failure::Differs(_)) if Instant::now() < deadline => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    /// Reads until the answer is `expected`, or until the patience is over.
    pub(super) async fn sees<T: PartialEq + Debug, E: Into<Failure>>(
        &self,
        what: impl Debug,
        expected: T,
        read: impl AsyncFn() -> Result<T, E>,
    ) -> Checked {
        self.eventually(async || same(&what, &read().await.map_err(Into::into)?, &expected)).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{super::arena::Arena, *};
    use crate::model::ModelStore;

    /// How a value is observed that is right only from the `right_at`th time on, and how often it was.
    async fn observed(patience: Duration, right_at: u32) -> (Checked, u32) {
        let bench = Arena::new(ModelStore::stores(), patience, 1).bench();
        let times = Cell::new(0);
        let outcome = bench
            .sees("whether it is right", true, async || {
                times.set(times.get() + 1);
                Ok::<_, Failure>(times.get() >= right_at)
            })
            .await;
        (outcome, times.get())
    }

    #[tokio::test]
    async fn without_patience_one_look_decides() {
        assert_eq!(observed(Duration::ZERO, 1).await, (Ok(()), 1));
        let (outcome, times) = observed(Duration::ZERO, 2).await;
        assert!(matches!(outcome, Err(Failure::Differs(_))) && times == 1, "{outcome:?} after {times}");
    }

    #[tokio::test]
    async fn with_patience_it_is_looked_at_until_it_is_right_or_the_patience_is_over() {
        assert_eq!(observed(Duration::from_secs(60), 3).await, (Ok(()), 3));
        // A machine that stands still for longer than the patience leaves time for one look.
        let mut patience = PAUSE * 4;
        loop {
            let (outcome, times) = observed(patience, u32::MAX).await;
            assert!(matches!(outcome, Err(Failure::Differs(_))), "{outcome:?} after {times}");
            if times > 1 {
                break;
            }
            patience *= 2;
            assert!(patience < Duration::from_secs(120), "one look in {patience:?}");
        }
    }

    #[tokio::test]
    async fn no_patience_helps_what_is_broken() {
        let bench = Arena::new(ModelStore::stores(), Duration::from_secs(60), 1).bench();
        let times = Cell::new(0);
        let outcome: Checked = bench
            .eventually(async || {
                times.set(times.get() + 1);
                Err(Failure::Broken("a list does not end".to_owned()))
            })
            .await;
        assert!(outcome.is_err() && times.get() == 1);
    }
}
