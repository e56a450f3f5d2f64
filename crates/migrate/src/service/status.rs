//! A migration as people look at it.

use std::collections::{BTreeMap, BTreeSet};

use mobimir_core::{
    moving::{Backlog, Whole},
    ports::StoreResult,
    time::{Month, Timestamp},
};
use serde::Serialize;
use uuid::Uuid;

use super::{
    Entity, Migration,
    work::{Wanted, Worker},
};
use crate::{
    backfill::Months,
    dead_letters::DeadLetter,
    follow::MoveError,
    job::Reached,
    phase::{Event, Phase, Which},
    record::{Line, Outcome, Record},
    shadow::Counted,
    throttle::Felt,
    verify::{Difference, Kind, Purpose},
};

/// Differences and dead letters that a status shows.
const SHOWN_DIFFERENCES_MAX: usize = 20;
const SHOWN_LETTERS_MAX: usize = 20;

#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub entity: &'static str,
    /// When this was so.
    pub at: Timestamp,
    pub phase: Phase,
    pub source: String,
    pub target: String,
    /// Where it is going by itself.
    pub wanted: Option<Phase>,
    pub is_paused: bool,
    /// The long work that is to be done now, by whichever instance does it.
    pub working: Option<&'static str>,
    pub instances: Instances,
    /// The instance that copies and compares.
    pub worker: Option<Uuid>,
    pub backlog: BTreeMap<Which, Option<BacklogView>>,
    pub backfill: Option<JobView>,
    /// The months that are copied before the rest, if some are, and those that have been.
    pub months: Option<Months>,
    pub months_copied: BTreeSet<Month>,
    pub verification: Option<Verification>,
    pub repair: Option<RepairView>,
    /// Shadow reads of all instances since the comparison began.
    pub shadow: Option<Counted>,
    /// The comparison after the switch, in the other direction.
    pub recheck: Option<Verification>,
    pub rechecked_at: Option<Timestamp>,
    /// What shoppers feel at the instance where they feel most; copying gives way from 0.8 on.
    pub felt: f64,
    pub felt_by: &'static str,
    pub dead_letters_total: u64,
    pub dead_letters: Vec<DeadLetter>,
    /// Why the next phase cannot begin.
    pub blocked_by: Vec<String>,
    pub phase_since: Option<Timestamp>,
    /// What comparisons and repairs came to.
    pub outcomes: Vec<Outcome>,
    pub timeline: Vec<Line>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Instances {
    pub confirmed: usize,
    pub behind: usize,
    pub gone: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct BacklogView {
    pub entities: u64,
    pub oldest: Option<Timestamp>,
}

/// Long work, how far it is and how fast it goes.
#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    #[serde(flatten)]
    pub reached: Reached,
    pub entities_per_s: Option<f64>,
    pub left_s: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RepairView {
    #[serde(flatten)]
    pub reached: JobView,
    #[serde(flatten)]
    pub looked_through: LookedThrough,
}

/// Tables of the other store that are looked through when all ranges are, those that have been, and rows that were met.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LookedThrough {
    pub tables: usize,
    pub tables_done: usize,
    pub rows: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    pub reached: JobView,
    #[serde(flatten)]
    pub looked_through: LookedThrough,
    pub is_green: bool,
    pub differences: BTreeMap<Kind, u64>,
    pub first_differences: Vec<Difference>,
}

impl<W: Whole, P: ?Sized + Send + Sync + 'static> Entity<W, P> {
    pub(super) async fn view(&self, record: Record) -> Result<Status, MoveError> {
        // Beside each other: on a slow cluster each of them takes seconds.
        let (source, target, (blocked_by, instances, felt_elsewhere)) = tokio::try_join!(
            self.backlog(Which::Source),
            self.backlog(Which::Target),
            self.gates_and_instances()
        )?;
        let backlog = BTreeMap::from([(Which::Source, source), (Which::Target, target)]);
        let Felt { level, by } = self.pressure.now().or(felt_elsewhere);
        let now = self.clock.now();
        let backfill = match record.months_to_copy() {
            Some(_) => self.job("months", Some(record.selection_number())).await?,
            None => self.job("backfill", record.backfill_epoch).await?,
        };
        let working = Wanted::of(&record, now, self.recheck_period);
        let number = record.shown_comparison_number();
        // The one under way, or the last one.
        let recheck = match working {
            Some(Wanted::Recheck { number }) => number,
            _ => record.shown_recheck_number(),
        };
        let (mut shadow, mut verification) = (None, None);
        if let Some(number) = number {
            shadow = Some(self.notes.shadow(number).await?);
            verification = self.verification(Purpose::Verify, number, record.control.verified).await?;
        }
        let is_same = record.outcomes.last().is_some_and(|last| last.differences.is_empty());
        Ok(Status {
            entity: self.entity(),
            at: now,
            working: working.map(Wanted::name),
            phase: record.control.phase,
            wanted: record.wanted,
            is_paused: record.is_paused,
            instances,
            worker: self.notes.get::<Worker>(Worker::NAME).await?.map(|read| read.value.instance),
            backlog,
            backfill,
            verification,
            repair: self.repair_view(&record).await?,
            shadow,
            recheck: self.verification(Purpose::Recheck, recheck, is_same).await?,
            rechecked_at: record.rechecked_at,
            felt: level,
            felt_by: by,
            dead_letters_total: self.notes.dead_letters().await?,
            dead_letters: self.notes.list_dead_letters(None, SHOWN_LETTERS_MAX).await?,
            blocked_by,
            phase_since: record.phase_since(),
            months: record.months,
            months_copied: record.months_copied,
            source: record.source,
            target: record.target,
            outcomes: record.outcomes,
            timeline: record.timeline,
        })
    }

    /// `None` while the store cannot be asked.
    async fn backlog(&self, which: Which) -> Result<Option<BacklogView>, MoveError> {
        let Ok(side) = self.migrating.side(which) else { return Ok(None) };
        let seen = side.moving.backlog().await.ok();
        Ok(seen.map(|Backlog { entities, oldest }| BacklogView { entities, oldest }))
    }

    /// Why the next phase cannot begin, how many follow the one that is, and what their shoppers feel.
    async fn gates_and_instances(&self) -> Result<(Vec<String>, Instances, f64), MoveError> {
        let mut controller = match self.controller().await {
            Ok(controller) => controller,
            // The others may have opened it.
            Err(error) => {
                let nobody = Instances { confirmed: 0, behind: 0, gone: 0 };
                return Ok((vec![format!("this instance cannot tell: {error}")], nobody, 0.0));
            }
        };
        let refusals = controller.refusals(Event::Advance).await?;
        let (_, followers) = controller.followers().await?;
        let instances = Instances {
            confirmed: followers.confirmed.len(),
            behind: followers.behind.len(),
            gone: followers.gone.len(),
        };
        Ok((refusals.iter().map(ToString::to_string).collect(), instances, controller.felt(self.instance)))
    }

    async fn job(&self, name: &str, number: Option<u64>) -> StoreResult<Option<JobView>> {
        let Some(number) = number else { return Ok(None) };
        let Some(reached) = self.notes.reached(name, number).await? else { return Ok(None) };
        let (now, is_done) = (self.clock.now(), reached.is_done());
        let entities_per_s = reached.pace.rate(now).filter(|_| !is_done);
        let left_s = reached.pace.left_s(reached.entities, reached.expected, now).filter(|_| !is_done);
        Ok(Some(JobView { entities_per_s, left_s, reached }))
    }

    async fn verification(
        &self,
        purpose: Purpose,
        number: u64,
        is_green: bool,
    ) -> StoreResult<Option<Verification>> {
        let Some(reached) = self.job(purpose.as_str(), Some(number)).await? else { return Ok(None) };
        let found = self.notes.differences(purpose, number).await?;
        let mut differences = BTreeMap::new();
        found.iter().for_each(|difference| *differences.entry(difference.kind).or_default() += 1);
        let first_differences = found.into_iter().take(SHOWN_DIFFERENCES_MAX).collect();
        let other = if purpose == Purpose::Recheck { Which::Source } else { Which::Target };
        let looked_through = self.looked_through(purpose, number, other).await?;
        Ok(Some(Verification { reached, looked_through, is_green, differences, first_differences }))
    }

    async fn repair_view(&self, record: &Record) -> StoreResult<Option<RepairView>> {
        let (purpose, number) = (Purpose::Repair, record.repair_number());
        let Some(reached) = self.job(purpose.as_str(), Some(number)).await? else { return Ok(None) };
        // After the switch the source is the one that is mended.
        let other = if record.control.phase == Phase::ReadTarget { Which::Source } else { Which::Target };
        let looked_through = self.looked_through(purpose, number, other).await?;
        Ok(Some(RepairView { reached, looked_through }))
    }

    async fn looked_through(
        &self,
        purpose: Purpose,
        number: u64,
        other: Which,
    ) -> StoreResult<LookedThrough> {
        let tables = self.migrating.side(other).map_or(0, |side| side.moving.tables().len());
        let (tables_done, rows) = self.notes.looked_through(purpose, number).await?;
        Ok(LookedThrough { tables, tables_done, rows })
    }
}
