//! Who may see the console, and what stands on it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{io::Write, sync::Arc};

use axum::{
    body::Body,
    http::{HeaderValue, Request, StatusCode, header},
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use http_body_util::BodyExt;
use mobimir_core::{
    invariant::Invariant,
    time::{ManualClock, Timestamp},
};
use mobimir_http::{App, AppState, Backend, Limits};
use mobimir_shop::{Shop, ShopSettings};
use mobimir_testkit::model::ModelStore;

const TOKEN: &str = "an operator's <token>";

struct Stores {
    trouble: Option<&'static str>,
}

impl Backend for Stores {
    fn trouble(&self) -> Option<String> {
        self.trouble.map(str::to_owned)
    }

    fn dump(&self, _: &mut dyn Write) -> std::io::Result<()> {
        Ok(())
    }
}

fn shop() -> Shop {
    let clock = ManualClock::at(Timestamp::parse("2025-11-28T09:00:00Z").unwrap());
    Shop::new(ModelStore::stores(), Arc::new(clock), ShopSettings::default())
}

fn console(shop: Shop, tokens: &[&str], trouble: Option<&'static str>) -> App {
    let policy = serde_json::json!({ "name": "<default>", "carts": { "ttl": { "guest": "7d" } } });
    mobimir_http::app(AppState::new(shop, tokens, Limits::default(), Box::new(Stores { trouble }), policy))
}

async fn ask(app: &App, password: Option<&str>) -> (Response<()>, String) {
    let mut request = Request::get("/console");
    if let Some(password) = password {
        request = request.header(
            header::AUTHORIZATION,
            format!("Basic {}", STANDARD.encode(format!("anyone:{password}"))),
        );
    }
    let (head, body) = app.answer(request.body(Body::empty()).unwrap(), None).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(head, ()), String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn only_the_operator_sees_the_console() {
    let app = console(shop(), &[TOKEN], None);
    for wrong in [None, Some(""), Some("wrong"), Some("an operator's <token> ")] {
        let (response, page) = ask(&app, wrong).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{wrong:?}");
        let challenge = response.headers()[header::WWW_AUTHENTICATE].to_str().unwrap();
        assert!(challenge.starts_with("Basic realm=\"mobimir\""), "{challenge}");
        assert!(!page.contains("STK-1"), "{wrong:?}");
    }
    let (response, page) = ask(&app, Some(TOKEN)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(page.contains("STK-1") && page.contains("Магазин работает"));
}

#[tokio::test]
async fn without_a_token_nobody_is_the_operator() {
    let (response, page) = ask(&console(shop(), &[], None), Some("")).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(page.contains("MOBIMIR_OPERATOR_TOKEN"));
}

#[tokio::test]
async fn nothing_of_it_is_kept_or_run() {
    let app = console(shop(), &[TOKEN], None);
    for password in [None, Some(TOKEN)] {
        let (response, page) = ask(&app, password).await;
        assert_eq!(response.headers()[header::CACHE_CONTROL], HeaderValue::from_static("no-store"));
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(!page.contains("<script") && !page.contains("style=") && !page.contains("<style"), "{page}");
    }
}

#[tokio::test]
async fn trouble_and_broken_promises_stand_out() {
    let shop = shop();
    shop.invariants().check(Invariant::Stk2, false);
    let (_, page) = ask(&console(shop, &[TOKEN], Some("no answer from <db>")), Some(TOKEN)).await;
    assert!(page.contains("<title>(!)"));
    assert!(page.contains("Магазин не готов") && page.contains("no answer from &#60;db&#62;"), "{page}");
    assert!(page.contains("Нарушены инварианты: 1") && page.contains("нарушен: 1"), "{page}");
}

#[tokio::test]
async fn the_policy_and_the_routes_are_shown_without_becoming_markup() {
    let app = console(shop(), &[TOKEN], None);
    ask(&app, Some(TOKEN)).await;
    let (_, page) = ask(&app, Some(TOKEN)).await;
    assert!(page.contains("&#60;default&#62;") && !page.contains("<default>"), "{page}");
    assert!(page.contains("ttl.guest") && page.contains("7d"));
    assert!(page.contains("<code>/console</code>"), "{page}");
}
