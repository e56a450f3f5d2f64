//! Questions to the catalogue, answered from its index.
//!
//! A query names facets; each has its products in the same order. The query walks all these lists at once and jumps
//! in each to where the others are (a leapfrog join), so a page costs about its length, not that of the catalogue.

mod pages;

use std::ops::Deref;

use fjall::{Iter, Readable, Slice, Snapshot};
use mobimir_core::{
    id::ProductId,
    ports::StoreResult,
    product::{ProductPosition, ProductQuery, ProductSort, price_key},
};

use crate::{
    engine::{Key, Space, Tables, after_prefix},
    error::read_failed,
    records::product_index::{self, Facet, Order},
};

pub(crate) use pages::Pages;

/// Places that one call looks at to find those with a fitting price in an order by name. A page may end here, with a
/// `next`.
const SCAN_PLACES_MAX: usize = 50_000;

/// Entries of a list that are passed one by one before it is worth to jump: a jump costs about as much.
const STEPS_BEFORE_JUMP: usize = 12;

/// A page of a query's answer, as the index has it.
pub(crate) struct Found {
    pub(crate) ids: Vec<ProductId>,
    pub(crate) next: Option<ProductPosition>,
}

pub(crate) fn find(tables: &Tables, query: &ProductQuery) -> StoreResult<Found> {
    let order = Order::from(query.sort);
    let backwards = query.sort == ProductSort::PriceDescending;
    let snapshot = tables.snapshot();
    let mut lists: Vec<List<'_>> = facets(query)
        .into_iter()
        .map(|facet| List::new(tables, &snapshot, product_index::prefix(order, facet), backwards))
        .collect();

    let prices = PriceRange::of(query);
    let mut found = Found { ids: Vec::new(), next: None };
    let mut last_place: Option<Place> = None;
    let mut place = first_place(&mut lists, query, order, &prices)?;
    for _ in 0..SCAN_PLACES_MAX {
        let Some(at) = agree(&mut lists, place)? else { return Ok(found) };
        let price = match order {
            Order::ByPrice => product_index::read_price(&at)?,
            Order::ByName => product_index::decode_price(lists[0].value())?,
        };
        if order == Order::ByPrice && prices.is_past(price, backwards) {
            return Ok(found);
        }
        if prices.contains(price) {
            if found.ids.len() == query.limit {
                found.next = last_place.map(|place| product_index::read_place(order, &place)).transpose()?;
                return Ok(found);
            }
            found.ids.push(product_index::read_id(&at)?);
        }
        last_place = Some(at);
        place = lists[0].step()?;
    }
    found.next = last_place.map(|place| product_index::read_place(order, &place)).transpose()?;
    Ok(found)
}

/// Whether a query walks one list from where its page starts to where it ends. Others may look at many places in
/// vain before they find what they are asked for.
pub(crate) fn costs_its_page(query: &ProductQuery) -> bool {
    let has_price = query.price_min.is_some() || query.price_max.is_some();
    facets(query).len() == 1 && !(query.sort == ProductSort::Name && has_price)
}

/// The categories that products are in, by jumping from one to the next.
pub(crate) fn categories(tables: &Tables) -> StoreResult<Vec<String>> {
    let snapshot = tables.snapshot();
    let keyspace = tables.keyspace(Space::Catalogue);
    let all = product_index::categories();
    let end = after_prefix(&all);
    let mut start = all;
    let mut categories = Vec::new();
    while let Some(row) = snapshot.range(keyspace, start.bytes..end.bytes.clone()).next() {
        let category = product_index::read_category(&row.key().map_err(read_failed)?)?;
        start = after_prefix(&product_index::prefix(Order::ByPrice, Facet::Category(&category)));
        categories.push(category);
    }
    Ok(categories)
}

fn facets(query: &ProductQuery) -> Vec<Facet<'_>> {
    let mut facets: Vec<Facet<'_>> = query.terms.iter().map(|term| Facet::Term(term)).collect();
    facets.extend(query.category.as_deref().map(Facet::Category));
    facets.extend(query.zone.map(Facet::AvailableIn));
    if facets.is_empty() {
        facets.push(Facet::All);
    }
    facets
}

/// Where the first list stands when the page starts.
fn first_place(
    lists: &mut [List<'_>],
    query: &ProductQuery,
    order: Order,
    prices: &PriceRange,
) -> StoreResult<Option<Place>> {
    let backwards = query.sort == ProductSort::PriceDescending;
    let after = query.after.as_ref().filter(|after| query.sort.fits(after)).map(product_index::place);
    let bound = match (order, backwards) {
        (Order::ByName, _) => None,
        (Order::ByPrice, false) => prices.min.map(product_index::first_place_of_price),
        (Order::ByPrice, true) => prices.max.map(product_index::last_place_of_price),
    };
    let start = match (&after, bound) {
        (Some(after), Some(bound)) if backwards => after.clone().min(bound),
        (Some(after), Some(bound)) => after.clone().max(bound),
        (Some(after), None) => after.clone(),
        (None, Some(bound)) => bound,
        (None, None) => return lists[0].step(),
    };
    let place = lists[0].jump(&start)?;
    // The page starts after that position, not at it.
    match (&place, &after) {
        (Some(at), Some(after)) if **at == **after => lists[0].step(),
        _ => Ok(place),
    }
}

/// The next place at or past `place` that all lists have. The first list stands at `place`, and then at what is
/// returned.
fn agree(lists: &mut [List<'_>], place: Option<Place>) -> StoreResult<Option<Place>> {
    let Some(mut place) = place else { return Ok(None) };
    let [first, others @ ..] = lists else { return Ok(None) };
    'places: loop {
        for other in &mut *others {
            // Most lists are long and have it: to ask is cheap. Only one that has not is moved, and shows how far
            // the first can jump.
            if other.has(&place)? {
                continue;
            }
            let Some(past) = other.seek(&place)? else { return Ok(None) };
            match first.seek(&past)? {
                Some(at) => place = at,
                None => return Ok(None),
            }
            continue 'places;
        }
        return Ok(Some(place));
    }
}

struct PriceRange {
    min: Option<i64>,
    max: Option<i64>,
}

impl PriceRange {
    fn of(query: &ProductQuery) -> Self {
        Self { min: query.price_min.map(price_key), max: query.price_max.map(price_key) }
    }

    fn contains(&self, price: i64) -> bool {
        self.min.is_none_or(|min| price >= min) && self.max.is_none_or(|max| price <= max)
    }

    /// Whether, in an order by price, nothing more can follow.
    fn is_past(&self, price: i64, backwards: bool) -> bool {
        match backwards {
            false => self.max.is_some_and(|max| price > max),
            true => self.min.is_some_and(|min| price < min),
        }
    }
}

/// Where a list stands: the part of the key that all lists have in common.
struct Place {
    key: Slice,
    prefix_bytes: usize,
}

impl Deref for Place {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.key[self.prefix_bytes..]
    }
}

/// The products that have one facet, walked in one direction.
struct List<'a> {
    tables: &'a Tables,
    snapshot: &'a Snapshot,
    prefix: Key,
    end: Key,
    backwards: bool,
    rows: Option<Iter>,
    current: Option<(Slice, Slice)>,
}

impl<'a> List<'a> {
    fn new(tables: &'a Tables, snapshot: &'a Snapshot, prefix: Key, backwards: bool) -> Self {
        let end = after_prefix(&prefix);
        Self { tables, snapshot, prefix, end, backwards, rows: None, current: None }
    }

    /// The value at the current place.
    fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(_, value)| value)
    }

    fn place(&self) -> Option<Place> {
        let prefix_bytes = self.prefix.bytes.len();
        self.current.as_ref().map(|(key, _)| Place { key: key.clone(), prefix_bytes })
    }

    /// To the next place.
    fn step(&mut self) -> StoreResult<Option<Place>> {
        let rows = self.rows.get_or_insert_with(|| {
            let keyspace = self.tables.keyspace(self.prefix.space);
            self.snapshot.range(keyspace, self.prefix.bytes.clone()..self.end.bytes.clone())
        });
        let row = if self.backwards { rows.next_back() } else { rows.next() };
        self.current = row.map(|row| row.into_inner()).transpose().map_err(read_failed)?;
        Ok(self.place())
    }

    /// Whether the list has this very place. Does not move, and costs far less than a jump.
    fn has(&self, place: &[u8]) -> StoreResult<bool> {
        let keyspace = self.tables.keyspace(self.prefix.space);
        let key = [&self.prefix.bytes, place].concat();
        self.snapshot.contains_key(keyspace, key).map_err(read_failed)
    }

    /// To `target`, or the first place past it, which does not lie behind.
    fn seek(&mut self, target: &[u8]) -> StoreResult<Option<Place>> {
        if self.rows.is_none() {
            return self.jump(target);
        }
        let mut place = self.place();
        for _ in 0..STEPS_BEFORE_JUMP {
            match &place {
                None => return Ok(None),
                Some(at) if self.reaches(at, target) => return Ok(place),
                Some(_) => place = self.step()?,
            }
        }
        self.jump(target)
    }

    fn jump(&mut self, target: &[u8]) -> StoreResult<Option<Place>> {
        let keyspace = self.tables.keyspace(self.prefix.space);
        let target: Slice = [&self.prefix.bytes, target].concat().into();
        self.rows = Some(match self.backwards {
            false => self.snapshot.range(keyspace, target..self.end.bytes.clone()),
            true => self.snapshot.range(keyspace, self.prefix.bytes.clone()..=target),
        });
        self.step()
    }

    fn reaches(&self, place: &[u8], target: &[u8]) -> bool {
        if self.backwards { place <= target } else { place >= target }
    }
}
