//! Whether an answer can be right, given what the crowd knows: the catalogue, its own changes, its own orders. Where an
//! answer was lost, everything that may have happened is accepted.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use serde::Deserialize;

use super::{
    Crowd, NEW_ORDER_STATUS,
    asked::{Source, What},
    hearing::shown,
    ledger::Units,
    order::{LineAnswer, OrderAnswer, sum_of},
};
use crate::{
    goods::{LISTING_ITEMS, PriceRange, kopecks},
    rules::{Example, Rule},
};

/// As many orders as a page of a history has.
const HISTORY_ITEMS: usize = 20;

#[derive(Deserialize)]
struct CartAnswer<'a> {
    #[serde(borrow)]
    items: Vec<LineAnswer<'a>>,
    amount: &'a str,
}

#[derive(Deserialize)]
struct ProductAnswer<'a> {
    product_id: &'a str,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    category: Cow<'a, str>,
    price: &'a str,
    #[serde(borrow)]
    stock_by_zone: BTreeMap<&'a str, u64>,
}

#[derive(Deserialize)]
struct ListedAnswer<'a> {
    product_id: &'a str,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    category: Cow<'a, str>,
    price: &'a str,
}

#[derive(Deserialize)]
struct PageAnswer<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct RefusalAnswer<'a> {
    #[serde(borrow)]
    lines: Vec<ShortLine<'a>>,
}

#[derive(Deserialize)]
struct ShortLine<'a> {
    product_id: &'a str,
    requested: u64,
    available: u64,
}

/// A line that was asked for, when `out_of_stock` is answered.
pub(super) struct Wanted {
    pub(super) product: u32,
    pub(super) units: Units,
    /// What refused orders had released of the product when it was asked for.
    pub(super) released: u64,
    /// Units that the request itself may hold.
    pub(super) own: u64,
}

impl Crowd {
    /// The cart as it is answered to a change, or read without a change in between.
    pub(super) fn is_right_cart(&mut self, source: Source<'_>, owner: u32, body: &[u8]) -> bool {
        let Some(CartAnswer { items, amount }) = self.parsed(source, body) else { return false };
        let lines = self.numbered(&items);
        // A product has one line.
        let is_same = |lines: &BTreeMap<u32, u64>| {
            lines.len() == items.len() && self.shoppers[owner as usize].cart.differs(lines).is_none()
        };
        let same = lines.as_ref().is_some_and(is_same);
        let contents = self.check(source, Rule::CartContents, same, |crowd| {
            let cart = &crowd.shoppers[owner as usize].cart;
            let different = lines.as_ref().and_then(|lines| cart.differs(lines));
            let expected = match different {
                Some((product, units, _)) => crowd.units_of(product, units),
                None => "one line for each product that was put in".to_owned(),
            };
            (expected, lines_shown(&items))
        });
        let wrong_line = items
            .iter()
            .find_map(|line| self.other_facts(line.product_id, &line.name, &line.category, line.price));
        let sum = sum_of(&items);
        let holds = wrong_line.is_none() && sum.as_deref() == Some(amount);
        let prices = self.check(source, Rule::CartPrices, holds, |_| {
            wrong_line.unwrap_or_else(|| (sum.unwrap_or_default(), format!("an amount of {amount}")))
        });
        contents && prices
    }

    pub(super) fn is_right_product(&mut self, what: What, product: u32, body: &[u8]) -> bool {
        let source = Source::Asked(what);
        let Some(answer) = self.parsed::<ProductAnswer<'_>>(source, body) else { return false };
        let ProductAnswer { product_id, name, category, price, stock_by_zone } = answer;
        let is_asked = product_id == self.goods.product(product).id;
        let is_asked = self.check(source, Rule::ProductId, is_asked, |crowd| {
            (crowd.goods.product(product).id.clone(), product_id.to_owned())
        });
        if !is_asked {
            return false;
        }
        let other = self.other_facts(product_id, &name, &category, price);
        let facts = self.check(source, Rule::ProductFacts, other.is_none(), |_| other.unwrap_or_default());
        let shown = |zone: u16| {
            let shown =
                stock_by_zone.get(self.zones[usize::from(zone)].as_str()).copied().unwrap_or_default();
            let (low, high) = self.taken.shown(product, zone)?;
            (!(low..=high).contains(&shown)).then_some((zone, low, high, shown))
        };
        let other = (0..self.zones.len() as u16).find_map(shown);
        let stock = self.check(source, Rule::ProductStock, other.is_none(), |crowd| {
            let Some((zone, low, high, shown)) = other else { return Default::default() };
            let zone = &crowd.zones[usize::from(zone)];
            (format!("{low} to {high} available in {zone}"), shown.to_string())
        });
        facts && stock
    }

    /// A page of a category with a range of prices, by rising price.
    pub(super) fn is_right_listing(&mut self, what: What, range: PriceRange, body: &[u8]) -> bool {
        let source = Source::Asked(what);
        let Some(PageAnswer { items }) = self.parsed::<PageAnswer<ListedAnswer<'_>>>(source, body) else {
            return false;
        };
        let category = self.goods.category(range.category);
        let prices = range.low_kopecks..=range.high_kopecks;
        let strange =
            items.iter().find(|item| item.category != category || !prices.contains(&kopecks(item.price)));
        let mut right = self.check(source, Rule::ListingFilter, strange.is_none(), |crowd| {
            let got =
                strange.map(|item| format!("{} at {} in {}", item.product_id, item.price, item.category));
            let category = crowd.goods.category(range.category);
            (format!("products of {category} within the range of prices"), got.unwrap_or_default())
        });
        let place = |item: &ListedAnswer<'_>| (kopecks(item.price), item.product_id.to_owned());
        let places: Vec<(u64, String)> = items.iter().map(place).collect();
        right &= self.check(source, Rule::ListingSorted, places.is_sorted(), |_| {
            ("rising prices, equal ones by id".to_owned(), format!("{places:?}"))
        });
        let ids: HashSet<&str> = items.iter().map(|item| item.product_id).collect();
        right &= self.check(source, Rule::ListingUnique, ids.len() == items.len(), |_| {
            ("every product once".to_owned(), format!("{places:?}"))
        });
        let other = items.iter().find_map(|item| {
            self.other_facts_if_known(item.product_id, &item.name, &item.category, item.price)
        });
        right &= self.check(source, Rule::ProductFacts, other.is_none(), |_| other.unwrap_or_default());
        // A product that is new in the catalogue may push known ones off the page.
        let end = places.last().filter(|_| places.len() >= LISTING_ITEMS);
        let is_due = |kopecks: u64, id: &String| end.is_none_or(|end| (kopecks, id) <= (end.0, &end.1));
        let missing = self
            .goods
            .first_of(range)
            .find(|product| !ids.contains(product.id.as_str()) && is_due(product.kopecks, &product.id));
        let missing = missing.map(|product| format!("{} at {}", product.id, product.price));
        right &= self.check(source, Rule::ListingComplete, missing.is_none(), |_| {
            (missing.unwrap_or_default(), format!("{places:?}"))
        });
        right
    }

    /// An order that was read by its id.
    pub(super) fn is_right_order(&mut self, what: What, placed: u32, body: &[u8]) -> bool {
        let source = Source::Asked(what);
        let Some(mut order) = self.parsed::<OrderAnswer<'_>>(source, body) else { return false };
        order.sort();
        self.is_as_acknowledged(source, placed, &order, || shown(body))
    }

    /// The first page of a user's history, whose last order was this one when it was asked for.
    pub(super) fn is_right_history(
        &mut self,
        what: What,
        user: u32,
        last: Option<u32>,
        orders_begun: u32,
        body: &[u8],
    ) -> bool {
        let source = Source::Asked(what);
        let parsed = self.parsed::<PageAnswer<OrderAnswer<'_>>>(source, body);
        let Some(PageAnswer { mut items }) = parsed else { return false };
        items.iter_mut().for_each(OrderAnswer::sort);
        let all_rows = || {
            let row = |order: &OrderAnswer<'_>| format!("{} of {:?}", order.order_id, order.created_at());
            let rows: Vec<String> = items.iter().map(row).collect();
            if rows.is_empty() { "an empty page".to_owned() } else { rows.join(", ") }
        };
        let foreign = items.iter().find(|order| !self.is_owner(user, order.user_id));
        let mut right = self.check(source, Rule::HistoryOwner, foreign.is_none(), |crowd| {
            let got = foreign.map(|order| format!("{} of {}", order.order_id, order.user_id));
            (format!("orders of {}", crowd.shoppers[user as usize].user_id), got.unwrap_or_default())
        });
        let sorted = items.is_sorted_by(|one, next| {
            let (one_at, next_at) = (one.created_at(), next.created_at());
            one_at > next_at || (one_at == next_at && one.order_id <= next.order_id)
        });
        right &= self.check(source, Rule::HistorySorted, sorted, |_| {
            ("the newest order first, equal times by id".to_owned(), all_rows())
        });
        let ids: HashSet<&str> = items.iter().map(|order| order.order_id).collect();
        right &= self.check(source, Rule::HistoryUnique, ids.len() == items.len(), |_| {
            ("every order once".to_owned(), all_rows())
        });
        let other = items.iter().find(|order| order.sum().as_deref() != Some(order.total_amount));
        right &= self.check(source, Rule::OrderTotal, other.is_none(), |_| {
            let total = |order: &OrderAnswer<'_>| {
                (order.sum().unwrap_or_default(), format!("a total of {}", order.total_amount))
            };
            other.map(total).unwrap_or_default()
        });
        let Some(last) = last else { return right };
        let id = self.placed[last as usize].id.clone();
        // One that was under way, and those that were begun since, may be newer.
        let newer = self.shoppers[user as usize].orders_begun.wrapping_sub(orders_begun) as usize + 1;
        match items.iter().find(|order| *order.order_id == *id) {
            Some(order) => {
                self.check(source, Rule::HistoryLastOrder, true, |_| Default::default());
                right & self.is_as_acknowledged(source, last, order, || format!("another order {id}"))
            }
            None if newer >= HISTORY_ITEMS => right,
            None => self.check(source, Rule::HistoryLastOrder, false, |_| {
                (format!("the acknowledged order {id} on the first page"), all_rows())
            }),
        }
    }

    /// Whether `out_of_stock` can be right. Without a zone the best one counts.
    pub(super) fn is_right_refusal(
        &mut self,
        source: Source<'_>,
        zone: Option<u16>,
        wanted: &[Wanted],
        body: &[u8],
    ) -> bool {
        let Some(RefusalAnswer { lines }) = self.parsed(source, body) else { return false };
        let fault = |line: &ShortLine<'_>| {
            let number = self.number(line.product_id);
            let Some(asked) = wanted.iter().find(|asked| Some(asked.product) == number) else {
                return Some(format!("no line of {}, which was not asked for", line.product_id));
            };
            let Wanted { product, units, released, own } = asked;
            let least = self.taken.available_min(*product, zone, *released, *own);
            let is_short =
                least.is_none_or(|least| line.available >= least) && line.available < line.requested;
            (!is_short || !units.holds(line.requested)).then(|| {
                let asked = self.units_of(*product, *units);
                format!("{asked} asked for, at least {} available", least.unwrap_or_default())
            })
        };
        let fault = match lines.is_empty() {
            true => Some("a line that is short".to_owned()),
            false => lines.iter().find_map(fault),
        };
        self.check(source, Rule::OutOfStock, fault.is_none(), |_| (fault.unwrap_or_default(), shown(body)))
    }

    /// Lines, prices, total, zone, owner and status of an order that was just acknowledged.
    pub(super) fn is_right_new_order(
        &mut self,
        source: Source<'_>,
        user: u32,
        zone: u16,
        asked_for: Option<&BTreeMap<u32, u64>>,
        order: &OrderAnswer<'_>,
        lines: &BTreeMap<u32, u64>,
    ) -> bool {
        let one_line_each = lines.len() == order.items.len();
        let different = match asked_for {
            Some(asked_for) => (asked_for != lines).then(|| format!("{asked_for:?}")),
            None => self.shoppers[user as usize]
                .cart
                .differs(lines)
                .map(|(product, units, _)| self.units_of(product, units)),
        };
        let mut right = self.check(source, Rule::OrderLines, one_line_each && different.is_none(), |_| {
            (different.unwrap_or_else(|| "one line a product".to_owned()), lines_shown(&order.items))
        });
        let other = order
            .items
            .iter()
            .find_map(|line| self.other_facts(line.product_id, &line.name, &line.category, line.price));
        right &= self.check(source, Rule::OrderPrices, other.is_none(), |_| other.unwrap_or_default());
        let sum = order.sum();
        right &= self.check(source, Rule::OrderTotal, sum.as_deref() == Some(order.total_amount), |_| {
            (sum.unwrap_or_default(), format!("a total of {}", order.total_amount))
        });
        let same_zone = self.zones[usize::from(zone)] == order.geo_zone;
        right &= self.check(source, Rule::OrderZone, same_zone, |crowd| {
            (crowd.zones[usize::from(zone)].clone(), order.geo_zone.to_owned())
        });
        right &= self.is_new_and_own(source, user, order);
        let is_new = !self.order_ids.contains(order.order_id);
        right &= self.check(source, Rule::OrderIdUnique, is_new, |_| {
            ("an order that no other request got".to_owned(), order.order_id.to_owned())
        });
        right
    }

    /// Counts a check, and keeps what was expected and what came of the first that fails.
    pub(super) fn check(
        &mut self,
        source: Source<'_>,
        rule: Rule,
        holds: bool,
        explain: impl FnOnce(&Self) -> (String, String),
    ) -> bool {
        if holds || self.checks.has_example(rule) {
            return self.checks.check(rule, holds, Example::default);
        }
        let (expected, got) = explain(self);
        let request = source.described(self);
        self.checks.check(rule, false, || Example { request, expected, got })
    }

    /// Same order, same content, same status as when it was acknowledged.
    fn is_as_acknowledged(
        &mut self,
        source: Source<'_>,
        placed: u32,
        order: &OrderAnswer<'_>,
        got: impl FnOnce() -> String,
    ) -> bool {
        let known = &self.placed[placed as usize];
        let (user, same) = (known.shopper, *known.id == *order.order_id && known.digest == order.digest());
        let same = self.check(source, Rule::OrderUnchanged, same, |crowd| {
            let id = &crowd.placed[placed as usize].id;
            (format!("the order {id} as it was acknowledged"), got())
        });
        same && self.is_new_and_own(source, user, order)
    }

    /// Nobody moves orders during a run.
    fn is_new_and_own(&mut self, source: Source<'_>, user: u32, order: &OrderAnswer<'_>) -> bool {
        let own = self.is_owner(user, order.user_id);
        let own = self.check(source, Rule::OrderOwner, own, |crowd| {
            (crowd.shoppers[user as usize].user_id.to_string(), order.user_id.to_owned())
        });
        let status = order.status == NEW_ORDER_STATUS;
        let status = self.check(source, Rule::OrderStatus, status, |_| {
            (NEW_ORDER_STATUS.to_owned(), order.status.to_owned())
        });
        own && status
    }

    fn is_owner(&self, user: u32, user_id: &str) -> bool {
        let known = &self.shoppers[user as usize].user_id;
        known.is_empty() || **known == *user_id
    }

    /// The answer as JSON; one that is none breaks a rule.
    fn parsed<'a, T: Deserialize<'a>>(&mut self, source: Source<'_>, body: &'a [u8]) -> Option<T> {
        let parsed = serde_json::from_slice(body);
        let reason = parsed.as_ref().err().map(ToString::to_string).unwrap_or_default();
        self.check(source, Rule::AnswerFormat, parsed.is_ok(), |_| {
            ("JSON as the API describes it".to_owned(), format!("{reason}: {}", shown(body)))
        });
        parsed.ok()
    }

    /// What the catalogue says of a product and what was answered, where they differ.
    fn other_facts(&self, id: &str, name: &str, category: &str, price: &str) -> Option<(String, String)> {
        let got = || format!("{id}: {name}, {category}, {price}");
        match self.number(id) {
            Some(_) => self.other_facts_if_known(id, name, category, price),
            None => Some(("a product of the catalogue".to_owned(), got())),
        }
    }

    /// The same, where a product may be unknown because it is new.
    fn other_facts_if_known(
        &self,
        id: &str,
        name: &str,
        category: &str,
        price: &str,
    ) -> Option<(String, String)> {
        let product = self.goods.product(self.number(id)?);
        let known_category = self.goods.category_of(product);
        let same = *product.name == *name && *product.price == *price && known_category == category;
        (!same).then(|| {
            let expected = format!("{id}: {}, {known_category}, {}", product.name, product.price);
            (expected, format!("{id}: {name}, {category}, {price}"))
        })
    }

    fn units_of(&self, product: u32, units: Units) -> String {
        let id = &self.goods.product(product).id;
        match units {
            Units { low, high } if low == high => format!("{low} of {id}"),
            Units { low, high } => format!("{low} to {high} of {id}"),
        }
    }
}

fn lines_shown(lines: &[LineAnswer<'_>]) -> String {
    let line = |line: &LineAnswer<'_>| format!("{} of {}", line.quantity, line.product_id);
    let shown: Vec<String> = lines.iter().map(line).collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}
