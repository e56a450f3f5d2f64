//! Everyone reads their own writes, through whichever instance.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mobimir_core::{
    id::UserId,
    policy::ReadOperation,
    ports::UserStore,
    reading::{self, Position},
    time::Version,
    user::User,
};
use mobimir_mongodb::{Deployment, MongoUsers};

use super::{assert_kept, block_on, close_secondaries, instance, new_database, numbered, until, voting_set};
use crate::support::PATIENCE;

/// How many reads of own writes.
const READS_VARIABLE: &str = "MOBIMIR_OWN_WRITES_READS";
const READS_DEFAULT: u64 = 4_000;
const CUSTOMERS: u64 = 64;
const READS_PER_WRITE: u64 = 10;
/// Of these, the last ones come when a secondary has what was written.
const LATE_READS: u64 = 2;
/// So long they wait for that.
const LATE_AFTER_MAX: Duration = Duration::from_secs(30);
/// A member is stopped and goes on so often during the test.
const LAG_PERIOD: Duration = Duration::from_millis(700);

#[derive(Default)]
struct Found {
    reads: AtomicU64,
    violations: AtomicU64,
}

#[test]
fn everyone_reads_their_own_writes_through_any_instance() {
    let reads =
        std::env::var(READS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(READS_DEFAULT);
    let (mongo, _turn) = voting_set();
    mongo.wait_ready().expect("the set is whole");
    block_on(async {
        let database = new_database();
        let instances = [instance(mongo, &database).await, instance(mongo, &database).await];
        for deployment in &instances {
            until("both secondaries are known", || {
                close_secondaries(deployment, Duration::from_secs(1)) == 2
            })
            .await;
        }
        let found = Arc::new(Found::default());
        let customers = (0..CUSTOMERS)
            .map(|seed| tokio::spawn(customer(instances.clone(), seed, reads / CUSTOMERS, found.clone())));
        let customers: Vec<_> = customers.collect();
        // One secondary falls behind and catches up, again and again.
        let mut lags = 0;
        while !customers.iter().all(|customer| customer.is_finished()) {
            // A busy machine may elect another primary, which has nothing to apply.
            if let Ok(laggard) = mongo.secondary() {
                lags += usize::from(mongo.stop_applying(laggard).is_ok());
                tokio::time::sleep(LAG_PERIOD).await;
                mongo.resume_applying(laggard).expect("it applies again");
            }
            tokio::time::sleep(LAG_PERIOD).await;
        }
        for customer in customers {
            customer.await.expect("a customer ends well");
        }
        let (done, violations) =
            (found.reads.load(Ordering::Relaxed), found.violations.load(Ordering::Relaxed));
        let served = instances.iter().flat_map(|deployment| deployment.served());
        let from_secondaries: u64 = served.map(|served| served.from_secondaries).sum();
        println!(
            "{done} reads of own writes, {from_secondaries} from secondaries, {violations} older than the write"
        );
        assert!(lags > 0, "nobody fell behind");
        assert!(done >= reads * 9 / 10);
        assert_eq!(violations, 0);
        assert!(from_secondaries > done / 10, "secondaries were hardly used: {from_secondaries} of {done}");
        instances.iter().for_each(|deployment| assert_kept(&deployment.config().invariants));
    });
}

#[test]
fn a_position_of_another_history_keeps_nobody_waiting() {
    let (mongo, _turn) = voting_set();
    mongo.wait_ready().expect("the set is whole");
    block_on(async {
        let deployment = instance(mongo, &new_database()).await;
        let users = MongoUsers::new(deployment.clone());
        let user = numbered(1);
        assert!(users.insert(user.clone()).await.expect("it is written"));
        let written = deployment.written();
        for ahead in [Position(written.0 + (3_600 << 32)), Position(u64::MAX >> 1), Position(u64::MAX)] {
            // Whoever waits for it is told in the end that nothing came.
            let read = reading::of(ReadOperation::Analytics, users.get(user.id));
            let shown = reading::after(ahead, read).await.expect("the primary is there");
            assert_eq!(shown.map(|shown| shown.id), Some(user.id));
            assert!(deployment.written() < ahead, "what is ahead is not taken over");
        }
    });
}

/// Writes through one instance, then reads through both, bringing along what the write answered.
async fn customer(instances: [Arc<Deployment>; 2], seed: u64, reads: u64, found: Arc<Found>) {
    let stores = instances.clone().map(MongoUsers::new);
    let mut user = numbered(1);
    assert!(stores[0].insert(user.clone()).await.expect("the first is written"));
    let mut done = 0;
    for round in 0.. {
        if done >= reads {
            return;
        }
        let through = usize::from((seed + round).is_multiple_of(2));
        let expected = user.version;
        user.version = Version(expected.0 + 1);
        write(&stores[through], &user, expected).await;
        let position = instances[through].written();
        let written_at = Instant::now();
        for nth in 0..READS_PER_WRITE {
            let reader = usize::from(nth.is_multiple_of(2));
            if nth + LATE_READS >= READS_PER_WRITE {
                wait_for_secondary(&instances[reader], written_at).await;
            }
            let shown = read(&stores[reader], user.id, position).await;
            if shown.is_none_or(|shown| shown.version < user.version) {
                found.violations.fetch_add(1, Ordering::Relaxed);
            }
            found.reads.fetch_add(1, Ordering::Relaxed);
            done += 1;
            // At first only the primary can have it, soon the others too.
            tokio::time::sleep(Duration::from_millis(nth * 15)).await;
        }
    }
}

/// Nobody else writes this: what was not acknowledged is sent again until it is there.
async fn write(users: &MongoUsers, user: &User, expected: Version) {
    let started = Instant::now();
    let mut is_repeated = false;
    loop {
        match users.update(user.clone(), expected).await {
            Ok(is_written) => {
                assert!(is_written || is_repeated, "nobody else writes this");
                return;
            }
            Err(error) => assert!(started.elapsed() < PATIENCE, "no answer: {error}"),
        }
        is_repeated = true;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn read(users: &MongoUsers, id: UserId, position: Position) -> Option<User> {
    let started = Instant::now();
    loop {
        let read = reading::of(ReadOperation::Analytics, users.get(id));
        match reading::after(position, read).await {
            Ok(shown) => return shown,
            Err(error) => assert!(started.elapsed() < PATIENCE, "no answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits, for a while, until a secondary is known to have what was acknowledged by then.
async fn wait_for_secondary(deployment: &Deployment, acknowledged_at: Instant) {
    let started = Instant::now();
    while started.elapsed() < LATE_AFTER_MAX {
        // What is less far behind than that moment has it.
        if close_secondaries(deployment, acknowledged_at.elapsed()) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
