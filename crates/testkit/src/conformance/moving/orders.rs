use std::sync::Arc;

use mobimir_core::{
    id::OrderId,
    money::Money,
    moving::{Movables, OrderSide, WholeOrder},
    order::{Order, OrderLine, OrderStatus, StatusChange},
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    time::Version,
};

use super::{
    super::arena::{Universe, zone},
    Bench, Checked, Subject, Suite, answered, at, same,
};

pub(super) struct Orders;

/// The way of every order here.
pub(super) const MOVES: [OrderStatus; 3] = [OrderStatus::Paid, OrderStatus::Shipped, OrderStatus::Delivered];

impl Subject for Orders {
    type W = WholeOrder;
    type Port = dyn OrderStore;
    type Stores = Movables;

    const NAME: &'static str = "orders";
    const CHANGES_MAX: usize = MOVES.len();
    const LASTS_MS: Option<i64> = None;

    fn side(movables: &Movables) -> &OrderSide {
        &movables.orders
    }

    fn keys(universe: &Universe, n: usize) -> Vec<OrderId> {
        vec![universe.order(n)]
    }

    async fn make(universe: &Universe, port: &Arc<dyn OrderStore>, n: usize) -> StoreResult<()> {
        port.insert(vec![order(universe, n)]).await.map(|_| ())
    }

    async fn change(
        universe: &Universe,
        port: &Arc<dyn OrderStore>,
        n: usize,
        change: usize,
    ) -> StoreResult<()> {
        let from = change.checked_sub(1).map_or(OrderStatus::Confirmed, |before| MOVES[before]);
        let operator = (change.is_multiple_of(2)).then(|| "Анна, склад №2".to_owned());
        let line = StatusChange { status: MOVES[change], at: at(universe, change), operator };
        port.transition(universe.order(n), from, line).await.map(|_| ())
    }
}

pub(super) fn order(universe: &Universe, n: usize) -> Order {
    let now = universe.start;
    Order {
        id: universe.order(n),
        user_id: universe.user(n % 3),
        status: OrderStatus::Confirmed,
        geo_zone: zone(n),
        lines: (0..n % 4).map(|line| order_line(universe, line)).collect(),
        shipping_address: (n.is_multiple_of(2)).then(|| "Тверская, 1".to_owned()),
        payment_method: (n % 2 == 1).then(|| "card".to_owned()),
        created_at: now,
        updated_at: now,
        bucket: (n % 7) as u16,
        version: Version::default().next(now),
    }
}

fn order_line(universe: &Universe, line: usize) -> OrderLine {
    OrderLine {
        product_id: universe.product(line),
        name: format!("Чехол \"{}\"", universe.word),
        category: "чехлы".to_owned(),
        price: Money::from_kopecks(99_950 + line as i128),
        quantity: 1 + line as u64,
    }
}

pub(super) fn conform(suite: &Suite) {
    suite.example("orders: one that was put is listed and goes on", goes_on);
}

async fn goes_on(bench: &Bench) -> Checked {
    let (universe, side, model) = (&bench.universe, &bench.store.orders, &bench.model.orders);
    let id = universe.order(1);
    for port in [&model.port] {
        answered(Orders::make(universe, port, 1).await)?;
        answered(Orders::change(universe, port, 1, 0).await)?;
    }
    let whole = answered(model.moving.whole(id).await)?.whole;
    answered(side.moving.put(whole.into_iter().collect(), universe.start).await)?;

    // The one and the other are now moved by their ports.
    for port in [&side.port, &model.port] {
        answered(Orders::change(universe, port, 1, 1).await)?;
    }
    let (stored, expected) = (&side.port, &model.port);
    let expected_order = answered(expected.get(id).await)?;
    bench.sees("the order", expected_order.clone(), async || stored.get(id).await).await?;
    let history = answered(expected.history(id).await)?;
    bench.sees("its history", history, async || stored.history(id).await).await?;
    let Some(order) = expected_order else { return same("there is an order", false, true) };
    let by_user = async || {
        let page = stored.by_user(order.user_id, Period::default(), None, 100).await?;
        Ok::<_, mobimir_core::ports::StoreError>(page.items)
    };
    bench.sees("its owner's list", vec![order.clone()], by_user).await?;
    let filter = DayFilter { status: Some(OrderStatus::Shipped), zone: Some(order.geo_zone) };
    let by_day = async || {
        let page = stored.by_day(order.day(), filter, None, 100).await?;
        Ok::<_, mobimir_core::ports::StoreError>(page.items)
    };
    bench.sees("the list of its day", vec![order.clone()], by_day).await?;
    // And it was moved once.
    let again = StatusChange { status: OrderStatus::Shipped, at: at(universe, 2), operator: None };
    let again = answered(stored.transition(id, OrderStatus::Paid, again).await)?;
    same("the same move again", again, Transition::StandsAt(OrderStatus::Shipped))
}
