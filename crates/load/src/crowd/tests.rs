//! Answers that are right, and the same answers a little wrong.

use std::collections::BTreeMap;

use super::{
    asked::{Asked, What},
    *,
};
use crate::{
    goods::tests::goods,
    rules::Rule,
    shop::Stock,
    wire::{Answer, Lost},
};

/// One user and one guest, 30 products in three categories, 5 units of each in MSK.
fn crowd() -> Crowd {
    let profile = Profile::built_in("wholesale").expect("a profile");
    let mut user = Shopper::new("token".to_owned(), Some("{}".to_owned()), 0);
    user.user_id = "me".into();
    let shoppers = vec![user, Shopper::new("guest".to_owned(), None, 0)];
    let mut crowd = Crowd::new(profile, goods(30), vec!["MSK".to_owned()], shoppers, "run".to_owned(), 1);
    crowd.check_one_in(1);
    let stock = Stock { available: 5, ..Stock::default() };
    let stock: AllStock = vec![BTreeMap::from([("MSK".to_owned(), stock)]); 30];
    crowd.know_stock(&stock, &stock);
    crowd
}

fn heard(crowd: &mut Crowd, what: What, status: u16, body: &str) -> Verdict {
    crowd.heard(Asked { operation: Operation::ProductPage, what }, Ok(Answer::made_up(status, body)))
}

/// Which rules are broken.
fn broken(crowd: &Crowd) -> Vec<&'static str> {
    let found = crowd.checks.by_name();
    let is_broken = |rule: &&Rule| found.get(rule.name()).is_some_and(|found| found.wrong > 0);
    Rule::ALL.iter().filter(is_broken).map(|rule| rule.name()).collect()
}

fn line(product: u32, units: u64) -> String {
    format!(
        r#"{{"product_id":"product-{product}","name":"Product {product}","category":"Category {}",
            "price":"{}.00","quantity":{units}}}"#,
        product % 3,
        100 + product
    )
}

fn cart(lines: &[(u32, u64)]) -> String {
    let items: Vec<String> = lines.iter().map(|(product, units)| line(*product, *units)).collect();
    let amount: u64 = lines.iter().map(|(product, units)| (100 + u64::from(*product)) * units).sum();
    format!(r#"{{"items":[{}],"amount":"{amount}.00"}}"#, items.join(","))
}

fn add(product: u32, units: u64) -> What {
    What::Add { shopper: 1, product, units, released: 0 }
}

#[test]
fn a_cart_is_what_its_owner_put_in() {
    let mut crowd = crowd();
    assert_eq!(heard(&mut crowd, add(3, 2), 200, &cart(&[(3, 2)])), Verdict::Fine);
    assert_eq!(heard(&mut crowd, add(4, 1), 200, &cart(&[(3, 2), (4, 1)])), Verdict::Fine);
    assert_eq!(broken(&crowd), Vec::<&str>::new());
    // The second one counted twice.
    assert_eq!(heard(&mut crowd, add(4, 1), 200, &cart(&[(3, 2), (4, 3)])), Verdict::Wrong);
    assert_eq!(broken(&crowd), ["cart_contents"]);
    let example = crowd.checks.by_name()["cart_contents"].example.clone().expect("an example");
    assert_eq!(example.request, "POST /v1/cart/items of shopper 1: 1 of product-4");
    assert_eq!((&*example.expected, &*example.got), ("2 of product-4", "2 of product-3, 3 of product-4"));
}

#[test]
fn a_lost_answer_is_no_reason_to_blame_a_cart() {
    let mut crowd = crowd();
    let lost = |crowd: &mut Crowd, what: What| {
        crowd.heard(Asked { operation: Operation::CartAdd, what }, Err(Lost::HungUp));
    };
    heard(&mut crowd, add(3, 2), 200, &cart(&[(3, 2)]));
    lost(&mut crowd, add(3, 2));
    // It was not done, and then it was, after all.
    assert_eq!(heard(&mut crowd, add(4, 1), 200, &cart(&[(3, 2), (4, 1)])), Verdict::Fine);
    assert_eq!(heard(&mut crowd, add(4, 1), 200, &cart(&[(3, 4), (4, 2)])), Verdict::Fine);
    // Whatever it clears, and when.
    lost(&mut crowd, What::Clear { shopper: 1 });
    assert_eq!(heard(&mut crowd, add(5, 1), 200, &cart(&[(5, 1)])), Verdict::Fine);
    assert_eq!(heard(&mut crowd, add(5, 1), 200, &cart(&[])), Verdict::Fine);
    assert_eq!(broken(&crowd), Vec::<&str>::new());
    assert_eq!(heard(&mut crowd, add(5, 1), 200, &cart(&[(5, 4)])), Verdict::Wrong);
}

#[test]
fn a_cart_that_is_read_beside_a_change_is_not_compared() {
    let mut crowd = crowd();
    let changes = crowd.shoppers[1].changes;
    let read = What::Cart { shopper: 1, changes };
    assert_eq!(heard(&mut crowd, read, 200, &cart(&[])), Verdict::Fine);
    assert_eq!(heard(&mut crowd, read, 200, &cart(&[(3, 1)])), Verdict::Wrong);
    crowd.shoppers[1].begin_change();
    assert_eq!(heard(&mut crowd, read, 200, &cart(&[(3, 1)])), Verdict::Fine);
}

#[test]
fn out_of_stock_is_right_when_so_much_may_be_sold() {
    let short = |available: u64| {
        format!(
            r#"{{"code":"out_of_stock",
                "lines":[{{"product_id":"product-3","requested":3,"available":{available}}}]}}"#
        )
    };
    let mut crowd = crowd();
    let mut request = Request::to("shop");
    assert_eq!(heard(&mut crowd, add(3, 3), 409, &short(2)), Verdict::Wrong);
    assert_eq!(broken(&crowd), ["out_of_stock"]);
    // Somebody orders three of the five: two may be left, and not less.
    let lines = BTreeMap::from([(3, 3)]);
    crowd.begin_order(0, 0, Some(lines), &mut request).expect("an order");
    assert_eq!(heard(&mut crowd, add(3, 3), 409, &short(2)), Verdict::Refused);
    assert_eq!(heard(&mut crowd, add(3, 3), 409, &short(1)), Verdict::Wrong);
    // Of what was not asked for nothing can be short.
    assert_eq!(heard(&mut crowd, add(4, 3), 409, &short(2)), Verdict::Wrong);
    // The order itself is refused: it was not in its own way.
    assert_eq!(heard(&mut crowd, What::Order { shopper: 0 }, 409, &short(2)), Verdict::Wrong);
    assert_eq!(crowd.checks.by_name()["out_of_stock"].wrong, 4);
    // Whoever asked meanwhile may have been too late; whoever asks now is not.
    assert_eq!(heard(&mut crowd, add(3, 3), 409, &short(2)), Verdict::Refused);
    let released = crowd.taken.released(3);
    let now = What::Add { shopper: 1, product: 3, units: 3, released };
    assert_eq!(heard(&mut crowd, now, 409, &short(2)), Verdict::Wrong);
}

#[test]
fn a_listing_may_have_a_new_product_and_must_have_the_known_ones() {
    let row = |product: u32| line(product, 0);
    let range = crate::goods::PriceRange { category: 0, low_kopecks: 10_300, high_kopecks: 10_900 };
    let new = r#"{"product_id":"new","name":"New","category":"Category 0","price":"105.00"}"#.to_owned();
    let verdict = |rows: &[String]| {
        let mut crowd = crowd();
        let page = format!(r#"{{"items":[{}],"next":null}}"#, rows.join(","));
        heard(&mut crowd, What::Listing { range }, 200, &page);
        broken(&crowd)
    };
    assert_eq!(verdict(&[row(3), row(6), row(9)]), Vec::<&str>::new());
    assert_eq!(verdict(&[row(3), new.clone(), row(6), row(9)]), Vec::<&str>::new());
    assert_eq!(verdict(&[row(3), row(9)]), ["listing_complete"]);
    assert_eq!(verdict(&[row(3), row(6), row(6), row(9)]), ["listing_unique"]);
    assert_eq!(verdict(&[row(3), row(9), row(6)]), ["listing_sorted"]);
    assert_eq!(verdict(&[row(3), row(6), row(9), row(12)]), ["listing_filter"]);
    assert_eq!(verdict(&[row(3), row(4), row(6), row(9)]), ["listing_filter"]);
    assert_eq!(verdict(&[row(3).replace("Product 3", "Product 5"), row(6), row(9)]), ["product_facts"]);
}

fn order(id: &str, second: u32) -> String {
    format!(
        r#"{{"order_id":"{id}","user_id":"me","status":"confirmed","geo_zone":"MSK","items":[{}],
            "total_amount":"206.00","created_at":"2026-11-27T18:00:{second:02}.000Z"}}"#,
        line(3, 2)
    )
}

/// Orders two of product 3; the answer is this one.
fn place(crowd: &mut Crowd, answer: &str) -> Verdict {
    let mut request = Request::to("shop");
    crowd.begin_order(0, 0, Some(BTreeMap::from([(3, 2)])), &mut request).expect("an order");
    heard(crowd, What::Order { shopper: 0 }, 201, answer)
}

#[test]
fn an_order_is_what_was_asked_for() {
    for (right, wrong, rule) in [
        ("", "", None),
        (r#""quantity":2"#, r#""quantity":1"#, Some("order_lines")),
        ("206.00", "205.00", Some("order_total")),
        ("MSK", "SPB", Some("order_zone")),
        (r#""me""#, r#""you""#, Some("order_owner")),
        ("confirmed", "paid", Some("order_status")),
        ("Product 3", "Product 4", Some("order_prices")),
        (r#""order_id""#, r#""id""#, Some("answer_format")),
    ] {
        let mut crowd = crowd();
        let verdict = place(&mut crowd, &order("a", 1).replacen(right, wrong, 1));
        let rules = broken(&crowd);
        assert_eq!(verdict, if rule.is_some() { Verdict::Wrong } else { Verdict::Fine }, "{rules:?}");
        assert!(
            rule.is_none_or(|rule| rules.contains(&rule)) && rules.is_empty() == rule.is_none(),
            "{rules:?}"
        );
    }
    let mut crowd = crowd();
    assert_eq!(place(&mut crowd, &order("a", 1)), Verdict::Fine);
    assert_eq!(place(&mut crowd, &order("a", 1)), Verdict::Wrong);
    assert_eq!(broken(&crowd), ["order_id_unique"]);
}

#[test]
fn the_last_order_is_on_the_first_page_unless_newer_ones_fill_it() {
    let page = |orders: &[String]| format!(r#"{{"items":[{}],"next":null}}"#, orders.join(","));
    let mut crowd = crowd();
    place(&mut crowd, &order("a", 1));
    place(&mut crowd, &order("b", 2));
    let history = What::History { user: 0, last: Some(1), orders_begun: crowd.shoppers[0].orders_begun };
    let (a, b) = (order("a", 1), order("b", 2));
    assert_eq!(heard(&mut crowd, history, 200, &page(&[b.clone(), a.clone()])), Verdict::Fine);
    assert_eq!(broken(&crowd), Vec::<&str>::new());
    assert_eq!(heard(&mut crowd, history, 200, &page(std::slice::from_ref(&a))), Verdict::Wrong);
    assert_eq!(broken(&crowd), ["history_last_order"]);
    heard(&mut crowd, history, 200, &page(&[a.clone(), b.clone()]));
    heard(&mut crowd, history, 200, &page(&[b.clone(), b.clone(), a.clone()]));
    heard(&mut crowd, history, 200, &page(&[b.clone(), a.replace(r#""me""#, r#""you""#)]));
    heard(&mut crowd, history, 200, &page(&[b.replace("Product 3", "Product 4"), a.clone()]));
    let rules =
        ["order_unchanged", "history_last_order", "history_sorted", "history_unique", "history_owner"];
    assert_eq!(broken(&crowd), rules);
    let wrong = crowd.checks.wrong();
    crowd.shoppers[0].orders_begun += 20;
    assert_eq!(heard(&mut crowd, history, 200, &page(&[a])), Verdict::Fine);
    assert_eq!(crowd.checks.wrong(), wrong);
}
