//! Compares what two stores say, entity by entity and table by table.
//!
//! Both are written meanwhile, so what differs is looked at again, after a while and after it was copied: what still
//! differs when neither side has changed and nothing is marked is a difference. Then every row of the target is
//! looked at: one that the source knows nothing of should not be there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::stream::{self, StreamExt};
use mobimir_core::{
    moving::{Facts, InTable, Movable, Place, Range, Row, Whole},
    notes::Expected,
    ports::StoreResult,
    time::Clock,
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{
    job::{Ended, Job, Progress, Step},
    record::Notes,
    throttle::{Pressure, Throttle},
};

const STEP_ENTITIES: usize = 200;
/// Things that are looked at again at the same time, each with its pauses.
const LOOKED_AT_ONCE: usize = 32;
/// How often something that differs is looked at again.
const GENERATIONS_MAX: u32 = 12;
const GENERATION_PAUSE: Duration = Duration::from_millis(500);
/// With more than this a comparison ends: something is wrong as a whole, and nobody would read them.
const DIFFERENCES_MAX: usize = 10_000;
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
    pub entities: u64,
    pub rows: u64,
    pub by_kind: BTreeMap<Kind, u64>,
    pub differences: Vec<Difference>,
}

pub struct Comparison<W: Whole> {
    pub notes: Notes,
    /// The store that decides.
    pub source: Arc<dyn Movable<W>>,
    pub target: Arc<dyn Movable<W>>,
    pub clock: Arc<dyn Clock>,
    pub pressure: Arc<dyn Pressure>,
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
    /// Compares everything that has not been compared under this number.
    pub async fn run(self, number: u64, progress: Arc<Progress>) -> StoreResult<Compared> {
        let job = Job::new(self.notes.clone(), "verify", number, progress.clone());
        let shared = Arc::new((self, Throttle::default()));
        let (source, notes) = (shared.0.source.clone(), shared.0.notes.clone());
        let step = {
            let (shared, progress) = (shared.clone(), progress.clone());
            move |range: Range| {
                let (shared, progress) = (shared.clone(), progress.clone());
                async move {
                    shared.1.wait(&*shared.0.pressure).await;
                    shared.0.step(number, range, &progress).await
                }
            }
        };
        let mut ended = job.run(&*source, step).await?;
        let mut rows = 0;
        if let Ended::Whole { .. } = ended {
            for table in shared.0.target.tables() {
                rows += shared.0.look_for_strays(number, table, &progress).await?;
            }
        }
        if progress.is_stopped() {
            ended = Ended::Stopped;
        }
        let differences = notes.differences(number).await?;
        let mut by_kind = BTreeMap::new();
        differences.iter().for_each(|difference| *by_kind.entry(difference.kind).or_default() += 1);
        let entities = progress.entities.load(std::sync::atomic::Ordering::Relaxed);
        Ok(Compared { ended, entities, rows, by_kind, differences })
    }

    async fn step(&self, number: u64, range: Range, progress: &Progress) -> StoreResult<Step> {
        let scanned = self.source.scan(&range, STEP_ENTITIES).await?;
        let entities = scanned.items.len() as u64;
        let mut suspects = Vec::new();
        // What cannot be read is a dead letter already.
        for whole in scanned.items.into_iter().flatten().filter(|whole| self.is_settled(whole)) {
            if !differences(&whole, &self.target.in_tables(&whole).await?).is_empty() {
                suspects.push(whole.key());
            }
        }
        let mut looked =
            stream::iter(suspects).map(|key| self.look_again(key)).buffer_unordered(LOOKED_AT_ONCE);
        while let Some(found) = looked.next().await {
            self.note(number, found?, progress).await?;
        }
        Ok(Step { entities, next: scanned.next })
    }

    /// Written down before the range is, so that whoever goes on after a crash knows of them.
    async fn note(&self, number: u64, differences: Vec<Difference>, progress: &Progress) -> StoreResult<()> {
        for difference in &differences {
            self.notes.put_difference(number, difference).await?;
        }
        if !differences.is_empty() && self.notes.differences(number).await?.len() >= DIFFERENCES_MAX {
            progress.stop();
        }
        Ok(())
    }

    /// Whether it does not expire while it is compared.
    fn is_settled(&self, whole: &W) -> bool {
        let soon = self.clock.now().plus_ms(EXPIRY_MARGIN_MS);
        whole.expires_at().is_none_or(|expires_at| expires_at > soon)
    }

    /// What still differs when it is looked at until neither side changes and nothing is on its way.
    async fn look_again(&self, key: W::Key) -> StoreResult<Vec<Difference>> {
        let mut left = Vec::new();
        for generation in 0..GENERATIONS_MAX {
            let before = self.source.whole(key).await?;
            let Some(whole) = before.whole.filter(|whole| self.is_settled(whole)) else {
                return Ok(Vec::new());
            };
            left = differences(&whole, &self.target.in_tables(&whole).await?);
            if left.is_empty() {
                return Ok(left);
            }
            let after = self.source.whole(key).await?;
            let has_changed = after.whole.is_none_or(|after| after.version() != whole.version());
            let is_on_its_way = has_changed || !before.marks.is_empty() || !after.marks.is_empty();
            if !is_on_its_way && generation > 0 {
                return Ok(left);
            }
            sleep(GENERATION_PAUSE).await;
        }
        Ok(left)
    }

    /// Looks at every row of a table; says how many there were.
    async fn look_for_strays(
        &self,
        number: u64,
        table: &'static str,
        progress: &Progress,
    ) -> StoreResult<u64> {
        let (mut after, mut seen): (Option<Place>, u64) = (None, 0);
        let throttle = Throttle::default();
        while !progress.is_stopped() {
            throttle.wait(&*self.pressure).await;
            let rows = self.target.rows(table, after.as_ref(), STEP_ENTITIES).await?;
            seen += rows.items.len() as u64;
            let mut looked = stream::iter(rows.items)
                .map(|row| self.stray(table, row, after.as_ref()))
                .buffer_unordered(LOOKED_AT_ONCE);
            while let Some(stray) = looked.next().await {
                self.note(number, stray?.into_iter().collect(), progress).await?;
            }
            drop(looked);
            after = rows.next;
            if after.is_none() {
                break;
            }
        }
        Ok(seen)
    }

    /// Whether a row of the page behind a place stands for something that the source does not have, or says something else
    /// than it does, and goes on doing so.
    async fn stray(
        &self,
        table: &'static str,
        mut row: Row<W::Key>,
        behind: Option<&Place>,
    ) -> StoreResult<Option<Difference>> {
        let mut found = None;
        for generation in 0..GENERATIONS_MAX {
            let before = self.source.whole(row.key).await?;
            if generation > 0 {
                // As it is by now, and between two looks at the source.
                let page = self.target.rows(table, behind, 2 * STEP_ENTITIES).await?;
                match page.items.into_iter().find(|again| again.place == row.place) {
                    Some(again) => row = again,
                    None => return Ok(None),
                }
            }
            let (kind, fields) = match &before.whole {
                Some(whole) => (Kind::Different, fields(&whole.facts(), &row.facts)),
                None => (Kind::Extra, Vec::new()),
            };
            let is_right = kind == Kind::Different && fields.is_empty();
            if is_right || !self.is_to_stay(before.whole.as_ref(), row.key).await? {
                return Ok(None);
            }
            found = Some(Difference { key: row.key.to_string(), table: table.to_owned(), kind, fields });
            let after = self.source.whole(row.key).await?;
            let version = |whole: Option<W>| whole.map(|whole| whole.version());
            let is_marked = !before.marks.is_empty() || !after.marks.is_empty();
            let is_on_its_way = is_marked || version(before.whole) != version(after.whole);
            if generation > 0 && !is_on_its_way {
                return Ok(found);
            }
            sleep(GENERATION_PAUSE).await;
        }
        Ok(found)
    }

    /// Whether what a row stands for does not expire right now. What the source has lost by that, the target loses, too.
    async fn is_to_stay(&self, source: Option<&W>, key: W::Key) -> StoreResult<bool> {
        match source {
            Some(whole) => Ok(self.is_settled(whole)),
            None => Ok(self.target.whole(key).await?.whole.is_none_or(|copy| self.is_settled(&copy))),
        }
    }
}

impl Notes {
    async fn put_difference(&self, number: u64, difference: &Difference) -> StoreResult<()> {
        let name = format!("/difference/{number:020}/{}/{}", difference.table, difference.key);
        self.put(&name, Expected::Anything, difference).await.map(|_| ())
    }

    /// What a comparison has found.
    pub async fn differences(&self, number: u64) -> StoreResult<Vec<Difference>> {
        let found = self.list(&format!("/difference/{number:020}/"), None, DIFFERENCES_MAX).await?;
        Ok(found.into_iter().map(|(_, difference)| difference).collect())
    }
}

impl Compared {
    pub fn total(&self) -> u64 {
        self.by_kind.values().sum()
    }
}
