//! Ten minutes of Black Friday at a load that the shop can stand: whether memory, answers and disk stay as they are.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context, Result};
use mobimir_embedded::{EmbeddedStore, Options};
use mobimir_load::{Operation, OperationResult, report::Report};

use crate::{
    Setting,
    best::Best,
    crowd::{
        Crowd,
        saying::{broken_promises, errors, ms, p99_ms},
    },
    durable::BACKUP_ROW_BYTES,
    figures::{Figures, maximum, median, quantile},
    process, progress,
    samples::Samples,
    server::Server,
};

const SHARE_OF_BEST: f64 = 0.7;
const MEMORY_BAR: f64 = 1.1;
const LATENCY_BAR: f64 = 1.3;
/// The part of the run that is compared with an earlier one, as shares of its time.
const LATE: (f64, f64) = (0.8, 1.0);

/// What the last part of the run is compared with. There are two definitions: figures of the first were short
/// when the second took its place, so both are measured, each with its bar.
struct Definition {
    /// Behind the names of its figures.
    suffix: &'static str,
    early: (f64, f64),
    /// The second that speaks for a part, by rising p99.
    second: fn(&[f64]) -> f64,
}

const DEFINITIONS: [Definition; 2] = [
    Definition { suffix: "", early: (0.2, 0.4), second: median },
    // The cache of blocks is full only when as much as it holds has been written, flushed and read again,
    // which takes minutes. And others on the machine only ever make seconds slower, so a quiet one says more
    // about the shop.
    Definition { suffix: "_since_third_fifth", early: (0.4, 0.6), second: quiet },
];

fn quiet(p99_ms: &[f64]) -> f64 {
    quantile(p99_ms, 0.25)
}

const BLOCK_BYTES: u64 = 512;

pub(crate) fn measure(setting: &Setting<'_>, best: &mut Best, figures: &mut Figures) -> Result<()> {
    progress("a steady load: a shop of 10,000 products");
    let data = setting.scratch.dir("steady")?;
    let server = Server::demo(setting.binary, &data).context("the shop did not start")?;
    let crowd = Crowd::of_black_friday(setting, server.address)?;
    let rate = best.found(setting, &crowd)?.rate * SHARE_OF_BEST;
    // Everybody signs up and the stock is filled up the first time: that is not what grows.
    crowd.send(rate, setting.pace.visit)?;
    server.stop()?;
    let before = Size::of(&data)?;

    progress("a steady load");
    let server = Server::serve(setting.binary, &data)?;
    let crowd = Crowd::of_black_friday(setting, server.address)?;
    let id = server.id();
    let (report, memory) = Samples::during(|| crowd.send(rate, setting.pace.steady), || process::rss_mb(id))?;
    server.stop()?;
    let after = Size::of(&data)?;

    let rss_mb = |(from, to)| -> Result<f64> {
        let samples: Vec<f64> = memory.of_part(&report, from, to)?.into_iter().copied().collect();
        Ok(median(&samples))
    };
    let late = rss_mb(LATE)?;
    for definition in &DEFINITIONS {
        let (suffix, early) = (definition.suffix, rss_mb(definition.early)?);
        figures.at_most(&format!("steady_memory_growth{suffix}"), late / early, "ratio", MEMORY_BAR);
        let creep = latency_creep(&report, definition);
        figures.at_most(&format!("steady_latency_creep{suffix}"), creep, "ratio", LATENCY_BAR);
        figures.info(&format!("steady_rss_early_mb{suffix}"), early, "MB");
    }
    figures.at_most("steady_oracle", broken_promises(&report), "broken promises", 0.0);
    figures.info("steady_rate", rate, "requests/s");
    figures.info("steady_errors", errors(&report), "requests");
    figures.info("steady_read_p99", ms(report.reads.p99_us), "ms");
    figures.info("steady_write_p99", ms(report.writes.p99_us), "ms");
    figures.info("steady_rss_late_mb", late, "MB");
    let writes = acknowledged_writes(&report) as f64;
    figures.info("steady_writes", writes, "writes");
    let per_write = |of: fn(&Size) -> u64| (of(&after) as f64 - of(&before) as f64) / writes;
    figures.info("steady_disk_per_write", per_write(|size| size.disk_bytes), "bytes");
    figures.info("steady_journal_per_write", per_write(|size| size.journal_bytes), "bytes");
    figures.info("steady_rows_per_write", per_write(|size| size.row_bytes), "bytes");
    Ok(())
}

/// By how much the p99 of the most frequent read, or of the most frequent write, has grown: the larger of
/// both.
fn latency_creep(report: &Report, definition: &Definition) -> f64 {
    let whole = (report.lasts_s as usize).min(report.seconds.len());
    let growth = |operation| {
        let of = |(from, to): (f64, f64)| {
            let second = |share: f64| (whole as f64 * share).round() as usize;
            (definition.second)(&p99_ms(&report.seconds[second(from)..second(to)], operation))
        };
        of(LATE) / of(definition.early)
    };
    // Not a number when one of them was never asked for.
    maximum(&[growth(Operation::ProductPage), growth(Operation::CartAdd)])
}

fn acknowledged_writes(report: &Report) -> u64 {
    let writes = report.operations.iter().filter(|(operation, _)| operation.is_write());
    writes.map(|(_, of): (_, &OperationResult)| of.fine).sum()
}

/// How much there is in a data directory that nobody serves from.
struct Size {
    /// As the file system counts.
    disk_bytes: u64,
    /// Of these, what was written ahead and is kept until all of it is in tables.
    journal_bytes: u64,
    /// Keys and values that can be read, without what they replaced.
    row_bytes: u64,
}

impl Size {
    fn of(data: &Path) -> Result<Self> {
        let (mut disk_bytes, mut journal_bytes) = (0, 0);
        each_file(data, &mut |path, bytes| {
            disk_bytes += bytes;
            if path.extension().is_some_and(|extension| extension == "jnl") {
                journal_bytes += bytes;
            }
        })?;
        Ok(Self { disk_bytes, journal_bytes, row_bytes: row_bytes(data)? })
    }
}

fn row_bytes(data: &Path) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = EmbeddedStore::open(data, &Options::default())?;
        let dumped = store.dump(&mut io::sink(), &mut |_| {})?;
        store.close().await;
        Ok(dumped.bytes.saturating_sub(dumped.records * BACKUP_ROW_BYTES as u64))
    })
}

fn each_file(dir: &Path, see: &mut impl FnMut(&Path, u64)) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            each_file(&entry.path(), see)?;
        } else {
            see(&entry.path(), metadata.blocks() * BLOCK_BYTES);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::sample;

    /// Ten seconds: the second fifth are the third and the fourth, and so on.
    fn with_p99_ms(operation: Operation, p99_ms: [u64; sample::SECONDS]) -> Report {
        let mut report = sample::report();
        for (second, ms) in report.seconds.iter_mut().zip(p99_ms) {
            second.operations.get_mut(&operation).unwrap().p99_us = ms * 1_000;
        }
        report
    }

    #[test]
    fn both_definitions_see_what_they_say() {
        let creeps =
            |report: &Report| DEFINITIONS.each_ref().map(|definition| latency_creep(report, definition));
        assert_eq!(creeps(&sample::report()), [1.0, 1.0]);
        // Slower since the third fifth only, and one noisy second at the end.
        let report = with_p99_ms(Operation::CartAdd, [10, 10, 10, 10, 20, 20, 20, 20, 20, 60]);
        assert_eq!(creeps(&report), [4.0, 1.0]);
        // Product pages grow by more than additions to carts.
        let report = with_p99_ms(Operation::ProductPage, [10, 10, 10, 10, 10, 10, 10, 10, 30, 30]);
        assert_eq!(creeps(&report), [3.0, 3.0]);
    }

    #[test]
    fn what_was_never_asked_for_has_no_creep() {
        let mut report = sample::report();
        for second in &mut report.seconds {
            second.operations.remove(&Operation::ProductPage);
        }
        assert!(DEFINITIONS.iter().all(|definition| latency_creep(&report, definition).is_nan()));
    }
}
