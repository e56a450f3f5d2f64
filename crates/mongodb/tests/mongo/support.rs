//! One replica set for all tests, and a database of its own for each of them: it takes milliseconds to make.

use std::{
    sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::{Duration, Instant},
};

use mobimir_core::{policy::Entity, ports::StoreError};
use mobimir_lab::Mongo;
use mobimir_mongodb::{Deployment, MongoConfig, schema};
use mobimir_testkit::conformance::{CASES_VARIABLE, ConformanceOptions};
use mongodb::bson::{Document, doc};

static SET: LazyLock<Mongo> = LazyLock::new(|| Mongo::shared().expect("a replica set can be started"));

/// How long to wait for what is certain to come, on a machine that does much else. Elections and starts are part of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Tests that leave the set whole run side by side; one that breaks it runs alone.
static PEACE: RwLock<()> = RwLock::new(());

pub(crate) struct Shared {
    pub(crate) mongo: &'static Mongo,
    _peace: RwLockReadGuard<'static, ()>,
}

pub(crate) struct Alone {
    pub(crate) mongo: &'static Mongo,
    _peace: RwLockWriteGuard<'static, ()>,
}

pub(crate) fn shared() -> Shared {
    let peace = PEACE.read().unwrap_or_else(PoisonError::into_inner);
    Shared { mongo: &SET, _peace: peace }
}

pub(crate) fn alone() -> Alone {
    let peace = PEACE.write().unwrap_or_else(PoisonError::into_inner);
    Alone { mongo: &SET, _peace: peace }
}

/// A new database with the collections of an entity. It is dropped with this.
pub(crate) struct Fresh {
    pub(crate) deployment: Arc<Deployment>,
    mongo: &'static Mongo,
    database: String,
}

pub(crate) async fn fresh(mongo: &'static Mongo, entities: &[Entity]) -> Fresh {
    let random = mobimir_core::secret::random_bytes::<4>();
    let database = format!("t{}", random.map(|byte| format!("{byte:02x}")).concat());
    let deployment = connect(mongo, &database).await;
    for entity in entities {
        // What is there stays. On a machine that also builds another may be elected meanwhile.
        let started = Instant::now();
        while let Err(error) = schema::apply(&deployment, &schema::collections(*entity)).await {
            assert!(started.elapsed() < PATIENCE, "its collections: {error}");
        }
    }
    Fresh { deployment, mongo, database }
}

async fn connect(mongo: &Mongo, database: &str) -> Arc<Deployment> {
    // A machine that also builds can be slow.
    let patient = Duration::from_secs(60);
    let config = MongoConfig { connect_timeout: patient, timeout: patient, ..MongoConfig::default() };
    connect_with(mongo, database, config).await
}

async fn connect_with(mongo: &Mongo, database: &str, config: MongoConfig) -> Arc<Deployment> {
    let config = MongoConfig { uri: mongo.uri(), database: database.to_owned(), ..config };
    let started = Instant::now();
    loop {
        match Deployment::connect(config.clone()).await {
            Ok(deployment) => return deployment,
            // One that waits for nobody may miss the primary at first.
            Err(error) => assert!(started.elapsed() < PATIENCE, "the set cannot be reached: {error}"),
        }
    }
}

impl Fresh {
    /// One more instance on the same database.
    pub(crate) async fn another(&self) -> Arc<Deployment> {
        connect(self.mongo, &self.database).await
    }

    /// The same, with other limits of time.
    pub(crate) async fn another_with(&self, config: MongoConfig) -> Arc<Deployment> {
        connect_with(self.mongo, &self.database, config).await
    }

    /// How many documents a collection really has.
    pub(crate) async fn count(&self, collection: &str) -> u64 {
        let documents = self.deployment.database().collection::<Document>(collection);
        documents.count_documents(doc! {}).await.expect("they can be counted")
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // What cannot be dropped goes with the whole set.
        if let Ok(primary) = self.mongo.primary() {
            let _ = self.mongo.run_on(primary, &self.database, doc! { "dropDatabase": 1 });
        }
    }
}

/// Databases that are needed until a suite has ended.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Fresh>>);

impl Kept {
    pub(crate) fn keep(&self, fresh: Fresh) -> Arc<Deployment> {
        let deployment = fresh.deployment.clone();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fresh);
        deployment
    }
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

/// Waits for something that others do in the background.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Asks again until there is an answer.
pub(crate) async fn answered<T>(ask: impl AsyncFn() -> Result<T, StoreError>) -> T {
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(started.elapsed() < PATIENCE, "no answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the server has looked some times for what it has to remove.
pub(crate) async fn removal_rounds(mongo: &Mongo, rounds: i64) {
    let passed = || {
        let primary = mongo.wait_primary().expect("a primary");
        let status = mongo.run_on(primary, "admin", doc! { "serverStatus": 1 }).expect("its status");
        let ttl = status.get_document("metrics").and_then(|metrics| metrics.get_document("ttl")).unwrap();
        let passes = ttl.get("passes").and_then(|passes| passes.as_i64().or(passes.as_i32().map(i64::from)));
        (primary, passes.unwrap())
    };
    let (mut primary, mut before) = passed();
    until("the server looks for what has expired", async || {
        let (who, passes) = passed();
        // Another primary counts its own.
        if who != primary {
            (primary, before) = (who, passes);
        }
        passes >= before + rounds
    })
    .await;
}
