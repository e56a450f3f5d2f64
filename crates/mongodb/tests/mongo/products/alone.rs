//! The primary is killed while a sale goes on: no unit is lost, and none is sold twice.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    id::OrderId,
    policy::Entity,
    ports::{ProductStore, StoreError},
    product::{Decision, HoldOutcome, Verdict},
};
use mobimir_mongodb::{MongoConfig, MongoProducts};
use tokio::{task::JoinSet, time::sleep};

use super::{block_on, msk, now, phone, sale};
use crate::support::{alone, answered, fresh, until};

const BUYERS: usize = 16;
const UNITS: u64 = 1_000_000;
const SALES_MIN: usize = 100;

/// What the buyers were told.
#[derive(Default)]
struct Told {
    held: HashSet<OrderId>,
    sold: HashSet<OrderId>,
    held_perhaps: HashSet<OrderId>,
    sold_perhaps: HashSet<OrderId>,
}

#[test]
fn a_killed_or_hanging_primary_neither_loses_nor_doubles_a_unit() {
    let alone = alone();
    block_on(async {
        let fresh = fresh(alone.mongo, &[Entity::Products]).await;
        let products = Arc::new(MongoProducts::new(fresh.deployment.clone()));
        // This one gives connections up soon, with whatever they carry.
        let hasty = MongoConfig {
            connect_timeout: Duration::from_millis(400),
            timeout: Duration::from_secs(2),
            ..MongoConfig::default()
        };
        let hasty = Arc::new(MongoProducts::new(fresh.another_with(hasty).await));
        let phone = phone(UNITS);
        products.insert(vec![phone.clone()]).await.unwrap();
        let open = Arc::new(AtomicBool::new(true));
        let done = Arc::new(AtomicUsize::new(0));
        let mut buyers = JoinSet::new();
        for buyer in 0..BUYERS {
            let products = if buyer % 2 == 0 { products.clone() } else { hasty.clone() };
            let (open, done, id) = (open.clone(), done.clone(), phone.id);
            buyers.spawn(async move {
                let mut told = Told::default();
                while open.load(Ordering::Relaxed) {
                    let hold = sale(1);
                    match products.hold(id, hold, now()).await {
                        Ok(HoldOutcome::Held) => told.held.insert(hold.order),
                        Ok(HoldOutcome::Full) => continue,
                        Ok(other) => panic!("{other:?}"),
                        Err(StoreError::Unknown { .. }) => told.held_perhaps.insert(hold.order),
                        Err(StoreError::Unavailable { .. }) => {
                            sleep(Duration::from_millis(20)).await;
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    };
                    let verdict =
                        Verdict { sale: Decision::Won(hold.attempt), cancellation: Decision::Undecided };
                    if told.held.contains(&hold.order) {
                        match products.settle(id, hold.order, verdict, now()).await {
                            Ok(true) => {
                                told.held.remove(&hold.order);
                                told.sold.insert(hold.order);
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            Ok(false) => panic!("an acknowledged hold is gone"),
                            Err(StoreError::Unknown { .. }) => {
                                told.held.remove(&hold.order);
                                told.sold_perhaps.insert(hold.order);
                            }
                            Err(_) => {}
                        }
                    }
                }
                told
            });
        }
        for _ in 0..2 {
            sleep(Duration::from_secs(2)).await;
            let primary = tokio::task::block_in_place(|| alone.mongo.wait_primary()).unwrap();
            tokio::task::block_in_place(|| alone.mongo.kill(primary)).unwrap();
            tokio::task::block_in_place(|| alone.mongo.wait_primary()).unwrap();
            sleep(Duration::from_secs(1)).await;
            tokio::task::block_in_place(|| alone.mongo.start_member(primary)).unwrap();
            tokio::task::block_in_place(|| alone.mongo.wait_ready()).unwrap();
        }
        // One that hangs has taken what was sent to it, and does it when it wakes up or never.
        let primary = tokio::task::block_in_place(|| alone.mongo.wait_primary()).unwrap();
        alone.mongo.pause(primary).unwrap();
        sleep(Duration::from_secs(2)).await;
        alone.mongo.resume(primary).unwrap();
        sleep(Duration::from_secs(2)).await;
        tokio::task::block_in_place(|| alone.mongo.wait_ready()).unwrap();
        until("the sale goes on", async || done.load(Ordering::Relaxed) > SALES_MIN).await;
        open.store(false, Ordering::Relaxed);
        let mut all = Told::default();
        while let Some(told) = buyers.join_next().await {
            let told = told.unwrap();
            all.held.extend(told.held);
            all.sold.extend(told.sold);
            all.held_perhaps.extend(told.held_perhaps);
            all.sold_perhaps.extend(told.sold_perhaps);
        }
        let stored = answered(async || products.get(phone.id).await).await.unwrap();
        assert!(stored.books_balance(), "{stored:?}");
        let holds: HashSet<OrderId> = stored.holds.iter().map(|hold| hold.order).collect();
        assert_eq!(holds.len(), stored.holds.len(), "no order is held twice");
        assert!(all.held.is_subset(&holds), "every acknowledged hold is there");
        let explained = |order: &OrderId| {
            all.held.contains(order) || all.held_perhaps.contains(order) || all.sold_perhaps.contains(order)
        };
        assert!(holds.iter().all(explained), "and no other than those that nobody knew of");
        let sold_after_all = all.sold_perhaps.difference(&holds).count();
        let stock = stored.stock[&msk()];
        assert_eq!(stock.sold, (all.sold.len() + sold_after_all) as u64);
        assert_eq!(stock.received, UNITS);
        assert!(all.sold.len() > SALES_MIN, "the sale went on: {}", all.sold.len());
    });
}
