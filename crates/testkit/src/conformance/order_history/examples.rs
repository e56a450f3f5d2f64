use mobimir_core::{
    checkout::{ADDRESS_CHARS_MAX, LINES_MAX},
    money::PRICE_MAX,
    order::{Order, OrderLine},
    ports::Period,
    product::{NAME_CHARS_MAX, QUANTITY_MAX},
    time::{Timestamp, Version},
};

use super::{
    Bench, Checked, DAY_MS, Suite, answered, history, pages,
    races::{order, versions},
};

pub(super) fn conform(suite: &Suite) {
    suite.example("a newer version replaces an older, never the other way", newest_version);
    suite.example("equal times are ordered by rising id", equal_times);
    suite.example("a history runs through years, newest first", years);
    suite.example("a period takes its beginning and not its end", periods);
    suite.example("the largest order comes back whole", largest_order);
    suite.example("nothing is known of a user who ordered nothing", nobody);
}

fn made_at(bench: &Bench, n: usize, created_at: Timestamp) -> Order {
    let version = Version::default().next(created_at);
    Order { created_at, updated_at: created_at, version, ..order(bench, n) }
}

async fn newest_version(bench: &Bench) -> Checked {
    let versions = versions(bench, 0);
    let all = async || history(bench, Period::default()).await;
    for (written, stands) in [(1, 1), (0, 1), (1, 1), (2, 2), (0, 2)] {
        answered(bench.store.append(vec![versions[written].clone()]).await)?;
        let what = format!("the history after version {written} was written");
        bench.sees(what, vec![versions[stands].clone()], all).await?;
    }
    // In one call, the newest neither first nor last.
    let mixed: Vec<Order> = [2, 0, 3, 1].map(|n| versions[n].clone()).into();
    answered(bench.store.append(mixed).await)?;
    bench.sees("the history after several versions at once", vec![versions[3].clone()], all).await
}

async fn equal_times(bench: &Bench) -> Checked {
    const ORDERS: usize = 12;
    let (store, user) = (&bench.store, bench.universe.user(0));
    let mut expected: Vec<Order> = (0..ORDERS).map(|n| order(bench, n)).collect();
    answered(store.append(expected.clone()).await)?;
    expected.sort_by_key(|order| order.id);
    for limit in [1, 5, ORDERS, 100] {
        let all = Period::default();
        let listed =
            async || pages(limit, None, async |after| store.by_user(user, all, after, limit).await).await;
        bench.sees(format!("by pages of {limit}"), expected.clone(), listed).await?;
    }
    Ok(())
}

/// Orders days apart, so that a page begins in one month, or whatever a history is cut into, and ends in another.
async fn years(bench: &Bench) -> Checked {
    const ORDERS: usize = 40;
    const DAYS_APART: i64 = 20;
    let (store, user) = (&bench.store, bench.universe.user(0));
    let made = |n: usize| made_at(bench, n, bench.universe.start.plus_ms(-(n as i64) * DAYS_APART * DAY_MS));
    let expected: Vec<Order> = (0..ORDERS).map(made).collect();
    answered(store.append(expected.clone()).await)?;
    for limit in [1, 7, 100] {
        let all = Period::default();
        let listed =
            async || pages(limit, None, async |after| store.by_user(user, all, after, limit).await).await;
        bench.sees(format!("by pages of {limit}"), expected.clone(), listed).await?;
    }
    let (from, to) = (expected[30].created_at, expected[10].created_at);
    let period = Period { from: Some(from), to: Some(to) };
    bench.sees("part of it", expected[11..=30].to_vec(), async || history(bench, period).await).await
}

async fn periods(bench: &Bench) -> Checked {
    let midnight = bench.universe.start.plus_ms(DAY_MS);
    let before = made_at(bench, 0, midnight.plus_ms(-1));
    let after = made_at(bench, 1, midnight);
    answered(bench.store.append(vec![before.clone(), after.clone()]).await)?;
    let expectations = [
        (Period { from: None, to: Some(midnight) }, vec![before.clone()]),
        (Period { from: Some(midnight), to: None }, vec![after.clone()]),
        (Period { from: Some(midnight), to: Some(midnight) }, Vec::new()),
        (Period { from: Some(midnight.plus_ms(1)), to: None }, Vec::new()),
        (Period { from: Some(before.created_at), to: Some(midnight.plus_ms(1)) }, vec![after, before]),
    ];
    for (period, expected) in expectations {
        let listed = async || history(bench, period).await;
        bench.sees(format!("orders in {period:?}"), expected, listed).await?;
    }
    Ok(())
}

async fn largest_order(bench: &Bench) -> Checked {
    let line = |n: usize| OrderLine {
        product_id: bench.universe.product(n),
        name: "😀".repeat(NAME_CHARS_MAX),
        category: "Ё".repeat(100),
        price: PRICE_MAX,
        quantity: QUANTITY_MAX,
    };
    let large = Order {
        lines: (0..LINES_MAX).map(line).collect(),
        shipping_address: Some("д".repeat(ADDRESS_CHARS_MAX)),
        payment_method: Some("наличными; \"при получении\"".into()),
        bucket: u16::MAX,
        ..order(bench, 0)
    };
    answered(bench.store.append(vec![large.clone()]).await)?;
    bench.sees("the order", vec![large], async || history(bench, Period::default()).await).await
}

async fn nobody(bench: &Bench) -> Checked {
    answered(bench.store.append(Vec::new()).await)?;
    bench.sees("the history", Vec::new(), async || history(bench, Period::default()).await).await
}
