//! How the commands of this program find a shop that is running on a data directory: a file in it, readable by its
//! owner alone, with the shop's address and a token for this one run.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(crate) struct Control {
    pub(crate) address: String,
    pub(crate) token: String,
}

fn path(data: &Path) -> PathBuf {
    data.join("control.toml")
}

impl Control {
    pub(crate) fn write(&self, data: &Path) -> Result<()> {
        let path = path(data);
        let _ = fs::remove_file(&path);
        let text = toml::to_string(self)?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.write_all(text.as_bytes())?;
        Ok(())
    }

    pub(crate) fn read(data: &Path) -> Result<Self> {
        let path = path(data);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not what a running shop writes", path.display()))
    }

    pub(crate) fn remove(data: &Path) {
        let _ = fs::remove_file(path(data));
    }
}
