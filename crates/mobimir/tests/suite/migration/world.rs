//! A shop of two processes on servers of its own, and how it is moved.

use std::{
    net::TcpListener,
    ops::RangeInclusive,
    path::Path,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use hyper::Method;
use mobimir_core::time::{Clock, SystemClock};
use mongodb::bson::doc;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Client, Process,
    process::OPERATOR,
    servers::{Servers, Tables},
};

pub(crate) const ENTITIES: [&str; 3] = ["orders", "carts", "sessions"];
/// Of these there are so many that copying them takes a while.
pub(crate) const MANY: &str = "sessions";
const PASSERS_BY: usize = 400;
const PASSERS_BY_AT_ONCE: usize = 8;
pub(crate) const NODES: [u16; 3] = [1, 2, 3];
/// How long to wait for what is certain to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// Why a shop whose data can move may answer 503 while its servers are healthy.
pub(crate) const SHORT_TIMEOUTS: &str =
    "a migration waits 12 s for writes to arrive, so its stores have 9 s, which a slow machine may exceed";
const PAUSE: Duration = Duration::from_millis(300);
/// Phases in which everybody waits are over soon.
const QUICK_PAUSE: Duration = Duration::from_millis(40);
/// A shop that is started again has to find its port free. Nobody is given one of these by chance.
const PORTS: RangeInclusive<u16> = 11_000..=19_999;
/// From the lowest.
const PHASES: [&str; 8] =
    ["source", "dual-write", "backfill", "verify", "handover", "switch", "read-target", "target"];

pub(crate) struct World {
    // Dropped first, so that nobody looks for servers that are gone.
    instances: Vec<Instance>,
    environment: Vec<(&'static str, String)>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) dir: TempDir,
}

/// How far a migration is.
pub(crate) struct Record {
    pub(crate) phase: String,
    pub(crate) is_on_its_way: bool,
    /// Everything was compared in this phase, and nothing differed.
    is_verified: bool,
}

struct Instance {
    name: &'static str,
    host: String,
    process: Option<Process>,
    /// When it was started, which its id tells, too.
    started_ms: RangeInclusive<i64>,
}

/// The policy `default` with everything that moves still in MongoDB.
fn policy(dir: &Path) -> String {
    const DEFAULT: &str = include_str!("../../../../../policies/default.toml");
    let policy = DEFAULT.replace("name = \"default\"", "name = \"before\"").replace(
        "home = \"cassandra\"\nmigration_store = \"mongodb\"",
        "home = \"mongodb\"\nmigration_store = \"cassandra\"",
    );
    assert_eq!(policy.matches("migration_store = \"cassandra\"").count(), ENTITIES.len(), "{policy}");
    // Copying gives way to shoppers who wait longer than this. Here they always do, whether anything is copied or not.
    let policy = policy
        .replace("read_p99 = \"50ms\"\nwrite_p99 = \"30ms\"", "read_p99 = \"20s\"\nwrite_p99 = \"20s\"");
    assert!(policy.contains("\"20s\""), "{policy}");
    // As long as MongoDB has in these tests: a machine that also builds can be slow, and that is nobody's fault.
    let policy = policy.replace(".cassandra]\n", ".cassandra]\ntimeout = \"9s\"\n");
    assert_eq!(policy.matches("timeout = \"9s\"").count(), ENTITIES.len(), "{policy}");
    let path = dir.join("before.toml");
    std::fs::write(&path, policy).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The shop as the servers know it: another one in every run on the same servers.
fn shop_name() -> String {
    format!("moving{}", std::process::id())
}

fn free_host() -> String {
    let first = std::process::id() as usize % PORTS.len();
    let ports = PORTS.cycle_from(first);
    let free = ports.into_iter().find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    format!("127.0.0.1:{}", free.expect("a port is free"))
}

/// All of a range, beginning somewhere in it.
trait CycleFrom {
    fn cycle_from(self, first: usize) -> Vec<u16>;
}

impl CycleFrom for RangeInclusive<u16> {
    fn cycle_from(self, first: usize) -> Vec<u16> {
        let count = self.len();
        self.cycle().skip(first).take(count).collect()
    }
}

/// What blocks, beside everything else that goes on.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Says what happens, and when.
pub(crate) fn tell(what: &str) {
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    eprintln!("{:>6.1} s: {what}", STARTED.elapsed().as_secs_f64());
}

pub(crate) fn now_ms() -> i64 {
    SystemClock.now().as_millis()
}

impl World {
    pub(crate) async fn start() -> Self {
        tell("servers are started");
        let dir = TempDir::new().unwrap();
        let policy = policy(dir.path());
        let (servers, mut environment) = blocking(move || {
            let servers = Servers::shared(policy);
            let environment = servers.environment(&shop_name(), Tables::Own);
            (servers, environment)
        })
        .await;
        environment.extend([
            ("MOBIMIR_MIGRATIONS", "true".to_owned()),
            // Less than a handover waits for requests that are under way.
            ("MOBIMIR_MONGODB_TIMEOUT_MS", "9000".to_owned()),
            // Servers are killed and paused here, and shoppers are not kept waiting for minutes because of
            // that.
            ("MOBIMIR_LIMITS_REQUEST_MS_MAX", "10000".to_owned()),
            ("MOBIMIR_MIGRATION_SHADOW_PERCENT", "30".to_owned()),
            ("MOBIMIR_READ_AFTER_KEY", "the same for both of them".to_owned()),
        ]);
        let instance = |name| Instance { name, host: free_host(), process: None, started_ms: 0..=0 };
        let instances = Vec::new();
        let mut world = Self { instances, environment, servers: Arc::new(servers), dir };
        for (number, name) in ["first", "second"].into_iter().enumerate() {
            world.instances.push(instance(name));
            world.restart(number).await;
        }
        world
    }

    pub(crate) fn host(&self, number: usize) -> &str {
        &self.instances[number].host
    }

    pub(crate) fn hosts(&self) -> Vec<String> {
        self.instances.iter().map(|instance| instance.host.clone()).collect()
    }

    /// kill -9
    pub(crate) fn kill(&mut self, number: usize) {
        self.instances[number].process.take().expect("it runs").kill();
    }

    pub(crate) async fn restart(&mut self, number: usize) {
        let (name, host) = (self.instances[number].name, self.instances[number].host.clone());
        let (data, environment) = (self.dir.path().join(name), self.environment.clone());
        let before_ms = now_ms();
        let process = blocking(move || {
            let environment: Vec<(&str, &str)> =
                environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
            Process::start_at(&host, &["demo", "--products", "60"], &data, &environment)
        })
        .await;
        let instance = &mut self.instances[number];
        (instance.process, instance.started_ms) = (Some(process), before_ms..=now_ms());
    }

    /// Many who come in and buy nothing.
    pub(crate) async fn let_passers_by_in(&self) {
        let (host, each) = (self.host(0).to_owned(), PASSERS_BY / PASSERS_BY_AT_ONCE);
        let come_in = (0..PASSERS_BY_AT_ONCE).map(|_| {
            let host = host.clone();
            tokio::spawn(async move {
                let mut visitor = Client::new(&host).tolerating_503(SHORT_TIMEOUTS);
                for _ in 0..each {
                    // One more of them does no harm.
                    visitor.certain(Method::POST, "/v1/sessions", &[], Some(json!({}))).await.expect(201);
                }
            })
        });
        for came_in in come_in.collect::<Vec<_>>() {
            came_in.await.unwrap();
        }
        tell(&format!("{PASSERS_BY} came in"));
    }

    /// Begins, however long the shop takes to open the target.
    pub(crate) async fn start_moving(&self, host: &str, entity: &str) {
        let path = format!("/v1/ops/migrations/{entity}/start");
        let started = Instant::now();
        loop {
            let answer = Client::with_token(host, OPERATOR).post(&path, json!({})).await;
            match answer.status.as_u16() {
                200 => return,
                // It may have begun after it was no longer waited for.
                409 if self.record(entity).await.is_some() => return,
                503 => tokio::time::sleep(PAUSE).await,
                _ => panic!("{answer:?}"),
            }
            assert!(started.elapsed() < PATIENCE, "nobody begins with {entity}");
        }
    }

    /// Waits until a part of them has been copied, and another part has not. Where it is over before anybody looks, it is begun
    /// anew.
    pub(crate) async fn be_in_the_middle_of_copying(&self, entity: &str) {
        let started = Instant::now();
        loop {
            let status = self.status_in_time(entity).await;
            let [done, ranges] = ["ranges_done", "ranges"].map(|of| status["backfill"][of].as_u64());
            if let (Some(done @ 1..), Some(ranges)) = (done, ranges) {
                tell(&format!("{done} of {ranges} ranges of {entity} are copied"));
                if done < ranges {
                    return;
                }
                self.bring(entity, "dual-write").await;
                self.act(entity, "advance").await;
            }
            assert!(started.elapsed() < PATIENCE, "nothing is copied: {status:#}");
            tokio::time::sleep(QUICK_PAUSE).await;
        }
    }

    /// Which instance does the long work for an entity.
    pub(crate) async fn worker(&self, entity: &str) -> usize {
        let started = Instant::now();
        loop {
            if let Some(worker) = self.present_worker(entity).await {
                return worker;
            }
            assert!(started.elapsed() < PATIENCE, "nobody works at {entity}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// If one does that is still there.
    async fn present_worker(&self, entity: &str) -> Option<usize> {
        let worker = self.note(&format!("migration/{entity}/worker")).await?;
        let id = worker["instance"].as_str()?.replace('-', "");
        // An id begins with the milliseconds of its making.
        let made_ms = i64::from_str_radix(id.get(..12)?, 16).ok()?;
        self.instances.iter().position(|instance| instance.started_ms.contains(&made_ms))
    }

    /// How far a migration is, as all instances read it; `None` while nobody can. A status says more, and costs those who
    /// buy something when it is asked all the time.
    pub(crate) async fn record(&self, entity: &str) -> Option<Record> {
        let record = self.note(&format!("migration/{entity}")).await?;
        assert_eq!(record["is_paused"], false, "something differs: {:#}", self.status(entity).await?);
        let phase = record["control"]["phase"].as_str()?.to_owned();
        let is_verified = record["control"]["verified"] == true;
        Some(Record { phase, is_on_its_way: !record["wanted"].is_null(), is_verified })
    }

    async fn note(&self, name: &str) -> Option<Value> {
        let (servers, name) = (self.servers.clone(), name.to_owned());
        let found = blocking(move || {
            let find = doc! { "find": "notes", "filter": { "_id": name }, "limit": 1 };
            servers.mongo.run_on(servers.mongo.primary()?, &shop_name(), find)
        });
        let found = found.await.ok()?;
        let note = found.get_document("cursor").ok()?.get_array("firstBatch").ok()?.first()?.as_document()?;
        serde_json::from_slice(note.get_binary_generic("body").ok()?).ok()
    }

    /// What an instance says of a migration; `None` while nobody can.
    pub(crate) async fn status(&self, entity: &str) -> Option<Value> {
        let path = format!("/v1/ops/migrations/{entity}");
        for instance in self.instances.iter().filter(|instance| instance.process.is_some()) {
            let mut operator = Client::with_token(&instance.host, OPERATOR);
            let answer = operator.send(Method::GET, &path, &[], None).await;
            if let Some(answer) = answer.ok().filter(|answer| answer.status == 200) {
                return Some(answer.json());
            }
        }
        None
    }

    pub(crate) async fn status_in_time(&self, entity: &str) -> Value {
        let started = Instant::now();
        loop {
            if let Some(status) = self.status(entity).await {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "nobody says how far {entity} are");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks for something until somebody has heard it.
    pub(crate) async fn act(&self, entity: &str, action: &str) {
        let path = format!("/v1/ops/migrations/{entity}/{action}");
        let started = Instant::now();
        let before = loop {
            if let Some(record) = self.record(entity).await {
                break record.phase;
            }
            assert!(started.elapsed() < PATIENCE, "nobody knows where {entity} is");
            tokio::time::sleep(PAUSE).await;
        };
        loop {
            for instance in self.instances.iter().filter(|instance| instance.process.is_some()) {
                let mut operator = Client::with_token(&instance.host, OPERATOR);
                let answer = operator.send(Method::POST, &path, &[], Some(json!({}))).await;
                // It may be refused, or somebody who works on it has written at the same moment.
                if let Some(answer) = answer.ok().filter(|answer| answer.status != 503) {
                    assert!(answer.status == 200 || answer.status == 409, "{answer:?}");
                    return;
                }
                // It may have been taken all the same, and to ask again would be one step more.
                let now = self.record(entity).await;
                if now.is_none_or(|now| now.is_on_its_way || now.phase != before) {
                    return;
                }
            }
            assert!(started.elapsed() < PATIENCE, "nobody takes {action} of {entity}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) async fn act_on_all(&self, action: &str) {
        let [orders, carts, sessions] = ENTITIES;
        tokio::join!(self.act(orders, action), self.act(carts, action), self.act(sessions, action));
    }

    /// Asks for the next phase, or the one before, until the entity has arrived.
    pub(crate) async fn bring(&self, entity: &str, goal: &str) {
        let started = Instant::now();
        loop {
            let now = self.record(entity).await.filter(|record| !record.is_on_its_way);
            if let Some(Record { phase, .. }) = now {
                if phase == goal {
                    tell(&format!("{entity} at {goal}"));
                    return;
                }
                let action = if rank(&phase) < rank(goal) { "advance" } else { "rollback" };
                self.act(entity, action).await;
            }
            if started.elapsed() > PATIENCE {
                panic!("{entity} does not come to {goal}: {:#?}", self.status(entity).await);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) async fn bring_all(&self, goal: &str) {
        let [orders, carts, sessions] = ENTITIES;
        tokio::join!(self.bring(orders, goal), self.bring(carts, goal), self.bring(sessions, goal));
    }

    /// Waits until one of them is in one of these phases; says which, if it is seen before all have come to rest.
    pub(crate) async fn catch(&self, phases: &[&str]) -> Option<String> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let mut at_rest = 0;
            for entity in ENTITIES {
                let Some(now) = self.record(entity).await else { continue };
                if phases.contains(&now.phase.as_str()) {
                    return Some(format!("{entity} in {}", now.phase));
                }
                at_rest += usize::from(!now.is_on_its_way);
            }
            if at_rest == ENTITIES.len() {
                return None;
            }
            tokio::time::sleep(QUICK_PAUSE).await;
        }
        panic!("nothing comes to {phases:?}");
    }

    /// Waits until nothing is on its way.
    pub(crate) async fn come_to_rest(&self) {
        let started = Instant::now();
        for entity in ENTITIES {
            while self.record(entity).await.is_none_or(|now| now.is_on_its_way) {
                assert!(started.elapsed() < PATIENCE, "{entity} does not come to rest");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Waits until everything has been compared in the phase `verify`, and nothing differed. If something does, the
    /// migration is paused.
    pub(crate) async fn compare_all(&self) {
        let started = Instant::now();
        for entity in ENTITIES {
            while self.record(entity).await.is_none_or(|now| now.phase != "verify" || !now.is_verified) {
                assert!(started.elapsed() < PATIENCE, "{entity} is not compared");
                tokio::time::sleep(PAUSE).await;
            }
            if let Some(status) = self.status(entity).await {
                let shadow = &status["shadow"];
                assert_eq!(shadow["different"], 0, "{status:#}");
                tell(&format!("{entity} compared, and nothing differs; shadow reads: {}", shadow["asked"]));
            }
        }
    }
}

fn rank(phase: &str) -> usize {
    PHASES.iter().position(|known| *known == phase).expect("a phase")
}
