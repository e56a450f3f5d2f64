//! Copies the past.

use std::{collections::BTreeSet, sync::Arc};

use mobimir_core::{
    moving::{Movable, Range, Unreadable, Whole},
    ports::{StoreError, StoreResult},
    time::{Clock, Month},
};
use serde::{Deserialize, Serialize};

use crate::{
    job::{Ended, Job, Progress, Step},
    record::Notes,
    throttle::{Pressure, Throttle},
};

/// Entities of one step. All ranges that are worked on have so many in memory.
const STEP_ENTITIES: usize = 100;
/// So that the target has something to do while one range is read, and another waits for its last few entities.
const RANGES_AT_ONCE: usize = 8;

pub struct Backfill<W: Whole> {
    pub notes: Notes,
    pub from: Arc<dyn Movable<W>>,
    pub to: Arc<dyn Movable<W>>,
    pub clock: Arc<dyn Clock>,
    pub pressure: Arc<dyn Pressure>,
    pub selection: Selection,
    /// Whether nobody but copies has ever written to the target.
    pub into_nothing: bool,
}

/// What of the past is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Without any, everything.
    pub only: Option<Months>,
    /// These have been copied before.
    pub without: BTreeSet<Month>,
}

/// Some months, with the first and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Months {
    pub from: Month,
    pub to: Month,
}

impl Months {
    pub fn all(self) -> impl Iterator<Item = Month> {
        self.from.up_to(self.to)
    }
}

impl Selection {
    fn takes<W: Whole>(&self, whole: &W) -> bool {
        // What belongs to no month is always of the present.
        let Some(month) = whole.month() else { return true };
        let is_chosen = self.only.is_none_or(|months| (months.from..=months.to).contains(&month));
        is_chosen && !self.without.contains(&month)
    }
}

impl<W: Whole> Backfill<W> {
    /// Copies everything that has not been copied under this name and number.
    pub async fn run(self, name: &str, number: u64, progress: Arc<Progress>) -> StoreResult<Ended> {
        let mut job = Job::new(self.notes.clone(), name, number, progress.clone(), self.clock.clone());
        job.ranges_at_once = RANGES_AT_ONCE;
        let backfill = Arc::new((self, Throttle::default()));
        let from = backfill.0.from.clone();
        let step = move |range: Range| {
            let (backfill, progress) = (backfill.clone(), progress.clone());
            async move {
                let done = backfill.0.step(range).await?;
                let part = done.entities as f64 / STEP_ENTITIES as f64;
                backfill.1.wait(&*backfill.0.pressure, &progress, part).await;
                Ok(done)
            }
        };
        job.run(&*from, step).await
    }

    async fn step(&self, range: Range) -> StoreResult<Step> {
        let scanned = self.from.scan(&range, STEP_ENTITIES).await?;
        let entities = scanned.items.len() as u64;
        let mut wholes = Vec::with_capacity(scanned.items.len());
        for item in scanned.items {
            match item {
                Ok(whole) if self.selection.takes(&whole) => wholes.push(whole),
                Ok(_) => {}
                Err(Unreadable { key, error }) => {
                    self.notes.put_aside(&key, error.to_string(), self.clock.now()).await?;
                }
            }
        }
        self.put(wholes).await?;
        Ok(Step { entities, mended: 0, next: scanned.next })
    }

    /// All at once, and if one of them cannot be stored, each on its own.
    async fn put(&self, wholes: Vec<W>) -> StoreResult<()> {
        let (copies, now) = (wholes.clone(), self.clock.now());
        let put = if self.into_nothing { self.to.put_first(copies, now) } else { self.to.put(copies, now) };
        match put.await {
            Err(StoreError::Corrupt { .. }) => {}
            outcome => return outcome,
        }
        for whole in wholes {
            put_or_set_aside(&*self.to, &self.notes, whole, &*self.clock).await?;
        }
        Ok(())
    }
}

/// Copies an entity. One that cannot be stored there becomes a dead letter, which somebody has to look at.
pub(crate) async fn put_or_set_aside<W: Whole>(
    to: &dyn Movable<W>,
    notes: &Notes,
    whole: W,
    clock: &dyn Clock,
) -> StoreResult<()> {
    let (key, now) = (whole.key().to_string(), clock.now());
    match to.put(vec![whole], now).await {
        Err(error @ StoreError::Corrupt { .. }) => notes.put_aside(&key, error.to_string(), now).await,
        outcome => outcome,
    }
}
