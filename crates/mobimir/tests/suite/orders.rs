//! The HTTP contract of orders, call by call.

use serde_json::{Value, json};

use crate::{
    api::quantities,
    support::{
        Client, Customer,
        instances::{Setting, with_shop_of},
        servers::Tables,
        shop::{guest, items, operator, product, stock},
        with_shop,
    },
};

#[tokio::test]
async fn orders_are_placed_replayed_and_followed() {
    with_shop(async |shop| {
        let host = &shop.host;
        let phone = product(host, 10).await;
        let mut customer = Customer::new(host).await;
        let body = json!({
            "geo_zone": "MSK", "shipping_address": "Тверская, 1", "payment_method": "card",
            "items": [{ "product_id": phone, "quantity": 1 }, { "product_id": phone, "quantity": 2 }],
        });
        let placed = customer.client.order("one", body.clone()).await;
        assert_eq!(placed.header("idempotent-replayed"), None);
        let order = placed.expect(201);
        assert_eq!(order["status"], "confirmed");
        assert_eq!(order["total_amount"], "300.00");
        assert_eq!(order["user_id"], customer.user_id.as_str());
        assert_eq!(order["items"].as_array().unwrap().len(), 1);
        assert_eq!(order["items"][0]["quantity"], 3);
        assert_eq!(
            (order["shipping_address"].as_str(), order["payment_method"].as_str()),
            (Some("Тверская, 1"), Some("card"))
        );
        assert_eq!(stock(host, &phone).await, (7, 0, 3));

        let again = customer.client.order("one", body.clone()).await;
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.expect(201), order);
        customer.client.order("one", items(&phone, 9)).await.problem(422, "idempotency_mismatch");

        let short = customer.client.order("two", items(&phone, 8)).await;
        let problem = short.problem(409, "out_of_stock");
        assert_eq!(problem["lines"], json!([{ "product_id": phone, "requested": 8, "available": 7 }]));
        assert_eq!(stock(host, &phone).await, (7, 0, 3));
        // An answer belongs to its key, also this one, also when there would be enough now.
        operator(host)
            .put(&format!("/v1/products/{phone}/stock/MSK"), json!({ "delta": 10 }))
            .await
            .expect(200);
        let again = customer.client.order("two", items(&phone, 8)).await;
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.problem(409, "out_of_stock")["lines"], problem["lines"]);

        let id = order["order_id"].as_str().unwrap().to_owned();
        let path = format!("/v1/orders/{id}");
        assert_eq!(customer.client.get(&path).await.expect(200), order);
        assert_eq!(operator(host).get(&path).await.expect(200), order);
        let mut stranger = Customer::new(host).await.client;
        stranger.get(&path).await.problem(404, "not_found");
        stranger.get(&format!("{path}/history")).await.problem(404, "not_found");
        guest(host).await.get(&path).await.problem(403, "forbidden");
        Client::new(host).get(&path).await.problem(401, "unauthorized");
        customer
            .client
            .post(&format!("{path}/status"), json!({ "status": "paid" }))
            .await
            .problem(403, "forbidden");

        let mut operator = operator(host);
        let status = format!("{path}/status");
        operator.post(&status, json!({ "status": "shipped" })).await.problem(409, "bad_transition");
        operator.post(&status, json!({ "status": "confirmed" })).await.problem(409, "bad_transition");
        operator.post(&status, json!({ "status": "lost" })).await.expect(422);
        for next in ["paid", "shipped", "delivered"] {
            assert_eq!(operator.post(&status, json!({ "status": next })).await.expect(200)["status"], next);
        }
        operator.post(&status, json!({ "status": "cancelled" })).await.problem(409, "bad_transition");
        let history = customer.client.get(&format!("{path}/history")).await.expect(200);
        let moves: Vec<&str> =
            history.as_array().unwrap().iter().map(|change| change["status"].as_str().unwrap()).collect();
        assert_eq!(moves, ["confirmed", "paid", "shipped", "delivered"]);
        assert_eq!(
            (&history[0]["operator"], history[1]["operator"].as_str()),
            (&Value::Null, Some("operator"))
        );
        // The replay gives the first answer, though the order has moved on.
        assert_eq!(customer.client.order("one", body).await.expect(201), order);
    })
    .await;
}

#[tokio::test]
async fn a_cart_is_ordered_and_an_order_is_cancelled() {
    with_shop(async |shop| {
        let host = &shop.host;
        let (phone, case) = (product(host, 10).await, product(host, 10).await);
        let mut customer = Customer::new(host).await;
        customer.client.order("empty", json!({ "geo_zone": "MSK" })).await.problem(409, "empty_cart");
        for (product, quantity) in [(&phone, 2), (&case, 3)] {
            customer
                .client
                .post("/v1/cart/items", json!({ "product_id": product, "quantity": quantity }))
                .await
                .expect(200);
        }
        let order = customer.client.order("cart", json!({ "geo_zone": "MSK" })).await.expect(201);
        assert_eq!((order["total_amount"].as_str(), quantities(&order)), (Some("500.00"), vec![2, 3]));
        assert_eq!(quantities(&customer.client.get("/v1/cart").await.expect(200)), [0; 0]);
        customer
            .client
            .post("/v1/cart/items", json!({ "product_id": case, "quantity": 1 }))
            .await
            .expect(200);
        assert_eq!(
            customer.client.order("cart", json!({ "geo_zone": "MSK" })).await.expect(201),
            order,
            "a retry never works from the cart again"
        );
        assert_eq!(quantities(&customer.client.get("/v1/cart").await.expect(200)), [1]);

        let status = format!("/v1/orders/{}/status", order["order_id"].as_str().unwrap());
        let cancelled = operator(host).post(&status, json!({ "status": "cancelled" })).await.expect(200);
        assert_eq!(cancelled["status"], "cancelled");
        operator(host).post(&status, json!({ "status": "cancelled" })).await.problem(409, "bad_transition");
        assert_eq!(stock(host, &phone).await, (10, 0, 0));
        assert_eq!(stock(host, &case).await, (10, 0, 0));

        let mut client = customer.client;
        client.order("x", json!({ "geo_zone": "MSK", "items": [] })).await.expect(422);
        client
            .order("x", json!({ "geo_zone": "MARS", "items": [{ "product_id": phone, "quantity": 1 }] }))
            .await
            .problem(422, "unknown_zone");
        client
            .order("x", items("01890000-0000-7000-8000-000000000000", 1))
            .await
            .problem(422, "unknown_product");
        client.order("x", items(&phone, 0)).await.expect(422);
        client.order("x", items(&phone, 1_000_001)).await.expect(422);
        let many: Vec<Value> = (0..201).map(|_| json!({ "product_id": phone, "quantity": 1 })).collect();
        client.order("x", json!({ "geo_zone": "MSK", "items": many })).await.expect(422);
        client.post("/v1/orders", items(&phone, 1)).await.problem(400, "idempotency_key_required");
        client.order(&"k".repeat(256), items(&phone, 1)).await.expect(400);
        client.order(&"k".repeat(255), items(&phone, 1)).await.expect(201);
        guest(host).await.order("x", items(&phone, 1)).await.problem(403, "forbidden");
    })
    .await;
}

#[tokio::test]
async fn orders_are_listed_by_owner_and_by_day() {
    // A day is this test's own.
    with_shop_of(Setting { tables: Tables::Own, embedded: &[] }, async |shop| {
        let host = &shop.host;
        let phone = product(host, 1_000).await;
        let mut customer = Customer::new(host).await;
        let mut placed = Vec::new();
        for n in 0..7 {
            placed.insert(
                0,
                customer.client.order(&format!("k{n}"), items(&phone, 1)).await.expect(201)["order_id"]
                    .clone(),
            );
        }
        let ids = |list: &Value| -> Vec<Value> {
            list["items"].as_array().unwrap().iter().map(|o| o["order_id"].clone()).collect()
        };
        let whole = customer.client.get("/v1/orders").await.expect(200);
        let mut sorted = whole["items"].as_array().unwrap().clone();
        sorted.sort_by_key(|o| {
            (
                std::cmp::Reverse(o["created_at"].as_str().unwrap().to_owned()),
                o["order_id"].as_str().unwrap().to_owned(),
            )
        });
        assert_eq!(json!(sorted), whole["items"], "newest first, equal times by order id");
        let mut paged = Vec::new();
        let mut after = String::new();
        loop {
            let page = customer.client.get(&format!("/v1/orders?limit=2{after}")).await.expect(200);
            paged.extend(ids(&page));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(paged, ids(&whole));
        let newest = whole["items"][0]["created_at"].as_str().unwrap();
        assert!(
            ids(&customer.client.get(&format!("/v1/orders?from={newest}")).await.expect(200))
                .contains(&whole["items"][0]["order_id"])
        );
        assert!(
            !ids(&customer.client.get(&format!("/v1/orders?to={newest}")).await.expect(200))
                .contains(&whole["items"][0]["order_id"])
        );
        assert_eq!(
            ids(&customer.client.get("/v1/orders?from=2090-01-01T00:00:00Z").await.expect(200)),
            [Value::Null; 0]
        );
        for bad in ["from=yesterday", "to=1", "after=x", "limit=1000"] {
            customer.client.get(&format!("/v1/orders?{bad}")).await.expect(400);
        }

        let mut operator = operator(host);
        operator
            .post(&format!("/v1/orders/{}/status", placed[0].as_str().unwrap()), json!({ "status": "paid" }))
            .await
            .expect(200);
        let day = &newest[..10];
        // All of them, unless midnight came in between.
        let of_day = |o: &&Value| o["created_at"].as_str().unwrap().starts_with(day);
        let placed_that_day = whole["items"].as_array().unwrap().iter().filter(of_day).count();
        assert_eq!(
            ids(&operator.get(&format!("/v1/reports/orders?day={day}")).await.expect(200)).len(),
            placed_that_day
        );
        assert_eq!(
            ids(&operator.get(&format!("/v1/reports/orders?day={day}&status=paid")).await.expect(200)),
            [placed[0].clone()]
        );
        assert_eq!(
            ids(&operator
                .get(&format!("/v1/reports/orders?day={day}&geo_zone=MSK&status=confirmed"))
                .await
                .expect(200))
            .len(),
            placed_that_day - 1
        );
        assert_eq!(
            ids(&operator.get(&format!("/v1/reports/orders?day={day}&geo_zone=SPB")).await.expect(200)).len(),
            0
        );
        for bad in [
            "",
            "day=2025-02-30",
            "day=today",
            &format!("day={day}&status=lost"),
            &format!("day={day}&geo_zone=msk"),
        ] {
            operator.get(&format!("/v1/reports/orders?{bad}")).await.expect(400);
        }
        customer.client.get(&format!("/v1/reports/orders?day={day}")).await.problem(403, "forbidden");
    })
    .await;
}
