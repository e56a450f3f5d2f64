//! Malformed input of every kind: always a 4xx problem, and the shop goes on.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    Client, Customer, Process,
    process::OPERATOR,
    shop::{items, product},
    with_shop,
};

/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);

const ID: &str = "01890000-0000-7000-8000-000000000000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_path_query_or_header_makes_the_shop_fail() {
    with_shop(async |shop| {
        let host = shop.host.clone();
        let phone = product(&host, 5).await;
        let customer = Customer::new(&host).await;
        let user = customer.login["token"].as_str().unwrap().to_owned();

        let calls = [
            (Method::POST, "/v1/sessions".to_owned(), None),
            (Method::POST, "/v1/users".into(), None),
            (Method::PATCH, "/v1/users/me".into(), Some(user.as_str())),
            (Method::POST, "/v1/sessions/login".into(), None),
            (Method::POST, "/v1/sessions/refresh".into(), None),
            (Method::POST, "/v1/products".into(), Some(OPERATOR)),
            (Method::PATCH, format!("/v1/products/{phone}"), Some(OPERATOR)),
            (Method::PUT, format!("/v1/products/{phone}/stock/MSK"), Some(OPERATOR)),
            (Method::POST, "/v1/cart/items".into(), Some(&user)),
            (Method::PUT, format!("/v1/cart/items/{phone}"), Some(&user)),
            (Method::POST, "/v1/orders".into(), Some(&user)),
            (Method::POST, format!("/v1/orders/{ID}/status"), Some(OPERATOR)),
        ];
        let mut seen = 0;
        for (method, path, token) in &calls {
            for body in bodies(&phone) {
                let mut request = Request::builder()
                    .method(method)
                    .uri(path)
                    .header("host", "shop")
                    .header("idempotency-key", "k");
                if let Some(token) = token {
                    request = request.header("authorization", format!("Bearer {token}"));
                }
                let request = request.body(Full::new(body.clone())).unwrap();
                let answer = Client::new(&host).exchange(request).await.unwrap();
                let status = answer.status.as_u16();
                // Calls that need no field take any object, if what they know of it is well-formed.
                let needs_nothing = path == "/v1/sessions" || *method == Method::PATCH;
                let fine = (200..300).contains(&status)
                    && needs_nothing
                    && (body.is_empty() || body.starts_with(b"{"));
                // Nothing in stock is a stock.
                let fine =
                    fine || (path.contains("/stock/") && status == 200 && body.ends_with(b"\"quantity\":0}"));
                let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
                assert!(fine || (400..500).contains(&status), "{method} {path} {shown}: {status}");
                if !fine {
                    assert_eq!(
                        answer.header("content-type"),
                        Some("application/problem+json"),
                        "{method} {path} {shown}"
                    );
                    let problem = answer.json();
                    assert!(problem["code"].is_string() && problem["title"].is_string(), "{problem}");
                }
                seen += 1;
            }
        }
        assert!(seen > 250, "{seen}");

        for path in [
            "/v1/products/x",
            "/v1/products/%00",
            "/v1/products/%ff",
            "/v1/products/../../etc/passwd",
            "/v1/orders/1",
            "/v1/nowhere",
            "/v1",
            "/v1/products?price_min=1701411834604692317316873037158841057.99",
            "/v1/",
            "/v1/products?limit=1e9",
            "/v1/products?limit=%F0%9F%98%80",
            "/v1/products?after=%00",
            "/v1/products?price_min=NaN",
            "/v1/products?price_min=",
            "/v1/products?limit=1&limit=2",
            "/v1/products?sort=",
            "/v1/orders?after=AAAA",
            "/v1/orders?from=0000-00-00T00:00:00Z",
            "/v1/sessions?limit=-1",
        ] {
            let answer = Client::with_token(&host, &user).get(path).await;
            assert!((400..500).contains(&answer.status.as_u16()), "{path}: {answer:?}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}");
        }
        let long = format!("/v1/products?q={}", "a".repeat(5_000));
        Client::new(&host).get(&long).await.expect(400);
        for (method, path) in [
            (Method::DELETE, "/v1/products"),
            (Method::PUT, "/v1/orders"),
            (Method::POST, "/v1/categories"),
            (Method::from_bytes(b"BREW").unwrap(), "/v1/cart"),
        ] {
            let answer = Client::with_token(&host, &user).send(method, path, &[], None).await.unwrap();
            answer.problem(405, "method_not_allowed");
        }
        for header in
            ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer AAAA", &format!("Bearer {}", "A".repeat(4_000))]
        {
            let value = hyper::header::HeaderValue::from_bytes(header.as_bytes()).unwrap();
            let request = Request::get("/v1/cart")
                .header("host", "shop")
                .header("authorization", value)
                .body(Full::default())
                .unwrap();
            Client::new(&host).exchange(request).await.unwrap().problem(401, "unauthorized");
        }
        Client::with_token(&host, OPERATOR)
            .put(&format!("/v1/products/{phone}/stock/%FF"), json!({ "quantity": 1 }))
            .await
            .problem(400, "bad_request");
        // What somebody sent by mistake in place of a secret does not come back.
        let echoed =
            Client::new(&host).post("/v1/users", json!({ "email": "a@b.ru", "password": 12345678 })).await;
        assert!(!String::from_utf8_lossy(&echoed.body).contains("12345678"), "{echoed:?}");
        let raw = Request::post("/v1/orders")
            .header("host", "shop")
            .header("authorization", format!("Bearer {user}"))
            .header("idempotency-key", hyper::header::HeaderValue::from_bytes(&[0xff, 0xfe]).unwrap())
            .body(Full::new(Bytes::from(items(&phone, 1).to_string())))
            .unwrap();
        Client::new(&host).exchange(raw).await.unwrap().problem(400, "bad_idempotency_key");

        // The shop is as well as before.
        Client::with_token(&host, OPERATOR)
            .put(&format!("/v1/products/{phone}/stock/MSK"), json!({ "quantity": 1 }))
            .await
            .expect(200);
        Client::with_token(&host, &user).order("fine", items(&phone, 1)).await.expect(201);
        assert!(!shop.log().contains("panicked"), "{}", shop.log());
    })
    .await;
}

fn bodies(phone: &str) -> Vec<Bytes> {
    let texts: Vec<Value> = vec![
        json!({}),
        json!([]),
        json!(null),
        json!(1),
        json!("x"),
        json!(true),
        json!({ "unexpected": 1 }),
        json!({ "email": 1, "password": [] }),
        json!({ "email": "a@b.ru", "password": "x".repeat(10_000) }),
        json!({ "email": "\u{0}@b.ru", "password": "12345678" }),
        json!({ "refresh_token": "\u{1F600}" }),
        json!({ "name": "", "category": "c", "price": "1.00" }),
        json!({ "name": "x".repeat(301), "category": "c", "price": "1.00" }),
        json!({ "name": "n", "category": "c", "price": 1 }),
        json!({ "name": "n", "category": "c", "price": "1.001" }),
        json!({ "name": "n", "category": "c", "price": "-1" }),
        json!({ "name": "n", "category": "c", "price": "10000000000" }),
        json!({ "name": "n", "category": "c", "price": "1", "stock_by_zone": { "MSK": -1 } }),
        json!({ "name": "n", "category": "c", "price": "1", "stock_by_zone": { "msk": 1 } }),
        json!({ "name": "n", "category": "c", "price": "1", "stock_by_zone": { "MSK": 1_000_000_001u64 } }),
        json!({ "name": "n", "category": "c", "price": "1", "attributes": { "a": { "b": 1 } } }),
        json!({ "name": null, "category": "c", "price": "1", "geo_zone": "msk" }),
        json!({ "product_id": phone, "quantity": 0 }),
        json!({ "product_id": phone, "quantity": -1, "delta": "x" }),
        json!({ "product_id": phone, "quantity": 1.5, "name": 5 }),
        json!({ "product_id": phone, "quantity": "1", "phone": 5 }),
        json!({ "product_id": phone, "quantity": 1_000_000_000_000u64, "name": [] }),
        json!({ "product_id": "x", "quantity": "one", "geo_zone": "" , "name": {} }),
        json!({ "geo_zone": "MSK", "items": "all", "status": 7, "quantity": null, "name": 3 }),
        json!({ "geo_zone": "MSK", "items": [{}], "name": 3 }),
        json!({ "geo_zone": "MSK", "items": [{ "product_id": phone, "quantity": 1_000_001 }], "name": 3 }),
        json!({ "geo_zone": "MSK", "shipping_address": "x".repeat(1_001), "items": [{ "product_id": phone, "quantity": 1 }], "name": 3 }),
        json!({ "geo_zone": "MOSCOW-THE-CAPITAL", "items": [{ "product_id": phone, "quantity": 1 }] }),
        json!({ "status": "" , "geo_zone": 1 }),
    ];
    let mut bodies: Vec<Bytes> = texts.into_iter().map(|text| Bytes::from(text.to_string())).collect();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    bodies.extend([
        Bytes::new(),
        Bytes::from_static(b"{"),
        Bytes::from_static(b"{\"a\":}"),
        Bytes::from_static(b"\xff\xfe\x00"),
        Bytes::from_static(b"{\"email\": \"\xff\", \"password\": \"\xff\"}"),
        Bytes::from_static(b"not json at all"),
        Bytes::from_static(b"{\"quantity\": 1e400, \"name\": 1}"),
        Bytes::from_static(b"email=a%40b.ru&password=12345678"),
        Bytes::from(deep),
    ]);
    bodies
}

#[tokio::test]
async fn too_much_is_refused() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let mut anyone = Client::new(&shop.host);
    let big = json!({ "email": "a@b.ru", "password": "x".repeat(1024 * 1024) });
    anyone.post("/v1/users", big).await.problem(413, "body_too_large");
    let enormous = json!({ "email": "a@b.ru", "password": "x".repeat(8 * 1024 * 1024) });
    Client::new(&shop.host).post("/v1/users", enormous).await.problem(413, "body_too_large");
    let just_fits = json!({ "email": "a@b.ru", "password": "x".repeat(1024 * 1024 - 64) });
    anyone.post("/v1/users", just_fits).await.expect(422);
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("x-{n}"), "y".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let answer = anyone.send(Method::GET, "/healthz", &many, None).await.unwrap();
    assert_eq!(answer.status.as_u16(), 431);
    let mut anyone = Client::new(&shop.host);
    let answer = anyone.send(Method::GET, "/healthz", &[("x-long", &"y".repeat(200_000))], None).await;
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status.as_u16() == 431));
}

/// What is not HTTP is answered, and its connection closed.
#[tokio::test]
async fn what_is_not_http_is_refused_and_breaks_nothing() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    for (what, bytes) in [
        ("noise", &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..]),
        ("no version", b"GET /healthz\r\n\r\n"),
        (
            "two lengths",
            b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        ),
        ("no length", b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n{}"),
        ("bad chunk", b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n"),
    ] {
        let text = answer_to(&shop, what, bytes).await;
        assert!(text.starts_with("HTTP/1.1 400 "), "{what}: {text}");
    }
    Client::new(&shop.host).get("/healthz").await.expect(200);
}

/// What stops in the middle is not waited for longer than the limits say.
#[tokio::test]
async fn what_never_ends_is_cut_off_and_breaks_nothing() {
    let dir = TempDir::new().unwrap();
    let body = b"POST /v1/users HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    let short = [("MOBIMIR_LIMITS_REQUEST_MS_MAX", "500")];
    let shop = Process::start(&["serve"], &dir.path().join("body"), &short);
    let text = answer_to(&shop, "a body that never comes", body).await;
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("\"timeout\""), "{text}");
    drop(shop);

    let short = [("MOBIMIR_LIMITS_HEADER_READ_MS_MAX", "500")];
    let shop = Process::start(&["serve"], &dir.path().join("head"), &short);
    let text = answer_to(&shop, "a head that never ends", b"GET /healthz HTTP/1.1\r\nhost: x\r\n").await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 408 "), "{text}");
    // A client that is slow to ask is cut off, too, and asks again.
    let started = Instant::now();
    loop {
        let answer = Client::new(&shop.host).send(Method::GET, "/healthz", &[], None).await;
        if answer.is_ok_and(|answer| answer.status == 200) {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "the shop does not answer any more");
    }
}

/// All that comes until the shop closes the connection.
async fn answer_to(shop: &Process, what: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(&shop.host).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    closed.unwrap_or_else(|_| panic!("{what}: the shop keeps the connection")).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
