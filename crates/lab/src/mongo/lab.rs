//! MongoDB of a person's lab: a replica set or a sharded cluster, which outlives the program that started it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    Mongo, MongoShards, MongoSpec, ShardsSpec, install,
    server::Server,
    servers::Servers,
    set::{MemberState, states_of, wait_member},
    spec::PORT_DEFAULT,
};
use crate::{
    Lab, LabError, Outcome, Step, cache_dir,
    keeper::{AtEnd, Keeper},
    lab::released,
    look::bytes_below,
    state,
};

/// The directory of MongoDB in that of the lab.
pub(crate) const PLACE: &str = "mongo";

/// What a lab may have of MongoDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MongoShape {
    Set(MongoSpec),
    Shards(ShardsSpec),
}

#[derive(Debug)]
pub enum MongoCluster {
    Set(Mongo),
    Shards(MongoShards),
}

#[derive(Debug, Clone, Serialize)]
pub struct MemberStatus {
    pub member: u16,
    pub name: String,
    pub address: String,
    /// The replica set.
    pub set: String,
    pub pid: Option<u32>,
    pub state: MemberSight,
    pub data_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberSight {
    Primary,
    Secondary,
    /// It runs, and is neither: it starts, copies data, or does not answer.
    Busy,
    Stopped,
}

impl Lab {
    /// Starts MongoDB and lets it live on. One like it that runs is left alone; one that was stopped is started with its
    /// data. If this process ends before all is ready, its servers end too.
    pub fn start_mongo(
        &self,
        shape: &MongoShape,
        progress: &mut dyn FnMut(Step),
    ) -> Result<(MongoCluster, Outcome), LabError> {
        self.make_dir()?;
        let (_lock, root) = self.locked(PLACE)?;
        let (cluster, keeper) = self.start_mongo_guarded(root, shape, progress)?;
        Ok((cluster, released(keeper)?))
    }

    /// With the keeper of what was started; there is none if it ran.
    pub(crate) fn start_mongo_guarded(
        &self,
        root: PathBuf,
        shape: &MongoShape,
        progress: &mut dyn FnMut(Step),
    ) -> Result<(MongoCluster, Option<Keeper>), LabError> {
        let shape = shape.on_default_port();
        shape.check()?;
        let there = match MongoCluster::load(&root)? {
            Some(cluster) if cluster.shape() != shape => {
                let (there, asked) = (cluster.shape().to_string(), shape.to_string());
                return Err(LabError::OtherShape { there, asked });
            }
            Some(cluster) if !cluster.servers().running().is_empty() => return Ok((cluster, None)),
            there => there,
        };
        let mongod = install::prepare(&cache_dir(), progress)?;
        let keeper = self.guard_start(&root, there.is_some())?;
        let cluster = match there {
            Some(cluster) => cluster,
            None => MongoCluster::create(root, &shape)?,
        };
        let cluster = cluster.with_mongod(mongod);
        cluster.start_all(progress)?;
        Ok((cluster, Some(keeper)))
    }

    /// MongoDB of the lab, whether it runs or not.
    pub fn mongo(&self) -> Result<MongoCluster, LabError> {
        let none = || LabError::NoMongo { dir: self.dir().to_owned() };
        let Some(root) = self.place(PLACE)? else { return Err(none()) };
        MongoCluster::load(&root)?.ok_or_else(none)
    }

    pub fn mongo_status(&self) -> Result<Vec<MemberStatus>, LabError> {
        let servers = self.mongo()?.servers().all();
        let states = states_of(servers.iter().filter(|server| server.running().is_some()).cloned().collect());
        let state = |server: &Server, pid: Option<u32>| {
            let said = states.iter().find(|(known, _)| known.id == server.id).map(|(_, state)| state);
            match (pid, said) {
                (None, _) => MemberSight::Stopped,
                (_, Some(MemberState::Primary(_))) => MemberSight::Primary,
                (_, Some(MemberState::Secondary)) => MemberSight::Secondary,
                _ => MemberSight::Busy,
            }
        };
        let status = |server: &Server| {
            let pid = server.running();
            MemberStatus {
                member: server.id,
                name: server.name.clone(),
                address: server.address(),
                set: server.set.clone(),
                pid,
                state: state(server, pid),
                data_bytes: bytes_below(&server.data_dir()),
            }
        };
        Ok(servers.iter().map(status).collect())
    }

    /// Starts a member that was stopped, and waits until it is primary or secondary.
    pub fn start_member(&self, id: u16) -> Result<(), LabError> {
        let _lock = self.locked(PLACE)?;
        let cluster = self.mongo()?;
        let servers = cluster.servers();
        let server = servers.get(id)?;
        if server.running().is_some() {
            return Err(LabError::RunsAlready { who: server.name });
        }
        let keeper = Keeper::guard(&server.dir, AtEnd::Keep, None)?;
        servers.spawn(id)?;
        servers.wait_accepts(id)?;
        wait_member(&server)?;
        keeper.release()
    }

    /// SIGTERM, or SIGKILL.
    pub fn stop_member(&self, id: u16, kill: bool) -> Result<(), LabError> {
        let _lock = self.locked(PLACE)?;
        let cluster = self.mongo()?;
        if kill { cluster.servers().kill(id) } else { cluster.servers().stop(id) }
    }

    /// Ends all servers of MongoDB, and returns the names of those that ran; with `wipe`, their data goes too.
    pub fn mongo_down(&self, wipe: bool) -> Result<Vec<String>, LabError> {
        if !self.dir().exists() {
            return Ok(Vec::new());
        }
        let (_lock, root) = self.locked(PLACE)?;
        let mut ran = Vec::new();
        if let Some(cluster) = MongoCluster::load(&root)? {
            ran = cluster.servers().running().into_iter().map(|server| server.name).collect();
            cluster.servers().stop_all()?;
        }
        // Also those that nobody wrote down.
        let at_end = if wipe && state::is_claimed(&root) { AtEnd::Remove } else { AtEnd::Keep };
        drop(Keeper::guard(&root, at_end, None)?);
        Ok(ran)
    }
}

impl MongoCluster {
    fn create(root: PathBuf, shape: &MongoShape) -> Result<Self, LabError> {
        match shape {
            MongoShape::Set(spec) => {
                Mongo::create(root, spec, spec.port.unwrap_or(PORT_DEFAULT), "lab").map(MongoCluster::Set)
            }
            MongoShape::Shards(spec) => {
                MongoShards::create(root, spec, spec.port.unwrap_or(PORT_DEFAULT)).map(MongoCluster::Shards)
            }
        }
    }

    fn load(root: &Path) -> Result<Option<Self>, LabError> {
        if let Some(set) = Mongo::load(root)? {
            return Ok(Some(MongoCluster::Set(set)));
        }
        Ok(MongoShards::load(root)?.map(MongoCluster::Shards))
    }

    fn with_mongod(self, mongod: PathBuf) -> Self {
        match self {
            MongoCluster::Set(set) => MongoCluster::Set(set.with_mongod(mongod)),
            MongoCluster::Shards(shards) => MongoCluster::Shards(shards.with_mongod(mongod)),
        }
    }

    fn start_all(&self, progress: &mut dyn FnMut(Step)) -> Result<(), LabError> {
        match self {
            MongoCluster::Set(set) => set.start_all(progress),
            MongoCluster::Shards(shards) => shards.start_all(progress),
        }
    }

    pub fn shape(&self) -> MongoShape {
        match self {
            MongoCluster::Set(set) => MongoShape::Set(set.spec().clone()),
            MongoCluster::Shards(shards) => MongoShape::Shards(*shards.spec()),
        }
    }

    fn servers(&self) -> &Servers {
        match self {
            MongoCluster::Set(set) => &set.servers,
            MongoCluster::Shards(shards) => &shards.servers,
        }
    }

    /// Numbers and names of servers that do not run.
    pub fn stopped(&self) -> Vec<(u16, String)> {
        let all = self.servers().all().into_iter();
        all.filter(|server| server.running().is_none()).map(|server| (server.id, server.name)).collect()
    }
}

impl MongoShape {
    fn on_default_port(&self) -> Self {
        match self.clone() {
            MongoShape::Set(spec) => {
                let port = spec.port.unwrap_or(PORT_DEFAULT);
                MongoShape::Set(spec.on_port(port))
            }
            MongoShape::Shards(ShardsSpec { shards, port }) => {
                MongoShape::Shards(ShardsSpec { shards, port: port.or(Some(PORT_DEFAULT)) })
            }
        }
    }

    fn check(&self) -> Result<(), LabError> {
        match self {
            MongoShape::Set(spec) => spec.check(),
            MongoShape::Shards(spec) => spec.check(),
        }
    }
}

impl std::fmt::Display for MongoShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MongoShape::Set(spec) => spec.fmt(f),
            MongoShape::Shards(spec) => spec.fmt(f),
        }
    }
}

impl std::fmt::Display for MemberSight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MemberSight::Primary => "primary",
            MemberSight::Secondary => "secondary",
            MemberSight::Busy => "busy",
            MemberSight::Stopped => "stopped",
        })
    }
}
