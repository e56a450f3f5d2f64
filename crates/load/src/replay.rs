//! A real trade history as load: every order that somebody once placed, at its time, and a look at every product before.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::crowd::Wish;

/// An order of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trade {
    pub at_ms: i64,
    /// Products by their ids, and how many of each.
    pub lines: Vec<(String, u64)>,
}

/// In the history, a product is looked at so long before the next or the order.
const LOOK_MS: i64 = 20_000;
/// The last is due at this part of the time: one that is due at the very end could not be sent in time.
const DUE_WITHIN: f64 = 0.95;
/// As many lines as an order may have. Longer ones become several.
const LINES_MAX: usize = 200;

/// What is due and when, by rising time; `None` when none of the products is known.
pub(crate) fn plan(
    trades: &[Trade],
    lasts: Duration,
    number: impl Fn(&str) -> Option<u32>,
) -> Option<Vec<(u64, Wish)>> {
    let mut wishes: Vec<(i64, Wish)> = Vec::new();
    for trade in trades {
        let lines: Vec<(u32, u64)> =
            trade.lines.iter().filter_map(|(id, units)| Some((number(id)?, *units))).collect();
        let looks = (1..).zip(lines.iter().rev());
        wishes.extend(
            looks.map(|(before, (product, _))| (trade.at_ms - before * LOOK_MS, Wish::Page(*product))),
        );
        for part in lines.chunks(LINES_MAX) {
            let mut order = BTreeMap::new();
            part.iter().for_each(|(product, units)| *order.entry(*product).or_default() += units);
            wishes.push((trade.at_ms, Wish::Order(Arc::new(order))));
        }
    }
    wishes.sort_by_key(|(at_ms, _)| *at_ms);
    let (first, last) = (wishes.first()?.0, wishes.last()?.0);
    let scale = lasts.as_nanos() as f64 * DUE_WITHIN / ((last - first) as f64).max(1.0);
    Some(wishes.into_iter().map(|(at_ms, wish)| (((at_ms - first) as f64 * scale) as u64, wish)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(id: &str) -> Option<u32> {
        id.parse().ok()
    }

    #[test]
    fn a_history_is_pressed_into_the_time_that_there_is() {
        let line = |id: &str| (id.to_owned(), 2);
        let trades = [
            Trade { at_ms: 1_000_000, lines: vec![line("1"), line("2"), line("gone"), line("1")] },
            Trade { at_ms: 9_000_000, lines: vec![line("3")] },
        ];
        let plan = plan(&trades, Duration::from_secs(10), known).expect("known products");
        assert!(plan.is_sorted_by_key(|(at_ns, _)| *at_ns));
        assert_eq!(plan[0].0, 0);
        let last = plan.last().expect("an order").0;
        assert!((9_400_000_000..9_600_000_000).contains(&last), "{last}");
        let shown: Vec<String> = plan.iter().map(|(_, wish)| format!("{wish:?}")).collect();
        assert_eq!(
            shown,
            ["Page(1)", "Page(2)", "Page(1)", "Order({1: 4, 2: 2})", "Page(3)", "Order({3: 2})"]
        );
    }

    #[test]
    fn a_long_order_becomes_several() {
        let lines = (0..450).map(|id| (id.to_string(), 1)).collect();
        let plan = plan(&[Trade { at_ms: 0, lines }], Duration::from_secs(1), known).expect("a plan");
        let orders: Vec<usize> = plan
            .iter()
            .filter_map(|(_, wish)| match wish {
                Wish::Order(lines) => Some(lines.len()),
                _ => None,
            })
            .collect();
        assert_eq!(orders, [200, 200, 50]);
    }

    #[test]
    fn of_nothing_there_is_no_plan() {
        assert!(plan(&[], Duration::from_secs(1), known).is_none());
        let unknown = Trade { at_ms: 0, lines: vec![("gone".to_owned(), 1)] };
        assert!(
            plan(&[Trade { lines: Vec::new(), ..unknown.clone() }], Duration::from_secs(1), known).is_none()
        );
    }
}
