//! Where each read may be answered when its entity lives in MongoDB, and how old the answer may be.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Entity,
    reader::Section,
    values::{Period, words},
};

words! {
    ReadOperation {
        CatalogueSearch = "catalogue_search",
        ProductPage = "product_page",
        StockBeforeCart = "stock_before_cart",
        StockAtCheckout = "stock_at_checkout",
        PriceAtCheckout = "price_at_checkout",
        UserProfile = "user_profile",
        Cart = "cart",
        AbandonedCarts = "abandoned_carts",
        OrderHistory = "order_history",
        OrderCard = "order_card",
        OrderStatus = "order_status",
        PaidStatus = "paid_status",
        OrderProcessing = "order_processing",
        Analytics = "analytics",
        SessionCheck = "session_check",
    }
}

words! {
    ReadFrom {
        Primary = "primary",
        Secondary = "secondary",
    }
}

/// Where one operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReadRule {
    pub from: ReadFrom,
    /// How old an answer from a secondary may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Period>,
}

/// One rule for every operation. Without any, everything is read from the primary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Reads(BTreeMap<ReadOperation, ReadRule>);

const BUDGET_MAX: Period = Period::hours(24);

impl Reads {
    pub fn rule(&self, operation: ReadOperation) -> ReadRule {
        self.0.get(&operation).copied().unwrap_or(ReadRule::PRIMARY)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ReadOperation, ReadRule)> + '_ {
        self.0.iter().map(|(operation, rule)| (*operation, *rule))
    }

    /// How old an answer may be, where a secondary may give it.
    pub fn budget(&self, operation: ReadOperation) -> Option<Period> {
        let rule = self.rule(operation);
        rule.budget.filter(|_| rule.from == ReadFrom::Secondary)
    }

    /// The same with another budget for an operation, or with none: from the primary.
    pub fn with(mut self, operation: ReadOperation, budget: Option<Period>) -> Self {
        let rule = match budget {
            Some(_) => ReadRule { from: ReadFrom::Secondary, budget },
            None => ReadRule::PRIMARY,
        };
        self.0.insert(operation, rule);
        self
    }

    pub(super) fn read(section: &Section<'_>) -> Self {
        let rule = |operation: &ReadOperation| (*operation, read_rule(section, *operation));
        Self(ReadOperation::ALL.iter().map(rule).collect())
    }
}

impl ReadRule {
    pub const PRIMARY: ReadRule = ReadRule { from: ReadFrom::Primary, budget: None };
}

impl ReadOperation {
    pub fn entity(self) -> Entity {
        match self {
            Self::CatalogueSearch
            | Self::ProductPage
            | Self::StockBeforeCart
            | Self::StockAtCheckout
            | Self::PriceAtCheckout => Entity::Products,
            Self::UserProfile => Entity::Users,
            Self::Cart | Self::AbandonedCarts => Entity::Carts,
            Self::OrderHistory
            | Self::OrderCard
            | Self::OrderStatus
            | Self::PaidStatus
            | Self::OrderProcessing
            | Self::Analytics => Entity::Orders,
            Self::SessionCheck => Entity::Sessions,
        }
    }

    /// The budget an operation has when a secondary may answer it; `None` when only the primary may.
    pub fn default_budget(self) -> Option<Period> {
        match self {
            Self::CatalogueSearch | Self::ProductPage | Self::OrderHistory | Self::OrderCard => {
                Some(Period::seconds(2))
            }
            Self::OrderStatus => Some(Period::seconds(5)),
            Self::Analytics | Self::AbandonedCarts => Some(Period::seconds(60)),
            Self::StockBeforeCart
            | Self::StockAtCheckout
            | Self::PriceAtCheckout
            | Self::UserProfile
            | Self::Cart
            | Self::PaidStatus
            | Self::OrderProcessing
            | Self::SessionCheck => None,
        }
    }
}

fn read_rule(section: &Section<'_>, operation: ReadOperation) -> ReadRule {
    let section = section.section(operation.as_str());
    let given_from = section.given::<ReadFrom>("from");
    let given_budget = section.given::<Period>("budget");
    let Some(default_budget) = operation.default_budget() else {
        if given_from == Some(ReadFrom::Secondary) {
            section.fail(
                "from",
                "expected \"primary\", because this must be current, got \"secondary\"".to_owned(),
            );
        }
        if let Some(budget) = given_budget {
            section.fail(
                "budget",
                format!("expected none, because this is read from the primary, got {budget}"),
            );
        }
        return ReadRule::PRIMARY;
    };
    if given_from == Some(ReadFrom::Primary) {
        if let Some(budget) = given_budget {
            section.fail(
                "budget",
                format!("expected none, because this is read from the primary, got {budget}"),
            );
        }
        return ReadRule::PRIMARY;
    }
    let budget = section.period("budget", Period::millis(1)..=BUDGET_MAX, default_budget);
    ReadRule { from: ReadFrom::Secondary, budget: Some(budget) }
}
