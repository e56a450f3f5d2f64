//! What every client asked and was answered, as a plain list, and whether all of it can be true of one shop.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) client: usize,
    /// That was asked.
    pub(crate) instance: usize,
    /// Since the beginning of the record.
    pub(crate) began_us: u128,
    pub(crate) ended_us: u128,
    pub(crate) asked: Asked,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    LogIn,
    Add {
        product: String,
        units: u64,
    },
    /// The whole cart.
    Order {
        key: String,
    },
    Refresh {
        refresh_token: String,
    },
    /// With an access token that is good as far as its client knows.
    ReadCart,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Done(Value),
    Refused {
        status: u16,
        code: String,
    },
    /// A 503, a connection that ended, or the client has hung up: it may have been done, or may be done
    /// later.
    Unknown(String),
}

#[derive(Clone)]
pub(crate) struct Record {
    started: Instant,
    operations: Arc<Mutex<Vec<Operation>>>,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), operations: Arc::default() }
    }

    pub(crate) fn now_us(&self) -> u128 {
        self.started.elapsed().as_micros()
    }

    pub(crate) fn note(&self, operation: Operation) {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }

    /// In the order in which they ended.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether an instance has answered an order that was asked of it after that.
    pub(crate) fn has_ordered_since(&self, instance: usize, since_us: u128) -> bool {
        self.operations().iter().any(|operation| {
            operation.instance == instance
                && operation.began_us >= since_us
                && matches!((&operation.asked, &operation.outcome), (Asked::Order { .. }, Outcome::Done(_)))
        })
    }
}

/// What one client knows of its own.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// As they were acknowledged, each once.
    pub(crate) orders: Vec<Value>,
    pub(crate) units_ordered: u64,
    /// Units put into the cart for sure, and those that may be there, or may come.
    pub(crate) units_added: u64,
    pub(crate) units_in_doubt: u64,
}

/// Holds the answers of one client against ORD-2, SES-2 and SES-3.
pub(crate) fn account_of(client: usize, operations: &[Operation]) -> Account {
    let mut account = Account::default();
    let mut orders = BTreeMap::<&str, BTreeSet<String>>::new();
    let mut used = BTreeSet::new();
    for operation in operations.iter().filter(|operation| operation.client == client) {
        match (&operation.asked, &operation.outcome) {
            (_, Outcome::Refused { status: 401, .. }) => {
                panic!("SES-3: a token that was just issued is refused: {operation:?}");
            }
            (Asked::Add { units, .. }, Outcome::Done(_)) => account.units_added += units,
            (Asked::Add { units, .. }, Outcome::Unknown(_)) => account.units_in_doubt += units,
            (Asked::Order { key }, Outcome::Done(order)) => {
                let answers = orders.entry(key).or_default();
                if answers.insert(order.to_string()) {
                    let items = order["items"].as_array().unwrap().iter();
                    account.units_ordered +=
                        items.map(|item| item["quantity"].as_u64().unwrap()).sum::<u64>();
                    account.orders.push(order.clone());
                }
                assert_eq!(answers.len(), 1, "ORD-2: the key {key} has several answers: {answers:?}");
            }
            (Asked::Order { .. }, Outcome::Refused { code, .. }) => {
                let expected = ["empty_cart", "cart_ordered", "checkout_aborted", "in_progress"];
                assert!(expected.contains(&code.as_str()), "{operation:?}");
            }
            (Asked::Refresh { refresh_token }, Outcome::Done(_)) => {
                assert!(used.insert(refresh_token), "SES-2: a refresh token worked twice");
            }
            (_, Outcome::Refused { .. }) => panic!("refused without a reason: {operation:?}"),
            (_, Outcome::Done(_) | Outcome::Unknown(_)) => {}
        }
    }
    account
}

/// How long the longest request at an instance took.
pub(crate) fn longest(instance: usize, operations: &[Operation]) -> Duration {
    let of_instance = operations.iter().filter(|operation| operation.instance == instance);
    let longest_us = of_instance.map(|operation| operation.ended_us - operation.began_us).max().unwrap_or(0);
    Duration::from_micros(u64::try_from(longest_us).unwrap_or(u64::MAX))
}

/// How many had which outcome at each instance: done, refused, unknown.
pub(crate) fn counts(operations: &[Operation]) -> [[usize; 3]; 2] {
    let mut counts = [[0; 3]; 2];
    for operation in operations {
        let outcome = match operation.outcome {
            Outcome::Done(_) => 0,
            Outcome::Refused { .. } => 1,
            Outcome::Unknown(_) => 2,
        };
        counts[operation.instance][outcome] += 1;
    }
    counts
}

mod tests {
    use serde_json::json;

    use super::*;

    fn operation(asked: Asked, outcome: Outcome) -> Operation {
        Operation { client: 1, instance: 0, began_us: 1, ended_us: 2, asked, outcome }
    }

    fn ordered(key: &str, id: &str, units: u64) -> Operation {
        let order = json!({ "order_id": id, "items": [{ "quantity": units }] });
        operation(Asked::Order { key: key.to_owned() }, Outcome::Done(order))
    }

    fn refreshed(outcome: Outcome) -> Operation {
        operation(Asked::Refresh { refresh_token: "token".to_owned() }, outcome)
    }

    fn added(units: u64, outcome: Outcome) -> Operation {
        operation(Asked::Add { product: "phone".to_owned(), units }, outcome)
    }

    fn unknown() -> Outcome {
        Outcome::Unknown("timeout".to_owned())
    }

    fn refused(status: u16, code: &str) -> Outcome {
        Outcome::Refused { status, code: code.to_owned() }
    }

    #[test]
    fn what_is_acknowledged_and_what_is_in_doubt_are_counted_apart() {
        let others = Operation { client: 2, ..added(100, Outcome::Done(json!({}))) };
        let key = || Asked::Order { key: "third".to_owned() };
        let account = account_of(
            1,
            &[
                others,
                added(3, Outcome::Done(json!({}))),
                added(2, unknown()),
                operation(Asked::Order { key: "first".to_owned() }, unknown()),
                ordered("first", "a", 2),
                ordered("first", "a", 2),
                ordered("second", "b", 1),
                operation(key(), refused(409, "in_progress")),
                operation(key(), refused(409, "empty_cart")),
                refreshed(unknown()),
                refreshed(Outcome::Done(json!({}))),
            ],
        );
        assert_eq!((account.units_added, account.units_in_doubt), (3, 2));
        assert_eq!((account.units_ordered, account.orders.len()), (3, 2));
    }

    #[test]
    #[should_panic(expected = "ORD-2")]
    fn a_key_with_two_orders_is_found() {
        account_of(1, &[ordered("first", "a", 1), ordered("first", "b", 1)]);
    }

    #[test]
    #[should_panic(expected = "SES-2")]
    fn a_refresh_token_that_worked_twice_is_found() {
        account_of(1, &[refreshed(Outcome::Done(json!({}))), refreshed(Outcome::Done(json!({})))]);
    }

    #[test]
    #[should_panic(expected = "SES-3")]
    fn a_good_token_that_was_refused_is_found() {
        account_of(1, &[operation(Asked::ReadCart, refused(401, "unauthorized"))]);
    }

    #[test]
    #[should_panic(expected = "refused without a reason")]
    fn any_other_refusal_is_found() {
        account_of(1, &[added(1, refused(422, "unknown_product"))]);
    }
}
