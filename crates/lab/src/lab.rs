//! A person's lab: one ring in a directory, which outlives the program that started it. MongoDB has its place beside it.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    Install, LabError, MongoCluster, MongoShape, Net, Node, Ring, RingSpec, Sight, Step, cache_dir,
    error::Trying,
    keeper::{AtEnd, Keeper},
    look::bytes_below,
    mongo, state,
};

/// The directory of the ring in that of the lab.
const PLACE: &str = "ring";

#[derive(Debug, Clone)]
pub struct Lab {
    dir: PathBuf,
}

/// What [`Lab::start`] or [`Lab::start_mongo`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There was none, or none that ran: now there is one.
    Started,
    /// One like this was running, and was left alone.
    WasRunning,
}

/// What [`Lab::up`] started or found.
#[derive(Debug)]
pub struct Up {
    pub ring: (Ring, Outcome),
    pub mongo: (MongoCluster, Outcome),
}

#[derive(Debug, Clone, Serialize)]
pub struct NodeStatus {
    pub node: u16,
    pub address: String,
    pub dc: String,
    pub rack: String,
    pub pid: Option<u32>,
    pub state: NodeState,
    pub data_bytes: u64,
    pub jmx_port: u16,
}

/// In the words of `nodetool status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum NodeState {
    #[serde(rename = "UN")]
    Up,
    #[serde(rename = "UJ")]
    Joining,
    /// It runs, and the others cannot reach it.
    #[serde(rename = "DN")]
    Down,
    #[serde(rename = "stopped")]
    Stopped,
}

impl Lab {
    /// The lab in a directory, which need not be there yet.
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        Lab { dir: dir.into() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a ring and lets it live on. One like it that runs is left alone; one that was stopped is started with
    /// its data. If this process ends before the ring is formed, its nodes end too.
    pub fn start(
        &self,
        spec: &RingSpec,
        progress: &mut dyn FnMut(Step),
    ) -> Result<(Ring, Outcome), LabError> {
        self.make_dir()?;
        let (_lock, root) = self.locked(PLACE)?;
        let (ring, keeper) = self.start_guarded(root, spec, progress)?;
        Ok((ring, released(keeper)?))
    }

    /// Starts a ring and MongoDB, as [`Lab::start`] and [`Lab::start_mongo`] do: both, or neither.
    pub fn up(
        &self,
        spec: &RingSpec,
        shape: &MongoShape,
        progress: &mut dyn FnMut(Step),
    ) -> Result<Up, LabError> {
        self.make_dir()?;
        let (_lock, root) = self.locked(PLACE)?;
        let mongo_root = root.with_file_name(mongo::PLACE);
        let (ring, ring_keeper) = self.start_guarded(root, spec, progress)?;
        let (mongo, mongo_keeper) = self.start_mongo_guarded(mongo_root, shape, progress)?;
        Ok(Up { ring: (ring, released(ring_keeper)?), mongo: (mongo, released(mongo_keeper)?) })
    }

    /// With the keeper of what was started; there is none if it ran.
    fn start_guarded(
        &self,
        root: PathBuf,
        spec: &RingSpec,
        progress: &mut dyn FnMut(Step),
    ) -> Result<(Ring, Option<Keeper>), LabError> {
        spec.check()?;
        let net = spec.net.unwrap_or(Net::DEFAULT);
        let spec = spec.clone().on(net);
        let there = match Ring::load(&root)? {
            Some(ring) if *ring.spec() != spec => {
                let (there, asked) = (ring.spec().to_string(), spec.to_string());
                return Err(LabError::OtherShape { there, asked });
            }
            Some(ring) if ring.nodes().iter().any(|node| node.running().is_some()) => {
                return Ok((ring, None));
            }
            there => there,
        };
        let install = Install::prepare(&cache_dir(), progress)?;
        let keeper = self.guard_start(&root, there.is_some())?;
        let ring = match there {
            Some(ring) => ring,
            None => Ring::create(root, &spec, net)?,
        };
        let ring = ring.with_install(install);
        ring.start_all(progress)?;
        Ok((ring, Some(keeper)))
    }

    /// The ring of the lab, whether it runs or not.
    pub fn ring(&self) -> Result<Ring, LabError> {
        let none = || LabError::NoRing { dir: self.dir.clone() };
        let Some(root) = self.place(PLACE)? else { return Err(none()) };
        Ring::load(&root)?.ok_or_else(none)
    }

    pub fn status(&self) -> Result<Vec<NodeStatus>, LabError> {
        let ring = self.ring()?;
        let nodes = ring.nodes();
        let running = nodes.iter().filter(|node| node.running().is_some());
        // Any that answers will do.
        let seen = running.map(|node| ring.seen_from(node.id)).find_map(Result::ok).unwrap_or_default();
        let state = |node: &Node| {
            let sight = seen.iter().find(|seen| seen.address == node.address).map(|seen| seen.sight);
            match (node.running(), sight) {
                (None, _) => NodeState::Stopped,
                (Some(_), Some(Sight::Up)) => NodeState::Up,
                (Some(_), Some(Sight::Joining)) => NodeState::Joining,
                (Some(_), Some(Sight::Down) | None) => NodeState::Down,
            }
        };
        let status = |node: &Node| NodeStatus {
            node: node.id,
            address: node.contact_point(),
            dc: node.dc.clone(),
            rack: node.rack.clone(),
            pid: node.running(),
            state: state(node),
            data_bytes: bytes_below(&node.dir().join("data")),
            jmx_port: node.jmx_port,
        };
        Ok(nodes.iter().map(status).collect())
    }

    /// One more node, with its share of the data.
    pub fn join(&self, dc: &str) -> Result<Node, LabError> {
        let _lock = self.locked(PLACE)?;
        self.ring()?.join(dc)
    }

    /// Starts a node that was stopped, and waits until all that run see it.
    pub fn start_node(&self, id: u16) -> Result<(), LabError> {
        let _lock = self.locked(PLACE)?;
        let ring = self.ring()?;
        let node = ring.node(id)?;
        if node.running().is_some() {
            return Err(LabError::Runs { id });
        }
        let keeper = Keeper::guard(node.dir(), AtEnd::Keep, None)?;
        ring.start_node(id)?;
        for other in ring.nodes().iter().filter(|other| other.running().is_some()) {
            ring.wait_until_seen(other.id, id, Sight::Up)?;
        }
        keeper.release()
    }

    /// SIGTERM, or SIGKILL.
    pub fn stop_node(&self, id: u16, kill: bool) -> Result<(), LabError> {
        let _lock = self.locked(PLACE)?;
        let ring = self.ring()?;
        if kill { ring.kill(id) } else { ring.stop(id) }
    }

    /// Ends all nodes, and returns those that ran; with `wipe`, their data goes too.
    pub fn down(&self, wipe: bool) -> Result<Vec<u16>, LabError> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let (_lock, root) = self.locked(PLACE)?;
        let mut ran = Vec::new();
        if let Some(ring) = Ring::load(&root)? {
            ran = ring.nodes().iter().filter(|node| node.running().is_some()).map(|node| node.id).collect();
            ring.stop_all()?;
        }
        // Also those that nobody wrote down.
        let at_end = if wipe && state::is_claimed(&root) { AtEnd::Remove } else { AtEnd::Keep };
        drop(Keeper::guard(&root, at_end, None)?);
        Ok(ran)
    }

    pub(crate) fn make_dir(&self) -> Result<(), LabError> {
        fs::create_dir_all(&self.dir).trying(|| format!("cannot make {}", self.dir.display()))
    }

    /// Ends what is started below a directory if this process ends before the keeper is released; what was there before
    /// keeps its data.
    pub(crate) fn guard_start(&self, root: &Path, was_there: bool) -> Result<Keeper, LabError> {
        if was_there {
            return Keeper::guard(root, AtEnd::Keep, None);
        }
        if root.exists() {
            if !state::is_claimed(root) {
                return Err(LabError::NotOurs { dir: root.to_owned() });
            }
            // What a start left behind that did not come far enough to write down what it started.
            drop(Keeper::guard(root, AtEnd::Remove, None)?);
        }
        Keeper::guard(root, AtEnd::Remove, None)
    }

    /// One command at a time; also the place of some servers, which need not be there.
    pub(crate) fn locked(&self, place: &str) -> Result<(File, PathBuf), LabError> {
        let root = self.place(place)?.ok_or_else(|| LabError::Nothing { dir: self.dir.clone() })?;
        let path = self.dir.join("lock");
        let trying = || format!("cannot lock {}", path.display());
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).trying(trying)?;
        match file.try_lock() {
            Ok(()) => Ok((file, root)),
            Err(fs::TryLockError::WouldBlock) => Err(LabError::Busy { path }),
            Err(fs::TryLockError::Error(error)) => Err(error).trying(trying),
        }
    }

    /// The place of some servers in the directory of the lab, if that is there.
    pub(crate) fn place(&self, place: &str) -> Result<Option<PathBuf>, LabError> {
        match self.dir.canonicalize() {
            Ok(dir) => Ok(Some(dir.join(place))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).trying(|| format!("cannot enter {}", self.dir.display())),
        }
    }
}

/// Lets live on what was started.
pub(crate) fn released(keeper: Option<Keeper>) -> Result<Outcome, LabError> {
    let Some(keeper) = keeper else { return Ok(Outcome::WasRunning) };
    keeper.release()?;
    Ok(Outcome::Started)
}

impl std::fmt::Display for NodeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NodeState::Up => "UN",
            NodeState::Joining => "UJ",
            NodeState::Down => "DN",
            NodeState::Stopped => "stopped",
        })
    }
}
