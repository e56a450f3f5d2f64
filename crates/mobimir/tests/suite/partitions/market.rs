//! What all clients of one run share: the instances, the products, the customers, and the history of what
//! everybody asked and was answered, which the checker of the simulator judges.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use mobimir_core::id::UserId;
use mobimir_simulator::{
    history::{Answer, Call, History, Item, Operation},
    shoppers::event_of,
};
use serde_json::{Value, json};

use crate::support::{
    Client, Customer,
    process::OPERATOR,
    shop::{operator, product, unique},
};

/// Then the client hangs up, and the request goes on or does not.
const HANGS_UP_AFTER: Duration = Duration::from_millis(2_500);
/// Of each product at the start. Of the last there is not enough for everybody.
const UNITS: [u64; 4] = [1_000_000, 1_000_000, 1_000_000, 30];
/// The scarce one is never put into a cart: one line that is short keeps a whole cart from being ordered.
pub(crate) const SCARCE: Item = UNITS.len() - 1;
/// Its price only rises, and only one client changes it.
pub(crate) const REPRICED: Item = SCARCE - 1;
const KOPECKS_AT_FIRST: i64 = 10_000;

#[derive(Clone)]
pub(crate) struct Market(Arc<Inner>);

struct Inner {
    hosts: Vec<String>,
    products: Vec<String>,
    customers: Vec<Account>,
    history: History,
    started: Instant,
    numbers: Mutex<Numbers>,
}

/// Two shoppers share one, and so a cart.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) email: String,
    pub(crate) user: UserId,
}

#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) sessions: usize,
    pub(crate) guests: usize,
    pub(crate) kopecks: i64,
    /// Orders that were acknowledged, with their customer.
    pub(crate) placed: Vec<(usize, String)>,
    /// Each move of an order is asked for once: the history does not say which request made it.
    pub(crate) moves: BTreeSet<(String, &'static str)>,
}

/// What an instance answered.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) replayed: bool,
}

pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) token: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) body: Option<Value>,
}

impl Request<'_> {
    pub(crate) fn of_operator(method: Method, path: String, body: Value) -> Self {
        Self { method, path, token: Some(OPERATOR), key: None, body: Some(body) }
    }
}

impl Market {
    /// `host` names all instances, `hosts` each.
    pub(crate) async fn open(host: &str, hosts: Vec<String>, customers: usize) -> Self {
        let mut products = Vec::new();
        for units in UNITS {
            products.push(product(host, units).await);
        }
        let mut accounts = Vec::new();
        for _ in 0..customers {
            let customer = Customer::new(host).await;
            let user = UserId(customer.user_id.parse().unwrap());
            accounts.push(Account { email: customer.email, user });
        }
        let numbers = Mutex::new(Numbers { kopecks: KOPECKS_AT_FIRST, ..Numbers::default() });
        let (history, started) = (History::default(), Instant::now());
        Self(Arc::new(Inner { hosts, products, customers: accounts, history, started, numbers }))
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.0.hosts
    }

    pub(crate) fn products(&self) -> &[String] {
        &self.0.products
    }

    pub(crate) fn customers(&self) -> &[Account] {
        &self.0.customers
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.0.history.operations()
    }

    pub(crate) fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn initial(item: Item) -> u64 {
        UNITS[item]
    }

    fn micros(&self) -> i64 {
        i64::try_from(self.0.started.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// A moment that is not after now: what is asked was not asked before it.
    pub(crate) fn now_ms(&self) -> i64 {
        self.micros() / 1_000
    }

    pub(crate) fn number_of(&self, product: &Value) -> Item {
        let of = |id: &String| Some(id.as_str()) == product.as_str();
        self.products().iter().position(of).unwrap_or(usize::MAX)
    }

    /// Item, units and price of each line of an order.
    pub(crate) fn lines_of(&self, order: &Value) -> Vec<(Item, u64, i64)> {
        let line = |line: &Value| {
            (self.number_of(&line["product_id"]), line["quantity"].as_u64().unwrap(), kopecks(&line["price"]))
        };
        let mut lines: Vec<_> = order["items"].as_array().unwrap().iter().map(line).collect();
        lines.sort_unstable();
        lines
    }

    pub(crate) fn cart_of(&self, cart: &Value) -> Vec<(Item, u64)> {
        let line = |line: &Value| (self.number_of(&line["product_id"]), line["quantity"].as_u64().unwrap());
        cart["items"].as_array().unwrap().iter().map(line).collect()
    }

    /// Nothing where no answer came: the instance is not there, or the client has hung up.
    pub(crate) async fn send(&self, instance: usize, request: Request<'_>) -> Option<Said> {
        let host = &self.hosts()[instance];
        let client = match request.token {
            Some(token) => Client::with_token(host, token),
            None => Client::new(host),
        };
        let headers: Vec<(&str, &str)> =
            request.key.map(|key| ("idempotency-key", key)).into_iter().collect();
        let mut client = client.without_read_after();
        let answer = client.send(request.method, &request.path, &headers, request.body);
        let answer = tokio::time::timeout(HANGS_UP_AFTER, answer).await.ok()?.ok()?;
        let body = if answer.body.is_empty() { Value::Null } else { answer.json() };
        let replayed = answer.header("idempotent-replayed") == Some("true");
        Some(Said { status: answer.status.as_u16(), body, replayed })
    }

    pub(crate) fn record(&self, client: usize, instance: usize, asked_ms: i64, call: Call, answer: Answer) {
        // Not before it was answered.
        let answered_ms = self.micros() / 1_000 + 1;
        self.0.history.record(Operation { client, instance, asked_ms, answered_ms, call, answer });
    }

    /// How often what has happened at an instance since then.
    pub(crate) fn count(&self, since_ms: i64, instance: usize, event: &str) -> usize {
        let operations = self.operations();
        let of = |operation: &&Operation| {
            operation.instance == instance
                && operation.asked_ms >= since_ms
                && event_of(&operation.call, &operation.answer) == event
        };
        operations.iter().filter(of).count()
    }
}

impl Said {
    fn is_done(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

/// What becomes of what was asked: `done` says what an answer that says so means, `refusals` which problems
/// there may be. A 503 leaves open whether it was done.
pub(crate) fn meant(
    said: Option<&Said>,
    refusals: &[(&str, Answer)],
    done: impl FnOnce(&Value) -> Answer,
) -> Answer {
    match said {
        None => Answer::Open,
        Some(said) if said.is_done() => done(&said.body),
        Some(said) if said.status == 503 => Answer::Open,
        Some(said) => match refusals.iter().find(|(code, _)| *code == said.code()) {
            Some((_, answer)) => answer.clone(),
            None => panic!("refused without a reason: {said:?}"),
        },
    }
}

/// The same for what is only read.
pub(crate) fn read(
    said: Option<&Said>,
    refusals: &[(&str, Answer)],
    done: impl FnOnce(&Value) -> Answer,
) -> Answer {
    match meant(said, refusals, done) {
        Answer::Open => Answer::NotNow,
        answer => answer,
    }
}

/// What an answer says about the token that was presented, if anything.
pub(crate) fn presented(said: Option<&Said>) -> Option<Answer> {
    match said {
        None => None,
        Some(said) if said.status == 503 => None,
        Some(said) if said.status == 401 => Some(Answer::Refused("unauthorized")),
        Some(_) => Some(Answer::Done),
    }
}

pub(crate) fn order_refusals() -> [(&'static str, Answer); 6] {
    [
        ("out_of_stock", Answer::Refused("out_of_stock")),
        ("empty_cart", Answer::Refused("empty_cart")),
        ("cart_ordered", Answer::Refused("cart_ordered")),
        ("checkout_aborted", Answer::Refused("expired")),
        ("idempotency_mismatch", Answer::Refused("mismatch")),
        ("in_progress", Answer::NotNow),
    ]
}

pub(crate) fn kopecks(price: &Value) -> i64 {
    price.as_str().unwrap().replace('.', "").parse().unwrap()
}

/// Chances of one client.
pub(crate) struct Dice(AtomicU64);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(unique()))
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn permille(&self, chance: u64) -> bool {
        self.below(1_000) < chance
    }

    pub(crate) fn pick<'a, T>(&self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len() as u64) as usize]
    }

    pub(crate) async fn sleep_ms(&self, low: u64, high: u64) {
        tokio::time::sleep(Duration::from_millis(self.between(low, high))).await;
    }
}

/// Somebody who runs the shop: moves orders, restocks, changes a price.
pub(crate) struct ShopKeeper {
    pub(crate) market: Market,
    pub(crate) client: usize,
    pub(crate) dice: Dice,
}

impl ShopKeeper {
    pub(crate) async fn work(&self) {
        match self.dice.below(100) {
            0..=44 => self.move_order().await,
            45..=64 => self.restock().await,
            65..=79 => self.reprice().await,
            _ => self.view().await,
        }
    }

    fn any_instance(&self) -> usize {
        self.dice.below(self.market.hosts().len() as u64) as usize
    }

    async fn ask(
        &self,
        call: Call,
        request: Request<'_>,
        refusals: &[(&str, Answer)],
        done: impl FnOnce(&Value) -> Answer,
    ) {
        let (market, instance) = (&self.market, self.any_instance());
        let asked_ms = market.now_ms();
        let said = market.send(instance, request).await;
        let answer = if matches!(call, Call::ViewProduct { .. }) {
            read(said.as_ref(), refusals, done)
        } else {
            meant(said.as_ref(), refusals, done)
        };
        market.record(self.client, instance, asked_ms, call, answer);
    }

    async fn move_order(&self) {
        let placed: Vec<(usize, String)> =
            self.market.numbers().placed.iter().rev().take(8).cloned().collect();
        if placed.is_empty() {
            return;
        }
        let (_, order) = self.dice.pick(&placed);
        let first = *self.dice.pick(&["paid", "paid", "paid", "shipped", "delivered", "cancelled"]);
        let second = *self.dice.pick(&["cancelled", "shipped"]);
        // Two at once: an order that is cancelled is not shipped as well.
        if self.dice.permille(300) {
            futures_util::future::join(self.move_to(order, first), self.move_to(order, second)).await;
        } else {
            self.move_to(order, first).await;
        }
    }

    async fn move_to(&self, order: &str, to: &'static str) {
        if !self.market.numbers().moves.insert((order.to_owned(), to)) {
            return;
        }
        let call = Call::Move { order: order.to_owned(), to, operator: "operator".to_owned() };
        let path = format!("/v1/orders/{order}/status");
        let request = Request::of_operator(Method::POST, path, json!({ "status": to }));
        let refusals = [("bad_transition", Answer::Refused("bad_transition"))];
        self.ask(call, request, &refusals, |_| Answer::Done).await;
    }

    async fn restock(&self) {
        let item = if self.dice.permille(600) { SCARCE } else { 0 };
        let units = self.dice.between(1, 6);
        let call = Call::Restock { item, delta: units.cast_signed() };
        let path = format!("/v1/products/{}/stock/MSK", self.market.products()[item]);
        let request = Request::of_operator(Method::PUT, path, json!({ "delta": units }));
        let stock = |stock: &Value| {
            let number = |name: &str| stock[name].as_u64().unwrap();
            Answer::Stock {
                available: number("available"),
                reserved: number("reserved"),
                sold: number("sold"),
            }
        };
        self.ask(call, request, &[], stock).await;
    }

    async fn reprice(&self) {
        let kopecks = {
            let mut numbers = self.market.numbers();
            numbers.kopecks += 1;
            numbers.kopecks
        };
        let call = Call::Reprice { item: REPRICED, price: kopecks };
        let price = format!("{}.{:02}", kopecks / 100, kopecks % 100);
        let path = format!("/v1/products/{}", self.market.products()[REPRICED]);
        let request = Request::of_operator(Method::PATCH, path, json!({ "price": price }));
        self.ask(call, request, &[], |_| Answer::Done).await;
        for _ in 0..self.dice.below(3) {
            self.dice.sleep_ms(100, 1_500).await;
            self.view().await;
        }
    }

    async fn view(&self) {
        let path = format!("/v1/products/{}", self.market.products()[REPRICED]);
        let request = Request { method: Method::GET, path, token: None, key: None, body: None };
        let call = Call::ViewProduct { item: REPRICED };
        let refusals = [("not_found", Answer::Refused("not_found"))];
        self.ask(call, request, &refusals, |product| Answer::Price(kopecks(&product["price"]))).await;
    }
}

/// What stands in the books of a product.
pub(crate) async fn stock_at(host: &str, product: &str) -> (u64, u64, u64) {
    let path = format!("/v1/products/{product}/stock?detail=true");
    let mut operator = operator(host).tolerating_503("the servers were just hurt");
    let stock = operator.get(&path).await.expect(200);
    let number = |name: &str| stock["MSK"][name].as_u64().unwrap();
    (number("available"), number("reserved"), number("sold"))
}
