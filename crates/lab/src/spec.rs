//! What a ring shall be.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Host, LabError, Net};

const QUICK_TABLES: &str = "-Dcassandra.test.flush_local_schema_changes=false";

/// A node costs about half a gigabyte.
pub(crate) const NODES_MAX: u16 = 32;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingSpec {
    pub dcs: Vec<DataCentre>,
    pub profile: Profile,
    /// Where the nodes listen; `None` is 127.0.0 for a person's ring, and any free subnet for a test's.
    pub net: Option<Net>,
    /// Where each node runs, by its number, instead of on this host.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// How sure a node must be before it takes another one for dead: 8 is the server's own, 5 is quicker.
    pub phi: f64,
    /// No fsync: data survives the end of a node, even `kill -9`, and not that of the machine. Only with
    /// [`Profile::Test`].
    pub skip_sync: bool,
    /// Keys of cassandra.yaml, over those of the lab.
    pub extra_yaml: BTreeMap<String, Value>,
    /// Further arguments of the virtual machine.
    pub extra_jvm: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataCentre {
    pub name: String,
    pub nodes: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Starts fast and stays small: the quick compiler only, 512 MB of heap.
    Test,
    /// Gets fast: the optimising compiler, 1 GB of heap. Wants minutes to warm up.
    Bench,
}

impl RingSpec {
    /// Data centres dc1, dc2, … with so many nodes each, for a person.
    pub fn new(nodes_per_dc: &[u16], profile: Profile) -> Self {
        let dcs = (1..)
            .zip(nodes_per_dc)
            .map(|(number, &nodes)| DataCentre { name: format!("dc{number}"), nodes })
            .collect();
        RingSpec {
            dcs,
            profile,
            net: None,
            hosts: Vec::new(),
            phi: 8.0,
            skip_sync: false,
            extra_yaml: BTreeMap::new(),
            extra_jvm: Vec::new(),
        }
    }

    /// One data centre dc1, which notices early that a node is dead and never waits for the disk.
    pub fn for_tests(nodes: u16) -> Self {
        Self::for_tests_in(&[nodes])
    }

    /// Data centres dc1, dc2, … with so many nodes each.
    pub fn for_tests_in(nodes_per_dc: &[u16]) -> Self {
        RingSpec { phi: 5.0, skip_sync: true, ..Self::new(nodes_per_dc, Profile::Test) }
    }

    /// With a key of cassandra.yaml, as in `.with("write_request_timeout", "500ms")`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.extra_yaml.insert(key.to_owned(), value.into());
        self
    }

    /// Nodes wait for each other as long as a slow machine may take.
    #[must_use]
    pub fn patient(self) -> Self {
        let timeouts = ["read_request_timeout", "write_request_timeout", "cas_contention_timeout"];
        timeouts.into_iter().fold(self, |spec, timeout| spec.with(timeout, "10s"))
    }

    /// Nodes do not write every change of tables to the disk at once, which is most of what it takes. [`Ring::kill`](crate::Ring::kill)
    /// makes up for it: a node that is killed still knows its tables.
    #[must_use]
    pub fn with_quick_tables(mut self) -> Self {
        self.extra_jvm.push(QUICK_TABLES.to_owned());
        self
    }

    pub(crate) fn has_quick_tables(&self) -> bool {
        self.extra_jvm.iter().any(|argument| argument == QUICK_TABLES)
    }

    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    #[must_use]
    pub fn on(mut self, net: Net) -> Self {
        self.net = Some(net);
        self
    }

    /// Each node in a network namespace of its own.
    #[must_use]
    pub fn in_namespaces(mut self, hosts: &[Host]) -> Self {
        self.hosts = hosts.to_vec();
        self
    }

    pub fn nodes(&self) -> u16 {
        self.dcs.iter().map(|dc| dc.nodes).fold(0, u16::saturating_add)
    }

    pub(crate) fn check(&self) -> Result<(), LabError> {
        let sizes_are_good = !self.dcs.is_empty() && self.dcs.iter().all(|dc| dc.nodes > 0);
        if sizes_are_good && self.nodes() <= NODES_MAX {
            Ok(())
        } else {
            Err(LabError::BadSize { got: self.to_string(), max: NODES_MAX })
        }
    }

    pub(crate) fn skips_sync(&self) -> bool {
        self.skip_sync && self.profile == Profile::Test
    }
}

impl fmt::Display for RingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, dc) in self.dcs.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {} node{}", dc.name, dc.nodes, if dc.nodes == 1 { "" } else { "s" })?;
        }
        write!(f, ", profile {}", self.profile)?;
        if let Some(net) = &self.net {
            write!(f, ", on {net}")?;
        }
        for (key, value) in &self.extra_yaml {
            write!(f, ", {key} {value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Profile::Test => "test",
            Profile::Bench => "bench",
        })
    }
}
