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
    dcs: BTreeSet<String>,
    local: ExecutionProfileHandle,
    /// Only the named data centre is asked.
    only: BTreeMap<String, ExecutionProfileHandle>,
    /// Points to the data centre that went on while another was lost.
    surviving: Mutex<(String, ExecutionProfileHandle)>,
    surviving_handle: ExecutionProfileHandle,
    stamps: Stamps,
    meters: Meters,
    partitions: PartitionMeters,
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
        let surviving_handle = profile(&local_dc, false).into_handle();
        Ok(Arc::new(Self {
            session,
            local: profile(&local_dc, true).into_handle(),
            only,
            surviving: Mutex::new((local_dc.clone(), surviving_handle.clone())),
            surviving_handle,
            config,
            local_dc,
            dcs,
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

    pub(crate) fn local_profile(&self) -> ExecutionProfileHandle {
        self.local.clone()
    }

    /// For conditional statements, which are exclusive within one data centre only.
    pub(crate) fn home_profile(&self, home_dc: &str) -> ExecutionProfileHandle {
        self.only.get(home_dc).unwrap_or(&self.local).clone()
    }

    pub(crate) fn surviving_profile(&self) -> ExecutionProfileHandle {
        self.surviving_handle.clone()
    }

    pub(crate) fn surviving_dc(&self) -> String {
        self.surviving.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// From now on the surviving data centre is `dc`; without one, the local if it is there, or another that is.
    pub(crate) fn ask_surviving(&self, dc: Option<String>) {
        let dc = dc.filter(|dc| self.dcs.contains(dc)).unwrap_or_else(|| self.connected_dc());
        let mut surviving = self.surviving.lock().unwrap_or_else(PoisonError::into_inner);
        if surviving.0 != dc {
            surviving.1.map_to_another_profile(profile(&dc, false));
            surviving.0 = dc;
        }
    }

    fn connected_dc(&self) -> String {
        let state = self.session.get_cluster_state();
        let connected: BTreeSet<&String> = state
            .get_nodes_info()
            .iter()
            .filter(|node| node.is_connected())
            .filter_map(|node| node.datacenter.as_ref())
            .collect();
        let other = || connected.iter().next().map(|dc| (*dc).clone());
        if connected.contains(&self.local_dc) {
            self.local_dc.clone()
        } else {
            other().unwrap_or_else(|| self.local_dc.clone())
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
    ExecutionProfile::builder().load_balancing_policy(balancing).retry_policy(Arc::new(NothingDone)).build()
}
