//! Every policy that comes with the program, as it is: what it promises, at the levels that it names.

use std::{collections::BTreeSet, time::Duration};

use mobimir_cassandra::{RequestSeen, StatementKind};
use mobimir_core::{
    order::OrderStatus,
    policy::{BUILT_IN, Entity, Policy, Store},
    time::SystemClock,
};
use mobimir_shop::faults::Faults;
use mobimir_testkit::conformance::ConformanceOptions;

use crate::{
    carts, orders, sessions,
    support::{self, Fresh},
    world::{World, order_of_cart},
};

/// How long a policy that gives a promise up may take to keep it.
const PATIENCE: Duration = Duration::from_secs(10);

fn options(policy: &Policy) -> ConformanceOptions {
    let gives_up = !policy.given_up().is_empty();
    ConformanceOptions {
        cases: 2,
        steps: 24,
        rounds: 1,
        patience: if gives_up { PATIENCE } else { Duration::ZERO },
        ..ConformanceOptions::default()
    }
}

fn conform(name: &str) {
    let policy = support::policy(name);
    let lives_there =
        |entity| policy.placement(entity).is_some_and(|placement| placement.home == Store::Cassandra);
    if lives_there(Entity::Carts) {
        carts::conform(name, options(&policy));
    }
    if lives_there(Entity::Orders) {
        orders::conform(name, options(&policy));
    }
    if lives_there(Entity::OrderHistory) {
        orders::conform_history(name, options(&policy));
    }
    if lives_there(Entity::Sessions) {
        sessions::conform(name, options(&policy));
    }
}

#[test]
fn history_only() {
    conform("history-only");
}

#[test]
fn status_log() {
    conform("status-log");
}

#[test]
fn bucketed() {
    conform("bucketed");
}

#[test]
fn quorum() {
    conform("quorum");
}

/// What the cluster itself wrote down about a request: its level, and that of decisions.
async fn levels(fresh: &Fresh, seen: &RequestSeen) -> (String, Option<String>) {
    let trace = seen.trace.expect("every request is traced");
    let select = "SELECT parameters['consistency_level'], parameters['serial_consistency_level'] \
        FROM system_traces.sessions WHERE session_id = ?";
    for _ in 0..100 {
        let rows = fresh.cluster.session().query_unpaged(select, (trace,)).await.expect("traces can be read");
        let rows = rows.into_rows_result().expect("rows");
        if let Some((Some(level), serial)) =
            rows.maybe_first_row::<(Option<String>, Option<String>)>().expect("a row")
        {
            return (level, serial);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the trace of {seen:?} does not come")
}

/// Observed, not assumed: the cluster says at which level every statement came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_comes_at_the_level_that_the_policy_names() {
    let ring = support::shared();
    for built_in in BUILT_IN {
        let policy = support::policy(built_in.name);
        let all = [Entity::Carts, Entity::Orders, Entity::Sessions];
        let there = |entity: &Entity| policy.placement(*entity).is_some_and(|p| p.home == Store::Cassandra);
        if !all.iter().all(there) {
            continue;
        }
        let fresh = support::watched(ring.ring, &policy, &all).await;
        let log = fresh.log.clone().expect("requests are written down");
        let world = World::on(fresh.cluster.clone(), &policy, std::sync::Arc::new(SystemClock)).await;
        let shop = world.shop(Faults::none());
        let (user, product) = (world.user(), world.product(10).await);
        let caller = world.caller(&shop, user).await;
        shop.add_to_cart(&caller, product, 1, None, None).await.expect("it is put into the cart");
        let order = shop.place_order(user, "key", order_of_cart()).await.expect("it is ordered").order;
        shop.move_order(order.id, OrderStatus::Cancelled, "анна").await.expect("it is cancelled");
        world.check_orders(user).await;
        let _ = shop.abandoned_carts(None, 10).await.expect("carts are listed");

        let mut seen_of = BTreeSet::new();
        let mut checked = BTreeSet::new();
        for seen in log.take() {
            if !checked.insert((
                seen.entity.as_str(),
                seen.statement,
                seen.kind == StatementKind::DecidedRead,
            )) {
                continue;
            }
            let settings = support::settings(&policy, seen.entity);
            let (level, serial) = levels(&fresh, &seen).await;
            let what = format!("{}: {} of {}", policy.name, seen.statement, seen.entity);
            let expected = match seen.kind {
                StatementKind::Read => settings.read.as_str(),
                StatementKind::Write | StatementKind::Decision => settings.write.as_str(),
                StatementKind::DecidedRead => settings.serial.as_str(),
            };
            assert_eq!(level, expected, "{what}");
            if seen.kind == StatementKind::Decision {
                assert_eq!(serial.as_deref(), Some(settings.serial.as_str()), "{what}");
            }
            seen_of.insert(seen.entity.as_str());
        }
        assert_eq!(seen_of.len(), 3, "{}: requests of {seen_of:?} only", policy.name);
    }
}
