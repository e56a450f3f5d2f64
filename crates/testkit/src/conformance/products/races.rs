use mobimir_core::{
    checkout::{AbortReason, Checkout},
    id::OrderId,
    product::{Decision, Hold, HoldKind, HoldOutcome, ProductEdit, StockChange, Verdict},
};

use super::{Bench, Checked, Failure, Suite, answered, checkout, hold, product, race, same, stored, zone};
use crate::conformance::check::RACERS;

pub(super) fn conform(suite: &Suite) {
    suite.race("STK-2 (scarce stock, many orders)", scarce_stock);
    suite.race("STK-1 (one run holds many times)", one_run_holds_once);
    suite.race("STK-1 (settled by many)", settled_by_many);
    suite.race("STK-1 (holds beside restocking and edits)", holds_beside_restocking);
    suite.race("one product an id", one_product_an_id);
    suite.race("ORD-2 (one checkout an id)", one_checkout_an_id);
    suite.race("one decision (commit or abort)", one_decision);
    suite.race("one claim of a cart", one_claim);
}

async fn scarce_stock(bench: &Bench) -> Checked {
    const UNITS: u64 = 20;
    const EACH: u64 = 3;
    let (products, now) = (&bench.store.products, bench.universe.start);
    let phone = product(bench, 0, UNITS);
    answered(products.insert(vec![phone.clone()]).await)?;
    let outcomes = race(RACERS, |caller| {
        let (products, hold) = (products.clone(), hold(bench, caller, caller, EACH));
        async move { products.hold(phone.id, hold, now).await }
    })
    .await?;
    let held = outcomes.iter().filter(|outcome| **outcome == HoldOutcome::Held).count();
    let short = outcomes.iter().filter(|outcome| matches!(outcome, HoldOutcome::Short { .. })).count();
    same("orders that got units and that did not", (held, short), (6, RACERS - 6))?;
    let figures = async || {
        let stock = stored(bench, 0).await.map(|product| product.stock[&zone(0)]);
        stock.map(|stock| (stock.available, stock.reserved))
    };
    bench.sees("available and reserved", (2, 18), figures).await
}

async fn one_run_holds_once(bench: &Bench) -> Checked {
    let (products, now) = (&bench.store.products, bench.universe.start);
    let phone = product(bench, 0, 1_000);
    answered(products.insert(vec![phone.clone()]).await)?;
    let outcomes = race(RACERS, |_| {
        let (products, hold) = (products.clone(), hold(bench, 0, 0, 2));
        async move { products.hold(phone.id, hold, now).await }
    })
    .await?;
    let held = outcomes.iter().filter(|outcome| **outcome == HoldOutcome::Held).count();
    let repeated = outcomes.iter().filter(|outcome| **outcome == HoldOutcome::AlreadyHeld).count();
    same("holds that counted and that did not", (held, repeated), (1, RACERS - 1))?;
    let seen = async || stored(bench, 0).await.map(|product| (product.available_in(zone(0)), product.holds));
    bench.sees("available and holds", (998, vec![hold(bench, 0, 0, 2)]), seen).await
}

/// Each order has two runs, of which one counts, and is settled by four callers; half are cancelled again.
async fn settled_by_many(bench: &Bench) -> Checked {
    const ORDERS: usize = 16;
    let (products, now) = (&bench.store.products, bench.universe.start);
    let phone = product(bench, 0, 100);
    answered(products.insert(vec![phone.clone()]).await)?;
    for order in 0..ORDERS {
        for attempt in 0..2 {
            let sale = hold(bench, order, attempt, 1);
            answered(products.hold(phone.id, sale, now).await)?;
            if order % 2 == 0 {
                let back = Hold { kind: HoldKind::Return, ..sale };
                answered(products.hold(phone.id, back, now).await)?;
            }
        }
    }
    let verdict = Verdict {
        sale: Decision::Won(bench.universe.attempt(1)),
        cancellation: Decision::Won(bench.universe.attempt(0)),
    };
    let settled = race(RACERS, |caller| {
        let (products, order) = (products.clone(), bench.universe.order(caller % ORDERS));
        async move { products.settle(phone.id, order, verdict, now).await }
    })
    .await?;
    same("callers who settled something", settled.into_iter().filter(|did| *did).count(), ORDERS)?;
    let figures = async || -> Result<_, Failure> {
        let product = stored(bench, 0).await?;
        let stock = product.stock[&zone(0)];
        Ok((product.holds.len(), stock.available, stock.reserved, stock.sold))
    };
    bench.sees("holds that are left, available, reserved, sold", (0, 92, 0, 8), figures).await
}

async fn holds_beside_restocking(bench: &Bench) -> Checked {
    let (products, now) = (&bench.store.products, bench.universe.start);
    let phone = product(bench, 0, 100);
    let id = phone.id;
    answered(products.insert(vec![phone]).await)?;
    race(RACERS, |caller| {
        let (products, hold) = (products.clone(), hold(bench, caller, caller, 1));
        async move {
            match caller % 4 {
                0 => products.change_stock(id, hold.zone, StockChange::Delta(1), now).await.map(|_| ()),
                1 => {
                    let price = mobimir_core::money::Money::from_kopecks(caller as i128);
                    let edit = ProductEdit { price: Some(price), ..ProductEdit::default() };
                    products.edit(id, edit, now).await.map(|_| ())
                }
                _ => products.hold(id, hold, now).await.map(|_| ()),
            }
        }
    })
    .await?;
    let figures = async || {
        let stock = stored(bench, 0).await.map(|product| product.stock[&zone(0)]);
        stock.map(|stock| (stock.received, stock.available, stock.reserved))
    };
    bench.sees("received, available, reserved", (116, 84, 32), figures).await
}

async fn one_product_an_id(bench: &Bench) -> Checked {
    let products = &bench.store.products;
    let inserted = race(RACERS, |caller| {
        let (products, product) = (products.clone(), product(bench, 0, caller as u64));
        async move { products.insert(vec![product]).await }
    })
    .await?;
    same("products that were new", inserted.iter().sum(), 1)
}

async fn one_checkout_an_id(bench: &Bench) -> Checked {
    let products = &bench.store.products;
    let answers = race(RACERS, |caller| {
        let checkout = Checkout { bucket: caller as u16, ..checkout(bench, 0) };
        let products = products.clone();
        async move { Ok((checkout.clone(), products.insert_checkout(checkout).await?)) }
    })
    .await?;
    let winners: Vec<&Checkout> =
        answers.iter().filter(|(_, existing)| existing.is_none()).map(|(mine, _)| mine).collect();
    same("inserts that won", winners.len(), 1)?;
    for (_, existing) in &answers {
        let found = existing.as_ref().unwrap_or(winners[0]);
        same("what everybody else found", found, winners[0])?;
    }
    let record = async || products.get_checkout(winners[0].order_id).await;
    bench.sees("the record", Some(winners[0].clone()), record).await
}

async fn one_claim(bench: &Bench) -> Checked {
    let (products, user) = (&bench.store.products, bench.universe.user(0));
    let mut last = None;
    for round in 0..2 {
        let answers = race(RACERS, |caller| {
            let (products, order) = (products.clone(), bench.universe.order(round * RACERS + caller));
            async move { Ok((order, products.claim_cart(user, last, order).await?)) }
        })
        .await?;
        let winners: Vec<OrderId> =
            answers.into_iter().filter(|(_, won)| *won).map(|(order, _)| order).collect();
        same("claims that won", winners.len(), 1)?;
        let holder = async || products.cart_claim(user).await;
        bench.sees("who holds the claim", winners.first().copied(), holder).await?;
        last = winners.first().copied();
    }
    Ok(())
}

async fn one_decision(bench: &Bench) -> Checked {
    let (products, now) = (&bench.store.products, bench.universe.start);
    let open = checkout(bench, 0);
    answered(products.insert_checkout(open.clone()).await)?;
    let answers = race(RACERS, |caller| {
        let decided = match caller % 2 {
            0 => open.commit(bench.universe.attempt(caller), now),
            _ => open.abort(AbortReason::Expired, now),
        };
        let decided = decided.expect("an open checkout can be decided either way");
        let (products, expected) = (products.clone(), open.version);
        async move { Ok((decided.clone(), products.update_checkout(decided, expected).await?)) }
    })
    .await?;
    let winners: Vec<Checkout> =
        answers.into_iter().filter(|(_, won)| *won).map(|(decided, _)| decided).collect();
    same("decisions that won", winners.len(), 1)?;
    let record = async || products.get_checkout(open.order_id).await;
    bench.sees("the record", winners.first().cloned(), record).await
}
