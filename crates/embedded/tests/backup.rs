//! Backups of a running store, and what is made of them.
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

mod common;

use std::{
    fs,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use common::{NOON, hold, open, order, product, product_id};
use mobimir_core::{
    id::UserId,
    ports::{DayFilter, OrderStore, Period, ProductStore},
    product::{Decision, ProductQuery, ProductSort, Verdict},
};
use mobimir_embedded::{BackupError, EmbeddedStore, Options, RestoreError, restore};
use uuid::Uuid;

const USERS: u128 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_during_writes_is_one_moment() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root.path().join("data"));
    ProductStore::insert(&store, (0..8).map(|number| product(number, 1_000_000)).collect()).await.unwrap();

    let (done, ordered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut shoppers = tokio::task::JoinSet::new();
    for user in 0..USERS {
        let (store, done, ordered) = (store.clone(), Arc::clone(&done), Arc::clone(&ordered));
        shoppers.spawn(async move {
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let hold = hold(user * 1_000_000 + number, 1);
                store.hold(product_id(number % 8), hold, NOON).await.unwrap();
                OrderStore::insert(&store, vec![order(user * 1_000_000 + number, user)]).await.unwrap();
                let sold = Verdict { sale: Decision::Won(hold.attempt), cancellation: Decision::Undecided };
                store.settle(product_id(number % 8), hold.order, sold, NOON).await.unwrap();
                ordered.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let backups = (0..3).map(|number| root.path().join(format!("backup {number}"))).collect::<Vec<_>>();
    let mut ordered_before = Vec::new();
    for backup in &backups {
        // Something is new in each of them.
        let least = ordered.load(Ordering::SeqCst) + 10;
        while ordered.load(Ordering::SeqCst) < least {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        ordered_before.push(ordered.load(Ordering::SeqCst));
        let (store, backup) = (store.clone(), backup.clone());
        tokio::task::spawn_blocking(move || store.backup(&backup, &mut |_| {})).await.unwrap().unwrap();
    }
    done.store(true, Ordering::Relaxed);
    shoppers.join_all().await;
    assert!(ordered.load(Ordering::SeqCst) > ordered_before[0]);

    for (number, backup) in backups.iter().enumerate() {
        let data = root.path().join(format!("restored {number}"));
        let mut told = 0;
        let total = restore(backup, &data, &mut |progress| told = progress.records).unwrap();
        assert_eq!(told, total.records);
        let restored = open(&data);
        let products =
            restored.list(ProductQuery::all(ProductSort::PriceAscending, 100)).await.unwrap().items;
        assert_eq!(products.len(), 8);
        assert!(products.iter().all(|product| product.books_balance()));
        let held: usize = products.iter().map(|product| product.holds.len()).sum();
        assert!(held <= USERS as usize, "each shopper has one hold at most");
        let sold: u64 =
            products.iter().flat_map(|product| product.stock.values()).map(|stock| stock.sold).sum();

        let mut of_users = Vec::new();
        for user in 0..USERS {
            let mut after = None;
            loop {
                let user = UserId(Uuid::from_u128(user));
                let page = restored.by_user(user, Period::default(), after, 100).await.unwrap();
                of_users.extend(page.items);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        let (mut of_day, mut after) = (Vec::new(), None);
        loop {
            let page = restored.by_day(NOON.day(), DayFilter::default(), after, 100).await.unwrap();
            of_day.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        of_users.sort_by_key(|order| order.id);
        of_day.sort_by_key(|order| order.id);
        assert_eq!(of_users, of_day);
        let ordered = of_day.len() as u64;
        assert!(ordered >= ordered_before[number], "what was acknowledged before the backup is in it");
        // An order is written after its hold and before its settlement.
        assert!(
            sold <= ordered && ordered <= sold + held as u64,
            "{sold} sold, {ordered} ordered, {held} held"
        );
    }
}

async fn small_backup(root: &std::path::Path) -> std::path::PathBuf {
    let store = open(&root.join("data"));
    ProductStore::insert(&store, (0..50).map(|number| product(number, 5)).collect()).await.unwrap();
    let backup = root.join("backup");
    store.backup(&backup, &mut |_| {}).unwrap();
    backup
}

#[tokio::test]
async fn a_damaged_backup_is_refused_and_installs_nothing() {
    let root = tempfile::tempdir().unwrap();
    let backup = small_backup(root.path()).await;
    let file = backup.join("mobimir.dump");
    let whole = fs::read(&file).unwrap();
    let target = root.path().join("restored");
    let refused = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let error = restore(&backup, &target, &mut |_| {}).unwrap_err();
        assert!(matches!(error, RestoreError::Dump { .. }), "{error}");
        assert!(!target.exists());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2, "only the data and the backup are there");
        std::error::Error::source(&error).unwrap().to_string()
    };
    assert!(refused(&whole[..whole.len() / 2]).contains("cut off"));
    assert!(refused(&whole[..whole.len() - 1]).contains("cut off"));
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    refused(&flipped);
    assert!(refused(b"something else entirely").contains("no backup"));
    assert!(refused(b"").contains("no backup"));

    fs::write(&file, &whole).unwrap();
    restore(&backup, &target, &mut |_| {}).unwrap();
    assert_eq!(open(&target).categories().await.unwrap().len(), 20);
}

#[tokio::test]
async fn nothing_is_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let backup = small_backup(root.path()).await;
    let data = root.path().join("data");
    let refused = restore(&backup, &data, &mut |_| {});
    assert!(matches!(refused, Err(RestoreError::NotEmpty { .. })), "{refused:?}");
    let store = open(&data);
    let refused = store.backup(&backup, &mut |_| {});
    assert!(matches!(refused, Err(BackupError::NotEmpty { .. })), "{refused:?}");

    let empty = root.path().join("empty");
    fs::create_dir(&empty).unwrap();
    restore(&backup, &empty, &mut |_| {}).unwrap();
    assert!(EmbeddedStore::open(&empty, &Options::default()).is_ok());
}

#[tokio::test]
async fn what_a_restore_that_was_cut_short_left_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let backup = small_backup(root.path()).await;
    drop(open(&root.path().join(".restored.restoring")));
    let target = root.path().join("restored");
    restore(&backup, &target, &mut |_| {}).unwrap();
    assert_eq!(open(&target).categories().await.unwrap().len(), 20);
    assert!(!root.path().join(".restored.restoring").exists());
}
