//! Whether the shop kept its promises: everything that it acknowledged is looked for when the load is over.

mod days;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use self::days::{LIST_PATIENCE, days};
use crate::{
    asking::{Heard, ask_all},
    crowd::{Crowd, LineAnswer, OrderAnswer, Wrong},
    shop::{self, AllStock, Progress, ShopError, Stock, all, lists},
    wire::Wire,
};

/// How long a shop may take to finish what it has begun: the reconciler's time for a checkout that was left open.
const SETTLE_PATIENCE: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_millis(500);
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
    /// Answers during the run that cannot be right.
    pub answers_wrong: u64,
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

/// Units of the product that was wanted most, in all zones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashSale {
    pub product_id: String,
    /// Available before.
    pub units_before: u64,
    /// In acknowledged orders.
    pub units_ordered: u64,
    /// As the shop counts; without an operator's token as many as are missing.
    pub units_sold: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub looked_at: u64,
    pub wrong: u64,
}

impl Findings {
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
struct CartAnswer<'a> {
    #[serde(borrow)]
    items: Vec<LineAnswer<'a>>,
}

#[derive(Deserialize)]
struct OrderId {
    order_id: String,
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

/// Looks at everything that has happened since.
pub(crate) fn look(
    wire: &mut Wire,
    crowd: &mut Crowd,
    before: &Before,
    operator: Option<&str>,
    progress: Progress<'_>,
) -> Result<Findings, ShopError> {
    let (settled, unsettled) = settle(wire, crowd)?;
    let mut wrong = crowd.wrong.clone();
    let answers_wrong = wrong.count;
    let orders = orders(wire, crowd, &mut wrong, progress)?;
    let (histories, unasked_orders) = histories(wire, crowd, &before.orders, &mut wrong, progress)?;
    let days = match operator {
        Some(operator) => Some(days(wire, crowd, operator, LIST_PATIENCE, &mut wrong, progress)?),
        None => None,
    };
    let carts = carts(wire, crowd, &mut wrong, progress)?;
    let (stock, stock_after) = stock(wire, crowd, &before.stock, operator, &mut wrong, progress)?;
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
        answers_wrong,
        settled,
        unsettled,
        not_looked: None,
        left_out: if operator.is_some() { Vec::new() } else { vec![FOR_OPERATORS.to_owned()] },
        examples: wrong.examples,
    })
}

/// The orders of every user, and how often each stands in the history.
pub(crate) fn known_orders(
    wire: &mut Wire,
    crowd: &Crowd,
    progress: Progress<'_>,
) -> Result<HashMap<u32, BTreeMap<String, u32>>, ShopError> {
    let users: Vec<u32> = (0..crowd.shoppers.len() as u32)
        .filter(|at| crowd.shoppers[*at as usize].credentials.is_some())
        .collect();
    let mut found: HashMap<u32, BTreeMap<String, u32>> = HashMap::new();
    lists(
        wire,
        "reading histories",
        users.len(),
        progress,
        |_| "/v1/orders?".to_owned(),
        |list| crowd.shoppers[users[list] as usize].reads(),
        |list, page: Vec<OrderId>| {
            let orders = found.entry(users[list]).or_default();
            page.into_iter().for_each(|order| *orders.entry(order.order_id).or_default() += 1);
            true
        },
    )?;
    Ok(found)
}

/// Asks again for every order whose answer was lost. Under its key it is placed once at most.
fn settle(wire: &mut Wire, crowd: &mut Crowd) -> Result<(u64, u64), ShopError> {
    let open: Vec<u32> = crowd.unsettled().to_vec();
    let mut asked = vec![None; open.len()];
    // Both closures need the crowd, one after the other.
    let crowd = std::cell::RefCell::new(crowd);
    let asked_of = std::cell::RefCell::new(&mut asked);
    ask_all(
        wire,
        open.len(),
        SETTLE_PATIENCE,
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

fn orders(
    wire: &mut Wire,
    crowd: &Crowd,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<Check, ShopError> {
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
                let same = order.is_some_and(|order| order.digest() == crowd.placed[number].digest);
                Some(if same { Found::Same } else { Found::Other })
            }
            404 => Some(Found::Not),
            _ => None,
        },
    )?;
    for (placed, found) in crowd.placed.iter().zip(found) {
        if found != Found::Same {
            check.wrong += 1;
            wrong.tell(|| format!("ORD-1: the acknowledged order {} is {}", placed.id, found.words()));
        }
    }
    Ok(check)
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

fn histories(
    wire: &mut Wire,
    crowd: &Crowd,
    before: &HashMap<u32, BTreeMap<String, u32>>,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<(Check, Check), ShopError> {
    let found = known_orders(wire, crowd, progress)?;
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

fn carts(
    wire: &mut Wire,
    crowd: &Crowd,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<Check, ShopError> {
    let owners: Vec<usize> = (0..crowd.shoppers.len())
        .filter(|at| {
            let shopper = &crowd.shoppers[*at];
            // Guests who are gone have none, and of a lost order nobody knows what it took.
            !shopper.token.is_empty() && shopper.pending.is_none()
        })
        .collect();
    let found = all(
        wire,
        "comparing carts",
        owners.len(),
        progress,
        |number, out| out.put("GET", &["/v1/cart"], crowd.shoppers[owners[number]].reads()),
        |_, answer| {
            let cart: CartAnswer<'_> = serde_json::from_slice(answer.body).ok()?;
            (answer.status == 200).then(|| crowd.numbered(&cart.items))
        },
    )?;
    let mut check = Check { looked_at: owners.len() as u64, wrong: 0 };
    for (owner, lines) in owners.iter().zip(found) {
        let differs = match lines {
            Some(lines) => crowd.shoppers[*owner].cart.differs(&lines).map(|(product, known, units)| {
                let id = &crowd.goods.product(product).id;
                format!("{units} of {id} instead of {} to {}", known.low, known.high)
            }),
            None => Some("a product that was never put in".to_owned()),
        };
        if let Some(differs) = differs {
            check.wrong += 1;
            wrong.tell(|| format!("CRT-1: the cart of shopper {owner} has {differs}"));
        }
    }
    Ok(check)
}

/// A stock that is not what it must be.
#[derive(Debug, PartialEq, Eq)]
enum Differs {
    /// The shop may be about to finish something.
    Yet(String),
    ForGood(String),
}

/// What a product's stock in a zone must be, when so many units were ordered.
fn stock_differs(before: Stock, after: Stock, ordered: u64, detailed: bool) -> Option<Differs> {
    if !detailed {
        let Stock { available, .. } = before;
        let words = || format!("{available} were available, {ordered} ordered, {} are left", after.available);
        return (available.checked_sub(ordered) != Some(after.available)).then(|| Differs::Yet(words()));
    }
    let sum = |stock: Stock| stock.available + stock.reserved + stock.sold;
    if sum(before) != sum(after) {
        Some(Differs::ForGood(format!("STK-1: {before:?} became {after:?}")))
    } else if after.reserved > 0 {
        Some(Differs::Yet(format!("{} are still reserved", after.reserved)))
    } else if after.sold != before.sold + ordered {
        let sold = after.sold.abs_diff(before.sold);
        Some(Differs::Yet(format!("{ordered} were ordered, and {sold} sold")))
    } else {
        None
    }
}

fn stock(
    wire: &mut Wire,
    crowd: &Crowd,
    before: &AllStock,
    operator: Option<&str>,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<(Check, AllStock), ShopError> {
    let mut ordered: BTreeMap<(u32, u16), u64> = BTreeMap::new();
    for order in &crowd.placed {
        for (product, units) in &order.lines {
            *ordered.entry((*product, order.zone)).or_default() += units;
        }
    }
    let until = Instant::now() + SETTLE_PATIENCE;
    loop {
        let after = shop::stock(wire, &crowd.goods, operator, progress)?;
        let mut check = Check::default();
        let (mut differences, mut may_settle) = (Vec::new(), false);
        for (product, (before, after)) in before.iter().zip(&after).enumerate() {
            let zones: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for zone in zones {
                let number = crowd.zones.iter().position(|known| known == zone);
                let units = number.and_then(|number| ordered.get(&(product as u32, number as u16)));
                let of = |stock: &BTreeMap<String, Stock>| stock.get(zone).copied().unwrap_or_default();
                let (before, after) = (of(before), of(after));
                check.looked_at += 1;
                let ordered = units.copied().unwrap_or_default();
                if let Some(differs) = stock_differs(before, after, ordered, operator.is_some()) {
                    may_settle |= matches!(differs, Differs::Yet(_));
                    let (Differs::Yet(differs) | Differs::ForGood(differs)) = differs;
                    differences.push(format!("{} in {zone}: {differs}", crowd.goods.products[product].id));
                }
            }
        }
        // What was left half done is finished by the shop itself.
        if !may_settle || Instant::now() >= until {
            check.wrong = differences.len() as u64;
            differences.into_iter().for_each(|difference| wrong.tell(|| difference));
            return Ok((check, after));
        }
        std::thread::sleep(SETTLE_PAUSE);
    }
}

fn flash_sale(crowd: &Crowd, before: &AllStock, after: &AllStock, detailed: bool) -> FlashSale {
    let product = crowd.goods.most_wanted();
    let sum =
        |all: &AllStock, units: fn(&Stock) -> u64| -> u64 { all[product as usize].values().map(units).sum() };
    let available = |all: &AllStock| sum(all, |stock| stock.available);
    let sold = |all: &AllStock| sum(all, |stock| stock.sold);
    let lines = crowd.placed.iter().flat_map(|order| &order.lines);
    FlashSale {
        product_id: crowd.goods.product(product).id.clone(),
        units_before: available(before),
        units_ordered: lines.filter(|(ordered, _)| *ordered == product).map(|(_, units)| units).sum(),
        units_sold: match detailed {
            true => sold(after).saturating_sub(sold(before)),
            false => available(before).saturating_sub(available(after)),
        },
    }
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

    const BEFORE: Stock = Stock { available: 10, reserved: 0, sold: 5 };

    #[test]
    fn every_unit_is_somewhere() {
        let sold = Stock { available: 7, reserved: 0, sold: 8 };
        assert_eq!(stock_differs(BEFORE, sold, 3, true), None);
        for (after, ordered, what) in [
            (Stock { available: 8, ..sold }, 3, "STK-1"),
            (Stock { available: 7, reserved: 3, sold: 5 }, 3, "still reserved"),
            (sold, 2, "2 were ordered, and 3 sold"),
            (BEFORE, 1, "1 were ordered, and 0 sold"),
        ] {
            let differs = stock_differs(BEFORE, after, ordered, true).expect(what);
            assert!(format!("{differs:?}").contains(what), "{differs:?}");
        }
        assert_eq!(stock_differs(BEFORE, sold, 3, false), None);
        assert!(stock_differs(BEFORE, sold, 4, false).is_some());
        assert!(stock_differs(BEFORE, sold, 11, false).is_some());
    }

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
