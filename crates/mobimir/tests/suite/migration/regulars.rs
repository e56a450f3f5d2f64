//! People who log in, fill and empty their cart, order and log out, all the time, at every instance; and whether all of it is
//! as they were told.

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
    troubles::Failure,
    world::{SHORT_TIMEOUTS, now_ms, tell},
};
use crate::support::{
    Answer, Client, Customer,
    shop::{PASSWORD, assert_orders_found, items, product, settled_stock},
};

const REGULARS_PER_HOST: usize = 2;
/// Between two requests of one of them.
const PAUSE: Duration = Duration::from_millis(250);
/// An instance may remember a session for two seconds after another has ended it, and a busy one asks late.
const ENDED_FOR_SURE_AFTER: Duration = Duration::from_secs(6);
const UNITS: u64 = 1_000_000;
/// So many of those who have logged out are tried again at the end.
const ENDED_TRIED_MAX: usize = 300;

pub(crate) struct Regulars {
    product: String,
    hosts: Vec<String>,
    over: Arc<AtomicBool>,
    shopping: Vec<tokio::task::JoinHandle<Regular>>,
}

struct Regular {
    host: String,
    email: String,
    product: String,
    /// Units in the cart: at least these, and up to so many more whose answer was lost, now or later.
    units: u64,
    units_in_doubt: u64,
    orders: Vec<Value>,
    keys_in_doubt: Vec<String>,
    /// Tokens of sessions that are over, and since when.
    ended: Vec<(String, Instant)>,
    failures: Vec<Failure>,
    visits: usize,
}

impl Regulars {
    pub(crate) async fn start(hosts: Vec<String>) -> Self {
        let product = product(&hosts[0], UNITS).await;
        let over = Arc::<AtomicBool>::default();
        let mut shopping = Vec::new();
        for host in hosts.iter().cycle().take(hosts.len() * REGULARS_PER_HOST) {
            let customer = Customer::new(host).await;
            let regular = Regular {
                host: host.clone(),
                email: customer.email,
                product: product.clone(),
                units: 0,
                units_in_doubt: 0,
                orders: Vec::new(),
                keys_in_doubt: Vec::new(),
                ended: Vec::new(),
                failures: Vec::new(),
                visits: 0,
            };
            shopping.push(tokio::spawn(regular.shop(over.clone())));
        }
        Self { product, hosts, over, shopping }
    }

    /// Looks at everything that they were told; what failed meanwhile.
    pub(crate) async fn end(self) -> Vec<Failure> {
        self.over.store(true, Ordering::SeqCst);
        let (mut failures, mut ordered, mut visits, mut ended) = (Vec::new(), 0, 0, 0);
        for regular in self.shopping {
            let mut regular = regular.await.unwrap();
            ordered += regular.check(&self.hosts).await;
            visits += regular.visits;
            ended += regular.ended.len();
            failures.append(&mut regular.failures);
        }
        let stock = settled_stock(&self.hosts[0], &self.product).await;
        assert_eq!(stock, (UNITS - ordered, 0, ordered), "STK-1: what was sold is what was ordered");
        let failed = failures.len();
        tell(&format!("{visits} visits, {ordered} orders, {ended} sessions ended, {failed} requests failed"));
        assert!(ordered > 0 && ended > 0, "nobody came");
        failures
    }
}

impl Regular {
    async fn shop(mut self, over: Arc<AtomicBool>) -> Self {
        while !over.load(Ordering::SeqCst) {
            self.visits += 1;
            self.visit().await;
            tokio::time::sleep(PAUSE).await;
        }
        self
    }

    /// Whoever fails once goes, and comes again.
    async fn visit(&mut self) -> Option<()> {
        let host = self.host.clone();
        let who = json!({ "email": self.email, "password": PASSWORD });
        let login =
            self.ask(&mut Client::new(&host), Method::POST, "/v1/sessions/login", None, Some(who)).await?;
        let token = login.expect(200)["token"].as_str().unwrap().to_owned();
        let mut client = Client::with_token(&host, &token);
        let cart = self.ask(&mut client, Method::GET, "/v1/cart", None, None).await?;
        self.check_cart(&cart);
        if self.visits.is_multiple_of(3) {
            self.empty_the_cart(&mut client).await?;
        } else {
            self.add(&mut client).await?;
        }
        if self.visits.is_multiple_of(2) {
            self.order(&mut client).await?;
        }
        if self.visits.is_multiple_of(5) {
            self.try_one_that_ended().await?;
        }
        let left = self.ask(&mut client, Method::DELETE, "/v1/sessions/current", None, None).await?;
        left.expect(204);
        self.ended.push((token, Instant::now()));
        Some(())
    }

    /// `None` if nobody knows what became of it.
    async fn ask(
        &mut self,
        client: &mut Client,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Value>,
    ) -> Option<Answer> {
        tokio::time::sleep(PAUSE).await;
        let headers: Vec<(&str, &str)> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
        let (began_ms, about) = (now_ms(), format!("{method} {path}"));
        let (what, is_refused) = match client.send(method, path, &headers, body).await {
            Ok(answer) if answer.is_unsettled() => {
                (format!("{about}: {}", String::from_utf8_lossy(&answer.body)), true)
            }
            Ok(answer) => return Some(answer),
            Err(error) => (format!("{about}: {error}"), false),
        };
        let host = self.host.clone();
        self.failures.push(Failure { host, began_ms, ended_ms: now_ms(), is_refused, what });
        None
    }

    async fn add(&mut self, client: &mut Client) -> Option<()> {
        let line = json!({ "product_id": self.product, "quantity": 1 });
        let added = self.ask(client, Method::POST, "/v1/cart/items", None, Some(line)).await;
        match &added {
            Some(added) => {
                added.expect(200);
                self.units += 1;
            }
            None => self.units_in_doubt += 1,
        }
        added.map(drop)
    }

    async fn empty_the_cart(&mut self, client: &mut Client) -> Option<()> {
        let emptied = self.ask(client, Method::DELETE, "/v1/cart", None, None).await;
        match &emptied {
            Some(emptied) => drop(emptied.expect(200)),
            None => self.units_in_doubt += self.units,
        }
        // What was in doubt may come after that.
        self.units = 0;
        emptied.map(drop)
    }

    async fn order(&mut self, client: &mut Client) -> Option<()> {
        let (key, body) = (format!("visit {}", self.visits), items(&self.product, 1));
        let placed = self.ask(client, Method::POST, "/v1/orders", Some(&key), Some(body)).await;
        match &placed {
            Some(placed) if placed.status == 409 => drop(placed.problem(409, "checkout_aborted")),
            Some(placed) => self.orders.push(placed.expect(201)),
            None => self.keys_in_doubt.push(key),
        }
        placed.map(drop)
    }

    async fn try_one_that_ended(&mut self) -> Option<()> {
        let old = self.ended.iter().rev().find(|(_, at)| at.elapsed() > ENDED_FOR_SURE_AFTER);
        let mut client = Client::with_token(&self.host, &old?.0.clone());
        let answer = self.ask(&mut client, Method::GET, "/v1/cart", None, None).await?;
        assert_eq!(answer.status, 401, "SES-1: a session that was ended is good again");
        Some(())
    }

    fn check_cart(&self, answer: &Answer) {
        let cart = answer.expect(200);
        let lines = cart["items"].as_array().unwrap().iter();
        let units: u64 = lines.map(|line| line["quantity"].as_u64().unwrap()).sum();
        let possible = self.units..=self.units + self.units_in_doubt;
        assert!(
            possible.contains(&units),
            "CRT-1: {units} units in the cart of {}, {possible:?}",
            self.email
        );
    }

    /// Every instance says the same as every answer did; how many orders there are.
    async fn check(&mut self, hosts: &[String]) -> u64 {
        let who = json!({ "email": self.email, "password": PASSWORD });
        for (number, host) in hosts.iter().enumerate() {
            let mut anyone = Client::new(host).tolerating_503(SHORT_TIMEOUTS);
            let login = anyone.certain(Method::POST, "/v1/sessions/login", &[], Some(who.clone())).await;
            let token = login.expect(200)["token"].as_str().unwrap().to_owned();
            let mut client = Client::with_token(host, &token).tolerating_503(SHORT_TIMEOUTS);
            for key in std::mem::take(&mut self.keys_in_doubt) {
                let placed = client.order(&key, items(&self.product, 1)).await;
                match placed.status.as_u16() {
                    409 => drop(placed.problem(409, "checkout_aborted")),
                    _ => self.orders.push(placed.expect(201)),
                }
            }
            self.check_cart(&client.get("/v1/cart").await);
            assert_orders_found(host, &mut client, &self.orders).await;
            let tried = self.ended.iter().rev().skip(number).step_by(hosts.len()).take(ENDED_TRIED_MAX);
            for (token, _) in tried.filter(|(_, at)| at.elapsed() > ENDED_FOR_SURE_AFTER) {
                let mut client = Client::with_token(host, token).tolerating_503(SHORT_TIMEOUTS);
                let answer = client.get("/v1/cart").await;
                answer.problem(401, "unauthorized");
            }
        }
        self.orders.len() as u64
    }
}
