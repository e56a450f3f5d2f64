//! Somebody who fills a cart, also as a guest, orders it, comes back with old keys and refreshes the session,
//! at any instance.

use hyper::Method;
use mobimir_simulator::history::{Answer, Call, Customer, Item};
use serde_json::{Value, json};

use super::market::{Dice, Market, Request, SCARCE, Said, meant, order_refusals, presented, read};
use crate::support::shop::{PASSWORD, unique};

/// Of one order, before its shopper gives up.
const TRIES_MAX: usize = 4;

pub(crate) struct Shopper {
    market: Market,
    client: usize,
    customer: Customer,
    dice: Dice,
    session: Option<Session>,
    /// Keys that were used before, with what was asked.
    sent: Vec<(String, Lines)>,
    /// Keys whose order was acknowledged.
    placed: Vec<String>,
    /// Whether a guest still adds while the login moves the cart.
    late_guests: bool,
}

/// The whole cart, without lines.
type Lines = Option<Vec<(Item, u64)>>;

/// With every pair of tokens that was given out for it.
struct Session {
    number: usize,
    tokens: Vec<(String, String)>,
}

fn pair_of(session: &Value) -> (String, String) {
    let text = |name: &str| session[name].as_str().unwrap().to_owned();
    (text("token"), text("refresh_token"))
}

impl Shopper {
    pub(crate) fn new(market: Market, client: usize, customer: Customer, late_guests: bool) -> Self {
        let (sent, placed) = (Vec::new(), Vec::new());
        Self { market, client, customer, dice: Dice::new(), session: None, sent, placed, late_guests }
    }

    pub(crate) async fn step(&mut self) {
        if self.session.is_none() {
            self.log_in().await;
        }
        match self.dice.below(100) {
            0..=27 => self.add().await,
            28..=37 => self.read_cart().await,
            38..=57 => self.order(None).await,
            58..=65 => self.order_lines().await,
            66..=71 => self.order_again().await,
            72..=79 => self.look_at_orders().await,
            80..=84 => self.present().await,
            85..=89 => self.refresh().await,
            90..=91 => self.use_old_refresh_token().await,
            92..=94 => self.log_out().await,
            _ => self.come_as_guest().await,
        }
    }

    fn any_instance(&self) -> usize {
        self.dice.below(self.market.hosts().len() as u64) as usize
    }

    fn item(&self) -> Item {
        self.dice.below(SCARCE as u64) as Item
    }

    async fn log_in(&mut self) {
        let who = json!({ "email": self.market.customers()[self.customer].email, "password": PASSWORD });
        let path = "/v1/sessions/login".to_owned();
        let request = Request { method: Method::POST, path, token: None, key: None, body: Some(who) };
        let said = self.market.send(self.any_instance(), request).await;
        let mut pair = None;
        meant(said.as_ref(), &[], |session| {
            pair = Some(pair_of(session));
            Answer::Done
        });
        if let Some(pair) = pair {
            let mut numbers = self.market.numbers();
            numbers.sessions += 1;
            self.session = Some(Session { number: numbers.sessions, tokens: vec![pair] });
        }
    }

    /// As the holder of the newest token. Whether that was accepted is written down, too; whoever was refused
    /// logs in again, and is not answered here.
    async fn as_user(
        &mut self,
        instance: usize,
        (method, path): (Method, String),
        key: Option<&str>,
        body: Option<Value>,
    ) -> Option<Option<Said>> {
        let session = self.session.as_ref()?;
        let (number, token) = (session.number, session.tokens.len() - 1);
        let access = session.tokens[token].0.clone();
        let request = Request { method, path, token: Some(&access), key, body };
        let (said, answer) =
            present_with(&self.market, self.client, instance, (number, token), request).await;
        if answer == Some(Answer::Refused("unauthorized")) {
            self.session = None;
            return None;
        }
        Some(said)
    }

    async fn add(&mut self) {
        let (item, units) = (self.item(), self.dice.between(1, 3));
        let key = self.dice.permille(400).then(|| format!("add {}", unique()));
        let body = json!({
            "product_id": self.market.products()[item], "quantity": units, "geo_zone": "MSK",
        });
        let asked_ms = self.market.now_ms();
        let (mut answer, mut at) = (None, 0);
        for _ in 0..if key.is_some() { 3 } else { 1 } {
            at = self.any_instance();
            let asked = (Method::POST, "/v1/cart/items".to_owned());
            let Some(said) = self.as_user(at, asked, key.as_deref(), Some(body.clone())).await else { break };
            let refusals =
                [("out_of_stock", Answer::Refused("no")), ("cart_full", Answer::Refused("no")), IN_PROGRESS];
            match meant(said.as_ref(), &refusals, |_| Answer::Done) {
                // A try before may still arrive.
                Answer::Refused(_) if answer == Some(Answer::Open) => break,
                meant => answer = Some(meant),
            }
            if answer != Some(Answer::Open) {
                break;
            }
            self.dice.sleep_ms(10, 500).await;
        }
        if let Some(answer) = answer {
            let call = Call::Add { customer: self.customer, guest: None, item, units };
            self.market.record(self.client, at, asked_ms, call, answer);
        }
    }

    async fn read_cart(&mut self) {
        let (instance, market, asked_ms) = (self.any_instance(), self.market.clone(), self.market.now_ms());
        let said = self.as_user(instance, (Method::GET, "/v1/cart".to_owned()), None, None).await.flatten();
        let answer = read(said.as_ref(), &[], |cart| Answer::Cart(market.cart_of(cart)));
        let call = Call::ReadCart { customer: self.customer };
        market.record(self.client, instance, asked_ms, call, answer);
    }

    fn fresh_key(&mut self, lines: &Lines) -> String {
        let key = format!("key {}", unique());
        self.sent.push((key.clone(), lines.clone()));
        key
    }

    async fn order(&mut self, lines: Lines) {
        let Some(session) = &self.session else { return };
        let (number, token) = (session.number, session.tokens.len() - 1);
        let access = session.tokens[token].0.clone();
        let key = self.fresh_key(&lines);
        if self.dice.permille(250) {
            // Two at once, under one key or two, at any instances.
            let other = if self.dice.permille(500) { key.clone() } else { self.fresh_key(&lines) };
            let answers = futures_util::future::join(
                self.place(&key, &lines, (number, token, &access)),
                self.place(&other, &lines, (number, token, &access)),
            )
            .await;
            self.keep(&key, &answers.0);
            self.keep(&other, &answers.1);
            if answers.0.is_final() && answers.1.is_final() {
                return;
            }
        }
        for _ in 0..TRIES_MAX {
            let answer = self.place(&key, &lines, (number, token, &access)).await;
            self.keep(&key, &answer);
            if answer.is_final() {
                return;
            }
            self.dice.sleep_ms(20, 1_000).await;
            // Some never come back, some start anew instead.
            if self.dice.permille(150) {
                return;
            }
            if self.dice.permille(120) {
                let key = self.fresh_key(&lines);
                let answer = self.place(&key, &lines, (number, token, &access)).await;
                self.keep(&key, &answer);
                return;
            }
        }
    }

    fn keep(&mut self, key: &str, answer: &Answer) {
        if let Answer::Placed { order, .. } = answer {
            self.placed.push(key.to_owned());
            let mut numbers = self.market.numbers();
            if !numbers.placed.iter().any(|(_, placed)| placed == order) {
                numbers.placed.push((self.customer, order.clone()));
            }
        }
    }

    async fn order_lines(&mut self) {
        let first = if self.dice.permille(500) { SCARCE } else { self.item() };
        let mut lines = vec![(first, self.dice.between(1, 4))];
        let other = (self.item(), self.dice.between(1, 2));
        if other.0 != first && self.dice.permille(500) {
            lines.push(other);
        }
        lines.sort_unstable();
        self.order(Some(lines)).await;
    }

    /// Comes back much later, or with an old key for something else.
    async fn order_again(&mut self) {
        let Some(session) = &self.session else { return };
        let (number, token) = (session.number, session.tokens.len() - 1);
        let access = session.tokens[token].0.clone();
        let (key, lines) = if self.dice.permille(300) && !self.placed.is_empty() {
            (self.dice.pick(&self.placed).clone(), Some(vec![(self.item(), 9)]))
        } else if self.sent.is_empty() {
            return;
        } else {
            self.dice.pick(&self.sent).clone()
        };
        let answer = self.place(&key, &lines, (number, token, &access)).await;
        self.keep(&key, &answer);
    }

    async fn place(&self, key: &str, lines: &Lines, session: (usize, usize, &str)) -> Answer {
        let (market, instance) = (&self.market, self.any_instance());
        let mut body = json!({ "geo_zone": "MSK" });
        if let Some(lines) = lines {
            let item = |(item, units): &(Item, u64)| json!({ "product_id": market.products()[*item], "quantity": units });
            body["items"] = lines.iter().map(item).collect();
        }
        let (number, token, access) = session;
        let request = Request {
            method: Method::POST,
            path: "/v1/orders".to_owned(),
            token: Some(access),
            key: Some(key),
            body: Some(body),
        };
        let asked_ms = market.now_ms();
        let (said, accepted) = present_with(market, self.client, instance, (number, token), request).await;
        let answer = if accepted == Some(Answer::Refused("unauthorized")) {
            // Nothing was done, and the key may be used again.
            Answer::NotNow
        } else {
            let replayed = said.as_ref().is_some_and(|said| said.replayed);
            meant(said.as_ref(), &order_refusals(), |order| Answer::Placed {
                order: order["order_id"].as_str().unwrap().to_owned(),
                lines: market.lines_of(order),
                replayed,
            })
        };
        let (key, lines) = (key.to_owned(), lines.clone());
        let call = Call::Order { customer: self.customer, key, lines, shown: None };
        market.record(self.client, instance, asked_ms, call, answer.clone());
        answer
    }

    /// At an order of this customer, which another client may have placed.
    async fn look_at_orders(&mut self) {
        let market = self.market.clone();
        let placed: Vec<String> = {
            let numbers = market.numbers();
            let own = numbers.placed.iter().filter(|(customer, _)| *customer == self.customer);
            own.map(|(_, order)| order.clone()).collect()
        };
        if placed.is_empty() {
            return;
        }
        let (order, instance, asked_ms) =
            (self.dice.pick(&placed).clone(), self.any_instance(), market.now_ms());
        let (call, answer) = match self.dice.below(3) {
            0 => {
                let asked = (Method::GET, format!("/v1/orders/{order}"));
                let said = self.as_user(instance, asked, None, None).await.flatten();
                let answer = read(said.as_ref(), &[("not_found", Answer::Order(None))], |order| {
                    Answer::Order(Some(market.lines_of(order)))
                });
                (Call::ReadOrder { order }, answer)
            }
            1 => (Call::ListOrders { customer: self.customer }, self.list_orders(instance).await),
            _ => {
                let asked = (Method::GET, format!("/v1/orders/{order}/history"));
                let said = self.as_user(instance, asked, None, None).await.flatten();
                let refusals = [("not_found", Answer::History(Vec::new()))];
                let answer = read(said.as_ref(), &refusals, |history| Answer::History(history_of(history)));
                (Call::ReadHistory { order }, answer)
            }
        };
        market.record(self.client, instance, asked_ms, call, answer);
    }

    /// All pages, or nothing.
    async fn list_orders(&mut self, instance: usize) -> Answer {
        let (mut orders, mut next) = (Vec::new(), "/v1/orders?limit=100".to_owned());
        loop {
            let said = self.as_user(instance, (Method::GET, next), None, None).await.flatten();
            let mut after = None;
            let answer = read(said.as_ref(), &[], |page| {
                let items = page["items"].as_array().unwrap().iter();
                orders.extend(items.map(|order| order["order_id"].as_str().unwrap().to_owned()));
                after = page["next"].as_str().map(|next| format!("/v1/orders?limit=100&after={next}"));
                Answer::Done
            });
            match after {
                Some(after) => next = after,
                None if answer == Answer::Done => return Answer::Orders(orders),
                None => return answer,
            }
        }
    }

    /// Presents tokens, also those that were replaced.
    async fn present(&mut self) {
        let Some(session) = &self.session else { return };
        for _ in 0..self.dice.between(1, 3) {
            let token = self.dice.below(session.tokens.len() as u64) as usize;
            self.present_at(self.any_instance(), session, token).await;
        }
    }

    async fn present_at(&self, instance: usize, session: &Session, token: usize) {
        let access = &session.tokens[token].0;
        let (method, path) = (Method::GET, "/v1/sessions".to_owned());
        let request = Request { method, path, token: Some(access), key: None, body: None };
        present_with(&self.market, self.client, instance, (session.number, token), request).await;
    }

    async fn refresh_at(
        &self,
        instance: usize,
        session: &Session,
        token: usize,
    ) -> (Answer, Option<(String, String)>) {
        let body = json!({ "refresh_token": session.tokens[token].1 });
        let path = "/v1/sessions/refresh".to_owned();
        let request = Request { method: Method::POST, path, token: None, key: None, body: Some(body) };
        let (mut pair, asked_ms) = (None, self.market.now_ms());
        let said = self.market.send(instance, request).await;
        let refusals = [
            ("refresh_token_used", Answer::Refused("refresh_token_used")),
            ("bad_refresh_token", Answer::Refused("bad_refresh_token")),
        ];
        let answer = meant(said.as_ref(), &refusals, |refreshed| {
            pair = Some(pair_of(refreshed));
            Answer::Tokens(session.tokens.len())
        });
        let call = Call::Refresh { session: session.number, token };
        self.market.record(self.client, instance, asked_ms, call, answer.clone());
        (answer, pair)
    }

    async fn refresh(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        let newest = session.tokens.len() - 1;
        if self.dice.permille(250) {
            // An app with two windows: one of them works, and then none does.
            let (here, there) = (self.any_instance(), self.any_instance());
            let both = (self.refresh_at(here, &session, newest), self.refresh_at(there, &session, newest));
            futures_util::future::join(both.0, both.1).await;
            return;
        }
        let instance = self.any_instance();
        // Beside it the old token is still in use, at the same instance.
        let beside = async {
            for _ in 0..self.dice.below(3) {
                self.dice.sleep_ms(0, 40).await;
                self.present_at(instance, &session, newest).await;
            }
        };
        let refresh = self.refresh_at(instance, &session, newest);
        let ((answer, pair), ()) = futures_util::future::join(refresh, beside).await;
        // Whoever has no answer does not know which token works, and logs in again.
        if let (Answer::Tokens(_), Some(pair)) = (answer, pair) {
            session.tokens.push(pair);
            // It ended the old token here at once, and the new one works everywhere.
            self.present_at(instance, &session, newest).await;
            for other in 0..self.market.hosts().len() {
                self.present_at(other, &session, newest + 1).await;
            }
            self.session = Some(session);
        }
    }

    /// As a thief would: the session ends.
    async fn use_old_refresh_token(&mut self) {
        let Some(session) = self.session.take() else { return };
        if session.tokens.len() < 2 {
            self.session = Some(session);
            return;
        }
        let old = self.dice.below(session.tokens.len() as u64 - 1) as usize;
        let (answer, _) = self.refresh_at(self.any_instance(), &session, old).await;
        if matches!(answer, Answer::Refused(_)) {
            self.dice.sleep_ms(1_000, 3_500).await;
            self.present_at(self.any_instance(), &session, session.tokens.len() - 1).await;
        }
    }

    async fn log_out(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (instance, newest) = (self.any_instance(), session.tokens.len() - 1);
        let access = &session.tokens[newest].0;
        let (method, path) = (Method::DELETE, "/v1/sessions/current".to_owned());
        let request = Request { method, path, token: Some(access), key: None, body: None };
        let asked_ms = self.market.now_ms();
        let present = (session.number, newest);
        let (said, accepted) = present_with(&self.market, self.client, instance, present, request).await;
        if accepted == Some(Answer::Refused("unauthorized")) {
            return;
        }
        let answer = meant(said.as_ref(), &[], |_| Answer::Done);
        let call = Call::LogOut { session: session.number };
        self.market.record(self.client, instance, asked_ms, call, answer);
        self.present_at(instance, &session, newest).await;
        if self.dice.permille(500) {
            self.dice.sleep_ms(1_500, 3_500).await;
            self.present_at(self.any_instance(), &session, newest).await;
        }
    }

    /// Fills a cart as a guest, and logs in with it.
    async fn come_as_guest(&mut self) {
        let (method, path) = (Method::POST, "/v1/sessions".to_owned());
        let request = Request { method, path, token: None, key: None, body: Some(json!({})) };
        let Some(said) = self.market.send(self.any_instance(), request).await else { return };
        let Some(guest) = said.body["token"].as_str() else { return };
        let number = {
            let mut numbers = self.market.numbers();
            numbers.guests += 1;
            numbers.guests
        };
        for _ in 0..self.dice.between(1, 4) {
            self.add_as_guest(number, guest).await;
        }
        let late = async {
            if self.late_guests && self.dice.permille(500) {
                self.dice.sleep_ms(0, 30).await;
                self.add_as_guest(number, guest).await;
            }
        };
        futures_util::future::join(self.log_in_with(number, guest), late).await;
    }

    async fn log_in_with(&self, number: usize, guest: &str) {
        let who = json!({ "email": self.market.customers()[self.customer].email, "password": PASSWORD });
        for _ in 0..3 {
            let (instance, asked_ms) = (self.any_instance(), self.market.now_ms());
            let request = Request {
                method: Method::POST,
                path: "/v1/sessions/login".to_owned(),
                token: Some(guest),
                key: None,
                body: Some(who.clone()),
            };
            let said = self.market.send(instance, request).await;
            let answer = meant(said.as_ref(), &[], |_| Answer::Done);
            let call = Call::Merge { customer: self.customer, guest: number };
            self.market.record(self.client, instance, asked_ms, call, answer.clone());
            if answer != Answer::Open {
                return;
            }
            self.dice.sleep_ms(50, 1_000).await;
        }
    }

    async fn add_as_guest(&self, guest: usize, token: &str) {
        let (market, instance, item, units) =
            (&self.market, self.any_instance(), self.item(), self.dice.between(1, 3));
        let body = json!({ "product_id": market.products()[item], "quantity": units });
        let request = Request {
            method: Method::POST,
            path: "/v1/cart/items".to_owned(),
            token: Some(token),
            key: None,
            body: Some(body),
        };
        let asked_ms = market.now_ms();
        let said = market.send(instance, request).await;
        let refusals =
            [("unauthorized", Answer::Refused("unauthorized")), ("out_of_stock", Answer::Refused("no"))];
        let answer = meant(said.as_ref(), &refusals, |_| Answer::Done);
        let call = Call::Add { customer: self.customer, guest: Some(guest), item, units };
        market.record(self.client, instance, asked_ms, call, answer);
    }
}

/// Whoever asks while the same is still done.
const IN_PROGRESS: (&str, Answer) = ("in_progress", Answer::Open);

/// Asks with a token, and writes down whether it was accepted.
async fn present_with(
    market: &Market,
    client: usize,
    instance: usize,
    (session, token): (usize, usize),
    request: Request<'_>,
) -> (Option<Said>, Option<Answer>) {
    let asked_ms = market.now_ms();
    let said = market.send(instance, request).await;
    let accepted = presented(said.as_ref());
    if let Some(answer) = &accepted {
        market.record(client, instance, asked_ms, Call::Present { session, token }, answer.clone());
    }
    (said, accepted)
}

/// Each status with who moved the order there.
pub(crate) fn history_of(history: &Value) -> Vec<(String, Option<String>)> {
    let change = |change: &Value| {
        (change["status"].as_str().unwrap().to_owned(), change["operator"].as_str().map(str::to_owned))
    };
    history.as_array().unwrap().iter().map(change).collect()
}
