//! A connection to a cluster, shared by all entities that live there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mobimir_core::policy::{Entity, Policy, Store};
use scylla::{
    client::{
        execution_profile::{ExecutionProfile, ExecutionProfileHandle},
        session::Session,
        session_builder::SessionBuilder,
    },
    policies::load_balancing::DefaultPolicy,
    statement::prepared::PreparedStatement,
};
use thiserror::Error;
use tokio::time::timeout;

use crate::{
    config::ClusterConfig,
    link::{Meter, Meters, NothingDone, RequestLog},
    partitions::PartitionMeters,
    stamps::Stamps,
};

pub struct Cluster {
    session: Session,
    config: ClusterConfig,
    local_dc: String,
    /// The local data centre first, then the others.
    anywhere: ExecutionProfileHandle,
    /// Only the named data centre is asked.
    only: BTreeMap<String, ExecutionProfileHandle>,
    stamps: Stamps,
    meters: Meters,
    partitions: PartitionMeters,
}

/// The data centre that an entity goes on in while another is lost. Its profile follows it.
pub(crate) struct Surviving {
    dc: Mutex<String>,
    profile: ExecutionProfileHandle,
}

const PREPARE_TIME_MAX: Duration = Duration::from_secs(5);
const PREPARE_ATTEMPTS_MAX: u32 = 6;

#[derive(Debug, Error)]
pub enum ConnectError {
    #[error(
        "cannot reach Cassandra at {contact_points}: {source}; is it running? `mobimir lab cassandra` starts one"
    )]
    Unreachable {
        contact_points: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("expected {what} to be a data centre of the cluster ({known}), got {got:?}")]
    NoSuchDc { what: &'static str, known: String, got: String },
    #[error(
        "the cluster does not take the statement {name}: {source}; `mobimir schema apply` brings its tables up to date"
    )]
    Prepare {
        name: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the policy places nothing in Cassandra")]
    NothingThere,
    #[error("cannot read what the cluster has: {0}")]
    Start(#[from] mobimir_core::ports::StoreError),
}

impl Cluster {
    pub async fn connect(config: ClusterConfig, policy: &Policy) -> Result<Arc<Self>, ConnectError> {
        let homes: Vec<_> = Entity::ALL
            .iter()
            .filter_map(|entity| policy.placement(*entity))
            .filter(|placement| placement.uses(Store::Cassandra))
            .filter_map(|placement| placement.cassandra.as_ref())
            .collect();
        let Some(first) = homes.first() else { return Err(ConnectError::NothingThere) };
        let local_dc = config.local_dc.clone().unwrap_or_else(|| first.home_dc.clone());

        let session = builder(&config).build().await.map_err(|error| ConnectError::Unreachable {
            contact_points: config.contact_points.join(", "),
            source: Box::new(error),
        })?;
        let dcs: BTreeSet<String> = session
            .get_cluster_state()
            .get_nodes_info()
            .iter()
            .filter_map(|node| node.datacenter.clone())
            .collect();
        let known = dcs.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let named = homes.iter().flat_map(|settings| settings.replication.keys());
        for (what, dc) in
            std::iter::once(("local_dc", &local_dc)).chain(named.map(|dc| ("the policy's replication", dc)))
        {
            if !dcs.contains(dc) {
                return Err(ConnectError::NoSuchDc { what, known, got: dc.clone() });
            }
        }
        let only: BTreeMap<String, ExecutionProfileHandle> =
            dcs.iter().map(|dc| (dc.clone(), profile(dc, false).into_handle())).collect();
        Ok(Arc::new(Self {
            session,
            anywhere: profile(&local_dc, true).into_handle(),
            only,
            config,
            local_dc,
            stamps: Stamps::default(),
            meters: Meters::default(),
            partitions: PartitionMeters::default(),
        }))
    }

    pub(crate) fn config(&self) -> &ClusterConfig {
        &self.config
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Prepares a statement. The driver asks all nodes and waits for each; one that hangs must not hold up a start for ever.
    pub(crate) async fn prepare(
        &self,
        name: &'static str,
        cql: &str,
    ) -> Result<PreparedStatement, ConnectError> {
        for _ in 0..PREPARE_ATTEMPTS_MAX {
            if let Ok(prepared) = timeout(PREPARE_TIME_MAX, self.session.prepare(cql)).await {
                return prepared.map_err(|error| ConnectError::Prepare { name, source: Box::new(error) });
            }
        }
        let waited = PREPARE_TIME_MAX * PREPARE_ATTEMPTS_MAX;
        let source = format!("no answer within {} s", waited.as_secs()).into();
        Err(ConnectError::Prepare { name, source })
    }

    pub fn keyspace(&self, entity: Entity) -> String {
        crate::schema::keyspace_name(&self.config.keyspace_prefix, entity)
    }

    /// Lines for `/metrics`, in the OpenMetrics text format.
    pub fn metrics(&self) -> String {
        self.meters.text() + &self.partitions.text()
    }

    /// Writes down now what is else written down every half minute: which partitions got the most.
    pub async fn write_partition_stats(&self) {
        self.partitions.write(self).await;
    }

    /// How many requests the cluster could not keep up with since the process started.
    pub fn overloads(&self) -> u64 {
        self.meters.overloads()
    }

    /// Why nothing works now, if no node is connected.
    pub fn trouble(&self) -> Option<String> {
        let state = self.session.get_cluster_state();
        let connected = state.get_nodes_info().iter().any(|node| node.is_connected());
        (!connected)
            .then(|| format!("no node of Cassandra at {} answers", self.config.contact_points.join(", ")))
    }

    pub(crate) fn meter(&self, entity: Entity) -> Meter {
        self.meters.of(entity)
    }

    pub(crate) fn partitions(&self) -> &PartitionMeters {
        &self.partitions
    }

    pub(crate) fn keyspace_prefix(&self) -> &str {
        &self.config.keyspace_prefix
    }

    pub(crate) fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    pub(crate) fn log(&self) -> Option<&Arc<RequestLog>> {
        self.config.log.as_ref()
    }

    pub(crate) fn local_dc(&self) -> &str {
        &self.local_dc
    }

    /// For LOCAL_* levels: in another data centre they would count the replicas of that one.
    pub(crate) fn local_profile(&self) -> ExecutionProfileHandle {
        self.profile_of(&self.local_dc)
    }

    /// For levels that mean the same wherever they are coordinated.
    pub(crate) fn anywhere_profile(&self) -> ExecutionProfileHandle {
        self.anywhere.clone()
    }

    /// Only this data centre is asked. Conditional statements are exclusive within one only.
    pub(crate) fn profile_of(&self, dc: &str) -> ExecutionProfileHandle {
        // Every data centre that a policy names is there: `connect` has seen to it.
        self.only.get(dc).unwrap_or(&self.anywhere).clone()
    }
}

impl Surviving {
    pub(crate) fn new(dc: &str) -> Self {
        Self { dc: Mutex::new(dc.to_owned()), profile: profile(dc, false).into_handle() }
    }

    pub(crate) fn profile(&self) -> ExecutionProfileHandle {
        self.profile.clone()
    }

    pub(crate) fn dc(&self) -> String {
        self.dc.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is(&self, dc: &str) -> bool {
        *self.dc.lock().unwrap_or_else(PoisonError::into_inner) == dc
    }

    /// From now on it is this one.
    pub(crate) fn set(&self, dc: &str) {
        let mut surviving = self.dc.lock().unwrap_or_else(PoisonError::into_inner);
        if *surviving != dc {
            let mut handle = self.profile.clone();
            handle.map_to_another_profile(profile(dc, false));
            dc.clone_into(&mut surviving);
        }
    }
}

/// How a session begins.
pub(crate) fn builder(config: &ClusterConfig) -> SessionBuilder {
    let builder = SessionBuilder::new()
        .known_nodes(&config.contact_points)
        .connection_timeout(config.connect_timeout)
        .tcp_nodelay(true);
    match (&config.user, &config.password) {
        (Some(user), Some(password)) => builder.user(user, password),
        _ => builder,
    }
}

fn profile(dc: &str, others_too: bool) -> ExecutionProfile {
    let balancing = DefaultPolicy::builder()
        .prefer_datacenter(dc.to_owned())
        .token_aware(true)
        .permit_dc_failover(others_too)
        .build();
    ExecutionProfile::builder()
        .load_balancing_policy(balancing)
        .retry_policy(Arc::new(NothingDone))
        // Who sends knows how long there is time, and a second timer costs as much as the first.
        .request_timeout(None)
        .build()
}
