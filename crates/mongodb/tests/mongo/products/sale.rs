//! STK-1 and STK-2 with many buyers at once, and a hold that is sent twice.

use std::sync::Arc;

use mobimir_core::{
    policy::Entity,
    ports::ProductStore,
    product::{Decision, HoldOutcome, Verdict},
};
use mobimir_mongodb::MongoProducts;
use tokio::task::JoinSet;

use super::{block_on, msk, now, phone, sale};
use crate::support::{fresh, shared};

const BUYERS: u64 = 64;

/// Two instances, half of the buyers on each; each buys until it is told that there is nothing left.
#[test]
fn sixty_four_buyers_sell_a_product_out_and_not_further() {
    const UNITS: u64 = 200;
    let shared = shared();
    block_on(async {
        let fresh = fresh(shared.mongo, &[Entity::Products]).await;
        let (deployment, other) = (fresh.deployment.clone(), fresh.another().await);
        let instances = [deployment, other].map(|deployment| Arc::new(MongoProducts::new(deployment)));
        let phone = phone(UNITS);
        instances[0].insert(vec![phone.clone()]).await.unwrap();
        let mut buyers = JoinSet::new();
        for buyer in 0..BUYERS {
            let (products, id) = (instances[buyer as usize % 2].clone(), phone.id);
            buyers.spawn(async move {
                let (mut held, mut sold) = (0, 0);
                loop {
                    let hold = sale(buyer % 3 + 1);
                    match products.hold(id, hold, now()).await.unwrap() {
                        HoldOutcome::Held => held += 1,
                        HoldOutcome::Short { available } => {
                            assert!(available < hold.quantity);
                            return (held, sold);
                        }
                        HoldOutcome::Full => continue,
                        other => panic!("{other:?}"),
                    }
                    // Every third is given up again.
                    let wins = held % 3 != 0;
                    let sale = if wins { Decision::Won(hold.attempt) } else { Decision::Lost };
                    let verdict = Verdict { sale, cancellation: Decision::Undecided };
                    assert!(products.settle(id, hold.order, verdict, now()).await.unwrap());
                    assert!(!products.settle(id, hold.order, verdict, now()).await.unwrap());
                    sold += if wins { hold.quantity } else { 0 };
                }
            });
        }
        let mut sold = 0;
        while let Some(buyer) = buyers.join_next().await {
            sold += buyer.unwrap().1;
        }
        let stored = instances[1].get(phone.id).await.unwrap().unwrap();
        let stock = stored.stock[&msk()];
        assert!(stored.books_balance() && stored.holds.is_empty(), "{stored:?}");
        assert_eq!((stock.sold, stock.available), (sold, UNITS - sold));
        // Somebody who wants one unit gave up only when there was none; what came back later may be left.
        assert!(sold + BUYERS >= UNITS, "{sold} of {UNITS} sold");
    });
}
