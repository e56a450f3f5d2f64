//! No read beyond its budget, and secondaries used whenever they fit, however the members behave.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::future;
use mobimir_core::{invariant::Invariant, policy::ReadOperation, reading::Served};
use mobimir_lab::{Mongo, MongoSpec};
use mobimir_mongodb::Deployment;
use mongodb::bson::doc;

use super::{
    BUDGETS, assert_kept, block_on, instance, new_database,
    oracle::{Found, Oracle},
    until,
};
use crate::support::PATIENCE;

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
    let second = Duration::from_secs(1);
    until_close(mongo, &deployment, second, &[2, 3]).await;
    let found = Arc::new(Found::default());
    let oracle = Oracle::start(instance(mongo, &database).await).await;
    let readers = oracle.readers(&deployment, &found);
    let shares = Shares::of(&deployment);

    // Nobody lags: all of it may come from secondaries.
    shares.settle_on_secondaries(&[1, 3, 10, 100], "nobody lags").await;

    // One lags ever more: the other one does it.
    mongo.stop_applying(2).expect("member 2 stops applying");
    until_close(mongo, &deployment, second * 3, &[3]).await;
    shares.settle_on_secondaries(&[1, 3, 10, 100], "one lags").await;

    // Both lag ever more. A busy machine may leave no time to see who serves what.
    for tried in 1.. {
        mongo.stop_applying(3).expect("member 3 stops applying");
        let missing = both_lag(&shares, Instant::now(), lag_max).await;
        mongo.resume_applying(3).expect("it applies again");
        let Some(missing) = missing else { break };
        assert!(tried < TRIES_MAX, "{missing}");
        until_close(mongo, &deployment, second, &[3]).await;
    }

    // They return, and are used again.
    mongo.resume_applying(2).expect("it applies again");
    until_close(mongo, &deployment, second, &[2, 3]).await;
    shares.settle_on_secondaries(&[3, 10, 100], "both are back").await;

    // One hangs: reads that went there come from elsewhere within their time, and soon nobody goes there.
    mongo.pause(2).expect("member 2 is stopped");
    shares.over(second * 3).await;
    until_close(mongo, &deployment, second * 3, &[3]).await;
    shares.settle_on_secondaries(&[3, 10, 100], "one hangs").await;
    mongo.resume(2).expect("member 2 goes on");
    until_close(mongo, &deployment, second, &[2, 3]).await;

    // One dies, and comes back.
    mongo.kill(3).expect("member 3 is killed");
    until_close(mongo, &deployment, second, &[2]).await;
    shares.settle_on_secondaries(&[3, 10, 100], "one is dead").await;
    mongo.start_member(3).expect("member 3 starts");
    until_close(mongo, &deployment, second, &[2, 3]).await;
    shares.settle_on_secondaries(&[3, 10, 100], "it came back").await;

    until("there are enough reads", || found.reads.load(Ordering::Relaxed) > 1_000).await;
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

/// Waits until these members are known to be at most so far behind, and no other.
async fn until_close(mongo: &Mongo, deployment: &Deployment, within: Duration, members: &[u16]) {
    let addresses = mongo.addresses();
    let expected: Vec<&String> = members.iter().map(|id| &addresses[usize::from(*id) - 1]).collect();
    until(&format!("members {members:?} are close, and no other"), || {
        let known = deployment.members();
        let close = known.iter().filter(|member| member.lag.is_some_and(|lag| lag <= within));
        let mut close: Vec<&String> = close.map(|member| &member.address).collect();
        close.sort_by_key(|address| addresses.iter().position(|known| known == *address));
        close == expected
    })
    .await;
}

/// Both secondaries lag ever more since then. What they should have served and did not: as long as a budget lasts they do
/// it, and once it is used up they never do.
async fn both_lag(shares: &Shares<'_>, stopped: Instant, lag_max: Duration) -> Option<String> {
    let used_up = |budget_s: i64| {
        let budget = Duration::from_secs(budget_s.unsigned_abs());
        tokio::time::sleep_until((stopped + budget + Duration::from_millis(300)).into())
    };
    let mut counted = Vec::new();
    let mut missing = None;
    for (budget_s, seconds) in [(1, 1), (3, 2), (10, 1)] {
        used_up(budget_s).await;
        let share = shares.over(Duration::from_secs(seconds));
        let (share, since) = future::join(share, shares.begin_counting(budget_s)).await;
        counted.push((budget_s, since));
        let left: Vec<i64> = BUDGETS.iter().map(|(_, left_s)| *left_s).filter(|s| *s > budget_s).collect();
        missing = share.missing_from_secondaries(&left, &format!("both lag over {budget_s} s"));
        if missing.is_some() {
            break;
        }
    }
    if missing.is_none() && lag_max >= Duration::from_secs(100) {
        used_up(100).await;
        counted.push((100, shares.begin_counting(100).await));
    } else if missing.is_none() {
        tokio::time::sleep_until((stopped + lag_max).into()).await;
    }
    for (budget_s, since) in counted {
        shares.none_from_secondaries(budget_s, since).await;
    }
    missing
}

/// How often both are made to lag, until somebody has seen it all.
const TRIES_MAX: u32 = 12;
/// Of fewer reads nothing is said.
const READS_MIN: u64 = 5;

/// Which part of the reads came from secondaries, over some time.
struct Shares<'a>(&'a Deployment);

struct Share(BTreeMap<ReadOperation, Counts>);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    from_secondaries: u64,
}

fn operation_of(budget_s: i64) -> ReadOperation {
    let (operation, _) = BUDGETS.into_iter().find(|(_, s)| *s == budget_s).expect("one of the budgets");
    operation
}

impl<'a> Shares<'a> {
    fn of(deployment: &'a Deployment) -> Self {
        Self(deployment)
    }

    fn counts(&self) -> BTreeMap<ReadOperation, Counts> {
        let served = self.0.served();
        let counts = |it: &Served| Counts { reads: it.reads, from_secondaries: it.from_secondaries };
        served.iter().map(|it| (it.operation, counts(it))).collect()
    }

    fn count(&self, budget_s: i64) -> Counts {
        self.counts().get(&operation_of(budget_s)).copied().unwrap_or_default()
    }

    async fn over(&self, time: Duration) -> Share {
        let before = self.counts();
        tokio::time::sleep(time).await;
        let mut after = self.counts();
        for (operation, counts) in &mut after {
            let before = before.get(operation).copied().unwrap_or_default();
            counts.reads -= before.reads;
            counts.from_secondaries -= before.from_secondaries;
        }
        Share(after)
    }

    /// What is counted when no read is under way any more that started before this. Each budget has one reader, which reads one
    /// time after the other.
    async fn begin_counting(&self, budget_s: i64) -> Counts {
        let before = self.count(budget_s);
        until("reads go on", || self.count(budget_s).reads >= before.reads + 2).await;
        self.count(budget_s)
    }

    async fn none_from_secondaries(&self, budget_s: i64, since: Counts) {
        until("reads go on", || self.count(budget_s).reads >= since.reads + READS_MIN).await;
        let now = self.count(budget_s);
        let told = format!("both lag over {budget_s} s: of {} reads", now.reads - since.reads);
        assert_eq!(now.from_secondaries, since.from_secondaries, "{told}");
    }

    /// Waits until secondaries do it. A member that was late once is left alone for a while, and on a busy machine one is.
    async fn settle_on_secondaries(&self, budgets_s: &[i64], when: &str) {
        let started = Instant::now();
        loop {
            let share = self.over(Duration::from_secs(1)).await;
            let Some(missing) = share.missing_from_secondaries(budgets_s, when) else { return };
            assert!(started.elapsed() < PATIENCE, "{missing}");
        }
    }
}

impl Share {
    /// Which budget secondaries do not serve. Some reads go to the primary while a member is being looked at anew.
    fn missing_from_secondaries(&self, budgets_s: &[i64], when: &str) -> Option<String> {
        let missing = |budget_s: &i64| {
            let counts = self.0.get(&operation_of(*budget_s)).copied().unwrap_or_default();
            let Counts { reads, from_secondaries } = counts;
            let told = format!("{when}, {budget_s} s: {from_secondaries} of {reads} from secondaries");
            println!("{told}");
            // A second is not much on a busy machine.
            let least = if *budget_s == 1 { reads / 2 } else { reads * 9 / 10 };
            (reads < READS_MIN || from_secondaries < least).then_some(told)
        };
        budgets_s.iter().find_map(missing)
    }
}
