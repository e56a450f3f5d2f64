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
    figures::{Figures, median, quantile},
    process, progress,
    samples::Samples,
    server::Server,
};

const SHARE_OF_BEST: f64 = 0.7;
const MEMORY_BAR: f64 = 1.1;
const LATENCY_BAR: f64 = 1.3;
/// Parts of the run that are compared, as shares of its time: one after everything has become warm, and the last. The cache
/// of blocks is full only when as much as it holds has been written, flushed and read again, which takes minutes.
const EARLY: (f64, f64) = (0.4, 0.6);
const LATE: (f64, f64) = (0.8, 1.0);
/// Which second of a part speaks for it, by rising p99. Others on the machine only ever make seconds slower, so a quiet one
/// says more about the shop than the middle one does.
const QUIET: f64 = 0.25;
const BLOCK_BYTES: u64 = 512;

pub(crate) fn measure(setting: &Setting<'_>, best: &mut Best, figures: &mut Figures) -> Result<()> {
    progress("a steady load: a shop of 10,000 products");
    let data = setting.scratch.dir("steady")?;
    let server = Server::demo(setting.binary, &data).context("the shop did not start")?;
    let crowd = Crowd::of_black_friday(setting, server.address)?;
    let rate = best.rate(setting, &crowd)? * SHARE_OF_BEST;
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

    let [early, late] = [EARLY, LATE].map(|(from, to)| -> Result<f64> {
        let samples: Vec<f64> = memory.of_part(&report, from, to)?.into_iter().copied().collect();
        Ok(median(&samples))
    });
    let (early, late) = (early?, late?);
    figures.at_most("steady_memory_growth", late / early, "ratio", MEMORY_BAR);
    figures.at_most("steady_latency_creep", latency_creep(&report), "ratio", LATENCY_BAR);
    figures.at_most("steady_oracle", broken_promises(&report), "broken promises", 0.0);
    figures.info("steady_rate", rate, "requests/s");
    figures.info("steady_errors", errors(&report), "requests");
    figures.info("steady_read_p99", ms(report.reads.p99_us), "ms");
    figures.info("steady_write_p99", ms(report.writes.p99_us), "ms");
    figures.info("steady_rss_early_mb", early, "MB");
    figures.info("steady_rss_late_mb", late, "MB");
    let writes = acknowledged_writes(&report) as f64;
    figures.info("steady_writes", writes, "writes");
    let per_write = |of: fn(&Size) -> u64| (of(&after) as f64 - of(&before) as f64) / writes;
    figures.info("steady_disk_per_write", per_write(|size| size.disk_bytes), "bytes");
    figures.info("steady_journal_per_write", per_write(|size| size.journal_bytes), "bytes");
    figures.info("steady_rows_per_write", per_write(|size| size.row_bytes), "bytes");
    Ok(())
}

/// By how much the p99 of the most frequent read, or of the most frequent write, has grown: the larger of both. Of all seconds
/// of a part a quiet one.
fn latency_creep(report: &Report) -> f64 {
    let whole = (report.lasts_s as usize).min(report.seconds.len());
    let part = |(from, to): (f64, f64)| {
        let second = |share: f64| (whole as f64 * share).round() as usize;
        &report.seconds[second(from)..second(to)]
    };
    let growth = |operation| {
        let of = |part| quantile(&p99_ms(part, operation), QUIET);
        of(part(LATE)) / of(part(EARLY))
    };
    growth(Operation::ProductPage).max(growth(Operation::CartAdd))
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
