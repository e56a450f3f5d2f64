//! The lies: what each does to what the shop answers, and the name that it has to be found by.

use std::{io, sync::Arc};

use serde_json::{Value, json};

use crate::support::liar::{Answer, Asked, Behaviour, Exchange, Memory};

/// Changes an answer of the shop; says whether it did.
pub(super) type Alter = fn(&Asked, &Memory, &mut Value) -> bool;
/// Answers in the shop's place; `None` when the shop may answer.
pub(super) type Act = fn(&mut Exchange<'_>) -> io::Result<Option<Answer>>;

pub(super) enum Lie {
    Alter(Alter),
    Act(Act),
}

/// What is told, and by which name it has to be found: that of a rule, or that of a check afterwards.
pub(super) const LIES: [(&str, &str, Lie); 42] = [
    (
        "a line of a cart is dropped",
        "cart_contents",
        Lie::Alter(|asked, _, cart| asked.changes_cart() && items(cart).pop().is_some()),
    ),
    (
        "a quantity in a cart is off by one",
        "cart_contents",
        Lie::Alter(|asked, _, cart| {
            asked.changes_cart()
                && change(items(cart).last_mut(), "quantity", |units| json!(number(units) + 1))
        }),
    ),
    (
        "a cart has a product of somebody else",
        "cart_contents",
        Lie::Alter(|asked, memory, cart| {
            if !asked.changes_cart() {
                return false;
            }
            let foreign = memory.carts.iter().filter(|(token, _)| **token != asked.token());
            let mut lines = foreign.filter_map(|(_, cart)| cart["items"].get(0));
            let items = items(cart);
            let line = lines.find(|line| items.iter().all(|item| item["product_id"] != line["product_id"]));
            items.extend(line.cloned());
            line.is_some()
        }),
    ),
    (
        "the cart before a change is answered to it",
        "cart_contents",
        Lie::Act(|exchange| {
            let before = exchange.memory().carts.get(&exchange.asked.token()).cloned();
            let Some(before) = before.filter(|_| exchange.asked.changes_cart()) else { return Ok(None) };
            let answer = exchange.forward()?;
            // One that was refused or changed nothing is answered as it is.
            let changed = answer.status == 200 && answer.json()["items"] != before["items"];
            if changed {
                exchange.lied();
            }
            Ok(Some(if changed { answer.with_json(&before) } else { answer }))
        }),
    ),
    (
        "an addition is forwarded twice",
        "cart_contents",
        Lie::Act(|exchange| {
            if !exchange.asked.is("POST", "/v1/cart/items") {
                return Ok(None);
            }
            exchange.forward()?;
            exchange.lied();
            exchange.forward().map(Some)
        }),
    ),
    (
        "an addition is dropped and answered with an earlier cart",
        "cart_contents",
        Lie::Act(|exchange| {
            let before = exchange.memory().carts.get(&exchange.asked.token()).cloned();
            let before = before.filter(|_| exchange.asked.is("POST", "/v1/cart/items"));
            Ok(before.map(|cart| {
                exchange.lied();
                Answer::new(200, &cart)
            }))
        }),
    ),
    (
        "somebody else's cart is shown",
        "cart_contents",
        Lie::Alter(|asked, memory, cart| {
            let foreign = memory
                .carts
                .iter()
                .find(|(token, foreign)| **token != asked.token() && foreign["items"] != cart["items"]);
            asked.is("GET", "/v1/cart") && memory.runs && replace(cart, foreign.map(|(_, cart)| cart))
        }),
    ),
    (
        "a price in a cart is changed",
        "cart_prices",
        Lie::Alter(|asked, _, cart| {
            asked.changes_cart() && change(items(cart).last_mut(), "price", |_| json!("0.01"))
        }),
    ),
    (
        "the amount of a cart is changed",
        "cart_prices",
        Lie::Alter(|asked, _, cart| {
            asked.changes_cart() && change(Some(cart), "amount", |amount| json!(format!("1{}", text(amount))))
        }),
    ),
    (
        "a cart is said to be empty when it is ordered",
        "cart_not_empty",
        Lie::Act(|exchange| {
            let asked = &exchange.asked;
            let of_cart = asked.is("POST", "/v1/orders") && asked.json().get("items").is_none();
            Ok(of_cart.then(|| {
                exchange.lied();
                Answer::new(409, &json!({ "code": "empty_cart", "status": 409 }))
            }))
        }),
    ),
    (
        "another product's page is shown",
        "product_id",
        Lie::Alter(|asked, memory, page| asked.is_product_page() && replace(page, memory.product.as_ref())),
    ),
    (
        "a price on a page is changed",
        "product_facts",
        Lie::Alter(|asked, _, page| {
            asked.is_product_page() && change(Some(page), "price", |price| json!(format!("1{}", text(price))))
        }),
    ),
    (
        "a name on a page is changed",
        "product_facts",
        Lie::Alter(|asked, _, page| {
            asked.is_product_page() && change(Some(page), "name", |_| json!("Самовар"))
        }),
    ),
    (
        "the stock on a page is changed",
        "product_stock",
        Lie::Alter(|asked, _, page| {
            let twice = |units: &Value| json!(number(units) * 2 + 1);
            asked.is_product_page() && change(page.get_mut("stock_by_zone"), "MSK", twice)
        }),
    ),
    (
        "a page is no product",
        "answer_format",
        Lie::Alter(|asked, _, page| asked.is_product_page() && replace(page, Some(&json!({})))),
    ),
    (
        "a listing has a product outside the range of prices",
        "listing_filter",
        Lie::Alter(|asked, _, page| {
            asked.is_listing() && change(items(page).last_mut(), "price", |_| json!("9999999999.99"))
        }),
    ),
    (
        "a listing has a product of another category",
        "listing_filter",
        Lie::Alter(|asked, _, page| {
            asked.is_listing() && change(items(page).first_mut(), "category", |_| json!("Самовары"))
        }),
    ),
    (
        "a listing is not sorted",
        "listing_sorted",
        Lie::Alter(|asked, _, page| asked.is_listing() && reverse(items(page))),
    ),
    (
        "a listing has a row twice",
        "listing_unique",
        Lie::Alter(|asked, _, page| asked.is_listing() && repeat_first(items(page))),
    ),
    (
        "a listing lacks a row",
        "listing_complete",
        Lie::Alter(|asked, _, page| asked.is_listing() && drop_first(items(page))),
    ),
    (
        "a quantity in an order is changed",
        "order_lines",
        Lie::Alter(|asked, _, order| {
            asked.is("POST", "/v1/orders")
                && change(items(order).last_mut(), "quantity", |units| json!(number(units) + 1))
        }),
    ),
    (
        "a price in an order is changed",
        "order_prices",
        Lie::Alter(|asked, _, order| {
            asked.is("POST", "/v1/orders") && change(items(order).last_mut(), "price", |_| json!("0.01"))
        }),
    ),
    (
        "the total of an order is changed",
        "order_total",
        Lie::Alter(|asked, _, order| {
            asked.is("POST", "/v1/orders")
                && change(Some(order), "total_amount", |total| json!(format!("1{}", text(total))))
        }),
    ),
    (
        "an order is sent to another zone",
        "order_zone",
        Lie::Alter(|asked, _, order| {
            asked.is("POST", "/v1/orders") && change(Some(order), "geo_zone", |_| json!("MOON"))
        }),
    ),
    (
        "an order belongs to somebody else",
        "order_owner",
        Lie::Alter(|asked, memory, order| {
            let owner = memory.foreign_order(&order["user_id"]).map(|order| order["user_id"].clone());
            asked.is("POST", "/v1/orders") && change_to(order, "user_id", owner)
        }),
    ),
    (
        "an order has the id of somebody else's",
        "order_id_unique",
        Lie::Alter(|asked, memory, order| {
            let id = memory.foreign_order(&order["user_id"]).map(|order| order["order_id"].clone());
            asked.is("POST", "/v1/orders") && change_to(order, "order_id", id)
        }),
    ),
    ("an order is acknowledged and never forwarded", "orders", Lie::Act(swallow_order)),
    (
        "an order is forwarded twice, under two keys",
        "unasked_orders",
        Lie::Act(|exchange| {
            let asked = exchange.asked.clone();
            // A cart could only be ordered once.
            if !asked.is("POST", "/v1/orders") || asked.json().get("items").is_none() {
                return Ok(None);
            }
            let key = asked.header("idempotency-key").unwrap_or_default();
            exchange.ask(&asked.with_header("idempotency-key", &format!("{key}-again")))?;
            exchange.lied();
            exchange.forward().map(Some)
        }),
    ),
    (
        "the answer to a repeated order is altered",
        "order_replayed",
        Lie::Act(|exchange| {
            if !exchange.asked.is("POST", "/v1/orders") {
                return Ok(None);
            }
            let answer = exchange.forward()?;
            if answer.header("idempotent-replayed").is_none() {
                return Ok(Some(answer));
            }
            exchange.lied();
            let mut order = answer.json();
            order["created_at"] = json!("2020-01-01T00:00:00.000Z");
            Ok(Some(answer.with_json(&order)))
        }),
    ),
    (
        "an order is refused although there is stock",
        "out_of_stock",
        Lie::Act(|exchange| {
            let line = exchange.asked.json()["items"].get(0).cloned();
            let line = line.filter(|_| exchange.asked.is("POST", "/v1/orders"));
            Ok(line.map(|line| {
            exchange.lied();
            let short = json!({ "product_id": line["product_id"], "requested": line["quantity"], "available": 0 });
            Answer::new(409, &json!({ "code": "out_of_stock", "status": 409, "lines": [short] }))
        }))
        }),
    ),
    (
        "an addition is refused although there is stock",
        "out_of_stock",
        Lie::Act(|exchange| {
            let line = exchange.asked.json();
            Ok(exchange.asked.is("POST", "/v1/cart/items").then(|| {
            exchange.lied();
            let short = json!({ "product_id": line["product_id"], "requested": line["quantity"], "available": 0 });
            Answer::new(409, &json!({ "code": "out_of_stock", "status": 409, "lines": [short] }))
        }))
        }),
    ),
    (
        "the status of an order jumps",
        "order_status",
        Lie::Alter(|asked, _, order| {
            is_order(asked) && change(Some(order), "status", |_| json!("delivered"))
        }),
    ),
    (
        "somebody else's order is shown",
        "order_unchanged",
        Lie::Alter(|asked, memory, order| {
            is_order(asked) && replace(order, memory.foreign_order(&order["user_id"].clone()))
        }),
    ),
    (
        "the last order is missing in the history",
        "history_last_order",
        Lie::Alter(|asked, _, page| asked.is("GET", "/v1/orders?limit=20") && drop_first(items(page))),
    ),
    (
        "a history begins with the oldest order",
        "history_sorted",
        Lie::Alter(|asked, _, page| asked.is("GET", "/v1/orders?limit=20") && reverse(items(page))),
    ),
    (
        "a history has an order twice",
        "history_unique",
        Lie::Alter(|asked, _, page| asked.is("GET", "/v1/orders?limit=20") && repeat_first(items(page))),
    ),
    (
        "a history has somebody else's order",
        "history_owner",
        Lie::Alter(|asked, memory, page| {
            if !asked.is("GET", "/v1/orders?limit=20") {
                return false;
            }
            let own = items(page).first().map(|order| order["user_id"].clone());
            let foreign = own.and_then(|own| memory.foreign_order(&own));
            foreign.into_iter().for_each(|order| items(page).insert(0, order.clone()));
            foreign.is_some()
        }),
    ),
    (
        "somebody is logged in as somebody else",
        "login_user",
        Lie::Alter(|asked, memory, session| {
            let is_login = asked.is("POST", "/v1/sessions/login") && memory.runs;
            is_login && change(Some(session), "user_id", |_| json!(uuid::Uuid::nil().to_string()))
        }),
    ),
    (
        "a status history skips a step",
        "status_history",
        Lie::Alter(|asked, _, rows| {
            let Some(rows) = rows.as_array_mut().filter(|_| asked.path.ends_with("/history")) else {
                return false;
            };
            rows.extend(rows.first().cloned().map(|mut row| {
                row["status"] = json!("shipped");
                row
            }));
            true
        }),
    ),
    (
        "the list of a day has an order twice",
        "day_list_unique",
        Lie::Alter(|asked, _, page| {
            asked.path.starts_with("/v1/reports/orders") && repeat_first(items(page))
        }),
    ),
    (
        "the list of a day lacks an order",
        "days",
        Lie::Alter(|asked, _, page| asked.path.starts_with("/v1/reports/orders") && drop_first(items(page))),
    ),
    (
        "the books of the stock are changed",
        "stock",
        Lie::Alter(|asked, memory, stock| {
            let is_stock = asked.method == "GET" && asked.path.ends_with("/stock?detail=true") && memory.runs;
            is_stock && change(Some(&mut stock["MSK"]), "sold", |units| json!(number(units) + 1))
        }),
    ),
];

pub(super) fn behaviour(lie: Lie) -> Behaviour {
    match lie {
        Lie::Act(act) => Arc::new(move |exchange| match act(exchange)? {
            Some(answer) => Ok(answer),
            None => exchange.forward(),
        }),
        Lie::Alter(alter) => Arc::new(move |exchange| {
            let answer = exchange.forward()?;
            let mut json = answer.json();
            let altered = (200..300).contains(&answer.status)
                && !json.is_null()
                && alter(&exchange.asked, &exchange.memory(), &mut json);
            if altered {
                exchange.lied();
            }
            Ok(if altered { answer.with_json(&json) } else { answer })
        }),
    }
}

/// Acknowledges an order of a user who has placed one before, without telling the shop.
fn swallow_order(exchange: &mut Exchange<'_>) -> io::Result<Option<Answer>> {
    let asked = exchange.asked.clone();
    let lines = asked.json()["items"].as_array().cloned();
    let earlier = exchange.memory().orders.iter().find(|(owner, _)| *owner == asked.token()).cloned();
    let (Some(lines), Some((_, mut order)), true) = (lines, earlier, asked.is("POST", "/v1/orders")) else {
        return Ok(None);
    };
    let (mut items, mut kopecks) = (Vec::new(), 0);
    for line in lines {
        let page = asked.instead(format!("/v1/products/{}", text(&line["product_id"])));
        let product = exchange.ask(&page)?.json();
        let price: u64 = text(&product["price"]).replace('.', "").parse().unwrap();
        kopecks += price * number(&line["quantity"]);
        items.push(json!({
            "product_id": product["product_id"], "name": product["name"], "category": product["category"],
            "price": product["price"], "quantity": line["quantity"],
        }));
    }
    let id = uuid::Uuid::from_u128(exchange.memory().orders.len() as u128);
    order["order_id"] = json!(id.to_string());
    order["geo_zone"] = asked.json()["geo_zone"].clone();
    order["total_amount"] = json!(format!("{}.{:02}", kopecks / 100, kopecks % 100));
    order["items"] = Value::Array(items);
    exchange.lied();
    Ok(Some(Answer::new(201, &order)))
}

fn is_order(asked: &Asked) -> bool {
    let id = asked.path.strip_prefix("/v1/orders/");
    asked.method == "GET" && id.is_some_and(|id| !id.contains('/'))
}

fn items(page: &mut Value) -> &mut Vec<Value> {
    page["items"].as_array_mut().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn change(of: Option<&mut Value>, field: &str, to: fn(&Value) -> Value) -> bool {
    let Some(value) = of.and_then(|of| of.get_mut(field)) else { return false };
    *value = to(value);
    true
}

fn change_to(of: &mut Value, field: &str, to: Option<Value>) -> bool {
    to.is_some_and(|to| {
        of[field] = to;
        true
    })
}

fn replace(value: &mut Value, by: Option<&Value>) -> bool {
    let Some(by) = by.filter(|by| **by != *value) else { return false };
    *value = by.clone();
    true
}

fn reverse(rows: &mut [Value]) -> bool {
    rows.reverse();
    rows.len() > 1
}

fn drop_first(rows: &mut Vec<Value>) -> bool {
    !rows.is_empty() && !rows.remove(0).is_null()
}

fn repeat_first(rows: &mut Vec<Value>) -> bool {
    let first = rows.first().cloned();
    first.into_iter().for_each(|first| rows.insert(0, first));
    !rows.is_empty()
}
