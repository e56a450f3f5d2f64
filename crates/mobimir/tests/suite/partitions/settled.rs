//! What every instance says when all is settled, and the judgement: by the checker of the simulator.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use hyper::Method;
use mobimir_core::id::OrderId;
use mobimir_simulator::{
    checker::{FinalOrder, FinalState, FinalStock, Limits, Violation, check},
    history::{Call, Operation},
};
use serde_json::{Value, json};

use super::{
    market::{Account, Market, stock_at},
    shopper::history_of,
};
use crate::support::{
    Client,
    shop::{PASSWORD, operator},
};

/// `session_cache_s`, the budget of a product's page and the deadline of checkouts, as the policy has them.
const LIMITS: Limits = Limits { session_cache_ms: 2_000, staleness_ms: 2_000, checkout_deadline_ms: 15_000 };
/// How long what was left open may take: a checkout past its deadline, a guest's cart after the last request.
const SETTLES_IN_MAX: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_secs(2);
const HURT: &str = "the servers were just hurt";

/// Nothing that anybody was answered contradicts the rest, or what any instance says in the end.
pub(crate) async fn assert_all_is_true(market: &Market) {
    let operations = market.operations();
    let started = Instant::now();
    for instance in 0..market.hosts().len() {
        loop {
            let end = final_state(market, instance, &operations).await;
            let violations = check(&operations, &end, LIMITS);
            if violations.is_empty() {
                break;
            }
            let is_over = started.elapsed() > SETTLES_IN_MAX || is_final(&operations, &violations);
            assert!(!is_over, "as instance {instance} says: {}", told(&operations, &violations));
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether the answers contradict each other already, without the end.
fn is_final(operations: &[Operation], violations: &[Violation]) -> bool {
    let without_end = check(operations, &FinalState::default(), LIMITS);
    violations.iter().any(|violation| without_end.contains(violation))
}

/// What is wrong, and in what order it came about.
fn told(operations: &[Operation], violations: &[Violation]) -> String {
    if let Some(path) = std::env::var_os("MOBIMIR_HISTORY") {
        let lines: Vec<String> = operations.iter().map(|operation| format!("{operation:?}\n")).collect();
        std::fs::write(&path, lines.concat()).unwrap();
    }
    format!("{violations:#?}\n({} operations; MOBIMIR_HISTORY=FILE writes them out)", operations.len())
}

async fn final_state(market: &Market, instance: usize, operations: &[Operation]) -> FinalState {
    let host = &market.hosts()[instance];
    let mut end = FinalState::default();
    let mut customers = Vec::new();
    for (number, account) in market.customers().iter().enumerate() {
        let mut client = log_in(host, account).await;
        let cart = client.get("/v1/cart").await.expect(200);
        end.carts.insert(number, market.cart_of(&cart));
        let history = all_pages(&mut client, "/v1/orders?limit=100").await;
        customers.push((client, history));
    }
    let mut days = BTreeMap::<String, BTreeMap<String, Value>>::new();
    // As it was asked for first: whoever reuses a key for something else is refused.
    let mut keys = BTreeMap::new();
    for operation in operations {
        if let Call::Order { customer, key, lines, .. } = &operation.call {
            keys.entry((*customer, key.clone())).or_insert(lines.is_none());
        }
    }
    for ((customer, key), is_of_cart) in keys {
        let (client, own) = &mut customers[customer];
        let id = OrderId::of(market.customers()[customer].user, &key).to_string();
        let found = client.get(&format!("/v1/orders/{id}")).await;
        let order = if found.status == 404 {
            None
        } else {
            let order = found.expect(200);
            let history = client.get(&format!("/v1/orders/{id}/history")).await.expect(200);
            let day = order["created_at"].as_str().unwrap()[..10].to_owned();
            let of_day = match days.entry(day) {
                std::collections::btree_map::Entry::Occupied(of_day) => of_day.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let path = format!("/v1/reports/orders?day={}&limit=100", place.key());
                    place.insert(all_pages(&mut patient_operator(host), &path).await)
                }
            };
            let is_in = |list: &BTreeMap<String, Value>| {
                list.get(&id).is_some_and(|listed| {
                    listed["items"] == order["items"] && listed["status"] == order["status"]
                })
            };
            Some(FinalOrder {
                lines: market.lines_of(&order),
                is_of_cart,
                history: history_of(&history),
                is_in_history: is_in(own),
                is_in_day: is_in(of_day),
                id,
            })
        };
        end.orders.insert((customer, key), order);
    }
    for (item, product) in market.products().iter().enumerate() {
        let (available, reserved, sold) = stock_at(host, product).await;
        end.stock.insert(item, FinalStock { initial: Market::initial(item), available, reserved, sold });
    }
    end
}

fn patient_operator(host: &str) -> Client {
    operator(host).without_read_after().tolerating_503(HURT)
}

async fn log_in(host: &str, account: &Account) -> Client {
    let who = json!({ "email": account.email, "password": PASSWORD });
    let mut anyone = Client::new(host).tolerating_503(HURT);
    let login = anyone.certain(Method::POST, "/v1/sessions/login", &[], Some(who)).await.expect(200);
    let token = login["token"].as_str().unwrap();
    Client::with_token(host, token).without_read_after().tolerating_503(HURT)
}

/// By id. None is listed twice.
async fn all_pages(client: &mut Client, path: &str) -> BTreeMap<String, Value> {
    let (mut orders, mut next) = (BTreeMap::new(), path.to_owned());
    loop {
        let page = client.get(&next).await.expect(200);
        for order in page["items"].as_array().unwrap() {
            let id = order["order_id"].as_str().unwrap().to_owned();
            assert!(orders.insert(id, order.clone()).is_none(), "ORD-2: listed twice: {order}");
        }
        match page["next"].as_str() {
            Some(after) => next = format!("{path}&after={after}"),
            None => return orders,
        }
    }
}

/// Which events have not happened in a run, of those that give the checker something to judge.
pub(crate) fn missing(operations: &[Operation]) -> BTreeSet<&'static str> {
    let event =
        |operation: &Operation| mobimir_simulator::shoppers::event_of(&operation.call, &operation.answer);
    let happened: BTreeSet<&str> = operations.iter().map(event).collect();
    EVENTS.into_iter().filter(|event| !happened.contains(event)).collect()
}

const EVENTS: [&str; 17] = [
    "added to a cart",
    "asked",
    "cart ordered",
    "cart read",
    "guest merged",
    "key of another request",
    "lines ordered",
    "logged out",
    "nothing to order",
    "order moved",
    "order replayed",
    "outcome open",
    "price changed",
    "product viewed",
    "restocked",
    "token refreshed",
    "token refused",
];
