use mobimir_core::{
    order::{Order, OrderStatus},
    ports::Period,
    time::Version,
};

use super::{Bench, Checked, Suite, history, race};
use crate::conformance::{arena::zone, check::RACERS};

pub(super) fn conform(suite: &Suite) {
    suite.race("ORD-1 (one order, written in every version by many)", versions_of_one_order);
    suite.race("ORD-1 (many orders of one moment)", many_orders_of_one_moment);
}

/// An order of the first user, as it was first.
pub(super) fn order(bench: &Bench, n: usize) -> Order {
    let now = bench.universe.start;
    Order {
        id: bench.universe.order(n),
        user_id: bench.universe.user(0),
        status: OrderStatus::Confirmed,
        geo_zone: zone(0),
        lines: Vec::new(),
        shipping_address: None,
        payment_method: None,
        created_at: now,
        updated_at: now,
        bucket: 0,
        version: Version::default().next(now),
    }
}

/// An order in all its versions, made in the same millisecond, the first one first.
pub(super) fn versions(bench: &Bench, n: usize) -> Vec<Order> {
    let mut versions = vec![order(bench, n)];
    for status in [OrderStatus::Paid, OrderStatus::Shipped, OrderStatus::Delivered] {
        let moved = versions[versions.len() - 1].moved(status, bench.universe.start);
        versions.push(moved);
    }
    versions
}

async fn versions_of_one_order(bench: &Bench) -> Checked {
    let versions = versions(bench, 0);
    race(RACERS, |caller| {
        let (store, order) = (bench.store.clone(), versions[caller % versions.len()].clone());
        async move { store.append(vec![order]).await }
    })
    .await?;
    let newest = vec![versions[versions.len() - 1].clone()];
    bench.sees("the newest version, once", newest, async || history(bench, Period::default()).await).await
}

async fn many_orders_of_one_moment(bench: &Bench) -> Checked {
    race(RACERS, |caller| {
        let (store, order) = (bench.store.clone(), order(bench, caller));
        async move { store.append(vec![order]).await }
    })
    .await?;
    let mut expected: Vec<Order> = (0..RACERS).map(|n| order(bench, n)).collect();
    expected.sort_by_key(|order| order.id);
    bench.sees("all orders", expected, async || history(bench, Period::default()).await).await
}
