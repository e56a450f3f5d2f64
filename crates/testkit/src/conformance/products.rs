//! Products: the catalogue with its lists, the stock with its holds, and the checkout records.

mod examples;
mod machine;
mod races;
mod steps;

use mobimir_core::{
    checkout::{Checkout, CheckoutState, Fate},
    id::ProductId,
    money::Money,
    product::{Hold, HoldKind, Product, ProductQuery},
    time::Timestamp,
};

use super::{
    Suite,
    arena::{Bench, first_version, zone},
    check::{Checked, Failure, answered, holds, pages, race, same, same_beginning},
};

pub(super) fn conform(suite: &Suite) {
    suite.compare_with_model("products", steps::step(), machine::run);
    races::conform(suite);
    examples::conform(suite);
}

/// A product of this universe with stock in the first zone.
fn product(bench: &Bench, n: usize, units: u64) -> Product {
    let universe = &bench.universe;
    let stock = [(zone(0), units)].into();
    let name = format!("{} {n}", universe.word);
    Product::new(
        universe.product(n),
        name,
        universe.word.clone(),
        Money::from_kopecks(100),
        [].into(),
        stock,
        universe.start,
    )
    .expect("this is a product")
}

/// A hold on stock in the first zone.
fn hold(bench: &Bench, order: usize, attempt: usize, quantity: u64) -> Hold {
    Hold {
        order: bench.universe.order(order),
        attempt: bench.universe.attempt(attempt),
        kind: HoldKind::Sale,
        zone: zone(0),
        quantity,
        placed_at: bench.universe.start,
    }
}

fn checkout(bench: &Bench, n: usize) -> Checkout {
    let now = bench.universe.start;
    Checkout {
        order_id: bench.universe.order(n),
        user_id: bench.universe.user(0),
        request_hash: [0; 32],
        geo_zone: zone(0),
        lines: Vec::new(),
        shipping_address: None,
        payment_method: None,
        cart: None,
        created_at: now,
        deadline: now.plus_s(15),
        bucket: 0,
        state: CheckoutState::Open,
        fate: Fate::InStore,
        due_at: Some(now.plus_s(15)),
        version: first_version(now),
    }
}

/// The product as it is stored, its books balanced (STK-1, STK-2).
async fn stored(bench: &Bench, n: usize) -> Result<Product, Failure> {
    let stored = answered(bench.store.products.get(bench.universe.product(n)).await)?;
    let Some(stored) = stored else { return Err(Failure::Differs("the product is not there".to_owned())) };
    holds(format!("STK-1 for {stored:?}"), stored.books_balance())?;
    Ok(Product::clone(&stored))
}

/// All that a question finds, in pages of `limit`.
async fn listed(bench: &Bench, query: &ProductQuery, limit: usize) -> Result<Vec<Product>, Failure> {
    let found = pages(limit, query.after.clone(), async |after| {
        bench.store.products.list(ProductQuery { after, limit, ..query.clone() }).await
    });
    Ok(found.await?.iter().map(|product| Product::clone(product)).collect())
}

/// All products with holds placed before, in pages of `limit`.
async fn with_holds(bench: &Bench, placed_before: Timestamp, limit: usize) -> Result<Vec<Product>, Failure> {
    let mut found: Vec<Product> = Vec::new();
    let mut after: Option<ProductId> = None;
    loop {
        let page = answered(bench.store.products.with_holds(placed_before, after, limit).await)?;
        holds("a page is not longer than asked for", page.len() <= limit)?;
        let full = page.len() == limit;
        found.extend(page.iter().map(|product| Product::clone(product)));
        after = found.last().map(|product| product.id);
        if !full {
            return Ok(found);
        }
    }
}
