//! The primary is lost under load: requests are repeated or refused, and none is lost or done twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mobimir_core::{
    ports::{StoreError, UserStore},
    time::Version,
    user::User,
};
use mobimir_mongodb::{Deployment, MongoUsers};

use super::{
    assert_kept, block_on, instance, new_database, numbered,
    oracle::{Found, Oracle},
    until, voting_set,
};
use crate::support::{PATIENCE, answered};

const WRITERS: usize = 6;
/// With fewer writes nothing is shown.
const WRITES_MIN: u64 = 100;

/// What a writer knows of its own documents.
#[derive(Default)]
struct Book {
    inserted: Vec<User>,
    /// Their outcome is unknown: they may be there or not, and once.
    maybe: Vec<User>,
    /// How often the counter was certainly raised, and how often perhaps.
    raised: u64,
    maybe_raised: u64,
    refused: u64,
}

#[test]
fn a_lost_primary_loses_and_doubles_nothing() {
    let (mongo, _turn) = voting_set();
    mongo.wait_ready().expect("the set is whole");
    block_on(async {
        let database = new_database();
        let deployment = instance(mongo, &database).await;
        let found = Arc::new(Found::default());
        let oracle = Oracle::start(instance(mongo, &database).await).await;
        let readers = oracle.readers(&deployment, &found);
        let stopped = Arc::new(AtomicBool::new(false));
        let users = MongoUsers::new(deployment.clone());
        let done = Arc::new(AtomicU64::new(0));
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            let counter = numbered(1);
            assert!(users.insert(counter.clone()).await.expect("the first is written"));
            writers.push(tokio::spawn(writer(deployment.clone(), counter, stopped.clone(), done.clone())));
        }

        tokio::time::sleep(Duration::from_secs(1)).await;
        until("the writers write", || done.load(Ordering::Relaxed) > 0).await;
        let primary = mongo.wait_primary().expect("a primary");
        mongo.kill(primary).expect("the primary is killed");
        mongo.wait_primary().expect("another one is elected");
        tokio::time::sleep(Duration::from_secs(2)).await;
        mongo.start_member(primary).expect("the old one starts");
        mongo.wait_ready().expect("the set is whole again");
        let started = Instant::now();
        while let Err(error) = mongo.step_down() {
            assert!(started.elapsed() < PATIENCE, "the primary does not step down: {error}");
            mongo.wait_ready().expect("the set is whole again");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        until("there are enough writes", || done.load(Ordering::Relaxed) > WRITES_MIN).await;

        stopped.store(true, Ordering::Relaxed);
        let (mut acknowledged, mut unknown, mut refused) = (0, 0, 0);
        for writer in writers {
            let (counter, book) = writer.await.expect("a writer ends well");
            acknowledged += book.inserted.len() as u64 + book.raised;
            unknown += book.maybe.len() as u64 + book.maybe_raised;
            refused += book.refused;
            for user in &book.inserted {
                let there = answered(async || users.by_email(&user.email).await).await;
                assert_eq!(there.map(|there| there.id), Some(user.id), "an acknowledged insert is lost");
            }
            let counted = answered(async || users.get(counter.id).await).await.expect("it is there");
            let raised = counted.version.0 - 1;
            assert!(
                (book.raised..=book.raised + book.maybe_raised).contains(&raised),
                "raised {raised} times, of {} certain and {} unknown ones",
                book.raised,
                book.maybe_raised
            );
        }
        let written = oracle.stop(readers).await;
        println!(
            "{acknowledged} writes acknowledged, {unknown} unknown, {refused} refused; {} reads of {written} numbers, {} refused",
            found.reads.load(Ordering::Relaxed),
            found.refused.load(Ordering::Relaxed),
        );
        assert!(acknowledged > WRITES_MIN);
        assert_eq!(found.too_old.load(Ordering::Relaxed), 0, "reads beyond their budget");
        assert_kept(&deployment.config().invariants);
    });
}

/// Counts in `done` what was acknowledged to it.
async fn writer(
    deployment: Arc<Deployment>,
    counter: User,
    stopped: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) -> (User, Book) {
    let users = MongoUsers::new(deployment);
    let mut book = Book::default();
    while !stopped.load(Ordering::Relaxed) {
        let user = numbered(1);
        match users.insert(user.clone()).await {
            Ok(true) => {
                book.inserted.push(user);
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(false) => panic!("a new user is taken for one that is there"),
            Err(StoreError::Unknown { .. }) => book.maybe.push(user),
            Err(StoreError::Unavailable { .. }) => book.refused += 1,
            Err(error) => panic!("{error}"),
        }
        raise(&users, &counter, &mut book).await;
    }
    (counter, book)
}

/// Raises the counter by one; nobody else does.
async fn raise(users: &MongoUsers, counter: &User, book: &mut Book) {
    let Ok(Some(stored)) = users.get(counter.id).await else {
        book.refused += 1;
        return;
    };
    let expected = stored.version;
    let raised = User { version: Version(expected.0 + 1), ..stored };
    match users.update(raised, expected).await {
        Ok(true) => book.raised += 1,
        // An unknown one before has been done after all, between the read and this.
        Ok(false) => {}
        Err(StoreError::Unknown { .. }) => book.maybe_raised += 1,
        Err(StoreError::Unavailable { .. }) => book.refused += 1,
        Err(error) => panic!("{error}"),
    }
}
