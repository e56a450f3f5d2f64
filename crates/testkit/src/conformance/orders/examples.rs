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
    Bench, Checked, DAY_MS, Failure, Suite, answered, pages, races::order, same, whole_by_day, whole_by_user,
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
        let by_user = async || {
            let all = Period::default();
            pages(limit, None, async |after| orders.by_user(user, all, after, limit).await).await.map(ids)
        };
        bench.sees(format!("by user, pages of {limit}"), expected.clone(), by_user).await?;
        let by_day = async || {
            let all = DayFilter::default();
            pages(limit, None, async |after| orders.by_day(day, all, after, limit).await).await.map(ids)
        };
        bench.sees(format!("by day, pages of {limit}"), expected.clone(), by_day).await?;
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
        let all = DayFilter::default();
        let listed = async || pages(3, None, async |after| orders.by_day(day, all, after, 3).await).await;
        bench.sees(format!("orders of {day}"), expected, listed).await?;
    }
    let before_midnight = Period { from: None, to: Some(midnight) };
    let from_midnight = Period { from: Some(midnight), to: None };
    for period in [before_midnight, from_midnight] {
        let seen = async || -> Result<_, Failure> {
            let listed = whole_by_user(bench, made[0].user_id, period).await?;
            Ok((listed.len(), listed.iter().all(|order| period.contains(order.created_at))))
        };
        bench.sees(format!("orders in {period:?}"), (4, true), seen).await?;
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
    let read = async || bench.store.orders.get(large.id).await;
    bench.sees("the order", Some(large.clone()), read).await?;
    let listed = async || whole_by_user(bench, large.user_id, Period::default()).await;
    bench.sees("the order in its owner's history", vec![large.clone()], listed).await
}

async fn unknown_order(bench: &Bench) -> Checked {
    let (orders, id) = (&bench.store.orders, bench.universe.order(0));
    bench.sees("get", None, async || orders.get(id).await).await?;
    bench.sees("history", Vec::new(), async || orders.history(id).await).await?;
    let change = StatusChange { status: OrderStatus::Paid, at: bench.universe.start, operator: None };
    let answer = answered(orders.transition(id, OrderStatus::Confirmed, change).await)?;
    same("transition", answer, mobimir_core::ports::Transition::NoSuchOrder)?;
    bench.sees("history after it", Vec::new(), async || orders.history(id).await).await
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
        let by_user = async || whole_by_user(bench, current.user_id, Period::default()).await;
        bench.sees("in the owner's history", vec![current.clone()], by_user).await?;
        let filter = DayFilter { status: Some(status), zone: Some(current.geo_zone) };
        let by_day = async || whole_by_day(bench, current.day(), filter).await;
        bench.sees("in the day's list", vec![current.clone()], by_day).await?;
        for other in OrderStatus::ALL.into_iter().filter(|other| *other != status) {
            let filter = DayFilter { status: Some(other), zone: None };
            let by_day = async || whole_by_day(bench, current.day(), filter).await;
            bench.sees(format!("in the day's list of {other}"), Vec::new(), by_day).await?;
        }
    }
    let statuses = async || {
        let history = orders.history(current.id).await;
        history.map(|moves| moves.into_iter().map(|change| change.status).collect::<Vec<OrderStatus>>())
    };
    use OrderStatus::{Confirmed, Delivered, Paid, Shipped};
    bench.sees("the history", vec![Confirmed, Paid, Shipped, Delivered], statuses).await
}
