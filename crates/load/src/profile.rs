//! What a crowd of shoppers does, as a file: who they are, what they ask for and how often, and when they come.

use mobimir_core::policy::Period;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::operation::Operation;

/// Profiles that come with the program.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("black-friday", include_str!("../profiles/black-friday.toml")),
    ("browsing", include_str!("../profiles/browsing.toml")),
    ("flash-sale", include_str!("../profiles/flash-sale.toml")),
    ("wholesale", include_str!("../profiles/wholesale.toml")),
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub mix: Mix,
    #[serde(default)]
    pub shoppers: Shoppers,
    #[serde(default)]
    pub goods: Goods,
    #[serde(default)]
    pub wholesale: Option<Wholesale>,
    /// One after the other from the start; after the last its `to` stays.
    #[serde(default)]
    pub ramp: Vec<Ramp>,
    #[serde(default)]
    pub flash: Vec<Flash>,
    /// Ends the run, if its time is not up before.
    #[serde(default)]
    pub requests_max: Option<u64>,
}

/// Shares of all requests; only how they compare matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    pub product_page: f64,
    pub category_page: f64,
    pub cart_add: f64,
    pub cart_change: f64,
    pub cart_read: f64,
    pub order: f64,
    pub order_history: f64,
    pub order_status: f64,
    /// A guest logs in, and the guest's cart becomes the user's.
    pub login: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shoppers {
    /// Signed up and logged in before the run begins.
    pub users: usize,
    pub guests: usize,
    pub cart_lines_max: usize,
    /// Of those who order, so many in a hundred order their cart; the others one product at once.
    pub cart_orders_percent: u64,
    /// Every user orders once at most, one after the other. What is due when all have ordered is not sent.
    pub order_once: bool,
}

impl Default for Shoppers {
    fn default() -> Self {
        Self { users: 100, guests: 500, cart_lines_max: 10, cart_orders_percent: 70, order_once: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Goods {
    /// How many products of the catalogue shoppers look at, at most.
    pub products_max: usize,
    /// How much more some are wanted than others: 0 all the same, 1 as words in a language.
    pub zipf: f64,
    /// Before the run an operator fills up every stock that is below.
    pub stock_at_least: u64,
    /// Before the run an operator sets the stock of the product that a flash sale is about, in one zone alone.
    pub flash_stock: Option<u64>,
}

impl Default for Goods {
    fn default() -> Self {
        Self { products_max: 10_000, zipf: 1.0, stock_at_least: 1_000_000, flash_stock: None }
    }
}

/// A customer who orders many products at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wholesale {
    /// Of a hundred orders, so many are the wholesale customer's.
    pub orders_percent: u64,
    pub lines: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    #[serde(deserialize_with = "period", serialize_with = "period_text")]
    pub over: Period,
    /// Shares of the rate.
    pub from: f64,
    pub to: f64,
}

/// For a while many want the same product.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    #[serde(deserialize_with = "period", serialize_with = "period_text")]
    pub at: Period,
    #[serde(rename = "for", deserialize_with = "period", serialize_with = "period_text")]
    pub lasts: Period,
    /// Of a hundred who choose a product, so many choose this one.
    pub percent: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("there is no profile {name:?}: expected a file, or one of {}", known())]
    Unknown { name: String },
    #[error("{name}: {reason}")]
    Bad { name: String, reason: String },
}

fn known() -> String {
    BUILT_IN.map(|(name, _)| name).join(", ")
}

const SHOPPERS_MAX: usize = 1_000_000;
const PRODUCTS_MAX: usize = 1_000_000;
/// As many lines as an order may have.
const LINES_MAX: usize = 200;

impl Profile {
    pub fn built_in(name: &str) -> Result<Self, ProfileError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (name, text) = found.ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })?;
        Self::parse(text, name)
    }

    /// `name` is what errors call it.
    pub fn parse(text: &str, name: &str) -> Result<Self, ProfileError> {
        let bad = |reason: String| ProfileError::Bad { name: name.to_owned(), reason };
        let profile: Self = toml::from_str(text).map_err(|error| bad(error.to_string().trim().to_owned()))?;
        profile.check().map_err(bad)?;
        Ok(profile)
    }

    /// What makes a run of it something that cannot be done twice alike.
    pub fn once_only(&self) -> Option<&'static str> {
        if self.requests_max.is_some() {
            Some("requests_max")
        } else {
            self.goods.flash_stock.map(|_| "goods.flash_stock")
        }
    }

    fn check(&self) -> Result<(), String> {
        let expect = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("expected {what}")) };
        let shares = Operation::ALL.map(|operation| self.mix.share(operation));
        expect(
            shares.iter().all(|share| share.is_finite() && *share >= 0.0) && shares.iter().sum::<f64>() > 0.0,
            "shares of 0 or more in [mix], and one above",
        )?;
        let Shoppers { users, guests, cart_lines_max, cart_orders_percent, .. } = self.shoppers;
        expect((1..=SHOPPERS_MAX).contains(&users), "shoppers.users of 1 to 1000000")?;
        expect((1..=SHOPPERS_MAX).contains(&guests), "shoppers.guests of 1 to 1000000")?;
        expect((1..=LINES_MAX).contains(&cart_lines_max), "shoppers.cart_lines_max of 1 to 200")?;
        expect(cart_orders_percent <= 100, "shoppers.cart_orders_percent of 0 to 100")?;
        let Goods { products_max, zipf, stock_at_least, flash_stock } = self.goods;
        expect((1..=PRODUCTS_MAX).contains(&products_max), "goods.products_max of 1 to 1000000")?;
        expect((0.0..=10.0).contains(&zipf), "goods.zipf of 0 to 10")?;
        let stock_max = mobimir_core::product::STOCK_MAX;
        expect(stock_at_least <= stock_max, "goods.stock_at_least of 0 to 1000000000")?;
        expect(flash_stock.unwrap_or_default() <= stock_max, "goods.flash_stock of 0 to 1000000000")?;
        if let Some(Wholesale { orders_percent, lines }) = self.wholesale {
            expect(orders_percent <= 100, "wholesale.orders_percent of 0 to 100")?;
            expect((1..=LINES_MAX).contains(&lines), "wholesale.lines of 1 to 200")?;
        }
        for ramp in &self.ramp {
            let share = |share: f64| (0.0..=10.0).contains(&share);
            expect(share(ramp.from) && share(ramp.to), "shares of 0 to 10 in [[ramp]]")?;
            expect(ramp.over.as_ms() > 0, "a time above 0 in [[ramp]]")?;
        }
        for flash in &self.flash {
            expect(flash.percent <= 100, "a percent of 0 to 100 in [[flash]]")?;
        }
        Ok(())
    }
}

impl Mix {
    pub(crate) fn share(&self, operation: Operation) -> f64 {
        match operation {
            Operation::ProductPage => self.product_page,
            Operation::CategoryPage => self.category_page,
            Operation::CartAdd => self.cart_add,
            Operation::CartChange => self.cart_change,
            Operation::CartRead => self.cart_read,
            Operation::Order => self.order,
            Operation::OrderHistory => self.order_history,
            Operation::OrderStatus => self.order_status,
            Operation::Login => self.login,
            // Comes of itself, when a guest has logged in.
            Operation::GuestSession => 0.0,
        }
    }
}

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Period, D::Error> {
    let text = String::deserialize(deserializer)?;
    let expected =
        || serde::de::Error::custom(format!("expected a time like 500ms, 10s or 5m, got {text:?}"));
    Period::parse(&text).ok_or_else(expected)
}

fn period_text<S: Serializer>(period: &Period, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_that_comes_along_is_right() {
        for (name, _) in BUILT_IN {
            assert_eq!(Profile::built_in(name).expect("a profile").name, name);
        }
        assert!(matches!(Profile::built_in("black-sunday"), Err(ProfileError::Unknown { .. })));
    }

    /// The mix that the shop is measured by.
    #[test]
    fn the_mix_of_black_friday_is_the_agreed_one() {
        let Mix { product_page, category_page, cart_add, cart_change, cart_read, .. } =
            Profile::built_in("black-friday").expect("a profile").mix;
        assert_eq!((product_page, category_page, cart_read), (58.0, 20.0, 5.0));
        assert_eq!(cart_add + cart_change, 12.0);
    }

    #[test]
    fn what_is_used_up_cannot_be_repeated() {
        let once_only = |text: &str| {
            let text = format!("name = 'a'\n{text}\n[mix]\norder = 1\n");
            Profile::parse(&text, "a").expect("a profile").once_only()
        };
        assert_eq!(once_only(""), None);
        assert_eq!(once_only("requests_max = 5"), Some("requests_max"));
        assert_eq!(once_only("goods.flash_stock = 5"), Some("goods.flash_stock"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "missing field `name`"),
            ("name = 'a'\n[mix]\n", "expected shares"),
            ("name = 'a'\n[mix]\norder = -1\n", "expected shares"),
            ("name = 'a'\n[mix]\nsleep = 1\n", "unknown field `sleep`"),
            ("name = 'a'\n[mix]\norder = 1\n[shoppers]\nusers = 0\n", "shoppers.users"),
            (
                "name = 'a'\n[mix]\norder = 1\n[[ramp]]\nover = 'soon'\nfrom = 0\nto = 1\n",
                "expected a time like",
            ),
        ] {
            let error = Profile::parse(text, "a.toml").expect_err(text).to_string();
            assert!(error.contains(reason) && error.starts_with("a.toml: "), "{error}");
        }
    }
}
