use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn product(units: u64) -> Product {
    let stock = BTreeMap::from([(Zone::parse("MSK").unwrap(), units)]);
    Product::new(
        ProductId(Uuid::from_u128(1)),
        "Телефон".into(),
        "Электроника".into(),
        Money::ZERO,
        BTreeMap::new(),
        stock,
        Timestamp::default(),
    )
    .unwrap()
}

fn hold(order: u128, attempt: u128, kind: HoldKind, quantity: u64) -> Hold {
    Hold {
        order: OrderId(Uuid::from_u128(order)),
        attempt: AttemptId(Uuid::from_u128(attempt)),
        kind,
        zone: Zone::parse("MSK").unwrap(),
        quantity,
        placed_at: Timestamp::default(),
    }
}

#[test]
fn only_the_named_run_sells_and_only_once() {
    let now = Timestamp::default();
    let mut phone = product(10);
    let order = OrderId(Uuid::from_u128(9));
    assert_eq!(phone.hold(hold(9, 1, HoldKind::Sale, 3), now), HoldOutcome::Held);
    assert_eq!(phone.hold(hold(9, 1, HoldKind::Sale, 3), now), HoldOutcome::AlreadyHeld);
    assert_eq!(phone.hold(hold(9, 2, HoldKind::Sale, 3), now), HoldOutcome::Held);
    assert_eq!(phone.hold(hold(8, 1, HoldKind::Sale, 5), now), HoldOutcome::Short { available: 4 });

    let undecided = Verdict { sale: Decision::Undecided, cancellation: Decision::Undecided };
    assert!(!phone.settle(order, undecided, now));
    let verdict =
        Verdict { sale: Decision::Won(AttemptId(Uuid::from_u128(2))), cancellation: Decision::Undecided };
    assert!(phone.settle(order, verdict, now));
    assert!(!phone.settle(order, verdict, now));
    let stock = phone.stock[&Zone::parse("MSK").unwrap()];
    assert_eq!((stock.available, stock.reserved, stock.sold), (7, 0, 3));
    assert!(phone.books_balance());
}

#[test]
fn a_return_waits_for_its_decision_and_counts_once() {
    let now = Timestamp::default();
    let mut phone = product(10);
    let order = OrderId(Uuid::from_u128(9));
    phone.hold(hold(9, 1, HoldKind::Sale, 3), now);
    for attempt in [5, 6] {
        phone.hold(hold(9, attempt, HoldKind::Return, 3), now);
    }
    let verdict = Verdict {
        sale: Decision::Won(AttemptId(Uuid::from_u128(1))),
        cancellation: Decision::Won(AttemptId(Uuid::from_u128(6))),
    };
    phone.settle(order, verdict, now);
    phone.settle(order, verdict, now);
    let stock = phone.stock[&Zone::parse("MSK").unwrap()];
    assert_eq!((stock.available, stock.reserved, stock.sold), (10, 0, 0));
    assert!(phone.books_balance());
}

proptest! {
    /// STK-1 and STK-2 whatever happens in whatever order.
    #[test]
    fn books_balance_after_any_history(steps in proptest::collection::vec((0..6u8, 0..4u128, 0..3u128, 0..12u64), 1..60)) {
        let now = Timestamp::default();
        let mut phone = product(20);
        let mut sold = BTreeMap::<u128, u128>::new();
        for (step, order, attempt, quantity) in steps {
            let id = OrderId(Uuid::from_u128(order));
            match step {
                0 => { phone.change_stock(Zone::parse("MSK").unwrap(), StockChange::SetAvailable(quantity), now); }
                1 => { phone.change_stock(Zone::parse("MSK").unwrap(), StockChange::Delta(quantity as i64 - 6), now); }
                2 => { phone.hold(hold(order, attempt, HoldKind::Sale, quantity), now); }
                // As in the shop, only the run that the record names is settled as won, and one run is ever named.
                3 => {
                    let winner = *sold.entry(order).or_insert(attempt);
                    let verdict = Verdict { sale: Decision::Won(AttemptId(Uuid::from_u128(winner))), cancellation: Decision::Undecided };
                    phone.settle(id, verdict, now);
                }
                4 => { phone.settle(id, Verdict { sale: Decision::Lost, cancellation: Decision::Undecided }, now); }
                _ => { phone.settle(id, Verdict { sale: Decision::Lost, cancellation: Decision::Lost }, now); }
            }
            prop_assert!(phone.books_balance(), "{:?}", phone);
        }
    }
}
