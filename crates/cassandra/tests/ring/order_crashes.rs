//! Orders whose writer dies before it has written everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use mobimir_cassandra::CassandraOrders;
use mobimir_core::{
    id::{OrderId, UserId},
    order::Order,
    policy::Entity,
    ports::OrderStore,
    time::{Clock, SystemClock, Timestamp},
};

use crate::{
    orders::{CALM, EAGER, block_on, open, order, user, whole_day, whole_history},
    support,
};

/// How many orders are written in peace, to see how long it takes: one of them may be late.
const MEASURED: usize = 3;

/// Whoever writes orders dies at any moment. Some seconds later each is in every table, or in none; those
/// that were acknowledged are there.
#[test]
fn an_order_is_written_whole_or_not_at_all() {
    const ORDERS: usize = 40;
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Orders]).await;
        let (now, customer) = (SystemClock.now(), user());
        let (mut made, mut acknowledged) = (BTreeMap::new(), BTreeSet::new());
        // As often as it takes: where no writer died between its note and the end of its order, nothing was tried.
        let (noted, in_part) = support::until_some("a writer dies in the middle of an order", async || {
            let dying = open(&fresh.cluster, &policy, CALM).await;
            let mut takes = Duration::MAX;
            for n in 0..ORDERS {
                let order = order(customer, &made.len().to_string(), now);
                made.insert(order.id, order.clone());
                let (writer, written, started) = (dying.clone(), order.clone(), Instant::now());
                let writing = tokio::spawn(async move { writer.insert(vec![written]).await });
                if n >= MEASURED {
                    tokio::time::sleep(takes * (n as u32 % 16) / 12).await;
                    writing.abort();
                }
                match writing.await {
                    Ok(inserted) => {
                        assert_eq!(inserted.unwrap(), 1);
                        acknowledged.insert(order.id);
                        takes = takes.min(started.elapsed());
                    }
                    Err(error) => assert!(error.is_cancelled(), "{error}"),
                }
            }
            drop(dying);
            let other = open(&fresh.cluster, &policy, CALM).await;
            let noted = other.pending_notes().await.unwrap();
            let in_part = Tables::read(&other, customer, now, &made).await.in_part();
            (noted > 0).then_some((noted, in_part))
        })
        .await;

        let healing = open(&fresh.cluster, &policy, EAGER).await;
        support::until("every order is whole or not there", support::PATIENCE, async || {
            let tables = Tables::read(&healing, customer, now, &made).await;
            tables.in_part() == 0 && healing.pending_notes().await.unwrap() == 0
        })
        .await;
        let tables = Tables::read(&healing, customer, now, &made).await;
        assert!(tables.by_id.iter().all(|(id, order)| made[id] == *order), "an order is not as it was made");
        let lost: Vec<&OrderId> = acknowledged.iter().filter(|id| !tables.by_id.contains_key(id)).collect();
        assert!(lost.is_empty(), "ORD-1: acknowledged and not there: {lost:?}");
        assert!(acknowledged.len() >= MEASURED);
        println!(
            "{} orders: {} acknowledged, {} there; {noted} were left in the middle, {in_part} of them seen in part",
            made.len(),
            acknowledged.len(),
            tables.by_id.len()
        );
    });
}

/// The orders of one customer on one day, in every table.
struct Tables {
    by_id: BTreeMap<OrderId, Order>,
    lists: [BTreeMap<OrderId, Order>; 2],
}

impl Tables {
    async fn read(
        orders: &CassandraOrders,
        customer: UserId,
        day: Timestamp,
        made: &BTreeMap<OrderId, Order>,
    ) -> Self {
        let by_id = try_join_all(made.keys().map(|id| orders.get(*id))).await.expect("orders can be read");
        let lists = [whole_history(orders, customer).await, whole_day(orders, day).await];
        let keyed = |orders: Vec<Order>| orders.into_iter().map(|order| (order.id, order)).collect();
        Self { by_id: keyed(by_id.into_iter().flatten().collect()), lists: lists.map(keyed) }
    }

    /// Orders that are in one table otherwise than in another, or in one only.
    fn in_part(&self) -> usize {
        let tables = || self.lists.iter().chain([&self.by_id]);
        let all: BTreeSet<&OrderId> = tables().flat_map(BTreeMap::keys).collect();
        let is_whole = |id: &&&OrderId| {
            tables().all(|table| table.get(id).is_some_and(|o| self.by_id.get(id) == Some(o)))
        };
        all.len() - all.iter().filter(is_whole).count()
    }
}
