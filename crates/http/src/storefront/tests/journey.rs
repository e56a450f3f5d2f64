//! A shopper's way through the pages, with a browser that knows cookies, links and forms and nothing else.

use std::{collections::BTreeMap, io::Write, sync::Arc};

use axum::{
    body::Body,
    http::{Request, Response, StatusCode, header},
};
use http_body_util::BodyExt;
use mobimir_core::{
    id::ProductId,
    money::Money,
    ports::StoreError,
    time::{ManualClock, Timestamp},
    zone::Zone,
};
use mobimir_shop::{NewProduct, Shop, ShopSettings};
use mobimir_testkit::model::ModelStore;

use crate::{
    App, AppState, Backend, Limits,
    storefront::{
        fault::{Fault, or_fault},
        links,
        visit::Visit,
    },
};

const HOST: &str = "shop.example";

struct Sound;

impl Backend for Sound {
    fn trouble(&self) -> Option<String> {
        None
    }

    fn dump(&self, _: &mut dyn Write) -> std::io::Result<()> {
        Ok(())
    }
}

struct Browser<'a> {
    app: &'a App,
    cookies: BTreeMap<String, String>,
}

struct Page {
    status: StatusCode,
    headers: header::HeaderMap,
    html: String,
}

impl<'a> Browser<'a> {
    fn new(app: &'a App) -> Self {
        Self { app, cookies: BTreeMap::new() }
    }

    async fn get(&mut self, path: &str) -> Page {
        let request = Request::get(path).header(header::HOST, HOST);
        self.send(request.header(header::COOKIE, self.jar()).body(Body::empty()).unwrap()).await
    }

    async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        self.post_from(&format!("https://{HOST}"), path, fields).await
    }

    async fn post_from(&mut self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Page {
        let form: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", links::encode(value))).collect();
        let request = Request::post(path)
            .header(header::HOST, HOST)
            .header(header::ORIGIN, origin)
            .header(header::COOKIE, self.jar())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(form.join("&"))).unwrap()).await
    }

    fn jar(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    async fn send(&mut self, request: Request<Body>) -> Page {
        let response: Response<_> = self.app.answer(request, None).await;
        let (head, body) = response.into_parts();
        for cookie in head.headers.get_all(header::SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if cookie.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let html = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Page { status: head.status, headers: head.headers, html }
    }
}

impl Page {
    fn leads_to(&self) -> &str {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.html);
        self.headers[header::LOCATION].to_str().unwrap()
    }

    /// The value of a hidden field.
    fn field(&self, name: &str) -> &str {
        let mark = format!(r#"name="{name}" value=""#);
        let (_, rest) =
            self.html.split_once(&mark).unwrap_or_else(|| panic!("no field {name} in {}", self.html));
        rest.split('"').next().unwrap()
    }

    fn says(&self, words: &str) -> bool {
        self.html.replace('\u{a0}', " ").contains(words)
    }
}

async fn shop(in_moscow: u64) -> (App, Shop, ProductId) {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2025-11-28T09:00:00Z").unwrap()));
    let settings = ShopSettings { password_memory_kib: 64, ..ShopSettings::default() };
    let shop = Shop::new(ModelStore::stores(), clock, settings);
    let product = NewProduct {
        name: "Смартфон <Север> 5".to_owned(),
        category: "Смартфоны".to_owned(),
        price: Money::parse_price("12990").unwrap(),
        attributes: BTreeMap::new(),
        stock: BTreeMap::from([(Zone::parse("MSK").unwrap(), in_moscow)]),
    };
    let product = shop.add_product(product).await.unwrap().id;
    (crate::app(state(&shop)), shop, product)
}

fn state(shop: &Shop) -> AppState {
    AppState::new(shop.clone(), &[], Limits::default(), Box::new(Sound), serde_json::Value::Null)
}

#[tokio::test]
async fn looking_around_leaves_no_trace_and_filling_the_cart_starts_a_guest() {
    let (app, _, product) = shop(5).await;
    let mut browser = Browser::new(&app);
    for path in ["/", "/catalog", &format!("/product/{product}"), "/cart", "/login", "/signup"] {
        let page = browser.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(!page.html.contains("<Север>"), "{path}");
    }
    assert!(browser.cookies.is_empty(), "{:?}", browser.cookies);

    let id = product.to_string();
    let short = browser.post("/cart/add", &[("product_id", &id), ("quantity", "6")]).await;
    assert_eq!(short.leads_to(), "/cart");
    assert!(!browser.cookies.contains_key("mobimir_session"), "nothing was put in");
    assert!(browser.get("/cart").await.says("осталось 5 шт."));

    let added = browser.post("/cart/add", &[("product_id", &id), ("next", "/catalog?sort=name#p-1")]).await;
    assert_eq!(added.leads_to(), "/catalog?sort=name#p-1");
    let page = browser.get("/catalog?sort=name").await;
    assert!(page.says("Товар в корзине"));
    assert_eq!(page.headers[header::CACHE_CONTROL], "no-store");
    assert!(!browser.get("/catalog").await.says("Товар в корзине"), "it is said once");

    browser.post(&format!("/cart/items/{id}"), &[("quantity", "1"), ("step", "more")]).await;
    assert!(browser.get("/cart").await.says("25 980 ₽"));
    browser.post(&format!("/cart/items/{id}/remove"), &[]).await;
    assert!(browser.get("/cart").await.says("Пока пусто"));
}

#[tokio::test]
async fn a_guest_signs_up_and_orders_once_however_often_the_button_is_pressed() {
    let (app, shop, product) = shop(5).await;
    let mut anna = Browser::new(&app);
    anna.post("/cart/add", &[("product_id", &product.to_string()), ("quantity", "2"), ("zone", "MSK")]).await;
    let guest = anna.cookies["mobimir_session"].clone();
    assert_eq!(anna.get("/checkout").await.leads_to(), "/login?next=%2Fcheckout");

    let account = [("email", "anna@example.ru"), ("password", "correct horse"), ("next", "/checkout")];
    assert_eq!(anna.post("/signup", &account).await.leads_to(), "/checkout");
    assert_ne!(anna.cookies["mobimir_session"], guest);

    let form = anna.get("/checkout").await;
    assert!(form.says("корзина сохранилась") && form.says("Заказать на 25 980 ₽"));
    let (key, seen) = (form.field("key").to_owned(), form.field("seen").to_owned());
    let order = |address| {
        [
            ("zone", "MSK"),
            ("address", address),
            ("payment_method", "card"),
            ("key", key.as_str()),
            ("seen", seen.as_str()),
        ]
    };
    assert_eq!(anna.post("/checkout", &order("  ")).await.status, StatusCode::UNPROCESSABLE_ENTITY);

    let placed = anna.post("/checkout", &order("Арбат, 1")).await.leads_to().to_owned();
    assert_eq!(anna.post("/checkout", &order("Арбат, 1")).await.leads_to(), placed);
    assert_eq!(anna.post("/checkout", &order("Арбат, 2")).await.leads_to(), placed);
    assert_eq!(anna.get("/orders").await.html.matches(r#"class="order-link""#).count(), 1);
    let page = anna.get(&placed).await;
    assert!(page.says("Подтверждён") && page.says("Арбат, 1") && page.says("25 980 ₽"), "{}", page.html);
    assert_eq!(shop.product(product).await.unwrap().unwrap().best_available(None), 3);

    let mut boris = Browser::new(&app);
    assert_eq!(boris.get(&placed).await.status, StatusCode::SEE_OTHER);
    boris.post("/signup", &[("email", "boris@example.ru"), ("password", "correct horse")]).await;
    assert_eq!(boris.get(&placed).await.status, StatusCode::NOT_FOUND);

    assert_eq!(anna.post("/logout", &[]).await.leads_to(), "/");
    assert!(!anna.cookies.contains_key("mobimir_session"));
    let wrong = anna.post("/login", &[("email", "anna@example.ru"), ("password", "\"><b>")]).await;
    assert!(wrong.status == StatusCode::UNPROCESSABLE_ENTITY && wrong.says("не подходят"));
    let away = [("email", "anna@example.ru"), ("password", "correct horse"), ("next", "//evil.example")];
    assert_eq!(anna.post("/login", &away).await.leads_to(), "/account");
}

#[tokio::test]
async fn what_is_short_or_was_not_seen_is_not_ordered() {
    let (app, shop, product) = shop(2).await;
    let mut anna = Browser::new(&app);
    anna.post("/signup", &[("email", "anna@example.ru"), ("password", "correct horse")]).await;
    anna.post("/cart/add", &[("product_id", &product.to_string()), ("quantity", "2")]).await;
    let form = anna.get("/checkout").await;
    let order = |zone: &str, form: &Page| {
        let (key, seen) = (form.field("key"), form.field("seen"));
        let fields = [
            ("zone", zone),
            ("address", "Арбат, 1"),
            ("payment_method", "card"),
            ("key", key),
            ("seen", seen),
        ];
        fields.map(|(name, value)| (name, value.to_owned()))
    };
    fn borrowed<'a>(fields: &'a [(&'static str, String); 5]) -> [(&'static str, &'a str); 5] {
        fields.each_ref().map(|(name, value)| (*name, value.as_str()))
    }

    let elsewhere = order("SPB", &form);
    let short = anna.post("/checkout", &borrowed(&elsewhere)).await;
    assert_eq!(short.status, StatusCode::CONFLICT);
    assert!(short.says("Нет в наличии, Санкт-Петербург") && short.says("Арбат, 1"));
    assert_ne!(short.field("key"), form.field("key"), "a refused order's key is used up");

    let edit = mobimir_core::product::ProductEdit {
        price: Some(Money::parse_price("13990").unwrap()),
        ..Default::default()
    };
    shop.edit_product(product, edit).await.unwrap();
    let dearer = anna.post("/checkout", &borrowed(&order("MSK", &short))).await;
    assert_eq!(dearer.status, StatusCode::CONFLICT);
    assert!(dearer.says("цены изменились") && dearer.says("27 980 ₽"));
    let placed = anna.post("/checkout", &borrowed(&order("MSK", &dearer))).await;
    assert!(placed.leads_to().starts_with("/orders/"));
}

#[tokio::test]
async fn other_sites_cannot_act_and_odd_requests_get_a_page() {
    let (app, _, product) = shop(5).await;
    let mut browser = Browser::new(&app);
    let id = product.to_string();
    let foreign = browser.post_from("https://evil.example", "/cart/add", &[("product_id", &id)]).await;
    assert_eq!(foreign.status, StatusCode::FORBIDDEN);
    assert!(browser.cookies.is_empty());

    let nowhere = format!("/product/{}", uuid::Uuid::nil());
    for (path, status) in [
        ("/nowhere", 404),
        ("/product/x", 404),
        ("/product/%FF", 404),
        (nowhere.as_str(), 404),
        ("/logout", 405),
        ("/cart/add", 405),
        ("/catalog?price_min=%D0%B0&price_max=1e9&zone=%00&sort=x&after=%F0", 200),
        ("/catalog?q=%FF&q=2&q=3", 200),
        ("/catalog?price_min=5&price_max=1&category=%3Cb%3E", 200),
        ("/assets/x/nothing.css", 404),
        ("/assets/x/pictures/phone-99.svg", 404),
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status.as_u16(), status, "{path}");
        assert!(path.starts_with("/assets/") || page.html.contains("<html lang=\"ru\">"), "{path}");
    }
    for (path, fields) in [
        ("/cart/add", vec![("product_id", "x")]),
        ("/cart/add", vec![("product_id", id.as_str()), ("zone", "нет")]),
        ("/cart/add", vec![("product_id", id.as_str()), ("quantity", "-1")]),
        ("/cart/add", vec![("product_id", id.as_str()), ("product_id", id.as_str())]),
        ("/cart/clear", vec![]),
        ("/checkout", vec![("key", "")]),
        ("/account", vec![("name", "x")]),
        ("/signup", vec![("email", "\0"), ("password", "")]),
        ("/login", vec![]),
    ] {
        let page = browser.post(path, &fields).await;
        assert!(
            !page.status.is_server_error() && !page.status.is_success(),
            "{path} {fields:?}: {}",
            page.status
        );
    }

    let page = browser.get("/").await;
    let policy = page.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    assert!(!page.html.contains("<script") && !page.html.contains("style=\""));
    let style = page.html.split('"').find(|part| part.ends_with("/style.css")).unwrap();
    let style = browser.get(style).await;
    assert!(style.headers[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
}

#[tokio::test]
async fn a_store_that_is_away_gets_a_page_that_says_when_to_come_back() {
    let (_, shop, _) = shop(5).await;
    let away = StoreError::Unavailable { what: "disk 7 at 10.0.0.3".to_owned(), source: None };
    let answer = or_fault(&state(&shop), &Visit::default(), Err(Fault::Store(away))).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()[header::RETRY_AFTER], "5");
    assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
    let html = String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(html.contains("Магазин ненадолго недоступен") && html.contains("style.css"), "{html}");
    assert!(!html.contains("disk 7"), "what failed is for the log: {html}");
}

#[tokio::test]
async fn the_shop_delivers_where_it_is_configured_to() {
    let zones = ["SPB", "KZN"].map(|code| Zone::parse(code).unwrap()).to_vec();
    let settings = ShopSettings { zones, ..ShopSettings::default() };
    let clock = Arc::new(ManualClock::at(Timestamp::default()));
    let app = crate::app(state(&Shop::new(ModelStore::stores(), clock, settings)));
    let page = Browser::new(&app).get("/nowhere").await;
    assert!(page.says("Доставляем: Санкт-Петербург, KZN."), "{}", page.html);
}
