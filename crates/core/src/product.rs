//! Products, their stock by zone, and the holds that checkouts and cancellations place on it.
//!
//! Stock moves in two steps. A *hold* is recorded in the product itself, guarded by what is available; later the
//! hold is *settled* by what the checkout record says. Presence of the hold is the guard of the second step, so
//! settling twice, or settling what a crashed or slower run left behind, changes nothing twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{
    Deserialize, Serialize,
    de::{Deserializer, Visitor},
};
use thiserror::Error;

use crate::{
    id::{AttemptId, OrderId, ProductId},
    money::Money,
    search,
    time::{Timestamp, Version},
    zone::Zone,
};

pub const NAME_CHARS_MAX: usize = 300;
pub const CATEGORY_CHARS_MAX: usize = 100;
pub const ATTRIBUTES_MAX: usize = 64;
pub const ATTRIBUTE_NAME_CHARS_MAX: usize = 64;
pub const ATTRIBUTE_TEXT_CHARS_MAX: usize = 1_000;
pub const ZONES_PER_PRODUCT_MAX: usize = 256;
pub const STOCK_MAX: u64 = 1_000_000_000;
pub const QUANTITY_MAX: u64 = 1_000_000;
/// Holds of one product that may wait to be settled at the same time. A checkout that finds the list full waits.
pub const HOLDS_PER_PRODUCT_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    pub id: ProductId,
    pub name: String,
    pub category: String,
    pub price: Money,
    pub attributes: BTreeMap<String, Attribute>,
    pub stock: BTreeMap<Zone, ZoneStock>,
    pub holds: Vec<Hold>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Attribute {
    Flag(bool),
    Integer(i64),
    Decimal(f64),
    Text(String),
}

/// Takes what comes. A derived one would copy every value first and then try one kind after the other.
impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Takes;

        impl Visitor<'_> for Takes {
            type Value = Attribute;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text, a number, true or false")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Attribute, E> {
                Ok(Attribute::Flag(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Attribute, E> {
                Ok(Attribute::Integer(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Attribute, E> {
                Ok(i64::try_from(value).map_or(Attribute::Decimal(value as f64), Attribute::Integer))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Attribute, E> {
                Ok(Attribute::Decimal(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Attribute, E> {
                Ok(Attribute::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Attribute, E> {
                Ok(Attribute::Text(value))
            }
        }

        deserializer.deserialize_any(Takes)
    }
}

/// The stock of one zone. STK-1: `received = available + reserved + sold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStock {
    /// Everything ever put in: the initial stock and what was restocked since, less what was taken out by hand.
    pub received: u64,
    pub available: u64,
    pub reserved: u64,
    pub sold: u64,
}

/// Units that one run of a checkout (or of its cancellation) has a claim on until the checkout record decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub order: OrderId,
    pub attempt: AttemptId,
    pub kind: HoldKind,
    pub zone: Zone,
    pub quantity: u64,
    pub placed_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldKind {
    /// Takes units out of `available` into `reserved`; settled they are sold or available again.
    Sale,
    /// Moves nothing yet; settled, sold units are available again or stay sold.
    Return,
}

/// What the checkout record says about the runs of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Undecided,
    /// This run counts, every other does not.
    Won(AttemptId),
    /// No run counts.
    Lost,
    /// This run does not count; nothing is known of the others.
    Failed(AttemptId),
}

/// How the holds of one order are to be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub sale: Decision,
    pub cancellation: Decision,
}

#[derive(Clone, Debug, PartialEq)]
pub enum HoldOutcome {
    Held,
    /// This run's hold stands there already.
    AlreadyHeld,
    Short {
        available: u64,
    },
    /// Too many holds wait to be settled; try again shortly.
    Full,
    NoSuchProduct,
}

/// A change of the stock of one zone by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockChange {
    SetAvailable(u64),
    Delta(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockOutcome {
    Changed(ZoneStock),
    Insufficient { available: u64 },
    TooMuch,
    NoSuchProduct,
}

/// The fields of a product that an operator may change; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProductEdit {
    pub name: Option<String>,
    pub category: Option<String>,
    pub price: Option<Money>,
    pub attributes: Option<BTreeMap<String, Attribute>>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProductError {
    #[error("expected a name of 1 to {NAME_CHARS_MAX} characters")]
    BadName,
    #[error("expected a category of 1 to {CATEGORY_CHARS_MAX} characters")]
    BadCategory,
    #[error("expected a price between 0.00 and 9999999999.99")]
    BadPrice,
    #[error(
        "expected at most {ATTRIBUTES_MAX} attributes with names of 1 to {ATTRIBUTE_NAME_CHARS_MAX} and texts of at most {ATTRIBUTE_TEXT_CHARS_MAX} characters"
    )]
    BadAttributes,
    #[error("expected stock between 0 and {STOCK_MAX} in at most {ZONES_PER_PRODUCT_MAX} zones")]
    BadStock,
}

impl Product {
    /// A product as it enters the shop, with its initial stock.
    pub fn new(
        id: ProductId,
        name: String,
        category: String,
        price: Money,
        attributes: BTreeMap<String, Attribute>,
        stock: BTreeMap<Zone, u64>,
        now: Timestamp,
    ) -> Result<Self, ProductError> {
        if stock.len() > ZONES_PER_PRODUCT_MAX || stock.values().any(|&units| units > STOCK_MAX) {
            return Err(ProductError::BadStock);
        }
        let stock = stock.into_iter().map(|(zone, units)| (zone, ZoneStock::of(units))).collect();
        let product = Self {
            id,
            name,
            category,
            price,
            attributes,
            stock,
            holds: Vec::new(),
            created_at: now,
            updated_at: now,
            version: Version::default().next(now),
        };
        product.check_fields()?;
        Ok(product)
    }

    fn check_fields(&self) -> Result<(), ProductError> {
        let edit = ProductEdit {
            name: Some(self.name.clone()),
            category: Some(self.category.clone()),
            price: Some(self.price),
            attributes: Some(self.attributes.clone()),
        };
        edit.check()
    }

    pub fn edit(&mut self, edit: &ProductEdit, now: Timestamp) {
        if let Some(name) = &edit.name {
            self.name.clone_from(name);
        }
        if let Some(category) = &edit.category {
            self.category.clone_from(category);
        }
        if let Some(price) = edit.price {
            self.price = price;
        }
        if let Some(attributes) = &edit.attributes {
            self.attributes.clone_from(attributes);
        }
        self.touch(now);
    }

    pub fn change_stock(&mut self, zone: Zone, change: StockChange, now: Timestamp) -> StockOutcome {
        let mut stock = self.stock.get(&zone).copied().unwrap_or_default();
        if !self.stock.contains_key(&zone) && self.stock.len() >= ZONES_PER_PRODUCT_MAX {
            return StockOutcome::TooMuch;
        }
        let target = match change {
            StockChange::SetAvailable(units) => i128::from(units),
            StockChange::Delta(delta) => i128::from(stock.available) + i128::from(delta),
        };
        let Ok(target) = u64::try_from(target) else {
            return StockOutcome::Insufficient { available: stock.available };
        };
        // A cancellation may have lifted it past the limit; from there it may still go down.
        if target > STOCK_MAX.max(stock.available) {
            return StockOutcome::TooMuch;
        }
        stock.received = stock.received + target - stock.available;
        stock.available = target;
        self.stock.insert(zone, stock);
        self.touch(now);
        StockOutcome::Changed(stock)
    }

    /// Records a hold, if there is enough and this run has none here yet.
    pub fn hold(&mut self, hold: Hold, now: Timestamp) -> HoldOutcome {
        let same = |h: &Hold| h.order == hold.order && h.attempt == hold.attempt && h.kind == hold.kind;
        if self.holds.iter().any(same) {
            return HoldOutcome::AlreadyHeld;
        }
        let mut stock = self.stock.get(&hold.zone).copied().unwrap_or_default();
        if hold.kind == HoldKind::Sale {
            if stock.available < hold.quantity {
                return HoldOutcome::Short { available: stock.available };
            }
            if self.holds.len() >= HOLDS_PER_PRODUCT_MAX {
                return HoldOutcome::Full;
            }
            stock.available -= hold.quantity;
            stock.reserved += hold.quantity;
            self.stock.insert(hold.zone, stock);
        } else if self.holds.len() >= HOLDS_PER_PRODUCT_MAX {
            return HoldOutcome::Full;
        }
        self.holds.push(hold);
        self.version = self.version.next(now);
        HoldOutcome::Held
    }

    /// Settles the holds of `order` by `verdict`; says whether anything changed.
    pub fn settle(&mut self, order: OrderId, verdict: Verdict, now: Timestamp) -> bool {
        let before = self.holds.len();
        // Sales first: units can only come back from a sale that has been settled.
        for kind in [HoldKind::Sale, HoldKind::Return] {
            let decision = match kind {
                HoldKind::Sale => verdict.sale,
                HoldKind::Return => verdict.cancellation,
            };
            let stock = &mut self.stock;
            self.holds.retain(|hold| {
                if hold.order != order || hold.kind != kind {
                    return true;
                }
                let Some(won) = decision.of(hold.attempt) else { return true };
                stock.entry(hold.zone).or_default().settle(hold, won);
                false
            });
        }
        let changed = self.holds.len() != before;
        if changed {
            self.version = self.version.next(now);
        }
        changed
    }

    pub fn available_in(&self, zone: Zone) -> u64 {
        self.stock.get(&zone).map_or(0, |stock| stock.available)
    }

    /// What is available in `zone`, or without one in the zone that has most.
    pub fn best_available(&self, zone: Option<Zone>) -> u64 {
        match zone {
            Some(zone) => self.available_in(zone),
            None => self.stock.values().map(|stock| stock.available).max().unwrap_or(0),
        }
    }

    /// STK-1 and, through the types, STK-2: the books of every zone balance, and what is reserved is what is held.
    pub fn books_balance(&self) -> bool {
        self.stock.iter().all(|(zone, stock)| {
            let held: u64 = self
                .holds
                .iter()
                .filter(|hold| hold.kind == HoldKind::Sale && hold.zone == *zone)
                .map(|hold| hold.quantity)
                .sum();
            stock.received == stock.available + stock.reserved + stock.sold && stock.reserved == held
        })
    }

    pub fn terms(&self) -> BTreeSet<String> {
        search::terms(&self.name)
    }

    fn touch(&mut self, now: Timestamp) {
        self.updated_at = self.updated_at.max(now);
        self.version = self.version.next(now);
    }
}

impl Decision {
    /// Whether a run counts; `None` while that is open.
    pub fn of(self, attempt: AttemptId) -> Option<bool> {
        match self {
            Decision::Undecided => None,
            Decision::Won(winner) => Some(winner == attempt),
            Decision::Lost => Some(false),
            Decision::Failed(loser) => (loser == attempt).then_some(false),
        }
    }
}

impl ZoneStock {
    pub fn of(units: u64) -> Self {
        Self { received: units, available: units, reserved: 0, sold: 0 }
    }

    fn settle(&mut self, hold: &Hold, won: bool) {
        match (hold.kind, won) {
            (HoldKind::Sale, true) => {
                self.reserved -= hold.quantity;
                self.sold += hold.quantity;
            }
            (HoldKind::Sale, false) => {
                self.reserved -= hold.quantity;
                self.available += hold.quantity;
            }
            (HoldKind::Return, true) => {
                self.sold -= hold.quantity;
                self.available += hold.quantity;
            }
            (HoldKind::Return, false) => {}
        }
    }
}

impl ProductEdit {
    pub fn check(&self) -> Result<(), ProductError> {
        let fits = |text: &str, max: usize| {
            !text.trim().is_empty() && text.chars().count() <= max && !text.contains('\0')
        };
        if self.name.as_deref().is_some_and(|name| !fits(name, NAME_CHARS_MAX)) {
            return Err(ProductError::BadName);
        }
        if self.category.as_deref().is_some_and(|category| !fits(category, CATEGORY_CHARS_MAX)) {
            return Err(ProductError::BadCategory);
        }
        if self.price.is_some_and(|price| price < Money::ZERO || price > crate::money::PRICE_MAX) {
            return Err(ProductError::BadPrice);
        }
        let attribute_fits = |(name, value): (&String, &Attribute)| {
            let text_fits = match value {
                Attribute::Text(text) => text.chars().count() <= ATTRIBUTE_TEXT_CHARS_MAX,
                Attribute::Decimal(number) => number.is_finite(),
                Attribute::Flag(_) | Attribute::Integer(_) => true,
            };
            fits(name, ATTRIBUTE_NAME_CHARS_MAX) && text_fits
        };
        if let Some(attributes) = &self.attributes
            && (attributes.len() > ATTRIBUTES_MAX || !attributes.iter().all(attribute_fits))
        {
            return Err(ProductError::BadAttributes);
        }
        Ok(())
    }
}

/// A question to the catalogue. All conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProductQuery {
    pub category: Option<String>,
    pub price_min: Option<Money>,
    pub price_max: Option<Money>,
    /// The stems of the words the name must contain ([`search::terms`] of what was asked).
    pub terms: BTreeSet<String>,
    /// Only what is available in this zone.
    pub zone: Option<Zone>,
    pub sort: ProductSort,
    pub after: Option<ProductPosition>,
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProductSort {
    #[serde(rename = "price")]
    PriceAscending,
    #[serde(rename = "-price")]
    PriceDescending,
    #[serde(rename = "name")]
    Name,
}

/// Where a page of the catalogue ends: the sort key and, for equal keys, the id. Ids rise in every sort order but
/// the descending one, where all runs backwards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProductPosition {
    Price(i64, ProductId),
    Name(String, ProductId),
}

impl ProductQuery {
    pub fn all(sort: ProductSort, limit: usize) -> Self {
        Self {
            category: None,
            price_min: None,
            price_max: None,
            terms: BTreeSet::new(),
            zone: None,
            sort,
            after: None,
            limit,
        }
    }

    /// Whether a product is meant, wherever the page starts. The rule that every store's indexes must agree with.
    pub fn matches(&self, product: &Product) -> bool {
        self.category.as_ref().is_none_or(|category| *category == product.category)
            && self.price_min.is_none_or(|min| product.price >= min)
            && self.price_max.is_none_or(|max| product.price <= max)
            && self.zone.is_none_or(|zone| product.available_in(zone) > 0)
            && (self.terms.is_empty() || self.terms.is_subset(&product.terms()))
    }
}

impl ProductSort {
    pub fn position(self, product: &Product) -> ProductPosition {
        match self {
            ProductSort::Name => ProductPosition::Name(search::name_key(&product.name), product.id),
            ProductSort::PriceAscending | ProductSort::PriceDescending => {
                ProductPosition::Price(price_key(product.price), product.id)
            }
        }
    }

    pub fn fits(self, position: &ProductPosition) -> bool {
        matches!(position, ProductPosition::Name(..)) == (self == ProductSort::Name)
    }
}

/// A price as the 64-bit number that it fits into.
pub fn price_key(price: Money) -> i64 {
    i64::try_from(price.kopecks()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
