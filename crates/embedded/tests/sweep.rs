//! What has expired goes, and nothing else.
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

mod common;

use common::{NOON, add, open, owner, session};
use mobimir_core::{
    cart::{self, Owner},
    id::{SessionId, UserId},
    ports::{CartStore, SessionStore},
    secret::SecretHash,
    session::{Holder, RefreshToken, RefreshUse, Session, SessionState},
    time::{Timestamp, Version},
};
use mobimir_embedded::EmbeddedStore;
use uuid::Uuid;

const ALL: usize = 1_000;

fn records(store: &EmbeddedStore) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    store.backup(&dir.path().join("backup"), &mut |_| {}).unwrap().records
}

async fn add_one(store: &EmbeddedStore, owner: Owner, change: u128, expires_at: Timestamp, now: Timestamp) {
    store.append(owner, vec![add(owner, change, 1)], expires_at, now).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_carts_go_with_all_their_rows_and_extended_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (soon, late) = (NOON.plus_s(10), NOON.plus_s(100));
    for change in 0..40 {
        add_one(&store, owner(1), change, soon, NOON.plus_ms(change as i64)).await;
        add_one(&store, owner(2), 100 + change, soon, NOON).await;
    }
    add_one(&store, owner(2), 200, late, NOON.plus_s(1)).await;

    assert_eq!(store.sweep(soon.plus_ms(-1), ALL).await.unwrap(), 0);
    assert_eq!(store.sweep(soon, ALL).await.unwrap(), 2);
    assert_eq!(store.sweep(soon, ALL).await.unwrap(), 0, "the extended cart was noted for later");
    assert_eq!(CartStore::read(&store, owner(1), NOON).await.unwrap(), None);
    let kept = CartStore::read(&store, owner(2), soon).await.unwrap().unwrap();
    assert_eq!(cart::fold(&kept.changes).lines[0].quantity, 41);
    let untouched = store.untouched(late, None, 10, soon).await.unwrap();
    assert_eq!(untouched.items.len(), 1);

    assert_eq!(store.sweep(late, ALL).await.unwrap(), 1);
    assert_eq!(records(&store), 0, "nothing is left of either");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_that_began_anew_outlives_its_first_life() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (soon, late) = (NOON.plus_s(10), NOON.plus_s(100));
    for change in 0..40 {
        add_one(&store, owner(1), change, soon, NOON).await;
    }
    add_one(&store, owner(1), 50, late, soon).await;
    store.sweep(soon, ALL).await.unwrap();
    let cart = CartStore::read(&store, owner(1), soon).await.unwrap().unwrap();
    assert_eq!((cart.changes.len(), cart.created_at), (1, soon));
    store.sweep(late, ALL).await.unwrap();
    assert_eq!(records(&store), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_sessions_go_with_their_index_entries_and_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (soon, late) = (NOON.plus_s(10), NOON.plus_s(100));
    let user = UserId(Uuid::from_u128(9));
    let token = |number: u8, expires_at| RefreshToken {
        hash: SecretHash([number; 32]),
        session: SessionId(Uuid::from_u128(1)),
        expires_at,
    };
    SessionStore::insert(&store, session(1, Holder::User(user), soon), Some(token(1, soon))).await.unwrap();
    let guest = session(2, Holder::Guest, soon);
    let closed = SessionState::Closed { at: NOON, into: user, merged: false };
    SessionStore::insert(&store, Session { state: closed, ..guest }, None).await.unwrap();
    // The user's session is extended and gets another token.
    let extended = Session {
        expires_at: late,
        version: Version::default().next(NOON).next(NOON),
        ..session(1, Holder::User(user), late)
    };
    let version = Version::default().next(NOON);
    assert!(SessionStore::update(&store, extended, version, Some(token(2, late))).await.unwrap());
    assert_eq!(store.unmerged(soon, 10, NOON).await.unwrap().len(), 1);
    assert!(store.unmerged(soon, 10, soon).await.unwrap().is_empty());

    assert_eq!(store.sweep(soon, 1).await.unwrap(), 1, "a sweep is bounded");
    while store.sweep(soon, 1).await.unwrap() > 0 {}
    assert!(store.unmerged(late, 10, NOON).await.unwrap().is_empty());
    assert_eq!(store.use_refresh(SecretHash([1; 32]), NOON).await.unwrap(), RefreshUse::Unknown);
    let live = SessionStore::by_user(&store, user, None, 10, soon).await.unwrap();
    assert_eq!(live.items.len(), 1);
    assert_eq!(
        store.use_refresh(SecretHash([2; 32]), soon).await.unwrap(),
        RefreshUse::First(live.items[0].id)
    );

    while store.sweep(late, 1).await.unwrap() > 0 {}
    assert_eq!(records(&store), 0, "nothing is left");
}
