//! How a ring looks: to its nodes, to `nodetool`, and by its counters.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::Path,
    process::Command,
    time::Duration,
};

use serde::Serialize;
use serde_json::Value;

use crate::{LabError, Reading, Ring, error::Trying, process, ring::timed_out, settings};

/// Every node asks a few others once a second.
const FORMED_BOUND: Duration = Duration::from_secs(120);
const NODETOOL_BOUND: Duration = Duration::from_secs(300);

const STORAGE_SERVICE: &str = "org.apache.cassandra.db:type=StorageService";
const STORAGE_PROXY: &str = "org.apache.cassandra.db:type=StorageProxy";

/// How a node looks to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sight {
    Up,
    /// Up, and still taking over its share of the data.
    Joining,
    Down,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub address: Ipv4Addr,
    pub sight: Sight,
}

/// What a node did about writes that others could not take, since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HintCounters {
    /// Hints that were stored.
    pub total: u64,
    pub in_progress: u64,
    /// Hints stored, by the address of the node they are for.
    pub created: BTreeMap<Ipv4Addr, u64>,
    /// Hints delivered and acknowledged.
    pub succeeded: u64,
    pub failed: u64,
    pub timed_out: u64,
    /// Bytes in the directory of hints: those still to be delivered.
    pub bytes: u64,
}

impl Ring {
    /// How a node sees the ring, itself included.
    pub fn seen_from(&self, id: u16) -> Result<Vec<Seen>, LabError> {
        let readings = self.read(id, STORAGE_SERVICE, &["LiveNodes", "UnreachableNodes", "JoiningNodes"])?;
        let addresses = |attribute: &str| -> Vec<Ipv4Addr> {
            let values = readings.iter().filter(|reading| reading.attribute == attribute);
            let values = values.filter_map(|reading| reading.value.as_array()).flatten();
            values.filter_map(Value::as_str).filter_map(address_of).collect()
        };
        let joining = addresses("JoiningNodes");
        let live = addresses("LiveNodes").into_iter().map(|address| {
            let sight = if joining.contains(&address) { Sight::Joining } else { Sight::Up };
            Seen { address, sight }
        });
        let down =
            addresses("UnreachableNodes").into_iter().map(|address| Seen { address, sight: Sight::Down });
        let mut seen: Vec<Seen> = live.chain(down).collect();
        seen.sort_by_key(|seen| seen.address);
        Ok(seen)
    }

    /// Waits until a node sees so many nodes up, itself included.
    pub fn wait_until_up(&self, seen_from: u16, count: usize) -> Result<(), LabError> {
        let what = format!("it does not see {count} nodes up");
        self.wait_until(seen_from, FORMED_BOUND, &what, |seen| {
            seen.iter().filter(|seen| seen.sight == Sight::Up).count() == count
        })
    }

    /// Waits until a node sees another one in some way.
    pub fn wait_until_seen(&self, seen_from: u16, id: u16, sight: Sight) -> Result<(), LabError> {
        let address = self.node(id)?.address;
        let what = format!("it does not see {address} {sight:?}").to_lowercase();
        self.wait_until(seen_from, FORMED_BOUND, &what, |seen| seen.contains(&Seen { address, sight }))
    }

    fn wait_until(
        &self,
        seen_from: u16,
        bound: Duration,
        what: &str,
        is_so: impl Fn(&[Seen]) -> bool,
    ) -> Result<(), LabError> {
        let node = self.node(seen_from)?;
        let mut last = String::new();
        process::wait_for(bound, || match self.seen_from(seen_from) {
            Ok(seen) => {
                last = format!("{seen:?}");
                is_so(&seen).then_some(())
            }
            Err(error) => {
                last = error.to_string();
                None
            }
        })
        .ok_or_else(|| timed_out(&node, &format!("{what} ({last})"), bound))
    }

    /// Runs `nodetool` against a node, and returns what it printed.
    pub fn nodetool(&self, id: u16, arguments: &[&str]) -> Result<String, LabError> {
        let node = self.running(id)?;
        let install = self.install()?;
        let silent = install.scratch.join("silent.xml");
        if !silent.exists() {
            fs::write(&silent, settings::SILENT).trying(|| format!("cannot write {}", silent.display()))?;
        }
        let mut command = Command::new(&install.java);
        command.args(settings::nodetool_arguments(install, node.jmx_host(), node.jmx_port)).args(arguments);
        let command_name = || arguments.join(" ");
        let (status, output) = process::output_within(&mut command, NODETOOL_BOUND)
            .trying(|| format!("cannot run nodetool {}", command_name()))?;
        match status {
            Some(status) if status.success() => Ok(output),
            Some(_) => Err(LabError::Nodetool { command: command_name(), output }),
            None => {
                let output = format!("not done after {} s\n{output}", NODETOOL_BOUND.as_secs());
                Err(LabError::Nodetool { command: command_name(), output })
            }
        }
    }

    /// The named attributes of all beans of a node that match the pattern, as in
    /// `org.apache.cassandra.metrics:type=ClientRequest,scope=Write,*`.
    pub fn read(&self, id: u16, beans: &str, attributes: &[&str]) -> Result<Vec<Reading>, LabError> {
        let node = self.running(id)?;
        self.probe.read(self.install()?, (node.jmx_host(), node.jmx_port), beans, attributes)
    }

    pub fn hints(&self, id: u16) -> Result<HintCounters, LabError> {
        let metric = |pattern: &str| -> Result<Vec<(String, u64)>, LabError> {
            let readings = self.read(id, &format!("org.apache.cassandra.metrics:{pattern}"), &["Count"])?;
            let of = |reading: Reading| {
                let name = reading.bean.split(',').find_map(|part| part.split_once("name="));
                let name = name.map_or_else(String::new, |(_, name)| name.to_owned());
                (name, reading.value.as_u64().unwrap_or(0))
            };
            Ok(readings.into_iter().map(of).collect())
        };
        let one = |pattern: &str| Ok::<u64, LabError>(metric(pattern)?.iter().map(|(_, count)| count).sum());
        let created = metric("type=HintsService,name=Hints_created-*")?
            .into_iter()
            .filter_map(|(name, count)| Some((address_of(name.strip_prefix("Hints_created-")?)?, count)));
        Ok(HintCounters {
            total: one("type=Storage,name=TotalHints")?,
            in_progress: one("type=Storage,name=TotalHintsInProgress")?,
            created: created.collect(),
            succeeded: one("type=HintsService,name=HintsSucceeded")?,
            failed: one("type=HintsService,name=HintsFailed")?,
            timed_out: one("type=HintsService,name=HintsTimedOut")?,
            bytes: bytes_below(&self.node(id)?.dir.join("hints")),
        })
    }

    /// Live bytes of a keyspace on the disk of a running node; what is still in memory does not count: see
    /// [`Ring::flush`].
    pub fn data_bytes(&self, id: u16, keyspace: &str) -> Result<u64, LabError> {
        let beans =
            format!("org.apache.cassandra.metrics:type=Keyspace,keyspace={keyspace},name=LiveDiskSpaceUsed");
        let readings = self.read(id, &beans, &["Value"])?;
        Ok(readings.iter().filter_map(|reading| reading.value.as_u64()).sum())
    }

    /// The same of one table.
    pub fn table_bytes(&self, id: u16, keyspace: &str, table: &str) -> Result<u64, LabError> {
        let beans = format!(
            "org.apache.cassandra.metrics:type=Table,keyspace={keyspace},scope={table},name=LiveDiskSpaceUsed"
        );
        let readings = self.read(id, &beans, &["Count"])?;
        Ok(readings.iter().filter_map(|reading| reading.value.as_u64()).sum())
    }

    /// Writes what a node has in memory to its disk.
    pub fn flush(&self, id: u16, keyspace: &str) -> Result<(), LabError> {
        self.nodetool(id, &["flush", keyspace]).map(drop)
    }

    /// Waits until every node that runs sees all nodes of the ring up, and all have one schema.
    pub fn wait_formed(&self) -> Result<(), LabError> {
        let nodes = self.nodes();
        let all: BTreeSet<Ipv4Addr> = nodes.iter().map(|node| node.address).collect();
        for node in nodes.iter().filter(|node| node.running().is_some()) {
            let mut what = String::new();
            let formed = process::wait_for(FORMED_BOUND, || match self.seen_from(node.id) {
                Ok(seen) => {
                    let up: BTreeSet<Ipv4Addr> =
                        seen.iter().filter(|seen| seen.sight == Sight::Up).map(|seen| seen.address).collect();
                    what = format!("it sees {} of {} nodes up", up.len(), all.len());
                    (up == all).then_some(())
                }
                Err(error) => {
                    what = error.to_string();
                    None
                }
            });
            formed.ok_or_else(|| timed_out(node, &what, FORMED_BOUND))?;
        }
        self.wait_one_schema()
    }

    /// Waits until all nodes that can be reached have the same schema.
    pub fn wait_one_schema(&self) -> Result<(), LabError> {
        let node = self.first_running()?;
        let mut what = String::new();
        process::wait_for(FORMED_BOUND, || {
            match self.read(node.id, STORAGE_PROXY, &["SchemaVersions"]) {
                Ok(readings) => {
                    let versions = readings.first().and_then(|reading| reading.value.as_object());
                    let versions = versions.map_or(0, |versions| {
                        versions.keys().filter(|version| *version != "UNREACHABLE").count()
                    });
                    what = format!("there are {versions} versions of the schema");
                    return (versions == 1).then_some(());
                }
                Err(error) => what = error.to_string(),
            }
            None
        })
        .ok_or_else(|| timed_out(&node, &what, FORMED_BOUND))
    }
}

/// From `/127.0.0.1:7000`, `127.0.0.1`, `127.0.0.1.7000` and the like.
fn address_of(text: &str) -> Option<Ipv4Addr> {
    let text = text.rsplit('/').next()?;
    let numbers: Vec<&str> = text.split(['.', ':']).take(4).collect();
    numbers.join(".").parse().ok()
}

/// What files take, as far as they can be seen while the server works on them.
pub(crate) fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_in_several_forms() {
        let address = Some(Ipv4Addr::new(127, 0, 9, 3));
        for text in ["127.0.9.3", "/127.0.9.3", "127.0.9.3:7000", "/127.0.9.3:7000", "127.0.9.3.7000"] {
            assert_eq!(address_of(text), address, "{text}");
        }
        assert_eq!(address_of("UNREACHABLE"), None);
    }
}
