//! What has to be known about a recorded run: the commit, the machine, and what else ran on it.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use mobimir_core::time::{Clock, SystemClock, Timestamp};

use super::asked;
use crate::{machine, scratch::Scratch};

pub(crate) struct Header {
    commit: String,
    title: String,
    /// Files that are not as the commit has them.
    changes: Vec<String>,
    at: Timestamp,
    machine: String,
    rustc: String,
    /// Processes that wanted to run before this one: over one, five and fifteen minutes.
    load: String,
    quick: bool,
    optimised: bool,
}

impl Header {
    /// Of the repository that this is started in. Records in `dir` are no changes.
    pub(crate) fn of_now(dir: &Path, quick: bool, scratch: &Scratch) -> Result<Self> {
        // First: measuring the disk is a load, too.
        let load = fs::read_to_string("/proc/loadavg").context("the system tells no load")?;
        let record = "start it in the repository: a record names the commit";
        let commit = asked("git", &["rev-parse", "HEAD"]).context(record)?;
        let status = asked("git", &["status", "--porcelain", "--untracked-files=all"]).context(record)?;
        let root = asked("git", &["rev-parse", "--show-toplevel"])?;
        let own = fs::canonicalize(dir).ok();
        let own = own.as_deref().and_then(|dir| dir.strip_prefix(&root).ok()).and_then(Path::to_str);
        Ok(Self {
            commit,
            title: asked("git", &["log", "-1", "--format=%s"])?,
            changes: changes(&status, own),
            at: SystemClock.now(),
            machine: machine::describe(scratch)?,
            rustc: asked("rustc", &["--version"]).unwrap_or_else(|_| "unknown".to_owned()),
            load: load.split_whitespace().take(3).collect::<Vec<_>>().join(" "),
            quick,
            optimised: !cfg!(debug_assertions),
        })
    }

    /// Of the file, without its ending.
    pub(crate) fn name(&self) -> String {
        let commit = &self.commit[..self.commit.len().min(7)];
        let changes = if self.changes.is_empty() { "" } else { "+changes" };
        let quick = if self.quick { "-quick" } else { "" };
        format!("{}-{commit}{changes}{quick}", self.at.day())
    }

    pub(crate) fn text(&self) -> String {
        let mut lines = vec![
            format!("commit   {} {}", self.commit, self.title),
            format!("date     {}", self.at),
            format!("machine  {}", self.machine),
            format!("rustc    {}", self.rustc),
            format!("load     {} (over 1, 5 and 15 minutes, before the start)", self.load),
        ];
        if !self.changes.is_empty() {
            lines.push(format!("CHANGES  not as the commit has them: {}", self.changes.join(", ")));
        }
        if self.quick {
            lines.push("QUICK    shows that everything runs, not how fast".to_owned());
        }
        if !self.optimised {
            lines.push("DEBUG    built without optimisation: no figure of this means anything".to_owned());
        }
        lines.join("\n") + "\n"
    }
}

/// Of `git status --porcelain`, but for what is in the directory `own`.
fn changes(status: &str, own: Option<&str>) -> Vec<String> {
    let is_own = |path: &str| {
        own.is_some_and(|own| path.strip_prefix(own).is_some_and(|within| within.starts_with('/')))
    };
    let paths = status.lines().filter_map(|line| line.get(3..));
    paths.filter(|path| !is_own(path)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            commit: "a53463f0123456789".to_owned(),
            title: "Refuse a second order of the same cart".to_owned(),
            changes: Vec::new(),
            at: Timestamp::parse("2026-11-18T00:30:00Z").unwrap(),
            machine: "2 cores".to_owned(),
            rustc: "rustc 1.95.0".to_owned(),
            load: "0.10 0.20 0.30".to_owned(),
            quick: false,
            optimised: true,
        }
    }

    #[test]
    fn the_name_is_day_and_commit_and_what_is_wrong_with_it() {
        assert_eq!(header().name(), "2026-11-18-a53463f");
        let changed = Header { changes: vec!["Makefile".to_owned()], quick: true, ..header() };
        assert_eq!(changed.name(), "2026-11-18-a53463f+changes-quick");
        assert!(changed.text().contains("CHANGES  not as the commit has them: Makefile\n"));
        assert!(!header().text().contains("CHANGES") && !header().text().contains("DEBUG"));
    }

    #[test]
    fn records_are_no_changes() {
        let status = " M Makefile\n?? docs/benchmarks/2026-11-18-a53463f.txt\n M docs/benchmarks.md\n";
        assert_eq!(changes(status, Some("docs/benchmarks")), ["Makefile", "docs/benchmarks.md"]);
        assert_eq!(changes(status, None).len(), 3);
        assert!(changes("", None).is_empty());
    }
}
