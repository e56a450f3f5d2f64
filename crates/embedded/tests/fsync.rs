//! An acknowledgement waits for an fdatasync that covers it. Shown from outside: the test runs itself again with a
//! library in between (`fsync_shim.c`) that records, delays or fails the system's calls.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

mod common;

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use common::{open, product, product_id};
use mobimir_core::ports::{ProductStore, StoreError};
use mobimir_embedded::{EmbeddedStore, Space};
use tokio::task::JoinSet;

const CHILD: &str = "MOBIMIR_FSYNC_CHILD";
const LOG: &str = "SHIM_LOG";
const WRITERS: u64 = 8;
const WRITES_PER_WRITER: u64 = 3;
const INSERTS: u64 = 12;
const INSERTS_THAT_SYNC: u64 = 5;

/// Appends a line, in one call, so that the order of lines is the order of events.
fn note(line: &str) {
    let mut log = OpenOptions::new().append(true).create(true).open(std::env::var(LOG).unwrap()).unwrap();
    log.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn run_child(dir: &Path, task: &str, settings: &[(&str, &str)]) -> Vec<String> {
    let shim = dir.join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fsync_shim.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&shim)
        .arg(source)
        .arg("-ldl")
        .status()
        .expect("a C compiler is installed as `cc`");
    assert!(compiled.success());
    let log = dir.join("log");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("LD_PRELOAD", &shim)
        .env(CHILD, task)
        .env("MOBIMIR_FSYNC_DIR", dir.join("data"))
        .env(LOG, &log)
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

/// What the other tests run in a process of its own; without their setting it is no test at all.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let dir = PathBuf::from(std::env::var("MOBIMIR_FSYNC_DIR").unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = open(&dir);
    match task.as_str() {
        "write" => runtime.block_on(write_marks(&store)),
        "fail" => runtime.block_on(insert_until_refused(&store)),
        other => panic!("no such task: {other}"),
    }
}

async fn write_marks(store: &EmbeddedStore) {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for write in 0..WRITES_PER_WRITER {
                let mark = 1 + writer * WRITES_PER_WRITER + write;
                let value = format!("MARK:{mark};").into_bytes();
                store.engine().put(Space::Carts, mark.to_be_bytes().to_vec(), value).await.unwrap();
                note(&format!("acknowledged {mark}"));
            }
        });
    }
    writers.join_all().await;
}

async fn insert_until_refused(store: &EmbeddedStore) {
    let mut acknowledged = Vec::new();
    for number in 0..INSERTS {
        match ProductStore::insert(store, vec![product(u128::from(number), 1)]).await {
            Ok(_) => {
                note(&format!("acknowledged {number}"));
                acknowledged.push(number);
            }
            Err(StoreError::Unknown { what, .. }) => {
                assert!(what.contains("the commit failed"), "{what}");
                note(&format!("unknown {number}"));
            }
            Err(StoreError::Unavailable { what, .. }) => {
                assert!(what.contains("an earlier commit failed"), "{what}");
                assert!(what.contains("check the disk, then restart"), "{what}");
                note(&format!("refused {number}"));
            }
            Err(other) => panic!("{other}"),
        }
        assert_eq!(store.healthy(), acknowledged.len() as u64 == number + 1);
    }
    for number in acknowledged {
        assert!(ProductStore::get(store, product_id(u128::from(number))).await.unwrap().is_some());
    }
    assert!(!store.categories().await.unwrap().is_empty());
    note("read 0");
}

#[test]
fn every_acknowledgement_waits_for_a_sync_that_covers_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = run_child(dir.path(), "write", &[("SHIM_DELAY_MS", "300")]);
    let position = |line: String| log.iter().position(|other| *other == line);
    for mark in 1..=WRITERS * WRITES_PER_WRITER {
        let written = position(format!("write {mark}")).expect("the write went to the journal");
        let acknowledged = position(format!("acknowledged {mark}")).unwrap();
        let covered = (1..)
            .map_while(|sync| position(format!("begin {sync}")).map(|begin| (sync, begin)))
            .any(|(sync, begin)| {
                begin > written && position(format!("end {sync}")).is_some_and(|end| end < acknowledged)
            });
        assert!(covered, "no sync covers write {mark} before it is acknowledged: {log:#?}");
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_nothing_acknowledged_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let syncs = INSERTS_THAT_SYNC.to_string();
    let log = run_child(dir.path(), "fail", &[("SHIM_FAIL_AFTER", &syncs)]);
    let failed = log.iter().position(|line| line.starts_with("failed")).expect("a sync failed");
    let acknowledged: Vec<u128> = log
        .iter()
        .filter_map(|line| line.strip_prefix("acknowledged "))
        .map(|number| number.parse().unwrap())
        .collect();
    assert_eq!(acknowledged.len() as u64, INSERTS_THAT_SYNC);
    assert!(log[failed..].iter().all(|line| !line.starts_with("acknowledged")), "{log:#?}");
    assert_eq!(log.iter().filter(|line| line.starts_with("unknown")).count(), 1);
    let refused = log.iter().filter(|line| line.starts_with("refused")).count() as u64;
    assert_eq!(refused, INSERTS - INSERTS_THAT_SYNC - 1);
    assert_eq!(log.last().map(String::as_str), Some("read 0"));

    let store = open(&dir.path().join("data"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for number in acknowledged {
        let found = runtime.block_on(ProductStore::get(&store, product_id(number))).unwrap();
        assert!(found.is_some(), "product {number} was acknowledged");
    }
    let next = runtime.block_on(ProductStore::insert(&store, vec![product(900, 1)])).unwrap();
    assert_eq!(next, 1);
}
