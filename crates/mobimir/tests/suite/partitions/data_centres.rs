//! Two data centres with an instance beside each, and shoppers who ask now this one and now that one. Each
//! data centre is lost in turn and comes back while they buy. Nodes keep no hints meanwhile, as if it had been
//! away for longer than they are kept: what it gets is what was noted as owed.
//!
//! Every write is acknowledged by both data centres, so that a shopper who changes sides finds his own. With
//! LOCAL_QUORUM, as the policy is shipped, he may be shown a cart without his last add: that is the price of
//! it, which `mobimir policy check` names, and nothing that a checker could judge.

use std::time::{Duration, Instant};

use mobimir_lab::{Mongo, Ring, RingSpec, Sight};
use mobimir_simulator::history::{Answer, Call};
use tempfile::TempDir;

use super::{
    Crowd, LASTS, ORDERED, PATIENCE, SHOPPERS, goes_on, market::Market, open_at, settled::assert_all_is_true,
    until_all_was_tried,
};
use crate::support::{Client, Instances, process::program, shop::assert_no_violation};

/// Nodes, and so replicas, of each data centre: three as the policy is shipped.
const NODES_VARIABLE: &str = "MOBIMIR_NODES_PER_DC";
/// How often each data centre is lost.
const ROUNDS_VARIABLE: &str = "MOBIMIR_DC_ROUNDS";
const ENTITIES: [&str; 3] = ["carts", "orders", "sessions"];
const LINES_ORDERED: &str = "lines ordered";
const ADDED: &str = "added to a cart";
const PAUSE: Duration = Duration::from_millis(200);
/// Those next to `dc1`, the home of decisions, and next to `dc2`.
const BOTH: [usize; 2] = [0, 1];

/// One at a time: each takes six nodes.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn number(variable: &str, default: u16) -> u16 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// The policy `default`, with every write in both data centres.
fn policy(on_dc_loss: &str) -> String {
    const DEFAULT: &str = include_str!("../../../../../policies/default.toml");
    let without = DEFAULT
        .replace("on_dc_loss = \"local_quorum\"\n", "")
        .replace("write = \"LOCAL_QUORUM\"", "write = \"EACH_QUORUM\"");
    let everywhere = format!("write = \"EACH_QUORUM\"\non_dc_loss = \"{on_dc_loss}\"\n");
    let policy = without.replace("write = \"EACH_QUORUM\"\n", &everywhere);
    assert_eq!(policy.matches(&everywhere).count(), ENTITIES.len(), "{policy}");
    assert_eq!(policy.matches("on_dc_loss").count(), ENTITIES.len(), "{policy}");
    policy
}

struct Servers {
    ring: Ring,
    // Ends with this value, if it is not shared.
    mongo: Mongo,
    /// The nodes of `dc1` and of `dc2`.
    nodes: [Vec<u16>; 2],
}

impl Servers {
    fn start() -> Self {
        let count = number(NODES_VARIABLE, 3);
        // A node that is late is not one that is lost.
        let spec = RingSpec::for_tests_in(&[count; 2]).patient().with_quick_tables();
        let (ring, mongo) = std::thread::scope(|scope| {
            let ring = scope.spawn(|| Ring::ephemeral(&spec).expect("a ring can be started"));
            let mongo = Mongo::shared().expect("a replica set can be started");
            (ring.join().unwrap(), mongo)
        });
        Self { ring, mongo, nodes: [(1..=count).collect(), (count + 1..=2 * count).collect()] }
    }

    /// What tells an instance beside a data centre where the data is.
    fn environment(&self, dir: &TempDir, on_dc_loss: &str, dc: &str) -> Vec<(&'static str, String)> {
        let path = dir.path().join("policy.toml");
        std::fs::write(&path, policy(on_dc_loss)).unwrap();
        let shop = format!("dcs{}{on_dc_loss}", std::process::id()).replace('_', "");
        let count = self.nodes[0].len();
        vec![
            ("MOBIMIR_POLICY", path.to_str().unwrap().to_owned()),
            ("MOBIMIR_CASSANDRA_CONTACT_POINTS", self.ring.contact_points().join(",")),
            ("MOBIMIR_CASSANDRA_DATA_CENTRES", format!("dc1={count},dc2={count}")),
            ("MOBIMIR_CASSANDRA_LOCAL_DC", dc.to_owned()),
            ("MOBIMIR_CASSANDRA_KEYSPACE_PREFIX", shop.clone()),
            ("MOBIMIR_MONGODB_URI", self.mongo.uri()),
            ("MOBIMIR_MONGODB_DATABASE", shop),
        ]
    }

    /// Kills all nodes of a data centre, and waits until all of the other know.
    fn lose(&self, dc: usize) {
        let (lost, left) = (&self.nodes[dc], &self.nodes[1 - dc]);
        for node in left {
            self.ring.nodetool(*node, &["disablehandoff"]).expect("no hints are kept");
        }
        lost.iter().for_each(|node| self.ring.kill(*node).expect("a node is killed"));
        for (witness, node) in left.iter().flat_map(|witness| lost.iter().map(move |node| (*witness, *node)))
        {
            self.ring.wait_until_seen(witness, node, Sight::Down).expect("it is seen down");
        }
    }

    fn bring_back(&self, dc: usize) {
        for node in &self.nodes[dc] {
            self.ring.spawn_node(*node).expect("a node starts");
        }
        self.nodes[dc].iter().for_each(|node| self.ring.wait_ready(*node).expect("a node answers"));
        let all = self.ring.nodes();
        all.iter().for_each(|node| self.ring.wait_until_up(node.id, all.len()).expect("all see all"));
    }
}

fn make_tables(environment: &[(&'static str, String)]) {
    let started = Instant::now();
    loop {
        // It goes on with what is there.
        let made = program().args(["schema", "apply"]).envs(environment.iter().cloned()).output().unwrap();
        if made.status.success() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&made.stderr));
    }
}

/// Waits until no entity is degraded or recovering, as each instance says.
async fn until_all_is_whole(hosts: &[String]) {
    let started = Instant::now();
    for host in hosts {
        loop {
            let metrics = Client::new(host).tolerating_503("a data centre was lost").get("/metrics").await;
            let text = String::from_utf8_lossy(&metrics.body).into_owned();
            let is_whole = |entity: &&str| {
                text.lines()
                    .any(|line| line == format!("mobimir_cassandra_degraded{{entity=\"{entity}\"}} 0"))
            };
            if ENTITIES.iter().all(is_whole) {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{host} does not become whole: {text}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn lose_each_in_turn(on_dc_loss: &str) {
    let _alone = ALONE.lock().await;
    let goes_on_without = on_dc_loss == "local_quorum";
    let (servers, shop) = tokio::task::block_in_place(|| {
        let (servers, dir) = (Servers::start(), TempDir::new().unwrap());
        let [here, there] = ["dc1", "dc2"].map(|dc| servers.environment(&dir, on_dc_loss, dc));
        make_tables(&here);
        (servers, Instances::on_servers(dir, &["serve"], [&here, &there]))
    });
    let hosts = shop.hosts().map(str::to_owned).to_vec();
    let market = Market::open(&shop.host, hosts.clone(), SHOPPERS / 2).await;
    let shopping = Crowd::open(&market, false);
    goes_on(&market, &BOTH, market.now_ms(), "all is well").await;
    for round in 0..number(ROUNDS_VARIABLE, 2) {
        for dc in [1, 0] {
            let when = format!("dc{} is lost, round {round}", dc + 1);
            eprintln!("{} s: {when}", market.now_ms() / 1_000);
            tokio::task::block_in_place(|| servers.lose(dc));
            let lost_ms = market.now_ms();
            tokio::time::sleep(LASTS).await;
            if goes_on_without {
                goes_on(&market, &BOTH, lost_ms, &when).await;
            } else {
                until_refused(&market, lost_ms).await;
                for (instance, event) in
                    BOTH.into_iter().flat_map(|at| [ORDERED, LINES_ORDERED, ADDED].map(|event| (at, event)))
                {
                    let done = market.count(lost_ms, instance, event);
                    assert_eq!(done, 0, "{event} at instance {instance} while {when}");
                }
            }
            eprintln!("{} s: it comes back", market.now_ms() / 1_000);
            tokio::task::block_in_place(|| servers.bring_back(dc));
            goes_on(&market, &BOTH, market.now_ms(), "it is back").await;
            until_all_is_whole(&hosts).await;
            eprintln!("{} s: all is whole", market.now_ms() / 1_000);
        }
    }
    until_all_was_tried(&market).await;
    shopping.close().await;
    until_all_is_whole(&hosts).await;
    let open = BOTH.map(|instance| open_at(&market, instance));
    eprintln!("{} operations, {open:?} of them open", market.operations().len());
    assert_all_is_true(&market).await;
    assert_no_violation(&shop.host).await;
}

/// Waits until both instances have refused, or left unanswered, an order of what was asked since then.
async fn until_refused(market: &Market, since_ms: i64) {
    let started = Instant::now();
    loop {
        let operations = market.operations();
        let refused_at = |instance: &usize| {
            operations.iter().any(|operation| {
                operation.instance == *instance
                    && operation.asked_ms >= since_ms
                    && matches!(operation.call, Call::Order { .. })
                    && matches!(operation.answer, Answer::Open | Answer::NotNow)
            })
        };
        if BOTH.iter().all(refused_at) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "no order is refused");
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes six nodes of Cassandra and many minutes: make soak"]
async fn a_shop_in_two_data_centres_outlives_the_loss_of_each() {
    lose_each_in_turn("local_quorum").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes six nodes of Cassandra and many minutes: make soak"]
async fn a_shop_in_two_data_centres_refuses_what_it_cannot_keep() {
    lose_each_in_turn("refuse").await;
}
