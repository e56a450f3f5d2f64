//! A history of orders that is filled after the orders: whatever comes when, the newest version is the one that is read.

mod examples;
mod races;

use std::{collections::BTreeMap, sync::Arc};

use mobimir_core::{
    order::{Order, OrderPosition, OrderStatus},
    ports::{OrderHistoryStore, Period},
    time::Version,
};
use proptest::{collection, option, prelude::*, sample};

use super::{
    arena::{self, CaseClock},
    check::{Checked, Failure, answered, pages, race},
};
use crate::strategies;

type Store = Arc<dyn OrderHistoryStore>;
type Suite = super::Suite<Store>;
type Bench = arena::Bench<Store>;

const ORDERS: usize = 8;
const USERS: usize = 2;
/// More moves than this no order makes.
const MOVES_MAX: usize = 4;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

#[derive(Clone, Debug)]
enum Step {
    Wait {
        ms: i64,
    },
    /// Where orders are decided, which the history hears of when it is written there.
    Move {
        order: usize,
        to: OrderStatus,
    },
    /// Several at once, the same order perhaps more than once, in any of the versions that it has had.
    Append {
        orders: Vec<Written>,
    },
    ByUser {
        user: usize,
        from_ms: Option<i64>,
        to_ms: Option<i64>,
        after: Option<usize>,
        limit: usize,
    },
}

#[derive(Clone, Debug)]
struct Written {
    order: usize,
    /// How the order came to be, if it was not made yet.
    draft: Draft,
    /// How many moves ago it was read that is written now.
    moves_ago: usize,
}

#[derive(Clone, Debug)]
struct Draft {
    user: usize,
    made_ms_ago: i64,
    order: Order,
}

pub(super) fn conform(suite: &Suite) {
    suite.compare_with_model("order histories", step(), run);
    races::conform(suite);
    examples::conform(suite);
}

fn step() -> impl Strategy<Value = Step> {
    let order = || 0..ORDERS;
    let ago_ms = || sample::select(&[0, 0, 1, HOUR_MS, DAY_MS, 33 * DAY_MS][..]);
    let draft = (0..USERS, ago_ms(), strategies::order()).prop_map(|(user, made_ms_ago, order)| Draft {
        user,
        made_ms_ago,
        order,
    });
    let written = (order(), draft, 0..=MOVES_MAX).prop_map(|(order, draft, moves_ago)| Written {
        order,
        draft,
        moves_ago,
    });
    prop_oneof![
        2 => sample::select(&[0, 1, 1_000, HOUR_MS, DAY_MS, 31 * DAY_MS][..]).prop_map(|ms| Step::Wait { ms }),
        4 => (order(), strategies::order_status()).prop_map(|(order, to)| Step::Move { order, to }),
        5 => collection::vec(written, 1..4).prop_map(|orders| Step::Append { orders }),
        3 => (0..USERS, option::of(ago_ms()), option::of(ago_ms()), option::weighted(0.3, order()), 1..4usize)
            .prop_map(|(user, from_ms, to_ms, after, limit)| Step::ByUser { user, from_ms, to_ms, after, limit }),
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
    for user in 0..USERS {
        case.by_user(user, Period::default(), None, 3).await?;
    }
    Ok(())
}

struct Case<'a> {
    bench: &'a Bench,
    clock: CaseClock,
    /// Every version that an order has had, the first one first.
    made: BTreeMap<usize, Vec<Order>>,
}

impl Case<'_> {
    async fn apply(&mut self, step: &Step) -> Checked {
        let now = self.clock.now;
        match step {
            Step::Wait { ms } => self.clock.advance_ms(*ms),
            Step::Move { order, to } => {
                let Some(versions) = self.made.get_mut(order) else { return Ok(()) };
                let newest = &versions[versions.len() - 1];
                if versions.len() <= MOVES_MAX {
                    let moved = newest.moved(*to, now);
                    versions.push(moved);
                }
            }
            Step::Append { orders } => {
                let orders: Vec<Order> = orders.iter().map(|written| self.written(written)).collect();
                answered(self.bench.store.append(orders.clone()).await)?;
                answered(self.bench.model.append(orders).await)?;
            }
            Step::ByUser { user, from_ms, to_ms, after, limit } => {
                let ago = |ms: &Option<i64>| ms.map(|ms| now.plus_ms(-ms));
                let period = Period { from: ago(from_ms), to: ago(to_ms) };
                let start = after.and_then(|order| Some(self.made.get(&order)?[0].position()));
                self.by_user(*user, period, start, *limit).await?;
            }
        }
        Ok(())
    }

    fn written(&mut self, Written { order, draft, moves_ago }: &Written) -> Order {
        let created_at = self.clock.now.plus_ms(-draft.made_ms_ago);
        let versions = self.made.entry(*order).or_insert_with(|| {
            vec![Order {
                id: self.bench.universe.order(*order),
                user_id: self.bench.universe.user(draft.user),
                created_at,
                updated_at: created_at,
                version: Version::default().next(created_at),
                ..draft.order.clone()
            }]
        });
        versions[(versions.len() - 1).saturating_sub(*moves_ago)].clone()
    }

    async fn by_user(
        &self,
        user: usize,
        period: Period,
        start: Option<OrderPosition>,
        limit: usize,
    ) -> Checked {
        let id = self.bench.universe.user(user);
        let [store, model] = [&self.bench.store, &self.bench.model];
        let expected = answered(model.by_user(id, period, start, usize::MAX).await)?.items;
        let what = format!("history of user {user} in {period:?} after {start:?}");
        let read =
            async || pages(limit, start, async |after| store.by_user(id, period, after, limit).await).await;
        self.bench.sees(what, expected, read).await
    }
}

/// In pages of a usual size.
const PAGE: usize = 20;

/// The whole history of the first user.
async fn history(bench: &Bench, period: Period) -> Result<Vec<Order>, Failure> {
    let user = bench.universe.user(0);
    pages(PAGE, None, async |after| bench.store.by_user(user, period, after, PAGE).await).await
}
