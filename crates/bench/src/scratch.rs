//! A place for the data of a run, taken away when it ends.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("mobimir-bench-")
            .tempdir()
            .context("no place for temporary files")?;
        process::remove_with_signals(dir.path());
        Ok(Self(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A new directory in it.
    pub(crate) fn dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.path().join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}
