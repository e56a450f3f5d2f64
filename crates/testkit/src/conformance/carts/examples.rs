use std::time::Duration;

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
    suite.example("what was added under a key can be covered by its id hours later", covered_by_key);
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

/// The cart is packed again and again in the meantime, by stores that do so when it is read or written.
async fn covered_by_key(bench: &Bench) -> Checked {
    /// So that a store which packs in the background comes to do it.
    const PAUSE: Duration = Duration::from_millis(50);
    const ROUNDS: usize = 3;
    const ADDS: usize = UNPACKED_CHANGES_MAX * 2;
    let (carts, start) = (&bench.store.carts, bench.universe.start);
    let (owner, expires_at) = (owner_of(&bench.universe, 0), start.plus_ms(30 * DAY_MS));
    let (filler, wanted) = (bench.universe.product(0), bench.universe.product(1));
    let effect = Effect::Add { product: wanted, quantity: 3, zone: None };
    let keyed = CartChange { effect, ..add(bench, owner, 0, 3, start) };
    answered(carts.append(owner, vec![keyed.clone()], expires_at, start).await)?;
    let mut now = start;
    for round in 0..ROUNDS {
        let fill =
            (1..=ADDS).map(|n| CartChange { keyed: false, ..add(bench, owner, round * ADDS + n, 1, now) });
        answered(carts.append(owner, fill.collect(), expires_at, now).await)?;
        tokio::time::sleep(PAUSE).await;
        read(bench, owner, now).await?;
        tokio::time::sleep(PAUSE).await;
        now = now.plus_ms(3 * HOUR_MS);
    }
    let effect = Effect::Cover { covers: vec![keyed.id], order: None };
    let cover = CartChange { effect, ..add(bench, owner, ROUNDS * ADDS + 1, 1, now) };
    answered(carts.append(owner, vec![cover], expires_at, now).await)?;
    let quantities = async || -> Result<_, Failure> {
        let view = read(bench, owner, now).await?.map(|cart| cart::fold(&cart.changes)).unwrap_or_default();
        Ok((view.quantity(filler), view.quantity(wanted)))
    };
    bench.sees("what is left in the cart", ((ROUNDS * ADDS) as u64, 0), quantities).await
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
