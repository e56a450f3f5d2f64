//! Every server and every instance is a host of its own: in a network namespace, with its own clock. Servers lose
//! each other and instances lose servers, also one way only; packets are late, lost and overtaken; clocks differ
//! by more than a minute, and one jumps. `make soak` runs this, as root.
//!
//! `MOBIMIR_NAMESPACES_S` is how long the troubles go on, each once at the least. `MOBIMIR_NETEM=off` is for
//! kernels without netem: then packets are only lost where something is cut. `MOBIMIR_NAMESPACES_POLICY` is another
//! policy than `default`; one that gives invariants up may fail.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use hyper::Method;
use mobimir_core::time::Timestamp;
use mobimir_lab::{Host, Mongo, MongoSpec, Namespaces, Ring, RingSpec, Sight, Weather, namespaces_are_left};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::{Crowd, PATIENCE, goes_on, market::Market, settled::assert_all_is_true, until_all_was_tried};
use crate::support::{
    Client, Process, instances,
    servers::{Servers, Tables},
    shop::assert_no_violation,
};

const CUSTOMERS: usize = 3;
const SERVERS: usize = 3;
const INSTANCES: usize = 3;
const PORT: u16 = 8080;
/// How far the clock of each instance is off at the start.
const OFFSETS_S: [i64; INSTANCES] = [40, -40, 0];
/// This clock jumps, to each of these in turn.
const JUMPER: usize = 2;
const JUMPS_S: [i64; 4] = [90, -90, 15, 0];
/// Long enough for an election and for a node to be taken for dead.
const LASTS: Duration = Duration::from_secs(15);
/// What nobody asks for any more has arrived, or never will.
const SETTLES: Duration = Duration::from_secs(60);
/// Packets of servers and of instances: a few milliseconds, as between data centres of one city.
const WEATHER: Weather = Weather { delay_ms: 3, jitter_ms: 2, loss_percent: 0.5, reorder_percent: 5.0 };
/// As the policy has it.
const SESSION_TTL_S: i64 = 30 * 24 * 60 * 60;

struct World {
    instances: Vec<Process>,
    mongo: Mongo,
    ring: Ring,
    hosts: Vec<Host>,
    clocks: Vec<Clock>,
    /// The last to go.
    namespaces: Namespaces,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root, iproute2 and faketime, and takes minutes: make soak"]
async fn servers_that_lose_each_other_and_clocks_that_differ_break_nothing() {
    let dir = TempDir::new().unwrap();
    let world = block_in_place(|| World::start(dir.path()));
    let hosts: Vec<String> = world.instances.iter().map(|instance| instance.host.clone()).collect();
    let host = hosts.join(",");
    for (instance, offset_s) in OFFSETS_S.into_iter().enumerate() {
        assert_sees_clock(&hosts[instance], offset_s).await;
    }
    let market = Market::open(&host, hosts.clone(), CUSTOMERS).await;
    let everywhere: Vec<usize> = (0..INSTANCES).collect();
    let shopping = Crowd::open(&market, true);
    goes_on(&market, &everywhere, 0, "nothing has happened").await;
    block_in_place(|| world.set_weather());

    let lasts = std::env::var("MOBIMIR_NAMESPACES_S").map_or(0, |seconds| seconds.parse().unwrap());
    let (started, mut round) = (Instant::now(), 0);
    while round < TROUBLES.len() || started.elapsed().as_secs() < lasts {
        let (name, trouble) = TROUBLES[round % TROUBLES.len()];
        println!("{:4} s: {name}", started.elapsed().as_secs());
        let jump_s = JUMPS_S[round % JUMPS_S.len()];
        world.clocks[JUMPER].set(jump_s);
        assert_sees_clock(&hosts[JUMPER], jump_s).await;
        let cuts = block_in_place(|| trouble(&world, round / TROUBLES.len() % SERVERS));
        for (from, to) in &cuts {
            world.namespaces.cut(from, to).unwrap();
        }
        tokio::time::sleep(LASTS).await;
        block_in_place(|| world.assert_noticed(name, &cuts));
        for (from, to) in &cuts {
            world.namespaces.heal(from, to).unwrap();
        }
        let healed_ms = market.now_ms();
        block_in_place(|| world.wait_whole());
        goes_on(&market, &everywhere, healed_ms, "all is well again").await;
        round += 1;
    }
    until_all_was_tried(&market).await;
    shopping.close().await;
    println!("{:4} s: {} operations", started.elapsed().as_secs(), market.operations().len());
    tokio::time::sleep(SETTLES).await;
    assert_all_is_true(&market).await;
    assert_no_violation(&host).await;
    drop(world);
    assert!(!namespaces_are_left(), "a run leaves nothing behind");
}

#[test]
#[ignore = "needs root and iproute2: make soak"]
fn what_a_killed_run_has_left_is_removed_by_the_next() {
    drop(Namespaces::open(&["a1".to_owned()]).unwrap());
    // As a run leaves it that was killed together with its keeper.
    let ip = |arguments: &str| {
        assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "{arguments}");
    };
    ip("link add mobimir0 type bridge");
    ip("netns add mobimir-a1");
    ip("link add mobimir-a1 type veth peer name eth0 netns mobimir-a1");
    let mut server = Command::new("ip").args("netns exec mobimir-a1 sleep 600".split(' ')).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(namespaces_are_left());
    let namespaces = Namespaces::open(&["a1".to_owned(), "a2".to_owned()]).unwrap();
    assert!(!server.wait().unwrap().success(), "what ran there was killed");
    assert_eq!(namespaces.hosts().len(), 2);
    drop(namespaces);
    assert!(!namespaces_are_left());
}

type Cuts = Vec<(Host, Host)>;
type Trouble = fn(&World, usize) -> Cuts;

/// What is sent from the first of each pair to the second is lost.
const TROUBLES: [(&str, Trouble); 8] = [
    (NODE_ALONE, |world, number| both_ways(&world.node(number), &world.nodes())),
    ("a node of Cassandra is heard by no other", |world, number| {
        one_way(&world.node(number), &world.nodes())
    }),
    (PRIMARY_ALONE, |world, _| both_ways(&world.primary(), &world.members())),
    ("the primary of MongoDB is heard by no other member", |world, _| {
        one_way(&world.primary(), &world.members())
    }),
    ("the primary of MongoDB hears no other member", |world, _| {
        turned(one_way(&world.primary(), &world.members()))
    }),
    ("no instance reaches the primary of MongoDB", |world, _| {
        both_ways(&world.primary(), &world.of_instances())
    }),
    ("what a node of Cassandra answers reaches no instance", |world, number| {
        one_way(&world.node(number), &world.of_instances())
    }),
    ("an instance reaches no server", |world, number| {
        let servers = [world.nodes(), world.members()].concat();
        both_ways(&world.of_instances()[number % INSTANCES], &servers)
    }),
];
const NODE_ALONE: &str = "a node of Cassandra and the others do not hear each other";
const PRIMARY_ALONE: &str = "the primary of MongoDB and the other members do not hear each other";

fn one_way(from: &Host, to: &[Host]) -> Cuts {
    to.iter().filter(|to| *to != from).map(|to| (from.clone(), to.clone())).collect()
}

fn turned(cuts: Cuts) -> Cuts {
    cuts.into_iter().map(|(from, to)| (to, from)).collect()
}

fn both_ways(one: &Host, others: &[Host]) -> Cuts {
    [one_way(one, others), turned(one_way(one, others))].concat()
}

impl World {
    fn start(dir: &Path) -> Self {
        let clocks: Vec<Clock> = (0..INSTANCES).map(|number| Clock::new(dir, number)).collect();
        let names = [("c", SERVERS), ("m", SERVERS), ("i", INSTANCES)]
            .map(|(kind, count)| (1..=count).map(move |number| format!("{kind}{number}")));
        let namespaces = Namespaces::open(&names.into_iter().flatten().collect::<Vec<String>>()).unwrap();
        let hosts = namespaces.hosts().to_vec();
        let [nodes, members] = [&hosts[..SERVERS], &hosts[SERVERS..2 * SERVERS]];
        let ring = RingSpec::for_tests(3).patient().with_quick_tables().in_namespaces(nodes);
        let ring = Ring::ephemeral(&ring).unwrap();
        let mongo = Mongo::ephemeral(&MongoSpec::for_tests(3).in_namespaces(members)).unwrap();
        let policy = std::env::var("MOBIMIR_NAMESPACES_POLICY").unwrap_or_else(|_| "default".to_owned());
        let servers = Servers::of(policy, ring, mongo);
        let environment = servers.production_environment("namespaces", Tables::Shared);
        let start = |(number, host): (usize, &Host)| {
            let mut environment: Vec<(&str, &str)> =
                environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
            environment.push(instances::READ_AFTER_KEY);
            let clock = clocks[number].environment();
            environment.extend(clock.iter().map(|(name, value)| (*name, value.as_str())));
            let data = dir.join(format!("instance{number}"));
            Process::start_after(&host.prefix(), &format!("{}:{PORT}", host.address), &data, &environment)
        };
        let processes: Vec<Process> = hosts[2 * SERVERS..].iter().enumerate().map(start).collect();
        instances::register(&processes);
        let Servers { ring, mongo, .. } = servers;
        Self { instances: processes, mongo, ring, hosts, clocks, namespaces }
    }

    fn nodes(&self) -> Vec<Host> {
        self.hosts[..SERVERS].to_vec()
    }

    fn node(&self, number: usize) -> Host {
        self.hosts[number].clone()
    }

    fn members(&self) -> Vec<Host> {
        self.hosts[SERVERS..2 * SERVERS].to_vec()
    }

    fn of_instances(&self) -> Vec<Host> {
        self.hosts[2 * SERVERS..].to_vec()
    }

    fn primary(&self) -> Host {
        self.members()[usize::from(self.mongo.wait_primary().unwrap()) - 1].clone()
    }

    fn set_weather(&self) {
        if std::env::var("MOBIMIR_NETEM").is_ok_and(|netem| netem == "off") {
            eprintln!("without netem: no packet is late, and none is lost where nothing is cut");
            return;
        }
        let has_netem = self.namespaces.have_weather().unwrap();
        assert!(has_netem, "the kernel has no netem (CONFIG_NET_SCH_NETEM): MOBIMIR_NETEM=off goes without");
        for host in &self.hosts {
            self.namespaces.set_weather(host, WEATHER).unwrap();
        }
    }

    /// A partition that no server has noticed is none.
    fn assert_noticed(&self, name: &str, cuts: &[(Host, Host)]) {
        let (cut_off, other) = (&cuts[0].0, &cuts[0].1);
        let number = |hosts: &[Host], of: &Host| {
            hosts.iter().position(|host| host == of).and_then(|at| u16::try_from(at + 1).ok()).unwrap()
        };
        if name == NODE_ALONE {
            let nodes = self.nodes();
            let (seen_from, id) = (number(&nodes, other), number(&nodes, cut_off));
            self.ring.wait_until_seen(seen_from, id, Sight::Down).unwrap();
        } else if name == PRIMARY_ALONE {
            let (began, before) = (Instant::now(), number(&self.members(), cut_off));
            while self.mongo.wait_primary().unwrap() == before {
                assert!(began.elapsed() < PATIENCE, "the others elect nobody");
            }
        }
    }

    fn wait_whole(&self) {
        for node in 1..=SERVERS {
            self.ring.wait_until_up(u16::try_from(node).unwrap(), SERVERS).unwrap();
        }
        self.mongo.wait_ready().unwrap();
    }
}

/// By how much the clock of a process is off: libfaketime reads it from a file, once a second.
struct Clock(PathBuf);

impl Clock {
    fn new(dir: &Path, number: usize) -> Self {
        let clock = Self(dir.join(format!("clock{number}")));
        clock.set(OFFSETS_S[number]);
        clock
    }

    fn set(&self, offset_s: i64) {
        let partial = self.0.with_extension("partial");
        std::fs::write(&partial, format!("{offset_s:+}\n")).unwrap();
        std::fs::rename(&partial, &self.0).unwrap();
    }

    fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("LD_PRELOAD", library().to_str().unwrap().to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.0.to_str().unwrap().to_owned()),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            // What is waited for is waited for as long as ever.
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

/// What the package faketime preloads into programs with threads.
fn library() -> PathBuf {
    let places = std::fs::read_dir("/usr/lib").unwrap().flatten().map(|place| place.path());
    let mut found = places.map(|place| place.join("faketime/libfaketimeMT.so.1"));
    let found = found.find(|library| library.exists());
    found.expect("libfaketime is not here: apt-get install faketime, or scripts/install-test-tools faketime")
}

/// Whether an instance really has the clock that it was given: a session is good for thirty days from now.
async fn assert_sees_clock(host: &str, offset_s: i64) {
    let started = Instant::now();
    loop {
        let before_s = now_s();
        let session = Client::new(host).certain(Method::POST, "/v1/sessions", &[], Some(json!({}))).await;
        let expires_at = session.expect(201)["expires_at"].as_str().unwrap().to_owned();
        let said_s = Timestamp::parse(&expires_at).unwrap().as_millis() / 1_000 - SESSION_TTL_S;
        let (first, last) = (before_s + offset_s - 1, now_s() + offset_s + 1);
        if (first..=last).contains(&said_s) {
            return;
        }
        let off_s = said_s - before_s;
        assert!(started.elapsed() < PATIENCE / 10, "{host} is {off_s} s ahead, and not {offset_s} s");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the test is the one that the instances do not have"
)]
fn now_s() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}
