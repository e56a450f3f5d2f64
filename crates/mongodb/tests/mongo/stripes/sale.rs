//! Many buyers at once of a product that is split, while it is split, put together and restocked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    policy::Entity,
    ports::{ProductStore, StoreError},
    product::{Decision, HoldOutcome, StockChange, StockOutcome, Verdict},
};
use mobimir_mongodb::MongoProducts;
use tokio::{task::JoinSet, time::sleep};

use super::stored;
use crate::{
    products::{block_on, msk, now, phone, sale},
    support::{alone, fresh, shared, until},
};

const BUYERS: usize = 64;

/// Nobody gives anything back, so when all are told that there is nothing left, there is nothing left.
#[test]
fn sixty_four_buyers_sell_out_to_the_last_unit() {
    const UNITS: u64 = 400;
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let (deployment, other) = (fresh.deployment.clone(), fresh.another().await);
        let instances = [deployment, other].map(|deployment| Arc::new(MongoProducts::new(deployment)));
        let phone = phone(UNITS);
        instances[0].insert(vec![phone.clone()]).await.unwrap();
        instances[0].stripe(phone.id, 16, now()).await.unwrap();
        let open = Arc::new(AtomicBool::new(true));
        // Whoever reads meanwhile never sees a unit twice, or none where one is.
        let reader = {
            let (products, phone, open) = (instances[1].clone(), phone.clone(), open.clone());
            tokio::spawn(async move {
                loop {
                    let seen = stored(&products, &phone).await;
                    assert_eq!(seen.stock[&msk()].received, UNITS);
                    if !open.load(Ordering::Relaxed) {
                        return;
                    }
                }
            })
        };
        let mut buyers = JoinSet::new();
        for buyer in 0..BUYERS {
            let (products, id) = (instances[buyer % 2].clone(), phone.id);
            buyers.spawn(async move {
                let mut sold = 0;
                loop {
                    let hold = sale(1);
                    match products.hold(id, hold, now()).await.unwrap() {
                        HoldOutcome::Held => {}
                        HoldOutcome::Short { available } => {
                            assert_eq!(available, 0);
                            return sold;
                        }
                        other => panic!("{other:?}"),
                    }
                    let sale = Decision::Won(hold.attempt);
                    let verdict = Verdict { sale, cancellation: Decision::Undecided };
                    assert!(products.settle(id, hold.order, verdict, now()).await.unwrap());
                    sold += hold.quantity;
                }
            });
        }
        let mut sold = 0;
        while let Some(buyer) = buyers.join_next().await {
            sold += buyer.unwrap();
        }
        open.store(false, Ordering::Relaxed);
        reader.await.unwrap();
        let stock = stored(&instances[0], &phone).await.stock[&msk()];
        assert_eq!((sold, stock.sold, stock.available), (UNITS, UNITS, 0));
    });
}

#[test]
fn a_sale_goes_on_while_the_product_is_split_put_together_and_restocked() {
    // More than can be sold however slowly a round goes.
    const UNITS: u64 = 1_000_000;
    const SALES_PER_ROUND: usize = 8;
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let (deployment, other) = (fresh.deployment.clone(), fresh.another().await);
        let instances = [deployment, other].map(|deployment| Arc::new(MongoProducts::new(deployment)));
        let phone = phone(UNITS);
        instances[0].insert(vec![phone.clone()]).await.unwrap();
        let open = Arc::new(AtomicBool::new(true));
        let sales = Arc::new(AtomicUsize::new(0));
        let mut buyers = JoinSet::new();
        for buyer in 0..16 {
            let (products, id, open) = (instances[buyer % 2].clone(), phone.id, open.clone());
            let sales = sales.clone();
            buyers.spawn(async move {
                let mut sold = 0;
                while open.load(Ordering::Relaxed) {
                    let hold = sale(1 + buyer as u64 % 3);
                    match products.hold(id, hold, now()).await.unwrap() {
                        HoldOutcome::Held => {}
                        HoldOutcome::Short { .. } | HoldOutcome::Full => continue,
                        other => panic!("{other:?}"),
                    }
                    let wins = buyer % 4 != 0;
                    let sale = if wins { Decision::Won(hold.attempt) } else { Decision::Lost };
                    let verdict = Verdict { sale, cancellation: Decision::Undecided };
                    assert!(products.settle(id, hold.order, verdict, now()).await.unwrap());
                    if wins {
                        sold += hold.quantity;
                        sales.fetch_add(1, Ordering::Relaxed);
                    }
                }
                sold
            });
        }
        let mut received = UNITS;
        for (round, count) in [4, 0, 8, 2, 0, 3].into_iter().enumerate() {
            instances[round % 2].stripe(phone.id, count, now()).await.unwrap();
            let restocked = instances[(round + 1) % 2]
                .change_stock(phone.id, msk(), StockChange::Delta(10), now())
                .await
                .unwrap();
            received += 10;
            let StockOutcome::Changed(stock) = restocked else { panic!("{restocked:?}") };
            assert_eq!(stock.received, received);
            assert_eq!(stored(&instances[0], &phone).await.stock[&msk()].received, received);
            let before = sales.load(Ordering::Relaxed);
            until("the sale goes on", async || sales.load(Ordering::Relaxed) >= before + SALES_PER_ROUND)
                .await;
        }
        open.store(false, Ordering::Relaxed);
        let mut sold = 0;
        while let Some(buyer) = buyers.join_next().await {
            sold += buyer.unwrap();
        }
        let stored = stored(&instances[0], &phone).await;
        let stock = stored.stock[&msk()];
        assert!(stored.holds.is_empty());
        assert_eq!((stock.sold, stock.available), (sold, received - sold));
    });
}

mod alone {
    use super::*;

    #[test]
    fn a_killed_primary_neither_loses_nor_doubles_a_unit_of_a_split_product() {
        const UNITS: u64 = 100_000;
        const HOLDS_MIN: usize = 32;
        let alone = alone();
        block_on(async {
            let fresh = fresh(alone.mongo, &[Entity::Products]).await;
            let products = Arc::new(MongoProducts::new(fresh.deployment.clone()));
            let phone = phone(UNITS);
            products.insert(vec![phone.clone()]).await.unwrap();
            products.stripe(phone.id, 8, now()).await.unwrap();
            let open = Arc::new(AtomicBool::new(true));
            let done = Arc::new(AtomicUsize::new(0));
            let mut buyers = JoinSet::new();
            for _ in 0..16 {
                let (products, open, id) = (products.clone(), open.clone(), phone.id);
                let done = done.clone();
                buyers.spawn(async move {
                    let (mut held, mut perhaps) = (Vec::new(), Vec::new());
                    while open.load(Ordering::Relaxed) {
                        let hold = sale(7);
                        match products.hold(id, hold, now()).await {
                            Ok(HoldOutcome::Held) => {
                                held.push(hold.order);
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            Ok(HoldOutcome::Full) => return (held, perhaps),
                            Ok(other) => panic!("{other:?}"),
                            Err(StoreError::Unknown { .. }) => perhaps.push(hold.order),
                            Err(StoreError::Unavailable { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                        sleep(Duration::from_millis(150)).await;
                    }
                    (held, perhaps)
                });
            }
            sleep(Duration::from_secs(1)).await;
            let primary = tokio::task::block_in_place(|| alone.mongo.wait_primary()).unwrap();
            tokio::task::block_in_place(|| alone.mongo.kill(primary)).unwrap();
            tokio::task::block_in_place(|| alone.mongo.wait_primary()).unwrap();
            sleep(Duration::from_secs(1)).await;
            tokio::task::block_in_place(|| alone.mongo.start_member(primary)).unwrap();
            tokio::task::block_in_place(|| alone.mongo.wait_ready()).unwrap();
            until("the sale goes on", async || done.load(Ordering::Relaxed) > HOLDS_MIN).await;
            open.store(false, Ordering::Relaxed);
            let (mut held, mut perhaps) = (Vec::new(), Vec::new());
            while let Some(buyer) = buyers.join_next().await {
                let told = buyer.unwrap();
                held.extend(told.0);
                perhaps.extend(told.1);
            }
            let stored = stored(&products, &phone).await;
            let mut orders: Vec<_> = stored.holds.iter().map(|hold| hold.order).collect();
            orders.sort_unstable();
            orders.dedup();
            assert_eq!(orders.len(), stored.holds.len(), "no order is held twice");
            assert!(
                held.iter().all(|order| orders.binary_search(order).is_ok()),
                "acknowledged holds are there"
            );
            assert!(orders.iter().all(|order| held.contains(order) || perhaps.contains(order)));
            assert_eq!(stored.stock[&msk()].received, UNITS);
            assert!(held.len() > HOLDS_MIN, "the sale went on: {}", held.len());
        });
    }
}
