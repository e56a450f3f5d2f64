//! The embedded store keeps what every store promises.
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::atomic::{AtomicU32, Ordering};

use mobimir_core::ports::Stores;
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

    async fn fresh(&self) -> Stores {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let dir = self.root.path().join(number.to_string());
        EmbeddedStore::open(&dir, &Options::default()).unwrap().stores()
    }
}

macro_rules! conforms {
    ($($area:ident),+) => {$(
        #[test]
        fn $area() {
            let directories = Directories::new();
            conformance::$area(&|| directories.fresh(), ConformanceOptions::from_env());
        }
    )+};
}

conforms!(products, users, carts, orders, sessions);
