//! A small process that outlives this one, to end the servers that it leaves behind.

use std::{
    io::Write,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use crate::{LabError, error::Trying, process};

const SCRIPT: &str = include_str!("keeper.sh");

/// Killing takes milliseconds; removing some gigabytes of data may take longer.
const END_BOUND: Duration = Duration::from_secs(60);

/// As long as it lives, the servers below a directory end with this process. Dropping it ends them now.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// The keeper waits for a line, or for the end, of this.
    line: Option<ChildStdin>,
    child: Child,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    Remove,
    Keep,
}

impl AtEnd {
    /// With MOBIMIR_LAB_KEEP set, what a test wrote stays.
    pub(crate) fn of_tests() -> Self {
        if std::env::var_os("MOBIMIR_LAB_KEEP").is_some() { AtEnd::Keep } else { AtEnd::Remove }
    }
}

impl Keeper {
    /// `held` stays open until they are gone, and with it what it stands for.
    pub(crate) fn guard(dir: &Path, at_end: AtEnd, held: Option<OwnedFd>) -> Result<Self, LabError> {
        let at_end = match at_end {
            AtEnd::Remove => "remove",
            AtEnd::Keep => "keep",
        };
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "mobimir-lab-keeper"])
            .arg(dir)
            .arg(at_end)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(held.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null())
            // Ctrl-C in the terminal is for us, and not for the one that cleans up after us.
            .process_group(0)
            .spawn()
            .trying(|| "cannot start sh".to_owned())?;
        let line = child.stdin.take();
        Ok(Keeper { line, child })
    }

    /// Lets the servers live on.
    pub(crate) fn release(mut self) -> Result<(), LabError> {
        if let Some(mut line) = self.line.take() {
            line.write_all(b"release\n").trying(|| "cannot release the servers".to_owned())?;
        }
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.line.take());
        // There is nobody to tell; what is left is found by the next start.
        let _ = process::end_within(&mut self.child, END_BOUND);
    }
}
