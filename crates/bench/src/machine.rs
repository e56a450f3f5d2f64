//! What the figures were measured on.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::scratch::Scratch;

const SYNC_TIME: Duration = Duration::from_secs(1);
const SYNC_BYTES: usize = 4096;

pub(crate) fn describe(scratch: &Scratch) -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".to_owned());
    let memory_kib: f64 = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.trim_end_matches("kB").trim().parse().ok())
        .unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let syncs = syncs_per_second(scratch.path())?;
    Ok(format!(
        "{cores} cores, {cpu}, {:.1} GB memory, Linux {}, {} with {syncs:.0} fdatasync/s",
        memory_kib * 1024.0 / 1e9,
        kernel.trim(),
        filesystem(scratch.path()).unwrap_or_else(|| "a file system".to_owned()),
    ))
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// The kind of file system that a directory lies on: that of the longest mount point above it.
fn filesystem(dir: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let above = mounts.lines().filter_map(|line| {
        let mut parts = line.split(' ').skip(1);
        let (mount, kind) = (parts.next()?, parts.next()?);
        dir.starts_with(mount).then(|| (mount.len(), kind.to_owned()))
    });
    above.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

/// Short appends, each of them made durable.
fn syncs_per_second(dir: &Path) -> Result<f64> {
    let mut file = File::create(dir.join("syncs"))?;
    let bytes = [7; SYNC_BYTES];
    let started = Instant::now();
    let mut syncs = 0;
    while started.elapsed() < SYNC_TIME {
        file.write_all(&bytes)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(f64::from(syncs) / started.elapsed().as_secs_f64())
}
