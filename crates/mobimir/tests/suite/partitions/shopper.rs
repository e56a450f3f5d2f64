//! Somebody who fills a cart, orders it and refreshes the session, at one instance and the other, and comes
//! back until every order has an answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use serde_json::{Value, json};

use super::{
    PATIENCE,
    record::{Asked, Operation, Outcome, Record},
};
use crate::support::{Client, Customer, shop::PASSWORD};

/// Then the client hangs up, and the request goes on or does not.
const HANGS_UP_AFTER: Duration = Duration::from_millis(2_500);
/// Before the same is asked again.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Shopper {
    pub(crate) number: usize,
    pub(crate) email: String,
    hosts: [String; 2],
    record: Record,
    products: Vec<String>,
    /// The last answer to a login or a refresh, unless it is in doubt.
    session: Option<Value>,
    visits: usize,
    requests: usize,
}

impl Shopper {
    pub(crate) async fn new(
        number: usize,
        hosts: [String; 2],
        record: Record,
        products: Vec<String>,
    ) -> Self {
        let customer = Customer::new(&hosts.join(",")).await;
        let session = Some(customer.login);
        Self { number, email: customer.email, hosts, record, products, session, visits: 0, requests: number }
    }

    pub(crate) async fn shop(mut self, over: Arc<AtomicBool>) -> Self {
        while !over.load(Ordering::SeqCst) {
            self.visits += 1;
            self.visit().await;
        }
        self
    }

    async fn visit(&mut self) {
        self.log_in().await;
        self.add().await;
        if self.visits.is_multiple_of(2) {
            self.order().await;
        }
        if self.visits.is_multiple_of(3) {
            self.refresh().await;
        }
    }

    async fn log_in(&mut self) {
        let started = Instant::now();
        while self.session.is_none() {
            assert!(started.elapsed() < PATIENCE, "nobody can log in");
            let who = json!({ "email": self.email, "password": PASSWORD });
            let asked = (Asked::LogIn, Method::POST, "/v1/sessions/login");
            if let Outcome::Done(login) = self.ask_next(asked, None, Some(who)).await {
                self.session = Some(login);
            }
        }
    }

    /// Without a key, so whoever has no answer knows nothing.
    async fn add(&mut self) {
        let product = self.products[self.visits % self.products.len()].clone();
        let units = 1 + self.visits as u64 % 3;
        let body = json!({ "product_id": product, "quantity": units, "geo_zone": "MSK" });
        let asked = (Asked::Add { product, units }, Method::POST, "/v1/cart/items");
        self.ask_next(asked, None, Some(body)).await;
    }

    /// Asks both in turn until one of them says what has become of it.
    async fn order(&mut self) {
        let (key, started) = (format!("visit {}", self.visits), Instant::now());
        loop {
            let asked = (Asked::Order { key: key.clone() }, Method::POST, "/v1/orders");
            match self.ask_next(asked, Some(&key), Some(json!({ "geo_zone": "MSK" }))).await {
                Outcome::Refused { code, .. } if code == "in_progress" => {}
                Outcome::Done(_) | Outcome::Refused { .. } => return,
                Outcome::Unknown(_) => {}
            }
            assert!(started.elapsed() < PATIENCE, "an order is never answered");
        }
    }

    /// A token that one instance has just issued is good at the other.
    async fn refresh(&mut self) {
        let Some(session) = self.session.take() else { return };
        let refresh_token = session["refresh_token"].as_str().unwrap().to_owned();
        let body = json!({ "refresh_token": refresh_token });
        let asked = (Asked::Refresh { refresh_token }, Method::POST, "/v1/sessions/refresh");
        // Whoever has no answer may have a token that was used, and does not try it again.
        if let Outcome::Done(refreshed) = self.ask_next(asked, None, Some(body)).await {
            self.session = Some(refreshed);
            self.ask_next((Asked::ReadCart, Method::GET, "/v1/cart"), None, None).await;
        }
    }

    async fn ask_next(
        &mut self,
        asked: (Asked, Method, &str),
        key: Option<&str>,
        body: Option<Value>,
    ) -> Outcome {
        self.requests += 1;
        let instance = self.requests % 2;
        let (asked, method, path) = asked;
        let token = self.session.as_ref().and_then(|session| session["token"].as_str());
        let mut client = match token {
            Some(token) => Client::with_token(&self.hosts[instance], token),
            None => Client::new(&self.hosts[instance]),
        };
        let headers: Vec<(&str, &str)> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
        let began_us = self.record.now_us();
        let answer = tokio::time::timeout(HANGS_UP_AFTER, client.send(method, path, &headers, body)).await;
        let outcome = match answer {
            Err(_) => Outcome::Unknown("the client hung up".to_owned()),
            Ok(Err(error)) => Outcome::Unknown(error.to_string()),
            Ok(Ok(answer)) => match answer.status.as_u16() {
                200..300 => Outcome::Done(answer.json()),
                status @ 400..500 => {
                    Outcome::Refused { status, code: answer.json()["code"].as_str().unwrap().to_owned() }
                }
                503 => Outcome::Unknown(answer.json()["code"].as_str().unwrap().to_owned()),
                _ => panic!("{answer:?}"),
            },
        };
        if !matches!(outcome, Outcome::Done(_)) {
            tokio::time::sleep(PAUSE).await;
        }
        self.record.note(Operation {
            client: self.number,
            instance,
            began_us,
            ended_us: self.record.now_us(),
            asked,
            outcome: outcome.clone(),
        });
        outcome
    }
}
