//! Whether copying and comparing many entities takes more memory than few.
//!
//! Each time in a process of its own, which has done nothing else: this program starts itself. From one database of a
//! replica set to another, so that none of the memory is a store's, and hundreds of thousands are copied in minutes.

use std::{
    io::Read,
    process::{Command, Stdio},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mobimir_core::{
    moving::WholeOrder,
    time::{Clock, SystemClock},
};
use mobimir_lab::Mongo;
use mobimir_migrate::{
    backfill::{Backfill, Selection},
    job::Progress,
    record::Notes,
    throttle::Nobody,
    verify::{Comparison, Purpose},
};
use mongodb::bson::doc;

use super::{
    Pace, runtime,
    stores::{open_mongo, start_mongo},
    values,
};
use crate::{
    figures::{Figures, median, show_rounds},
    process::{self, Process},
    progress,
};

/// The same but for what an allocator leaves between others, which is about a tenth from one process to the next.
const GROWTH_BAR: f64 = 1.15;
const FEW: usize = 10_000;
const MANY: usize = 200_000;
const MANY_LARGE: usize = 1_000_000;
const QUICK_DIVISOR: usize = 20;
/// Few are copied quickly, so that is done more than once.
const RUNS_OF_FEW: usize = 5;
const RUNS_OF_MANY: usize = 1;
const MADE_AT_ONCE: usize = 5_000;
const SOURCE: &str = "source";
const TARGET: &str = "target";
const RUN_TIME_MAX: Duration = Duration::from_secs(3_600);

pub(super) fn measure(pace: Pace, figures: &mut Figures) -> Result<()> {
    let divisor = if pace.quick { QUICK_DIVISOR } else { 1 };
    let many = if pace.large { MANY_LARGE } else { MANY } / divisor;
    let few = FEW / divisor;
    let mongo = start_mongo()?;
    let of_few = growth(&mongo, few, RUNS_OF_FEW)?;
    let of_many = growth(&mongo, many, RUNS_OF_MANY)?;
    figures.at_most("migrate_memory_growth", of_many / of_few, "ratio", GROWTH_BAR);
    figures.info(&format!("migrate_memory_{few}"), of_few, "MB");
    figures.info(&format!("migrate_memory_{many}"), of_many, "MB");
    Ok(())
}

/// By how much the memory of a process grows that copies and compares so many, at its peak.
fn growth(mongo: &Mongo, count: usize, runs: usize) -> Result<f64> {
    progress(&format!("making {count} orders"));
    drop_database(mongo, SOURCE)?;
    runtime()?.block_on(fill(&mongo.uri(), count))?;
    progress(&format!("copying and comparing {count} orders"));
    let mut grown = Vec::new();
    for _ in 0..runs {
        drop_database(mongo, TARGET)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--move-within", &mongo.uri()]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut moving = Process::start(&mut command)?;
        let mut said = String::new();
        moving.output()?.read_to_string(&mut said)?;
        let status = moving.wait(RUN_TIME_MAX)?.context("copying takes too long")?;
        ensure!(status.success(), "copying and comparing has failed: {status}");
        let mut words = said.split_whitespace();
        let mut next = || words.next().context("a process has not said what it took").and_then(number);
        let (copied, mb) = (next()?, next()?);
        ensure!(copied == count as f64, "{copied} of {count} orders were copied");
        grown.push(mb);
    }
    show_rounds(&format!("migrate_memory_{count}"), &grown);
    Ok(median(&grown))
}

fn number(text: &str) -> Result<f64> {
    Ok(text.parse()?)
}

fn drop_database(mongo: &Mongo, name: &str) -> Result<()> {
    mongo.run_on(1, name, doc! { "dropDatabase": 1 })?;
    Ok(())
}

async fn fill(uri: &str, count: usize) -> Result<()> {
    let (source, _) = open_mongo(uri, SOURCE).await?;
    for first in (0..count).step_by(MADE_AT_ONCE) {
        let wholes = values::orders(MADE_AT_ONCE.min(count - first))?;
        let orders = wholes.into_iter().map(|WholeOrder { order, .. }| order).collect();
        source.orders.port.insert(orders).await?;
    }
    Ok(())
}

/// In a process of its own: copies all orders, compares them, and says how many there were and how many MB it took.
pub(crate) fn move_within(uri: &str) -> Result<String> {
    runtime()?.block_on(async {
        let (source, _) = open_mongo(uri, SOURCE).await?;
        let (target, notes) = open_mongo(uri, TARGET).await?;
        let (from, to) = (source.orders.moving, target.orders.moving);
        let notes = Notes::new(notes, "orders");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let before_mb = process::rss_mb(std::process::id())?;
        process::forget_peak()?;
        let progress = Arc::new(Progress::default());
        Backfill {
            notes: notes.clone(),
            from: from.clone(),
            to: to.clone(),
            clock: clock.clone(),
            pressure: Arc::new(Nobody),
            selection: Selection::default(),
            into_nothing: true,
        }
        .run("backfill", 1, progress.clone())
        .await?;
        let comparison = Comparison {
            notes,
            source: from,
            target: to,
            clock,
            pressure: Arc::new(Nobody),
            purpose: Purpose::Verify,
            number: 1,
            is_forward: true,
        };
        let compared = comparison.run(Arc::default()).await?;
        let copied = progress.entities.load(Ordering::Relaxed);
        ensure!(compared.total() == 0, "{:?}", compared.by_kind);
        ensure!(compared.entities == copied, "{} of {copied} orders were compared", compared.entities);
        Ok(format!("{copied} {:.3}", process::peak_mb()? - before_mb))
    })
}
