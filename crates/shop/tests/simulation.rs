//! Several instances of the shop over the same stores, each slow or crashing at random, and time that moves in jumps:
//! whatever happens, the books balance in the end and everybody was told the truth. A failure names its seed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mobimir_core::{
    id::{OrderId, UserId},
    order::OrderStatus,
};
use mobimir_shop::{
    MoveOrderError, PlaceOrderError, Shop,
    faults::{Fault, Faults},
};
use support::World;

const SEEDS_DEFAULT: u64 = 400;
const BUYERS: u64 = 6;
const KEYS_PER_BUYER: u64 = 3;

/// SplitMix64: repeatable, and good enough to be unfair in many ways.
#[derive(Clone)]
struct Chance(Arc<AtomicU64>);

impl Chance {
    fn of(&self, n: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

#[test]
fn the_truth_survives_slow_and_crashing_instances() {
    let seeds =
        std::env::var("MOBIMIR_SIMULATION_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS_DEFAULT);
    let only = std::env::var("MOBIMIR_SIMULATION_SEED").ok().and_then(|n| n.parse::<u64>().ok());
    for seed in only.map_or(0..seeds, |seed| seed..seed + 1) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(simulate(seed)));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("failed with MOBIMIR_SIMULATION_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

async fn simulate(seed: u64) {
    let chance = Chance(Arc::new(AtomicU64::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D))));
    let world = World::new();
    let products = Arc::new(world.products(3, 6).await);
    let instances: Vec<Shop> = (0..3)
        .map(|_| {
            let chance = chance.clone();
            world.shop(Faults::planned(move |_| match chance.of(12) {
                0 => Fault::Stop,
                1..=4 => Fault::Pause { turns: chance.of(40) as u32 },
                _ => Fault::None,
            }))
        })
        .collect();

    let mut people = Vec::new();
    for _ in 0..BUYERS {
        let user = world.user();
        for key in 0..KEYS_PER_BUYER {
            // Each key is tried by two at once, on different instances.
            for _ in 0..2 {
                let (chance, shop) = (chance.clone(), instances[chance.of(3) as usize].clone());
                let request = world.order_of(&products[..1 + (key as usize % 3)], 1 + key % 2);
                people.push(tokio::spawn(async move {
                    buy(&chance, &shop, user, &key.to_string(), request).await
                }));
            }
        }
    }
    for _ in 0..4 {
        let (chance, shop, clock) =
            (chance.clone(), instances[chance.of(3) as usize].clone(), world.clock.clone());
        people.push(tokio::spawn(async move {
            for _ in 0..6 {
                pause(&chance).await;
                match chance.of(4) {
                    0 => clock.advance_ms(chance.of(25_000) as i64),
                    1 => drop(shop.reconcile().await),
                    _ => meddle(&chance, &shop).await,
                }
            }
            None
        }));
    }
    let mut told = HashMap::new();
    for person in people {
        if let Some((order, placed)) = person.await.unwrap() {
            let before = told.insert(order, placed);
            assert!(before.is_none_or(|before| before == placed), "one key was told two things");
        }
    }

    // All crash; one starts anew, and time passes.
    let shop = world.shop(Faults::none());
    for _ in 0..3 {
        world.clock.advance_ms(60_000);
        shop.reconcile().await;
        world.let_spawned_work_run().await;
    }
    world.check_settled(&shop).await;
    for (order, placed) in told {
        let found = shop.order(order).await.unwrap().is_some();
        assert_eq!(found, placed, "ORD-1: told {placed}, found {found}");
        if found {
            let history = shop.order_history(order).await.unwrap();
            let legal = history.windows(2).all(|pair| pair[0].status.can_become(pair[1].status));
            assert!(legal, "ORD-3: {history:?}");
        }
    }
}

async fn pause(chance: &Chance) {
    for _ in 0..chance.of(60) {
        tokio::task::yield_now().await;
    }
}

/// Places an order, maybe repeatedly; what the client was told in the end, if anything definite.
async fn buy(
    chance: &Chance,
    shop: &Shop,
    user: UserId,
    key: &str,
    request: mobimir_shop::OrderRequest,
) -> Option<(OrderId, bool)> {
    for _ in 0..1 + chance.of(3) {
        pause(chance).await;
        match shop.place_order(user, key, request.clone()).await {
            Ok(placed) => return Some((placed.order.id, true)),
            Err(PlaceOrderError::OutOfStock { .. } | PlaceOrderError::Expired) => {
                return Some((OrderId::of(user, key), false));
            }
            Err(PlaceOrderError::Stopped(_) | PlaceOrderError::InProgress) => {}
            Err(error) => panic!("{error}"),
        }
    }
    None
}

/// Moves some order of the day somewhere.
async fn meddle(chance: &Chance, shop: &Shop) {
    let day = shop.orders_of_day(shop.now().day(), Default::default(), None, 100).await.unwrap();
    if day.items.is_empty() {
        return;
    }
    let order = &day.items[chance.of(day.items.len() as u64) as usize];
    let to = [OrderStatus::Paid, OrderStatus::Shipped, OrderStatus::Cancelled, OrderStatus::Cancelled]
        [chance.of(4) as usize];
    match shop.move_order(order.id, to, "op").await {
        Ok(_) | Err(MoveOrderError::BadTransition { .. } | MoveOrderError::Stopped(_)) => {}
        Err(error) => panic!("{error}"),
    }
}
