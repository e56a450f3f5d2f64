//! One ring for all tests. Most of them share the keyspaces of a policy, each with owners, customers and sessions of its own;
//! what lists or scans everything that is there has keyspaces to itself.

use std::{
    collections::hash_map::DefaultHasher,
    fmt::Debug,
    hash::{Hash, Hasher},
    sync::{
        Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mobimir_cassandra::{Cluster, ClusterConfig, RequestLog, schema};
use mobimir_core::{
    policy::{BUILT_IN, CassandraSettings, Entity, Period, Policy, Replication},
    ports::StoreResult,
};
use mobimir_lab::Ring;
use mobimir_testkit::conformance::{CASES_VARIABLE, ConformanceOptions};
use scylla::{client::session::Session, statement::Statement};

/// How long something may take that takes milliseconds on a machine with nothing else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// How long a store tries to get an answer, in tests that say nothing about it.
const REQUEST_PATIENCE: Period = Period::seconds(30);
/// Of one statement that makes, changes or drops a table.
const TABLE_PATIENCE: Duration = Duration::from_secs(120);
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
/// Before something is looked at again.
const PAUSE: Duration = Duration::from_millis(100);

static RING: LazyLock<Ring> = LazyLock::new(|| Ring::shared().expect("a ring can be started"));

/// How the names of keyspaces begin that are shared.
const COMMON: &str = "common";

/// Who uses which keyspaces of his own. A node of a test ring has room for some hundred tables, not for those of all tests.
static IN_USE: Mutex<Vec<InUse>> = Mutex::new(Vec::new());

struct InUse {
    contact_points: Vec<String>,
    prefix: String,
    by: Weak<Cluster>,
}

/// Whoever makes, changes or drops tables holds this: the nodes take long to agree when several do so at once.
pub(crate) static TABLES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Tests that leave the ring whole run side by side; one that breaks it runs alone.
static PEACE: RwLock<()> = RwLock::new(());

pub(crate) struct Shared {
    pub(crate) ring: &'static Ring,
    _peace: RwLockReadGuard<'static, ()>,
}

pub(crate) struct Alone {
    pub(crate) ring: &'static Ring,
    _peace: RwLockWriteGuard<'static, ()>,
}

pub(crate) fn shared() -> Shared {
    let peace = PEACE.read().unwrap_or_else(PoisonError::into_inner);
    Shared { ring: &RING, _peace: peace }
}

pub(crate) fn alone() -> Alone {
    let peace = PEACE.write().unwrap_or_else(PoisonError::into_inner);
    Alone { ring: &RING, _peace: peace }
}

/// A built-in policy, on the ring's one data centre.
pub(crate) fn policy(name: &str) -> Policy {
    let built_in = BUILT_IN.iter().find(|policy| policy.name == name).expect("a built-in policy");
    let policy = Policy::parse(built_in.text, name).expect("built-in policies are right");
    policy.in_data_centres(&Replication::from([("dc1".to_owned(), 3)]))
}

/// What a policy says of an entity, with more time for every request.
pub(crate) fn settings(policy: &Policy, entity: Entity) -> CassandraSettings {
    let placement = policy.placement(entity).expect("the entity has a home of its own");
    let mut settings = placement.cassandra.clone().expect("the entity lives in Cassandra");
    settings.timeout = REQUEST_PATIENCE;
    settings
}

/// A cluster with keyspaces for some entities of a policy.
pub(crate) struct Fresh {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) prefix: String,
    pub(crate) log: Option<Arc<RequestLog>>,
}

/// Keyspaces that nobody else uses, for tests that list or scan all there is, or change the tables. Making one takes the
/// ring seconds: see [`common`].
pub(crate) async fn fresh(ring: &Ring, policy: &Policy, entities: &[Entity]) -> Fresh {
    let random = mobimir_core::secret::random_bytes::<4>();
    let prefix = format!("t{}", random.map(|byte| format!("{byte:02x}")).concat());
    create(ring, policy, entities, &prefix).await;
    Fresh { cluster: connect(ring, policy, &prefix, None).await, prefix, log: None }
}

/// The keyspaces that all tests with such a policy share, made by the first that asks.
pub(crate) async fn common(ring: &Ring, policy: &Policy, entities: &[Entity]) -> Fresh {
    let prefix = create_common(ring, policy, entities).await;
    Fresh { cluster: connect(ring, policy, &prefix, None).await, prefix, log: None }
}

/// The same, with every request written down and traced.
pub(crate) async fn watched(ring: &Ring, policy: &Policy, entities: &[Entity]) -> Fresh {
    let prefix = create_common(ring, policy, entities).await;
    let log = Arc::new(RequestLog::with_traces());
    let cluster = connect(ring, policy, &prefix, Some(log.clone())).await;
    Fresh { cluster, prefix, log: Some(log) }
}

/// Policies with the same tables have the same prefix, also in another process.
async fn create_common(ring: &Ring, policy: &Policy, entities: &[Entity]) -> String {
    /// Prefix and entity of those that this process has made.
    static MADE: tokio::sync::Mutex<Vec<(String, Entity)>> = tokio::sync::Mutex::const_new(Vec::new());
    let tables = schema::script(&schema::keyspaces(policy, COMMON));
    let mut hash = DefaultHasher::new();
    (ring.contact_points(), tables).hash(&mut hash);
    let prefix = format!("{COMMON}{:08x}", hash.finish() as u32);
    let mut made = MADE.lock().await;
    let missing = entities.iter().copied().filter(|entity| !made.contains(&(prefix.clone(), *entity)));
    let missing: Vec<Entity> = missing.collect();
    if !missing.is_empty() {
        apply(ring, policy, &missing, &prefix).await;
        made.extend(missing.into_iter().map(|entity| (prefix.clone(), entity)));
    }
    prefix
}

/// Makes tables as `mobimir schema apply` does. What is there stays.
async fn apply(ring: &Ring, policy: &Policy, entities: &[Entity], prefix: &str) {
    let cluster = connect(ring, policy, prefix, None).await;
    let mut keyspaces = schema::keyspaces(policy, prefix);
    keyspaces.retain(|keyspace| entities.contains(&keyspace.entity));
    let _tables = TABLES.lock().await;
    // A ring that does much else may refuse some of it at first.
    let (cluster, keyspaces) = (&cluster, &keyspaces);
    answered("the tables of a policy", || async move {
        let plan = schema::plan(cluster, keyspaces).await?;
        schema::apply(cluster, &plan, |_, _| {}).await
    })
    .await;
}

/// One more instance on the same keyspaces.
pub(crate) async fn connect(
    ring: &Ring,
    policy: &Policy,
    prefix: &str,
    log: Option<Arc<RequestLog>>,
) -> Arc<Cluster> {
    connect_in(ring, policy, prefix, log, None).await
}

/// One more instance, next to the nodes of a data centre.
pub(crate) async fn connect_in(
    ring: &Ring,
    policy: &Policy,
    prefix: &str,
    log: Option<Arc<RequestLog>>,
    local_dc: Option<&str>,
) -> Arc<Cluster> {
    let config = ClusterConfig {
        contact_points: ring.contact_points(),
        local_dc: local_dc.map(str::to_owned),
        keyspace_prefix: prefix.to_owned(),
        connect_timeout: CONNECT_PATIENCE,
        log,
        ..ClusterConfig::default()
    };
    let cluster = answered("the ring can be reached", || Cluster::connect(config.clone(), policy)).await;
    if !prefix.starts_with(COMMON) {
        let (contact_points, by) = (ring.contact_points(), Arc::downgrade(&cluster));
        let in_use = InUse { contact_points, prefix: prefix.to_owned(), by };
        IN_USE.lock().unwrap_or_else(PoisonError::into_inner).push(in_use);
    }
    cluster
}

/// Drops the keyspaces of tests that have ended.
async fn sweep(ring: &Ring, session: &Session) {
    let ended: Vec<String> = {
        let mut all = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let here = |used: &InUse| used.contact_points == ring.contact_points();
        let alive: Vec<String> =
            all.iter().filter(|used| used.by.strong_count() > 0).map(|used| used.prefix.clone()).collect();
        let gone = all.extract_if(.., |used| here(used) && !alive.contains(&used.prefix));
        gone.map(|used| used.prefix).collect()
    };
    if ended.is_empty() {
        return;
    }
    let select = "SELECT keyspace_name FROM system_schema.keyspaces";
    let names = answered("the keyspaces", || session.query_unpaged(select, ())).await;
    let names = names.into_rows_result().expect("rows");
    for name in names.rows::<(String,)>().expect("names") {
        let (name,) = name.expect("a name");
        if ended.iter().any(|prefix| name.starts_with(prefix)) {
            let cql = format!("DROP KEYSPACE IF EXISTS {name}");
            answered("a keyspace can be dropped", || session.query_unpaged(cql.as_str(), ())).await;
        }
    }
}

/// One node does it all, so that no statement has to wait until the others know of the one before.
async fn create(ring: &Ring, policy: &Policy, entities: &[Entity], prefix: &str) {
    use scylla::{
        client::{execution_profile::ExecutionProfile, session_builder::SessionBuilder},
        policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
    };
    let address = ring.contact_points()[0].parse().expect("an address");
    let one_node = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::NodeAddress(address), None);
    let profile = ExecutionProfile::builder()
        .load_balancing_policy(one_node)
        .request_timeout(Some(TABLE_PATIENCE))
        .build();
    let builder = SessionBuilder::new()
        .known_nodes(ring.contact_points())
        .connection_timeout(CONNECT_PATIENCE)
        .default_execution_profile_handle(profile.into_handle())
        .auto_await_schema_agreement(false)
        .schema_agreement_timeout(PATIENCE);
    let session = answered("the ring can be reached", || builder.build()).await;
    let _tables = TABLES.lock().await;
    sweep(ring, &session).await;
    for keyspace in schema::keyspaces(policy, prefix) {
        if entities.contains(&keyspace.entity) {
            answered("a keyspace", || session.query_unpaged(keyspace.create_cql(), ())).await;
            for table in &keyspace.tables {
                answered("a table", || session.query_unpaged(table.create_cql(&keyspace.name), ())).await;
            }
        }
    }
    session.await_schema_agreement().await.expect("the nodes agree about the tables");
}

/// A statement that makes or changes a table, sent once.
pub(crate) async fn change_tables(session: &Session, cql: &str) {
    let mut statement = Statement::new(cql);
    statement.set_request_timeout(Some(TABLE_PATIENCE));
    session.query_unpaged(statement, ()).await.unwrap_or_else(|error| panic!("{cql}: {error}"));
}

/// A ring answers in milliseconds, not microseconds: fewer cases, unless somebody asks for more.
pub(crate) fn options(cases: u32) -> ConformanceOptions {
    let asked_for = std::env::var_os(CASES_VARIABLE).map(|_| ConformanceOptions::from_env().cases);
    ConformanceOptions {
        cases: asked_for.unwrap_or(cases),
        steps: 40,
        rounds: 1,
        ..ConformanceOptions::default()
    }
}

/// Waits for something that others do in the background.
pub(crate) async fn until(what: &str, within: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < within, "{what}: not within {within:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tries until there is something to go on with.
pub(crate) async fn until_some<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks again while the answer is an error. For what may happen twice.
pub(crate) async fn answered<T, E: Debug, F: Future<Output = Result<T, E>>>(
    what: &str,
    ask: impl Fn() -> F,
) -> T {
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{what}: {error:?}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks again while nodes do not answer.
pub(crate) async fn until_answered<T, F: Future<Output = StoreResult<T>>>(ask: impl Fn() -> F) -> Option<T> {
    const WITHIN: Duration = Duration::from_secs(60);
    let started = Instant::now();
    while started.elapsed() < WITHIN {
        if let Ok(answer) = ask().await {
            return Some(answer);
        }
        tokio::time::sleep(PAUSE * 2).await;
    }
    None
}

/// Sees whether every request was sent once. One that takes long or fails is sent again, and what is counted then says
/// nothing.
pub(crate) struct Quiet<'a> {
    cluster: &'a Cluster,
    troubles: u64,
    started: Instant,
}

/// After this long a request is sent once more.
const SENT_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl<'a> Quiet<'a> {
    pub(crate) fn from_now_on(cluster: &'a Cluster) -> Self {
        Self { cluster, troubles: troubles(cluster), started: Instant::now() }
    }

    pub(crate) fn is_so(&self) -> bool {
        self.started.elapsed() < SENT_AGAIN_AFTER && troubles(self.cluster) == self.troubles
    }
}

/// Requests that were repeated or given up so far.
fn troubles(cluster: &Cluster) -> u64 {
    let counters = ["mobimir_cassandra_requests_repeated", "mobimir_cassandra_requests_failed"];
    let is_one = |line: &&str| counters.iter().any(|counter| line.starts_with(counter));
    let metrics = cluster.metrics();
    let counts = metrics.lines().filter(is_one).filter_map(|line| line.rsplit(' ').next());
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

/// Nodes stop answering, one after the other, while something is done.
pub(crate) fn while_nodes_hang<T>(ring: &Ring, work: impl FnOnce() -> T) -> T {
    /// However the work ends.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for node in (1..=3).cycle() {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                ring.pause(node).expect("a node hangs");
                std::thread::sleep(Duration::from_millis(1_200));
                ring.resume(node).expect("a node goes on");
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        let _ends = Ends(&ended);
        work()
    })
}
