//! Every policy that comes with the program, as it is: what it promises, at the levels that it names.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use mobimir_cassandra::{RequestSeen, StatementKind};
use mobimir_core::{
    order::OrderStatus,
    policy::{BUILT_IN, Entity, Level, Policy, Store},
    time::SystemClock,
};
use mobimir_shop::{PlaceOrderError, faults::Faults};
use mobimir_testkit::conformance::{CASES_VARIABLE, ConformanceOptions};

use crate::{
    carts, orders, sessions,
    support::{self, Fresh},
    world::{World, order_of_cart},
};

/// How long an entity may take to keep an invariant that its settings give up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Only an entity whose own settings give something up may be read late.
pub(crate) fn options(policy: &Policy, entity: Entity) -> ConformanceOptions {
    ConformanceOptions {
        steps: 24,
        patience: if policy.weak_settings(entity).is_empty() { Duration::ZERO } else { PATIENCE },
        ..support::options(1)
    }
}

/// As `mobimir policy check` names them.
#[test]
fn only_entities_with_weak_settings_are_given_time() {
    let mut patient: Vec<String> = BUILT_IN
        .iter()
        .flat_map(|built_in| {
            let policy = support::policy(built_in.name);
            let is_patient = |entity: &&Entity| options(&policy, **entity).patience > Duration::ZERO;
            let patient = Entity::ALL.iter().filter(is_patient);
            patient.map(|entity| format!("{}: {entity}", policy.name)).collect::<Vec<_>>()
        })
        .collect();
    patient.sort();
    assert_eq!(patient, ["history-only: sessions", "quorum: carts", "status-log: sessions"]);
}

/// What a store does differently by, on a ring with one data centre: how many replicas it waits for, and where it keeps
/// what. At which level exactly it asks is looked at below, and every option of every table in the tests of the schema.
fn ways(policy: &Policy, entity: Entity) -> Option<impl PartialEq> {
    let placement = policy.placement(entity).filter(|placement| placement.home == Store::Cassandra)?;
    let settings = placement.cassandra.as_ref()?;
    let replicas = |level| match level {
        Level::EachQuorum | Level::LocalQuorum => Level::Quorum,
        Level::LocalOne => Level::One,
        other => other,
    };
    let levels = (replicas(settings.write), replicas(settings.read), settings.serial);
    Some((levels, settings.history_bucket, settings.status, settings.buckets))
}

/// Every entity of a policy that does something in a way of its own; with more cases, every one.
fn conform(name: &str) {
    let policy = support::policy(name);
    let earlier: Vec<Policy> = BUILT_IN
        .iter()
        .take_while(|earlier| earlier.name != name && std::env::var_os(CASES_VARIABLE).is_none())
        .map(|earlier| support::policy(earlier.name))
        .collect();
    let mut conformed = 0;
    for entity in [Entity::Carts, Entity::Orders, Entity::OrderHistory, Entity::Sessions] {
        let way = ways(&policy, entity);
        if way.is_none() || earlier.iter().any(|earlier| ways(earlier, entity) == way) {
            continue;
        }
        match entity {
            Entity::Carts => carts::conform(name, options(&policy, entity)),
            Entity::Orders => orders::conform(name, options(&policy, entity)),
            Entity::OrderHistory => orders::conform_history(name, options(&policy, entity)),
            _ => sessions::conform(name, options(&policy, entity)),
        }
        conformed += 1;
    }
    assert!(conformed > 0, "{name} does nothing in a way of its own");
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

/// What the cluster itself wrote down about a request, or about another like it: its level, and that of decisions. A
/// busy node is late with what it wants to write down, and may drop it.
async fn levels(fresh: &Fresh, alike: &[RequestSeen]) -> Option<(String, Option<String>)> {
    const LATE_MAX: Duration = Duration::from_secs(10);
    let select = "SELECT parameters['consistency_level'], parameters['serial_consistency_level'] \
        FROM system_traces.sessions WHERE session_id = ?";
    let started = Instant::now();
    while started.elapsed() < LATE_MAX {
        for seen in alike {
            let trace = seen.trace.expect("every request is traced");
            let Ok(rows) = fresh.cluster.session().query_unpaged(select, (trace,)).await else { continue };
            let rows = rows.into_rows_result().expect("rows");
            let row = rows.maybe_first_row::<(Option<String>, Option<String>)>().expect("a row");
            if let Some((Some(level), serial)) = row {
                return Some((level, serial));
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    None
}

/// Somebody orders, and the order is cancelled and looked at.
async fn trade(world: &World, policy: &Policy) {
    let shop = world.shop(Faults::none());
    let (user, product) = (world.user(), world.product(10).await);
    let caller = world.caller(&shop, user).await;
    shop.add_to_cart(&caller, product, 1, None, None).await.expect("it is put into the cart");
    let order = support::until_some("the cart is ordered", async || {
        match shop.place_order(user, "key", order_of_cart()).await {
            // What was put into it need not be seen at once.
            Err(PlaceOrderError::EmptyCart { .. }) if !policy.weak_settings(Entity::Carts).is_empty() => None,
            placed => Some(placed.expect("it is ordered").order),
        }
    })
    .await;
    shop.move_order(order.id, OrderStatus::Cancelled, "анна").await.expect("it is cancelled");
    assert_eq!(world.check_orders(user).await, 1);
    shop.abandoned_carts(None, 10).await.expect("carts are listed");
}

/// Observed, not assumed: the cluster says at which level every statement came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_comes_at_the_level_that_the_policy_names() {
    let ring = support::shared();
    let mut watched = Vec::new();
    for built_in in BUILT_IN {
        let policy = support::policy(built_in.name);
        let all = [Entity::Carts, Entity::Orders, Entity::Sessions];
        let there = |entity: &Entity| policy.placement(*entity).is_some_and(|p| p.home == Store::Cassandra);
        if !all.iter().all(there) {
            continue;
        }
        watched.push(built_in.name);
        let fresh = support::watched(ring.ring, &policy, &all).await;
        let log = fresh.log.clone().expect("requests are written down");
        let world = World::on(fresh.cluster.clone(), &policy, std::sync::Arc::new(SystemClock)).await;
        let mut alike = BTreeMap::<_, Vec<RequestSeen>>::new();
        let mut told = BTreeMap::new();
        // What was not written down of one is of the next.
        support::until_some("every statement is written down once", async || {
            trade(&world, &policy).await;
            for seen in log.take() {
                let is_decided = seen.kind == StatementKind::DecidedRead;
                alike.entry((seen.entity.as_str(), seen.statement, is_decided)).or_default().push(seen);
            }
            for (statement, alike) in &alike {
                if !told.contains_key(statement) {
                    told.insert(*statement, levels(&fresh, alike).await?);
                }
            }
            Some(())
        })
        .await;

        let mut seen_of = BTreeSet::new();
        for (statement, (level, serial)) in told {
            let seen = &alike[&statement][0];
            // What an order takes out of a cart is as certain as the order (CRT-4).
            let is_order_cover = seen.statement == "add_order_cover";
            let entity = if is_order_cover { Entity::Orders } else { seen.entity };
            let settings = support::settings(&policy, entity);
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
    assert!(watched.len() > 1, "{watched:?}");
}
