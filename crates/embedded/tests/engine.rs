//! The committer: groups, panics, closing.

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::sync_channel,
    },
    time::{Duration, Instant},
};

use common::{NOON, add, hold, open, owner, product, product_id, zone};
use mobimir_core::{
    cart,
    ports::{CartStore, ProductStore, StoreError},
    product::{HoldOutcome, StockChange, StockOutcome},
};
use mobimir_embedded::Txn;
use tokio::task::JoinSet;

const WRITERS: u128 = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_writers_share_commits() {
    const ROUNDS: u128 = 20;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for round in 0..ROUNDS {
        // All of them come while the committer is busy with something that writes nothing.
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = sync_channel(1);
        let busy = {
            let store = store.clone();
            tokio::spawn(async move {
                let work = move |_: &mut Txn<'_>| {
                    let _ = begun.send(());
                    let _ = may_go_on.recv();
                    Ok(())
                };
                store.engine().write(work).await
            })
        };
        has_begun.await.unwrap();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let store = store.clone();
            writers.spawn(async move {
                let change = add(owner(writer), writer * 100 + round, 1);
                store.append(owner(writer), vec![change], NOON.plus_s(60), NOON).await.unwrap();
            });
        }
        let started = Instant::now();
        while store.engine().queue_depth() < WRITERS as usize {
            assert!(started.elapsed() < Duration::from_secs(60), "not all writers wait");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        go_on.send(()).unwrap();
        writers.join_all().await;
        busy.await.unwrap().unwrap();
    }
    let stats = store.engine().stats();
    let (jobs, commits) = (stats.jobs.load(Ordering::Relaxed), stats.commits.load(Ordering::Relaxed));
    assert_eq!(jobs, ROUNDS as u64 * (WRITERS as u64 + 1));
    assert!(commits * 3 < jobs, "{jobs} writes took {commits} commits");
    assert_eq!(commits, stats.fsyncs.load(Ordering::Relaxed));
    assert_eq!(commits, stats.groups_by_size.iter().map(|size| size.load(Ordering::Relaxed)).sum::<u64>());
    assert_eq!(store.engine().queue_depth(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_that_panics_or_fails_leaves_nothing_and_harms_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    ProductStore::insert(&store, vec![product(1, 10)]).await.unwrap();
    let mut jobs = JoinSet::new();
    for number in 0..WRITERS {
        let store = store.clone();
        jobs.spawn(async move {
            match number % 4 {
                0 => {
                    let outcome = store.engine().write::<(), _>(|_| panic!("a bug in a write")).await;
                    assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
                }
                1 => {
                    let failure = || StoreError::Corrupt { what: "so it was asked".into(), source: None };
                    let outcome = store.engine().write::<(), _>(move |_| Err(failure())).await;
                    assert!(matches!(outcome, Err(StoreError::Corrupt { .. })), "{outcome:?}");
                }
                _ => {
                    let change = StockChange::Delta(1);
                    let outcome = store.change_stock(product_id(1), zone(), change, NOON).await.unwrap();
                    assert!(matches!(outcome, StockOutcome::Changed(_)), "{outcome:?}");
                }
            }
        });
    }
    jobs.join_all().await;
    let stored = ProductStore::get(&store, product_id(1)).await.unwrap().unwrap();
    assert_eq!(stored.available_in(zone()), 10 + WRITERS as u64 / 2);
    assert_eq!(store.engine().stats().panics.load(Ordering::Relaxed), WRITERS as u64 / 4);
    assert!(store.healthy());
}

/// STK-1, STK-2.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_holds_never_oversell() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    ProductStore::insert(&store, vec![product(1, 40)]).await.unwrap();
    let mut holds = JoinSet::new();
    for order in 0..WRITERS {
        let store = store.clone();
        holds.spawn(async move { store.hold(product_id(1), hold(order, 1), NOON).await.unwrap() });
    }
    let outcomes = holds.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == HoldOutcome::Held).count(), 40);
    let stored = ProductStore::get(&store, product_id(1)).await.unwrap().unwrap();
    assert!(stored.books_balance());
    assert_eq!(stored.available_in(zone()), 0);
    let held = store.with_holds(NOON.plus_ms(1), None, 10).await.unwrap();
    assert_eq!(held, [stored]);
}

/// What was acknowledged is what everybody reads, however many read and write at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_are_never_older_than_an_acknowledged_write() {
    const PRODUCTS: u128 = 4;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    ProductStore::insert(&store, (0..PRODUCTS).map(|number| product(number, 1)).collect()).await.unwrap();
    // Opened anew, so that nothing is in memory.
    drop(store);
    let store = open(dir.path());
    let mut tasks = JoinSet::new();
    for number in 0..PRODUCTS {
        let (acknowledged, current) = tokio::sync::watch::channel(1);
        for _ in 0..3 {
            let (store, current) = (store.clone(), current.clone());
            tasks.spawn(async move {
                while current.has_changed().is_ok() {
                    let least = *current.borrow();
                    let read = ProductStore::get(&store, product_id(number)).await.unwrap().unwrap();
                    assert!(read.available_in(zone()) >= least);
                    let many = store.get_many(&[product_id(number)]).await.unwrap();
                    assert!(many[&product_id(number)].available_in(zone()) >= read.available_in(zone()));
                    tokio::task::yield_now().await;
                }
            });
        }
        let store = store.clone();
        tasks.spawn(async move {
            for units in 2..100 {
                let change = StockChange::SetAvailable(units);
                store.change_stock(product_id(number), zone(), change, NOON).await.unwrap();
                acknowledged.send_replace(units);
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn closing_finishes_what_was_taken_and_refuses_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut writers, acknowledged) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for writer in 0..WRITERS {
        let (store, acknowledged) = (store.clone(), acknowledged.clone());
        // Until it is refused.
        writers.spawn(async move {
            for change in 0.. {
                let change = add(owner(1), writer << 64 | change, 1);
                match store.append(owner(1), vec![change], NOON.plus_s(60), NOON).await {
                    Ok(()) => acknowledged.fetch_add(1, Ordering::SeqCst),
                    Err(StoreError::Unavailable { .. }) => return,
                    Err(error) => panic!("{error}"),
                };
            }
        });
    }
    while acknowledged.load(Ordering::SeqCst) < WRITERS as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.close().await;
    writers.join_all().await;
    let refused = store.append(owner(1), vec![add(owner(1), 999, 1)], NOON.plus_s(60), NOON).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    let cart = CartStore::read(&store, owner(1), NOON).await.unwrap();
    let units = cart.map_or(0, |cart| cart::fold(&cart.changes).quantity(product_id(1)));
    assert_eq!(units, acknowledged.load(Ordering::SeqCst));
    store.close().await;
}
