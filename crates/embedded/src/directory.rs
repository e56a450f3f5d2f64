//! The data directory: whose it is, which version, and that only one process works on it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// What the `VERSION` file of a directory that this code can read says.
pub const VERSION_TEXT: &str = "mobimir embedded 1";

const VERSION_FILE: &str = "VERSION";
/// `VERSION` while it is being written.
const VERSION_DRAFT: &str = "VERSION.tmp";
const LOCK_FILE: &str = "LOCK";
const TABLES_DIR: &str = "tables";
/// More than the process id in a lock file or any version text takes.
const SMALL_FILE_BYTES_MAX: u64 = 256;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(
        "the data directory {} is in use{}: stop that process, or name another directory",
        dir.display(),
        by.map(|pid| format!(" by process {pid}")).unwrap_or_default()
    )]
    InUse { dir: PathBuf, by: Option<u32> },
    #[error(
        "the data directory {} was written by another version: expected {VERSION_TEXT:?}, found {found:?}; open it with that version, back it up there and restore it here",
        dir.display()
    )]
    OtherVersion { dir: PathBuf, found: String },
    #[error(
        "{} is not empty and holds no mobimir data: name an empty directory, or one that does not exist yet",
        dir.display()
    )]
    NotOurs { dir: PathBuf },
    #[error("the data directory {} cannot be used: check that it exists and may be written", dir.display())]
    Io {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the tables in {} cannot be opened: check the disk, or restore a backup", dir.display())]
    Engine {
        dir: PathBuf,
        #[source]
        source: fjall::Error,
    },
    #[error("the committer thread cannot be started")]
    Thread(#[source] io::Error),
}

/// Locks the directory for this process, and makes it if it does not exist. It stays locked while the file is open.
pub(crate) fn claim(dir: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { dir: dir.into(), source };
    // Not even a lock file is put where something else lives.
    if !is_ours_or_empty(dir).map_err(failed)? {
        return Err(OpenError::NotOurs { dir: dir.into() });
    }
    // Password hashes and tokens' hashes are in it.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let lock = lock(dir)?;
    match read_small(&dir.join(VERSION_FILE)) {
        Ok(found) if found.trim_end() == VERSION_TEXT => {}
        Ok(found) => return Err(OpenError::OtherVersion { dir: dir.into(), found: found.trim_end().into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_version(dir).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    }
    Ok(lock)
}

pub(crate) fn tables_dir(dir: &Path) -> PathBuf {
    dir.join(TABLES_DIR)
}

/// Whether nothing is there: no directory, or an empty one.
pub(crate) fn is_vacant(dir: &Path) -> io::Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The directory that `path` lies in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn is_ours_or_empty(dir: &Path) -> io::Result<bool> {
    if dir.join(VERSION_FILE).try_exists()? {
        return Ok(true);
    }
    match fs::read_dir(dir) {
        Ok(entries) => {
            // What is left when the process ended between making the directory and naming its version.
            for entry in entries {
                let name = entry?.file_name();
                if name != LOCK_FILE && name != VERSION_DRAFT {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { dir: dir.into(), source };
    let path = dir.join(LOCK_FILE);
    let mut file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let by = read_small(&path).ok().and_then(|text| text.trim().parse().ok());
            return Err(OpenError::InUse { dir: dir.into(), by });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(file)
}

/// Only a directory whose version is on disk, under its final name, is ours: a crash on the way leaves one that
/// counts as empty.
fn write_version(dir: &Path) -> io::Result<()> {
    let draft = dir.join(VERSION_DRAFT);
    let mut file = File::create(&draft)?;
    writeln!(file, "{VERSION_TEXT}")?;
    file.sync_all()?;
    fs::rename(&draft, dir.join(VERSION_FILE))?;
    sync_dir(dir)?;
    sync_dir(parent(dir))
}

fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(SMALL_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
