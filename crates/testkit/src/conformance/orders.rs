//! Orders: found by id, by user and by day, and moved along their machine with every move written down once.

mod examples;
mod races;

use std::collections::BTreeMap;

use mobimir_core::{
    id::UserId,
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    ports::{DayFilter, Period},
    time::{Day, Timestamp, Version},
};
use proptest::{collection, option, prelude::*, sample};

use super::{
    Suite,
    arena::{Bench, CaseClock, zone},
    check::{Checked, Failure, answered, holds, pages, race, same},
};
use crate::strategies;

const ORDERS: usize = 8;
const USERS: usize = 2;
const ZONES: usize = 2;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

#[derive(Clone, Debug)]
enum Step {
    Wait {
        ms: i64,
    },
    /// An order that was made up before is written again as it was first.
    Insert {
        orders: Vec<(usize, Draft)>,
    },
    Get {
        order: usize,
    },
    History {
        order: usize,
    },
    /// From where the order stands, if it can go on from there.
    Advance {
        order: usize,
        cancel: bool,
        operator: Option<String>,
    },
    /// From where somebody believes that it stands.
    Transition {
        order: usize,
        from: OrderStatus,
        to: OrderStatus,
    },
    ByUser {
        user: usize,
        from_ms: Option<i64>,
        to_ms: Option<i64>,
        after: Option<usize>,
        limit: usize,
    },
    ByDay {
        days_ago: i64,
        status: Option<OrderStatus>,
        zone: Option<usize>,
        after: Option<usize>,
        limit: usize,
    },
}

#[derive(Clone, Debug)]
struct Draft {
    user: usize,
    zone: usize,
    /// Orders may reach the store some time after they were made.
    made_ms_ago: i64,
    order: Order,
}

pub(super) fn conform(suite: &Suite) {
    suite.compare_with_model("orders", step(), run);
    races::conform(suite);
    examples::conform(suite);
}

fn step() -> impl Strategy<Value = Step> {
    let (order, after) = (|| 0..ORDERS, || option::weighted(0.3, 0..ORDERS));
    let ago_ms = || sample::select(&[0, 0, 1, HOUR_MS, DAY_MS, 33 * DAY_MS][..]);
    let draft = (0..USERS, 0..ZONES, ago_ms(), strategies::order())
        .prop_map(|(user, zone, made_ms_ago, order)| Draft { user, zone, made_ms_ago, order });
    let moves = collection::vec(strategies::order_status(), 2)
        .prop_filter("a move of the machine", |pair| pair[0].can_become(pair[1]));
    prop_oneof![
        2 => sample::select(&[0, 1, 1_000, HOUR_MS, DAY_MS, 31 * DAY_MS][..]).prop_map(|ms| Step::Wait { ms }),
        4 => collection::vec((order(), draft), 1..4).prop_map(|orders| Step::Insert { orders }),
        1 => order().prop_map(|order| Step::Get { order }),
        1 => order().prop_map(|order| Step::History { order }),
        4 => (order(), prop::bool::weighted(0.2), option::of(strategies::text(100)))
            .prop_map(|(order, cancel, operator)| Step::Advance { order, cancel, operator }),
        2 => (order(), moves)
            .prop_map(|(order, pair)| Step::Transition { order, from: pair[0], to: pair[1] }),
        2 => (0..USERS, option::of(ago_ms()), option::of(ago_ms()), after(), 1..4usize)
            .prop_map(|(user, from_ms, to_ms, after, limit)| Step::ByUser { user, from_ms, to_ms, after, limit }),
        2 => (0..2i64, option::weighted(0.3, strategies::order_status()), option::weighted(0.3, 0..ZONES), after(), 1..4usize)
            .prop_map(|(days_ago, status, zone, after, limit)| Step::ByDay { days_ago, status, zone, after, limit }),
    ]
}

async fn run(bench: &Bench, steps: &[Step]) -> Checked {
    // Orders are made up to 33 days before they are written, and must stay in this case's window of time.
    let mut clock = bench.universe.clock();
    clock.advance_ms(34 * DAY_MS);
    let mut case = Case { bench, clock, made: BTreeMap::new() };
    for step in steps {
        case.apply(step).await?;
    }
    case.compare_all().await
}

struct Case<'a> {
    bench: &'a Bench,
    clock: CaseClock,
    /// Orders as they were written first: whoever writes one again writes the same.
    made: BTreeMap<usize, Order>,
}

impl Case<'_> {
    async fn apply(&mut self, step: &Step) -> Checked {
        let (store, model, universe) =
            (&self.bench.store.orders, &self.bench.model.orders, &self.bench.universe);
        let now = self.clock.now;
        match step {
            Step::Wait { ms } => self.clock.advance_ms(*ms),
            Step::Insert { orders } => {
                let orders: Vec<Order> =
                    orders.iter().map(|(slot, draft)| self.order(*slot, draft)).collect();
                let inserted = answered(store.insert(orders.clone()).await)?;
                same("insert", inserted, answered(model.insert(orders).await)?)?;
            }
            Step::Get { order } => self.get(*order).await?,
            Step::History { order } => self.history(*order).await?,
            Step::Advance { order, cancel, operator } => {
                let Some(stored) = answered(model.get(universe.order(*order)).await)? else { return Ok(()) };
                let can_go = |to: &OrderStatus| {
                    stored.status.can_become(*to) && (*to == OrderStatus::Cancelled) == *cancel
                };
                if let Some(to) = OrderStatus::ALL.into_iter().find(can_go) {
                    let change = StatusChange { status: to, at: now, operator: operator.clone() };
                    self.transition(*order, stored.status, change).await?;
                }
            }
            Step::Transition { order, from, to } => {
                let change = StatusChange { status: *to, at: now, operator: None };
                self.transition(*order, *from, change).await?;
            }
            Step::ByUser { user, from_ms, to_ms, after, limit } => {
                let ago = |ms: &Option<i64>| ms.map(|ms| now.plus_ms(-ms));
                let period = Period { from: ago(from_ms), to: ago(to_ms) };
                self.by_user(*user, period, self.position(*after), *limit).await?;
            }
            Step::ByDay { days_ago, status, zone: zone_number, after, limit } => {
                let filter = DayFilter { status: *status, zone: zone_number.map(zone) };
                self.by_day(now.plus_ms(-days_ago * DAY_MS), filter, self.position(*after), *limit).await?;
            }
        }
        Ok(())
    }

    fn order(&mut self, slot: usize, draft: &Draft) -> Order {
        let created_at = self.clock.now.plus_ms(-draft.made_ms_ago);
        let order = self.made.entry(slot).or_insert_with(|| Order {
            id: self.bench.universe.order(slot),
            user_id: self.bench.universe.user(draft.user),
            geo_zone: zone(draft.zone),
            created_at,
            updated_at: created_at,
            version: Version::default().next(created_at),
            ..draft.order.clone()
        });
        order.clone()
    }

    /// Where a list goes on after an order, which need not be one of the list.
    fn position(&self, slot: Option<usize>) -> Option<OrderPosition> {
        self.made.get(&slot?).map(Order::position)
    }

    async fn transition(&self, slot: usize, from: OrderStatus, change: StatusChange) -> Checked {
        let id = self.bench.universe.order(slot);
        let what = format!("transition of order {slot} from {from} by {change:?}");
        let actual = answered(self.bench.store.orders.transition(id, from, change.clone()).await)?;
        same(what, actual, answered(self.bench.model.orders.transition(id, from, change).await)?)
    }

    async fn get(&self, slot: usize) -> Checked {
        let id = self.bench.universe.order(slot);
        let expected = answered(self.bench.model.orders.get(id).await)?;
        let read = async || self.bench.store.orders.get(id).await;
        self.bench.sees(format!("get order {slot}"), expected, read).await
    }

    async fn history(&self, slot: usize) -> Checked {
        let id = self.bench.universe.order(slot);
        let expected = answered(self.bench.model.orders.history(id).await)?;
        let read = async || self.bench.store.orders.history(id).await;
        self.bench.sees(format!("history of {slot}"), expected, read).await
    }

    async fn by_user(
        &self,
        user: usize,
        period: Period,
        start: Option<OrderPosition>,
        limit: usize,
    ) -> Checked {
        let id = self.bench.universe.user(user);
        let [store, model] = [&self.bench.store.orders, &self.bench.model.orders];
        let expected = answered(model.by_user(id, period, start, usize::MAX).await)?.items;
        let what = format!("orders of user {user} in {period:?} after {start:?}");
        let read =
            async || pages(limit, start, async |after| store.by_user(id, period, after, limit).await).await;
        self.bench.sees(what, expected, read).await
    }

    async fn by_day(
        &self,
        at: Timestamp,
        filter: DayFilter,
        start: Option<OrderPosition>,
        limit: usize,
    ) -> Checked {
        let day = at.day();
        let [store, model] = [&self.bench.store.orders, &self.bench.model.orders];
        let expected = answered(model.by_day(day, filter, start, usize::MAX).await)?.items;
        let what = format!("orders of {day} with {filter:?} after {start:?}");
        let read =
            async || pages(limit, start, async |after| store.by_day(day, filter, after, limit).await).await;
        self.bench.sees(what, expected, read).await
    }

    async fn compare_all(&self) -> Checked {
        for slot in 0..ORDERS {
            self.get(slot).await?;
            self.history(slot).await?;
        }
        for user in 0..USERS {
            self.by_user(user, Period::default(), None, 3).await?;
        }
        // ORD-1: whatever is there stands in its day.
        for order in self.made.values() {
            self.by_day(order.created_at, DayFilter::default(), None, 3).await?;
        }
        Ok(())
    }
}

/// In pages of a usual size.
const PAGE: usize = 20;

async fn whole_by_user(bench: &Bench, user: UserId, period: Period) -> Result<Vec<Order>, Failure> {
    let orders = &bench.store.orders;
    pages(PAGE, None, async |after| orders.by_user(user, period, after, PAGE).await).await
}

async fn whole_by_day(bench: &Bench, day: Day, filter: DayFilter) -> Result<Vec<Order>, Failure> {
    let orders = &bench.store.orders;
    pages(PAGE, None, async |after| orders.by_day(day, filter, after, PAGE).await).await
}
