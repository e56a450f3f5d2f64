//! An order as the shop tells it: when it is acknowledged, and whenever it is read.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
};

use mobimir_core::{money::Money, time::Timestamp};
use serde::Deserialize;

/// Without what may change later: its status, and when that was.
#[derive(Deserialize, Hash)]
pub(crate) struct OrderAnswer<'a> {
    pub(crate) order_id: &'a str,
    pub(crate) geo_zone: &'a str,
    user_id: &'a str,
    total_amount: &'a str,
    created_at: &'a str,
    #[serde(borrow)]
    pub(crate) items: Vec<LineAnswer<'a>>,
}

/// A line of an order or of a cart.
#[derive(Deserialize, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineAnswer<'a> {
    pub(crate) product_id: &'a str,
    pub(crate) quantity: u64,
    price: &'a str,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    category: Cow<'a, str>,
}

impl<'a> OrderAnswer<'a> {
    /// `None` when it is no order. In whichever order its lines come, it is the same.
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut order: Self = serde_json::from_slice(body).ok()?;
        order.items.sort_unstable();
        Some(order)
    }

    pub(crate) fn created_at(&self) -> Option<Timestamp> {
        Timestamp::parse(self.created_at).ok()
    }

    /// Stands for all of it: of many orders not everything can be kept.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Why it cannot be right, whatever was ordered: the lines have to make up the total.
    pub(crate) fn fault(&self) -> Option<String> {
        let worth = |line: &LineAnswer<'_>| Some(Money::parse_price(line.price).ok()?.times(line.quantity));
        let lines: Option<Vec<Money>> = self.items.iter().map(worth).collect();
        let Some(lines) = lines else { return Some("a price that is none".to_owned()) };
        let sum = lines.into_iter().sum::<Money>().to_string();
        (self.total_amount != sum).then(|| format!("a total of {} for lines of {sum}", self.total_amount))
    }
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
        assert_eq!(order(ORDER).fault(), None);
        for (right, wrong) in
            [("\"2.50", "\"2.51"), ("0007.50", "0007.49"), ("\"2.50", "\"x"), (":3}", ":4}")]
        {
            let text = ORDER.replace(right, wrong);
            assert!(order(&text).fault().is_some(), "{text}");
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
