//! How answers are compared.

use std::fmt::{self, Debug};

use mobimir_core::{
    page::Page,
    ports::{StoreError, StoreResult},
};
use proptest::test_runner::TestCaseError;
use tokio::{sync::Barrier, task::JoinSet};

/// Why a store does not pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The answer is not the expected one. Where a policy allows it, a later one may be.
    Differs(String),
    /// What no answer may be, however late it is.
    Broken(String),
}

pub(super) type Checked = Result<(), Failure>;

/// Callers in a race.
pub(super) const RACERS: usize = 64;

/// More pages than any list of a case can have.
const PAGES_MAX: usize = 10_000;

pub(super) fn same<T: PartialEq + Debug>(what: impl Debug, actual: T, expected: T) -> Checked {
    if actual == expected {
        return Ok(());
    }
    Err(Failure::Differs(format!("{what:?}\n  gave     {actual:?}\n  expected {expected:?}")))
}

/// What must be true of every answer, the current one and one from before.
pub(super) fn holds(what: impl Debug, condition: bool) -> Checked {
    if condition { Ok(()) } else { Err(Failure::Broken(format!("{what:?}"))) }
}

/// What a store answered, when it had nothing to fail for.
pub(super) fn answered<T>(answer: StoreResult<T>) -> Result<T, Failure> {
    answer.map_err(Failure::from)
}

/// All pages of a list, one after the other. Pages may be short, but never too long.
pub(super) async fn pages<T, P>(
    limit: usize,
    start: Option<P>,
    read: impl AsyncFn(Option<P>) -> StoreResult<Page<T, P>>,
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    let mut after = start;
    for _ in 0..PAGES_MAX {
        let page = answered(read(after).await)?;
        holds("a page is not longer than asked for", page.items.len() <= limit)?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
    Err(Failure::Broken("a list does not end".to_owned()))
}

/// The beginning of a list whose order leaves equal keys open: as long as it must be, in order, and made of what the
/// model has, each once.
pub(super) fn same_beginning<T: PartialEq + Debug, K: PartialEq + Debug>(
    what: impl Debug,
    actual: &[T],
    whole: &[T],
    limit: usize,
    key: impl Fn(&T) -> K,
) -> Checked {
    let keys = |items: &[T]| items.iter().map(&key).collect::<Vec<K>>();
    same(&what, keys(actual), keys(&whole[..limit.min(whole.len())]))?;
    for (at, item) in actual.iter().enumerate() {
        same(format!("{what:?}: {item:?} is what the model has"), whole.contains(item), true)?;
        same(format!("{what:?}: {item:?} comes once"), !actual[..at].contains(item), true)?;
    }
    Ok(())
}

/// Lets `callers` loose at the same moment and gives their answers.
pub(super) async fn race<T, F>(callers: usize, call: impl Fn(usize) -> F) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: Future<Output = StoreResult<T>> + Send + 'static,
{
    let start = std::sync::Arc::new(Barrier::new(callers));
    let mut running = JoinSet::new();
    for caller in 0..callers {
        let (start, call) = (start.clone(), call(caller));
        running.spawn(async move {
            start.wait().await;
            call.await
        });
    }
    let mut answers = Vec::with_capacity(callers);
    while let Some(ended) = running.join_next().await {
        let answer = ended.map_err(|error| Failure::Broken(format!("a caller panicked: {error}")))?;
        answers.push(answered(answer)?);
    }
    Ok(answers)
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Broken(format!("the store failed: {error:?}"))
    }
}

impl From<Failure> for TestCaseError {
    fn from(failure: Failure) -> Self {
        Self::fail(failure.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Differs(reason) | Self::Broken(reason)) = self;
        f.write_str(reason)
    }
}
