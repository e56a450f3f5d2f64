//! One replica set for all tests of this binary, and a database of its own for each of them.

use std::{
    sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use mobimir_core::policy::Entity;
use mobimir_lab::{Mongo, MongoSpec};
use mobimir_mongodb::{Deployment, MongoConfig, schema};
use mobimir_testkit::conformance::{CASES_VARIABLE, ConformanceOptions};

static SET: LazyLock<Mongo> =
    LazyLock::new(|| Mongo::ephemeral(&MongoSpec::for_tests(3)).expect("a replica set can be started"));

/// Tests that leave the set whole run side by side; one that breaks it runs alone.
static PEACE: RwLock<()> = RwLock::new(());

pub(crate) struct Shared {
    pub(crate) set: &'static Mongo,
    _peace: RwLockReadGuard<'static, ()>,
}

pub(crate) struct Alone {
    pub(crate) set: &'static Mongo,
    _peace: RwLockWriteGuard<'static, ()>,
}

pub(crate) fn shared() -> Shared {
    let peace = PEACE.read().unwrap_or_else(PoisonError::into_inner);
    Shared { set: &SET, _peace: peace }
}

pub(crate) fn alone() -> Alone {
    let peace = PEACE.write().unwrap_or_else(PoisonError::into_inner);
    Alone { set: &SET, _peace: peace }
}

/// A database of its own with the collections of some entities.
pub(crate) async fn fresh(set: &Mongo, entities: &[Entity]) -> Arc<Deployment> {
    let random = mobimir_core::secret::random_bytes::<6>();
    let database = format!("t{}", random.map(|byte| format!("{byte:02x}")).concat());
    let deployment = connect(set, &database).await;
    for entity in entities {
        schema::apply(&deployment, &schema::collections(*entity)).await.expect("collections can be made");
    }
    deployment
}

/// One more instance on the same database.
pub(crate) async fn connect(set: &Mongo, database: &str) -> Arc<Deployment> {
    let config = MongoConfig {
        uri: set.uri(),
        database: database.to_owned(),
        // A machine that also builds can be slow.
        connect_timeout: Duration::from_secs(20),
        timeout: Duration::from_secs(20),
    };
    Deployment::connect(config).await.expect("the set can be reached")
}

/// A set answers in milliseconds, not microseconds: fewer cases, unless somebody asks for more.
pub(crate) fn options(cases: u32) -> ConformanceOptions {
    let asked_for = std::env::var_os(CASES_VARIABLE).map(|_| ConformanceOptions::from_env().cases);
    ConformanceOptions {
        cases: asked_for.unwrap_or(cases),
        steps: 40,
        rounds: 1,
        ..ConformanceOptions::default()
    }
}

/// A runtime of a test's own, for tests that hold the set while they wait.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime can be started");
    runtime.block_on(test)
}
