//! What the oracle checks in the shop's answers, during the run and afterwards: every rule by a stable name,
//! how often it was checked and broken, and one example.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an answer has to satisfy, given what the load knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A cart has exactly the lines that its owner put in.
    CartContents,
    /// Names, prices and the amount of a cart are those of the catalogue.
    CartPrices,
    /// A cart with something in it is not answered with `empty_cart`.
    CartNotEmpty,
    ProductId,
    /// Name, category and price.
    ProductFacts,
    /// The stock on a product page is between what can have been sold and what there was.
    ProductStock,
    ListingFilter,
    ListingSorted,
    ListingUnique,
    /// A listing has every product that the catalogue has in its range.
    ListingComplete,
    OrderLines,
    OrderPrices,
    OrderTotal,
    OrderZone,
    OrderOwner,
    OrderStatus,
    /// Two keys never get the same order.
    OrderIdUnique,
    /// An order that is read is the order that was asked for, as it was acknowledged.
    OrderUnchanged,
    /// The same key gets the same order again.
    OrderReplayed,
    /// `out_of_stock` is answered only when so little may be left.
    OutOfStock,
    HistoryLastOrder,
    HistorySorted,
    HistoryUnique,
    HistoryOwner,
    /// The status history of an order moves along the status machine.
    StatusHistory,
    DayListSorted,
    DayListUnique,
    DayListFilter,
    LoginUser,
    /// A successful answer is JSON with the fields that the API promises.
    AnswerFormat,
}

impl Rule {
    pub(crate) const ALL: [Self; 30] = [
        Self::CartContents,
        Self::CartPrices,
        Self::CartNotEmpty,
        Self::ProductId,
        Self::ProductFacts,
        Self::ProductStock,
        Self::ListingFilter,
        Self::ListingSorted,
        Self::ListingUnique,
        Self::ListingComplete,
        Self::OrderLines,
        Self::OrderPrices,
        Self::OrderTotal,
        Self::OrderZone,
        Self::OrderOwner,
        Self::OrderStatus,
        Self::OrderIdUnique,
        Self::OrderUnchanged,
        Self::OrderReplayed,
        Self::OutOfStock,
        Self::HistoryLastOrder,
        Self::HistorySorted,
        Self::HistoryUnique,
        Self::HistoryOwner,
        Self::StatusHistory,
        Self::DayListSorted,
        Self::DayListUnique,
        Self::DayListFilter,
        Self::LoginUser,
        Self::AnswerFormat,
    ];

    /// As it stands in reports; programs rely on it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CartContents => "cart_contents",
            Self::CartPrices => "cart_prices",
            Self::CartNotEmpty => "cart_not_empty",
            Self::ProductId => "product_id",
            Self::ProductFacts => "product_facts",
            Self::ProductStock => "product_stock",
            Self::ListingFilter => "listing_filter",
            Self::ListingSorted => "listing_sorted",
            Self::ListingUnique => "listing_unique",
            Self::ListingComplete => "listing_complete",
            Self::OrderLines => "order_lines",
            Self::OrderPrices => "order_prices",
            Self::OrderTotal => "order_total",
            Self::OrderZone => "order_zone",
            Self::OrderOwner => "order_owner",
            Self::OrderStatus => "order_status",
            Self::OrderIdUnique => "order_id_unique",
            Self::OrderUnchanged => "order_unchanged",
            Self::OrderReplayed => "order_replayed",
            Self::OutOfStock => "out_of_stock",
            Self::HistoryLastOrder => "history_last_order",
            Self::HistorySorted => "history_sorted",
            Self::HistoryUnique => "history_unique",
            Self::HistoryOwner => "history_owner",
            Self::StatusHistory => "status_history",
            Self::DayListSorted => "day_list_sorted",
            Self::DayListUnique => "day_list_unique",
            Self::DayListFilter => "day_list_filter",
            Self::LoginUser => "login_user",
            Self::AnswerFormat => "answer_format",
        }
    }

    /// The invariant that is violated with it, if it is one of the numbered ones.
    pub(crate) fn invariant(self) -> Option<&'static str> {
        match self {
            Self::CartContents | Self::CartNotEmpty => Some("CRT-1"),
            Self::OrderUnchanged | Self::HistoryLastOrder => Some("ORD-1"),
            Self::OrderIdUnique | Self::OrderReplayed => Some("ORD-2"),
            Self::OrderStatus | Self::StatusHistory => Some("ORD-3"),
            _ => None,
        }
    }
}

/// One answer that broke a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    pub request: String,
    pub expected: String,
    pub got: String,
}

/// How often a rule was checked and broken, as it is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerCheck {
    pub checked: u64,
    pub wrong: u64,
    /// The first answer that broke it.
    #[serde(default)]
    pub example: Option<Example>,
}

/// All rules, with what was found so far.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    found: [AnswerCheck; Rule::ALL.len()],
}

impl Default for Checks {
    fn default() -> Self {
        Self { found: std::array::from_fn(|_| AnswerCheck::default()) }
    }
}

impl Checks {
    /// Counts a check. The example is only made for the first answer that breaks the rule.
    pub(crate) fn check(&mut self, rule: Rule, holds: bool, example: impl FnOnce() -> Example) -> bool {
        let found = &mut self.found[rule as usize];
        found.checked += 1;
        if !holds {
            found.wrong += 1;
            found.example.get_or_insert_with(example);
        }
        holds
    }

    pub(crate) fn has_example(&self, rule: Rule) -> bool {
        self.found[rule as usize].example.is_some()
    }

    pub(crate) fn wrong(&self) -> u64 {
        self.found.iter().map(|found| found.wrong).sum()
    }

    /// Those that were checked, by name.
    pub(crate) fn by_name(&self) -> BTreeMap<String, AnswerCheck> {
        let all = Rule::ALL.iter().zip(&self.found).filter(|(_, found)| found.checked > 0);
        all.map(|(rule, found)| (rule.name().to_owned(), found.clone())).collect()
    }

    /// How often each numbered invariant was violated.
    pub(crate) fn by_invariant(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Rule::ALL.iter().zip(&self.found).filter_map(|(rule, found)| Some((rule.invariant()?, found.wrong)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_place_and_a_name_of_its_own() {
        for (at, rule) in Rule::ALL.iter().enumerate() {
            assert_eq!(*rule as usize, at, "{rule:?}");
        }
        let names: std::collections::BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        assert_eq!(names.len(), Rule::ALL.len());
    }

    #[test]
    fn the_first_example_is_kept_and_all_are_counted() {
        let mut checks = Checks::default();
        let example = |got: &str| Example { got: got.to_owned(), ..Example::default() };
        assert!(checks.check(Rule::ProductId, true, || example("never made")));
        assert!(!checks.check(Rule::ProductId, false, || example("first")));
        assert!(!checks.check(Rule::ProductId, false, || example("second")));
        let found = checks.by_name();
        assert_eq!(found.len(), 1);
        let expected = AnswerCheck { checked: 3, wrong: 2, example: Some(example("first")) };
        assert_eq!(found["product_id"], expected);
        assert_eq!(checks.wrong(), 2);
        assert!(checks.by_invariant().all(|(_, wrong)| wrong == 0));
    }
}
