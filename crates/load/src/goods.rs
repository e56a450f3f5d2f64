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
    /// Where it is or was in stock, in order.
    pub(crate) zones: Vec<String>,
}

struct Category {
    encoded: String,
    /// Rising, as the shop writes them.
    prices: Vec<String>,
}

/// A product in a page of the catalogue.
#[derive(Deserialize)]
pub(crate) struct Listed {
    product_id: String,
    category: String,
    price: String,
    stock_by_zone: BTreeMap<String, u64>,
}

/// How many products of a category the prices of a query span.
const SPANS: [usize; 4] = [10, 30, 60, 120];

impl Goods {
    /// `None` when there are no products.
    pub(crate) fn new(listed: Vec<Listed>, wanted: &Wanted, random: &mut Random) -> Option<Self> {
        let mut by_category = BTreeMap::<String, Vec<(u64, String)>>::new();
        let mut products = Vec::with_capacity(listed.len());
        for item in listed {
            let kopecks = item
                .price
                .bytes()
                .filter(u8::is_ascii_digit)
                .fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
            by_category.entry(item.category).or_default().push((kopecks, item.price));
            products.push(Product { id: item.product_id, zones: item.stock_by_zone.into_keys().collect() });
        }
        let categories: Vec<Category> = by_category
            .into_iter()
            .map(|(name, mut prices)| {
                prices.sort();
                Category {
                    encoded: encoded(&name),
                    prices: prices.into_iter().map(|(_, text)| text).collect(),
                }
            })
            .collect();
        let sizes: Vec<f64> = categories.iter().map(|category| category.prices.len() as f64).collect();
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

    /// The path of a page of a category, with a range of prices, in pieces.
    pub(crate) fn category_page(&self, random: &mut Random) -> [&str; 7] {
        let category = &self.categories[self.category_sizes.draw(random)];
        let span = SPANS[random.below(SPANS.len() as u64) as usize].min(category.prices.len() - 1);
        let start = random.below((category.prices.len() - span) as u64) as usize;
        let (low, high) = (&category.prices[start], &category.prices[start + span]);
        let (first, last) = ("/v1/products?category=", "&limit=20");
        [first, &category.encoded, "&price_min=", low, "&price_max=", high, last]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn goods(count: usize) -> Goods {
        let listed = (0..count).map(|number| Listed {
            product_id: format!("product-{number}"),
            category: format!("Category {}", number % 3),
            price: format!("{}.00", 100 + number),
            stock_by_zone: BTreeMap::from([("MSK".to_owned(), 5), ("SPB".to_owned(), 0)]),
        });
        Goods::new(listed.collect(), &Wanted::default(), &mut Random::new(1)).expect("goods")
    }

    #[test]
    fn a_category_page_has_a_range_of_its_prices() {
        let (goods, mut random) = (goods(30), Random::new(3));
        for _ in 0..1_000 {
            let path = goods.category_page(&mut random).concat();
            let price = |name: &str| -> f64 {
                let start = path.find(name).expect("it has a limit") + name.len();
                path[start..].split('&').next().and_then(|price| price.parse().ok()).expect("a price")
            };
            assert!(price("price_min=") <= price("price_max="), "{path}");
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
