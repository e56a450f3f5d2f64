//! RD-1: no read is older than its budget, and everyone reads their own writes; with members that lag, hang, die and come
//! back, and while the primary is lost.

#![expect(clippy::print_stdout, reason = "what was measured is told to whoever runs the tests")]

mod budgets;
mod failover;
mod oracle;
mod own_writes;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mobimir_core::{
    id::{self, UserId},
    invariant::{Invariant, InvariantCounters},
    policy::{Entity, Period, ReadOperation, Reads},
    time::{Timestamp, Version},
    user::{Email, Profile, User},
};
use mobimir_lab::Mongo;
use mobimir_mongodb::{Deployment, MongoConfig, schema};

use crate::support::{self, PATIENCE};

/// The operations that the tests read under, with their budgets in seconds.
const BUDGETS: [(ReadOperation, i64); 4] = [
    (ReadOperation::ProductPage, 1),
    (ReadOperation::OrderCard, 3),
    (ReadOperation::OrderStatus, 10),
    (ReadOperation::Analytics, 100),
];

/// Three members that all vote, for tests that one at a time may do with it what they like. It is the value that all tests
/// of this process have: another one would not know which members were started again.
fn voting_set() -> (&'static Mongo, support::Alone) {
    let alone = support::alone();
    (alone.mongo, alone)
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime can be started").block_on(test)
}

fn reads() -> Reads {
    BUDGETS.into_iter().fold(Reads::default(), |reads, (operation, budget_s)| {
        reads.with(operation, Some(Period::seconds(budget_s)))
    })
}

/// An instance of the shop, as far as MongoDB can tell.
async fn instance(mongo: &Mongo, database: &str) -> Arc<Deployment> {
    let config = MongoConfig {
        uri: mongo.uri(),
        database: database.to_owned(),
        // A machine that also builds can be slow.
        connect_timeout: Duration::from_secs(60),
        timeout: Duration::from_secs(60),
        reads: reads(),
        ..MongoConfig::default()
    };
    let deployment = Deployment::connect(config).await.expect("the set can be reached");
    schema::apply(&deployment, &schema::collections(Entity::Users)).await.expect("its collections");
    deployment
}

fn new_database() -> String {
    let random = mobimir_core::secret::random_bytes::<6>();
    format!("t{}", random.map(|byte| format!("{byte:02x}")).concat())
}

/// A document with a number in it: the version of a user.
fn numbered(number: u64) -> User {
    let at = Timestamp::from_millis(1_700_000_000_000);
    let user_id = UserId(id::fresh(at));
    User {
        id: user_id,
        email: Email::parse(&format!("{user_id}@example.ru")).expect("an address"),
        password_hash: "none".to_owned(),
        profile: Profile::default(),
        created_at: at,
        updated_at: at,
        version: Version(number),
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many secondaries are known to be at most so far behind.
fn close_secondaries(deployment: &Deployment, within: Duration) -> usize {
    deployment.members().iter().filter(|member| member.lag.is_some_and(|lag| lag <= within)).count()
}

fn assert_kept(invariants: &InvariantCounters) {
    assert_eq!(invariants.violations(Invariant::Rd1), 0, "RD-1 was seen broken");
}
