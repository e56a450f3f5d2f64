//! An order as the shop tells it: when it is acknowledged, and whenever it is read.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
};

use mobimir_core::{money::Money, time::Timestamp};
use serde::Deserialize;

/// The status of an order that nobody has moved.
pub(crate) const NEW_ORDER_STATUS: &str = "confirmed";

#[derive(Deserialize)]
pub(crate) struct OrderAnswer<'a> {
    pub(crate) order_id: &'a str,
    pub(crate) geo_zone: &'a str,
    pub(crate) user_id: &'a str,
    pub(crate) status: &'a str,
    pub(crate) total_amount: &'a str,
    created_at: &'a str,
    #[serde(borrow)]
    pub(crate) items: Vec<LineAnswer<'a>>,
}

/// A line of an order or of a cart.
#[derive(Deserialize, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineAnswer<'a> {
    pub(crate) product_id: &'a str,
    pub(crate) quantity: u64,
    pub(crate) price: &'a str,
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) category: Cow<'a, str>,
}

impl<'a> OrderAnswer<'a> {
    /// `None` when it is no order. In whichever order its lines come, it is the same.
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut order: Self = serde_json::from_slice(body).ok()?;
        order.sort();
        Some(order)
    }

    pub(crate) fn sort(&mut self) {
        self.items.sort_unstable();
    }

    pub(crate) fn created_at(&self) -> Option<Timestamp> {
        Timestamp::parse(self.created_at).ok()
    }

    /// Stands for all of it that never changes: of many orders not everything can be kept. The lines are sorted.
    pub(crate) fn digest(&self) -> u64 {
        let Self { order_id, geo_zone, user_id, total_amount, created_at, items, status: _ } = self;
        let mut hasher = DefaultHasher::new();
        (order_id, geo_zone, user_id, total_amount, created_at, items).hash(&mut hasher);
        hasher.finish()
    }

    /// What its lines make up; `None` when a price is none.
    pub(crate) fn sum(&self) -> Option<String> {
        sum_of(&self.items)
    }
}

pub(crate) fn sum_of(lines: &[LineAnswer<'_>]) -> Option<String> {
    let worth = |line: &LineAnswer<'_>| Some(Money::parse_price(line.price).ok()?.times(line.quantity));
    let worths: Option<Vec<Money>> = lines.iter().map(worth).collect();
    Some(worths?.into_iter().sum::<Money>().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = r#"{"order_id":"o","user_id":"u","status":"confirmed","geo_zone":"MSK","items":[
        {"product_id":"b","name":"Cable 6\"","category":"Cables","price":"2.50","quantity":3},
        {"product_id":"a","name":"Phone","category":"Phones","price":"9999999999.99","quantity":1000000}],
        "total_amount":"9999999999990007.50","shipping_address":null,"payment_method":null,
        "created_at":"2026-11-27T18:00:00.123Z","updated_at":"2026-11-27T18:00:00.123Z"}"#;

    fn order(text: &str) -> OrderAnswer<'_> {
        OrderAnswer::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn the_lines_make_up_the_total() {
        let is_made_up = |text: &str| order(text).sum().as_deref() == Some(order(text).total_amount);
        assert!(is_made_up(ORDER));
        for (right, wrong) in
            [("\"2.50", "\"2.51"), ("0007.50", "0007.49"), ("\"2.50", "\"x"), (":3}", ":4}")]
        {
            let text = ORDER.replace(right, wrong);
            assert!(!is_made_up(&text), "{text}");
        }
    }

    #[test]
    fn an_order_is_known_by_everything_that_stays() {
        let digest = |text: &str| order(text).digest();
        // It is paid, later.
        let paid = ORDER.replace("confirmed", "paid").replace("123Z\"}", "456Z\"}");
        assert_eq!(digest(&paid), digest(ORDER));
        for (one, other) in [
            (":\"o\"", ":\"p\""),
            ("2.50", "2.60"),
            (":3}", ":4}"),
            ("MSK", "SPB"),
            ("Cable ", "Wire "),
            ("07.50", "07.60"),
            ("123Z\",", "124Z\","),
        ] {
            assert_ne!(digest(&ORDER.replace(one, other)), digest(ORDER), "{one}");
        }
        assert_eq!(order(ORDER).created_at(), Timestamp::parse("2026-11-27T18:00:00.123Z").ok());
    }
}
