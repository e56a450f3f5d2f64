use mobimir_core::{
    cart::{self, CartChange, Effect, Owner, StoredCart, UNPACKED_CHANGES_MAX},
    product::QUANTITY_MAX,
    time::Timestamp,
};

use super::{Bench, Checked, DAY_MS, HOUR_MS, Suite, TestCaseError, answered, owner_of, pages, same};

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

async fn read(bench: &Bench, owner: Owner, now: Timestamp) -> Result<Option<StoredCart>, TestCaseError> {
    answered(bench.store.carts.read(owner, now).await)
}

async fn expiry(bench: &Bench) -> Checked {
    let (carts, start) = (&bench.store.carts, bench.universe.start);
    for owner in [owner_of(&bench.universe, 0), owner_of(&bench.universe, super::USERS)] {
        let expires_at = start.plus_ms(HOUR_MS);
        for n in 0..UNPACKED_CHANGES_MAX * 2 {
            answered(carts.append(owner, vec![add(bench, owner, n, 1, start)], expires_at, start).await)?;
        }
        let before = read(bench, owner, expires_at.plus_ms(-1)).await?;
        same("a cart is there until it expires", before.is_some(), true)?;
        for now in [expires_at, expires_at.plus_ms(1)] {
            same("an expired cart", read(bench, owner, now).await?, None)?;
            let listed = pages(20, None, async |after| carts.untouched(now, after, 20, now).await).await?;
            same("expired carts in the list", listed.iter().any(|(listed, _)| *listed == owner), false)?;
        }
        // Begins anew, also for changes that were in the cart before.
        let again = add(bench, owner, 0, 1, expires_at);
        let later = expires_at.plus_ms(DAY_MS);
        answered(carts.append(owner, vec![again], later, expires_at).await)?;
        let anew = read(bench, owner, expires_at).await?;
        let seen = anew.map(|cart| {
            let view = cart::fold(&cart.changes);
            (view.quantity(bench.universe.product(0)), cart.created_at, cart.updated_at, cart.expires_at)
        });
        same("a cart that began anew", seen, Some((1, expires_at, expires_at, later)))?;
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
    let cart = read(bench, owner, start.plus_ms(29 * DAY_MS)).await?;
    same("expires_at", cart.map(|cart| cart.expires_at), Some(start.plus_ms(30 * DAY_MS)))
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
    for limit in [1, 2, 3, CARTS * 2, 100] {
        let listed =
            pages(limit, None, async |after| carts.untouched(start, after, limit, start).await).await?;
        let listed: Vec<Owner> = listed.into_iter().map(|(owner, _)| owner).collect();
        same(format!("carts by pages of {limit}"), &listed, &expected)?;
    }
    let earlier = start.plus_ms(-1);
    let none = pages(20, None, async |after| carts.untouched(earlier, after, 20, start).await).await?;
    same("carts untouched since before they were touched", none, Vec::new())
}

async fn largest_quantities(bench: &Bench) -> Checked {
    let (carts, start) = (&bench.store.carts, bench.universe.start);
    let owner = owner_of(&bench.universe, 0);
    const LINES: usize = 200;
    let changes: Vec<CartChange> = (0..LINES).map(|n| add(bench, owner, n, QUANTITY_MAX, start)).collect();
    answered(carts.append(owner, changes, start.plus_ms(DAY_MS), start).await)?;
    let cart = read(bench, owner, start).await?;
    let sum = cart.map(|cart| cart::fold(&cart.changes).quantity(bench.universe.product(0)));
    same("200 times the largest quantity", sum, Some(LINES as u64 * QUANTITY_MAX))
}
