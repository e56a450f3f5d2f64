//! Whether the shop kept its promises: everything that it acknowledged is looked for when the load is over.

mod carts;
mod days;
mod orders;
mod stock;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub(crate) use self::orders::known_orders;
use self::{
    carts::carts,
    days::days,
    orders::{histories, orders, replays, status_histories},
    stock::{FlashSale, flash_sale, stock},
};
use crate::{
    asking::{Heard, ask_all},
    crowd::Crowd,
    rules::{AnswerCheck, Checks},
    shop::{self, AllStock, Progress, ShopError},
    wire::Wire,
};

/// How many examples are kept of what is not as it was acknowledged.
const EXAMPLES_MAX: usize = 20;
/// What is left out without an operator's token.
const FOR_OPERATORS: &str =
    "the lists of days, what is reserved and sold, and the shop's own count: only an operator may see them";

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// ORD-1: every acknowledged order, by its id, with the lines, prices and total of the answer.
    pub orders: Check,
    /// ORD-1: every acknowledged order, in its owner's history.
    pub histories: Check,
    /// ORD-1: every acknowledged order, in the list of its day. Nobody but an operator may read it.
    #[serde(default)]
    pub days: Option<Check>,
    /// ORD-2: no order that nobody was told of, and none twice.
    pub unasked_orders: Check,
    /// CRT-1: every cart, against what was acknowledged.
    pub carts: Check,
    /// STK-1, STK-2: the stock of every product in every zone.
    pub stock: Check,
    /// What the shop itself has counted against its promises. Nobody but an operator is told.
    pub invariants: Option<Check>,
    /// How often each promise was found broken, by its name; what the shop itself has counted is among it.
    #[serde(default)]
    pub by_promise: BTreeMap<String, u64>,
    /// What became of the product that a flash sale is about.
    #[serde(default)]
    pub flash: Option<FlashSale>,
    /// Every rule that answers were checked against, during the run and afterwards, by its name.
    #[serde(default)]
    pub answers: BTreeMap<String, AnswerCheck>,
    /// Answers that broke a rule.
    pub answers_wrong: u64,
    /// One of so many reads was checked, and none if 0. All writes are.
    #[serde(default)]
    pub reads_checked_one_in: u64,
    /// Orders whose answer was lost, asked for once more under the same key.
    pub settled: u64,
    /// Those of which it could not be found out what became.
    pub unsettled: u64,
    /// Why not everything could be looked at.
    #[serde(default)]
    pub not_looked: Option<String>,
    /// What nobody was to look at, and why.
    #[serde(default)]
    pub left_out: Vec<String>,
    pub examples: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub looked_at: u64,
    pub wrong: u64,
}

/// What is not as it was acknowledged.
#[derive(Default)]
struct Wrong {
    examples: Vec<String>,
}

impl Wrong {
    fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(what());
        }
    }
}

impl Findings {
    /// Those of the answers during a run alone.
    pub(crate) fn of_answers(crowd: &Crowd) -> Self {
        Self {
            answers: crowd.checks.by_name(),
            answers_wrong: crowd.checks.wrong(),
            reads_checked_one_in: crowd.checked_one_in(),
            ..Self::default()
        }
    }

    /// One line for each example, those of answers first.
    pub(crate) fn all_examples(&self) -> impl Iterator<Item = String> {
        let of_answers = self.answers.iter().filter_map(|(name, check)| {
            let crate::rules::Example { request, expected, got } = check.example.as_ref()?;
            Some(format!("{name}: {request}: expected {expected}, got {got}"))
        });
        of_answers.chain(self.examples.iter().cloned())
    }

    pub fn is_right(&self) -> bool {
        let Self { orders, histories, days, unasked_orders, carts, stock, invariants, .. } = self;
        let always = [orders, histories, unasked_orders, carts, stock];
        always.into_iter().chain(days).chain(invariants).all(|check| check.wrong == 0)
            && self.answers_wrong == 0
            && self.unsettled == 0
            && self.not_looked.is_none()
    }
}

#[derive(Deserialize)]
struct Counted {
    items: Vec<Invariant>,
}

#[derive(Deserialize)]
struct Invariant {
    name: String,
    violations: u64,
}

/// How things stood when a visit began.
pub(crate) struct Before {
    pub(crate) stock: AllStock,
    /// By user: people may have shopped before.
    pub(crate) orders: HashMap<u32, BTreeMap<String, u32>>,
    /// What the shop had counted against its promises, by their names.
    pub(crate) violations: BTreeMap<String, u64>,
}

/// Looks at everything that has happened since. `patience` is how long the shop may take to finish what it has begun,
/// and how old the list of a day may be.
pub(crate) fn look(
    wire: &mut Wire,
    crowd: &mut Crowd,
    before: &Before,
    operator: Option<&str>,
    patience: Duration,
    progress: Progress<'_>,
) -> Result<Findings, ShopError> {
    let (settled, unsettled) = settle(wire, crowd, patience)?;
    // What is asked for while the crowd is only read.
    let mut checks = std::mem::take(&mut crowd.checks);
    let found = look_at_all(wire, crowd, before, operator, patience, &mut checks, progress);
    crowd.checks = checks;
    let mut findings = found?;
    for (invariant, wrong) in crowd.checks.by_invariant() {
        *findings.by_promise.entry(invariant.to_owned()).or_default() += wrong;
    }
    let Findings { answers, answers_wrong, reads_checked_one_in, .. } = Findings::of_answers(crowd);
    Ok(Findings { settled, unsettled, answers, answers_wrong, reads_checked_one_in, ..findings })
}

fn look_at_all(
    wire: &mut Wire,
    crowd: &Crowd,
    before: &Before,
    operator: Option<&str>,
    patience: Duration,
    checks: &mut Checks,
    progress: Progress<'_>,
) -> Result<Findings, ShopError> {
    let mut wrong = Wrong::default();
    // Before everything else: if that places a second order, it is found with the rest.
    replays(wire, crowd, checks, progress)?;
    let (orders, there) = orders(wire, crowd, checks, &mut wrong, progress)?;
    status_histories(wire, crowd, &there, checks, progress)?;
    let (histories, unasked_orders) = histories(wire, crowd, &before.orders, checks, &mut wrong, progress)?;
    let days = match operator {
        Some(operator) => Some(days(wire, crowd, operator, patience, checks, &mut wrong, progress)?),
        None => None,
    };
    let carts = carts(wire, crowd, &mut wrong, progress)?;
    let (stock, stock_after) = stock(wire, crowd, &before.stock, operator, patience, &mut wrong, progress)?;
    let mut by_promise: BTreeMap<String, u64> = [
        ("ORD-1", orders.wrong + histories.wrong + days.map_or(0, |days| days.wrong)),
        ("ORD-2", unasked_orders.wrong),
        ("CRT-1", carts.wrong),
        ("STK-1", stock.wrong),
    ]
    .map(|(promise, wrong)| (promise.to_owned(), wrong))
    .into();
    let invariants = match operator {
        Some(operator) => Some(invariants(wire, operator, &before.violations, &mut wrong, &mut by_promise)?),
        None => None,
    };
    Ok(Findings {
        orders,
        histories,
        days,
        unasked_orders,
        carts,
        stock,
        invariants,
        by_promise,
        flash: crowd
            .has_flash_sale()
            .then(|| flash_sale(crowd, &before.stock, &stock_after, operator.is_some())),
        left_out: if operator.is_some() { Vec::new() } else { vec![FOR_OPERATORS.to_owned()] },
        examples: wrong.examples,
        ..Findings::default()
    })
}

/// Asks again for every order whose answer was lost. Under its key it is placed once at most.
fn settle(wire: &mut Wire, crowd: &mut Crowd, patience: Duration) -> Result<(u64, u64), ShopError> {
    let open: Vec<u32> = crowd.unsettled().to_vec();
    let mut asked = vec![None; open.len()];
    // Both closures need the crowd, one after the other.
    let crowd = std::cell::RefCell::new(crowd);
    let asked_of = std::cell::RefCell::new(&mut asked);
    ask_all(
        wire,
        open.len(),
        patience,
        |number, out| asked_of.borrow_mut()[number] = crowd.borrow_mut().ask_again(open[number], out),
        |number, outcome| {
            let mut crowd = crowd.borrow_mut();
            if let Some(asked) = asked_of.borrow_mut()[number].take() {
                crowd.heard(asked, outcome);
            }
            if crowd.unsettled().contains(&open[number]) { Heard::Again } else { Heard::Done }
        },
    )?;
    let left = crowd.borrow().unsettled().len() as u64;
    Ok((open.len() as u64 - left, left))
}

fn invariants(
    wire: &mut Wire,
    operator: &str,
    before: &BTreeMap<String, u64>,
    wrong: &mut Wrong,
    by_promise: &mut BTreeMap<String, u64>,
) -> Result<Check, ShopError> {
    let counted = violations(wire, operator)?;
    let mut check = Check { looked_at: counted.len() as u64, wrong: 0 };
    for (name, count) in &counted {
        // A shop that was started again counts from zero.
        let since = count.saturating_sub(before.get(name).copied().unwrap_or_default());
        *by_promise.entry(name.clone()).or_default() += since;
        if since > 0 {
            check.wrong += 1;
            wrong.tell(|| format!("{name}: the shop itself has counted {since}"));
        }
    }
    Ok(check)
}

/// What the shop has counted against its promises since it was started.
pub(crate) fn violations(wire: &mut Wire, operator: &str) -> Result<BTreeMap<String, u64>, ShopError> {
    let counted: Counted =
        shop::one(wire, "reading the shop's own count", "/v1/ops/invariants", Some(operator))?;
    Ok(counted.items.into_iter().map(|invariant| (invariant.name, invariant.violations)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_thing_is_enough() {
        assert!(Findings::default().is_right());
        let wrong = Check { looked_at: 1, wrong: 1 };
        assert!(!Findings { carts: wrong, ..Findings::default() }.is_right());
        assert!(!Findings { days: Some(wrong), ..Findings::default() }.is_right());
        // Whoever has no token may not look everywhere, and nothing is wrong with that.
        assert!(Findings { left_out: vec![FOR_OPERATORS.to_owned()], ..Findings::default() }.is_right());
        assert!(!Findings { invariants: Some(wrong), ..Findings::default() }.is_right());
        assert!(!Findings { unsettled: 1, ..Findings::default() }.is_right());
    }
}
