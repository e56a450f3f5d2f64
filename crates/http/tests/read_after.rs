//! `Read-After`: what every write answers, and how a request is served that brings it back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    body::Body,
    http::{Request, StatusCode, header},
    response::Response,
};
use http_body_util::BodyExt;
use mobimir_core::{
    id::UserId,
    policy::{Policy, ReadOperation},
    ports::{StoreResult, Stores, UserStore},
    reading::{self, Position, Reading, Served},
    time::{ManualClock, Timestamp, Version},
    user::{Email, User},
};
use mobimir_http::{App, AppState, Backend, Limits};
use mobimir_shop::{Shop, ShopSettings};
use mobimir_testkit::model::ModelStore;
use serde_json::{Value, json};

const KEY: &str = "a key of all instances";
const OPERATOR: &str = "the operator's token";

/// Stores that are as far as somebody says.
#[derive(Clone, Default)]
struct FarStores(Arc<AtomicU64>);

impl Backend for FarStores {
    fn trouble(&self) -> Option<String> {
        None
    }

    fn dump(&self, _: &mut dyn Write) -> std::io::Result<()> {
        Ok(())
    }

    fn written(&self) -> Position {
        Position(self.0.load(Ordering::Relaxed))
    }

    fn served(&self) -> Vec<Served> {
        vec![Served {
            operation: ReadOperation::ProductPage,
            reads: 10,
            from_secondaries: 9,
            again: 1,
            p50: Duration::from_millis(200),
            p99: Duration::from_millis(1_500),
        }]
    }
}

/// Users, and under what each read of one ran.
struct WatchedUsers {
    users: Arc<dyn UserStore>,
    reads: Mutex<Vec<Reading>>,
}

#[async_trait]
impl UserStore for WatchedUsers {
    async fn insert(&self, user: User) -> StoreResult<bool> {
        self.users.insert(user).await
    }

    async fn get(&self, id: UserId) -> StoreResult<Option<User>> {
        self.reads.lock().unwrap().push(reading::current());
        self.users.get(id).await
    }

    async fn by_email(&self, email: &Email) -> StoreResult<Option<User>> {
        self.users.by_email(email).await
    }

    async fn update(&self, user: User, expected: Version) -> StoreResult<bool> {
        self.users.update(user, expected).await
    }
}

struct Bench {
    stores: Stores,
    users: Arc<WatchedUsers>,
    far: FarStores,
}

impl Bench {
    fn new() -> Self {
        let mut stores = ModelStore::stores();
        let users = Arc::new(WatchedUsers { users: stores.users.clone(), reads: Mutex::default() });
        stores.users = users.clone();
        Self { stores, users, far: FarStores::default() }
    }

    /// An instance of the shop on these stores.
    fn instance(&self, key: Option<&str>) -> App {
        let clock = ManualClock::at(Timestamp::parse("2025-11-28T09:00:00Z").unwrap());
        let settings = ShopSettings { password_memory_kib: 8, ..ShopSettings::default() };
        let shop = Shop::new(self.stores.clone(), Arc::new(clock), settings);
        let policy = serde_json::to_value(Policy::built_in("default").unwrap().unwrap()).unwrap();
        let state = AppState::new(shop, &[OPERATOR], Limits::default(), Box::new(self.far.clone()), policy);
        mobimir_http::app(match key {
            Some(key) => state.with_read_after_key(key),
            None => state,
        })
    }

    fn last_read(&self) -> Reading {
        *self.users.reads.lock().unwrap().last().unwrap()
    }
}

async fn ask(app: &App, request: Request<Body>) -> (Response<()>, String) {
    let (head, body) = app.answer(request, None).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(head, ()), String::from_utf8(body.to_vec()).unwrap())
}

async fn post(app: &App, path: &str, token: Option<&str>, body: Value) -> (Response<()>, Value) {
    let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let (response, text) = ask(app, request.body(Body::from(body.to_string())).unwrap()).await;
    (response, serde_json::from_str(&text).unwrap_or_default())
}

/// Looks at the own profile, with what was seen before.
async fn profile(app: &App, token: &str, read_after: Option<&str>) -> Response<()> {
    let mut request = Request::get("/v1/users/me").header(header::AUTHORIZATION, format!("Bearer {token}"));
    if let Some(read_after) = read_after {
        request = request.header("Read-After", read_after);
    }
    ask(app, request.body(Body::empty()).unwrap()).await.0
}

fn read_after(response: &Response<()>) -> String {
    response.headers()["read-after"].to_str().unwrap().to_owned()
}

/// Signs up and logs in; the session's token.
async fn customer(app: &App) -> String {
    let anna = json!({ "email": "anna@example.ru", "password": "correct horse" });
    assert_eq!(post(app, "/v1/users", None, anna.clone()).await.0.status(), StatusCode::CREATED);
    let (_, session) = post(app, "/v1/sessions/login", None, anna).await;
    session["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_write_says_how_far_the_stores_are_and_no_read_does() {
    let bench = Bench::new();
    let app = bench.instance(Some(KEY));
    let (first, _) = post(&app, "/v1/sessions", None, json!({})).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    bench.far.0.store(5, Ordering::Relaxed);
    let (second, _) = post(&app, "/v1/sessions", None, json!({})).await;
    assert_ne!(read_after(&first), read_after(&second));
    assert!(!second.headers().contains_key(header::SET_COOKIE), "clients of the API carry the header");
    // A refusal may have written something too.
    let (refused, _) =
        post(&app, "/v1/sessions/login", None, json!({ "email": "a@b.c", "password": "12345678" })).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(read_after(&refused), read_after(&second));
    for path in ["/v1/products", "/", "/healthz"] {
        let (answer, _) = ask(&app, Request::get(path).body(Body::empty()).unwrap()).await;
        assert!(!answer.headers().contains_key("read-after"), "{path}");
    }
}

#[tokio::test]
async fn who_brings_it_back_is_served_nothing_older_by_any_instance() {
    let bench = Bench::new();
    let (one, other) = (bench.instance(Some(KEY)), bench.instance(Some(KEY)));
    bench.far.0.store(41, Ordering::Relaxed);
    let token = customer(&one).await;
    assert_eq!(profile(&other, &token, None).await.status(), StatusCode::OK);
    let unsaid = Reading { operation: Some(ReadOperation::UserProfile), ..Reading::default() };
    assert_eq!(bench.last_read(), unsaid);

    bench.far.0.store(42, Ordering::Relaxed);
    let (written, _) = post(&one, "/v1/sessions", None, json!({})).await;
    bench.far.0.store(50, Ordering::Relaxed);
    assert_eq!(profile(&other, &token, Some(&read_after(&written))).await.status(), StatusCode::OK);
    assert_eq!(bench.last_read(), Reading { after: Position(42), ..unsaid });
}

#[tokio::test]
async fn what_cannot_be_checked_is_no_error_and_is_served_what_is_current() {
    let bench = Bench::new();
    let app = bench.instance(Some(KEY));
    let token = customer(&app).await;
    bench.far.0.store(7, Ordering::Relaxed);
    let (foreign, _) = post(&bench.instance(None), "/v1/sessions", None, json!({})).await;
    let (own, _) = post(&app, "/v1/sessions", None, json!({})).await;
    let shortened = read_after(&own)[..30].to_owned();
    for bad in [read_after(&foreign).as_str(), &shortened, "", "AAAA", "\"'<>;", &"A".repeat(5_000)] {
        assert_eq!(profile(&app, &token, Some(bad)).await.status(), StatusCode::OK, "{bad}");
        let read = bench.last_read();
        assert!(read.newest, "{bad}: {read:?}");
    }
}

#[tokio::test]
async fn the_storefront_keeps_it_in_a_cookie() {
    let bench = Bench::new();
    let app = bench.instance(Some(KEY));
    customer(&app).await;
    bench.far.0.store(99, Ordering::Relaxed);
    let form = Request::post("/login")
        .header(header::HOST, "shop.ru")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from("email=anna%40example.ru&password=correct+horse"));
    let (answer, _) = ask(&app, form.unwrap()).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    let jar: Vec<String> =
        answer.headers().get_all(header::SET_COOKIE).iter().map(|c| c.to_str().unwrap().to_owned()).collect();
    let kept = jar.iter().find(|cookie| cookie.starts_with("mobimir_read_after=")).unwrap();
    assert!(kept.contains("HttpOnly") && kept.contains("SameSite=Lax"), "{kept}");
    let pairs: Vec<&str> = jar.iter().filter_map(|cookie| cookie.split(';').next()).collect();
    let page = Request::get("/account").header(header::COOKIE, pairs.join("; ")).body(Body::empty()).unwrap();
    assert_eq!(ask(&app, page).await.0.status(), StatusCode::OK);
    assert_eq!(bench.last_read().after, Position(99));
}

#[tokio::test]
async fn stores_that_have_no_copies_need_no_cookie() {
    let bench = Bench::new();
    let app = bench.instance(None);
    let form = Request::post("/cart/clear").header(header::HOST, "shop.ru").body(Body::empty()).unwrap();
    let (answer, _) = ask(&app, form).await;
    let cookies = answer.headers().get_all(header::SET_COOKIE);
    assert!(cookies.iter().all(|cookie| !cookie.to_str().unwrap().contains("read_after")));
    assert!(answer.headers().contains_key("read-after"));
}

#[tokio::test]
async fn the_policy_is_shown_beside_what_was_measured() {
    let app = Bench::new().instance(None);
    let request = Request::get("/v1/ops/policy").header(header::AUTHORIZATION, format!("Bearer {OPERATOR}"));
    let (_, text) = ask(&app, request.body(Body::empty()).unwrap()).await;
    let policy: Value = serde_json::from_str(&text).unwrap();
    let page = &policy["reads"]["product_page"];
    assert_eq!((&page["from"], &page["budget"]), (&json!("secondary"), &json!("2s")));
    let served = json!({
        "reads": 10, "from_secondaries": 9, "secondary_share": 0.9, "again": 1, "p50_ms": 200, "p99_ms": 1_500,
    });
    assert_eq!(page["served"], served);
    assert!(policy["reads"]["order_card"].get("served").is_none());
}
