//! What every operation of the API, and every page of the storefront, costs the server.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    Pace,
    catalogue::{Product, ZONE, encoded},
    figures::Figures,
    load::{Load, Request, Until},
    progress,
    server::{OPERATOR_TOKEN, Server},
};

const CONNECTIONS: usize = 32;
const USERS: usize = 64;
const GUESTS: usize = 1_024;
const LINES_PER_CART: usize = 4;
const ORDERS: usize = 1_024;
const REFRESHES_PER_USER: usize = 16;
const PASSWORD: &str = "correct horse battery";

pub(crate) fn measure(
    server: &Server,
    products: &[Product],
    pace: Pace,
    figures: &mut Figures,
) -> Result<()> {
    progress("every operation");
    let load = Load::connect(server.address, CONNECTIONS)?;
    let mut meter = Meter { server, load, pace, figures };
    meter.health()?;
    meter.catalogue(products)?;
    let guests = meter.guests()?;
    let users = meter.users()?;
    meter.carts(&guests, products)?;
    let orders = meter.orders(&users, products)?;
    meter.storefront(&guests[0], &users[0], &orders[0], products)?;
    meter.ends_of_sessions(&guests)?;
    meter.operators(products)
}

/// Tokens of new guests.
pub(crate) fn guests(load: &mut Load, count: usize) -> Result<Vec<String>> {
    let request = || Request::new("POST", "/v1/sessions", &[], Some("{}")).answered(201);
    let requests: Vec<Request> = (0..count).map(|_| request()).collect();
    let mut tokens = Vec::with_capacity(count);
    load.run_and_see(&requests, Until::Each, |_, body| {
        tokens.push(text(&serde_json::from_slice(body)?, "token")?);
        Ok(())
    })?;
    Ok(tokens)
}

fn text(answer: &Value, name: &str) -> Result<String> {
    answer[name].as_str().map(str::to_owned).with_context(|| format!("the answer has no {name}"))
}

struct Meter<'a> {
    server: &'a Server,
    load: Load,
    pace: Pace,
    figures: &'a mut Figures,
}

impl Meter<'_> {
    /// Sends the requests over and over.
    fn repeat(&mut self, name: &str, requests: &[Request]) -> Result<()> {
        let time = Until::Over(self.pace.operation);
        self.cost(name, requests, time, |_, _| Ok(()))
    }

    /// Sends each request once, and returns the answers.
    fn once(&mut self, name: &str, requests: &[Request]) -> Result<Vec<Value>> {
        let mut answers = vec![Value::Null; requests.len()];
        self.cost(name, requests, Until::Each, |index, body| {
            if !body.is_empty() {
                answers[index] = serde_json::from_slice(body)?;
            }
            Ok(())
        })?;
        Ok(answers)
    }

    fn cost(
        &mut self,
        name: &str,
        requests: &[Request],
        until: Until,
        see: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let before = self.server.cpu()?;
        let done = self.load.run_and_see(requests, until, see).with_context(|| name.to_owned())?;
        let spent = self.server.cpu()?.since(&before);
        let us = spent.as_secs_f64() * 1e6 / done.requests as f64;
        self.figures.info(&format!("cpu_us_{name}"), us, "us/request");
        Ok(())
    }

    fn count(&self, full: usize) -> usize {
        (full / self.pace.divisor).max(CONNECTIONS)
    }

    fn health(&mut self) -> Result<()> {
        for (name, path) in [
            ("healthz", "/healthz"),
            ("healthz_fixed", "/healthz/fixed"),
            ("readyz", "/readyz"),
            ("metrics", "/metrics"),
            ("openapi", "/openapi.json"),
            ("docs", "/docs"),
        ] {
            self.repeat(name, &[Request::get(path)])?;
        }
        Ok(())
    }

    fn catalogue(&mut self, products: &[Product]) -> Result<()> {
        let by_id = |suffix: &str| -> Vec<Request> {
            products
                .iter()
                .map(|product| Request::get(&format!("/v1/products/{}{suffix}", product.id)))
                .collect()
        };
        self.repeat("product_get", &by_id(""))?;
        self.repeat("product_stock", &by_id("/stock"))?;
        let detail = |product: &Product| {
            let path = format!("/v1/products/{}/stock?detail=true", product.id);
            Request::of(OPERATOR_TOKEN, "GET", &path, None)
        };
        self.repeat("product_stock_detail", &products.iter().map(detail).collect::<Vec<_>>())?;
        self.repeat("categories", &[Request::get("/v1/categories")])?;

        let category = encoded("Смартфоны");
        for (name, query) in [
            ("products_list", String::new()),
            ("products_list_100", "?limit=100".to_owned()),
            ("products_by_price_descending", "?sort=-price".to_owned()),
            ("products_by_name", "?sort=name".to_owned()),
            ("products_of_prices", "?price_min=1000&price_max=20000".to_owned()),
            ("products_of_category", format!("?category={category}")),
            (
                "products_of_category_and_prices",
                format!("?category={category}&price_min=10000&price_max=40000"),
            ),
            ("products_of_category_by_name", format!("?category={category}&sort=name")),
            ("products_of_category_in_zone", format!("?category={category}&zone={ZONE}")),
            ("products_in_zone", format!("?zone={ZONE}")),
            ("products_search_word", format!("?q={}", encoded("смартфон"))),
            ("products_search_words", format!("?q={}", encoded("чёрный смартфон"))),
            ("products_search_in_category", format!("?q={}&category={category}", encoded("чёрный"))),
            ("products_search_nothing", format!("?q={}", encoded("небывальщина"))),
        ] {
            self.repeat(name, &[Request::get(&format!("/v1/products{query}"))])?;
        }
        let first = crate::catalogue::ask(&mut self.load, &Request::get("/v1/products"))?;
        let after = encoded(&text(&first, "next")?);
        self.repeat("products_next_page", &[Request::get(&format!("/v1/products?after={after}"))])
    }

    fn guests(&mut self) -> Result<Vec<String>> {
        let start = || Request::new("POST", "/v1/sessions", &[], Some("{}")).answered(201);
        let starts: Vec<Request> = (0..self.count(GUESTS)).map(|_| start()).collect();
        let answers = self.once("session_start", &starts)?;
        answers.iter().map(|answer| text(answer, "token")).collect()
    }

    fn users(&mut self) -> Result<Vec<String>> {
        let post = |path: &str, body: &Value| Request::new("POST", path, &[], Some(&body.to_string()));
        let people: Vec<Value> = (0..self.count(USERS))
            .map(|number| json!({ "email": format!("anna{number}@example.ru"), "password": PASSWORD }))
            .collect();
        let registrations: Vec<Request> =
            people.iter().map(|body| post("/v1/users", body).answered(201)).collect();
        self.once("user_register", &registrations)?;
        let logins: Vec<Request> = people.iter().map(|body| post("/v1/sessions/login", body)).collect();
        let mut pairs = self.once("session_login", &logins)?;

        // A refresh token works once: each answer brings the one for the next.
        let before = self.server.cpu()?;
        for _ in 0..REFRESHES_PER_USER {
            let refresh = |pair: &Value| {
                Ok(post("/v1/sessions/refresh", &json!({ "refresh_token": text(pair, "refresh_token")? })))
            };
            let refreshes = pairs.iter().map(refresh).collect::<Result<Vec<Request>>>()?;
            self.load.run_and_see(&refreshes, Until::Each, |index, body| {
                pairs[index] = serde_json::from_slice(body)?;
                Ok(())
            })?;
        }
        let spent = self.server.cpu()?.since(&before);
        let us = spent.as_secs_f64() * 1e6 / (pairs.len() * REFRESHES_PER_USER) as f64;
        self.figures.info("cpu_us_session_refresh", us, "us/request");

        let users = pairs.iter().map(|pair| text(pair, "token")).collect::<Result<Vec<String>>>()?;
        self.repeat("sessions_list", &each(&users, |user| Request::of(user, "GET", "/v1/sessions", None)))?;
        self.repeat("profile_get", &each(&users, |user| Request::of(user, "GET", "/v1/users/me", None)))?;
        let profile = json!({ "name": "Анна", "geo_zone": ZONE }).to_string();
        let edit = |user: &String| Request::of(user, "PATCH", "/v1/users/me", Some(&profile));
        self.repeat("profile_edit", &each(&users, edit))?;
        Ok(users)
    }

    fn carts(&mut self, guests: &[String], products: &[Product]) -> Result<()> {
        let in_stock: Vec<&Product> = products.iter().filter(|product| product.available >= 2).collect();
        let lines: Vec<(&String, &str)> = (0..guests.len() * LINES_PER_CART)
            .map(|number| {
                (&guests[number % guests.len()], in_stock[number * 31 % in_stock.len()].id.as_str())
            })
            .collect();
        let add = |(guest, product): &(&String, &str)| {
            let body = json!({ "product_id": product, "quantity": 1 }).to_string();
            Request::of(guest, "POST", "/v1/cart/items", Some(&body))
        };
        self.once("cart_add", &each(&lines, add))?;
        let read = each(guests, |guest| Request::of(guest, "GET", "/v1/cart", None));
        self.repeat("cart_read", &read)?;
        let keyed = |(index, (guest, product)): (usize, &(&String, &str))| {
            let (body, token) = (json!({ "product_id": product, "quantity": 1 }), format!("Bearer {guest}"));
            let key = index.to_string();
            let headers = [("authorization", token.as_str()), ("idempotency-key", key.as_str())];
            Request::new("POST", "/v1/cart/items", &headers, Some(&body.to_string()))
        };
        let keyed: Vec<Request> = lines.iter().take(guests.len()).enumerate().map(keyed).collect();
        self.once("cart_add_with_key", &keyed)?;
        let set = |(guest, product): &(&String, &str)| {
            Request::of(guest, "PUT", &format!("/v1/cart/items/{product}"), Some("{\"quantity\":2}"))
        };
        self.once("cart_set", &each(&lines, set))?;
        let remove = |(guest, product): &(&String, &str)| {
            Request::of(guest, "DELETE", &format!("/v1/cart/items/{product}"), None)
        };
        self.once("cart_remove", &each(&lines[..lines.len() / 2], remove))?;
        self.once("cart_clear", &each(guests, |guest| Request::of(guest, "DELETE", "/v1/cart", None)))?;
        let abandoned = Request::of(OPERATOR_TOKEN, "GET", "/v1/carts?status=abandoned", None);
        self.repeat("carts_abandoned", &[abandoned])?;
        // Full again, for the pages that show it.
        self.load.run(&each(&lines, add), Until::Each).map(|_| ())
    }

    /// Returns the ids of the orders.
    fn orders(&mut self, users: &[String], products: &[Product]) -> Result<Vec<String>> {
        let in_stock: Vec<&Product> = products.iter().filter(|product| product.available > 0).collect();
        let place = |number: usize, items: Option<Value>| {
            let token = format!("Bearer {}", users[number % users.len()]);
            let key = format!("{number}-{}", items.is_some());
            let headers = [("authorization", token.as_str()), ("idempotency-key", key.as_str())];
            let body =
                json!({ "geo_zone": ZONE, "items": items, "shipping_address": "Москва, ул. Ленина, 1" });
            Request::new("POST", "/v1/orders", &headers, Some(&body.to_string())).answered(201)
        };
        let line =
            |number: usize| json!([{ "product_id": in_stock[number % in_stock.len()].id, "quantity": 1 }]);
        let orders = self.count(ORDERS);
        let places: Vec<Request> = (0..orders).map(|number| place(number, Some(line(number)))).collect();
        let placed = self.once("order_place", &places)?;
        self.once("order_place_again", &places)?;
        let ids = placed.iter().map(|order| text(order, "order_id")).collect::<Result<Vec<String>>>()?;

        let fill = |(number, user): (usize, &String)| {
            let body =
                json!({ "product_id": in_stock[in_stock.len() - 1 - number].id, "quantity": 1 }).to_string();
            Request::of(user, "POST", "/v1/cart/items", Some(&body))
        };
        let fills: Vec<Request> = users.iter().enumerate().map(fill).collect();
        self.load.run(&fills, Until::Each)?;
        let of_carts: Vec<Request> = (0..users.len()).map(|number| place(number, None)).collect();
        self.once("order_place_cart", &of_carts)?;

        let own = |suffix: &'static str| {
            let request = move |(number, id): (usize, &String)| {
                let token = &users[number % users.len()];
                Request::of(token, "GET", &format!("/v1/orders/{id}{suffix}"), None)
            };
            ids.iter().enumerate().map(request).collect::<Vec<Request>>()
        };
        self.repeat("order_get", &own(""))?;
        self.repeat("order_history", &own("/history"))?;
        self.repeat("orders_list", &each(users, |user| Request::of(user, "GET", "/v1/orders", None)))?;
        let day = text(&placed[0], "created_at")?;
        let day = day.get(..10).context("a time starts with its day")?;
        let report = format!("/v1/reports/orders?day={day}");
        self.repeat("orders_report", &[Request::of(OPERATOR_TOKEN, "GET", &report, None)])?;
        let of_zone = format!("{report}&status=confirmed&geo_zone={ZONE}");
        self.repeat("orders_report_filtered", &[Request::of(OPERATOR_TOKEN, "GET", &of_zone, None)])?;

        for (name, status) in [("order_move", "paid"), ("order_cancel", "cancelled")] {
            let body = json!({ "status": status }).to_string();
            let path = |id: &String| format!("/v1/orders/{id}/status");
            self.once(name, &each(&ids, |id| Request::of(OPERATOR_TOKEN, "POST", &path(id), Some(&body))))?;
        }
        Ok(ids)
    }

    fn storefront(&mut self, guest: &str, user: &str, order: &str, products: &[Product]) -> Result<()> {
        let page = |path: &str, token: &str| {
            Request::new("GET", path, &[("cookie", &format!("mobimir_session={token}"))], None)
        };
        self.repeat("page_home", &[Request::get("/")])?;
        let catalog = format!("/catalog?category={}", encoded("Смартфоны"));
        self.repeat("page_catalog", &[Request::get(&catalog)])?;
        self.repeat("page_search", &[Request::get(&format!("/catalog?q={}", encoded("смартфон")))])?;
        let product = |product: &Product| Request::get(&format!("/product/{}", product.id));
        self.repeat("page_product", &each(products, product))?;
        self.repeat("page_cart", &[page("/cart", guest)])?;
        self.repeat("page_login", &[Request::get("/login")])?;
        self.repeat("page_signup", &[Request::get("/signup")])?;
        let in_stock =
            products.iter().find(|product| product.available > 0).context("nothing is in stock")?;
        let fill = json!({ "product_id": in_stock.id, "quantity": 1 }).to_string();
        self.load.run(&[Request::of(user, "POST", "/v1/cart/items", Some(&fill))], Until::Each)?;
        self.repeat("page_checkout", &[page("/checkout", user)])?;
        self.repeat("page_orders", &[page("/orders", user)])?;
        self.repeat("page_order", &[page(&format!("/orders/{order}"), user)])?;
        self.repeat("page_account", &[page("/account", user)])
    }

    fn ends_of_sessions(&mut self, guests: &[String]) -> Result<()> {
        let log_out =
            |guest: &String| Request::of(guest, "DELETE", "/v1/sessions/current", None).answered(204);
        self.once("session_logout", &each(guests, log_out)).map(|_| ())
    }

    /// Last, because it changes the catalogue.
    fn operators(&mut self, products: &[Product]) -> Result<()> {
        use base64::Engine as _;
        for (name, path) in [
            ("ops_policy", "/v1/ops/policy"),
            ("ops_invariants", "/v1/ops/invariants"),
            ("ops_migrations", "/v1/ops/migrations"),
        ] {
            self.repeat(name, &[Request::of(OPERATOR_TOKEN, "GET", path, None)])?;
        }
        let advance =
            Request::of(OPERATOR_TOKEN, "POST", "/v1/ops/migrations/carts/advance", None).answered(409);
        self.repeat("ops_migration_action", &[advance])?;
        let credentials =
            base64::engine::general_purpose::STANDARD.encode(format!("operator:{OPERATOR_TOKEN}"));
        let authorization = format!("Basic {credentials}");
        self.repeat(
            "page_console",
            &[Request::new("GET", "/console", &[("authorization", &authorization)], None)],
        )?;

        let restock = |product: &Product| {
            let path = format!("/v1/products/{}/stock/{ZONE}", product.id);
            Request::of(OPERATOR_TOKEN, "PUT", &path, Some("{\"delta\":1}"))
        };
        self.repeat("stock_change", &each(products, restock))?;
        let edit = |product: &Product| {
            let path = format!("/v1/products/{}", product.id);
            Request::of(OPERATOR_TOKEN, "PATCH", &path, Some("{\"price\":\"4990.00\"}"))
        };
        let edited = self.count(products.len() / 4);
        self.once("product_edit", &each(&products[..edited], edit))?;
        let body = json!({
            "name": "Смартфон Полёт 7, 256 ГБ, чёрный", "category": "Смартфоны", "price": "24990.00",
            "attributes": { "бренд": "Полёт", "память, ГБ": 256 }, "stock_by_zone": { ZONE: 10 },
        })
        .to_string();
        let create = || Request::of(OPERATOR_TOKEN, "POST", "/v1/products", Some(&body)).answered(201);
        let creations: Vec<Request> = (0..self.count(ORDERS)).map(|_| create()).collect();
        self.once("product_create", &creations).map(|_| ())
    }
}

fn each<T>(items: &[T], request: impl Fn(&T) -> Request) -> Vec<Request> {
    items.iter().map(request).collect()
}
