//! ORD-1, ORD-2, ORD-3: every acknowledged order by its id, in its owner's history, under its key and along its statuses.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mobimir_core::{order::OrderStatus, time::Timestamp};
use serde::Deserialize;

use super::{Check, Wrong};
use crate::{
    crowd::{Crowd, LastOrder, NEW_ORDER_STATUS, OrderAnswer, shown},
    request::Parts,
    rules::{Checks, Example, Rule},
    shop::{Progress, ShopError, all, lists},
    wire::Wire,
};

#[derive(Deserialize)]
struct OrderRow {
    order_id: String,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct StatusRow {
    status: OrderStatus,
    at: Timestamp,
}

/// The orders of every user, and how often each stands in the history. Newest first, over all pages.
pub(crate) fn known_orders(
    wire: &mut Wire,
    crowd: &Crowd,
    checks: &mut Checks,
    progress: Progress<'_>,
) -> Result<HashMap<u32, BTreeMap<String, u32>>, ShopError> {
    let users: Vec<u32> = (0..crowd.shoppers.len() as u32)
        .filter(|at| crowd.shoppers[*at as usize].credentials.is_some())
        .collect();
    let mut found: HashMap<u32, BTreeMap<String, u32>> = HashMap::new();
    let mut last: HashMap<u32, (Timestamp, String)> = HashMap::new();
    lists(
        wire,
        "reading histories",
        users.len(),
        progress,
        |_| "/v1/orders?".to_owned(),
        |list| crowd.shoppers[users[list] as usize].reads(),
        |list, page: Vec<OrderRow>| {
            let user = users[list];
            let orders = found.entry(user).or_default();
            for OrderRow { order_id, created_at } in page {
                let place = (created_at, order_id.clone());
                if let Some(before) = last.insert(user, place.clone()) {
                    checks.check(Rule::HistorySorted, follows(&before, &place), || Example {
                        request: format!("GET /v1/orders of shopper {user}, all pages"),
                        expected: "the newest order first, equal times by id".to_owned(),
                        got: format!("{} of {} after {} of {}", place.1, place.0, before.1, before.0),
                    });
                }
                *orders.entry(order_id).or_default() += 1;
            }
            true
        },
    )?;
    Ok(found)
}

/// Whether a row of a list of orders may come after another: it is older, or as old with a higher id.
pub(super) fn follows(before: &(Timestamp, String), next: &(Timestamp, String)) -> bool {
    before.0 > next.0 || (before.0 == next.0 && before.1 <= next.1)
}

/// Asks once more for every user's last order under its key, which has to get the same answer.
pub(super) fn replays(
    wire: &mut Wire,
    crowd: &Crowd,
    checks: &mut Checks,
    progress: Progress<'_>,
) -> Result<(), ShopError> {
    let with_order = |shopper: &usize| crowd.shoppers[*shopper].last_order.is_some();
    let users: Vec<usize> = (0..crowd.shoppers.len()).filter(with_order).collect();
    let asked = |number: usize| {
        let shopper = &crowd.shoppers[users[number]];
        shopper.last_order.as_deref().map(|last| (shopper, last))
    };
    let got = all(
        wire,
        "asking for orders under their keys",
        users.len(),
        progress,
        |number, out| {
            let Some((shopper, LastOrder { key, body, .. })) = asked(number) else { return };
            let parts = Parts { idempotency_key: Some(key), body: Some(body), ..Parts::of(&shopper.token) };
            out.put("POST", &["/v1/orders"], parts);
        },
        |number, answer| {
            let (_, last) = asked(number)?;
            if !matches!(answer.status, 200..300) {
                let may_change = matches!(answer.status, 408 | 409 | 429 | 500..);
                return (!may_change).then(|| Some(format!("{} {}", answer.status, shown(answer.body))));
            }
            let replayed = answer.header("idempotent-replayed") == Some(b"true");
            let order = OrderAnswer::parse(answer.body);
            let same = order.is_some_and(|order| {
                order.digest() == crowd.placed[last.placed as usize].digest
                    && order.status == NEW_ORDER_STATUS
            });
            let header = if replayed { "" } else { "without Idempotent-Replayed: " };
            Some((!same || !replayed).then(|| format!("{header}{}", shown(answer.body))))
        },
    )?;
    for (number, got) in got.into_iter().enumerate() {
        let Some((_, LastOrder { placed, key, .. })) = asked(number) else { continue };
        checks.check(Rule::OrderReplayed, got.is_none(), || Example {
            request: format!("POST /v1/orders of shopper {} once more under the key {key}", users[number]),
            expected: format!("the order {} again", crowd.placed[*placed as usize].id),
            got: got.unwrap_or_default(),
        });
    }
    Ok(())
}

/// Says also which are there.
pub(super) fn orders(
    wire: &mut Wire,
    crowd: &Crowd,
    checks: &mut Checks,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<(Check, Vec<u32>), ShopError> {
    let mut check = Check { looked_at: crowd.placed.len() as u64, wrong: 0 };
    let found = all(
        wire,
        "reading orders back",
        crowd.placed.len(),
        progress,
        |number, out| {
            let placed = &crowd.placed[number];
            let shopper = &crowd.shoppers[placed.shopper as usize];
            out.put("GET", &["/v1/orders/", &placed.id], shopper.reads());
        },
        |number, answer| match answer.status {
            200 => {
                let order = OrderAnswer::parse(answer.body);
                let Some(order) = order.filter(|order| order.digest() == crowd.placed[number].digest) else {
                    return Some(Found::Other);
                };
                checks.check(Rule::OrderStatus, order.status == NEW_ORDER_STATUS, || Example {
                    request: format!("GET /v1/orders/{}", order.order_id),
                    expected: NEW_ORDER_STATUS.to_owned(),
                    got: order.status.to_owned(),
                });
                Some(Found::Same)
            }
            404 => Some(Found::Not),
            _ => None,
        },
    )?;
    let mut there = Vec::with_capacity(crowd.placed.len());
    for (number, (placed, found)) in (0..).zip(crowd.placed.iter().zip(found)) {
        if found == Found::Same {
            there.push(number);
        } else {
            check.wrong += 1;
            wrong.tell(|| format!("ORD-1: the acknowledged order {} is {}", placed.id, found.words()));
        }
    }
    Ok((check, there))
}

/// How the status of every order moved: along the status machine, from the moment when it was placed.
pub(super) fn status_histories(
    wire: &mut Wire,
    crowd: &Crowd,
    there: &[u32],
    checks: &mut Checks,
    progress: Progress<'_>,
) -> Result<(), ShopError> {
    let placed = |number: usize| &crowd.placed[there[number] as usize];
    all(
        wire,
        "reading status histories",
        there.len(),
        progress,
        |number, out| {
            let order = placed(number);
            let shopper = &crowd.shoppers[order.shopper as usize];
            out.put("GET", &["/v1/orders/", &order.id, "/history"], shopper.reads());
        },
        |number, answer| {
            let missing = answer.status == 404;
            if answer.status != 200 && !missing {
                return None;
            }
            let rows: Option<Vec<StatusRow>> = serde_json::from_slice(answer.body).ok();
            let order = placed(number);
            checks.check(
                Rule::StatusHistory,
                rows.is_some_and(|rows| moves(&rows, order.created_at)),
                || Example {
                    request: format!("GET /v1/orders/{}/history", order.id),
                    expected: format!("{NEW_ORDER_STATUS} at {}", order.created_at),
                    got: shown(answer.body),
                },
            );
            Some(())
        },
    )?;
    Ok(())
}

/// Whether a new order that nobody has moved can have this history.
fn moves(rows: &[StatusRow], created_at: Timestamp) -> bool {
    let begins = rows.first().is_some_and(|first| {
        matches!(first.status, OrderStatus::Pending | OrderStatus::Confirmed) && first.at == created_at
    });
    begins
        && rows.windows(2).all(|pair| pair[0].status.can_become(pair[1].status))
        && rows.last().is_some_and(|last| last.status.as_str() == NEW_ORDER_STATUS)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Same,
    Other,
    Not,
}

impl Found {
    fn words(self) -> &'static str {
        match self {
            Self::Same => "there",
            Self::Other => "there, and not as it was acknowledged",
            Self::Not => "not there",
        }
    }
}

pub(super) fn histories(
    wire: &mut Wire,
    crowd: &Crowd,
    before: &HashMap<u32, BTreeMap<String, u32>>,
    checks: &mut Checks,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<(Check, Check), ShopError> {
    let found = known_orders(wire, crowd, checks, progress)?;
    let (mut missing, mut unasked) = (Check::default(), Check::default());
    let mut placed: HashMap<u32, BTreeSet<&str>> = HashMap::new();
    for order in &crowd.placed {
        placed.entry(order.shopper).or_default().insert(&order.id);
        missing.looked_at += 1;
        if !found.get(&order.shopper).is_some_and(|orders| orders.contains_key(&*order.id)) {
            missing.wrong += 1;
            wrong
                .tell(|| format!("ORD-1: the acknowledged order {} is not in its owner's history", order.id));
        }
    }
    let unsettled: BTreeSet<u32> = crowd.unsettled().iter().copied().collect();
    for (user, orders) in found.iter().filter(|(user, _)| !unsettled.contains(user)) {
        for (order, times) in orders {
            unasked.looked_at += 1;
            let known = placed.get(user).is_some_and(|placed| placed.contains(order.as_str()))
                || before.get(user).is_some_and(|before| before.contains_key(order));
            if !known || *times > 1 {
                unasked.wrong += 1;
                let what = if known { "stands there more than once" } else { "was never acknowledged" };
                wrong.tell(|| format!("ORD-2: the order {order} in a history {what}"));
            }
        }
    }
    Ok((missing, unasked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_begins_with_the_order_and_skips_nothing() {
        let (at, later) = (Timestamp::from_millis(1_000), Timestamp::from_millis(2_000));
        let rows = |statuses: &[OrderStatus], at: Timestamp| -> Vec<StatusRow> {
            statuses.iter().map(|status| StatusRow { status: *status, at }).collect()
        };
        use OrderStatus::{Confirmed, Paid, Pending, Shipped};
        assert!(moves(&rows(&[Confirmed], at), at));
        assert!(moves(&rows(&[Pending, Confirmed], at), at));
        for wrong in
            [&[][..], &[Pending], &[Confirmed, Confirmed], &[Confirmed, Shipped], &[Paid], &[Confirmed, Paid]]
        {
            assert!(!moves(&rows(wrong, at), at), "{wrong:?}");
        }
        assert!(!moves(&rows(&[Confirmed], later), at), "at another time than the order");
    }

    #[test]
    fn newer_rows_come_first_and_equal_times_by_id() {
        let row = |ms: i64, id: &str| (Timestamp::from_millis(ms), id.to_owned());
        assert!(follows(&row(2, "b"), &row(1, "a")));
        assert!(follows(&row(2, "a"), &row(2, "b")));
        assert!(!follows(&row(2, "b"), &row(2, "a")));
        assert!(!follows(&row(1, "a"), &row(2, "b")));
    }
}
