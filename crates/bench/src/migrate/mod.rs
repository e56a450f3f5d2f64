//! Data on its way from MongoDB to Cassandra: what copying, comparing and mirroring cost.
//!
//! - [`stores`]: the servers, and both sides of a migration on them;
//! - [`values`]: what is copied;
//! - [`backfill`]: how fast the past is copied, against [`bare`], the driver that loads the same rows;
//! - [`memory`]: whether many entities take more memory than few;
//! - [`dual_write`]: what a write costs that is mirrored;
//! - [`hanging`]: what shoppers feel of a target that hangs;
//! - [`moved`]: an entity on its way, as the shop has it; [`shoppers`]: what is asked of it.

mod backfill;
mod bare;
mod dual_write;
mod hanging;
pub(crate) mod memory;
mod moved;
mod shoppers;
mod stores;
mod values;

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};

use self::stores::{Servers, Stores};
use crate::{figures::Figures, sides::WORKERS};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    Memory,
    Backfill,
    DualWrite,
    Hanging,
}

/// How much is done and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) quick: bool,
    pub(crate) large: bool,
}

pub(crate) fn measure(pace: Pace, wanted: &[Part], figures: &mut Figures) -> Result<()> {
    let is_wanted = |part: Part| wanted.is_empty() || wanted.contains(&part);
    if is_wanted(Part::Memory) {
        // Before there is a ring, which it does not need.
        memory::measure(pace, figures)?;
    }
    if ![Part::Backfill, Part::DualWrite, Part::Hanging].into_iter().any(is_wanted) {
        return Ok(());
    }
    let servers = Servers::start()?;
    runtime()?.block_on(async {
        let stores = Stores::open(&servers).await?;
        backfill::warm_up(&stores, pace).await?;
        if is_wanted(Part::Backfill) {
            backfill::measure(&stores, pace, figures).await?;
        }
        if is_wanted(Part::DualWrite) {
            dual_write::measure(&stores, pace, figures).await?;
        }
        if is_wanted(Part::Hanging) {
            hanging::measure(&stores, pace, figures).await?;
        }
        Ok(())
    })
}

pub(crate) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?)
}
