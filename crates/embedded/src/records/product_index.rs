//! The catalogue's index: for every facet of a product, the products that have it by price and by name.
//!
//! A key is `order | facet | place`, where the place is the sort key and the id. Places of one order compare with
//! each other whatever the facet, which is what lets a query walk several facets at once. The value is the price in
//! the order by name, where a query for a range of prices has to look at it, and empty in the order by price.

use std::collections::BTreeMap;

use fjall::Slice;
use mobimir_core::{
    id::ProductId,
    ports::StoreResult,
    product::{Product, ProductPosition, ProductSort, price_key},
    search::name_key,
    zone::Zone,
};
use uuid::Uuid;

use crate::{
    engine::{Key, KeyBuilder, KeyReader, Table, push_text},
    error::damaged,
};

/// What a query may ask of a product, besides its price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Facet<'a> {
    All,
    Category(&'a str),
    Term(&'a str),
    AvailableIn(Zone),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Order {
    ByPrice = 1,
    ByName = 2,
}

const FACET_ALL: u8 = 1;
const FACET_CATEGORY: u8 = 2;
const FACET_TERM: u8 = 3;
const FACET_AVAILABLE_IN: u8 = 4;

const ID_BYTES: usize = 16;

impl From<ProductSort> for Order {
    fn from(sort: ProductSort) -> Self {
        match sort {
            ProductSort::PriceAscending | ProductSort::PriceDescending => Self::ByPrice,
            ProductSort::Name => Self::ByName,
        }
    }
}

/// Everything that the index holds of a product.
pub(crate) fn entries(product: &Product) -> BTreeMap<Key, Slice> {
    let terms = product.terms();
    let mut facets = vec![Facet::All, Facet::Category(&product.category)];
    facets.extend(terms.iter().map(|term| Facet::Term(term)));
    facets.extend(available_zones(product).map(Facet::AvailableIn));
    let by_price = place_by_price(price_key(product.price), product.id);
    let by_name = place_by_name(&name_key(&product.name), product.id);
    let price = encode_price(price_key(product.price));
    let mut entries = BTreeMap::new();
    for facet in facets {
        entries.insert(key(Order::ByPrice, facet, &by_price), super::nothing());
        entries.insert(key(Order::ByName, facet, &by_name), price.clone());
    }
    entries
}

/// Whether both have the same entries; much cheaper than to make them. A movement of stock that does not reach or
/// leave zero changes none.
pub(crate) fn same_entries(a: &Product, b: &Product) -> bool {
    a.name == b.name
        && a.category == b.category
        && a.price == b.price
        && available_zones(a).eq(available_zones(b))
}

fn available_zones(product: &Product) -> impl Iterator<Item = Zone> {
    product.stock.iter().filter(|(_, stock)| stock.available > 0).map(|(zone, _)| *zone)
}

fn key(order: Order, facet: Facet<'_>, place: &[u8]) -> Key {
    facet_key(order, facet).bytes(place).end()
}

/// What all entries of a facet start with.
pub(crate) fn prefix(order: Order, facet: Facet<'_>) -> Key {
    facet_key(order, facet).end()
}

/// What the entries of all categories start with.
pub(crate) fn categories() -> Key {
    KeyBuilder::new(Table::ProductIndex).byte(Order::ByPrice as u8).byte(FACET_CATEGORY).end()
}

pub(crate) fn read_category(key: &[u8]) -> StoreResult<String> {
    let mut key = KeyReader::new(Table::ProductIndex, key)?;
    match (key.byte()?, key.byte()?) {
        (_, FACET_CATEGORY) => key.text(),
        (_, other) => Err(damaged(format!("expected the facet {FACET_CATEGORY} in a key, got {other}"))),
    }
}

fn facet_key(order: Order, facet: Facet<'_>) -> KeyBuilder {
    let key = KeyBuilder::new(Table::ProductIndex).byte(order as u8);
    match facet {
        Facet::All => key.byte(FACET_ALL),
        Facet::Category(category) => key.byte(FACET_CATEGORY).text(category),
        Facet::Term(term) => key.byte(FACET_TERM).text(term),
        Facet::AvailableIn(zone) => key.byte(FACET_AVAILABLE_IN).text(zone.as_str()),
    }
}

pub(crate) fn place(position: &ProductPosition) -> Vec<u8> {
    match position {
        ProductPosition::Price(price, id) => place_by_price(*price, *id),
        ProductPosition::Name(name, id) => place_by_name(name, *id),
    }
}

/// Where the products of a price start.
pub(crate) fn first_place_of_price(price: i64) -> Vec<u8> {
    place_by_price(price, ProductId(Uuid::nil()))
}

/// Where the products of a price end.
pub(crate) fn last_place_of_price(price: i64) -> Vec<u8> {
    place_by_price(price, ProductId(Uuid::max()))
}

fn place_by_price(price: i64, id: ProductId) -> Vec<u8> {
    let mut place = crate::engine::ordered(price).to_be_bytes().to_vec();
    place.extend_from_slice(id.as_bytes());
    place
}

fn place_by_name(name: &str, id: ProductId) -> Vec<u8> {
    let mut place = Vec::with_capacity(name.len() + ID_BYTES + 2);
    push_text(&mut place, name);
    place.extend_from_slice(id.as_bytes());
    place
}

pub(crate) fn read_place(order: Order, place: &[u8]) -> StoreResult<ProductPosition> {
    let mut parts = KeyReader::of_parts(place);
    Ok(match order {
        Order::ByPrice => ProductPosition::Price(parts.number()?, ProductId(parts.uuid()?)),
        Order::ByName => ProductPosition::Name(parts.text()?, ProductId(parts.uuid()?)),
    })
}

pub(crate) fn read_id(place: &[u8]) -> StoreResult<ProductId> {
    let id = place.last_chunk::<ID_BYTES>().ok_or_else(|| damaged("an index entry has no product id"))?;
    Ok(ProductId(Uuid::from_bytes(*id)))
}

/// The price in a place of the order by price.
pub(crate) fn read_price(place: &[u8]) -> StoreResult<i64> {
    KeyReader::of_parts(place).number()
}

fn encode_price(price: i64) -> Slice {
    Slice::from(price.to_be_bytes())
}

pub(crate) fn decode_price(bytes: &[u8]) -> StoreResult<i64> {
    let bytes = bytes.try_into().map_err(|_| damaged("expected a price in an index entry"))?;
    Ok(i64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use mobimir_core::money::Money;
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    #[test]
    fn a_movement_that_stays_above_zero_changes_no_entry() {
        let zone = Zone::parse("MSK").unwrap();
        let product = |units| {
            Product::new(
                ProductId(Uuid::from_u128(1)),
                "Телефон".into(),
                "Электроника".into(),
                Money::ZERO,
                BTreeMap::new(),
                BTreeMap::from([(zone, units)]),
                Default::default(),
            )
            .unwrap()
        };
        assert_eq!(entries(&product(5)), entries(&product(1)));
        assert!(same_entries(&product(5), &product(1)));
        assert_ne!(entries(&product(5)), entries(&product(0)));
        assert!(!same_entries(&product(5), &product(0)));
    }

    proptest! {
        #[test]
        fn equal_entries_are_told_without_making_them(a in arbitrary::product(), b in arbitrary::product()) {
            let moved = Product { stock: b.stock, id: a.id, ..a.clone() };
            prop_assert_eq!(same_entries(&a, &moved), entries(&a) == entries(&moved));
        }

        #[test]
        fn places_sort_as_positions_do_and_come_back(a in arbitrary::product(), b in arbitrary::product()) {
            for sort in [ProductSort::PriceAscending, ProductSort::Name] {
                let (at, other) = (sort.position(&a), sort.position(&b));
                prop_assert_eq!(place(&at).cmp(&place(&other)), at.cmp(&other));
                prop_assert_eq!(read_place(sort.into(), &place(&at)).unwrap(), at.clone());
                prop_assert_eq!(read_id(&place(&at)).unwrap(), a.id);
                for entry in entries(&a).into_keys() {
                    prop_assert!(entry.bytes.len() < crate::engine::KEY_BYTES_MAX);
                }
            }
            prop_assert_eq!(decode_price(&encode_price(price_key(a.price))).unwrap(), price_key(a.price));
        }

        #[test]
        fn a_category_comes_back(category in "[a-я\0]{1,8}") {
            let key = key(Order::ByPrice, Facet::Category(&category), &[1; 24]);
            prop_assert!(key.bytes.starts_with(&categories().bytes));
            prop_assert_eq!(read_category(&key.bytes).unwrap(), category);
        }
    }
}
