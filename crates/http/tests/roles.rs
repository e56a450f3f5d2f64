//! What an instance of each role answers, and what it says that others do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{net::SocketAddr, sync::Arc};

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use http_body_util::BodyExt;
use mobimir_core::time::SystemClock;
use mobimir_http::{App, AppState, Backend, Limits, Role};
use mobimir_shop::{Shop, ShopSettings};
use mobimir_testkit::model::ModelStore;
use serde_json::{Value, json};

struct Silent;

impl Backend for Silent {
    fn trouble(&self) -> Option<String> {
        None
    }

    fn dump(&self, _: &mut dyn std::io::Write) -> std::io::Result<()> {
        Ok(())
    }
}

fn state() -> AppState {
    let settings = ShopSettings { password_memory_kib: 64, ..ShopSettings::default() };
    let shop = Shop::new(ModelStore::stores(), Arc::new(SystemClock), settings);
    AppState::new(shop, &[], Limits::default(), Box::new(Silent), Value::Null)
}

async fn ask(app: &App, method: &str, path: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let (head, body) = app.answer(request, None).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, String::from_utf8_lossy(&body).into_owned())
}

/// A path of every router, and whose it is.
const PATHS: [(&str, Role); 14] = [
    ("/v1/products", Role::Products),
    ("/v1/products/x/stock", Role::Products),
    ("/v1/categories", Role::Products),
    ("/v1/cart", Role::Carts),
    ("/v1/cart/items", Role::Carts),
    ("/v1/carts", Role::Carts),
    ("/v1/sessions/login", Role::Carts),
    ("/v1/users/me", Role::Carts),
    ("/v1/orders", Role::Orders),
    ("/v1/orders/x/history", Role::Orders),
    ("/v1/reports/orders", Role::Orders),
    ("/", Role::All),
    ("/cart", Role::All),
    ("/console", Role::All),
];

#[tokio::test]
async fn a_path_of_another_role_says_whose_it_is() {
    for own in [Role::Products, Role::Carts, Role::Orders, Role::All] {
        let app = mobimir_http::app(state().with_role(own));
        for (path, wanted) in PATHS {
            for method in ["GET", "POST", "DELETE"] {
                let (status, body) = ask(&app, method, path).await;
                if own.does(wanted) {
                    assert_ne!(status, StatusCode::MISDIRECTED_REQUEST, "{} {method} {path}", own.name());
                    assert_ne!(status, StatusCode::NOT_FOUND, "{} {method} {path}", own.name());
                    continue;
                }
                assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{} {method} {path}", own.name());
                let problem: Value = serde_json::from_str(&body).unwrap();
                assert_eq!((&problem["code"], &problem["status"]), (&"misdirected".into(), &421.into()));
                let detail = problem["detail"].as_str().unwrap();
                assert!(detail.contains(&format!("has the role {}", own.name())), "{detail}");
                assert!(detail.ends_with(&format!("answered by the role {}", wanted.name())), "{detail}");
            }
        }
    }
}

#[tokio::test]
async fn every_role_answers_for_itself_and_nobody_what_does_not_exist() {
    for own in [Role::Products, Role::Carts, Role::Orders, Role::All] {
        let app = mobimir_http::app(state().with_role(own));
        for path in ["/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"] {
            assert_eq!(ask(&app, "GET", path).await.0, StatusCode::OK, "{} {path}", own.name());
        }
        assert_eq!(ask(&app, "GET", "/v1/ops/policy").await.0, StatusCode::UNAUTHORIZED);
        assert_eq!(ask(&app, "POST", "/healthz").await.0, StatusCode::METHOD_NOT_ALLOWED);
        for path in ["/v1", "/v1/nothing", "/nothing", "/v1/orders/a/b/c"] {
            assert_eq!(ask(&app, "GET", path).await.0, StatusCode::NOT_FOUND, "{} {path}", own.name());
        }
    }
}

/// Behind a load balancer those who guess passwords are told apart, and nobody else can pretend to be behind one.
#[tokio::test]
async fn logins_are_limited_by_the_address_that_a_trusted_proxy_names() {
    let balancer: SocketAddr = "10.0.0.1:4000".parse().unwrap();
    let guess = |app: &App, number: usize, from: &str| {
        let who = json!({ "email": format!("nobody-{number}@example.ru"), "password": "a wrong guess" });
        let request = Request::post("/v1/sessions/login")
            .header("content-type", "application/json")
            .header("x-forwarded-for", from)
            .body(Body::from(who.to_string()))
            .unwrap();
        let app = app.clone();
        async move { app.answer(request, Some(balancer)).await.status() }
    };
    for (trusted, next_door) in [(true, StatusCode::UNAUTHORIZED), (false, StatusCode::TOO_MANY_REQUESTS)] {
        let state = state().with_role(Role::Carts);
        let app =
            mobimir_http::app(if trusted { state.with_trusted_proxies(&[balancer.ip()]) } else { state });
        for number in 0..300 {
            assert_eq!(guess(&app, number, "203.0.113.7").await, StatusCode::UNAUTHORIZED);
        }
        assert_eq!(guess(&app, 300, "203.0.113.7").await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(guess(&app, 301, "203.0.113.8").await, next_door, "trusted: {trusted}");
    }
}
