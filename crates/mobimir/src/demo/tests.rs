use super::*;

const SEED: u64 = 42;

fn zones() -> Vec<Zone> {
    ["MSK", "SPB", "EKB", "NSK"].map(|code| Zone::parse(code).unwrap()).to_vec()
}

fn now() -> Timestamp {
    Timestamp::parse("2025-11-28T09:00:00Z").unwrap()
}

fn whole() -> Vec<Product> {
    catalogue(SEED, PRODUCTS_DEFAULT, &zones(), now())
}

#[test]
fn a_seed_always_gives_the_same_goods_and_a_smaller_catalogue_is_their_beginning() {
    let whole = whole();
    assert_eq!(whole.len(), PRODUCTS_DEFAULT);
    assert_eq!(whole, catalogue(SEED, PRODUCTS_DEFAULT, &zones(), now()));
    assert_eq!(whole[..137], catalogue(SEED, 137, &zones(), now()));
    let other = catalogue(SEED + 1, 100, &zones(), now());
    assert!(other.iter().all(|product| whole.iter().all(|p| p.id != product.id)));
}

#[test]
fn every_product_is_distinct() {
    let whole = whole();
    let ids: HashSet<_> = whole.iter().map(|p| p.id).collect();
    assert_eq!(ids.len(), whole.len());
    let names: HashSet<_> = whole.iter().map(|p| &p.name).collect();
    assert_eq!(names.len(), whole.len());
    let numbered = whole.iter().filter(|p| p.name.contains(", арт. ")).count();
    assert!(numbered * 100 < whole.len(), "{numbered} names had to be told apart by a number");
}

#[test]
fn electronics_is_the_largest_category_of_a_catalogue_of_any_size() {
    assert_eq!(CATEGORIES.iter().map(|c| u32::from(c.percent)).sum::<u32>(), 100);
    for products in [10, 50, 100, 1_234, PRODUCTS_DEFAULT] {
        let mut counts = BTreeMap::<String, usize>::new();
        for product in catalogue(SEED, products, &zones(), now()) {
            *counts.entry(product.category).or_default() += 1;
        }
        let electronics = counts.remove("Электроника").unwrap_or(0);
        assert!(counts.values().all(|&count| count < electronics), "{products}: {counts:?}");
        if products == PRODUCTS_DEFAULT {
            assert_eq!(electronics, 3_000);
            assert_eq!(counts.len() + 1, CATEGORIES.len());
        }
    }
}

#[test]
fn prices_are_like_those_of_a_shop() {
    let whole = whole();
    for product in &whole {
        let kopecks = product.price.kopecks();
        assert!((10_000..=50_000_000).contains(&kopecks), "{} costs {}", product.name, product.price);
        assert_eq!(kopecks % 10_000 % 5_000, 4_000, "{} costs {}", product.name, product.price);
    }
    let median = |category: &str| {
        let mut prices: Vec<_> =
            whole.iter().filter(|p| p.category == category).map(|p| p.price.kopecks() / 100).collect();
        prices.sort_unstable();
        prices[prices.len() / 2]
    };
    assert!((200..1_500).contains(&median("Книги")), "{}", median("Книги"));
    assert!((400..2_500).contains(&median("Аксессуары")));
    assert!((10_000..50_000).contains(&median("Смартфоны")), "{}", median("Смартфоны"));
    assert!((30_000..120_000).contains(&median("Ноутбуки")));
}

#[test]
fn the_first_zone_holds_most_and_a_few_goods_are_sold_out_everywhere() {
    let whole = whole();
    let total = |zone: &Zone| whole.iter().map(|p| p.available_in(*zone)).sum::<u64>();
    let totals: Vec<u64> = zones().iter().map(total).collect();
    assert!(totals.is_sorted_by(|a, b| a > b), "{totals:?}");
    let sold_out = whole.iter().filter(|p| p.best_available(None) == 0).count();
    assert!((100..600).contains(&sold_out), "{sold_out}");
    let missing_somewhere = whole.iter().filter(|p| p.stock.values().any(|s| s.available == 0)).count();
    assert!(missing_somewhere > 2 * sold_out);
    assert!(whole.iter().all(Product::books_balance));
}

#[test]
fn names_say_what_a_shopper_looks_for() {
    let whole = whole();
    let found = |question: &str| {
        let terms = mobimir_core::search::terms(question);
        whole.iter().filter(|p| terms.is_subset(&p.terms())).count()
    };
    for question in ["смартфон 256 ГБ", "чёрный ноутбук", "беспроводные наушники", "роман", "куртка"]
    {
        assert!(found(question) > 0, "{question}");
    }
    for product in &whole {
        assert!(!product.attributes.is_empty());
        assert!(product.created_at <= now());
    }
}
