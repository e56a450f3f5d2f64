//! Buyers, returns, operators and crashes at random, beside the plain rules.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use mobimir_core::{
    policy::Entity,
    ports::{ProductStore, StoreError},
    product::{Decision, Hold, HoldKind, HoldOutcome, Product, StockChange, StockOutcome, Verdict},
};
use mobimir_mongodb::{Deployment, MongoProducts, StripeFaults};
use proptest::{
    collection,
    prelude::*,
    test_runner::{Config, TestRunner},
};

use super::stored;
use crate::{
    products::{now, phone, sale},
    support::{fresh, shared},
};

const CASES: u32 = 24;
const ACTS: usize = 30;
/// The steps of splitting a product that is whole. [`crash_while_splitting`] stops at one of them.
const STEPS_OF_SPLIT: i64 = 3;

#[derive(Clone, Copy, Debug)]
enum Act {
    Buy { units: u64 },
    Decide { which: usize, wins: bool },
    GiveBack { which: usize },
    Change { delta: i64 },
    Split { stripes: u16 },
}

/// An act, and after how many steps of the work on stripes the instance stops, if it does.
fn act() -> impl Strategy<Value = (Act, Option<i64>)> {
    let act = prop_oneof![
        5 => (1..8u64).prop_map(|units| Act::Buy { units }),
        4 => (any::<prop::sample::Index>(), prop::bool::weighted(0.7))
            .prop_map(|(which, wins)| Act::Decide { which: which.index(1 << 16), wins }),
        1 => any::<prop::sample::Index>().prop_map(|which| Act::GiveBack { which: which.index(1 << 16) }),
        1 => (-5..8i64).prop_map(|delta| Act::Change { delta }),
        2 => (0..6u16).prop_map(|stripes| Act::Split { stripes }),
    ];
    (act, proptest::option::weighted(0.3, 0..12i64))
}

/// Every case begins with it, so chance does not decide whether anything crashes at all.
fn crash_while_splitting() -> impl Strategy<Value = (Act, Option<i64>)> {
    (2..6u16, 0..STEPS_OF_SPLIT).prop_map(|(stripes, steps)| (Act::Split { stripes }, Some(steps)))
}

fn acts() -> impl Strategy<Value = Vec<(Act, Option<i64>)>> {
    (crash_while_splitting(), collection::vec(act(), 1..ACTS)).prop_map(|(first, mut acts)| {
        acts.insert(0, first);
        acts
    })
}

/// Stops at the step that is `steps` away, and counts that it did.
fn stopping(steps: Option<i64>, crashes: &Arc<AtomicUsize>) -> StripeFaults {
    let Some(steps) = steps else { return StripeFaults::none() };
    let (left, crashes) = (AtomicI64::new(steps), crashes.clone());
    StripeFaults::planned(move |_| {
        let stops = left.fetch_sub(1, Ordering::Relaxed) <= 0;
        crashes.fetch_add(usize::from(stops), Ordering::Relaxed);
        stops
    })
}

#[test]
fn whatever_happens_the_books_are_those_of_the_plain_rules() {
    let shared = shared();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let fresh = runtime.block_on(fresh(shared.mongo, &[Entity::Products]));
    let crashes = Arc::new(AtomicUsize::new(0));
    let config =
        Config { cases: CASES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let outcome = TestRunner::new(config).run(&acts(), |acts| {
        runtime.block_on(run(&fresh.deployment, &acts, &crashes));
        Ok(())
    });
    if let Err(reason) = outcome {
        panic!("{reason}");
    }
    let crashes = crashes.load(Ordering::Relaxed);
    assert!(crashes >= CASES as usize, "only {crashes} crashes in {CASES} cases");
}

async fn run(deployment: &Arc<Deployment>, acts: &[(Act, Option<i64>)], crashes: &Arc<AtomicUsize>) {
    let mut model = phone(20);
    MongoProducts::new(deployment.clone()).insert(vec![model.clone()]).await.unwrap();
    let mut sold: BTreeMap<usize, Hold> = BTreeMap::new();
    for (number, (act, stops)) in acts.iter().enumerate() {
        // Every act is of a new instance, which knows nothing of what the one before has left.
        let products = MongoProducts::new(deployment.clone()).with_faults(stopping(*stops, crashes));
        match *act {
            Act::Buy { units } => {
                let hold = sale(units);
                let mut after = model.clone();
                let expected = after.hold(hold, now());
                match products.hold(model.id, hold, now()).await {
                    Ok(outcome) => {
                        assert_eq!(outcome, expected);
                        model = after;
                    }
                    Err(error) => model = one_of(deployment, error, model, after).await,
                }
            }
            Act::Decide { which, wins } => {
                let Some(hold) = pick(&model.holds, which) else { continue };
                let decision = if wins { Decision::Won(hold.attempt) } else { Decision::Lost };
                let verdict = match hold.kind {
                    HoldKind::Sale => Verdict { sale: decision, cancellation: Decision::Undecided },
                    HoldKind::Return => Verdict { sale: Decision::Undecided, cancellation: decision },
                };
                let mut after = model.clone();
                assert!(after.settle(hold.order, verdict, now()));
                match products.settle(model.id, hold.order, verdict, now()).await {
                    Ok(settled) => {
                        assert!(settled);
                        model = after;
                    }
                    Err(error) => model = one_of(deployment, error, model, after).await,
                }
                let is_settled = model.holds.iter().all(|it| it.order != hold.order);
                if is_settled && wins && hold.kind == HoldKind::Sale {
                    sold.insert(number, hold);
                }
            }
            Act::GiveBack { which } => {
                let orders: Vec<usize> = sold.keys().copied().collect();
                let Some(key) = pick(&orders, which) else { continue };
                let Some(bought) = sold.remove(&key) else { continue };
                let back = Hold { kind: HoldKind::Return, attempt: sale(1).attempt, ..bought };
                let mut after = model.clone();
                let expected = after.hold(back, now());
                match products.hold(model.id, back, now()).await {
                    Ok(outcome) => {
                        assert_eq!(outcome, expected);
                        assert_eq!(outcome, HoldOutcome::Held);
                        model = after;
                    }
                    Err(error) => model = one_of(deployment, error, model, after).await,
                }
            }
            Act::Change { delta } => {
                let zone = crate::products::msk();
                let mut after = model.clone();
                let expected = after.change_stock(zone, StockChange::Delta(delta), now());
                match products.change_stock(model.id, zone, StockChange::Delta(delta), now()).await {
                    Ok(outcome) => {
                        assert_eq!(outcome, expected);
                        if matches!(outcome, StockOutcome::Changed(_)) {
                            model = after;
                        }
                    }
                    Err(error) => model = one_of(deployment, error, model, after).await,
                }
            }
            Act::Split { stripes } => {
                let split = products.stripe(model.id, stripes, now()).await;
                if let Err(error) = split {
                    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
                }
            }
        }
        let seen = stored(&MongoProducts::new(deployment.clone()), &model).await;
        assert_eq!(seen, model, "after {act:?}, which stops after {stops:?}");
    }
    let products = MongoProducts::new(deployment.clone());
    products.stripe(model.id, 1, now()).await.unwrap();
    assert_eq!(stored(&products, &model).await, model, "put together");
}

/// What nobody knows has happened, or it has not.
async fn one_of(deployment: &Arc<Deployment>, error: StoreError, before: Product, after: Product) -> Product {
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    let seen = stored(&MongoProducts::new(deployment.clone()), &before).await;
    assert!(seen == before || seen == after, "{seen:?} is neither {before:?} nor {after:?}");
    seen
}

fn pick<T: Copy>(among: &[T], which: usize) -> Option<T> {
    among.get(which.checked_rem(among.len())?).copied()
}
