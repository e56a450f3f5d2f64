use mobimir_core::{
    order::{Order, OrderStatus, StatusChange},
    ports::{DayFilter, Period, Transition},
    time::Version,
};

use super::{Bench, Checked, Failure, Suite, answered, holds, race, same, whole_by_day, whole_by_user, zone};
use crate::conformance::check::RACERS;

pub(super) fn conform(suite: &Suite) {
    suite.race("ORD-1 (one order, written by many)", one_order_written_by_many);
    suite.race("ORD-1 (many orders of one moment)", many_orders_of_one_moment);
    suite.race("ORD-3 (one move, made by many)", one_move_made_by_many);
    suite.race("ORD-3 (cancelled or shipped)", rival_moves);
}

pub(super) fn order(bench: &Bench, n: usize) -> Order {
    let now = bench.universe.start;
    Order {
        id: bench.universe.order(n),
        user_id: bench.universe.user(0),
        status: OrderStatus::Confirmed,
        geo_zone: zone(0),
        lines: Vec::new(),
        shipping_address: None,
        payment_method: None,
        created_at: now,
        updated_at: now,
        bucket: (n % 7) as u16,
        version: Version::default().next(now),
    }
}

/// How often an order stands in its owner's history and in its day.
async fn rows(bench: &Bench, order: &Order) -> Result<(usize, usize), Failure> {
    let by_user = whole_by_user(bench, order.user_id, Period::default()).await?;
    let by_day = whole_by_day(bench, order.day(), DayFilter::default()).await?;
    let count = |items: Vec<Order>| items.iter().filter(|item| item.id == order.id).count();
    Ok((count(by_user), count(by_day)))
}

async fn one_order_written_by_many(bench: &Bench) -> Checked {
    let order = order(bench, 0);
    let inserted = race(RACERS, |_| {
        let (orders, order) = (bench.store.orders.clone(), order.clone());
        async move { orders.insert(vec![order]).await }
    })
    .await?;
    let new: usize = inserted.iter().sum();
    holds(format!("somebody counted the order as new, {new} did"), (1..=RACERS).contains(&new))?;
    stands_once(bench, &order).await?;
    // Whoever comes when it is there counts nothing.
    let again = answered(bench.store.orders.insert(vec![order.clone(), order.clone()]).await)?;
    same("orders that were new afterwards", again, 0)?;
    stands_once(bench, &order).await
}

/// The order as it was written, in each place one time.
async fn stands_once(bench: &Bench, order: &Order) -> Checked {
    let orders = &bench.store.orders;
    let history = async || orders.history(order.id).await;
    bench.sees("its history", vec![order.first_change()], history).await?;
    bench.sees("its rows by user and by day", (1, 1), async || rows(bench, order).await).await?;
    bench.sees("the order", Some(order.clone()), async || orders.get(order.id).await).await
}

async fn many_orders_of_one_moment(bench: &Bench) -> Checked {
    let inserted = race(RACERS, |caller| {
        let (orders, order) = (bench.store.orders.clone(), order(bench, caller));
        async move { orders.insert(vec![order]).await }
    })
    .await?;
    same("orders that were new", inserted.iter().sum(), RACERS)?;
    for n in 0..RACERS {
        stands_once(bench, &order(bench, n)).await?;
    }
    Ok(())
}

async fn one_move_made_by_many(bench: &Bench) -> Checked {
    let orders = &bench.store.orders;
    let order = order(bench, 0);
    answered(orders.insert(vec![order.clone()]).await)?;
    let change =
        StatusChange { status: OrderStatus::Paid, at: order.created_at, operator: Some("анна".into()) };
    let answers = race(RACERS, |_| {
        let (orders, id, change) = (orders.clone(), order.id, change.clone());
        async move { orders.transition(id, OrderStatus::Confirmed, change).await }
    })
    .await?;
    let moved = order.moved(change.status, change.at);
    let winners = answers.iter().filter(|answer| **answer == Transition::Moved(moved.clone())).count();
    let losers = answers.iter().filter(|answer| **answer == Transition::StandsAt(OrderStatus::Paid)).count();
    same("callers who moved it and who came too late", (winners, losers), (1, RACERS - 1))?;
    let history = vec![order.first_change(), change];
    bench.sees("its history", history, async || orders.history(order.id).await).await?;
    bench.sees("the order", Some(moved), async || orders.get(order.id).await).await
}

async fn rival_moves(bench: &Bench) -> Checked {
    let orders = &bench.store.orders;
    let order = Order { status: OrderStatus::Paid, ..order(bench, 0) };
    answered(orders.insert(vec![order.clone()]).await)?;
    let answers = race(RACERS, |caller| {
        let status = if caller % 2 == 0 { OrderStatus::Shipped } else { OrderStatus::Cancelled };
        let change = StatusChange { status, at: order.created_at, operator: Some(caller.to_string()) };
        let (orders, id) = (orders.clone(), order.id);
        async move { Ok((change.clone(), orders.transition(id, OrderStatus::Paid, change).await?)) }
    })
    .await?;
    let mut winners = Vec::new();
    for (change, answer) in answers {
        if let Transition::Moved(_) = answer {
            winners.push(change);
        }
    }
    same("callers who moved it", winners.len(), 1)?;
    let stands_at = async || orders.get(order.id).await.map(|found| found.map(|order| order.status));
    bench.sees("where it stands", Some(winners[0].status), stands_at).await?;
    winners.insert(0, order.first_change());
    bench.sees("its history", winners, async || orders.history(order.id).await).await
}
