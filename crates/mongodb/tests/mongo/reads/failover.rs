//! The primary is lost under load: requests are repeated or refused, and none is lost or done twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
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
    voting_set,
};

const WRITERS: usize = 6;

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
        let writers: Vec<_> =
            (0..WRITERS).map(|_| tokio::spawn(writer(deployment.clone(), stopped.clone()))).collect();

        tokio::time::sleep(Duration::from_secs(1)).await;
        let primary = mongo.primary().expect("a primary");
        mongo.kill(primary).expect("the primary is killed");
        mongo.wait_primary().expect("another one is elected");
        tokio::time::sleep(Duration::from_secs(2)).await;
        mongo.start_member(primary).expect("the old one starts");
        mongo.wait_ready().expect("the set is whole again");
        mongo.step_down().expect("the primary steps down");
        tokio::time::sleep(Duration::from_secs(2)).await;

        stopped.store(true, Ordering::Relaxed);
        let users = MongoUsers::new(deployment.clone());
        let (mut acknowledged, mut unknown, mut refused) = (0, 0, 0);
        for writer in writers {
            let (counter, book) = writer.await.expect("a writer ends well");
            acknowledged += book.inserted.len() as u64 + book.raised;
            unknown += book.maybe.len() as u64 + book.maybe_raised;
            refused += book.refused;
            for user in &book.inserted {
                let there = users.by_email(&user.email).await.expect("the primary is there");
                assert_eq!(there.map(|there| there.id), Some(user.id), "an acknowledged insert is lost");
            }
            let counted = users.get(counter.id).await.expect("the primary is there").expect("it is there");
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
        assert!(acknowledged > 100);
        assert_eq!(found.too_old.load(Ordering::Relaxed), 0, "reads beyond their budget");
        assert_kept(&deployment.config().invariants);
    });
}

async fn writer(deployment: Arc<Deployment>, stopped: Arc<AtomicBool>) -> (User, Book) {
    let users = MongoUsers::new(deployment);
    let counter = numbered(1);
    assert!(users.insert(counter.clone()).await.expect("the first is written"));
    let mut book = Book::default();
    while !stopped.load(Ordering::Relaxed) {
        let user = numbered(1);
        match users.insert(user.clone()).await {
            Ok(true) => book.inserted.push(user),
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
