use std::collections::{BTreeMap, BTreeSet};

use mobimir_core::{
    checkout::{AbortReason, Checkout, LINES_MAX},
    id::{AttemptId, OrderId, ProductId},
    money::{Money, PRICE_MAX},
    order::OrderLine,
    product::{
        ATTRIBUTE_TEXT_CHARS_MAX, ATTRIBUTES_MAX, Attribute, CATEGORY_CHARS_MAX, Decision,
        HOLDS_PER_PRODUCT_MAX, HoldOutcome, NAME_CHARS_MAX, Product, ProductEdit, ProductPosition,
        ProductQuery, ProductSort, QUANTITY_MAX, StockChange, Verdict,
    },
};

use super::{
    super::arena::Bench, Checked, Failure, Suite, answered, checkout, hold, holds, listed, product, same,
    stored, with_holds, zone,
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
    suite.example("a cart is claimed from whoever claimed it last", cart_claims);
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
        bench.sees(format!("product {n}"), product.clone(), async || stored(bench, n).await).await?;
    }
    for sort in SORTS {
        for limit in [1, 4, 100] {
            let query = ProductQuery {
                category: Some(bench.universe.word.clone()),
                ..ProductQuery::all(sort, limit)
            };
            let names =
                |products: Vec<Product>| products.into_iter().map(|p| (p.id, p.name)).collect::<Vec<_>>();
            let found = async || listed(bench, &query, limit).await.map(names);
            let expected = names(sorted(&products, sort));
            bench.sees(format!("by {sort:?} in pages of {limit}"), expected, found).await?;
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

fn ids(products: Vec<Product>) -> Vec<ProductId> {
    products.into_iter().map(|product| product.id).collect()
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
            let found = async || listed(bench, &query, 10).await.map(ids);
            let what = format!("products in {category:?} by {sort:?}");
            bench.sees(what, vec![bench.universe.product(n)], found).await?;
        }
    }
    let own = async || -> Result<BTreeSet<String>, Failure> {
        let all = answered(bench.store.products.categories().await)?;
        Ok(all.into_iter().filter(|category| category.starts_with(word)).collect())
    };
    bench.sees("categories", categories.iter().cloned().collect(), &own).await?;
    // The last product leaves a category, and the category is gone.
    let edit = ProductEdit { category: Some(categories[1].clone()), ..ProductEdit::default() };
    answered(bench.store.products.edit(bench.universe.product(0), edit, bench.universe.start).await)?;
    bench.sees("categories after one was left", categories[1..].iter().cloned().collect(), &own).await
}

async fn inserted_again(bench: &Bench) -> Checked {
    let first = product(bench, 0, 1);
    same("new", answered(bench.store.products.insert(vec![first.clone()]).await)?, 1)?;
    let other = Product { name: "Другой".into(), price: PRICE_MAX, ..product(bench, 0, 9) };
    let both = vec![other, product(bench, 1, 1)];
    same("new of two", answered(bench.store.products.insert(both).await)?, 1)?;
    bench.sees("the first", first, async || stored(bench, 0).await).await
}

async fn available_in_a_zone(bench: &Bench) -> Checked {
    let products = &bench.store.products;
    answered(products.insert(vec![product(bench, 0, 0), product(bench, 1, 1), product(bench, 2, 3)]).await)?;
    let available = async |n: usize| -> Result<BTreeSet<ProductId>, Failure> {
        let category = Some(bench.universe.word.clone());
        let all = ProductQuery::all(ProductSort::Name, 10);
        let found = listed(bench, &ProductQuery { category, zone: Some(zone(n)), ..all }, 10).await?;
        Ok(found.iter().map(|product| product.id).collect())
    };
    let these = |numbers: &[usize]| numbers.iter().map(|n| bench.universe.product(*n)).collect();
    bench.sees("in the zone", these(&[1, 2]), async || available(0).await).await?;
    bench.sees("in another", these(&[]), async || available(1).await).await?;
    // The last unit is held, and some arrive elsewhere.
    answered(products.hold(bench.universe.product(1), hold(bench, 0, 0, 1), bench.universe.start).await)?;
    let arrival = StockChange::Delta(1);
    answered(products.change_stock(bench.universe.product(0), zone(0), arrival, bench.universe.start).await)?;
    bench.sees("in the zone, later", these(&[0, 2]), async || available(0).await).await
}

/// As when products are moved here from another store.
async fn inserted_with_holds(bench: &Bench) -> Checked {
    let now = bench.universe.start;
    let mut held = product(bench, 0, 10);
    held.hold(hold(bench, 0, 0, 3), now);
    answered(bench.store.products.insert(vec![held.clone(), product(bench, 1, 10)]).await)?;
    let placed_before = async |time| with_holds(bench, time, 10).await;
    bench.sees("holds placed before then", Vec::new(), async || placed_before(now).await).await?;
    let then = async || placed_before(now.plus_ms(1)).await;
    bench.sees("holds placed then", vec![held], &then).await?;
    let lost = Verdict { sale: Decision::Lost, cancellation: Decision::Undecided };
    let products = &bench.store.products;
    let settled = products.settle(bench.universe.product(0), bench.universe.order(0), lost, now).await;
    same("settled", answered(settled)?, true)?;
    bench.sees("holds that are left", Vec::new(), &then).await
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
    let held = async || stored(bench, 0).await.map(|product| product.holds.len());
    bench.sees("holds", HOLDS_PER_PRODUCT_MAX, held).await
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
        let due = async || products.due_checkouts(now, 100).await;
        bench.sees(format!("due {n} ms after the first"), made[..n].to_vec(), due).await?;
        let first = async || products.due_checkouts(now, 2).await;
        bench.sees(format!("the first of these {n}"), made[..n.min(2)].to_vec(), first).await?;
    }
    let settled = made[0].settled(start);
    answered(products.update_checkout(settled, made[0].version).await)?;
    let later = Checkout { due_at: Some(start.plus_ms(50)), ..made[1].fenced(start) };
    answered(products.update_checkout(later.clone(), made[1].version).await)?;
    let due = async || products.due_checkouts(start.plus_ms(51), 100).await;
    let expected = [&made[2..], std::slice::from_ref(&later)].concat();
    bench.sees("due after one was settled and one put off", expected, due).await?;

    let is_open = "an open checkout can be decided";
    let committed = made[2].commit(AttemptId(bench.universe.order(2).0), start).expect(is_open);
    let committed = Checkout { due_at: made[2].due_at, ..committed };
    answered(products.update_checkout(committed, made[2].version).await)?;
    let aborted = made[3].abort(AbortReason::Expired, start).expect(is_open);
    let aborted = Checkout { due_at: made[3].due_at, ..aborted };
    answered(products.update_checkout(aborted.clone(), made[3].version).await)?;
    let uncommitted = [aborted, made[4].clone(), later];
    for limit in [100, 2] {
        let due = async || products.due_uncommitted(start.plus_ms(51), limit).await;
        let expected = uncommitted[..limit.min(3)].to_vec();
        bench.sees(format!("the first {limit} that are not committed"), expected, due).await?;
    }
    Ok(())
}

async fn cart_claims(bench: &Bench) -> Checked {
    let products = &bench.store.products;
    let (user, other) = (bench.universe.user(0), bench.universe.user(1));
    let orders: Vec<OrderId> = (0..3).map(|n| bench.universe.order(n)).collect();
    let claim = async |expected: Option<usize>, order: usize| {
        let expected = expected.map(|n| orders[n]);
        answered(products.claim_cart(user, expected, orders[order]).await)
    };
    same("nobody has claimed it", answered(products.cart_claim(user).await)?, None)?;
    same("a claim from an order that has none", claim(Some(1), 0).await?, false)?;
    same("the first claim", claim(None, 0).await?, true)?;
    same("the first claim again", claim(None, 0).await?, true)?;
    same("another first claim", claim(None, 1).await?, false)?;
    same("a claim from the first", claim(Some(0), 1).await?, true)?;
    same("the same once more", claim(Some(0), 1).await?, true)?;
    same("a late claim from the first", claim(Some(0), 2).await?, false)?;
    same("the first again, too late", claim(None, 0).await?, false)?;
    let holder = async || products.cart_claim(user).await;
    bench.sees("who has claimed it", Some(orders[1]), holder).await?;
    same("the cart of somebody else", answered(products.cart_claim(other).await)?, None)
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
    let record = async || products.get_checkout(large.order_id).await;
    bench.sees("the record", Some(large.clone()), record).await
}

/// What other cases left is in it too, so only order and presence can be looked at.
async fn whole_catalogue(bench: &Bench) -> Checked {
    let own: Vec<Product> = (0..5).map(|n| product(bench, n, 1)).collect();
    answered(bench.store.products.insert(own.clone()).await)?;
    for sort in SORTS {
        let in_order = |a: &ProductPosition, b: &ProductPosition| match sort {
            ProductSort::PriceDescending => a > b,
            ProductSort::PriceAscending | ProductSort::Name => a < b,
        };
        let are_there = async || -> Result<bool, Failure> {
            let all = listed(bench, &ProductQuery::all(sort, 50), 50).await?;
            let positions: Vec<ProductPosition> = all.iter().map(|product| sort.position(product)).collect();
            holds(format!("all by {sort:?} are in order, each once"), positions.is_sorted_by(in_order))?;
            Ok(own.iter().all(|product| all.contains(product)))
        };
        bench.sees(format!("all by {sort:?} are there"), true, are_there).await?;
    }
    Ok(())
}
