//! The embedded store keeps what every store promises.
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use mobimir_core::{moving::Movables, notes::NoteStore, ports::Stores};
use mobimir_embedded::{EmbeddedStore, Options};
use mobimir_testkit::conformance::{self, ConformanceOptions};
use tempfile::TempDir;

/// Data directories that go away when the test is over.
struct Directories {
    root: TempDir,
    made: AtomicU32,
}

impl Directories {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), made: AtomicU32::new(0) }
    }

    fn open(&self) -> EmbeddedStore {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let dir = self.root.path().join(number.to_string());
        EmbeddedStore::open(&dir, &Options::default()).unwrap()
    }

    async fn stores(&self) -> Stores {
        self.open().stores()
    }

    async fn notes(&self) -> Arc<dyn NoteStore> {
        Arc::new(self.open())
    }

    async fn movables(&self) -> Movables {
        self.open().movables()
    }
}

macro_rules! conforms {
    ($fresh:ident: $($area:ident),+) => {$(
        #[test]
        fn $area() {
            let directories = Directories::new();
            conformance::$area(&|| directories.$fresh(), ConformanceOptions::from_env());
        }
    )+};
}

conforms!(stores: products, users, carts, orders, sessions);
conforms!(notes: notes);
conforms!(movables: moving_orders, moving_carts, moving_sessions);
