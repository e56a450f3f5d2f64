//! Long work over all ranges of a store: it can be stopped at any moment, by kill -9 too, and goes on where it was.
//!
//! What has been done of a range stands in a note. A plan is made once for an epoch and a name; whoever runs the job
//! later, in another process, finds it and does the rest. Two who run it at the same time do no harm, because every step may
//! be repeated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use mobimir_core::{
    moving::{Movable, Place, Range, Whole},
    notes::Expected,
    ports::{StoreError, StoreResult},
};
use serde::{Deserialize, Serialize};
use tokio::{
    task::JoinSet,
    time::{Duration, sleep},
};

use crate::record::Notes;

/// Ranges that a store is cut into: enough to show how far a job is.
const RANGES: usize = 64;
/// Ranges that are worked on at the same time.
const RANGES_AT_ONCE: usize = 4;
/// Steps of a job that fail one after the other before it ends; it can be run again at any time.
const FAILURES_MAX: u32 = 8;
const FAILURE_PAUSE: Duration = Duration::from_millis(250);

/// What a job has done so far. Others may look at it while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    pub ranges: AtomicU64,
    pub ranges_done: AtomicU64,
    pub entities: AtomicU64,
    stop: AtomicBool,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every range has been worked through.
    Whole { ranges: u64 },
    /// Somebody wanted it to stop.
    Stopped,
}

/// Where a job is in a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Checkpoint {
    /// What has been reached; `None` at the beginning.
    after: Option<String>,
    is_done: bool,
    entities: u64,
}

/// All ranges in one note, so that everybody who works has the same.
#[derive(Serialize, Deserialize)]
struct Plan {
    ranges: Vec<Border>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Border {
    after: Option<String>,
    to: Option<String>,
}

/// One step of a job.
pub(crate) struct Step {
    /// Entities that were looked at.
    pub(crate) entities: u64,
    /// Where to go on in the range; `None` at its end.
    pub(crate) next: Option<Place>,
}

impl Progress {
    /// Lets a job end after its current steps.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// How far a job is, for those who watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reached {
    pub ranges: u64,
    pub ranges_done: u64,
    pub entities: u64,
}

impl Notes {
    /// How far the job of this name is in this epoch, whoever runs it. `None`: it has not begun.
    pub async fn reached(&self, name: &str, epoch: u64) -> StoreResult<Option<Reached>> {
        let name = job_name(name, epoch);
        let Some(plan) = self.get::<Plan>(&name).await? else { return Ok(None) };
        let mut reached = Reached { ranges: plan.value.ranges.len() as u64, ..Reached::default() };
        let checkpoints = self.list::<Checkpoint>(&format!("{name}/"), None, plan.value.ranges.len()).await?;
        for (_, checkpoint) in checkpoints {
            reached.ranges_done += u64::from(checkpoint.is_done);
            reached.entities += checkpoint.entities;
        }
        Ok(Some(reached))
    }
}

fn job_name(name: &str, epoch: u64) -> String {
    format!("/{name}/{epoch:020}")
}

/// The job of this name in this epoch.
pub(crate) struct Job {
    notes: Notes,
    name: String,
    progress: Arc<Progress>,
}

impl Job {
    pub(crate) fn new(notes: Notes, name: &str, epoch: u64, progress: Arc<Progress>) -> Self {
        Self { notes, name: job_name(name, epoch), progress }
    }

    /// Works through all ranges that are not done. A step is repeated when it fails.
    pub(crate) async fn run<W, F, Fut>(self, over: &dyn Movable<W>, step: F) -> StoreResult<Ended>
    where
        W: Whole,
        F: Fn(Range) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = StoreResult<Step>> + Send,
    {
        let job = Arc::new(self);
        let borders = job.plan(over).await?;
        let ranges = borders.len() as u64;
        job.progress.ranges.store(ranges, Ordering::Relaxed);
        let (mut running, mut failed) = (JoinSet::new(), None);
        for (number, border) in borders.into_iter().enumerate() {
            if running.len() >= RANGES_AT_ONCE {
                failed = failed.or(ended(running.join_next().await));
            }
            if failed.is_some() || job.progress.is_stopped() {
                break;
            }
            let (job, step) = (job.clone(), step.clone());
            running.spawn(async move { job.work_through(number, border, step).await });
        }
        while !running.is_empty() {
            failed = failed.or(ended(running.join_next().await));
        }
        match failed {
            Some(error) => Err(error),
            None if job.progress.ranges_done.load(Ordering::Relaxed) < ranges => Ok(Ended::Stopped),
            None => Ok(Ended::Whole { ranges }),
        }
    }

    /// The plan that is there, or a new one. Of two who plan at the same moment, both take the first one's.
    async fn plan<W: Whole>(&self, over: &dyn Movable<W>) -> StoreResult<Vec<Border>> {
        if let Some(plan) = self.notes.get::<Plan>(&self.name).await? {
            return Ok(plan.value.ranges);
        }
        let ranges = over.ranges(RANGES).await?;
        let border = |range: &Range| Border {
            after: range.after.as_ref().map(encode),
            to: range.to.as_ref().map(encode),
        };
        let plan = Plan { ranges: ranges.iter().map(border).collect() };
        self.notes.put(&self.name, Expected::Nothing, &plan).await?;
        let planned = self.notes.get::<Plan>(&self.name).await?;
        Ok(planned.map_or(plan, |planned| planned.value).ranges)
    }

    async fn work_through<F, Fut>(&self, number: usize, border: Border, step: F) -> StoreResult<()>
    where
        F: Fn(Range) -> Fut,
        Fut: Future<Output = StoreResult<Step>>,
    {
        let name = self.range_name(number);
        let mut checkpoint =
            self.notes.get::<Checkpoint>(&name).await?.map(|read| read.value).unwrap_or_default();
        self.progress.entities.fetch_add(checkpoint.entities, Ordering::Relaxed);
        let mut failures = 0;
        while !checkpoint.is_done && !self.progress.is_stopped() {
            let after = checkpoint.after.as_ref().or(border.after.as_ref());
            let [after, to] = [after, border.to.as_ref()].map(|place| place.and_then(|place| decode(place)));
            match step(Range { after, to }).await {
                Ok(Step { entities, next }) => {
                    failures = 0;
                    checkpoint.entities += entities;
                    checkpoint.is_done = next.is_none();
                    checkpoint.after = next.as_ref().map(encode).or(checkpoint.after);
                    self.notes.put(&name, Expected::Anything, &checkpoint).await?;
                    self.progress.entities.fetch_add(entities, Ordering::Relaxed);
                }
                Err(error) => {
                    failures += 1;
                    if failures >= FAILURES_MAX {
                        return Err(error);
                    }
                    sleep(FAILURE_PAUSE * failures).await;
                }
            }
        }
        if checkpoint.is_done {
            self.progress.ranges_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn range_name(&self, number: usize) -> String {
        format!("{}/{number:05}", self.name)
    }
}

fn ended(joined: Option<Result<StoreResult<()>, tokio::task::JoinError>>) -> Option<StoreError> {
    match joined? {
        Ok(outcome) => outcome.err(),
        Err(error) => {
            let what = format!("a part of the job ended halfway: {error}");
            Some(StoreError::Unavailable { what, source: Some(Box::new(error)) })
        }
    }
}

fn encode(place: &Place) -> String {
    place.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(text: &str) -> Option<Place> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    Some(Place(digits?.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        for bytes in [vec![], vec![0], vec![255, 0, 16, 1]] {
            assert_eq!(decode(&encode(&Place(bytes.clone()))), Some(Place(bytes)));
        }
    }
}
