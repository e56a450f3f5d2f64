use std::collections::{BTreeMap, BTreeSet};

use mobimir_core::{
    checkout::{Checkout, LINES_MAX},
    id::ProductId,
    money::{Money, PRICE_MAX},
    order::OrderLine,
    product::{
        ATTRIBUTE_TEXT_CHARS_MAX, ATTRIBUTES_MAX, Attribute, CATEGORY_CHARS_MAX, Decision,
        HOLDS_PER_PRODUCT_MAX, HoldOutcome, NAME_CHARS_MAX, Product, ProductEdit, ProductPosition,
        ProductQuery, ProductSort, QUANTITY_MAX, StockChange, Verdict,
    },
};

use super::{
    super::arena::Bench, Checked, Suite, TestCaseError, answered, checkout, hold, holds, listed, product,
    same, stored, with_holds, zone,
};

const SORTS: [ProductSort; 3] =
    [ProductSort::PriceAscending, ProductSort::PriceDescending, ProductSort::Name];

pub(super) fn conform(suite: &Suite) {
    suite.example("awkward products come back whole and in order", awkward_products);
    suite.example("categories that begin alike are kept apart", prefix_categories);
    suite.example("a product that is there stays as it is", inserted_again);
    suite.example("only what is available in the zone is listed", available_in_a_zone);
    suite.example("a product with holds is found by them", inserted_with_holds);
    suite.example("a full list of holds refuses, and takes again", full_holds);
    suite.example("checkouts are due after their time, the longest due first", due_checkouts);
    suite.example("the largest checkout comes back whole", largest_checkout);
    suite.example("the whole catalogue is in order and complete", whole_catalogue);
}

async fn awkward_products(bench: &Bench) -> Checked {
    let awkward = awkward_names();
    let mut products = Vec::new();
    for (n, name) in awkward.iter().enumerate() {
        let price = if n % 3 == 0 { PRICE_MAX } else { Money::ZERO };
        let attributes = match n % 3 {
            0 => BTreeMap::new(),
            1 => odd_attributes(),
            _ => (0..ATTRIBUTES_MAX)
                .map(|n| (format!("поле.{n}"), Attribute::Text("я".repeat(ATTRIBUTE_TEXT_CHARS_MAX))))
                .collect(),
        };
        products.push(Product { name: name.clone(), price, attributes, ..product(bench, n, 0) });
    }
    answered(bench.store.products.insert(products.clone()).await)?;
    for (n, product) in products.iter().enumerate() {
        same(format!("product {n}"), &stored(bench, n).await?, product)?;
    }
    for sort in SORTS {
        for limit in [1, 4, 100] {
            let query = ProductQuery {
                category: Some(bench.universe.word.clone()),
                ..ProductQuery::all(sort, limit)
            };
            let found = listed(bench, &query, limit).await?;
            let names =
                |products: &[Product]| products.iter().map(|p| (p.id, p.name.clone())).collect::<Vec<_>>();
            same(format!("by {sort:?} in pages of {limit}"), names(&found), names(&sorted(&products, sort)))?;
        }
    }
    Ok(())
}

/// Several with the same key to sort by, and with keys that are the beginning of others.
fn awkward_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "Ёлка",
        "елка",
        "ЁЛКА",
        "Елка",
        "a",
        "A",
        "a\u{1}",
        "a b",
        "ab",
        "a\u{ffff}",
        "a\u{10ffff}",
        "😀",
        "ß",
        "İstanbul",
        "x\u{7f}",
        "'; DROP TABLE products; --",
        "$where",
        "a.b.c",
        "{}",
        "%",
        "_",
        "\u{feff}x",
        "x\ty\nz",
        "0",
        "00",
        "-1",
    ]
    .map(String::from)
    .into();
    for letter in ["w", "я", "😀"] {
        names.push(letter.repeat(NAME_CHARS_MAX));
        names.push(letter.repeat(NAME_CHARS_MAX - 1));
    }
    // More words than are ever searched for.
    names.push("a ".repeat(NAME_CHARS_MAX / 2));
    names
}

fn odd_attributes() -> BTreeMap<String, Attribute> {
    let odd = [
        ("целое", Attribute::Integer(i64::MAX)),
        ("малое", Attribute::Integer(i64::MIN)),
        ("дробное", Attribute::Decimal(1.0)),
        ("мелкое", Attribute::Decimal(f64::MIN_POSITIVE)),
        ("большое", Attribute::Decimal(f64::MAX)),
        ("да", Attribute::Flag(true)),
        ("пусто", Attribute::Text(String::new())),
        ("число текстом", Attribute::Text("1".into())),
        ("$set", Attribute::Text("a.b".into())),
        ("a.b", Attribute::Text("😀".into())),
    ];
    odd.map(|(name, value)| (name.to_owned(), value)).into()
}

fn sorted(products: &[Product], sort: ProductSort) -> Vec<Product> {
    let mut sorted = products.to_vec();
    sorted.sort_by_key(|product| sort.position(product));
    if sort == ProductSort::PriceDescending {
        sorted.reverse();
    }
    sorted
}

async fn prefix_categories(bench: &Bench) -> Checked {
    let word = &bench.universe.word;
    let categories: Vec<String> = ["", "a", "a ", "a\u{1}", "aa", "a\u{ffff}", "ё", "е", "A"]
        .iter()
        .map(|end| format!("{word}{end}"))
        .chain([format!("{word}{}", "я".repeat(CATEGORY_CHARS_MAX - word.len()))])
        .collect();
    for (n, category) in categories.iter().enumerate() {
        let product = Product { category: category.clone(), ..product(bench, n, 1) };
        answered(bench.store.products.insert(vec![product]).await)?;
    }
    for (n, category) in categories.iter().enumerate() {
        for sort in SORTS {
            let query = ProductQuery { category: Some(category.clone()), ..ProductQuery::all(sort, 10) };
            let found: Vec<_> = listed(bench, &query, 10).await?.iter().map(|product| product.id).collect();
            same(format!("products in {category:?} by {sort:?}"), found, vec![bench.universe.product(n)])?;
        }
    }
    let own = async || -> Result<BTreeSet<String>, TestCaseError> {
        let all = answered(bench.store.products.categories().await)?;
        Ok(all.into_iter().filter(|category| category.starts_with(word)).collect())
    };
    same("categories", own().await?, categories.iter().cloned().collect())?;
    // The last product leaves a category, and the category is gone.
    let edit = ProductEdit { category: Some(categories[1].clone()), ..ProductEdit::default() };
    answered(bench.store.products.edit(bench.universe.product(0), edit, bench.universe.start).await)?;
    same("categories after one was left", own().await?, categories[1..].iter().cloned().collect())
}

async fn inserted_again(bench: &Bench) -> Checked {
    let first = product(bench, 0, 1);
    same("new", answered(bench.store.products.insert(vec![first.clone()]).await)?, 1)?;
    let other = Product { name: "Другой".into(), price: PRICE_MAX, ..product(bench, 0, 9) };
    let both = vec![other, product(bench, 1, 1)];
    same("new of two", answered(bench.store.products.insert(both).await)?, 1)?;
    same("the first", stored(bench, 0).await?, first)
}

async fn available_in_a_zone(bench: &Bench) -> Checked {
    let products = &bench.store.products;
    answered(products.insert(vec![product(bench, 0, 0), product(bench, 1, 1), product(bench, 2, 3)]).await)?;
    let available = async |n: usize| -> Result<BTreeSet<ProductId>, TestCaseError> {
        let category = Some(bench.universe.word.clone());
        let all = ProductQuery::all(ProductSort::Name, 10);
        let found = listed(bench, &ProductQuery { category, zone: Some(zone(n)), ..all }, 10).await?;
        Ok(found.iter().map(|product| product.id).collect())
    };
    let ids = |numbers: &[usize]| numbers.iter().map(|n| bench.universe.product(*n)).collect();
    same("in the zone", available(0).await?, ids(&[1, 2]))?;
    same("in another", available(1).await?, ids(&[]))?;
    // The last unit is held, and some arrive elsewhere.
    answered(products.hold(bench.universe.product(1), hold(bench, 0, 0, 1), bench.universe.start).await)?;
    let arrival = StockChange::Delta(1);
    answered(products.change_stock(bench.universe.product(0), zone(0), arrival, bench.universe.start).await)?;
    same("in the zone, later", available(0).await?, ids(&[0, 2]))
}

/// As when products are moved here from another store.
async fn inserted_with_holds(bench: &Bench) -> Checked {
    let now = bench.universe.start;
    let mut held = product(bench, 0, 10);
    held.hold(hold(bench, 0, 0, 3), now);
    answered(bench.store.products.insert(vec![held.clone(), product(bench, 1, 10)]).await)?;
    same("holds placed before then", with_holds(bench, now, 10).await?, Vec::new())?;
    same("holds placed then", with_holds(bench, now.plus_ms(1), 10).await?, vec![held])?;
    let lost = Verdict { sale: Decision::Lost, cancellation: Decision::Undecided };
    let products = &bench.store.products;
    let settled = products.settle(bench.universe.product(0), bench.universe.order(0), lost, now).await;
    same("settled", answered(settled)?, true)?;
    same("holds that are left", with_holds(bench, now.plus_ms(1), 10).await?, Vec::new())
}

async fn full_holds(bench: &Bench) -> Checked {
    let (products, now) = (&bench.store.products, bench.universe.start);
    let phone = product(bench, 0, 1_000);
    answered(products.insert(vec![phone.clone()]).await)?;
    for order in 0..=HOLDS_PER_PRODUCT_MAX {
        let outcome = answered(products.hold(phone.id, hold(bench, order, 0, 1), now).await)?;
        let expected = if order < HOLDS_PER_PRODUCT_MAX { HoldOutcome::Held } else { HoldOutcome::Full };
        same(format!("hold {order}"), outcome, expected)?;
    }
    let won = Verdict { sale: Decision::Won(bench.universe.attempt(0)), cancellation: Decision::Undecided };
    answered(products.settle(phone.id, bench.universe.order(7), won, now).await)?;
    let outcome = answered(products.hold(phone.id, hold(bench, HOLDS_PER_PRODUCT_MAX, 0, 1), now).await)?;
    same("a hold after one was settled", outcome, HoldOutcome::Held)?;
    same("holds", stored(bench, 0).await?.holds.len(), HOLDS_PER_PRODUCT_MAX)
}

async fn due_checkouts(bench: &Bench) -> Checked {
    let (products, start) = (&bench.store.products, bench.universe.start);
    const CHECKOUTS: usize = 5;
    let mut made = Vec::new();
    for n in [3, 0, 4, 1, 2] {
        let due_at = Some(start.plus_ms(n as i64));
        let checkout = Checkout { due_at, ..checkout(bench, n) };
        answered(products.insert_checkout(checkout.clone()).await)?;
        made.push(checkout);
    }
    made.sort_by_key(|checkout| checkout.due_at);
    for n in 0..=CHECKOUTS {
        let now = start.plus_ms(n as i64);
        let due = answered(products.due_checkouts(now, 100).await)?;
        same(format!("due {n} ms after the first"), &due[..], &made[..n])?;
        let first = answered(products.due_checkouts(now, 2).await)?;
        same(format!("the first of these {n}"), &first[..], &made[..n.min(2)])?;
    }
    let settled = made[0].settled(start);
    answered(products.update_checkout(settled, made[0].version).await)?;
    let later = Checkout { due_at: Some(start.plus_ms(50)), ..made[1].fenced(start) };
    answered(products.update_checkout(later.clone(), made[1].version).await)?;
    let due = answered(products.due_checkouts(start.plus_ms(51), 100).await)?;
    let expected = [&made[2..], &[later]].concat();
    same("due after one was settled and one put off", due, expected)
}

async fn largest_checkout(bench: &Bench) -> Checked {
    let line = |n: usize| OrderLine {
        product_id: bench.universe.product(n),
        name: "😀".repeat(NAME_CHARS_MAX),
        category: "Ё".repeat(CATEGORY_CHARS_MAX),
        price: PRICE_MAX,
        quantity: QUANTITY_MAX,
    };
    let large = Checkout {
        request_hash: [255; 32],
        lines: (0..LINES_MAX).map(line).collect(),
        bucket: u16::MAX,
        ..checkout(bench, 0)
    };
    let products = &bench.store.products;
    same("inserted", answered(products.insert_checkout(large.clone()).await)?, None)?;
    same("the record", answered(products.get_checkout(large.order_id).await)?, Some(large))
}

/// What other cases left is in it too, so only order and presence can be looked at.
async fn whole_catalogue(bench: &Bench) -> Checked {
    let own: Vec<Product> = (0..5).map(|n| product(bench, n, 1)).collect();
    answered(bench.store.products.insert(own.clone()).await)?;
    for sort in SORTS {
        let all = listed(bench, &ProductQuery::all(sort, 50), 50).await?;
        let in_order = |a: &ProductPosition, b: &ProductPosition| match sort {
            ProductSort::PriceDescending => a > b,
            ProductSort::PriceAscending | ProductSort::Name => a < b,
        };
        let positions: Vec<ProductPosition> = all.iter().map(|product| sort.position(product)).collect();
        holds(format!("all by {sort:?} are in order, each once"), positions.is_sorted_by(in_order))?;
        holds(format!("all by {sort:?} are there"), own.iter().all(|product| all.contains(product)))?;
    }
    Ok(())
}
