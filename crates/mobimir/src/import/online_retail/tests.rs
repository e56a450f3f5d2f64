use std::{
    collections::{BTreeMap, HashMap},
    io::{Cursor, Write},
    sync::Arc,
};

use mobimir_core::{
    id::UserId,
    order::OrderStatus,
    ports::Period,
    product::{ProductQuery, ProductSort},
    user::Email,
};
use mobimir_testkit::model::ModelStore;

use super::{
    line::Reason,
    orders::{guest_id, order_id},
    survey::{product_id, user_id},
    *,
};

const HEADER: &str = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n";

/// A little of everything.
const SMALL: &str = "\
536365,85123A,WHITE HANGING HEART T-LIGHT HOLDER,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
536365,85123a,WHITE HANGING HEART T-LIGHT HOLDER,4,2010-12-01 08:27:00,2.95,17850.0,United Kingdom
536365,POST,POSTAGE,1,2010-12-01 08:26:00,18.00,17850.0,United Kingdom
536366,85123A,CREAM HANGING HEART T-LIGHT HOLDER,30,2010-12-01 09:00:00,2.55,13047,EIRE
C536379,85123A,WHITE HANGING HEART T-LIGHT HOLDER,-2,2010-12-01 09:41:00,2.55,17850.0,United Kingdom
536544,21773,DECORATIVE ROSE BATHROOM BOTTLE,1,2010-12-01 14:32:00,2.51,,United Kingdom
536589,21777,,-10,2010-12-01 16:50:00,0.0,,United Kingdom
536365,21773,DECORATIVE ROSE BATHROOM BOTTLE,2,2010-12-01 08:26:00,2.505,17850.0,United Kingdom
A563186,B,Adjust bad debt,1,2011-08-12 14:51:00,-11062.06,,United Kingdom
536600,21773,DECORATIVE ROSE BATHROOM BOTTLE,0,2010-12-01 14:32:00,2.51,,United Kingdom
536601,,NOTHING,1,2010-12-01 14:32:00,2.51,,United Kingdom
536602,21773,ROSE,1,yesterday,2.51,,United Kingdom
";

fn zones() -> Vec<Zone> {
    ["MSK", "SPB", "EKB", "NSK"].map(|code| Zone::parse(code).unwrap()).to_vec()
}

async fn load_into(stores: &Stores, lines: &str) -> Result<Summary> {
    let options = Options { zones: zones(), now: Timestamp::parse("2025-01-01T00:00:00Z").unwrap() };
    load(stores, Cursor::new(format!("{HEADER}{lines}")), &options, &mut |_| {}).await
}

async fn loaded(lines: &str) -> (Stores, Summary) {
    let stores = ModelStore::stores();
    let summary = load_into(&stores, lines).await.unwrap();
    (stores, summary)
}

async fn product(stores: &Stores, code: &str) -> Arc<Product> {
    stores.products.get(product_id(code)).await.unwrap().unwrap()
}

async fn order(stores: &Stores, reference: &str) -> Order {
    stores.orders.get(order_id(reference)).await.unwrap().unwrap()
}

async fn all_products(stores: &Stores) -> Vec<Arc<Product>> {
    let mut query = ProductQuery {
        category: None,
        price_min: None,
        price_max: None,
        terms: Default::default(),
        zone: None,
        sort: ProductSort::Name,
        after: None,
        limit: 100,
    };
    let mut all = Vec::new();
    loop {
        let page = stores.products.list(query.clone()).await.unwrap();
        all.extend(page.items);
        query.after = page.next;
        if query.after.is_none() {
            return all;
        }
    }
}

async fn orders_of(stores: &Stores, user: UserId) -> Vec<Order> {
    stores.orders.by_user(user, Period::default(), None, 100).await.unwrap().items
}

/// STK-1, and that what the products say was sold is what the orders say was bought.
async fn check_books(stores: &Stores, orders: &[Order]) {
    let mut bought = HashMap::<_, u64>::new();
    for order in orders.iter().filter(|order| order.status != OrderStatus::Cancelled) {
        for line in &order.lines {
            *bought.entry((line.product_id, order.geo_zone)).or_default() += line.quantity;
        }
    }
    for product in all_products(stores).await {
        assert!(product.books_balance(), "{product:?}");
        for zone in zones() {
            let bought = bought.get(&(product.id, zone)).copied().unwrap_or(0);
            assert_eq!(product.stock[&zone].sold, bought, "{} in {zone}", product.name);
        }
    }
}

#[tokio::test]
async fn every_line_is_accounted_for() {
    let (stores, summary) = loaded(SMALL).await;
    assert_eq!(summary.lines, 12);
    assert_eq!((summary.products.in_file, summary.products.new), (4, 4));
    assert_eq!((summary.users.in_file, summary.users.new), (2, 2));
    assert_eq!((summary.orders.in_file, summary.orders.new), (4, 4));
    assert_eq!((summary.orders_cancelled, summary.orders_of_guests, summary.invoices_split), (1, 1, 0));
    assert_eq!((summary.adjustments.lines, summary.adjustments.units), (1, 10));
    assert_eq!((summary.notes.prices_rounded, summary.notes.lines_joined), (1, 1));
    assert_eq!((summary.notes.lines_repriced, summary.notes.lines_repriced_kopecks), (1, 160));
    let bad: Vec<_> = summary.bad_lines.first.iter().map(|bad| (bad.line, bad.reason)).collect();
    assert_eq!(
        bad,
        [
            (10, Reason::NegativePrice),
            (11, Reason::ZeroQuantity),
            (12, Reason::BadStockCode),
            (13, Reason::BadDate)
        ]
    );
    assert_eq!(summary.bad_lines.total, 4);
    assert_eq!(summary.bad_lines.by_reason, bad.iter().map(|(_, reason)| (*reason, 1)).collect());

    let mut orders = Vec::new();
    for reference in ["536365", "536366", "C536379", "536544"] {
        orders.push(order(&stores, reference).await);
    }
    check_books(&stores, &orders).await;
}

#[tokio::test]
async fn an_invoice_becomes_an_order_in_the_past() {
    let (stores, _) = loaded(SMALL).await;
    let first = order(&stores, "536365").await;
    assert_eq!(first.user_id, user_id("17850"));
    assert_eq!(first.status, OrderStatus::Delivered);
    assert_eq!(first.created_at.to_string(), "2010-12-01T08:26:00.000Z");
    assert_eq!(first.shipping_address.as_deref(), Some("United Kingdom"));
    assert_eq!(first.payment_method.as_deref(), Some("Invoice 536365"));
    let lines: Vec<_> = first.lines.iter().map(|l| (l.product_id, l.price.to_string(), l.quantity)).collect();
    assert_eq!(
        lines,
        [
            (product_id("85123A"), "2.55".to_owned(), 10),
            (product_id("POST"), "18.00".to_owned(), 1),
            (product_id("21773"), "2.51".to_owned(), 2),
        ]
    );
    let history = stores.orders.history(first.id).await.unwrap();
    assert_eq!(history, [first.first_change()]);

    let cancelled = order(&stores, "C536379").await;
    assert_eq!((cancelled.status, cancelled.lines[0].quantity), (OrderStatus::Cancelled, 2));
    assert_eq!(orders_of(&stores, user_id("17850")).await, [cancelled, first]);

    let of_guest = order(&stores, "536544").await;
    assert_eq!(of_guest.user_id, guest_id("536544"));
    assert!(stores.users.get(of_guest.user_id).await.unwrap().is_none());
    assert!(stores.orders.get(order_id("536589")).await.unwrap().is_none(), "an adjustment is no order");
}

#[tokio::test]
async fn goods_and_customers_are_what_most_lines_say() {
    let (stores, _) = loaded(SMALL).await;
    let heart = product(&stores, "85123A").await;
    assert_eq!(heart.name, "White hanging heart t-light holder");
    assert_eq!((heart.category.as_str(), heart.price.to_string().as_str()), ("Candles and lights", "2.55"));
    assert!(heart.stock.values().all(|stock| stock.available >= 20));
    let postage = product(&stores, "POST").await;
    assert_eq!(postage.category, category::SERVICES);
    assert_eq!((postage.best_available(None), postage.stock.values().map(|s| s.sold).sum::<u64>()), (0, 1));
    let written_off = product(&stores, "21777").await;
    assert_eq!((written_off.name.as_str(), written_off.best_available(None)), ("Stock code 21777", 0));

    let email = Email::parse("customer-17850@import.invalid").unwrap();
    let customer = stores.users.by_email(&email).await.unwrap().unwrap();
    assert_eq!(customer.id, user_id("17850"));
    assert_eq!(customer.profile.name.as_deref(), Some("Customer 17850"));
    assert_eq!(customer.password_hash, "");
    assert_eq!(customer.created_at.to_string(), "2010-12-01T08:26:00.000Z");
    assert_eq!(customer.profile.geo_zone, Some(order(&stores, "536365").await.geo_zone));
}

#[tokio::test]
async fn a_second_import_changes_nothing() {
    let (stores, first) = loaded(SMALL).await;
    let before = (all_products(&stores).await, order(&stores, "536365").await);
    let second = load_into(&stores, SMALL).await.unwrap();
    assert_eq!((second.products.new, second.users.new, second.orders.new), (0, 0, 0));
    assert_eq!(second.orders.in_file, first.orders.in_file);
    assert_eq!((all_products(&stores).await, order(&stores, "536365").await), before);
    assert_eq!(stores.orders.history(order_id("536365")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_import_that_was_broken_off_is_finished_by_the_next() {
    let (whole, summary) = loaded(SMALL).await;
    let partial = ModelStore::stores();
    let some = order(&whole, "536366").await;
    partial.products.insert(vec![(*product(&whole, "85123A").await).clone()]).await.unwrap();
    partial.orders.insert(vec![some]).await.unwrap();
    let rest = load_into(&partial, SMALL).await.unwrap();
    assert_eq!(rest.orders.new, summary.orders.new - 1);
    assert_eq!(all_products(&partial).await, all_products(&whole).await);
}

#[tokio::test]
async fn a_packed_file_gives_the_same_and_progress_ends_at_the_end() {
    let (plain, _) = loaded(SMALL).await;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(format!("{HEADER}{SMALL}").as_bytes()).unwrap();
    let packed = ModelStore::stores();
    let options = Options { zones: zones(), now: Timestamp::parse("2025-01-01T00:00:00Z").unwrap() };
    let mut last = None;
    load(&packed, Cursor::new(packer.finish().unwrap()), &options, &mut |progress| last = Some(progress))
        .await
        .unwrap();
    assert_eq!(all_products(&packed).await, all_products(&plain).await);
    let last = last.unwrap();
    assert_eq!(last.bytes, last.bytes_total);
}

#[tokio::test]
async fn an_invoice_of_many_lines_becomes_several_orders_and_loses_none() {
    let lines: String = (0..450)
        .map(|n| format!("581,{n:05},THING {n},{},2011-01-05 10:00:00,1.25,15000,EIRE\n", n % 7 + 1))
        .collect();
    let (stores, summary) = loaded(&lines).await;
    assert_eq!((summary.orders.in_file, summary.invoices_split), (3, 1));
    let mut orders = Vec::new();
    for reference in ["581", "581/2", "581/3"] {
        orders.push(order(&stores, reference).await);
    }
    assert_eq!(orders.iter().map(|order| order.lines.len()).collect::<Vec<_>>(), [200, 200, 50]);
    assert!(orders.iter().all(|order| order.user_id == user_id("15000")));
    check_books(&stores, &orders).await;
}

#[tokio::test]
async fn more_units_than_a_line_may_have_go_into_another_order() {
    let line = "582,A1,THING,600000,2011-01-05 10:00:00,1.25,15000,EIRE\n";
    let (stores, summary) = loaded(&line.repeat(2)).await;
    assert_eq!(summary.orders.in_file, 2);
    let orders = [order(&stores, "582").await, order(&stores, "582/2").await];
    assert!(orders.iter().all(|order| order.lines[0].quantity == 600_000));
    check_books(&stores, &orders).await;
}

#[tokio::test]
async fn an_invoice_may_be_continued_anywhere_in_the_file() {
    let line =
        |invoice: &str, code: &str| format!("{invoice},{code},THING,1,2011-01-05 10:00:00,1,15000,EIRE\n");
    let text = [line("1", "A1"), line("2", "A1"), line("1", "A2"), line("2", "A2"), line("1", "A3")].concat();
    let (stores, summary) = loaded(&text).await;
    assert_eq!(summary.orders.in_file, 2);
    assert_eq!(order(&stores, "1").await.lines.len(), 3);
    assert_eq!(order(&stores, "2").await.lines.len(), 2);
}

#[tokio::test]
async fn only_the_first_bad_lines_are_named_but_all_are_counted() {
    let (_, summary) = loaded(&"1,A1,THING,none,2011-01-05 10:00:00,1,15000,EIRE\n".repeat(50)).await;
    assert_eq!(summary.bad_lines.total, 50);
    assert_eq!(summary.bad_lines.first.len(), summary::BAD_LINES_NAMED_MAX);
    let text = summary.to_string();
    assert!(text.contains("line 2: expected a whole Quantity of at most 1000000, got \"none\""), "{text}");
    assert!(text.contains("and 30 more"), "{text}");
    let json: serde_json::Value = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["bad_lines"]["by_reason"]["bad_quantity"], 50);
    assert_eq!(json["bad_lines"]["first"][0]["line"], 2);
}

#[tokio::test]
async fn a_file_that_is_something_else_leaves_the_shop_alone() {
    let stores = ModelStore::stores();
    let options = Options { zones: zones(), now: Timestamp::default() };
    let error = load(&stores, Cursor::new(b"id;name\n1;x\n"), &options, &mut |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("there is no InvoiceNo"), "{error}");
    assert!(all_products(&stores).await.is_empty());
}

/// Invoices of few customers and goods, in any order and with repetitions: nothing is lost, and the books balance.
#[test]
fn books_balance_after_any_file() {
    use proptest::prelude::*;

    let line = (0..6u8, 0..5u8, 1..2_000i64, any::<bool>(), 0..3u8, 0..400u32);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    proptest!(ProptestConfig::with_cases(64), |(lines in proptest::collection::vec(line, 0..80))| {
        let mut units = BTreeMap::<String, u64>::new();
        let mut text = String::new();
        for (invoice, code, quantity, cancelled, customer, price) in lines {
            let number = format!("{}{invoice}", if cancelled { "C" } else { "" });
            let signed = if cancelled { -quantity } else { quantity };
            let customer = if invoice % 3 == customer { String::new() } else { format!("{customer}.0") };
            text += &format!("{number},{code},THING,{signed},2011-01-05 10:00:00,{price}.5,{customer},EIRE\n");
            *units.entry(number).or_default() += quantity.unsigned_abs();
        }
        runtime.block_on(async {
            let (stores, summary) = loaded(&text).await;
            assert_eq!(summary.bad_lines.total, 0);
            let mut orders = Vec::new();
            for (number, units) in units {
                let order = order(&stores, &number).await;
                assert_eq!(order.lines.iter().map(|line| line.quantity).sum::<u64>(), units);
                orders.push(order);
            }
            check_books(&stores, &orders).await;
        });
    });
}
