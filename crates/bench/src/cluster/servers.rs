//! Three members of MongoDB and three nodes of Cassandra on this machine. They end with this process, however it ends.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mobimir_lab::{Mongo, MongoSpec, Ring};

use crate::{cassandra, mongo, process::Process, progress};

const MEMBERS: u16 = 3;
const SCHEMA_TIME_MAX: Duration = Duration::from_secs(300);

pub(super) struct Servers {
    ring: Ring,
    mongo: Mongo,
    contact_points: String,
    uri: String,
}

impl Servers {
    pub(super) fn start() -> Result<Self> {
        let ring = cassandra::start_ring()?;
        progress("starting a replica set of three members");
        let spec = MongoSpec::new(MEMBERS).with("ttlMonitorSleepSecs", mongo::EXPIRY_EVERY_S);
        let mongo = Mongo::ephemeral(&spec).context("no replica set of MongoDB")?;
        let (contact_points, uri) = (ring.contact_points().join(","), mongo.uri());
        Ok(Self { ring, mongo, contact_points, uri })
    }

    /// Where the program finds them, and how the policy is placed there.
    pub(super) fn arguments(&self) -> [&str; 8] {
        [
            "--policy",
            "default",
            "--data-centres",
            cassandra::DATA_CENTRES,
            "--contact-points",
            &self.contact_points,
            "--mongodb",
            &self.uri,
        ]
    }

    pub(super) fn make_tables(&self, binary: &Path) -> Result<()> {
        progress("making the tables and the indexes");
        let mut command = Command::new(binary);
        command.args(["schema", "apply"]).args(self.arguments());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let status =
            Process::start(&mut command)?.wait(SCHEMA_TIME_MAX)?.context("the tables take too long")?;
        ensure!(status.success(), "the tables cannot be made: {status}");
        Ok(())
    }

    /// Their names and process ids.
    pub(super) fn processes(&self) -> Result<Vec<(String, u32)>> {
        let mut found = Vec::new();
        for member in 1..=MEMBERS {
            let id = self.mongo.pid(member)?.with_context(|| format!("member {member} is gone"))?;
            found.push((format!("mongod_{member}"), id));
        }
        for node in self.ring.nodes() {
            let id = node.running().with_context(|| format!("node {} is gone", node.id))?;
            found.push((format!("cassandra_{}", node.id), id));
        }
        Ok(found)
    }
}
