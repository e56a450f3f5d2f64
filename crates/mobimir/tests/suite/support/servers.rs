//! Where the shops of a run keep their data. Without more, each has a data directory; with `MOBIMIR_SUITE_POLICY=default`
//! the same tests run on real servers, as that policy places the data.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    path::Path,
    sync::LazyLock,
};

use mobimir_lab::{Mongo, MongoSpec, Ring, RingSpec};

use super::process::program;

const POLICY_VARIABLE: &str = "MOBIMIR_SUITE_POLICY";

static SERVERS: LazyLock<Option<Servers>> = LazyLock::new(|| {
    let policy = std::env::var(POLICY_VARIABLE).ok().filter(|policy| !policy.is_empty())?;
    let ring = Ring::ephemeral(&RingSpec::for_tests(1)).expect("a ring can be started");
    let mongo = Mongo::ephemeral(&MongoSpec::for_tests(1)).expect("mongod can be started");
    Some(Servers { policy, ring, mongo })
});

struct Servers {
    policy: String,
    ring: Ring,
    mongo: Mongo,
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
    let mut name = DefaultHasher::new();
    data.hash(&mut name);
    // One process' shops, so that those of another run are others.
    std::process::id().hash(&mut name);
    let name = format!("t{:016x}", name.finish());
    let mut environment = vec![
        ("MOBIMIR_POLICY", servers.policy.clone()),
        ("MOBIMIR_CASSANDRA_CONTACT_POINTS", servers.ring.contact_points().join(",")),
        ("MOBIMIR_CASSANDRA_DATA_CENTRES", "dc1=1".to_owned()),
        ("MOBIMIR_MONGODB_URI", servers.mongo.uri()),
        ("MOBIMIR_MONGODB_DATABASE", name.clone()),
    ];
    if tables == Tables::Own {
        environment.push(("MOBIMIR_CASSANDRA_KEYSPACE_PREFIX", name));
    }
    let made = program().args(["schema", "apply"]).envs(environment.iter().cloned()).output();
    let made = made.expect("the program runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    environment
}
