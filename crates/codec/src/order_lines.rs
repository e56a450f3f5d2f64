//! The lines of an order or of a checkout.

use minicbor::{Decode, Encode};
use mobimir_core::{id::ProductId, order::OrderLine};

use crate::leaves::{Amount, Id};

/// A line of an order or of a checkout.
#[derive(Encode, Decode)]
pub struct LineRecord<'a> {
    #[n(0)]
    product_id: Id,
    #[b(1)]
    name: &'a str,
    #[b(2)]
    category: &'a str,
    #[n(3)]
    price: Amount,
    #[n(4)]
    quantity: u64,
}

impl<'a> From<&'a OrderLine> for LineRecord<'a> {
    fn from(line: &'a OrderLine) -> Self {
        Self {
            product_id: Id(line.product_id.0),
            name: &line.name,
            category: &line.category,
            price: Amount(line.price),
            quantity: line.quantity,
        }
    }
}

impl From<LineRecord<'_>> for OrderLine {
    fn from(record: LineRecord<'_>) -> Self {
        Self {
            product_id: ProductId(record.product_id.0),
            name: record.name.into(),
            category: record.category.into(),
            price: record.price.0,
            quantity: record.quantity,
        }
    }
}
