//! How answers are compared.

use std::fmt::Debug;

use mobimir_core::{page::Page, ports::StoreResult};
use proptest::test_runner::TestCaseError;
use tokio::{sync::Barrier, task::JoinSet};

pub(super) type Checked = Result<(), TestCaseError>;

/// Callers in a race.
pub(super) const RACERS: usize = 64;

/// More pages than any list of a case can have.
const PAGES_MAX: usize = 10_000;

pub(super) fn same<T: PartialEq + Debug>(what: impl Debug, actual: T, expected: T) -> Checked {
    if actual == expected {
        return Ok(());
    }
    fail(format!("{what:?}\n  gave     {actual:?}\n  expected {expected:?}"))
}

pub(super) fn holds(what: impl Debug, condition: bool) -> Checked {
    if condition { Ok(()) } else { fail(format!("{what:?}")) }
}

pub(super) fn fail(reason: String) -> Checked {
    Err(TestCaseError::fail(reason))
}

/// What a store answered, when it had nothing to fail for.
pub(super) fn answered<T>(answer: StoreResult<T>) -> Result<T, TestCaseError> {
    answer.map_err(|error| TestCaseError::fail(format!("the store failed: {error:?}")))
}

/// All pages of a list, one after the other. Pages may be short, but never too long.
pub(super) async fn pages<T, P>(
    limit: usize,
    start: Option<P>,
    read: impl AsyncFn(Option<P>) -> StoreResult<Page<T, P>>,
) -> Result<Vec<T>, TestCaseError> {
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
    Err(TestCaseError::fail("a list does not end"))
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
        holds(format!("{what:?}: {item:?} is what the model has"), whole.contains(item))?;
        holds(format!("{what:?}: {item:?} comes once"), !actual[..at].contains(item))?;
    }
    Ok(())
}

/// Lets `callers` loose at the same moment and gives their answers.
pub(super) async fn race<T, F>(callers: usize, call: impl Fn(usize) -> F) -> Result<Vec<T>, TestCaseError>
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
        let answer = ended.map_err(|error| TestCaseError::fail(format!("a caller panicked: {error}")))?;
        answers.push(answered(answer)?);
    }
    Ok(answers)
}
