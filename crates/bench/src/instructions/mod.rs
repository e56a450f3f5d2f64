//! How many instructions the shop takes for each of the hot operations. Unlike times they do not depend on what
//! else the machine does, so a change of one per cent is seen in one run.
//!
//! The program runs as it is shipped, but under callgrind and with one worker thread, and is asked over one connection. Counted
//! is what all its threads do in user space until an answer is sent; the kernel's part is not in it.
//!
//! - [`callgrind`]: the shop under callgrind, and its counts.

mod callgrind;

use std::{fs, path::Path};

use anyhow::{Context, Result};

use self::callgrind::Counted;
use crate::{
    Setting,
    figures::{Figures, median, show_rounds},
    hot::{Hot, HotShop},
    load::{Load, Until},
    progress,
    server::Server,
};

/// Each with a process of its own, and a copy of the same shop.
const RUNS: usize = 2;
/// Of each operation. The median leaves out those in which the store wrote a file or the like.
const BATCHES: usize = 5;
const QUICK_DIVISOR: usize = 4;
/// By how much the runs may differ.
const SPREAD_BAR_PERCENT: f64 = 1.0;

pub(crate) fn measure(setting: &Setting<'_>, named: &[Hot], figures: &mut Figures) -> Result<()> {
    callgrind::check_installed()?;
    let wanted = Hot::wanted(named);
    progress("making a shop of 10,000 products");
    let data = setting.scratch.dir("instructions")?.join("data");
    // Not under callgrind: it would take minutes.
    let server = Server::demo(setting.binary, &data).context("the shop did not start")?;
    let shop = HotShop::fill(&server)?;
    server.stop()?;
    let mut runs = Vec::new();
    for number in 1..=RUNS {
        progress(&format!("instructions, run {number} of {RUNS}"));
        let dir = setting.scratch.dir(&format!("instructions-{number}"))?;
        copy(&data, &dir.join("data")).context("cannot copy the shop")?;
        runs.push(count(setting, &dir, &shop, &wanted).with_context(|| format!("run {number}"))?);
    }
    for (at, hot) in wanted.iter().enumerate() {
        let counts: Vec<f64> = runs.iter().map(|run| run[at]).collect();
        let name = format!("instructions_{}", hot.name());
        figures.info(&name, mean(&counts), "instructions/request");
        figures.at_most(&format!("{name}_spread"), spread_percent(&counts), "%", SPREAD_BAR_PERCENT);
    }
    Ok(())
}

/// Instructions for one request of each operation, by a new process on the data in `dir`.
fn count(setting: &Setting<'_>, dir: &Path, shop: &HotShop, wanted: &[Hot]) -> Result<Vec<f64>> {
    let counted = Counted::start(setting.binary, &dir.join("data"), dir)?;
    let mut load = Load::connect(counted.server.address, 1)?;
    // Otherwise the first batches would also count how the caches fill up, and differ by a factor of two.
    load.run(&shop.reads_of_all(), Until::Each).context("to warm up")?;
    counted.begin()?;
    let mut counts = Vec::new();
    for &hot in wanted {
        progress(hot.name());
        let requests = requests_of(hot) / if setting.pace.quick() { QUICK_DIVISOR } else { 1 };
        let mut next = HotShop::filled(hot);
        let mut batch = |load: &mut Load| {
            let sent = load.run(&shop.requests(hot, next, requests), Until::Each);
            next += requests;
            sent.with_context(|| hot.name().to_owned())
        };
        batch(&mut load)?;
        counted.forget()?;
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            batch(&mut load)?;
            batches.push(counted.total()? as f64 / requests as f64);
        }
        show_rounds(hot.name(), &batches);
        counts.push(median(&batches));
    }
    drop(load);
    counted.server.stop()?;
    Ok(counts)
}

/// A data directory that nobody has open.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &copied)?;
        } else {
            fs::copy(entry.path(), copied)?;
        }
    }
    Ok(())
}

/// Of a batch.
fn requests_of(hot: Hot) -> usize {
    match hot {
        Hot::ProductPage | Hot::ProductStock => 400,
        Hot::CartAdd | Hot::CartChange | Hot::CartRead | Hot::OrderCard => 200,
        Hot::Search | Hot::OrderList => 96,
        Hot::CategoryPage | Hot::OrderPlace | Hot::OrderOfCart => 128,
    }
}

fn mean(counts: &[f64]) -> f64 {
    counts.iter().sum::<f64>() / counts.len() as f64
}

/// Between the least and the most, in per cent of the least.
fn spread_percent(counts: &[f64]) -> f64 {
    let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
    let most = counts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (most / least - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_between_the_least_and_the_most() {
        assert_eq!(spread_percent(&[200.0, 202.0, 201.0]).round(), 1.0);
        assert_eq!(spread_percent(&[7.0, 7.0]), 0.0);
        assert_eq!(mean(&[1.0, 2.0]), 1.5);
    }
}
