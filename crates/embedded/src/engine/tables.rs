//! The engine's keyspaces.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, Slice, Snapshot};
use mobimir_core::ports::StoreResult;

use super::Key;
use crate::error::read_failed;

/// One keyspace an entity; its tables share it, each under its own first byte ([`super::Table`]).
///
/// A keyspace a table would mean twenty memtables that each keep the journal from being cut, and one for all would
/// make every listing of the catalogue pass through the traffic of the carts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    Catalogue = 0,
    Checkouts = 1,
    Users = 2,
    Carts = 3,
    Orders = 4,
    Sessions = 5,
}

impl Space {
    pub const ALL: [Space; 6] =
        [Self::Catalogue, Self::Checkouts, Self::Users, Self::Carts, Self::Orders, Self::Sessions];

    fn name(self) -> &'static str {
        match self {
            Self::Catalogue => "catalogue",
            Self::Checkouts => "checkouts",
            Self::Users => "users",
            Self::Carts => "carts",
            Self::Orders => "orders",
            Self::Sessions => "sessions",
        }
    }

    /// As it is written to a backup.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.number() == number)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TablesOptions {
    pub(crate) block_cache_bytes: u64,
    pub(crate) memtable_bytes: u64,
}

impl Default for TablesOptions {
    fn default() -> Self {
        Self { block_cache_bytes: 32 * MIB, memtable_bytes: 8 * MIB }
    }
}

const MIB: u64 = 1024 * 1024;

/// fjall's lower limit. Past it, the keyspaces that hold old journals back are flushed, so that opening after a
/// crash never reads much more than this.
const JOURNAL_BYTES_MAX: u64 = 64 * MIB;

/// Two, because with one a flush, which writes may have to wait for, would queue up behind compactions.
const WORKER_THREADS: usize = 2;

#[derive(Clone)]
pub(crate) struct Tables {
    // Before `database`, so that handles are gone when the database closes.
    keyspaces: [Keyspace; Space::ALL.len()],
    database: Database,
}

impl Tables {
    pub(crate) fn open(dir: &Path, options: &TablesOptions) -> Result<Self, fjall::Error> {
        let database = Database::builder(dir)
            .cache_size(options.block_cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .worker_threads(WORKER_THREADS)
            .open()?;
        let memtable_bytes = options.memtable_bytes;
        let open = |space: Space| {
            database
                .keyspace(space.name(), || KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes))
        };
        let keyspaces = [
            open(Space::Catalogue)?,
            open(Space::Checkouts)?,
            open(Space::Users)?,
            open(Space::Carts)?,
            open(Space::Orders)?,
            open(Space::Sessions)?,
        ];
        Ok(Self { keyspaces, database })
    }

    pub(crate) fn keyspace(&self, space: Space) -> &Keyspace {
        &self.keyspaces[space as usize]
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// What was committed last under a key.
    pub(crate) fn get(&self, key: &Key) -> StoreResult<Option<Slice>> {
        self.keyspace(key.space).get(&key.bytes).map_err(read_failed)
    }

    /// All tables as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.database.snapshot()
    }
}
