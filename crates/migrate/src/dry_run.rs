//! What a migration would be, before anybody begins one: how much, how long, how much space. Nothing is written.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::stream::{self, StreamExt};
use mobimir_core::{
    moving::{Movable, Range, Whole},
    ports::StoreResult,
    time::Month,
};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

/// Entities that are looked at, to say something of all.
const SAMPLE_ENTITIES_MAX: usize = 10_000;
/// How long each store is looked at, at most. Whoever asks over HTTP waits ten seconds for all of it.
const SAMPLE_TIME_MAX: Duration = Duration::from_secs(2);
const COUNT_TIME_MAX: Duration = Duration::from_secs(1);
const PROBE_TIME_MAX: Duration = Duration::from_secs(2);
const STEP_ENTITIES: usize = 200;
/// Entities that the target is asked for, to see how fast it answers.
const PROBED_ENTITIES: usize = 200;
const PROBED_AT_ONCE: usize = 16;

/// What a migration would be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DryRun {
    pub entity: &'static str,
    pub source: String,
    pub target: String,
    /// About how many there are.
    pub entities: u64,
    /// How many of them were looked at; the rest is reckoned from these.
    pub sampled: u64,
    /// Of those, how many could not be read and would become dead letters.
    pub unreadable: u64,
    /// About how many belong to each month, if they do.
    pub months: BTreeMap<Month, u64>,
    /// Tables of the target, each of which holds a copy of an entity or a part of it.
    pub tables: Vec<&'static str>,
    /// What the target would hold, at most and before it compresses and replicates.
    pub bytes: u64,
    /// How fast the source can be read and the target answers, in entities a second.
    pub read_per_s: Option<f64>,
    pub target_per_s: Option<f64>,
    /// Copying takes at least as long as reading the slower of both, if shoppers do not need them; what is decided by
    /// the target takes longer than a read.
    pub copying_s: Option<u64>,
    /// What the target has already.
    pub in_target: Option<u64>,
    /// What stands in the way.
    pub problems: Vec<String>,
}

/// Looks at both stores. `target` is why it cannot be opened, if it cannot.
pub(crate) async fn look<W: Whole>(
    entity: &'static str,
    [source_name, target_name]: [String; 2],
    source: &dyn Movable<W>,
    target: Result<Arc<dyn Movable<W>>, String>,
) -> StoreResult<DryRun> {
    let entities = source.count().await?;
    let Sample { wholes, looked_at, unreadable, took } = sample(source).await?;
    let mut dry_run = DryRun {
        entity,
        source: source_name,
        target: target_name,
        entities,
        sampled: looked_at,
        unreadable,
        months: months(&wholes, entities),
        tables: Vec::new(),
        bytes: 0,
        read_per_s: rate(looked_at, took),
        target_per_s: None,
        copying_s: None,
        in_target: None,
        problems: Vec::new(),
    };
    if unreadable > 0 {
        let problem = format!("{unreadable} of {looked_at} cannot be read, and would become dead letters");
        dry_run.problems.push(problem);
    }
    match target {
        Err(problem) => dry_run.problems.push(format!("the target cannot be opened: {problem}")),
        Ok(target) => dry_run.look_at_target(&*target, &wholes).await,
    }
    Ok(dry_run)
}

impl DryRun {
    async fn look_at_target<W: Whole>(&mut self, target: &dyn Movable<W>, wholes: &[W]) {
        self.tables = target.tables().to_vec();
        let said: usize = wholes.iter().map(said_bytes).sum();
        let mean = said as f64 / wholes.len().max(1) as f64;
        self.bytes = (mean * self.entities as f64) as u64 * self.tables.len() as u64;
        match timeout(COUNT_TIME_MAX, target.count()).await {
            Ok(Ok(count)) => self.in_target = Some(count),
            Ok(Err(error)) => self.problems.push(format!("the target cannot be asked: {error}")),
            Err(_) => self.problems.push("the target takes long to say what it has already".to_owned()),
        }
        let started = Instant::now();
        let ends_at = Instant::now() + PROBE_TIME_MAX;
        let asked: Vec<bool> = stream::iter(wholes.iter().take(PROBED_ENTITIES).cloned())
            .map(|whole| async move {
                // Those that there is no time for say nothing.
                let answer = timeout_at(ends_at, target.in_tables(&whole)).await;
                answer.ok().map(|answer| answer.is_ok())
            })
            .buffer_unordered(PROBED_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let answered = asked.iter().filter(|is_answered| **is_answered).count();
        if answered < asked.len() {
            let failed = asked.len() - answered;
            self.problems.push(format!("of {} questions to the target {failed} failed", asked.len()));
        } else if asked.is_empty() && !wholes.is_empty() {
            let waited = PROBE_TIME_MAX.as_secs();
            self.problems.push(format!("the target has answered no question within {waited} seconds"));
        }
        self.target_per_s = rate(answered as u64, started.elapsed());
        let slower = [self.read_per_s, self.target_per_s].into_iter().flatten().reduce(f64::min);
        self.copying_s = slower.map(|per_s| (self.entities as f64 / per_s).ceil() as u64);
    }
}

struct Sample<W> {
    wholes: Vec<W>,
    looked_at: u64,
    unreadable: u64,
    took: Duration,
}

/// Some entities from all over the store.
async fn sample<W: Whole>(source: &dyn Movable<W>) -> StoreResult<Sample<W>> {
    let mut ranges: Vec<Option<Range>> =
        source.ranges(SAMPLE_ENTITIES_MAX / STEP_ENTITIES).await?.into_iter().map(Some).collect();
    let started = Instant::now();
    let mut sample = Sample { wholes: Vec::new(), looked_at: 0, unreadable: 0, took: Duration::ZERO };
    // A step of each range in turn, until all is seen or enough is.
    while ranges.iter().any(Option::is_some) {
        for slot in &mut ranges {
            let is_enough =
                sample.looked_at >= SAMPLE_ENTITIES_MAX as u64 || started.elapsed() > SAMPLE_TIME_MAX;
            if is_enough {
                sample.took = started.elapsed();
                return Ok(sample);
            }
            let Some(range) = slot.take() else { continue };
            let step = source.scan(&range, STEP_ENTITIES).await?;
            sample.looked_at += step.items.len() as u64;
            for item in step.items {
                match item {
                    Ok(whole) => sample.wholes.push(whole),
                    Err(_) => sample.unreadable += 1,
                }
            }
            *slot = step.next.map(|next| Range { after: Some(next), to: range.to });
        }
    }
    sample.took = started.elapsed();
    Ok(sample)
}

/// How many of all belong to each month, if the sample is like the rest.
fn months<W: Whole>(wholes: &[W], entities: u64) -> BTreeMap<Month, u64> {
    let mut sampled: BTreeMap<Month, u64> = BTreeMap::new();
    for month in wholes.iter().filter_map(Whole::month) {
        *sampled.entry(month).or_default() += 1;
    }
    let share = entities as f64 / wholes.len().max(1) as f64;
    sampled.into_iter().map(|(month, count)| (month, (count as f64 * share).round() as u64)).collect()
}

fn said_bytes<W: Whole>(whole: &W) -> usize {
    whole.facts().iter().map(|(field, value)| field.len() + value.len()).sum()
}

fn rate(entities: u64, took: Duration) -> Option<f64> {
    (entities > 0 && !took.is_zero()).then(|| entities as f64 / took.as_secs_f64())
}
