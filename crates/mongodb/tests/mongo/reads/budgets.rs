//! No read beyond its budget, and secondaries used whenever they fit, however the members behave.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use mobimir_core::{invariant::Invariant, policy::ReadOperation};
use mobimir_lab::{Mongo, MongoSpec};
use mobimir_mongodb::Deployment;
use mongodb::bson::doc;

use super::{
    BUDGETS, assert_kept, block_on, close_secondaries, instance, new_database,
    oracle::{Found, Oracle},
    until,
};

/// Up to how many seconds both secondaries are left behind.
const LAG_VARIABLE: &str = "MOBIMIR_LAG_S";
const LAG_DEFAULT_S: u64 = 12;

/// Members 2 and 3 do not vote, so majority writes go on whatever becomes of them.
fn set_with_laggards() -> Mongo {
    let spec = MongoSpec::for_tests(3).non_voting(2).non_voting(3);
    let mongo = Mongo::ephemeral(&spec).expect("a replica set can be started");
    follow_the_primary(&mongo);
    mongo
}

/// A member that copies from another one lags with it, and the tests want to say who lags.
fn follow_the_primary(mongo: &Mongo) {
    let primary = mongo.wait_primary().expect("a primary");
    let answer = mongo.run_on(primary, "admin", doc! { "replSetGetConfig": 1 }).expect("its configuration");
    let mut config = answer.get_document("config").expect("a configuration").clone();
    let version = config.get_i32("version").expect("a version");
    config.insert("version", version + 1);
    config.get_document_mut("settings").expect("settings").insert("chainingAllowed", false);
    mongo.run_on(primary, "admin", doc! { "replSetReconfig": config }).expect("another configuration");
}

#[test]
fn no_read_is_older_than_its_budget() {
    let lag_max =
        std::env::var(LAG_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(LAG_DEFAULT_S);
    let mongo = set_with_laggards();
    block_on(story(&mongo, Duration::from_secs(lag_max)));
}

async fn story(mongo: &Mongo, lag_max: Duration) {
    let database = new_database();
    let deployment = instance(mongo, &database).await;
    until("both secondaries are known", Duration::from_secs(20), || {
        close_secondaries(&deployment, Duration::from_secs(1)) == 2
    })
    .await;
    let found = Arc::new(Found::default());
    let oracle = Oracle::start(instance(mongo, &database).await).await;
    let readers = oracle.readers(&deployment, &found);
    let shares = Shares::of(&deployment);

    // Nobody lags: all of it may come from secondaries.
    shares.over(Duration::from_secs(2)).await.all_from_secondaries(&[1, 3, 10, 100], "nobody lags");

    // One lags ever more: the other one does it.
    mongo.stop_applying(2).expect("member 2 stops applying");
    let both_again = shares.over(Duration::from_secs(4)).await;
    both_again.all_from_secondaries(&[1, 3, 10, 100], "one lags");

    // Both lag ever more. By when a budget is used up, the primary does it.
    mongo.stop_applying(3).expect("member 3 stops applying");
    let stopped = Instant::now();
    let at = |seconds: f64| stopped + Duration::from_secs_f64(seconds);
    tokio::time::sleep_until(at(1.3).into()).await;
    let share = shares.over(Duration::from_millis(1_000)).await;
    share.none_from_secondaries(&[1], "both lag over 1 s");
    share.all_from_secondaries(&[3, 10, 100], "both lag over 1 s");
    tokio::time::sleep_until(at(3.3).into()).await;
    let share = shares.over(Duration::from_millis(2_000)).await;
    share.none_from_secondaries(&[1, 3], "both lag over 3 s");
    share.all_from_secondaries(&[10, 100], "both lag over 3 s");
    tokio::time::sleep_until(at(10.3).into()).await;
    let share = shares.over(Duration::from_millis(1_000)).await;
    share.none_from_secondaries(&[1, 3, 10], "both lag over 10 s");
    share.all_from_secondaries(&[100], "both lag over 10 s");
    if lag_max >= Duration::from_secs(100) {
        tokio::time::sleep_until(at(100.3).into()).await;
        let share = shares.over(Duration::from_secs(2)).await;
        share.none_from_secondaries(&[1, 3, 10, 100], "both lag over 100 s");
    } else {
        tokio::time::sleep_until((stopped + lag_max).into()).await;
    }

    // They return, and are used again.
    for member in [2, 3] {
        mongo.resume_applying(member).expect("they apply again");
    }
    until("both have caught up", Duration::from_secs(20), || {
        close_secondaries(&deployment, Duration::from_secs(1)) == 2
    })
    .await;
    shares.settle_on_secondaries(&[3, 10, 100], "both are back").await;

    // One hangs: reads that went there come from elsewhere within their time, and soon nobody goes there.
    mongo.pause(2).expect("member 2 is stopped");
    shares.over(Duration::from_secs(3)).await;
    assert_eq!(close_secondaries(&deployment, Duration::from_secs(3)), 1, "{:?}", deployment.members());
    shares.settle_on_secondaries(&[3, 10, 100], "one hangs").await;
    mongo.resume(2).expect("member 2 goes on");
    until("it is back", Duration::from_secs(20), || {
        close_secondaries(&deployment, Duration::from_secs(1)) == 2
    })
    .await;

    // One dies, and comes back.
    mongo.kill(3).expect("member 3 is killed");
    until("only member 2 is known", Duration::from_secs(20), || {
        close_secondaries(&deployment, Duration::from_secs(1)) == 1
    })
    .await;
    shares.settle_on_secondaries(&[3, 10, 100], "one is dead").await;
    mongo.start_member(3).expect("member 3 starts");
    until("both are known again", Duration::from_secs(30), || {
        close_secondaries(&deployment, Duration::from_secs(1)) == 2
    })
    .await;
    shares.settle_on_secondaries(&[3, 10, 100], "it came back").await;

    let written = oracle.stop(readers).await;
    let number = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} reads of {written} numbers, {} too old, {} refused, the slowest {} ms; {} checks of RD-1",
        number(&found.reads),
        number(&found.too_old),
        number(&found.refused),
        number(&found.slowest_ms),
        deployment.config().invariants.checks(Invariant::Rd1),
    );
    for served in deployment.served() {
        println!("{served:?}");
    }
    assert_eq!(number(&found.too_old), 0, "reads beyond their budget");
    assert_eq!(number(&found.refused), 0, "reads that the primary could have answered");
    assert!(number(&found.reads) > 1_000);
    assert_kept(&deployment.config().invariants);
}

/// How long it may take until secondaries serve what they can.
const SETTLES_IN_S: usize = 15;

/// Which part of the reads came from secondaries, over some time.
struct Shares<'a>(&'a Deployment);

struct Share(BTreeMap<ReadOperation, (u64, u64)>);

impl<'a> Shares<'a> {
    fn of(deployment: &'a Deployment) -> Self {
        Self(deployment)
    }

    async fn over(&self, time: Duration) -> Share {
        let counts = || {
            let served = self.0.served();
            served
                .iter()
                .map(|it| (it.operation, (it.reads, it.from_secondaries)))
                .collect::<BTreeMap<_, _>>()
        };
        let before = counts();
        tokio::time::sleep(time).await;
        let mut after = counts();
        for (operation, (reads, secondary)) in &mut after {
            let (reads_before, secondary_before) = before.get(operation).copied().unwrap_or_default();
            *reads -= reads_before;
            *secondary -= secondary_before;
        }
        Share(after)
    }

    /// Waits until secondaries do it. A member that was late once is left alone for a while, and on a busy machine one is.
    async fn settle_on_secondaries(&self, budgets_s: &[i64], when: &str) {
        let mut missing = None;
        for _ in 0..SETTLES_IN_S {
            missing = self.over(Duration::from_secs(1)).await.missing_from_secondaries(budgets_s, when);
            if missing.is_none() {
                return;
            }
        }
        panic!("{}", missing.unwrap_or_default());
    }
}

impl Share {
    fn of(&self, budget_s: i64, when: &str) -> (u64, u64) {
        let (operation, _) = BUDGETS.into_iter().find(|(_, s)| *s == budget_s).expect("one of the budgets");
        let (reads, secondary) = self.0.get(&operation).copied().unwrap_or_default();
        assert!(reads >= 5, "{when}: only {reads} reads with {budget_s} s");
        (reads, secondary)
    }

    fn all_from_secondaries(&self, budgets_s: &[i64], when: &str) {
        assert_eq!(self.missing_from_secondaries(budgets_s, when), None);
    }

    /// Which budget secondaries do not serve. Some reads go to the primary while a member is being looked at anew.
    fn missing_from_secondaries(&self, budgets_s: &[i64], when: &str) -> Option<String> {
        let missing = |budget_s: &i64| {
            let (reads, secondary) = self.of(*budget_s, when);
            let told = format!("{when}, {budget_s} s: {secondary} of {reads} from secondaries");
            println!("{told}");
            // A second is not much on a busy machine.
            let least = if *budget_s == 1 { reads / 2 } else { reads * 9 / 10 };
            (secondary < least).then_some(told)
        };
        budgets_s.iter().find_map(missing)
    }

    fn none_from_secondaries(&self, budgets_s: &[i64], when: &str) {
        for budget_s in budgets_s {
            let (reads, secondary) = self.of(*budget_s, when);
            assert_eq!(secondary, 0, "{when}, {budget_s} s: of {reads}");
        }
    }
}
