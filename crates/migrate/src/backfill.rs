//! Copies the past.

use std::sync::Arc;

use mobimir_core::{
    moving::{Movable, Range, Unreadable, Whole},
    ports::{StoreError, StoreResult},
    time::Clock,
};

use crate::{
    job::{Ended, Job, Progress, Step},
    record::Notes,
    throttle::{Pressure, Throttle},
};

/// Entities of one step.
const STEP_ENTITIES: usize = 200;

pub struct Backfill<W: Whole> {
    pub notes: Notes,
    pub from: Arc<dyn Movable<W>>,
    pub to: Arc<dyn Movable<W>>,
    pub clock: Arc<dyn Clock>,
    pub pressure: Arc<dyn Pressure>,
}

impl<W: Whole> Backfill<W> {
    /// Copies everything that has not been copied under this name and number.
    pub async fn run(self, name: &str, number: u64, progress: Arc<Progress>) -> StoreResult<Ended> {
        let job = Job::new(self.notes.clone(), name, number, progress);
        let backfill = Arc::new((self, Throttle::default()));
        let from = backfill.0.from.clone();
        let step = move |range: Range| {
            let backfill = backfill.clone();
            async move {
                backfill.1.wait(&*backfill.0.pressure).await;
                backfill.0.step(range).await
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
                Ok(whole) => wholes.push(whole),
                Err(Unreadable { key, error }) => {
                    self.notes.put_aside(&key, error.to_string(), self.clock.now()).await?;
                }
            }
        }
        self.put(wholes).await?;
        Ok(Step { entities, next: scanned.next })
    }

    /// All at once, and if one of them cannot be stored, each on its own.
    async fn put(&self, wholes: Vec<W>) -> StoreResult<()> {
        let now = self.clock.now();
        match self.to.put(wholes.clone(), now).await {
            Err(StoreError::Corrupt { .. }) => {}
            outcome => return outcome,
        }
        for whole in wholes {
            let key = whole.key().to_string();
            match self.to.put(vec![whole], now).await {
                Err(error @ StoreError::Corrupt { .. }) => {
                    self.notes.put_aside(&key, error.to_string(), now).await?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }
}
