//! The data directory: reopening, locking, versions.

mod common;

use std::{error::Error, fs};

use common::{NOON, add, hold, open, order, owner, product, product_id, session};
use mobimir_core::{
    id::UserId,
    ports::{CartStore, DayFilter, OrderStore, Period, ProductStore, SessionStore, UserStore},
    product::{ProductQuery, ProductSort},
    session::{Holder, RefreshToken, RefreshUse},
    time::Version,
    user::{Email, User},
};
use mobimir_embedded::{EmbeddedStore, OpenError, Options};
use uuid::Uuid;

fn refusal(dir: &std::path::Path) -> OpenError {
    match EmbeddedStore::open(dir, &Options::default()) {
        Ok(_) => panic!("{} was opened", dir.display()),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let user = User {
        id: UserId(Uuid::from_u128(5)),
        email: Email::parse("anna@example.ru").unwrap(),
        password_hash: "hash".into(),
        profile: Default::default(),
        created_at: NOON,
        updated_at: NOON,
        version: Version::default().next(NOON),
    };
    let later = NOON.plus_s(3_600);
    let session = session(6, Holder::User(user.id), later);
    let token = RefreshToken { hash: session.token_hash, session: session.id, expires_at: later };
    for round in 0..3u128 {
        let store = open(dir.path());
        if round == 0 {
            ProductStore::insert(&store, (0..30).map(|number| product(number, 5)).collect()).await.unwrap();
            UserStore::insert(&store, user.clone()).await.unwrap();
            SessionStore::insert(&store, session.clone(), Some(token)).await.unwrap();
            assert_eq!(store.use_refresh(token.hash, NOON).await.unwrap(), RefreshUse::First(session.id));
        }
        store.hold(product_id(1), hold(round, 1), NOON).await.unwrap();
        OrderStore::insert(&store, vec![order(round, 5)]).await.unwrap();
        store.append(owner(5), vec![add(owner(5), round, 1)], later, NOON).await.unwrap();
        drop(store);

        let store = open(dir.path());
        let page = store.list(ProductQuery::all(ProductSort::Name, 100)).await.unwrap();
        assert_eq!(page.items.len(), 30);
        assert_eq!(store.categories().await.unwrap().len(), 20);
        let held = ProductStore::get(&store, product_id(1)).await.unwrap().unwrap();
        assert_eq!(held.holds.len() as u128, round + 1);
        assert!(held.books_balance());
        assert_eq!(UserStore::by_email(&store, &user.email).await.unwrap(), Some(user.clone()));
        assert_eq!(SessionStore::get(&store, session.id, NOON).await.unwrap(), Some(session.clone()));
        assert_eq!(store.use_refresh(token.hash, NOON).await.unwrap(), RefreshUse::Again(session.id));
        let cart = CartStore::read(&store, owner(5), NOON).await.unwrap().unwrap();
        assert_eq!(cart.changes.len() as u128, round + 1);
        let history = OrderStore::by_user(&store, user.id, Period::default(), None, 10).await.unwrap();
        assert_eq!(history.items.len() as u128, round + 1);
        let report = store.by_day(NOON.day(), DayFilter::default(), None, 10).await.unwrap();
        assert_eq!(report.items, history.items);
    }
}

#[tokio::test]
async fn a_directory_in_use_is_refused_by_name_and_process() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let message = refusal(dir.path()).to_string();
    assert_eq!(
        message,
        format!(
            "the data directory {} is in use by process {}: stop that process, or name another directory",
            dir.path().display(),
            std::process::id()
        )
    );
    drop(store);
    open(dir.path());
}

#[tokio::test]
async fn another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    fs::write(dir.path().join("VERSION"), "mobimir embedded 2\n").unwrap();
    let message = refusal(dir.path()).to_string();
    assert!(message.contains(r#"expected "mobimir embedded 1", found "mobimir embedded 2""#), "{message}");
}

#[test]
fn somebody_elses_directory_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "").unwrap();
    let message = refusal(dir.path()).to_string();
    assert!(message.contains("is not empty and holds no mobimir data"), "{message}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let error = refusal(&dir.path().join("thesis.txt"));
    assert!(matches!(error, OpenError::Io { .. }) && error.source().is_some(), "{error}");
}

#[test]
fn a_creation_that_was_cut_short_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("LOCK"), "1\n").unwrap();
    fs::write(dir.path().join("VERSION.tmp"), "mobi").unwrap();
    drop(open(dir.path()));
    drop(open(dir.path()));
}
