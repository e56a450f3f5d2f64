//! One mongod, as it is written down in its directory.

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Host, LabError, error::Trying, process, state};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Server {
    /// By which people and tests call it.
    pub(crate) id: u16,
    /// For messages.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The replica set it belongs to.
    pub(crate) set: String,
    pub(crate) port: u16,
    /// It runs there.
    #[serde(default)]
    pub(crate) host: Option<Host>,
    /// Of the process that was last started; it may have ended.
    pub(crate) pid: Option<u32>,
    #[serde(skip)]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Member,
    ConfigServer,
    Shard,
}

/// What every server is started with. The tests of expiry and of failure wait for these.
const PARAMETERS: [(&str, &str); 4] = [
    ("ttlMonitorSleepSecs", "1"),
    ("enableTestCommands", "1"),
    // Nobody looks at it here, and it costs a core some percent.
    ("diagnosticDataCollectionEnabled", "false"),
    // A server that is asked to end waits so long for others to go elsewhere; 15 s is its own.
    ("shutdownTimeoutMillisForSignaledShutdown", "2000"),
];

impl Server {
    pub(crate) fn new(root: &Path, id: u16, name: String, role: Role, set: &str, port: u16) -> Self {
        let dir = root.join(name.replace(' ', ""));
        Server { id, name, role, set: set.to_owned(), port, host: None, pid: None, dir }
    }

    pub(crate) fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, |host| host.address)
    }

    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.ip(), self.port)
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("mongod.log")
    }

    /// What it prints before it has a log.
    pub(crate) fn output(&self) -> PathBuf {
        self.dir.join("output.log")
    }

    pub(crate) fn last_words(&self) -> String {
        let output = process::tail(&self.output(), |line| line.contains("rror"));
        if output.is_empty() { process::tail(&self.log(), |_| true) } else { output }
    }

    /// The process, if it is there.
    pub(crate) fn running(&self) -> Option<u32> {
        self.pid.filter(|pid| process::is_node(*pid, &self.dir))
    }

    pub(crate) fn arguments(&self, parameters: &BTreeMap<String, String>) -> Vec<String> {
        let mut arguments = vec![
            format!("{}data", process::data_marker(&self.dir)),
            format!("--port={}", self.port),
            format!("--bind_ip={}", self.ip()),
            // A server that is killed leaves its socket in /tmp.
            "--nounixsocket".to_owned(),
            format!("--replSet={}", self.set),
            "--wiredTigerCacheSizeGB=0.25".to_owned(),
            "--oplogSize=256".to_owned(),
            format!("--pidfilepath={}", self.dir.join("mongod.pid").display()),
            format!("--logpath={}", self.log().display()),
            "--logappend".to_owned(),
        ];
        match self.role {
            Role::Member => {}
            Role::ConfigServer => arguments.push("--configsvr".to_owned()),
            Role::Shard => arguments.push("--shardsvr".to_owned()),
        }
        let mut all: BTreeMap<&str, &str> = PARAMETERS.into_iter().collect();
        all.extend(parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        for (key, value) in all {
            arguments.push(format!("--setParameter={key}={value}"));
        }
        arguments
    }

    pub(crate) fn save(&self) -> Result<(), LabError> {
        let data = self.data_dir();
        fs::create_dir_all(&data).trying(|| format!("cannot make {}", data.display()))?;
        state::save(&self.dir.join("server.json"), self)
    }

    pub(crate) fn load(dir: &Path) -> Result<Self, LabError> {
        Ok(Server { dir: dir.to_owned(), ..state::load(&dir.join("server.json"))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_of_the_spec_takes_the_place_of_the_labs_own() {
        let server = Server::new(Path::new("/tmp/x"), 2, "member 2".to_owned(), Role::Shard, "lab", 28_403);
        let parameters = [("ttlMonitorSleepSecs".to_owned(), "60".to_owned())].into();
        let arguments = server.arguments(&parameters);
        assert!(arguments.contains(&"--dbpath=/tmp/x/member2/data".to_owned()), "{arguments:?}");
        assert!(arguments.contains(&"--shardsvr".to_owned()));
        let sleeps: Vec<&String> = arguments.iter().filter(|argument| argument.contains("ttlM")).collect();
        assert_eq!(sleeps, ["--setParameter=ttlMonitorSleepSecs=60"]);
    }
}
