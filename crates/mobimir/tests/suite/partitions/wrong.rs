//! What instances answer becomes a history, and a wrong one is found.

use mobimir_simulator::{
    checker::{FinalOrder, FinalState, FinalStock, Limits, check},
    history::{Answer, Call, Operation},
};
use serde_json::{Value, json};

use super::market::{Said, meant, order_refusals, presented, read};

const LIMITS: Limits = Limits { session_cache_ms: 2_000, staleness_ms: 2_000, checkout_deadline_ms: 15_000 };

fn said(status: u16, body: Value) -> Said {
    Said { status, body, replayed: false }
}

fn problem(status: u16, code: &str) -> Said {
    said(status, json!({ "code": code }))
}

fn placed(order: &str) -> Answer {
    meant(Some(&said(201, json!({ "order_id": order }))), &order_refusals(), |order| Answer::Placed {
        order: order["order_id"].as_str().unwrap().to_owned(),
        lines: vec![(0, 2, 100)],
        replayed: false,
    })
}

/// One after the other, each at another instance.
fn history(calls: impl IntoIterator<Item = (Call, Answer)>) -> Vec<Operation> {
    let operation = |(number, (call, answer)): (usize, (Call, Answer))| {
        let (asked_ms, answered_ms) = (number as i64 * 10, number as i64 * 10 + 5);
        Operation { client: 1, instance: number % 2, asked_ms, answered_ms, call, answer }
    };
    calls.into_iter().enumerate().map(operation).collect()
}

fn add(answer: Answer) -> (Call, Answer) {
    (Call::Add { customer: 0, guest: None, item: 0, units: 2 }, answer)
}

fn order(answer: Answer) -> (Call, Answer) {
    (Call::Order { customer: 0, key: "key".to_owned(), lines: None, shown: None }, answer)
}

fn refresh(said: &Said) -> (Call, Answer) {
    let refusals = [("bad_refresh_token", Answer::Refused("bad_refresh_token"))];
    let answer = meant(Some(said), &refusals, |_| Answer::Tokens(1));
    (Call::Refresh { session: 1, token: 0 }, answer)
}

fn in_the_end(in_cart: u64, orders: &[&str]) -> FinalState {
    let mut end = FinalState::default();
    end.carts.insert(0, if in_cart > 0 { vec![(0, in_cart)] } else { Vec::new() });
    for (number, id) in orders.iter().enumerate() {
        let key = if number == 0 { "key".to_owned() } else { format!("key {number}") };
        let history = vec![("confirmed".to_owned(), None)];
        let (lines, id) = (vec![(0, 2, 100)], (*id).to_owned());
        let order = FinalOrder { id, lines, is_of_cart: true, history, is_in_history: true, is_in_day: true };
        end.orders.insert((0, key), Some(order));
    }
    let sold = orders.len() as u64 * 2;
    end.stock.insert(0, FinalStock { initial: 10, available: 10 - sold, reserved: 0, sold });
    end
}

fn found(operations: &[Operation], end: &FinalState) -> Vec<&'static str> {
    check(operations, end, LIMITS).into_iter().map(|violation| violation.invariant).collect()
}

#[test]
fn what_can_be_true_is_accepted() {
    let unavailable = problem(503, "unavailable");
    let operations = history([
        add(meant(Some(&said(200, json!({}))), &[], |_| Answer::Done)),
        add(meant(Some(&unavailable), &[], |_| Answer::Done)),
        order(meant(Some(&problem(409, "in_progress")), &order_refusals(), |_| Answer::Done)),
        order(meant(None, &order_refusals(), |_| Answer::Done)),
        order(placed("a")),
        order(placed("a")),
        refresh(&unavailable),
        (Call::ReadCart { customer: 0 }, read(None, &[], |_| Answer::Cart(Vec::new()))),
    ]);
    // The second add has arrived, or it has not.
    for in_cart in [0, 2] {
        assert_eq!(found(&operations, &in_the_end(in_cart, &["a"])), Vec::<&str>::new());
    }
}

#[test]
fn an_answer_that_contradicts_another_is_found() {
    let done = |body: Value| said(200, body);
    let cases = [
        ("ORD-2", history([add(Answer::Done), order(placed("a")), order(placed("b"))])),
        ("SES-2", history([refresh(&done(json!({}))), refresh(&done(json!({})))])),
        ("SES-3", history([refresh(&problem(401, "bad_refresh_token"))])),
        (
            "SES-3",
            history([(
                Call::Present { session: 1, token: 0 },
                presented(Some(&problem(401, "unauthorized"))).unwrap(),
            )]),
        ),
        (
            "ORD-1",
            history([
                add(Answer::Done),
                order(placed("a")),
                (
                    Call::ReadOrder { order: "a".to_owned() },
                    read(Some(&problem(404, "not_found")), &[("not_found", Answer::Order(None))], |_| {
                        Answer::Done
                    }),
                ),
            ]),
        ),
        (
            "CRT-4",
            history([
                add(Answer::Done),
                order(placed("a")),
                (
                    Call::ReadCart { customer: 0 },
                    read(Some(&done(json!({}))), &[], |_| Answer::Cart(vec![(0, 2)])),
                ),
            ]),
        ),
    ];
    for (invariant, operations) in cases {
        let orders: &[&str] = if operations.len() == 3 { &["a"] } else { &[] };
        let found = found(&operations, &in_the_end(0, orders));
        assert!(found.contains(&invariant), "{invariant} is not found: {found:?}");
    }
}

#[test]
fn an_end_that_contradicts_the_answers_is_found() {
    let operations = history([add(Answer::Done), order(placed("a"))]);
    assert_eq!(found(&operations, &in_the_end(0, &["a"])), Vec::<&str>::new());
    assert_eq!(found(&operations, &in_the_end(2, &["a"])), ["CRT-4"]);
    let mut nothing = in_the_end(0, &[]);
    nothing.orders.insert((0, "key".to_owned()), None);
    assert_eq!(found(&operations, &nothing), ["ORD-1", "CRT-1"]);
    let nothing_sold = FinalState { stock: in_the_end(0, &[]).stock, ..in_the_end(0, &["a"]) };
    assert_eq!(found(&operations, &nothing_sold), ["STK-1"]);
}

#[test]
#[should_panic(expected = "refused without a reason")]
fn a_refusal_without_a_reason_is_found() {
    meant(Some(&problem(422, "unknown_product")), &order_refusals(), |_| Answer::Done);
}
