//! One ring for all tests of this binary, and keyspaces of its own for each of them.

use std::{
    sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
    time::{Duration, Instant},
};

use mobimir_cassandra::{Cluster, ClusterConfig, RequestLog, schema};
use mobimir_core::policy::{BUILT_IN, CassandraSettings, Entity, Policy, Replication};
use mobimir_lab::{Ring, RingSpec};
use mobimir_testkit::conformance::{CASES_VARIABLE, ConformanceOptions};
use scylla::client::session::Session;

static RING: LazyLock<Ring> =
    LazyLock::new(|| Ring::ephemeral(&RingSpec::for_tests(3)).expect("a ring can be started"));

/// Who uses which keyspaces. A node of a test ring has room for some hundred tables, not for those of all tests.
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

pub(crate) fn settings(policy: &Policy, entity: Entity) -> CassandraSettings {
    let placement = policy.placement(entity).expect("the entity has a home of its own");
    placement.cassandra.clone().expect("the entity lives in Cassandra")
}

/// A cluster with new keyspaces for some entities of a policy.
pub(crate) struct Fresh {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) prefix: String,
    pub(crate) log: Option<Arc<RequestLog>>,
}

pub(crate) async fn fresh(ring: &Ring, policy: &Policy, entities: &[Entity]) -> Fresh {
    let random = mobimir_core::secret::random_bytes::<4>();
    let prefix = format!("t{}", random.map(|byte| format!("{byte:02x}")).concat());
    create(ring, policy, entities, &prefix).await;
    Fresh { cluster: connect(ring, policy, &prefix, None).await, prefix, log: None }
}

/// The same, with every request written down and traced.
pub(crate) async fn watched(ring: &Ring, policy: &Policy, entities: &[Entity]) -> Fresh {
    let fresh = fresh(ring, policy, entities).await;
    let log = Arc::new(RequestLog::with_traces());
    let cluster = connect(ring, policy, &fresh.prefix, Some(log.clone())).await;
    Fresh { cluster, log: Some(log), ..fresh }
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
        log,
        ..ClusterConfig::default()
    };
    let cluster = Cluster::connect(config, policy).await.expect("the ring can be reached");
    let (contact_points, prefix, by) = (ring.contact_points(), prefix.to_owned(), Arc::downgrade(&cluster));
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner).push(InUse { contact_points, prefix, by });
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
    let names = session.query_unpaged("SELECT keyspace_name FROM system_schema.keyspaces", ()).await;
    let names = names.expect("the keyspaces").into_rows_result().expect("rows");
    for name in names.rows::<(String,)>().expect("names") {
        let (name,) = name.expect("a name");
        if ended.iter().any(|prefix| name.starts_with(prefix)) {
            let dropped = session.query_unpaged(format!("DROP KEYSPACE IF EXISTS {name}"), ()).await;
            dropped.expect("a keyspace can be dropped");
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
        .request_timeout(Some(Duration::from_secs(30)))
        .build();
    let session = SessionBuilder::new()
        .known_nodes(ring.contact_points())
        .default_execution_profile_handle(profile.into_handle())
        .auto_await_schema_agreement(false)
        .build()
        .await
        .expect("the ring can be reached");
    let _tables = TABLES.lock().await;
    sweep(ring, &session).await;
    for keyspace in schema::keyspaces(policy, prefix) {
        if entities.contains(&keyspace.entity) {
            session.query_unpaged(keyspace.create_cql(), ()).await.expect("a keyspace");
            for table in &keyspace.tables {
                session.query_unpaged(table.create_cql(&keyspace.name), ()).await.expect("a table");
            }
        }
    }
    session.await_schema_agreement().await.expect("the nodes agree about the tables");
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
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
