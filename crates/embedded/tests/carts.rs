//! What the embedded store does to carts behind the scenes: packing, and the list of untouched ones.
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

mod common;

use std::path::Path;

use common::{NOON, add, open, owner, product_id};
use mobimir_core::{
    cart::{self, CartPosition},
    ports::CartStore,
    time::Timestamp,
};
use mobimir_embedded::EmbeddedStore;
use tokio::task::JoinSet;

/// More than may wait to be listed anew.
const CARTS: u128 = 5_000;

fn touched_at(cart: u128) -> Timestamp {
    // Not in the order in which they are touched.
    NOON.plus_ms((cart as i64 * 7_919) % 10_007)
}

async fn touch_all(store: &EmbeddedStore, round: u128) {
    let mut writers = JoinSet::new();
    for cart in 0..CARTS {
        let store = store.clone();
        writers.spawn(async move {
            let now = touched_at(cart).plus_s(20 * round as i64);
            let change = add(owner(cart), round * CARTS + cart, 1);
            store.append(owner(cart), vec![change], NOON.plus_s(10_000), now).await.unwrap();
        });
    }
    writers.join_all().await;
}

async fn listed(store: &EmbeddedStore, untouched_since: Timestamp) -> Vec<CartPosition> {
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.untouched(untouched_since, after, 700, NOON).await.unwrap();
        listed.extend(page.items.iter().map(|(owner, cart)| CartPosition::of(*owner, cart.updated_at)));
        after = page.next;
        if after.is_none() {
            return listed;
        }
    }
}

fn expected(rounds: u128, untouched_since: Timestamp) -> Vec<CartPosition> {
    let last = |cart| touched_at(cart).plus_s(20 * (rounds as i64 - 1));
    let all = (0..CARTS).map(|cart| CartPosition::of(owner(cart), last(cart)));
    let mut expected: Vec<_> = all.filter(|position| position.updated_at <= untouched_since).collect();
    expected.sort_by_key(CartPosition::key);
    expected
}

async fn listed_after_reopening(dir: &Path, untouched_since: Timestamp) -> Vec<CartPosition> {
    listed(&open(dir), untouched_since).await
}

#[tokio::test(flavor = "multi_thread")]
async fn untouched_carts_are_in_their_place_however_late_they_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    touch_all(&store, 0).await;
    touch_all(&store, 1).await;
    for since in [NOON.plus_s(25), NOON.plus_s(100)] {
        assert_eq!(listed(&store, since).await, expected(2, since));
    }
    touch_all(&store, 2).await;
    touch_all(&store, 3).await;
    drop(store);
    // What was to be listed anew is no longer known.
    for since in [NOON.plus_s(65), NOON.plus_s(100)] {
        assert_eq!(listed_after_reopening(dir.path(), since).await, expected(4, since));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_with_very_many_changes_counts_them_all_after_reopening() {
    const CHANGES: u128 = 700;
    let dir = tempfile::tempdir().unwrap();
    for half in 0..2 {
        let store = open(dir.path());
        for change in 0..CHANGES / 2 {
            // Every change comes twice.
            for _ in 0..2 {
                let change = add(owner(1), half * CHANGES + change, 1);
                let now = NOON.plus_ms(change.id.0.as_u128() as i64);
                store.append(owner(1), vec![change], now.plus_s(60), now).await.unwrap();
            }
        }
    }
    let store = open(dir.path());
    let last = NOON.plus_ms((CHANGES + CHANGES / 2 - 1) as i64);
    let stored = CartStore::read(&store, owner(1), last).await.unwrap().unwrap();
    assert_eq!(cart::fold(&stored.changes).quantity(product_id(1)), CHANGES as u64);
    assert_eq!((stored.created_at, stored.updated_at, stored.expires_at), (NOON, last, last.plus_s(60)));
}
