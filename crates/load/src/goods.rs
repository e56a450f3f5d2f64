//! What shoppers find in the shop: its products and categories, and how much each product is wanted.

use std::collections::BTreeMap;

use mobimir_core::random::Random;
use serde::Deserialize;

use crate::{alias::Alias, profile::Goods as Wanted, request::encoded};

pub(crate) struct Goods {
    pub(crate) products: Vec<Product>,
    categories: Vec<Category>,
    /// How often a category is looked at: as it has products.
    category_sizes: Alias,
    popularity: Alias,
    /// The product of each rank: what is popular has nothing to do with where it stands in the catalogue.
    ranks: Vec<u32>,
}

pub(crate) struct Product {
    pub(crate) id: String,
    pub(crate) name: Box<str>,
    /// As the shop writes it.
    pub(crate) price: Box<str>,
    pub(crate) kopecks: u64,
    category: u32,
    /// Where it is or was in stock, in order.
    pub(crate) zones: Vec<String>,
}

struct Category {
    name: Box<str>,
    encoded: String,
    /// By rising price, equal ones by id: the order of a listing.
    products: Vec<u32>,
}

/// A product in a page of the catalogue.
#[derive(Deserialize)]
pub(crate) struct Listed {
    product_id: String,
    name: Box<str>,
    category: String,
    price: Box<str>,
    stock_by_zone: BTreeMap<String, u64>,
}

/// The products of a category within a range of prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriceRange {
    pub(crate) category: u32,
    pub(crate) low_kopecks: u64,
    pub(crate) high_kopecks: u64,
}

/// As many as a page of a category has.
pub(crate) const LISTING_ITEMS: usize = 20;
const LISTING_LIMIT: &str = "&limit=20";
/// How many products of a category the prices of a query span.
const SPANS: [usize; 4] = [10, 30, 60, 120];

impl Goods {
    /// `None` when there are no products.
    pub(crate) fn new(listed: Vec<Listed>, wanted: &Wanted, random: &mut Random) -> Option<Self> {
        let mut by_category = BTreeMap::<String, Vec<u32>>::new();
        let mut products = Vec::with_capacity(listed.len());
        for (number, item) in (0..).zip(listed) {
            by_category.entry(item.category).or_default().push(number);
            products.push(Product {
                id: item.product_id,
                name: item.name,
                kopecks: kopecks(&item.price),
                price: item.price,
                category: 0,
                zones: item.stock_by_zone.into_keys().collect(),
            });
        }
        let mut categories: Vec<Category> = Vec::with_capacity(by_category.len());
        for (name, mut numbers) in by_category {
            let category = u32::try_from(categories.len()).ok()?;
            numbers.iter().for_each(|number| products[*number as usize].category = category);
            numbers.sort_by_key(|number| {
                let product: &Product = &products[*number as usize];
                (product.kopecks, &product.id)
            });
            categories.push(Category { encoded: encoded(&name), name: name.into(), products: numbers });
        }
        let sizes: Vec<f64> = categories.iter().map(|category| category.products.len() as f64).collect();
        let mut ranks: Vec<u32> = (0..u32::try_from(products.len()).ok()?).collect();
        for last in (1..ranks.len()).rev() {
            ranks.swap(last, random.below(last as u64 + 1) as usize);
        }
        Some(Self {
            category_sizes: Alias::new(&sizes)?,
            popularity: Alias::zipf(products.len(), wanted.zipf)?,
            products,
            categories,
            ranks,
        })
    }

    /// The number of a product, the more likely the more it is wanted.
    pub(crate) fn wanted(&self, random: &mut Random) -> u32 {
        self.ranks[self.popularity.draw(random)]
    }

    /// The product that is wanted most of all: the one of a flash sale.
    pub(crate) fn most_wanted(&self) -> u32 {
        self.ranks[0]
    }

    pub(crate) fn product(&self, number: u32) -> &Product {
        &self.products[number as usize]
    }

    pub(crate) fn category_of(&self, product: &Product) -> &str {
        &self.categories[product.category as usize].name
    }

    pub(crate) fn category(&self, category: u32) -> &str {
        &self.categories[category as usize].name
    }

    /// The path of a page of a category in pieces, and what it asks for.
    pub(crate) fn category_page(&self, random: &mut Random) -> ([&str; 7], PriceRange) {
        let at = self.category_sizes.draw(random);
        let category = &self.categories[at];
        let last = category.products.len() - 1;
        let span = SPANS[random.below(SPANS.len() as u64) as usize].min(last);
        let start = random.below((category.products.len() - span) as u64) as usize;
        let (low, high) =
            (self.product(category.products[start]), self.product(category.products[start + span]));
        let first = "/v1/products?category=";
        let path =
            [first, &category.encoded, "&price_min=", &low.price, "&price_max=", &high.price, LISTING_LIMIT];
        (path, PriceRange { category: at as u32, low_kopecks: low.kopecks, high_kopecks: high.kopecks })
    }

    /// The products that a page with this range begins with, as far as they are known.
    pub(crate) fn first_of(&self, range: PriceRange) -> impl Iterator<Item = &Product> {
        let products = &self.categories[range.category as usize].products;
        let begin = products.partition_point(|number| self.product(*number).kopecks < range.low_kopecks);
        let all = products[begin..].iter().map(|number| self.product(*number));
        all.take_while(move |product| product.kopecks <= range.high_kopecks).take(LISTING_ITEMS)
    }
}

/// The digits of a price with two places.
pub(crate) fn kopecks(price: &str) -> u64 {
    let digits = price.bytes().filter(u8::is_ascii_digit);
    digits.fold(0, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn goods(count: usize) -> Goods {
        let listed = (0..count).map(|number| Listed {
            product_id: format!("product-{number}"),
            name: format!("Product {number}").into(),
            category: format!("Category {}", number % 3),
            price: format!("{}.00", 100 + number).into(),
            stock_by_zone: BTreeMap::from([("MSK".to_owned(), 5), ("SPB".to_owned(), 0)]),
        });
        Goods::new(listed.collect(), &Wanted::default(), &mut Random::new(1)).expect("goods")
    }

    #[test]
    fn a_category_page_has_a_range_of_its_prices() {
        let (goods, mut random) = (goods(30), Random::new(3));
        for _ in 0..1_000 {
            let (path, range) = goods.category_page(&mut random);
            let path = path.concat();
            let price = |name: &str| -> f64 {
                let start = path.find(name).expect("it has a limit") + name.len();
                path[start..].split('&').next().and_then(|price| price.parse().ok()).expect("a price")
            };
            assert!(price("price_min=") <= price("price_max="), "{path}");
            let first: Vec<u64> = goods.first_of(range).map(|product| product.kopecks).collect();
            assert!(first.is_sorted() && first.len() <= LISTING_ITEMS, "{first:?}");
            assert_eq!(first.first(), Some(&range.low_kopecks));
            assert!(first.iter().all(|kopecks| *kopecks <= range.high_kopecks), "{first:?}");
        }
    }

    #[test]
    fn popular_is_not_first_in_the_catalogue() {
        let goods = goods(1_000);
        let mut all = goods.ranks.clone();
        all.sort_unstable();
        assert_eq!(all, (0..1_000).collect::<Vec<u32>>());
        assert!(goods.ranks[..10].iter().any(|number| *number > 100), "{:?}", &goods.ranks[..10]);
    }
}
