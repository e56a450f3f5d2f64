//! The first reading: everything that takes the whole file to know. Which goods there are, what they are called and
//! cost, how many of each were sold where; who bought; and how many lines each invoice has, so that the second
//! reading knows when it has an invoice complete.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use mobimir_core::{
    id::{self, ProductId, UserId},
    money::Money,
    product::{Attribute, NAME_CHARS_MAX, Product, STOCK_MAX, ZoneStock},
    time::{Timestamp, Version},
    user::{Email, Profile, User},
    zone::Zone,
};

use super::{
    category,
    line::{Kind, Line},
};

/// What lies on the shelf of a zone after the import: a month's sales, and never less than this.
const AVAILABLE_MIN: u64 = 20;
const MONTH_DAYS: u64 = 30;

pub(crate) struct Survey {
    zones: Vec<Zone>,
    goods: BTreeMap<String, Good>,
    customers: BTreeMap<String, Customer>,
    invoices: HashMap<String, Invoice>,
    first_sale: Option<Timestamp>,
    last_sale: Option<Timestamp>,
}

/// What is known of an invoice before its lines are put together.
pub(crate) struct Invoice {
    /// Lines that belong in its order.
    pub(crate) lines: u32,
    pub(crate) customer: Option<String>,
    pub(crate) country: String,
    pub(crate) zone: Zone,
    /// The earliest of its lines; clerks sometimes take a minute longer.
    pub(crate) at: Timestamp,
}

struct Good {
    first_at: Timestamp,
    names: HashMap<String, NameUse>,
    /// Positive prices, with how often and when last.
    prices: BTreeMap<Money, (u32, Timestamp)>,
    sold: BTreeMap<Zone, u64>,
}

/// A name that was charged for beats any number of notes that a clerk left on a line without a price.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct NameUse {
    priced: u32,
    unpriced: u32,
}

struct Customer {
    first_at: Timestamp,
    zone: Zone,
    country: String,
}

impl Survey {
    /// `zones` must not be empty.
    pub(crate) fn new(zones: &[Zone]) -> Self {
        Self {
            zones: zones.to_vec(),
            goods: BTreeMap::new(),
            customers: BTreeMap::new(),
            invoices: HashMap::new(),
            first_sale: None,
            last_sale: None,
        }
    }

    pub(crate) fn add(&mut self, line: Line) {
        let good = self.goods.entry(line.stock_code).or_insert_with(|| Good::since(line.at));
        good.first_at = good.first_at.min(line.at);
        if line.kind == Kind::Adjustment {
            return;
        }
        if line.price > Money::ZERO {
            let (times, last_at) = good.prices.entry(line.price).or_insert((0, line.at));
            *times += 1;
            *last_at = line.at.max(*last_at);
        }
        if let Some(name) = tidy(&line.description) {
            let used = good.names.entry(name).or_default();
            *(if line.price > Money::ZERO { &mut used.priced } else { &mut used.unpriced }) += 1;
        }

        let zones = &self.zones;
        let invoice = self.invoices.entry(line.invoice).or_insert_with_key(|number| Invoice {
            lines: 0,
            zone: zone_of(zones, line.customer.as_deref().unwrap_or(number)),
            customer: line.customer,
            country: line.country,
            at: line.at,
        });
        invoice.lines += 1;
        invoice.at = invoice.at.min(line.at);
        if let Some(customer) = &invoice.customer {
            let known = self.customers.entry(customer.clone()).or_insert_with(|| Customer {
                first_at: line.at,
                zone: invoice.zone,
                country: invoice.country.clone(),
            });
            known.first_at = known.first_at.min(line.at);
        }
        if line.kind == Kind::Sale {
            *good.sold.entry(invoice.zone).or_default() += line.quantity;
            self.first_sale = Some(self.first_sale.map_or(line.at, |first| first.min(line.at)));
            self.last_sale = Some(self.last_sale.map_or(line.at, |last| last.max(line.at)));
        }
    }

    pub(crate) fn invoice(&self, number: &str) -> Option<&Invoice> {
        self.invoices.get(number)
    }

    pub(crate) fn invoices(&self) -> usize {
        self.invoices.len()
    }

    /// The products, by stock code.
    pub(crate) fn products(&self) -> Result<BTreeMap<String, Product>> {
        let sale_ms = self.last_sale.zip(self.first_sale).map_or(0, |(last, first)| last.since(first));
        let days = (sale_ms.unsigned_abs() / 86_400_000 + 1).max(MONTH_DAYS);
        let product = |(code, good): (&String, &Good)| {
            let product = good.product(code, &self.zones, days);
            product.map(|product| (code.clone(), product))
        };
        self.goods.iter().map(product).collect()
    }

    /// Users that nobody can log in as, since their password hash is empty.
    pub(crate) fn users(&self) -> Result<Vec<User>> {
        self.customers.iter().map(|(number, customer)| customer.user(number)).collect()
    }
}

pub(crate) fn product_id(stock_code: &str) -> ProductId {
    ProductId(id::derived("online-retail-product", &[stock_code.as_bytes()]))
}

pub(crate) fn user_id(customer: &str) -> UserId {
    UserId(id::derived("online-retail-customer", &[customer.as_bytes()]))
}

/// Spreads customers over the zones, the same way every time. The file's countries are not places of ours.
fn zone_of(zones: &[Zone], customer: &str) -> Zone {
    let hash = id::derived("online-retail-zone", &[customer.as_bytes()]).as_u64_pair().0;
    zones[(hash % zones.len() as u64) as usize]
}

/// A description without stray space, stars and shouting; `None` for one that names nothing, like `?`.
fn tidy(description: &str) -> Option<String> {
    let clean: String = description.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words: Vec<&str> = clean.split_whitespace().collect();
    let text = words.join(" ").trim_matches(['*', ' ']).to_owned();
    if !text.chars().any(char::is_alphabetic) {
        return None;
    }
    let shouted = !text.chars().any(char::is_lowercase);
    let text = if shouted { sentence_case(&text) } else { text };
    Some(text.chars().take(NAME_CHARS_MAX).collect())
}

fn sentence_case(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().into_iter().chain(chars.flat_map(char::to_lowercase)).collect()
}

impl Good {
    fn since(first_at: Timestamp) -> Self {
        Self { first_at, names: HashMap::new(), prices: BTreeMap::new(), sold: BTreeMap::new() }
    }

    /// The name used most often; among equals the first in the alphabet, so that it is always the same.
    fn name(&self) -> Option<&str> {
        let often = self.names.iter().max_by(|(a, a_used), (b, b_used)| a_used.cmp(b_used).then(b.cmp(a)));
        often.map(|(name, _)| name.as_str())
    }

    /// The price charged most often; among equals the latest, then the highest.
    fn price(&self) -> Money {
        self.prices
            .iter()
            .max_by_key(|(price, used)| (**used, **price))
            .map_or(Money::ZERO, |(price, _)| *price)
    }

    fn product(&self, stock_code: &str, zones: &[Zone], days: u64) -> Result<Product> {
        let name = self.name().map_or_else(|| format!("Stock code {stock_code}"), str::to_owned);
        let category = category::of(stock_code, &name).to_owned();
        let price = self.price();
        let attributes = BTreeMap::from([("stock_code".to_owned(), Attribute::Text(stock_code.to_owned()))]);
        // What never had a price, and what does not lie on a shelf, is not for sale.
        let for_sale = price > Money::ZERO && !category::is_service(stock_code);
        let stock = zones.iter().map(|&zone| {
            let sold = self.sold.get(&zone).copied().unwrap_or(0);
            let month = u128::from(sold) * u128::from(MONTH_DAYS) / u128::from(days);
            let month = u64::try_from(month).unwrap_or(STOCK_MAX);
            let available = if for_sale { month.clamp(AVAILABLE_MIN, STOCK_MAX) } else { 0 };
            (zone, ZoneStock { received: sold + available, available, reserved: 0, sold })
        });
        let id = product_id(stock_code);
        let stock = stock.collect();
        let product = Product::new(id, name, category, price, attributes, BTreeMap::new(), self.first_at)
            .with_context(|| format!("stock code {stock_code:?} makes no product"))?;
        Ok(Product { stock, ..product })
    }
}

impl Customer {
    fn user(&self, number: &str) -> Result<User> {
        Ok(User {
            id: user_id(number),
            email: Email::parse(&format!("customer-{number}@import.invalid"))?,
            password_hash: String::new(),
            profile: Profile {
                name: Some(format!("Customer {number}")),
                phone: None,
                geo_zone: Some(self.zone),
                shipping_address: address(&self.country),
            },
            created_at: self.first_at,
            updated_at: self.first_at,
            version: Version::default().next(self.first_at),
        })
    }
}

/// All that the file tells of an address is the country.
pub(crate) fn address(country: &str) -> Option<String> {
    const COUNTRY_CHARS_MAX: usize = 100;
    let country: String = country.chars().filter(|c| !c.is_control()).take(COUNTRY_CHARS_MAX).collect();
    (!country.is_empty()).then_some(country)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_tidied() {
        assert_eq!(tidy("  WHITE  HANGING\tHEART "), Some("White hanging heart".into()));
        assert_eq!(tidy("*Boombox Ipod Classic"), Some("Boombox Ipod Classic".into()));
        assert_eq!(tidy("Dotcom Gift Shop"), Some("Dotcom Gift Shop".into()));
        for nothing in ["", "?", "?? 20", " \u{0} "] {
            assert_eq!(tidy(nothing), None, "{nothing}");
        }
    }
}
