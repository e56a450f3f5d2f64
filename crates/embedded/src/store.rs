//! [`EmbeddedStore`]: a data directory, opened.

use std::{
    fs::File,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use mobimir_core::{
    cart::Owner,
    id::{ProductId, SessionId},
    ports::{StoreResult, Stores},
    product::Product,
    session::Session,
    time::{Clock, SystemClock, Version},
};

use crate::{
    cache::ReadCache,
    carts::{CartState, Waiting},
    catalogue::Pages,
    directory::{self, OpenError},
    engine::{Engine, EngineStats, GroupObserver, Tables, TablesOptions, Txn},
    moving::Marking,
    readers::Readers,
};

/// How much memory may be used for what. The defaults keep a shop with 10,000 products and 100,000 orders well below
/// 150 MB.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decoded products that are kept in memory.
    pub product_cache_items: u64,
    /// Sessions that are kept in memory.
    pub session_cache_items: u64,
    /// Carts that are kept in memory; a big one counts as several.
    pub cart_cache_items: u64,
    /// Blocks of the tables, as they are on disk.
    pub block_cache_bytes: u64,
    /// Written data of one entity that is kept in memory before it becomes a file.
    pub memtable_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        let tables = TablesOptions::default();
        Self {
            product_cache_items: 50_000,
            session_cache_items: 20_000,
            cart_cache_items: 20_000,
            block_cache_bytes: tables.block_cache_bytes,
            memtable_bytes: tables.memtable_bytes,
        }
    }
}

/// All five stores in one directory. Cheap to clone; the directory is closed when the last clone is gone.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
    /// Whether a write leaves a mark on what it changed.
    is_tracked: bool,
}

struct Inner {
    readers: Readers,
    // Before `shared`: the committer ends first, then the tables are closed, then the directory is unlocked.
    engine: Engine,
    shared: Arc<Shared>,
}

/// What reads and writes work on.
pub(crate) struct Shared {
    pub(crate) tables: Tables,
    pub(crate) products: Arc<ReadCache<ProductId, Product>>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) carts: Arc<ReadCache<Owner, CartState>>,
    pub(crate) carts_to_list: Waiting,
    pub(crate) sessions: Arc<ReadCache<SessionId, Session>>,
    /// Numbers that are given out once: to marks, and as revisions of notes.
    pub(crate) seals: AtomicU64,
    #[expect(dead_code, reason = "the lock on the directory lasts as long as the file is open")]
    lock: File,
}

/// Numbers for metrics.
pub struct Stats<'a> {
    pub engine: &'a EngineStats,
    pub queue_depth: usize,
    /// Bytes of all files of the data directory that the engine knows of.
    pub disk_bytes: u64,
    /// Bytes of the blocks that are cached.
    pub block_cache_bytes: u64,
}

impl EmbeddedStore {
    /// Opens the data directory `dir`, or makes it. Blocks; a directory that was not closed cleanly takes a little
    /// longer.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, OpenError> {
        let lock = directory::claim(dir)?;
        let tables_options = TablesOptions {
            block_cache_bytes: options.block_cache_bytes,
            memtable_bytes: options.memtable_bytes,
        };
        let tables = Tables::open(&directory::tables_dir(dir), &tables_options)
            .map_err(|source| OpenError::Engine { dir: dir.into(), source })?;
        let shared = Arc::new(Shared {
            tables: tables.clone(),
            products: Arc::new(ReadCache::new(options.product_cache_items, |_| 1)),
            pages: Arc::new(Pages::new()),
            carts: Arc::new(ReadCache::new(options.cart_cache_items, CartState::weight)),
            carts_to_list: Waiting::default(),
            sessions: Arc::new(ReadCache::new(options.session_cache_items, |_| 1)),
            // Past all that were given out before.
            seals: AtomicU64::new(Version::default().next(SystemClock.now()).0),
            lock,
        });
        let observers: Vec<Arc<dyn GroupObserver>> = vec![
            shared.products.clone(),
            shared.pages.clone(),
            shared.carts.clone(),
            shared.sessions.clone(),
        ];
        let engine = Engine::start(tables, observers).map_err(OpenError::Thread)?;
        let readers = Readers::start().map_err(OpenError::Thread)?;
        Ok(Self { inner: Arc::new(Inner { readers, engine, shared }), is_tracked: false })
    }

    pub fn stores(&self) -> Stores {
        let store = Arc::new(self.clone());
        Stores {
            products: store.clone(),
            users: store.clone(),
            carts: store.clone(),
            orders: store.clone(),
            sessions: store,
        }
    }

    /// The same store; what is written through it is marked as not copied.
    pub(crate) fn tracked(&self) -> Self {
        Self { is_tracked: true, ..self.clone() }
    }

    pub(crate) fn marking(&self) -> Marking {
        Marking::new(self.is_tracked)
    }

    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// False once a write has failed: see [`Engine::healthy`].
    pub fn healthy(&self) -> bool {
        self.inner.engine.healthy()
    }

    pub fn stats(&self) -> Stats<'_> {
        let database = self.inner.shared.tables.database();
        Stats {
            engine: self.inner.engine.stats(),
            queue_depth: self.inner.engine.queue_depth(),
            disk_bytes: database.disk_space().unwrap_or_default(),
            block_cache_bytes: database.cache_size(),
        }
    }

    /// Takes no more writes and finishes those it has taken. Reads go on; the directory is free for another process
    /// when the last clone is gone.
    pub async fn close(&self) {
        self.inner.engine.close().await;
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Runs a write on the committer.
    pub(crate) async fn write<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Shared, &mut Txn<'_>) -> StoreResult<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.inner.shared);
        self.inner.engine.write(move |txn| work(&shared, txn)).await
    }

    /// Runs a short read of what is in memory as a rule. See [`Readers::run_in_place`].
    pub(crate) async fn read_in_place<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> StoreResult<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.inner.shared);
        self.inner.readers.run_in_place(move || work(&shared)).await
    }

    /// Runs a read that may have to wait for the disk, on a thread that may.
    pub(crate) async fn read<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> StoreResult<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.inner.shared);
        self.inner.readers.run(move || work(&shared)).await
    }
}
