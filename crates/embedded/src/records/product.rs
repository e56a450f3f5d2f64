//! A product: its fields, its stock by zone and the holds on it.

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::leaves::{Amount, At, Id, ZoneCode};
use mobimir_core::{
    id::{AttemptId, OrderId, ProductId},
    ports::StoreResult,
    product::{Attribute, Hold, HoldKind, Product, ZoneStock},
    time::Version,
};

use crate::engine::{Key, KeyBuilder, Table};

pub(crate) fn key(id: ProductId) -> Key {
    KeyBuilder::new(Table::Product).uuid(id.0).end()
}

#[derive(Encode, Decode)]
struct ProductRecord<'a> {
    #[b(0)]
    name: &'a str,
    #[b(1)]
    category: &'a str,
    #[n(2)]
    price: Amount,
    #[b(3)]
    attributes: Vec<AttributeRecord<'a>>,
    #[n(4)]
    stock: Vec<StockRecord>,
    #[n(5)]
    holds: Vec<HoldRecord>,
    #[n(6)]
    created_at: At,
    #[n(7)]
    updated_at: At,
    #[n(8)]
    version: u64,
}

#[derive(Encode, Decode)]
struct AttributeRecord<'a> {
    #[b(0)]
    name: &'a str,
    #[b(1)]
    value: AttributeValue<'a>,
}

#[derive(Encode, Decode)]
enum AttributeValue<'a> {
    #[n(0)]
    Flag(#[n(0)] bool),
    #[n(1)]
    Integer(#[n(0)] i64),
    #[n(2)]
    Decimal(#[n(0)] f64),
    #[n(3)]
    Text(#[b(0)] &'a str),
}

#[derive(Encode, Decode)]
struct StockRecord {
    #[n(0)]
    zone: ZoneCode,
    #[n(1)]
    received: u64,
    #[n(2)]
    available: u64,
    #[n(3)]
    reserved: u64,
    #[n(4)]
    sold: u64,
}

#[derive(Encode, Decode)]
struct HoldRecord {
    #[n(0)]
    order: Id,
    #[n(1)]
    attempt: Id,
    #[n(2)]
    is_return: bool,
    #[n(3)]
    zone: ZoneCode,
    #[n(4)]
    quantity: u64,
    #[n(5)]
    placed_at: At,
}

pub(crate) fn encode(product: &Product) -> Slice {
    super::encode(&ProductRecord {
        name: &product.name,
        category: &product.category,
        price: Amount(product.price),
        attributes: product.attributes.iter().map(AttributeRecord::from).collect(),
        stock: product
            .stock
            .iter()
            .map(|(zone, stock)| StockRecord {
                zone: ZoneCode(*zone),
                received: stock.received,
                available: stock.available,
                reserved: stock.reserved,
                sold: stock.sold,
            })
            .collect(),
        holds: product.holds.iter().map(HoldRecord::from).collect(),
        created_at: At(product.created_at),
        updated_at: At(product.updated_at),
        version: product.version.0,
    })
}

pub(crate) fn decode(id: ProductId, bytes: &[u8]) -> StoreResult<Product> {
    let record: ProductRecord<'_> = super::decode("product", bytes)?;
    let stock = record.stock.into_iter().map(|stock| {
        let StockRecord { zone, received, available, reserved, sold } = stock;
        (zone.0, ZoneStock { received, available, reserved, sold })
    });
    Ok(Product {
        id,
        name: record.name.into(),
        category: record.category.into(),
        price: record.price.0,
        attributes: record.attributes.into_iter().map(|a| (a.name.into(), a.value.into())).collect(),
        stock: stock.collect(),
        holds: record.holds.into_iter().map(Hold::from).collect(),
        created_at: record.created_at.0,
        updated_at: record.updated_at.0,
        version: Version(record.version),
    })
}

impl<'a> From<(&'a String, &'a Attribute)> for AttributeRecord<'a> {
    fn from((name, value): (&'a String, &'a Attribute)) -> Self {
        let value = match value {
            Attribute::Flag(flag) => AttributeValue::Flag(*flag),
            Attribute::Integer(number) => AttributeValue::Integer(*number),
            Attribute::Decimal(number) => AttributeValue::Decimal(*number),
            Attribute::Text(text) => AttributeValue::Text(text),
        };
        Self { name, value }
    }
}

impl From<AttributeValue<'_>> for Attribute {
    fn from(value: AttributeValue<'_>) -> Self {
        match value {
            AttributeValue::Flag(flag) => Attribute::Flag(flag),
            AttributeValue::Integer(number) => Attribute::Integer(number),
            AttributeValue::Decimal(number) => Attribute::Decimal(number),
            AttributeValue::Text(text) => Attribute::Text(text.into()),
        }
    }
}

impl From<&Hold> for HoldRecord {
    fn from(hold: &Hold) -> Self {
        Self {
            order: Id(hold.order.0),
            attempt: Id(hold.attempt.0),
            is_return: hold.kind == HoldKind::Return,
            zone: ZoneCode(hold.zone),
            quantity: hold.quantity,
            placed_at: At(hold.placed_at),
        }
    }
}

impl From<HoldRecord> for Hold {
    fn from(record: HoldRecord) -> Self {
        Self {
            order: OrderId(record.order.0),
            attempt: AttemptId(record.attempt.0),
            kind: if record.is_return { HoldKind::Return } else { HoldKind::Sale },
            zone: record.zone.0,
            quantity: record.quantity,
            placed_at: record.placed_at.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary;

    proptest! {
        #[test]
        fn a_product_comes_back_whole(product in arbitrary::product()) {
            prop_assert_eq!(super::decode(product.id, &super::encode(&product)).unwrap(), product);
        }
    }
}
