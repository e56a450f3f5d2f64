//! How fast the past is copied, to how fast the bare driver loads the same rows on the same ring.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use mobimir_core::{
    moving::Movable,
    time::{Clock, SystemClock},
};
use mobimir_migrate::{
    backfill::{Backfill, Selection},
    job::{Ended, Progress},
    record::Notes,
    throttle::Nobody,
    verify::differences,
};
use tokio::task::JoinSet;

use super::{
    Pace,
    bare::{self, Load},
    stores::Stores,
    values,
};
use crate::{
    figures::{Figures, median, show_rounds},
    progress,
};

const RATE_BAR: f64 = 0.8;
/// Entities that the bare driver loads at the same time.
const LOADED_AT_ONCE: usize = 128;
/// Loaded entities that are compared with what the ports make of them.
const COMPARED: usize = 60;
/// Until the servers have compiled what they run.
const WARM_UP: Duration = Duration::from_secs(90);
const WARM_UP_QUICK: Duration = Duration::from_secs(2);
/// Entities of a round.
const COUNT: usize = 4_000;
const COUNT_WARM_UP: usize = 1_000;
const COUNT_QUICK: usize = 200;
const ROUNDS: usize = 7;
const ROUNDS_QUICK: usize = 2;
const FILLED_AT_ONCE: usize = 500;

/// One kind of entity, and everything that is needed to copy it.
struct Copied<'a, L: Load> {
    name: &'static str,
    stores: &'a Stores<'a>,
    source: Arc<dyn Movable<L::Whole>>,
    target: Arc<dyn Movable<L::Whole>>,
    make: fn(usize) -> Result<Vec<L::Whole>>,
    bare: Arc<L>,
}

impl<'a> Copied<'a, bare::Orders> {
    async fn orders(stores: &'a Stores<'a>) -> Result<Self> {
        let bare = Arc::new(bare::Orders::connect(stores).await?);
        let (source, target) = (stores.source.orders.moving.clone(), stores.target.orders.moving.clone());
        Ok(Self { name: "orders", stores, source, target, make: values::orders, bare })
    }
}

impl<'a> Copied<'a, bare::Carts> {
    async fn carts(stores: &'a Stores<'a>) -> Result<Self> {
        let bare = Arc::new(bare::Carts::connect(stores).await?);
        let (source, target) = (stores.source.carts.moving.clone(), stores.target.carts.moving.clone());
        Ok(Self { name: "carts", stores, source, target, make: values::carts, bare })
    }
}

impl<L: Load> Copied<'_, L> {
    /// Whether the ports find in every table what the driver has loaded.
    async fn check(&self) -> Result<()> {
        let wholes = (self.make)(COMPARED)?;
        self.load(&wholes).await?;
        for whole in &wholes {
            let found = differences(whole, &self.target.in_tables(whole).await?);
            ensure!(found.is_empty(), "the driver does not load what a backfill writes: {found:?}");
        }
        Ok(())
    }

    /// Copies as many from the source; says how many a second.
    async fn copy(&self, count: usize) -> Result<f64> {
        self.stores.empty_source(self.name)?;
        for wholes in (self.make)(count)?.chunks(FILLED_AT_ONCE) {
            self.source.put(wholes.to_vec(), SystemClock.now()).await?;
        }
        let backfill = Backfill {
            notes: Notes::new(self.stores.notes.clone(), self.name),
            from: self.source.clone(),
            to: self.target.clone(),
            clock: Arc::new(SystemClock),
            pressure: Arc::new(Nobody),
            selection: Selection::default(),
            into_nothing: true,
        };
        let (progress, started) = (Arc::new(Progress::default()), Instant::now());
        // Every job has a number of its own.
        let number = SystemClock.now().as_millis().unsigned_abs();
        let ended = backfill.run("backfill", number, progress.clone()).await?;
        let took = started.elapsed();
        let copied = progress.entities.load(Ordering::Relaxed);
        ensure!(
            matches!(ended, Ended::Whole { .. }) && copied == count as u64,
            "{copied} of {count} were copied"
        );
        Ok(count as f64 / took.as_secs_f64())
    }

    /// Loads as many with the bare driver.
    async fn load_new(&self, count: usize) -> Result<f64> {
        self.load(&(self.make)(count)?).await
    }

    async fn load(&self, wholes: &[L::Whole]) -> Result<f64> {
        let rows: Arc<[L::Rows]> = self.bare.prepare(wholes)?.into();
        let (started, next, mut loading) = (Instant::now(), Arc::new(AtomicUsize::new(0)), JoinSet::new());
        for _ in 0..LOADED_AT_ONCE {
            let (bare, rows, next) = (self.bare.clone(), rows.clone(), next.clone());
            loading.spawn(async move {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bare.load(row).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(loaded) = loading.join_next().await {
            loaded??;
        }
        Ok(rows.len() as f64 / started.elapsed().as_secs_f64())
    }

    async fn compare(&self, pace: Pace, figures: &mut Figures) -> Result<()> {
        progress(&format!("copying {}, and loading them", self.name));
        self.check().await?;
        let (count, rounds) = pace.rounds();
        let (mut copied, mut loaded) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // Whoever comes second finds servers that have just been busy.
            if round % 2 == 0 {
                copied.push(self.copy(count).await?);
                loaded.push(self.load_new(count).await?);
            } else {
                loaded.push(self.load_new(count).await?);
                copied.push(self.copy(count).await?);
            }
        }
        let ratios: Vec<f64> = copied.iter().zip(&loaded).map(|(copied, loaded)| copied / loaded).collect();
        let name = format!("migrate_backfill_to_driver_{}", self.name);
        show_rounds(&name, &ratios);
        figures.at_least(&name, median(&ratios), "x", RATE_BAR);
        figures.info(&format!("migrate_backfill_{}", self.name), median(&copied), "entities/s");
        figures.info(&format!("migrate_driver_{}", self.name), median(&loaded), "entities/s");
        Ok(())
    }
}

impl Pace {
    /// Entities of a round, and rounds.
    fn rounds(self) -> (usize, usize) {
        if self.quick { (COUNT_QUICK, ROUNDS_QUICK) } else { (COUNT, ROUNDS) }
    }
}

/// Copies and loads until the servers are as fast as they become.
pub(super) async fn warm_up(stores: &Stores<'_>, pace: Pace) -> Result<()> {
    let (time, count) = if pace.quick { (WARM_UP_QUICK, COUNT_QUICK) } else { (WARM_UP, COUNT_WARM_UP) };
    progress(&format!("warming up, {} s", time.as_secs()));
    let (orders, carts) = (Copied::orders(stores).await?, Copied::carts(stores).await?);
    let started = Instant::now();
    while started.elapsed() < time {
        orders.copy(count).await?;
        orders.load_new(count).await?;
        carts.copy(count).await?;
        carts.load_new(count).await?;
    }
    Ok(())
}

pub(super) async fn measure(stores: &Stores<'_>, pace: Pace, figures: &mut Figures) -> Result<()> {
    let orders = Copied::orders(stores).await?;
    orders.compare(pace, figures).await?;
    let undecided = Copied { bare: Arc::new(bare::Orders::undecided(stores).await?), ..orders };
    undecided.check().await?;
    let (count, rounds) = pace.rounds();
    let mut loaded = Vec::new();
    for _ in 0..rounds {
        loaded.push(undecided.load_new(count).await?);
    }
    figures.info("migrate_driver_orders_undecided", median(&loaded), "entities/s");
    Copied::carts(stores).await?.compare(pace, figures).await
}
