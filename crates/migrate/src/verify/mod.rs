//! Compares what two stores say, entity by entity and table by table, and mends what differs if it is asked to.
//!
//! Both are written meanwhile, so what differs is looked at again, after a while and after it was copied: what still
//! differs when neither side has changed and nothing is marked is a difference ([`entities`]). Then every row of the target
//! is looked at: one that the source knows nothing of should not be there ([`rows`]).
//!
//! The source must have said the same at the look before: a write may be marked, made, copied and its mark removed
//! between the first question of one look and the last. What was there at the look before and is not marked now has
//! been copied by now.

mod entities;
mod rows;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    moving::{Facts, Found, InTable, Movable, Range, Whole},
    notes::Expected,
    ports::{StoreError, StoreResult},
    time::Clock,
};
use serde::{Deserialize, Serialize};

use crate::{
    job::{Ended, Job, Progress},
    record::Notes,
    throttle::{Pressure, Throttle},
};

const STEP_ENTITIES: usize = 200;
/// Things that are looked at at the same time.
const LOOKED_AT_ONCE: usize = 32;
/// How often something that differs is looked at again, before the step is begun anew.
const GENERATIONS_MAX: u32 = 30;
const GENERATION_PAUSE: Duration = Duration::from_millis(500);
/// What was on its way at so many looks is copied by the comparison itself before the next.
const COPIED_AFTER_GENERATIONS: u32 = 4;
/// With more than this a comparison ends: something is wrong as a whole, and nobody would read them.
const DIFFERENCES_MAX: usize = 10_000;
/// More than any entity stands in.
const TABLES_MAX: usize = 100;
/// What expires within this may be gone from one store and not from the other.
const EXPIRY_MARGIN_MS: i64 = 60_000;

/// Two stores say something different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub key: String,
    pub table: String,
    pub kind: Kind,
    pub fields: Vec<FieldDifference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The source has it, the target does not.
    Missing,
    /// The target has an older version.
    Stale,
    Different,
    /// The target has it, the source does not.
    Extra,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldDifference {
    pub field: String,
    pub source: String,
    pub target: String,
}

/// What a comparison came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    pub ended: Ended,
    /// Ranges of the source and tables of the target that were to be looked through, and those that have been.
    pub planned: u64,
    pub done: u64,
    pub entities: u64,
    pub rows: u64,
    pub by_kind: BTreeMap<Kind, u64>,
    /// Differences that were made good, and are not counted as such.
    pub mended: u64,
}

/// What it is done for. Each has its own checkpoints and differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Reads may move if nothing differs.
    Verify,
    /// What differs is mended.
    Repair,
    /// To see that it has stayed so.
    Recheck,
}

pub struct Comparison<W: Whole> {
    pub notes: Notes,
    /// The store that decides.
    pub source: Arc<dyn Movable<W>>,
    pub target: Arc<dyn Movable<W>>,
    pub clock: Arc<dyn Clock>,
    pub pressure: Arc<dyn Pressure>,
    pub purpose: Purpose,
    pub number: u64,
    /// Whether the target is the one that came later. Only there a repair removes what the source does not know, and something that is
    /// no entity is a difference: in the other, what the deciding one lacks may be the only copy, or be older than all of this.
    pub is_forward: bool,
}

/// A comparison under way.
struct Running<W: Whole> {
    comparison: Comparison<W>,
    progress: Arc<Progress>,
    throttle: Throttle,
    /// Differences that were noted, by whoever ran it before, too.
    noted: AtomicU64,
}

impl Purpose {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Repair => "repair",
            Self::Recheck => "recheck",
        }
    }
}

/// What the tables of the target say of an entity that should be in them.
pub fn differences<W: Whole>(whole: &W, in_tables: &[InTable]) -> Vec<Difference> {
    let expected = whole.facts();
    let found = in_tables.iter().filter_map(|in_table| {
        let (kind, fields) = match &in_table.facts {
            None => (Kind::Missing, Vec::new()),
            Some(facts) => (Kind::Different, fields(&expected, facts)),
        };
        if kind == Kind::Different && fields.is_empty() {
            return None;
        }
        let kind = if kind == Kind::Different && is_older(&fields) { Kind::Stale } else { kind };
        Some(Difference { key: whole.key().to_string(), table: in_table.table.to_owned(), kind, fields })
    });
    found.collect()
}

/// Fields that both have and that are not the same.
fn fields(source: &Facts, target: &Facts) -> Vec<FieldDifference> {
    let differing = target.iter().filter_map(|(field, told)| {
        let expected = source.get(field)?;
        (expected != told).then(|| FieldDifference {
            field: field.to_owned(),
            source: expected.to_owned(),
            target: told.to_owned(),
        })
    });
    differing.collect()
}

fn is_older(fields: &[FieldDifference]) -> bool {
    let version = fields.iter().find(|difference| difference.field == "version");
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    version.is_some_and(|version| number(&version.target) < number(&version.source))
}

impl<W: Whole> Comparison<W> {
    /// Compares everything that has not been compared for this purpose under this number.
    pub async fn run(self, progress: Arc<Progress>) -> StoreResult<Compared> {
        let (purpose, number, notes, source) =
            (self.purpose, self.number, self.notes.clone(), self.source.clone());
        let job = Job::new(notes.clone(), purpose.as_str(), number, progress.clone(), self.clock.clone());
        let noted = AtomicU64::new(notes.differences(purpose, number).await?.len() as u64);
        let running = Arc::new(Running {
            comparison: self,
            progress: progress.clone(),
            throttle: Throttle::default(),
            noted,
        });
        let step = {
            let running = running.clone();
            move |range: Range| {
                let running = running.clone();
                async move { running.step(range).await }
            }
        };
        let mut ended = job.run(&*source, step).await?;
        let (mut rows, mut mended, mut tables_done) = (0, 0, 0);
        let tables = running.comparison.target.tables();
        if let Ended::Whole { .. } = ended {
            for table in tables {
                let looked_at = running.look_for_strays(table).await?;
                rows += looked_at.rows;
                mended += looked_at.mended;
                tables_done += u64::from(looked_at.is_done);
            }
        }
        if progress.is_stopped() {
            ended = Ended::Stopped;
        }
        let mut by_kind = BTreeMap::new();
        for difference in notes.differences(purpose, number).await? {
            *by_kind.entry(difference.kind).or_default() += 1;
        }
        let reached = notes.reached(purpose.as_str(), number).await?.unwrap_or_default();
        Ok(Compared {
            ended,
            planned: reached.ranges + tables.len() as u64,
            done: reached.ranges_done + tables_done,
            entities: reached.entities,
            rows,
            by_kind,
            mended: mended + reached.mended,
        })
    }

    /// Whether it does not expire while it is compared.
    fn is_settled(&self, whole: &W) -> bool {
        let soon = self.clock.now().plus_ms(EXPIRY_MARGIN_MS);
        whole.expires_at().is_none_or(|expires_at| expires_at > soon)
    }

    /// What the tables of the target say of an entity, also where that makes no sense.
    async fn in_tables(&self, whole: &W) -> StoreResult<Vec<InTable>> {
        match self.target.in_tables(whole).await {
            Err(StoreError::Corrupt { .. }) => {
                let unreadable = |table: &&'static str| InTable { table, facts: Some(Facts::unreadable()) };
                Ok(self.target.tables().first().map(unreadable).into_iter().collect())
            }
            told => told,
        }
    }

    /// The entity as the source has it. `None`: it cannot be read, and somebody has to look at it.
    async fn in_source(&self, key: W::Key) -> StoreResult<Option<Found<W>>> {
        match self.source.whole(key).await {
            Err(error @ StoreError::Corrupt { .. }) => {
                self.notes.put_aside(&key.to_string(), error.to_string(), self.clock.now()).await?;
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// Whether the target says of an entity what the source said when it was read, in this table or in all.
    ///
    /// An entity that is written all the time is marked at every look, and a look at the target finds an
    /// earlier state than a look at the source: it could be told neither equal nor different for as long as
    /// its owner goes on. So the state that was read is copied, and the target is asked right after it. That
    /// mends nothing that stays: only what is marked is copied, which the mirror is about to do anyway.
    async fn is_equal_when_copied(&self, found: &Found<W>, table: Option<&str>) -> StoreResult<bool> {
        let Some(whole) = found.whole.as_ref().filter(|_| is_written(found)) else { return Ok(false) };
        match self.target.put(vec![whole.clone()], self.clock.now()).await {
            // Something unreadable is in its place.
            Ok(()) | Err(StoreError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        let in_tables = self.in_tables(whole).await?;
        // Of the table that decides an entity has one row. Elsewhere this may be about another one.
        let decides = |table| in_tables.first().is_some_and(|first| first.table == table);
        let differ = differences(whole, &in_tables);
        Ok(match table {
            Some(table) => decides(table) && differ.iter().all(|difference| difference.table != table),
            None => differ.is_empty(),
        })
    }

    fn mends(&self) -> bool {
        self.purpose == Purpose::Repair
    }
}

/// Whether it was written, or is right now, and may not have been copied since.
fn is_written<W: Whole>(found: &Found<W>) -> bool {
    !found.marks.is_empty() || found.is_being_written
}

/// What is written or copied all the time can be told neither equal nor different: whoever runs the step begins it anew.
fn is_unsettled<K: std::fmt::Display>(key: K) -> StoreError {
    let what = format!("{key} is being written or copied all the time, and cannot be compared yet");
    StoreError::Unavailable { what, source: None }
}

impl<W: Whole> Running<W> {
    /// After a step of so many.
    async fn give_way(&self, looked_at: u64) {
        let part = looked_at as f64 / STEP_ENTITIES as f64;
        self.throttle.wait(&*self.comparison.pressure, &self.progress, part).await;
    }

    /// Written down before the range is, so that whoever goes on after a crash knows of them.
    async fn note(&self, differences: &[Difference]) -> StoreResult<()> {
        let Comparison { notes, purpose, number, .. } = &self.comparison;
        for difference in differences {
            notes.put_difference(*purpose, *number, difference).await?;
        }
        let noted = self.noted.fetch_add(differences.len() as u64, Ordering::Relaxed);
        if noted + differences.len() as u64 >= DIFFERENCES_MAX as u64 {
            self.progress.stop();
        }
        Ok(())
    }
}

impl Notes {
    async fn put_difference(
        &self,
        purpose: Purpose,
        number: u64,
        difference: &Difference,
    ) -> StoreResult<()> {
        let name = format!("{}{}/{}", prefix(purpose, number), difference.table, difference.key);
        self.put(&name, Expected::Anything, difference).await.map(|_| ())
    }

    /// What a comparison has found.
    pub async fn differences(&self, purpose: Purpose, number: u64) -> StoreResult<Vec<Difference>> {
        let found = self.list(&prefix(purpose, number), None, DIFFERENCES_MAX).await?;
        Ok(found.into_iter().map(|(_, difference)| difference).collect())
    }
}

impl Notes {
    /// How many tables a comparison has looked through, and how many rows it has met in all of them.
    pub(crate) async fn looked_through(&self, purpose: Purpose, number: u64) -> StoreResult<(usize, u64)> {
        let tables = self.list::<rows::LookedAt>(&rows::prefix(purpose, number), None, TABLES_MAX).await?;
        let done = tables.iter().filter(|(_, looked_at)| looked_at.is_done).count();
        Ok((done, tables.iter().map(|(_, looked_at)| looked_at.rows).sum()))
    }

    /// Forgets a comparison that nobody looks at any more.
    pub(crate) async fn forget_comparison(&self, purpose: Purpose, number: u64) -> StoreResult<()> {
        for (prefix, limit) in
            [(prefix(purpose, number), DIFFERENCES_MAX), (rows::prefix(purpose, number), TABLES_MAX)]
        {
            for (name, _) in self.list::<serde_json::Value>(&prefix, None, limit).await? {
                self.remove(&format!("{prefix}{name}")).await?;
            }
        }
        self.forget_job(purpose.as_str(), number).await
    }
}

fn prefix(purpose: Purpose, number: u64) -> String {
    format!("/difference/{}/{number:020}/", purpose.as_str())
}

impl Compared {
    pub fn total(&self) -> u64 {
        self.by_kind.values().sum()
    }

    /// Whether so much differs that the rest was not looked at.
    pub(crate) fn is_given_up(&self) -> bool {
        self.total() >= DIFFERENCES_MAX as u64
    }
}
