//! How to reach a deployment. What is decided about the data stands in the policy, not here.

use std::{sync::Arc, time::Duration};

use mobimir_core::{
    invariant::InvariantCounters,
    policy::{Entity, Reads},
};

#[derive(Clone, Debug)]
pub struct MongoConfig {
    /// `mongodb://host:port,host:port/?replicaSet=name`, with user and password if it needs them.
    pub uri: String,
    pub database: String,
    /// How long to look for a server that can take a request.
    pub connect_timeout: Duration,
    /// How long one request may take in all.
    pub timeout: Duration,
    /// To each member, unless the address says `maxPoolSize`. One is taken for as long as a request is under way.
    pub connections_max: u32,
    /// Where the policy lets each operation read. Without it everything is read from the primary.
    pub reads: Reads,
    /// Entities whose writes count as soon as the primary has them, because the policy says so.
    pub primary_writes: Vec<Entity>,
    /// How often heartbeats are written and looked for; nobody is known to be closer than that.
    pub heartbeat: Duration,
    /// Where RD-1 is counted.
    pub invariants: Arc<InvariantCounters>,
}

impl Default for MongoConfig {
    fn default() -> Self {
        Self {
            uri: "mongodb://127.0.0.1:27017".to_owned(),
            database: "mobimir".to_owned(),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            connections_max: 100,
            reads: Reads::default(),
            primary_writes: Vec::new(),
            heartbeat: Duration::from_millis(200),
            invariants: Arc::default(),
        }
    }
}
