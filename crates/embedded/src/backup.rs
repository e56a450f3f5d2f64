//! Backups: a consistent copy of a running store in one file, and a data directory made from one.

mod dump;

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use fjall::{PersistMode, Readable};
use thiserror::Error;

use crate::{
    EmbeddedStore, Options,
    directory::{self, OpenError},
    engine::{Space, Tables, TablesOptions},
};

pub use dump::DumpError;
use dump::{DumpReader, DumpWriter};

/// The file of a backup, in the directory that was named for it.
pub const DUMP_FILE: &str = "mobimir.dump";
/// The same while it is being written.
const DUMP_DRAFT: &str = "mobimir.dump.tmp";

/// Progress is told about every so many records.
const PROGRESS_RECORDS: u64 = 1_000;

/// Keys that are written to a restored store at once.
const RESTORE_BATCH_RECORDS: usize = 1_000;

/// How far a backup or a restore has come; at the end, how much there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub records: u64,
    pub bytes: u64,
}

#[derive(Debug, Error)]
pub enum BackupError {
    #[error("{} is not empty: name an empty directory for the backup, or one that does not exist yet", dir.display())]
    NotEmpty { dir: PathBuf },
    #[error("the backup cannot be written to {}", dir.display())]
    Io {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the backup cannot be written")]
    Write(#[source] io::Error),
    #[error("the store cannot be read for the backup")]
    Read(#[source] fjall::Error),
}

#[derive(Debug, Error)]
pub enum RestoreError {
    #[error("{} is not empty: a backup is restored to an empty directory, or one that does not exist yet", dir.display())]
    NotEmpty { dir: PathBuf },
    #[error("the backup {} cannot be used", file.display())]
    Dump {
        file: PathBuf,
        #[source]
        source: DumpError,
    },
    #[error("the restored data cannot be written to {}", dir.display())]
    Io {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the restored data directory cannot be made")]
    Open(#[source] OpenError),
    #[error("the restored data cannot be written")]
    Write(#[source] fjall::Error),
}

impl EmbeddedStore {
    /// Writes everything, as it is at one moment, to a file in the new or empty directory `dir`, while reads and
    /// writes go on. Blocks: not for a runtime's thread. The file gets its name only when it is complete.
    pub fn backup(&self, dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Progress, BackupError> {
        let failed = |source| BackupError::Io { dir: dir.into(), source };
        if !directory::is_vacant(dir).map_err(failed)? {
            return Err(BackupError::NotEmpty { dir: dir.into() });
        }
        fs::create_dir_all(dir).map_err(failed)?;
        let draft = dir.join(DUMP_DRAFT);
        let written = self.write_dump(dir, &draft, progress);
        if written.is_err() {
            // So that the directory is empty for the next try; what went wrong first is what counts.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    fn write_dump(
        &self,
        dir: &Path,
        draft: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Progress, BackupError> {
        let failed = |source| BackupError::Io { dir: dir.into(), source };
        let mut file = BufWriter::new(File::create_new(draft).map_err(failed)?);
        let total = self.dump(&mut file, progress)?;
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        install(dir, draft, &file).map_err(failed)?;
        progress(total);
        Ok(total)
    }

    /// Writes everything, as it is at one moment, to `out`. Blocks.
    pub fn dump(
        &self,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Progress, BackupError> {
        let tables = &self.shared().tables;
        let snapshot = tables.snapshot();
        let mut dump = DumpWriter::start(out).map_err(BackupError::Write)?;
        for space in Space::ALL {
            for row in snapshot.iter(tables.keyspace(space)) {
                let (key, value) = row.into_inner().map_err(BackupError::Read)?;
                dump.record(space, &key, &value).map_err(BackupError::Write)?;
                if dump.progress().records % PROGRESS_RECORDS == 0 {
                    progress(dump.progress());
                }
            }
        }
        let (_, total) = dump.finish().map_err(BackupError::Write)?;
        Ok(total)
    }
}

/// Gives a finished dump its name.
fn install(dir: &Path, draft: &Path, file: &File) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(draft, dir.join(DUMP_FILE))?;
    directory::sync_dir(dir)?;
    directory::sync_dir(directory::parent(dir))
}

/// A backup that comes from a running shop, piece by piece. Dropped before it is finished, it leaves nothing.
pub struct IncomingDump {
    dir: PathBuf,
    draft: PathBuf,
    file: Option<BufWriter<File>>,
}

impl IncomingDump {
    /// In the new or empty directory `dir`.
    pub fn create(dir: &Path) -> Result<Self, BackupError> {
        let failed = |source| BackupError::Io { dir: dir.into(), source };
        if !directory::is_vacant(dir).map_err(failed)? {
            return Err(BackupError::NotEmpty { dir: dir.into() });
        }
        fs::create_dir_all(dir).map_err(failed)?;
        let draft = dir.join(DUMP_DRAFT);
        let file = BufWriter::new(File::create_new(&draft).map_err(failed)?);
        Ok(Self { dir: dir.into(), draft, file: Some(file) })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        let dir = &self.dir;
        let file = self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes));
        file.map_err(|source| BackupError::Io { dir: dir.clone(), source })
    }

    /// Checks that all of it came, and gives it its name. Blocks.
    pub fn finish(mut self) -> Result<Progress, RestoreError> {
        let dir = self.dir.clone();
        let failed = |source| RestoreError::Io { dir: dir.clone(), source };
        if let Some(file) = self.file.take() {
            let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
            let total = read_dump(&self.draft, |_, _, _, _| Ok(()))?;
            install(&self.dir, &self.draft, &file).map_err(failed)?;
            return Ok(total);
        }
        Ok(Progress::default())
    }
}

impl Drop for IncomingDump {
    fn drop(&mut self) {
        // Gone already, if it was finished.
        let _ = fs::remove_file(&self.draft);
    }
}

/// Makes the new data directory `data_dir` from the backup in `backup_dir`. Blocks. The backup is checked as a whole
/// first; then the directory is built beside its place and gets its name only when it is complete.
pub fn restore(
    backup_dir: &Path,
    data_dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Progress, RestoreError> {
    let failed = |source| RestoreError::Io { dir: data_dir.into(), source };
    if !directory::is_vacant(data_dir).map_err(failed)? {
        return Err(RestoreError::NotEmpty { dir: data_dir.into() });
    }
    let file = backup_dir.join(DUMP_FILE);
    let total = read_dump(&file, |_, _, _, _| Ok(()))?;

    let parent = directory::parent(data_dir);
    fs::create_dir_all(parent).map_err(failed)?;
    let building = building_dir(data_dir);
    // Left by a restore that did not end; one that still runs holds the lock of it.
    if building.try_exists().map_err(failed)? {
        directory::claim(&building).map_err(RestoreError::Open)?;
        fs::remove_dir_all(&building).map_err(failed)?;
    }
    let built = build(&file, &building, progress);
    if built.is_err() {
        let _ = fs::remove_dir_all(&building);
    }
    built?;
    fs::rename(&building, data_dir).map_err(failed)?;
    directory::sync_dir(parent).map_err(failed)?;
    progress(total);
    Ok(total)
}

fn building_dir(data_dir: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(data_dir.file_name().unwrap_or_default());
    name.push(".restoring");
    data_dir.with_file_name(name)
}

fn build(file: &Path, dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(), RestoreError> {
    let _lock = directory::claim(dir).map_err(RestoreError::Open)?;
    let options = Options::default();
    let tables_options = TablesOptions {
        block_cache_bytes: options.block_cache_bytes,
        memtable_bytes: options.memtable_bytes,
    };
    let tables = Tables::open(&directory::tables_dir(dir), &tables_options).map_err(RestoreError::Write)?;
    let mut batch = tables.database().batch();
    read_dump(file, |space, key, value, so_far| {
        batch.insert(tables.keyspace(space), key, value);
        if batch.len() >= RESTORE_BATCH_RECORDS {
            std::mem::replace(&mut batch, tables.database().batch()).commit().map_err(RestoreError::Write)?;
            progress(so_far);
        }
        Ok(())
    })?;
    batch.commit().map_err(RestoreError::Write)?;
    tables.database().persist(PersistMode::SyncAll).map_err(RestoreError::Write)
}

/// Reads a whole dump, and fails if it is not as it was written.
fn read_dump(
    file: &Path,
    mut record: impl FnMut(Space, &[u8], &[u8], Progress) -> Result<(), RestoreError>,
) -> Result<Progress, RestoreError> {
    let bad = |source| RestoreError::Dump { file: file.into(), source };
    let opened = File::open(file).map_err(|error| bad(DumpError::Io(error)))?;
    let mut dump = DumpReader::start(BufReader::new(opened)).map_err(bad)?;
    while let Some((space, key, value)) = dump.next().map_err(bad)? {
        record(space, &key, &value, dump.progress())?;
    }
    Ok(dump.progress())
}
