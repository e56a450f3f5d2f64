use std::sync::Arc;

use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    ports::CartStore,
    time::Timestamp,
};

use super::{Bench, Checked, Failure, HOUR_MS, Suite, answered, owner_of, race};
use crate::conformance::check::RACERS;

/// Far more than are kept unpacked.
const MANY_CHANGES: usize = 400;

pub(super) fn conform(suite: &Suite) {
    suite.race("CRT-1 (64 parallel adds)", async |bench| parallel_adds(bench, RACERS, 1).await);
    suite.race("CRT-1 (adds beside packing)", async |bench| {
        parallel_adds(bench, RACERS, MANY_CHANGES / RACERS).await
    });
    suite.race("CRT-1 (each change arrives twice)", repeated_adds);
    suite.race("CRT-1 (adds beside a clear)", adds_beside_a_clear);
}

fn add(bench: &Bench, owner: Owner, n: usize, at: Timestamp) -> CartChange {
    let product = bench.universe.product(0);
    let effect = Effect::Add { product, quantity: 1, zone: None };
    CartChange { id: bench.universe.change(n), at, origin: owner, keyed: false, effect }
}

async fn quantity(carts: &Arc<dyn CartStore>, bench: &Bench, owner: Owner) -> Result<u64, Failure> {
    let cart = answered(carts.read(owner, bench.universe.start.plus_ms(1)).await)?;
    Ok(cart.map_or(0, |cart| cart::fold(&cart.changes).quantity(bench.universe.product(0))))
}

/// Every caller adds `each` times 1, one after the other.
async fn parallel_adds(bench: &Bench, callers: usize, each: usize) -> Checked {
    let (carts, now) = (&bench.store.carts, bench.universe.start);
    for owner in [owner_of(&bench.universe, 0), owner_of(&bench.universe, super::USERS)] {
        race(callers, |caller| {
            let adds: Vec<_> = (0..each).map(|n| add(bench, owner, caller * each + n, now)).collect();
            let carts = carts.clone();
            async move {
                for change in adds {
                    carts.append(owner, vec![change], now.plus_ms(HOUR_MS), now).await?;
                }
                Ok(())
            }
        })
        .await?;
        let what = format!("{callers} times {each} parallel adds of 1");
        bench.sees(what, (callers * each) as u64, async || quantity(carts, bench, owner).await).await?;
    }
    Ok(())
}

async fn repeated_adds(bench: &Bench) -> Checked {
    let (carts, now) = (&bench.store.carts, bench.universe.start);
    let owner = owner_of(&bench.universe, 0);
    race(RACERS, |caller| {
        let (carts, change) = (carts.clone(), add(bench, owner, caller / 2, now));
        async move { carts.append(owner, vec![change], now.plus_ms(HOUR_MS), now).await }
    })
    .await?;
    let sum = async || quantity(carts, bench, owner).await;
    bench.sees("64 parallel adds, each of which comes twice", RACERS as u64 / 2, sum).await
}

async fn adds_beside_a_clear(bench: &Bench) -> Checked {
    let (carts, now) = (&bench.store.carts, bench.universe.start);
    let owner = owner_of(&bench.universe, 0);
    let seen = add(bench, owner, RACERS, now);
    answered(carts.append(owner, vec![seen.clone()], now.plus_ms(HOUR_MS), now).await)?;
    race(RACERS, |caller| {
        let mut change = add(bench, owner, caller, now);
        if caller == 0 {
            change.effect = Effect::Cover { covers: vec![seen.id], order: None };
        }
        let carts = carts.clone();
        async move { carts.append(owner, vec![change], now.plus_ms(HOUR_MS), now).await }
    })
    .await?;
    let sum = async || quantity(carts, bench, owner).await;
    bench.sees("63 adds beside a clear of what was there before", RACERS as u64 - 1, sum).await
}
