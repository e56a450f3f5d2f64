//! A node of a ring, as it is written down in its directory.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{LabError, error::Trying, net::CQL_PORT, process, state};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// From 1, over all data centres; also the last number of the address.
    pub id: u16,
    pub address: Ipv4Addr,
    /// It runs there, and listens there for counters, too.
    #[serde(default)]
    pub namespace: Option<String>,
    pub dc: String,
    pub rack: String,
    /// See [`Node::jmx_host`].
    pub jmx_port: u16,
    /// Of the process that was last started; it may have ended.
    pub pid: Option<u32>,
    pub(crate) seed: bool,
    /// Empty if the node joined later and chose for itself.
    pub(crate) tokens: Vec<i64>,
    #[serde(skip)]
    pub(crate) dir: PathBuf,
}

impl Node {
    pub(crate) fn dir_in(root: &Path, id: u16) -> PathBuf {
        root.join(format!("node{id}"))
    }

    /// For messages.
    pub(crate) fn name(&self) -> String {
        format!("node {}", self.id)
    }

    /// Where a driver connects to.
    pub fn contact_point(&self) -> String {
        format!("{}:{CQL_PORT}", self.address)
    }

    /// Where its counters are read.
    pub(crate) fn jmx_host(&self) -> Ipv4Addr {
        if self.namespace.is_some() { self.address } else { Ipv4Addr::LOCALHOST }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join("log/system.log")
    }

    /// What the virtual machine prints; empty as long as all is well.
    pub(crate) fn output(&self) -> PathBuf {
        self.dir.join("log/output.log")
    }

    /// The end of what the node said, for an error message: why its virtual machine ended, or else its log.
    pub(crate) fn last_words(&self) -> String {
        let is_said = |line: &&str| !line.starts_with("WARNING:");
        let output = process::tail(&self.output(), is_said);
        if output.is_empty() { process::tail(&self.log(), |_| true) } else { output }
    }

    /// The process, if it is there.
    pub fn running(&self) -> Option<u32> {
        self.pid.filter(|pid| process::is_node(*pid, &self.dir))
    }

    pub(crate) fn save(&self) -> Result<(), LabError> {
        fs::create_dir_all(&self.dir).trying(|| format!("cannot make {}", self.dir.display()))?;
        state::save(&self.dir.join("node.json"), self)
    }

    pub(crate) fn load(dir: &Path) -> Result<Self, LabError> {
        Ok(Node { dir: dir.to_owned(), ..state::load(&dir.join("node.json"))? })
    }
}
