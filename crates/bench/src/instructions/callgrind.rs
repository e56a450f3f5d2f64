//! A shop under valgrind's callgrind, and how many instructions it has executed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::server::Server;

/// One of the two programs of valgrind: it runs the shop. The other tells callgrind what to do.
const VALGRIND: &str = "valgrind";
const CONTROL: &str = "vgdb";
const DUMP_NAME: &str = "counts";

pub(crate) struct Counted {
    pub(crate) server: Server,
    dir: PathBuf,
}

/// Fails with what to do.
pub(crate) fn check_installed() -> Result<()> {
    for program in [VALGRIND, CONTROL] {
        // The second knows no `--version`.
        let found = Command::new(program).arg("--help").output();
        ensure!(
            found.is_ok_and(|output| output.status.success()),
            "{program} is missing: instructions are counted with valgrind (on Debian or Ubuntu, as root: apt-get install valgrind)"
        );
    }
    Ok(())
}

impl Counted {
    /// Starts the shop on data that is there. Counts are written to `dir`.
    pub(crate) fn start(binary: &Path, data: &Path, dir: &Path) -> Result<Self> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text");
        let arguments = [
            "--tool=callgrind".to_owned(),
            "--quiet".to_owned(),
            // It is quick until it counts.
            "--instr-atstart=no".to_owned(),
            // Threads take turns in the order in which they ask.
            "--fair-sched=try".to_owned(),
            format!("--vgdb-prefix={}", text(&dir.join("vgdb"))?),
            format!("--callgrind-out-file={}", text(&dir.join(DUMP_NAME))?),
            text(binary)?,
            "serve".to_owned(),
            // What runs by the clock is counted more often on a slow machine.
            "--no-background".to_owned(),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // With more workers it is chance which of them finds a request.
        let server =
            Server::start_with(Path::new(VALGRIND), &arguments, data, &[("TOKIO_WORKER_THREADS", "1")]);
        Ok(Self { server: server.context("the shop did not start under callgrind")?, dir: dir.to_owned() })
    }

    /// From here on instructions are counted. Until then the shop runs several times as fast.
    pub(crate) fn begin(&self) -> Result<()> {
        self.order(&["instrumentation", "on"])
    }

    /// Begins to count anew.
    pub(crate) fn forget(&self) -> Result<()> {
        self.order(&["zero"])
    }

    /// Instructions of all threads since [`Counted::forget`].
    pub(crate) fn total(&self) -> Result<u64> {
        let before = self.dumps()?.len();
        self.order(&["dump"])?;
        let dumps = self.dumps()?;
        ensure!(
            dumps.len() == before + 1,
            "expected one more file of counts, found {} after {before}",
            dumps.len()
        );
        let newest = dumps.last().context("callgrind has written no counts")?;
        let total = total(&fs::read_to_string(newest)?);
        total.with_context(|| format!("{} has no total", newest.display()))
    }

    fn order(&self, order: &[&str]) -> Result<()> {
        let mut command = Command::new(CONTROL);
        command.arg(format!("--pid={}", self.server.id()));
        command.arg(format!("--vgdb-prefix={}", self.dir.join("vgdb").display())).args(order);
        let output = command.output().with_context(|| format!("cannot start {CONTROL}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{CONTROL} {order:?} ended with {}: {}", output.status, said.trim());
        Ok(())
    }

    /// Files with counts, the newest last.
    fn dumps(&self) -> Result<Vec<PathBuf>> {
        let mut dumps = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let number = path.file_name().and_then(|name| name.to_str()).and_then(dump_number);
            dumps.extend(number.map(|number| (number, path)));
        }
        dumps.sort();
        Ok(dumps.into_iter().map(|(_, path)| path).collect())
    }
}

/// Of `counts.7`.
fn dump_number(name: &str) -> Option<u64> {
    name.strip_prefix(DUMP_NAME)?.strip_prefix('.')?.parse().ok()
}

/// Of a file in callgrind's format.
fn total(text: &str) -> Option<u64> {
    text.lines().rev().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_stands_at_the_end() {
        let file =
            "# callgrind format\nversion: 1\nevents: Ir\nsummary: 1\n\nfn=(1) main\n12 34\n\ntotals: 5678\n";
        assert_eq!(total(file), Some(5_678));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn files_are_told_apart_by_their_numbers() {
        assert_eq!(dump_number("counts.10"), Some(10));
        assert_eq!(dump_number("counts"), None);
        assert_eq!(dump_number("vgdb-pipe.3"), None);
    }
}
