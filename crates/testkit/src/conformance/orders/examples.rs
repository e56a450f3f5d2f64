use mobimir_core::{
    checkout::{ADDRESS_CHARS_MAX, LINES_MAX},
    id::OrderId,
    money::PRICE_MAX,
    order::{Order, OrderLine, OrderStatus, StatusChange},
    ports::{DayFilter, Period},
    product::{NAME_CHARS_MAX, QUANTITY_MAX},
    time::Version,
};

use super::{
    Bench, Checked, DAY_MS, Suite, answered, pages, races::order, same, whole_by_day, whole_by_user,
};

pub(super) fn conform(suite: &Suite) {
    suite.example("equal times are ordered by rising id", equal_times);
    suite.example("a day ends at midnight in UTC, for every bucket", days_and_buckets);
    suite.example("the largest order comes back whole", largest_order);
    suite.example("nothing is known of an order that is not there", unknown_order);
    suite.example("a move shows in every list", moves_show_everywhere);
}

async fn equal_times(bench: &Bench) -> Checked {
    const ORDERS: usize = 12;
    let orders = &bench.store.orders;
    let made: Vec<Order> = (0..ORDERS).map(|n| order(bench, n)).collect();
    answered(orders.insert(made.clone()).await)?;
    let mut expected: Vec<OrderId> = made.iter().map(|order| order.id).collect();
    expected.sort();
    let (user, day) = (made[0].user_id, made[0].day());
    for limit in [1, 5, ORDERS, 100] {
        let ids = |orders: Vec<Order>| orders.into_iter().map(|order| order.id).collect::<Vec<_>>();
        let by_user =
            pages(limit, None, async |after| orders.by_user(user, Period::default(), after, limit).await);
        same(format!("by user, pages of {limit}"), &ids(by_user.await?), &expected)?;
        let by_day =
            pages(limit, None, async |after| orders.by_day(day, DayFilter::default(), after, limit).await);
        same(format!("by day, pages of {limit}"), &ids(by_day.await?), &expected)?;
    }
    Ok(())
}

async fn days_and_buckets(bench: &Bench) -> Checked {
    let orders = &bench.store.orders;
    let midnight = bench.universe.start.plus_ms(DAY_MS);
    let mut made = Vec::new();
    for (n, bucket) in [0, 1, 99, u16::MAX].into_iter().enumerate() {
        for (at, created_at) in [midnight.plus_ms(-1), midnight].into_iter().enumerate() {
            let version = Version::default().next(created_at);
            made.push(Order {
                created_at,
                updated_at: created_at,
                bucket,
                version,
                ..order(bench, n * 2 + at)
            });
        }
    }
    answered(orders.insert(made.clone()).await)?;
    for day in [bench.universe.start.day(), midnight.day()] {
        let mut expected: Vec<Order> = made.iter().filter(|order| order.day() == day).cloned().collect();
        expected.sort_by_key(|order| order.id);
        let listed = pages(3, None, async |after| orders.by_day(day, DayFilter::default(), after, 3).await);
        same(format!("orders of {day}"), listed.await?, expected)?;
    }
    let before_midnight = Period { from: None, to: Some(midnight) };
    let from_midnight = Period { from: Some(midnight), to: None };
    for period in [before_midnight, from_midnight] {
        let listed = whole_by_user(bench, made[0].user_id, period).await?;
        let fits = listed.iter().all(|order| period.contains(order.created_at));
        same(format!("orders in {period:?}"), (listed.len(), fits), (4, true))?;
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
        ..order(bench, 0)
    };
    answered(bench.store.orders.insert(vec![large.clone()]).await)?;
    same("the order", answered(bench.store.orders.get(large.id).await)?, Some(large.clone()))?;
    let listed = whole_by_user(bench, large.user_id, Period::default()).await?;
    same("the order in its owner's history", listed, vec![large])
}

async fn unknown_order(bench: &Bench) -> Checked {
    let (orders, id) = (&bench.store.orders, bench.universe.order(0));
    same("get", answered(orders.get(id).await)?, None)?;
    same("history", answered(orders.history(id).await)?, Vec::new())?;
    let change = StatusChange { status: OrderStatus::Paid, at: bench.universe.start, operator: None };
    let answer = answered(orders.transition(id, OrderStatus::Confirmed, change).await)?;
    same("transition", answer, mobimir_core::ports::Transition::NoSuchOrder)?;
    same("history after it", answered(orders.history(id).await)?, Vec::new())
}

async fn moves_show_everywhere(bench: &Bench) -> Checked {
    let orders = &bench.store.orders;
    let mut current = order(bench, 0);
    answered(orders.insert(vec![current.clone()]).await)?;
    for status in [OrderStatus::Paid, OrderStatus::Shipped, OrderStatus::Delivered] {
        // All in the same millisecond, so only the versions tell the moves apart.
        let change = StatusChange { status, at: current.created_at, operator: None };
        answered(orders.transition(current.id, current.status, change).await)?;
        // The order is written once more, as by a reconciler that does not know how far it has come.
        same("written again", answered(orders.insert(vec![order(bench, 0)]).await)?, 0)?;
        current = current.moved(status, current.created_at);
        let by_user = whole_by_user(bench, current.user_id, Period::default()).await?;
        same("in the owner's history", by_user, vec![current.clone()])?;
        let filter = DayFilter { status: Some(status), zone: Some(current.geo_zone) };
        let by_day = whole_by_day(bench, current.day(), filter).await?;
        same("in the day's list", by_day, vec![current.clone()])?;
        for other in OrderStatus::ALL.into_iter().filter(|other| *other != status) {
            let by_day =
                whole_by_day(bench, current.day(), DayFilter { status: Some(other), zone: None }).await?;
            same(format!("in the day's list of {other}"), by_day, Vec::new())?;
        }
    }
    let history = answered(orders.history(current.id).await)?;
    let statuses: Vec<OrderStatus> = history.into_iter().map(|change| change.status).collect();
    use OrderStatus::{Confirmed, Delivered, Paid, Shipped};
    same("the history", statuses, vec![Confirmed, Paid, Shipped, Delivered])
}
