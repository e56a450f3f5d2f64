use mobimir_core::{
    cart::{self, CartChange, Effect, Owner, StoredCart, UNPACKED_CHANGES_MAX},
    product::QUANTITY_MAX,
    time::Timestamp,
};

use super::{Bench, Checked, DAY_MS, Failure, HOUR_MS, Suite, answered, owner_of, pages};

pub(super) fn conform(suite: &Suite) {
    suite.example("CRT-3: an expired cart is gone and starts anew", expiry);
    suite.example("a cart lasts as long as the longest that was asked for", longest_expiry);
    suite.example("carts untouched at the same moment are all listed", equal_times);
    suite.example("a cart of the largest quantities adds up", largest_quantities);
}

fn add(bench: &Bench, owner: Owner, n: usize, quantity: u64, at: Timestamp) -> CartChange {
    let effect = Effect::Add { product: bench.universe.product(0), quantity, zone: None };
    CartChange { id: bench.universe.change(n), at, origin: owner, keyed: true, effect }
}

async fn read(bench: &Bench, owner: Owner, now: Timestamp) -> Result<Option<StoredCart>, Failure> {
    answered(bench.store.carts.read(owner, now).await)
}

async fn expiry(bench: &Bench) -> Checked {
    let (carts, start) = (&bench.store.carts, bench.universe.start);
    for owner in [owner_of(&bench.universe, 0), owner_of(&bench.universe, super::USERS)] {
        let expires_at = start.plus_ms(HOUR_MS);
        for n in 0..UNPACKED_CHANGES_MAX * 2 {
            answered(carts.append(owner, vec![add(bench, owner, n, 1, start)], expires_at, start).await)?;
        }
        let is_there = async || read(bench, owner, expires_at.plus_ms(-1)).await.map(|cart| cart.is_some());
        bench.sees("a cart is there until it expires", true, is_there).await?;
        for now in [expires_at, expires_at.plus_ms(1)] {
            bench.sees("an expired cart", None, async || read(bench, owner, now).await).await?;
            let is_listed = async || -> Result<bool, Failure> {
                let listed = pages(20, None, async |after| carts.untouched(now, after, 20, now).await);
                Ok(listed.await?.iter().any(|(listed, _)| *listed == owner))
            };
            bench.sees("expired carts in the list", false, is_listed).await?;
        }
        // Begins anew, also for changes that were in the cart before.
        let again = add(bench, owner, 0, 1, expires_at);
        let later = expires_at.plus_ms(DAY_MS);
        answered(carts.append(owner, vec![again], later, expires_at).await)?;
        let seen = async || -> Result<_, Failure> {
            let anew = read(bench, owner, expires_at).await?;
            Ok(anew.map(|cart| {
                let quantity = cart::fold(&cart.changes).quantity(bench.universe.product(0));
                (quantity, cart.created_at, cart.updated_at, cart.expires_at)
            }))
        };
        bench.sees("a cart that began anew", Some((1, expires_at, expires_at, later)), seen).await?;
    }
    Ok(())
}

async fn longest_expiry(bench: &Bench) -> Checked {
    let (carts, start) = (&bench.store.carts, bench.universe.start);
    let owner = owner_of(&bench.universe, 0);
    for (n, days) in [7, 30, 1].into_iter().enumerate() {
        let change = add(bench, owner, n, 1, start);
        answered(carts.append(owner, vec![change], start.plus_ms(days * DAY_MS), start).await)?;
    }
    let later = start.plus_ms(29 * DAY_MS);
    let expires_at = async || read(bench, owner, later).await.map(|cart| cart.map(|cart| cart.expires_at));
    bench.sees("expires_at", Some(start.plus_ms(30 * DAY_MS)), expires_at).await
}

async fn equal_times(bench: &Bench) -> Checked {
    let (carts, start) = (&bench.store.carts, bench.universe.start);
    const CARTS: usize = 7;
    let owners: Vec<Owner> = (0..CARTS)
        .flat_map(|n| [Owner::User(bench.universe.user(n)), Owner::Guest(bench.universe.session(n))])
        .collect();
    for (n, owner) in owners.iter().enumerate() {
        let change = add(bench, *owner, n, 1, start);
        answered(carts.append(*owner, vec![change], start.plus_ms(DAY_MS), start).await)?;
    }
    let mut expected = owners;
    expected.sort_by_key(|owner| cart::CartPosition::of(*owner, start).key());
    let untouched = async |since: Timestamp, limit: usize| -> Result<Vec<Owner>, Failure> {
        let listed = pages(limit, None, async |after| carts.untouched(since, after, limit, start).await);
        Ok(listed.await?.into_iter().map(|(owner, _)| owner).collect())
    };
    for limit in [1, 2, 3, CARTS * 2, 100] {
        let what = format!("carts by pages of {limit}");
        bench.sees(what, expected.clone(), async || untouched(start, limit).await).await?;
    }
    let earlier = async || untouched(start.plus_ms(-1), 20).await;
    bench.sees("carts untouched since before they were touched", Vec::new(), earlier).await
}

async fn largest_quantities(bench: &Bench) -> Checked {
    let (carts, start) = (&bench.store.carts, bench.universe.start);
    let owner = owner_of(&bench.universe, 0);
    const LINES: usize = 200;
    let changes: Vec<CartChange> = (0..LINES).map(|n| add(bench, owner, n, QUANTITY_MAX, start)).collect();
    answered(carts.append(owner, changes, start.plus_ms(DAY_MS), start).await)?;
    let sum = async || -> Result<_, Failure> {
        let cart = read(bench, owner, start).await?;
        Ok(cart.map(|cart| cart::fold(&cart.changes).quantity(bench.universe.product(0))))
    };
    bench.sees("200 times the largest quantity", Some(LINES as u64 * QUANTITY_MAX), sum).await
}
