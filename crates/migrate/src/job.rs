//! Long work over all ranges of a store: it can be stopped at any moment, by kill -9 too, and goes on where it was.
//!
//! What has been done of a range stands in a note. A plan is made once for an epoch and a name; whoever runs the job
//! later, in another process, finds it and does the rest. Two who run it at the same time do no harm, because every step may
//! be repeated.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use mobimir_core::{
    moving::{Movable, Place, Range, Whole},
    notes::Expected,
    ports::{StoreError, StoreResult},
    time::Clock,
};
use serde::{Deserialize, Serialize};
use tokio::{
    task::JoinSet,
    time::{Duration, sleep},
};

use crate::{
    pace::{Pace, SAMPLE_PERIOD, Sample},
    record::Notes,
};

/// Ranges that a store is cut into: enough to show how far a job is.
const RANGES: usize = 64;
/// More than any job has.
const RANGES_LISTED_MAX: usize = 10_000;
const RANGES_AT_ONCE_DEFAULT: usize = 4;
/// Steps of a job that fail one after the other before it ends; it can be run again at any time.
const FAILURES_MAX: u32 = 8;
const FAILURE_PAUSE: Duration = Duration::from_millis(250);

/// What a job has done so far. Others may look at it while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    pub ranges: AtomicU64,
    pub ranges_done: AtomicU64,
    pub entities: AtomicU64,
    /// What shoppers felt when it was last looked at, in thousandths of the limit.
    felt_permille: AtomicU64,
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
    #[serde(default)]
    mended: u64,
}

/// All ranges in one note, so that everybody who works has the same.
#[derive(Serialize, Deserialize)]
struct Plan {
    ranges: Vec<Border>,
    /// About how many entities there were.
    #[serde(default)]
    expected: u64,
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
    /// Differences that were made good.
    pub(crate) mended: u64,
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

    pub(crate) fn felt(&self, level: f64) {
        self.felt_permille.store((level.clamp(0.0, 1_000.0) * 1_000.0) as u64, Ordering::Relaxed);
    }
}

/// How far a job is, for those who watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reached {
    pub ranges: u64,
    pub ranges_done: u64,
    pub entities: u64,
    /// About how many there were when it began.
    pub expected: u64,
    pub mended: u64,
    pub pace: Pace,
}

impl Reached {
    pub fn is_done(&self) -> bool {
        self.ranges_done == self.ranges
    }
}

impl Notes {
    /// How far the job of this name is in this epoch, whoever runs it. `None`: it has not begun.
    pub async fn reached(&self, name: &str, epoch: u64) -> StoreResult<Option<Reached>> {
        self.reached_by(&job_name(name, epoch)).await
    }

    async fn reached_by(&self, name: &str) -> StoreResult<Option<Reached>> {
        let Some(plan) = self.get::<Plan>(name).await? else { return Ok(None) };
        let pace = self.get::<Pace>(&pace_name(name)).await?.map(|read| read.value).unwrap_or_default();
        let (ranges, expected) = (plan.value.ranges.len() as u64, plan.value.expected);
        let mut reached = Reached { ranges, expected, pace, ..Reached::default() };
        let checkpoints = self.list::<Checkpoint>(&format!("{name}/"), None, plan.value.ranges.len()).await?;
        for (_, checkpoint) in checkpoints {
            reached.ranges_done += u64::from(checkpoint.is_done);
            reached.entities += checkpoint.entities;
            reached.mended += checkpoint.mended;
        }
        Ok(Some(reached))
    }
}

impl Notes {
    /// Forgets a job that nobody looks at any more.
    pub(crate) async fn forget_job(&self, name: &str, number: u64) -> StoreResult<()> {
        let name = job_name(name, number);
        let ranges = self.list::<Checkpoint>(&format!("{name}/"), None, RANGES_LISTED_MAX).await?;
        for (range, _) in ranges {
            self.remove(&format!("{name}/{range}")).await?;
        }
        self.remove(&pace_name(&name)).await?;
        self.remove(&name).await
    }
}

/// Beside the ranges, which are listed.
fn pace_name(job: &str) -> String {
    format!("/pace{job}")
}

fn job_name(name: &str, epoch: u64) -> String {
    format!("/{name}/{epoch:020}")
}

/// The job of this name in this epoch.
pub(crate) struct Job {
    /// Ranges that are worked on at the same time.
    pub(crate) ranges_at_once: usize,
    notes: Notes,
    name: String,
    progress: Arc<Progress>,
    clock: Arc<dyn Clock>,
}

impl Job {
    pub(crate) fn new(
        notes: Notes,
        name: &str,
        epoch: u64,
        progress: Arc<Progress>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { ranges_at_once: RANGES_AT_ONCE_DEFAULT, notes, name: job_name(name, epoch), progress, clock }
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
        // What was done before is not what is done now: the pace would jump.
        if let Some(done) = job.notes.reached_by(&job.name).await? {
            job.progress.entities.store(done.entities, Ordering::Relaxed);
        }
        let measured = job.clone();
        tokio::select! {
            // In this order, so that what happens does not depend on chance.
            biased;
            ended = job.work(borders, step) => {
                measured.measure(&mut measured.pace().await).await;
                ended
            }
            never = measured.keep_pace() => match never {},
        }
    }

    async fn work<F, Fut>(self: Arc<Self>, borders: Vec<Border>, step: F) -> StoreResult<Ended>
    where
        F: Fn(Range) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = StoreResult<Step>> + Send,
    {
        let job = self;
        let ranges = borders.len() as u64;
        job.progress.ranges.store(ranges, Ordering::Relaxed);
        let (mut running, mut failed) = (JoinSet::new(), None);
        for (number, border) in borders.into_iter().enumerate() {
            if running.len() >= job.ranges_at_once {
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
        let (ranges, expected) = (over.ranges(RANGES).await?, over.count().await?);
        let border = |range: &Range| Border {
            after: range.after.as_ref().map(encode),
            to: range.to.as_ref().map(encode),
        };
        let plan = Plan { ranges: ranges.iter().map(border).collect(), expected };
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
        let mut failures = 0;
        while !checkpoint.is_done && !self.progress.is_stopped() {
            let after = checkpoint.after.as_ref().or(border.after.as_ref());
            let [after, to] = [after, border.to.as_ref()].map(|place| place.and_then(|place| decode(place)));
            match step(Range { after, to }).await {
                Ok(Step { entities, mended, next }) => {
                    failures = 0;
                    checkpoint.entities += entities;
                    checkpoint.mended += mended;
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

    /// Writes down how fast it goes, for those who watch and for the report.
    async fn keep_pace(&self) -> Infallible {
        let mut pace = self.pace().await;
        loop {
            self.measure(&mut pace).await;
            sleep(SAMPLE_PERIOD).await;
        }
    }

    /// What whoever ran the job before has measured.
    async fn pace(&self) -> Pace {
        let stored = self.notes.get::<Pace>(&pace_name(&self.name)).await;
        stored.ok().flatten().map(|read| read.value).unwrap_or_default()
    }

    async fn measure(&self, pace: &mut Pace) {
        let entities = self.progress.entities.load(Ordering::Relaxed);
        let felt = self.progress.felt_permille.load(Ordering::Relaxed);
        pace.add(Sample { at: self.clock.now(), entities, felt: felt as f64 / 1_000.0 });
        // The job matters more than its figures.
        let _ = self.notes.put(&pace_name(&self.name), Expected::Anything, pace).await;
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

pub(crate) fn encode(place: &Place) -> String {
    place.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn decode(text: &str) -> Option<Place> {
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
