//! What a lab writes down, and where.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{LabError, error::Trying};

/// Stands in every directory that may be removed with all that is in it.
const CLAIM: &str = "made-by-mobimir-lab";

/// Makes a directory of the lab's own.
pub(crate) fn claim(root: &Path) -> Result<(), LabError> {
    fs::create_dir_all(root).trying(|| format!("cannot make {}", root.display()))?;
    let claim = root.join(CLAIM);
    fs::write(&claim, "").trying(|| format!("cannot write {}", claim.display()))
}

/// The directory was made by a lab, even if that did not come far, and may be removed.
pub(crate) fn is_claimed(root: &Path) -> bool {
    root.join(CLAIM).exists()
}

/// Whole or not at all.
pub(crate) fn save(path: &Path, state: &impl Serialize) -> Result<(), LabError> {
    let text = serde_json::to_string_pretty(state)
        .map_err(|source| LabError::State { path: path.to_owned(), source })?;
    let partial = path.with_extension("partial");
    fs::write(&partial, text)
        .and_then(|()| fs::rename(&partial, path))
        .trying(|| format!("cannot write {}", path.display()))
}

pub(crate) fn load<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, LabError> {
    let text = fs::read_to_string(path).trying(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).map_err(|source| LabError::State { path: path.to_owned(), source })
}

/// A new directory that nobody else looks into.
pub(crate) fn temporary_dir() -> Result<PathBuf, LabError> {
    let parent = std::env::temp_dir();
    let parent = parent.canonicalize().trying(|| format!("cannot enter {}", parent.display()))?;
    let process = std::process::id();
    for number in 0_u32.. {
        let dir = parent.join(format!("mobimir-lab-{process}-{number}"));
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            done => return done.map(|()| dir.clone()).trying(|| format!("cannot make {}", dir.display())),
        }
    }
    Ok(parent)
}
