//! Where the shops of a run keep their data. Without more, each has a data directory; with `MOBIMIR_SUITE_POLICY=default`
//! the same tests run on real servers, as that policy places the data.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    path::Path,
    sync::LazyLock,
    time::{Duration, Instant},
};

use mobimir_lab::{Mongo, Ring, StoreProxies};

use super::process::program;

/// As the policy has it.
const DEADLINE: &str = "checkout_deadline = \"15s\"";
const POLICY_VARIABLE: &str = "MOBIMIR_SUITE_POLICY";
/// How long servers that do much else may refuse to make tables.
const TABLES_IN_MAX: Duration = Duration::from_secs(180);
/// A machine that also builds can be slow.
const PATIENCE: [(&str, &str); 2] =
    [("MOBIMIR_MONGODB_CONNECT_TIMEOUT_MS", "60000"), ("MOBIMIR_MONGODB_TIMEOUT_MS", "120000")];

static SERVERS: LazyLock<Option<Servers>> = LazyLock::new(|| {
    let policy = std::env::var(POLICY_VARIABLE).ok().filter(|policy| !policy.is_empty())?;
    Some(Servers::shared(policy))
});

/// A ring of one data centre and a replica set, three servers each: those that all tests of a run share.
pub(crate) struct Servers {
    policy: String,
    pub(crate) ring: Ring,
    pub(crate) mongo: Mongo,
}

/// Whether this run has real servers. None is started by asking.
pub(crate) fn are_real() -> bool {
    std::env::var(POLICY_VARIABLE).is_ok_and(|policy| !policy.is_empty())
}

/// The policy of the shops of this run.
pub(crate) fn policy_name() -> &'static str {
    SERVERS.as_ref().map_or("embedded", |servers| servers.policy.as_str())
}

/// A policy under which a checkout that nobody finishes is given up soon, as it is placed in this run.
pub(crate) fn hasty_policy() -> String {
    match &*SERVERS {
        None => "[times]\ncheckout_deadline = \"1s\"\n".to_owned(),
        Some(_) => patient_policy().replace("checkout_deadline = \"10m\"", "checkout_deadline = \"1s\""),
    }
}

/// The policy of the shops of this run, but a server is waited for longer: a machine that also builds can be slow.
fn patient_policy() -> String {
    const DEFAULT: &str = include_str!("../../../../../policies/default.toml");
    assert_eq!(policy_name(), "default", "only that policy is known here");
    let policy = DEFAULT.replace(".cassandra]\n", ".cassandra]\ntimeout = \"60s\"\n");
    assert_eq!(policy.matches("timeout = \"60s\"").count(), 3, "{policy}");
    let patient = policy.replace(DEADLINE, "checkout_deadline = \"10m\"");
    assert_ne!(patient, policy, "{policy}");
    patient
}

/// The primary of the replica set, ended with `kill -9`, if this run has one.
pub(crate) struct PrimaryKill(Option<(&'static Mongo, u16)>);

pub(crate) fn kill_primary() -> PrimaryKill {
    PrimaryKill(SERVERS.as_ref().map(|servers| {
        let primary = servers.mongo.wait_primary().expect("a primary");
        servers.mongo.kill(primary).expect("it runs");
        (&servers.mongo, primary)
    }))
}

impl PrimaryKill {
    pub(crate) fn start_again(self) {
        if let Some((mongo, member)) = self.0 {
            mongo.start_member(member).expect("it starts with its data");
            mongo.wait_ready().expect("the set is whole");
        }
    }
}

/// The servers of this run, if it has some.
pub(crate) fn real() -> Option<&'static Servers> {
    SERVERS.as_ref()
}

/// What shops of one run have in common on real servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// The tables in Cassandra, because it takes long to make them. A day's orders are those of all.
    Shared,
    Own,
}

/// What tells a shop on this data directory where its data is. The same directory is the same shop.
pub(crate) fn environment(data: &Path, tables: Tables) -> Vec<(&'static str, String)> {
    let Some(servers) = &*SERVERS else { return Vec::new() };
    let mut environment = servers.environment(&shop_name(data), tables);
    let policy = data.with_extension("policy.toml");
    std::fs::write(&policy, patient_policy()).expect("a policy can be written beside the data");
    // The later one counts.
    environment.push(("MOBIMIR_POLICY", policy.to_str().expect("a path").to_owned()));
    environment
}

/// The same with the policy as it is shipped: its deadlines, its timeouts and those of the configuration.
pub(crate) fn production_environment(data: &Path, tables: Tables) -> Vec<(&'static str, String)> {
    production_environment_under(policy_name(), data, tables)
}

/// Under another built-in policy than that of this run.
pub(crate) fn production_environment_under(
    policy: &str,
    data: &Path,
    tables: Tables,
) -> Vec<(&'static str, String)> {
    let Some(servers) = &*SERVERS else { return Vec::new() };
    servers.production_environment_under(policy, &shop_name(data), tables)
}

/// The same shop, for an instance that comes to its stores through proxies.
pub(crate) fn through(
    proxies: &StoreProxies,
    environment: &[(&'static str, String)],
) -> Vec<(&'static str, String)> {
    let mut environment = environment.to_vec();
    // The later ones count.
    environment.push(("MOBIMIR_CASSANDRA_CONTACT_POINTS", proxies.contact_points().join(",")));
    environment.push(("MOBIMIR_MONGODB_URI", proxies.uri()));
    environment
}

/// The same directory is the same shop.
fn shop_name(data: &Path) -> String {
    let mut name = DefaultHasher::new();
    data.hash(&mut name);
    // One process' shops, so that those of another run are others.
    std::process::id().hash(&mut name);
    format!("t{:016x}", name.finish())
}

impl Servers {
    /// For shops with this policy.
    pub(crate) fn shared(policy: String) -> Self {
        let ring = Ring::shared().expect("a ring can be started");
        let mongo = Mongo::shared().expect("a replica set can be started");
        Self { policy, ring, mongo }
    }

    /// Servers of a test's own.
    pub(crate) fn of(policy: String, ring: Ring, mongo: Mongo) -> Self {
        Self { policy, ring, mongo }
    }

    /// See [`production_environment`].
    pub(crate) fn production_environment(&self, name: &str, tables: Tables) -> Vec<(&'static str, String)> {
        self.production_environment_under(&self.policy, name, tables)
    }

    fn production_environment_under(
        &self,
        policy: &str,
        name: &str,
        tables: Tables,
    ) -> Vec<(&'static str, String)> {
        let mut environment = self.environment_under(policy, name, tables);
        environment.retain(|(name, _)| !PATIENCE.iter().any(|(patience, _)| name == patience));
        environment
    }

    /// What tells a shop of this name to keep its data here, with everything made that it needs.
    pub(crate) fn environment(&self, name: &str, tables: Tables) -> Vec<(&'static str, String)> {
        self.environment_under(&self.policy, name, tables)
    }

    fn environment_under(&self, policy: &str, name: &str, tables: Tables) -> Vec<(&'static str, String)> {
        let mut environment = vec![
            ("MOBIMIR_POLICY", policy.to_owned()),
            ("MOBIMIR_CASSANDRA_CONTACT_POINTS", self.ring.contact_points().join(",")),
            ("MOBIMIR_CASSANDRA_DATA_CENTRES", format!("dc1={}", self.ring.nodes().len())),
            ("MOBIMIR_MONGODB_URI", self.mongo.uri()),
            ("MOBIMIR_MONGODB_DATABASE", name.to_owned()),
        ];
        environment.extend(PATIENCE.map(|(name, value)| (name, value.to_owned())));
        if tables == Tables::Own {
            environment.push(("MOBIMIR_CASSANDRA_KEYSPACE_PREFIX", name.to_owned()));
        }
        // It goes on with what is there.
        let started = Instant::now();
        loop {
            let made = program().args(["schema", "apply"]).envs(environment.iter().cloned()).output();
            let made = made.expect("the program runs");
            if made.status.success() {
                return environment;
            }
            assert!(started.elapsed() < TABLES_IN_MAX, "{}", String::from_utf8_lossy(&made.stderr));
        }
    }
}
