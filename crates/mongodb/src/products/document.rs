//! A product as a document: what is sold, its stock by zone and the holds on it.

use std::collections::BTreeMap;

use mobimir_core::{
    ports::StoreResult,
    product::{Attribute, Hold, HoldKind, Product, ZoneStock},
    search,
    zone::Zone,
};
use mongodb::bson::{DateTime, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use super::stripes::{SplitDoc, StripesDoc, Transfers};
use crate::{
    leaves::{date, id, kopecks, number, price, time, units, uuid, version, zone},
    link::damaged,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ProductDoc {
    #[serde(rename = "_id")]
    pub(super) id: Uuid,
    pub(super) name: String,
    /// What names are sorted by. Written to be searched by, and not read back.
    #[serde(default)]
    pub(super) name_key: String,
    pub(super) category: String,
    pub(super) price: i64,
    pub(super) attributes: Vec<AttributeDoc>,
    pub(super) stock: BTreeMap<String, ZoneDoc>,
    pub(super) holds: Vec<HoldDoc>,
    /// When the oldest of the holds was placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) oldest_hold: Option<DateTime>,
    pub(super) created_at: DateTime,
    pub(super) updated_at: DateTime,
    pub(super) version: i64,
    /// The stems that a search looks for. Written to be searched by, and not read back.
    #[serde(default)]
    pub(super) terms: Vec<String>,
    /// Whether the stock is split, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stripes: Option<StripesDoc>,
    #[serde(default, skip_serializing_if = "Transfers::is_empty")]
    pub(super) transfers: Transfers,
}

/// A pair and no field of its own name: names may have dots and dollars in them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AttributeDoc {
    pub(super) name: String,
    pub(super) value: Attribute,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ZoneDoc {
    pub(super) received: i64,
    pub(super) available: i64,
    pub(super) reserved: i64,
    pub(super) sold: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HoldDoc {
    pub(super) order: Uuid,
    pub(super) attempt: Uuid,
    pub(super) kind: KindDoc,
    pub(super) zone: String,
    pub(super) quantity: i64,
    pub(super) placed_at: DateTime,
    /// The server's clock when it was placed, which no two writes of one product share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KindDoc {
    Sale,
    Return,
}

impl ProductDoc {
    pub(super) fn of(product: Product) -> Self {
        let holds: Vec<HoldDoc> = product.holds.iter().map(HoldDoc::of).collect();
        Self {
            id: uuid(product.id.0),
            name_key: search::name_key(&product.name),
            terms: product.terms().into_iter().collect(),
            name: product.name,
            category: product.category,
            price: kopecks(product.price),
            attributes: attributes(product.attributes),
            stock: product.stock.iter().map(|(zone, stock)| (zone.to_string(), ZoneDoc::of(stock))).collect(),
            oldest_hold: holds.iter().map(|hold| hold.placed_at).min(),
            holds,
            created_at: date(product.created_at),
            updated_at: date(product.updated_at),
            version: number(product.version),
            stripes: None,
            transfers: Transfers::default(),
        }
    }

    /// How the stock is split, if it is.
    pub(super) fn split(&self) -> Option<&SplitDoc> {
        self.stripes.as_ref()?.split.as_ref()
    }

    pub(super) fn product(mut self) -> StoreResult<Product> {
        // In the order in which they were placed, wherever that was.
        self.holds.sort_by_key(|hold| hold.seq.map(|seq| (seq.time, seq.increment)));
        let stock = self.stock.iter().map(|(name, stock)| Ok((zone(name)?, stock.stock()?)));
        Ok(Product {
            id: id(self.id),
            name: self.name,
            category: self.category,
            price: price(self.price),
            attributes: self.attributes.into_iter().map(|it| (it.name, it.value)).collect(),
            stock: stock.collect::<StoreResult<BTreeMap<Zone, ZoneStock>>>()?,
            holds: self.holds.iter().map(HoldDoc::hold).collect::<StoreResult<_>>()?,
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            version: version(self.version),
        })
    }
}

pub(super) fn attributes(attributes: BTreeMap<String, Attribute>) -> Vec<AttributeDoc> {
    attributes.into_iter().map(|(name, value)| AttributeDoc { name, value }).collect()
}

impl ZoneDoc {
    fn of(stock: &ZoneStock) -> Self {
        // Stock has limits far below what fits, but what is sold adds up for ever.
        let number = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        Self {
            received: number(stock.received),
            available: number(stock.available),
            reserved: number(stock.reserved),
            sold: number(stock.sold),
        }
    }

    fn stock(&self) -> StoreResult<ZoneStock> {
        Ok(ZoneStock {
            received: units(self.received)?,
            available: units(self.available)?,
            reserved: units(self.reserved)?,
            sold: units(self.sold)?,
        })
    }
}

impl HoldDoc {
    pub(super) fn of(hold: &Hold) -> Self {
        Self {
            order: uuid(hold.order.0),
            attempt: uuid(hold.attempt.0),
            kind: hold.kind.into(),
            zone: hold.zone.to_string(),
            quantity: i64::try_from(hold.quantity).unwrap_or(i64::MAX),
            placed_at: date(hold.placed_at),
            seq: None,
        }
    }

    fn hold(&self) -> StoreResult<Hold> {
        let quantity = u64::try_from(self.quantity)
            .map_err(|_| damaged(format!("expected a hold of some units, got {}", self.quantity)))?;
        Ok(Hold {
            order: id(self.order),
            attempt: id(self.attempt),
            kind: match self.kind {
                KindDoc::Sale => HoldKind::Sale,
                KindDoc::Return => HoldKind::Return,
            },
            zone: zone(&self.zone)?,
            quantity,
            placed_at: time(self.placed_at),
        })
    }
}

impl From<HoldKind> for KindDoc {
    fn from(kind: HoldKind) -> Self {
        match kind {
            HoldKind::Sale => Self::Sale,
            HoldKind::Return => Self::Return,
        }
    }
}

impl KindDoc {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Sale => "sale",
            Self::Return => "return",
        }
    }
}

#[cfg(test)]
mod tests {
    use mobimir_testkit::strategies;
    use mongodb::bson::{deserialize_from_slice, serialize_to_vec};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_product_comes_back_as_it_was(product in strategies::product()) {
            let bytes = serialize_to_vec(&ProductDoc::of(product.clone())).unwrap();
            let read: ProductDoc = deserialize_from_slice(&bytes).unwrap();
            prop_assert_eq!(read.product().unwrap(), product);
        }
    }
}
