//! The operations that shoppers ask for most on Black Friday, as requests to a shop that was filled for them.
//! [`crate::instructions`] counts what they cost in instructions, and [`crate::compare`] compares two builds.

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::{
    catalogue::{self, Product, ZONE, encoded},
    load::{Load, Request, Until},
    operations, pages,
    server::{OPERATOR_TOKEN, Server},
};

/// All that the profile `black-friday` asks for, two more reads of the catalogue, and an order of the cart. Every
/// request for a cart or an order also checks the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Hot {
    ProductPage,
    CategoryPage,
    Search,
    ProductStock,
    CartAdd,
    CartChange,
    CartRead,
    OrderPlace,
    /// An addition to the cart and an order of the cart, in turns: the mean of both.
    OrderOfCart,
    OrderCard,
    OrderList,
}

const CONNECTIONS: usize = 32;
const GUESTS: usize = 1_024;
const LINES_PER_CART: usize = 5;
const USERS: usize = 32;
/// More than a page of the list has.
const ORDERS_PER_USER: usize = 24;
const PASSWORD: &str = "correct horse battery";
/// Products that are ordered, and so many units of each that none is sold out.
const ORDERED_PRODUCTS: usize = 1_024;
const ORDERED_STOCK: u64 = 1_000_000;
/// Common words of the demo catalogue, by themselves and with one that narrows them.
const SEARCHES: [&str; 8] = [
    "смартфон",
    "чёрный смартфон",
    "наушники",
    "белый",
    "чехол чёрный",
    "кабель",
    "планшет",
    "синий смартфон",
];

/// What the requests are about. The same for every shop but for tokens and the ids of orders.
pub(crate) struct HotShop {
    products: Vec<Product>,
    categories: Vec<String>,
    guests: Vec<String>,
    users: Vec<String>,
    /// Each user's, in the order of `users`, over and over.
    orders: Vec<String>,
}

impl Hot {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ProductPage => "product_page",
            Self::CategoryPage => "category_page",
            Self::Search => "search",
            Self::ProductStock => "product_stock",
            Self::CartAdd => "cart_add",
            Self::CartChange => "cart_change",
            Self::CartRead => "cart_read",
            Self::OrderPlace => "order_place",
            Self::OrderOfCart => "order_of_cart",
            Self::OrderCard => "order_card",
            Self::OrderList => "order_list",
        }
    }

    /// Those that were named, or all.
    pub(crate) fn wanted(named: &[Self]) -> Vec<Self> {
        if named.is_empty() { Self::value_variants().to_vec() } else { named.to_vec() }
    }
}

impl HotShop {
    /// Fills a demo shop: guests with carts, users with orders, and enough stock.
    pub(crate) fn fill(server: &Server) -> Result<Self> {
        let products = catalogue::walk(server)?;
        let categories = pages::category_paths(&products);
        let mut load = Load::connect(server.address, CONNECTIONS)?;
        let guests = operations::guests(&mut load, GUESTS)?;
        let people: Vec<Value> = (0..USERS)
            .map(|number| json!({ "email": format!("anna{number}@example.ru"), "password": PASSWORD }))
            .collect();
        let post = |path: &str, body: &Value| Request::new("POST", path, &[], Some(&body.to_string()));
        let registrations: Vec<Request> =
            people.iter().map(|body| post("/v1/users", body).answered(201)).collect();
        load.run(&registrations, Until::Each)?;
        let logins: Vec<Request> = people.iter().map(|body| post("/v1/sessions/login", body)).collect();
        let users = tokens(&mut load, &logins)?;

        let mut shop = Self { products, categories, guests, users, orders: Vec::new() };
        load.run(&shop.restocks(), Until::Each)?;
        load.run(&shop.requests(Hot::CartAdd, 0, GUESTS * LINES_PER_CART), Until::Each)?;
        let mut orders = vec![String::new(); USERS * ORDERS_PER_USER];
        let places = shop.requests(Hot::OrderPlace, 0, orders.len());
        load.run_and_see(&places, Until::Each, |index, body| {
            orders[index] = text(body, "order_id")?;
            Ok(())
        })?;
        shop.orders = orders;
        Ok(shop)
    }

    /// How many of the first requests were sent by [`HotShop::fill`]. Who writes goes on from there.
    pub(crate) fn filled(hot: Hot) -> usize {
        match hot {
            Hot::CartAdd => GUESTS * LINES_PER_CART,
            Hot::OrderPlace => USERS * ORDERS_PER_USER,
            _ => 0,
        }
    }

    /// Reads that bring everything which the counted requests read into the caches of a shop that was started
    /// anew: all products, carts, sessions and orders.
    pub(crate) fn reads_of_all(&self) -> Vec<Request> {
        let reads = [
            (Hot::ProductPage, self.products.len()),
            (Hot::CartRead, self.guests.len()),
            (Hot::OrderCard, self.orders.len()),
            (Hot::OrderList, self.users.len()),
        ];
        reads.into_iter().flat_map(|(hot, count)| self.requests(hot, 0, count)).collect()
    }

    /// The requests of an operation with these numbers. The same number asks every shop for the same.
    pub(crate) fn requests(&self, hot: Hot, first: usize, count: usize) -> Vec<Request> {
        (first..first + count).map(|number| self.request(hot, number)).collect()
    }

    fn request(&self, hot: Hot, number: usize) -> Request {
        let guest = &self.guests[number % self.guests.len()];
        let user = &self.users[number % self.users.len()];
        match hot {
            Hot::ProductPage => Request::get(&format!("/v1/products/{}", self.any_product(number).id)),
            Hot::CategoryPage => Request::get(&self.categories[spread(number, self.categories.len())]),
            Hot::Search => {
                let words = encoded(SEARCHES[number % SEARCHES.len()]);
                Request::get(&format!("/v1/products?q={words}&limit=20"))
            }
            Hot::ProductStock => Request::get(&format!("/v1/products/{}/stock", self.any_product(number).id)),
            Hot::CartAdd => {
                let body = json!({ "product_id": self.cart_product(number).id, "quantity": 1 });
                Request::of(guest, "POST", "/v1/cart/items", Some(&body.to_string()))
            }
            Hot::CartChange => {
                let path = format!("/v1/cart/items/{}", self.cart_product(number).id);
                // Never the one that the line has.
                let quantity = 2 + number / (self.guests.len() * LINES_PER_CART) % 3;
                let body = json!({ "quantity": quantity });
                Request::of(guest, "PUT", &path, Some(&body.to_string()))
            }
            Hot::CartRead => Request::of(guest, "GET", "/v1/cart", None),
            Hot::OrderPlace => self.order(user, number),
            Hot::OrderOfCart => self.cart_turn(user, number),
            Hot::OrderCard => {
                let path = format!("/v1/orders/{}", self.orders[number % self.orders.len()]);
                Request::of(user, "GET", &path, None)
            }
            Hot::OrderList => Request::of(user, "GET", "/v1/orders?limit=20", None),
        }
    }

    /// One unit of one product.
    fn order(&self, user: &str, number: usize) -> Request {
        let product = &self.ordered()[number % ORDERED_PRODUCTS];
        let items = json!([{ "product_id": product.id, "quantity": 1 }]);
        let body = json!({ "geo_zone": ZONE, "items": items, "shipping_address": "Москва, ул. Ленина, 1" });
        place(user, &format!("hot-{number}"), &body)
    }

    /// Every user adds to the cart, then every user orders it. A user's requests must follow one another: the
    /// load sends request `n` over connection `n` modulo the connections, which divide the users.
    fn cart_turn(&self, user: &str, number: usize) -> Request {
        if (number / self.users.len()).is_multiple_of(2) {
            let body = json!({ "product_id": self.ordered()[number % ORDERED_PRODUCTS].id, "quantity": 1 });
            return Request::of(user, "POST", "/v1/cart/items", Some(&body.to_string()));
        }
        let body = json!({ "geo_zone": ZONE, "shipping_address": "Москва, ул. Ленина, 1" });
        place(user, &format!("hot-cart-{number}"), &body)
    }

    fn restocks(&self) -> Vec<Request> {
        let body = json!({ "quantity": ORDERED_STOCK }).to_string();
        let restock = |product: &Product| {
            let path = format!("/v1/products/{}/stock/{ZONE}", product.id);
            Request::of(OPERATOR_TOKEN, "PUT", &path, Some(&body))
        };
        self.ordered().iter().map(restock).collect()
    }

    fn ordered(&self) -> &[Product] {
        &self.products[..ORDERED_PRODUCTS]
    }

    fn any_product(&self, number: usize) -> &Product {
        &self.products[spread(number, self.products.len())]
    }

    /// A guest's cart has the same few products for ever, so that it does not grow.
    fn cart_product(&self, number: usize) -> &Product {
        let (guest, line) = (number % self.guests.len(), number / self.guests.len() % LINES_PER_CART);
        &self.ordered()[(guest * LINES_PER_CART + line) % ORDERED_PRODUCTS]
    }
}

fn place(user: &str, key: &str, body: &Value) -> Request {
    let token = format!("Bearer {user}");
    let headers = [("authorization", token.as_str()), ("idempotency-key", key)];
    Request::new("POST", "/v1/orders", &headers, Some(&body.to_string())).answered(201)
}

/// In an order in which neighbours have nothing to do with each other; all of them before the first comes again.
fn spread(number: usize, count: usize) -> usize {
    /// A prime that divides no count of things in a shop.
    const STEP: usize = 7_919;
    number % count * STEP % count
}

/// The token that each answer brings.
fn tokens(load: &mut Load, requests: &[Request]) -> Result<Vec<String>> {
    let mut tokens = vec![String::new(); requests.len()];
    load.run_and_see(requests, Until::Each, |index, body| {
        tokens[index] = text(body, "token")?;
        Ok(())
    })?;
    ensure!(tokens.iter().all(|token| !token.is_empty()), "a session without a token");
    Ok(tokens)
}

fn text(body: &[u8], name: &str) -> Result<String> {
    let answer: Value = serde_json::from_slice(body)?;
    answer[name].as_str().map(str::to_owned).with_context(|| format!("the answer has no {name}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_one_is_asked_for_before_the_first_comes_again() {
        for count in [1_000, 1_024, 10_000] {
            let asked: BTreeSet<usize> = (0..count).map(|number| spread(number, count)).collect();
            assert_eq!(asked.len(), count);
            assert_eq!(spread(count, count), spread(0, count));
        }
    }

    #[test]
    fn a_cart_is_added_to_and_changed_in_the_same_few_lines() {
        let product = |number: usize| Product {
            id: number.to_string(),
            category: String::new(),
            price: String::new(),
            available: 0,
        };
        let shop = HotShop {
            products: (0..ORDERED_PRODUCTS).map(product).collect(),
            categories: Vec::new(),
            guests: (0..GUESTS).map(|guest| guest.to_string()).collect(),
            users: Vec::new(),
            orders: Vec::new(),
        };
        for guest in [0, 1, GUESTS - 1] {
            let lines: BTreeSet<&str> =
                (0..20).map(|turn| shop.cart_product(guest + turn * GUESTS).id.as_str()).collect();
            assert_eq!(lines.len(), LINES_PER_CART);
        }
    }

    #[test]
    fn all_have_the_names_that_the_command_line_takes() {
        for hot in Hot::value_variants() {
            let value = hot.to_possible_value();
            assert_eq!(value.as_ref().map(|value| value.get_name()), Some(hot.name()));
        }
    }
}
