//! Pages of the catalogue that were asked for a moment ago, as the index had them.
//!
//! Most shoppers ask the same: a category from its beginning, the next page, the usual ranges of prices. What is kept is
//! which products a page has, never what they are. It is as good as a look into the index: every change that could make
//! another page of it raises a number, after it can be read and before it is acknowledged, and a page is only good for
//! the number that was there before it was read.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use mobimir_core::{
    ports::StoreResult,
    product::{Product, ProductQuery},
};
use quick_cache::sync::Cache;

use super::Found;
use crate::engine::GroupObserver;

const PAGES_MAX: usize = 10_000;
/// Categories that share one raise each other's number, which costs a look into the index and nothing else.
const CATEGORY_SLOTS: usize = 1_024;

pub(crate) struct Pages {
    kept: Cache<ProductQuery, (Version, Arc<Found>)>,
    hasher: RandomState,
    /// Changes of the products of a category: of their names, their prices, which they are.
    of_categories: Box<[AtomicU64]>,
    of_any: AtomicU64,
    /// Changes of what is available anywhere at all.
    of_availability: AtomicU64,
    /// What the running group changes. Used by the committer only.
    staged: Mutex<Staged>,
}

/// Grows with every change that concerns a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version(u64);

#[derive(Default)]
struct Staged {
    slots: Vec<usize>,
    availability: bool,
}

impl Pages {
    pub(crate) fn new() -> Self {
        Self {
            kept: Cache::new(PAGES_MAX),
            hasher: RandomState::new(),
            of_categories: (0..CATEGORY_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            of_any: AtomicU64::new(0),
            of_availability: AtomicU64::new(0),
            staged: Mutex::default(),
        }
    }

    pub(crate) fn get_or_find(
        &self,
        query: &ProductQuery,
        find: impl FnOnce() -> StoreResult<Found>,
    ) -> StoreResult<Arc<Found>> {
        let version = self.version(query);
        if let Some(found) = self.kept_at(query, version) {
            return Ok(found);
        }
        let found = Arc::new(find()?);
        self.kept.insert(query.clone(), (version, found.clone()));
        Ok(found)
    }

    /// Whether to ask costs next to nothing.
    pub(crate) fn has(&self, query: &ProductQuery) -> bool {
        self.kept_at(query, self.version(query)).is_some()
    }

    fn kept_at(&self, query: &ProductQuery, version: Version) -> Option<Arc<Found>> {
        self.kept.get(query).filter(|(kept, _)| *kept == version).map(|(_, found)| found)
    }

    /// For the committer: the running job makes `after` of `before`.
    pub(crate) fn stage(&self, before: Option<&Product>, after: &Product) {
        let mut staged = self.staged();
        staged.availability = true;
        let moved = before.is_none_or(|before| {
            before.name != after.name || before.category != after.category || before.price != after.price
        });
        if moved {
            let categories = before.into_iter().chain([after]).map(|product| self.slot(&product.category));
            staged.slots.extend(categories);
        }
    }

    fn version(&self, query: &ProductQuery) -> Version {
        let goods = match &query.category {
            Some(category) => &self.of_categories[self.slot(category)],
            None => &self.of_any,
        };
        // Neither ever falls, so neither can make up for the other.
        let availability = query.zone.map_or(0, |_| self.of_availability.load(Ordering::Acquire));
        Version(goods.load(Ordering::Acquire) + availability)
    }

    fn slot(&self, category: &str) -> usize {
        self.hasher.hash_one(category) as usize % CATEGORY_SLOTS
    }

    fn staged(&self) -> MutexGuard<'_, Staged> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raising a number too often harms nobody.
    fn raise(&self) {
        let mut staged = self.staged();
        if staged.availability {
            self.of_availability.fetch_add(1, Ordering::Release);
        }
        if !staged.slots.is_empty() {
            self.of_any.fetch_add(1, Ordering::Release);
        }
        for slot in staged.slots.drain(..) {
            self.of_categories[slot].fetch_add(1, Ordering::Release);
        }
        staged.availability = false;
    }
}

impl GroupObserver for Pages {
    fn job_undone(&self, _: u64) {}

    fn group_committed(&self) {
        self.raise();
    }

    fn group_lost(&self) {
        self.raise();
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::BTreeMap};

    use mobimir_core::{id::ProductId, money::Money, product::ProductSort, time::Timestamp, zone::Zone};
    use uuid::Uuid;

    use super::*;

    fn product(category: &str, kopecks: i128) -> Product {
        let id = ProductId(Uuid::from_u128(1));
        let (price, at) = (Money::from_kopecks(kopecks), Timestamp::from_millis(0));
        Product::new(id, "Чай".into(), category.into(), price, BTreeMap::new(), BTreeMap::new(), at)
            .expect("a product")
    }

    /// Which of the queries are answered from memory.
    fn kept(pages: &Pages, queries: &[ProductQuery]) -> Vec<bool> {
        let is_kept = |query| {
            let looked = Cell::new(false);
            let find = || {
                looked.set(true);
                Ok(Found { ids: Vec::new(), next: None })
            };
            pages.get_or_find(query, find).expect("a page");
            !looked.get()
        };
        queries.iter().map(is_kept).collect()
    }

    #[test]
    fn a_page_is_kept_until_something_concerns_it() {
        let pages = Pages::new();
        let all = ProductQuery::all(ProductSort::PriceAscending, 20);
        let of = |category: &str| ProductQuery { category: Some(category.into()), ..all.clone() };
        let zone = Zone::parse("MSK").expect("a zone");
        let queries = [all.clone(), of("Чай"), of("Кофе"), ProductQuery { zone: Some(zone), ..of("Кофе") }];
        assert_eq!(kept(&pages, &queries), [false; 4]);
        assert_eq!(kept(&pages, &queries), [true; 4]);
        let (cheap, dear) = (product("Чай", 100), product("Чай", 200));
        pages.stage(Some(&cheap), &dear);
        assert_eq!(kept(&pages, &queries), [true; 4], "nothing can be read of it yet");
        pages.group_committed();
        assert_eq!(kept(&pages, &queries), [false, false, true, false]);
        assert_eq!(kept(&pages, &queries), [true; 4]);
        // Nothing but what is available.
        pages.stage(Some(&dear), &dear);
        pages.group_committed();
        assert_eq!(kept(&pages, &queries), [true, true, true, false]);
        pages.stage(Some(&dear), &product("Кофе", 200));
        pages.group_committed();
        assert_eq!(kept(&pages, &queries), [false; 4]);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let pages = Pages::new();
        let query = ProductQuery::all(ProductSort::PriceAscending, 20);
        let find = || {
            pages.stage(None, &product("Чай", 100));
            pages.group_committed();
            Ok(Found { ids: Vec::new(), next: None })
        };
        pages.get_or_find(&query, find).expect("a page");
        assert_eq!(kept(&pages, &[query]), [false]);
    }
}
