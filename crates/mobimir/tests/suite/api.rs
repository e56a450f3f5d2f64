//! The HTTP contract, call by call.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Answer, Client, Customer, Process, servers,
    shop::{PASSWORD, assert_refused, assert_refused_at, guest, operator, product, stock, unique},
    with_shop,
};

/// One process, for what each of several says about itself.
fn shop() -> (TempDir, Process) {
    let dir = TempDir::new().unwrap();
    let process = Process::serve(&dir.path().join("data"));
    (dir, process)
}

pub(crate) fn quantities(cart: &Value) -> Vec<u64> {
    cart["items"].as_array().unwrap().iter().map(|item| item["quantity"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn products_are_made_changed_and_found() {
    with_shop(async |shop| {
    let host = &shop.host;
    let mut operator = operator(host);
    let body = json!({
        "name": "Беспроводные наушники Sony WH-1000XM5", "category": "Аудио", "price": "29990",
        "attributes": { "цвет": "чёрный", "вес": 250, "складные": true }, "stock_by_zone": { "MSK": 3, "SPB": 0 },
    });
    let made = operator.post("/v1/products", body).await.expect(201);
    let id = made["product_id"].as_str().unwrap().to_owned();
    assert_eq!(made["price"], "29990.00");
    assert_eq!(made["attributes"]["вес"], 250);
    assert_eq!(made["stock_by_zone"], json!({ "MSK": 3, "SPB": 0 }));
    assert_eq!(made["created_at"], made["updated_at"]);
    assert!(made["created_at"].as_str().unwrap().ends_with('Z'));

    let mut anyone = Client::new(host);
    assert_eq!(anyone.get(&format!("/v1/products/{id}")).await.expect(200), made);
    assert_eq!(
        anyone.get(&format!("/v1/products/{id}/stock")).await.expect(200),
        json!({ "MSK": 3, "SPB": 0 })
    );
    anyone.get(&format!("/v1/products/{id}/stock?detail=true")).await.problem(401, "unauthorized");
    guest(host).await.get(&format!("/v1/products/{id}/stock?detail=true")).await.problem(403, "forbidden");
    assert_eq!(stock(host, &id).await, (3, 0, 0));

    let changed =
        operator.patch(&format!("/v1/products/{id}"), json!({ "price": "24990.50" })).await.expect(200);
    assert_eq!((&changed["price"], &changed["name"]), (&json!("24990.50"), &made["name"]));

    let path = format!("/v1/products/{id}/stock/EKB");
    assert_eq!(
        operator.put(&path, json!({ "quantity": 7 })).await.expect(200),
        json!({ "available": 7, "reserved": 0, "sold": 0 })
    );
    assert_eq!(operator.put(&path, json!({ "delta": -7 })).await.expect(200)["available"], 0);
    operator.put(&path, json!({ "delta": -1 })).await.problem(409, "insufficient_stock");
    operator.put(&path, json!({ "delta": -5_000_000_000i64 })).await.problem(409, "insufficient_stock");
    operator.put(&path, json!({ "quantity": 1_000_000_000u64 })).await.expect(200);
    operator.put(&path, json!({ "quantity": 1_000_000_001u64 })).await.expect(422);
    operator.put(&path, json!({ "delta": 1 })).await.expect(422);
    operator.put(&path, json!({ "delta": 1, "quantity": 1 })).await.expect(422);
    operator
        .put(&format!("/v1/products/{id}/stock/NOWHERE"), json!({ "quantity": 1 }))
        .await
        .problem(422, "unknown_zone");
    operator.put(&format!("/v1/products/{id}/stock/msk"), json!({ "quantity": 1 })).await.expect(400);
    let nobody = "01890000-0000-7000-8000-000000000000";
    operator
        .put(&format!("/v1/products/{nobody}/stock/MSK"), json!({ "quantity": 1 }))
        .await
        .problem(404, "not_found");
    operator.patch(&format!("/v1/products/{nobody}"), json!({})).await.problem(404, "not_found");
    anyone.get(&format!("/v1/products/{nobody}")).await.problem(404, "not_found");
    anyone.get(&format!("/v1/products/{nobody}/stock")).await.problem(404, "not_found");

    for (call, token) in [("guest", guest(host).await), ("user", Customer::new(host).await.client)] {
        let mut client = token;
        client.post("/v1/products", json!({})).await.problem(403, "forbidden");
        client.patch(&format!("/v1/products/{id}"), json!({})).await.problem(403, "forbidden");
        assert_eq!(client.get(&format!("/v1/products/{id}")).await.status, 200, "{call}");
    }
    Client::new(host).post("/v1/products", json!({})).await.problem(401, "unauthorized");
    })
    .await;
}

#[tokio::test]
async fn the_catalogue_is_filtered_sorted_searched_and_paged() {
    with_shop(async |shop| {
    let host = &shop.host;
    let mut operator = operator(host);
    let names = [
        "Смартфон Alpha",
        "Смартфон Beta",
        "Чехол для смартфона",
        "Phone stand",
        "ёлочная гирлянда",
        "Кабель",
    ];
    for (n, name) in names.iter().enumerate() {
        let category = if n < 2 { "Смартфоны" } else { "Аксессуары" };
        let zone = if n % 2 == 0 { "MSK" } else { "NSK" };
        let body = json!({ "name": name, "category": category, "price": format!("{}.00", 100 * (n + 1)), "stock_by_zone": { zone: 5 } });
        operator.post("/v1/products", body).await.expect(201);
    }
    let mut anyone = Client::new(host);
    let mut listed = async |query: &str| -> Vec<String> {
        let list = anyone.get(&format!("/v1/products?{query}")).await.expect(200);
        list["items"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("").await, names);
    assert_eq!(listed("category=%D0%A1%D0%BC%D0%B0%D1%80%D1%82%D1%84%D0%BE%D0%BD%D1%8B").await, names[..2]);
    assert_eq!(listed("price_min=200&price_max=400.00").await, names[1..4]);
    assert_eq!(listed("zone=NSK").await, [names[1], names[3], names[5]]);
    assert_eq!(listed("zone=EKB").await, [""; 0]);
    assert_eq!(listed("sort=-price&limit=2").await, [names[5], names[4]]);
    assert_eq!(listed("sort=name").await, [names[3], names[4], names[5], names[0], names[1], names[2]]);
    // смартфонами; phones
    assert_eq!(
        listed("q=%D1%81%D0%BC%D0%B0%D1%80%D1%82%D1%84%D0%BE%D0%BD%D0%B0%D0%BC%D0%B8").await,
        names[..3]
    );
    assert_eq!(listed("q=PHONES").await, [names[3]]);
    // елочный
    assert_eq!(listed("q=%D0%B5%D0%BB%D0%BE%D1%87%D0%BD%D1%8B%D0%B9").await, [names[4]]);
    assert_eq!(listed("q=no+such+thing").await, [""; 0]);
    assert_eq!(listed("q=!!!").await, [""; 0]);
    assert_eq!(listed("price_min=500&price_max=100").await, [""; 0]);

    for sort in ["price", "-price", "name"] {
        let whole = anyone.get(&format!("/v1/products?sort={sort}")).await.expect(200);
        assert_eq!(whole["next"], Value::Null);
        let mut paged = Vec::new();
        let mut after = String::new();
        loop {
            let page = anyone.get(&format!("/v1/products?sort={sort}&limit=1{after}")).await.expect(200);
            paged.extend(page["items"].as_array().unwrap().clone());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(json!(paged), whole["items"], "{sort}");
    }
    let by_name = anyone.get("/v1/products?sort=name&limit=1").await.expect(200);
    let cursor = by_name["next"].as_str().unwrap().to_owned();
    anyone.get(&format!("/v1/products?sort=price&after={cursor}")).await.problem(400, "bad_cursor");
    for bad in [
        "after=x",
        "limit=0",
        "limit=101",
        "limit=many",
        "sort=age",
        "price_min=-1",
        "price_max=1.234",
        "zone=msk",
    ] {
        anyone.get(&format!("/v1/products?{bad}")).await.expect(400);
    }
    assert_eq!(anyone.get("/v1/categories").await.expect(200), json!(["Аксессуары", "Смартфоны"]));
    })
    .await;
}

#[tokio::test]
async fn people_sign_up_log_in_and_out() {
    with_shop(async |shop| {
        let host = &shop.host;
        let mut anyone = Client::new(host);
        let email = format!("Anna-{}@Example.ru", unique());
        let user =
            anyone.post("/v1/users", json!({ "email": email, "password": PASSWORD })).await.expect(201);
        let lower = email.to_lowercase();
        anyone
            .post("/v1/users", json!({ "email": lower, "password": "another password" }))
            .await
            .problem(409, "email_taken");
        for bad in [
            json!({ "email": "x", "password": PASSWORD }),
            json!({ "email": "a@b.ru", "password": "1234567" }),
            json!({ "email": "a@b.ru", "password": "x".repeat(129) }),
            json!({ "email": "a@b.ru" }),
        ] {
            anyone.post("/v1/users", bad).await.expect(422);
        }
        anyone
            .post("/v1/sessions/login", json!({ "email": email, "password": "wrong password" }))
            .await
            .problem(401, "bad_credentials");
        anyone
            .post("/v1/sessions/login", json!({ "email": "nobody@example.ru", "password": PASSWORD }))
            .await
            .problem(401, "bad_credentials");

        let login = anyone
            .post("/v1/sessions/login", json!({ "email": email, "password": PASSWORD }))
            .await
            .expect(200);
        assert_eq!(login["user_id"], user["user_id"]);
        let mut anna = Client::with_token(host, login["token"].as_str().unwrap());
        let profile = anna.get("/v1/users/me").await.expect(200);
        assert_eq!((profile["email"].as_str(), &profile["name"]), (Some(lower.as_str()), &Value::Null));
        let edited =
            anna.patch("/v1/users/me", json!({ "name": "Анна", "geo_zone": "SPB" })).await.expect(200);
        assert_eq!((edited["name"].as_str(), edited["geo_zone"].as_str()), (Some("Анна"), Some("SPB")));
        let edited = anna.patch("/v1/users/me", json!({ "geo_zone": null })).await.expect(200);
        assert_eq!((edited["name"].as_str(), &edited["geo_zone"]), (Some("Анна"), &Value::Null));
        anna.patch("/v1/users/me", json!({ "geo_zone": "MARS" })).await.problem(422, "unknown_zone");
        anna.patch("/v1/users/me", json!({ "name": "x".repeat(201) })).await.expect(422);

        let second = anyone
            .post("/v1/sessions/login", json!({ "email": email, "password": PASSWORD }))
            .await
            .expect(200);
        let sessions = anna.get("/v1/sessions").await.expect(200);
        assert_eq!(sessions["items"].as_array().unwrap().len(), 2);
        assert_eq!(sessions["items"][0]["session_id"], second["session_id"]);
        let one = anna.get("/v1/sessions?limit=1").await.expect(200);
        let next = one["next"].as_str().unwrap();
        assert_eq!(
            anna.get(&format!("/v1/sessions?after={next}")).await.expect(200)["items"][0]["session_id"],
            login["session_id"]
        );

        // A refresh ends the old access token, and works once.
        let pair = anyone
            .post("/v1/sessions/refresh", json!({ "refresh_token": login["refresh_token"] }))
            .await
            .expect(200);
        assert_refused_at(&mut anna, "/v1/users/me").await;
        let mut anna = Client::with_token(host, pair["token"].as_str().unwrap());
        anna.get("/v1/users/me").await.expect(200);
        anyone
            .post("/v1/sessions/refresh", json!({ "refresh_token": "x" }))
            .await
            .problem(401, "bad_refresh_token");
        anyone
            .post("/v1/sessions/refresh", json!({ "refresh_token": login["refresh_token"] }))
            .await
            .problem(401, "refresh_token_used");
        assert_refused_at(&mut anna, "/v1/users/me").await;
        anyone
            .post("/v1/sessions/refresh", json!({ "refresh_token": pair["refresh_token"] }))
            .await
            .expect(401);

        let mut anna = Client::with_token(host, second["token"].as_str().unwrap());
        assert_eq!(anna.get("/v1/sessions").await.expect(200)["items"].as_array().unwrap().len(), 1);
        anna.delete("/v1/sessions/current").await.expect(204);
        assert_refused_at(&mut anna, "/v1/users/me").await;
        let mut visitor = guest(host).await;
        visitor.get("/v1/users/me").await.problem(403, "forbidden");
        visitor.get("/v1/sessions").await.problem(403, "forbidden");
        visitor.delete("/v1/sessions/current").await.expect(204);
        assert_refused(&mut visitor).await;
    })
    .await;
}

#[tokio::test]
async fn failed_logins_are_limited_and_successful_ones_are_not() {
    with_shop(async |shop| {
        let customer = Customer::new(&shop.host).await;
        let mut anyone = Client::new(&shop.host);
        let login = |password: &str| json!({ "email": customer.email, "password": password });
        for _ in 0..30 {
            anyone.post("/v1/sessions/login", login(PASSWORD)).await.expect(200);
        }
        let mut limited = None;
        for _ in 0..30 {
            let answer: Answer = anyone.post("/v1/sessions/login", login("wrong password")).await;
            if answer.status == 429 {
                limited = Some(answer);
                break;
            }
            answer.problem(401, "bad_credentials");
        }
        let limited = limited.unwrap();
        limited.problem(429, "too_many_attempts");
        assert!(limited.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    })
    .await;
}

#[tokio::test]
async fn carts_are_filled_changed_and_merged() {
    with_shop(async |shop| {
        let host = &shop.host;
        let (phone, case) = (product(host, 10).await, product(host, 5).await);
        let mut visitor = guest(host).await;
        let empty = visitor.get("/v1/cart").await.expect(200);
        assert_eq!(
            (&empty["items"], empty["amount"].as_str(), empty["status"].as_str()),
            (&json!([]), Some("0.00"), Some("active"))
        );

        let cart = visitor
            .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 2, "geo_zone": "MSK" }))
            .await
            .expect(200);
        assert_eq!(
            (quantities(&cart), cart["amount"].as_str(), cart["geo_zone"].as_str()),
            (vec![2], Some("200.00"), Some("MSK"))
        );
        assert_eq!(cart["items"][0]["price"], "100.00");
        assert_eq!(
            quantities(
                &visitor
                    .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 3 }))
                    .await
                    .expect(200)
            ),
            [5]
        );
        visitor
            .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 11 }))
            .await
            .problem(409, "out_of_stock");
        visitor
            .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 1, "geo_zone": "NSK" }))
            .await
            .problem(409, "out_of_stock");
        visitor
            .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 1, "geo_zone": "MARS" }))
            .await
            .problem(422, "unknown_zone");
        visitor
            .post(
                "/v1/cart/items",
                json!({ "product_id": "01890000-0000-7000-8000-000000000000", "quantity": 1 }),
            )
            .await
            .problem(422, "unknown_product");
        assert_eq!(
            quantities(
                &visitor.put(&format!("/v1/cart/items/{phone}"), json!({ "quantity": 4 })).await.expect(200)
            ),
            [4]
        );
        visitor
            .put(&format!("/v1/cart/items/{phone}"), json!({ "quantity": 11 }))
            .await
            .problem(409, "out_of_stock");
        visitor
            .put("/v1/cart/items/01890000-0000-7000-8000-000000000000", json!({ "quantity": 1 }))
            .await
            .problem(404, "not_found");
        assert_eq!(
            quantities(
                &visitor
                    .post("/v1/cart/items", json!({ "product_id": case, "quantity": 1 }))
                    .await
                    .expect(200)
            ),
            [4, 1]
        );
        assert_eq!(quantities(&visitor.delete(&format!("/v1/cart/items/{phone}")).await.expect(200)), [1]);
        assert_eq!(quantities(&visitor.delete(&format!("/v1/cart/items/{phone}")).await.expect(200)), [1]);
        visitor.delete("/v1/cart/items/01890000-0000-7000-8000-000000000000").await.problem(404, "not_found");
        assert_eq!(quantities(&visitor.delete("/v1/cart").await.expect(200)), [0; 0]);
        visitor.post("/v1/cart/items", json!({ "product_id": phone, "quantity": 2 })).await.expect(200);

        let keyed = [("idempotency-key", "k")];
        let mut add = async |quantity: u64| {
            let body = json!({ "product_id": case, "quantity": quantity });
            visitor.send(hyper::Method::POST, "/v1/cart/items", &keyed, Some(body)).await.unwrap()
        };
        assert_eq!(quantities(&add(1).await.expect(200)), [2, 1]);
        assert_eq!(quantities(&add(1).await.expect(200)), [2, 1]);
        add(2).await.problem(422, "idempotency_mismatch");
        visitor.delete(&format!("/v1/cart/items/{case}")).await.expect(200);

        // The user has something, too; after the login both are there, and the guest is gone.
        let mut customer = Customer::new(host).await;
        customer
            .client
            .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 1 }))
            .await
            .expect(200);
        let body = json!({ "email": customer.email, "password": PASSWORD });
        visitor.post("/v1/sessions/login", body.clone()).await.expect(200);
        assert_eq!(quantities(&customer.client.get("/v1/cart").await.expect(200)), [3]);
        assert_refused(&mut visitor).await;
        visitor.post("/v1/sessions/login", body).await.expect(200);
        assert_eq!(quantities(&customer.client.get("/v1/cart").await.expect(200)), [3]);

        Client::new(host).get("/v1/cart").await.problem(401, "unauthorized");
        operator(host).get("/v1/cart").await.problem(403, "forbidden");
        let abandoned = operator(host).get("/v1/carts?status=abandoned").await.expect(200);
        assert_eq!(abandoned, json!({ "items": [], "next": null }));
        operator(host).get("/v1/carts").await.expect(400);
        customer.client.get("/v1/carts?status=abandoned").await.problem(403, "forbidden");
    })
    .await;
}

#[tokio::test]
async fn machines_and_operators_can_look_inside() {
    let (_dir, shop) = shop();
    let mut anyone = Client::new(&shop.host);
    assert_eq!(anyone.get("/healthz").await.expect(200)["status"], "ok");
    assert_eq!(anyone.get("/readyz").await.expect(200)["status"], "ready");
    let described = anyone.get("/openapi.json").await.expect(200);
    assert!(described["paths"]["/v1/orders"]["post"].is_object());
    assert_eq!(anyone.get("/docs").await.status, 200);
    let metrics = anyone.get("/metrics").await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(
        text.contains("mobimir_http_requests_total{method=\"GET\",route=\"/healthz\",status=\"200\"} 1"),
        "{text}"
    );
    assert!(text.contains("mobimir_invariant_violations_total{invariant=\"STK-1\"} 0"));
    assert!(text.ends_with("# EOF\n"));
    // Those of the servers, if there are some, are told elsewhere.
    let of_servers =
        |name: &str| ["mobimir_cassandra_", "mobimir_mongodb_"].iter().any(|store| name.starts_with(store));
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = names.filter(|name| !of_servers(name)).collect();
    insta::assert_snapshot!("metrics", names.join("\n"));
    let answer =
        anyone.send(hyper::Method::GET, "/healthz", &[("x-request-id", "abc-123")], None).await.unwrap();
    assert_eq!(answer.header("x-request-id"), Some("abc-123"));

    let mut operator = operator(&shop.host);
    assert_eq!(operator.get("/v1/ops/policy").await.expect(200)["name"], servers::policy_name());
    let invariants = operator.get("/v1/ops/invariants").await.expect(200);
    assert_eq!(invariants["items"].as_array().unwrap().len(), 16);
    assert_eq!(operator.get("/v1/ops/migrations").await.expect(200), json!({ "items": [], "next": null }));
    operator.post("/v1/ops/migrations/orders/advance", json!({})).await.problem(409, "no_migration");
    operator.post("/v1/ops/migrations/dragons/advance", json!({})).await.problem(404, "not_found");
    anyone.get("/v1/ops/policy").await.problem(401, "unauthorized");
    guest(&shop.host).await.get("/v1/ops/invariants").await.problem(403, "forbidden");
}
