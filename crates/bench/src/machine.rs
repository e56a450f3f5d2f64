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
    let syncs = syncs_per_second(scratch.path())?;
    let filesystem = filesystem(scratch.path()).unwrap_or_else(|| "a file system".to_owned());
    Ok(format!("{}, {filesystem} with {syncs:.0} fdatasync/s", mobimir_load::machine::describe()))
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
