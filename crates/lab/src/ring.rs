//! A ring of nodes: started, looked at, and hurt on purpose.

use std::{
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::{
    Install, LabError, Net, Node, RingSpec, Step, cache_dir,
    error::Trying,
    keeper::{AtEnd, Keeper},
    net::{self, CQL_PORT},
    probe::Probe,
    process::{self, Children, KILL_BOUND, STOP_BOUND},
    settings,
    spec::NODES_MAX,
    state,
    tokens::tokens,
};

/// Six nodes on two busy cores take half a minute; a bootstrap also moves data.
const READY_BOUND: Duration = Duration::from_secs(300);
const CONNECT_BOUND: Duration = Duration::from_millis(500);

/// Nodes are named by their id, from 1 on over all data centres.
#[derive(Debug)]
pub struct Ring {
    root: PathBuf,
    /// Needed to start and to ask nodes, and not to end them.
    install: OnceLock<Install>,
    spec: RingSpec,
    net: Net,
    nodes: Mutex<Nodes>,
    pub(crate) probe: Probe,
    /// Ends the nodes with this process; a person's ring has none.
    keeper: Option<Keeper>,
}

#[derive(Debug)]
struct Nodes {
    known: Vec<Node>,
    children: Children,
}

/// What is written down about a ring besides its nodes.
#[derive(Debug, Serialize, Deserialize)]
struct RingFile {
    server: String,
    net: Net,
    spec: RingSpec,
}

impl Ring {
    /// A ring in a temporary directory on a free subnet, all of which ends with this value or with this process,
    /// however it ends. With MOBIMIR_LAB_KEEP set, the directory stays.
    pub fn ephemeral(spec: &RingSpec) -> Result<Self, LabError> {
        Self::ephemeral_with(spec, &mut |_| {})
    }

    pub fn ephemeral_with(spec: &RingSpec, progress: &mut dyn FnMut(Step)) -> Result<Self, LabError> {
        spec.check()?;
        let install = Install::prepare(&cache_dir(), progress)?;
        let (root, at_end) = (state::temporary_dir()?, AtEnd::of_tests());
        Self::guarded(root, spec, install, at_end, progress)
    }

    fn guarded(
        root: PathBuf,
        spec: &RingSpec,
        install: Install,
        at_end: AtEnd,
        progress: &mut dyn FnMut(Step),
    ) -> Result<Self, LabError> {
        let (net, held) = match spec.net {
            Some(net) => (net, None),
            None => net::take_free_net(NODES_MAX).map(|(net, held)| (net, Some(OwnedFd::from(held))))?,
        };
        let keeper = Keeper::guard(&root, at_end, held)?;
        let mut ring = Self::create(root, spec, net)?.with_install(install);
        ring.keeper = Some(keeper);
        ring.start_all(progress)?;
        Ok(ring)
    }

    /// Writes down a new ring; nothing runs yet.
    pub(crate) fn create(root: PathBuf, spec: &RingSpec, net: Net) -> Result<Self, LabError> {
        spec.check()?;
        if spec.hosts.is_empty() {
            net.check_free(spec.nodes())?;
        }
        state::claim(&root)?;
        let mut known = Vec::new();
        let mut id = 0;
        for (dc_index, dc) in (0..).zip(&spec.dcs) {
            for index in 0..dc.nodes {
                id += 1;
                let host = spec.hosts.get(usize::from(id) - 1);
                known.push(Node {
                    id,
                    address: host.map_or_else(|| net.address(id), |host| host.address),
                    namespace: host.map(|host| host.namespace.clone()),
                    dc: dc.name.clone(),
                    rack: format!("r{}", index + 1),
                    jmx_port: 0,
                    pid: None,
                    seed: true,
                    tokens: tokens(dc_index, index, dc.nodes),
                    dir: Node::dir_in(&root, id),
                });
            }
        }
        for node in &known {
            node.save()?;
        }
        let file =
            RingFile { server: format!("cassandra-{}", crate::CASSANDRA_VERSION), net, spec: spec.clone() };
        state::save(&root.join("ring.json"), &file)?;
        Ok(Self::with_nodes(root, file, known))
    }

    /// A ring that was written down before, whether it runs or not.
    pub(crate) fn load(root: &Path) -> Result<Option<Self>, LabError> {
        let path = root.join("ring.json");
        if !path.exists() {
            return Ok(None);
        }
        let file: RingFile = state::load(&path)?;
        let mut known = Vec::new();
        for id in 1..=NODES_MAX {
            let dir = Node::dir_in(root, id);
            if dir.join("node.json").exists() {
                known.push(Node::load(&dir)?);
            }
        }
        Ok(Some(Self::with_nodes(root.to_owned(), file, known)))
    }

    fn with_nodes(root: PathBuf, file: RingFile, known: Vec<Node>) -> Self {
        Ring {
            root,
            install: OnceLock::new(),
            spec: file.spec,
            net: file.net,
            nodes: Mutex::new(Nodes { known, children: Children::default() }),
            probe: Probe::default(),
            keeper: None,
        }
    }

    pub fn spec(&self) -> &RingSpec {
        &self.spec
    }

    pub fn net(&self) -> Net {
        self.net
    }

    pub fn dir(&self) -> &Path {
        &self.root
    }

    /// All nodes, in the order of their ids, as they are now.
    pub fn nodes(&self) -> Vec<Node> {
        self.locked().known.clone()
    }

    pub fn node(&self, id: u16) -> Result<Node, LabError> {
        self.locked().known.iter().find(|node| node.id == id).cloned().ok_or(LabError::NoNode(id))
    }

    /// `127.0.17.1:9042`, …: of every node.
    pub fn contact_points(&self) -> Vec<String> {
        self.locked().known.iter().map(Node::contact_point).collect()
    }

    /// `127.0.17.1:9042`, …: of the nodes of one data centre.
    pub fn contact_points_in(&self, dc: &str) -> Vec<String> {
        self.locked().known.iter().filter(|node| node.dc == dc).map(Node::contact_point).collect()
    }

    /// With a server that was prepared, and shown so, before.
    pub(crate) fn with_install(mut self, install: Install) -> Self {
        self.install = OnceLock::from(install);
        self
    }

    /// Starts every node that does not run, and waits until each sees all.
    pub(crate) fn start_all(&self, progress: &mut dyn FnMut(Step)) -> Result<(), LabError> {
        let nodes = self.nodes();
        let stopped: Vec<u16> =
            nodes.iter().filter(|node| node.running().is_none()).map(|node| node.id).collect();
        progress(Step::Starting { nodes: stopped.len() });
        for id in &stopped {
            self.spawn_node(*id)?;
        }
        for (ready, id) in (1..).zip(&stopped) {
            self.wait_ready(*id)?;
            progress(Step::Accepts { node: *id, ready, nodes: stopped.len() });
        }
        progress(Step::Forming { nodes: nodes.len() });
        self.wait_formed()?;
        progress(Step::Formed { nodes: nodes.len() });
        Ok(())
    }

    /// Starts a node that was stopped or killed, and waits until it accepts connections.
    pub fn start_node(&self, id: u16) -> Result<(), LabError> {
        self.spawn_node(id)?;
        self.wait_ready(id)
    }

    /// Starts a node, and does not wait: see [`Ring::wait_ready`].
    pub fn spawn_node(&self, id: u16) -> Result<(), LabError> {
        let install = self.install()?;
        let mut nodes = self.locked();
        let seeds: Vec<String> =
            nodes.known.iter().filter(|node| node.seed).map(|node| node.address.to_string()).collect();
        let node = self.node_of(&mut nodes, id)?;
        if node.running().is_some() {
            return Err(LabError::Runs { id });
        }
        if node.namespace.is_none() {
            net::check_address_free(node.address)?;
        }
        node.jmx_port = self.net.jmx_port(id).trying(|| "no port is free".to_owned())?;
        let mut node = node.clone();
        let dc_nodes = nodes.known.iter().filter(|other| other.dc == node.dc && other.id != id).count();
        settings::write(&self.spec, &node, &seeds, dc_nodes)?;

        let arguments = settings::server_arguments(install, &self.spec, &node);
        let child = process::spawn_server(
            node.namespace.as_deref(),
            &install.java,
            arguments,
            &node.dir,
            &node.output(),
        )?;
        node.pid = Some(child.id());
        nodes.children.insert(id, child);
        *self.node_of(&mut nodes, id)? = node.clone();
        node.save()
    }

    /// Waits until a node accepts connections.
    pub fn wait_ready(&self, id: u16) -> Result<(), LabError> {
        let node = self.node(id)?;
        let address = SocketAddr::from((node.address, CQL_PORT));
        let ready = process::wait_for(READY_BOUND, || {
            if let Some(how) = self.bury(id) {
                return Some(Err(how));
            }
            TcpStream::connect_timeout(&address, CONNECT_BOUND).is_ok().then_some(Ok(()))
        });
        match ready {
            Some(Ok(())) => Ok(()),
            Some(Err(how)) => {
                Err(LabError::Died { who: node.name(), how, log: node.log(), tail: node.last_words() })
            }
            None => Err(timed_out(&node, "it does not accept connections", READY_BOUND)),
        }
    }

    /// SIGTERM, and waits for the end: the node says goodbye and writes its memory to the disk.
    pub fn stop(&self, id: u16) -> Result<(), LabError> {
        let node = self.node(id)?;
        let Some(pid) = node.running() else { return Err(LabError::DoesNotRun { id }) };
        process::send(pid, Signal::TERM)?;
        // One that was paused would never notice.
        process::send(pid, Signal::CONT)?;
        self.wait_ended(&node, STOP_BOUND)
    }

    /// SIGKILL, and waits for the end. Not of a node that is paused where [tables are quick](RingSpec::with_quick_tables).
    pub fn kill(&self, id: u16) -> Result<(), LabError> {
        let node = self.node(id)?;
        let Some(pid) = node.running() else { return Err(LabError::DoesNotRun { id }) };
        if self.spec.has_quick_tables() {
            self.flush(id, "system_schema")?;
        }
        process::send(pid, Signal::KILL)?;
        self.wait_ended(&node, KILL_BOUND)
    }

    /// SIGSTOP: the node keeps its connections and says nothing.
    pub fn pause(&self, id: u16) -> Result<(), LabError> {
        let pid = self.node(id)?.running().ok_or(LabError::DoesNotRun { id })?;
        process::send(pid, Signal::STOP)
    }

    /// SIGCONT, after [`Ring::pause`].
    pub fn resume(&self, id: u16) -> Result<(), LabError> {
        let pid = self.node(id)?.running().ok_or(LabError::DoesNotRun { id })?;
        process::send(pid, Signal::CONT)
    }

    /// Ends every node: all are asked, and those that do not end in time are killed.
    pub fn stop_all(&self) -> Result<(), LabError> {
        let running: Vec<Node> = self.nodes().into_iter().filter(|node| node.running().is_some()).collect();
        for pid in running.iter().filter_map(Node::running) {
            process::send(pid, Signal::TERM)?;
            process::send(pid, Signal::CONT)?;
        }
        let start = Instant::now();
        for node in &running {
            let left = STOP_BOUND.saturating_sub(start.elapsed());
            if self.wait_ended(node, left).is_err() {
                if let Some(pid) = node.running() {
                    process::send(pid, Signal::KILL)?;
                }
                self.wait_ended(node, KILL_BOUND)?;
            }
        }
        Ok(())
    }

    /// One more node, which takes over its share of the data before this returns. All other nodes must run.
    pub fn join(&self, dc: &str) -> Result<Node, LabError> {
        let node = {
            let mut nodes = self.locked();
            let in_dc = nodes.known.iter().filter(|node| node.dc == dc).count();
            if in_dc == 0 {
                return Err(LabError::NoDataCentre(dc.to_owned()));
            }
            let id = nodes.known.iter().map(|node| node.id).max().unwrap_or(0) + 1;
            if id > NODES_MAX {
                return Err(LabError::BadSize { got: format!("one more than {NODES_MAX}"), max: NODES_MAX });
            }
            let node = Node {
                id,
                address: self.net.address(id),
                namespace: None,
                dc: dc.to_owned(),
                rack: format!("r{}", in_dc + 1),
                jmx_port: 0,
                pid: None,
                // A seed never takes over data.
                seed: false,
                tokens: Vec::new(),
                dir: Node::dir_in(&self.root, id),
            };
            node.save()?;
            nodes.known.push(node.clone());
            node
        };
        let joined = self.join_guarded(&node);
        if joined.is_err() {
            self.bury(node.id);
            self.locked().known.retain(|known| known.id != node.id);
        }
        joined?;
        self.node(node.id)
    }

    fn join_guarded(&self, node: &Node) -> Result<(), LabError> {
        let keeper = Keeper::guard(&node.dir, AtEnd::Remove, None)?;
        self.start_node(node.id)?;
        self.wait_formed()?;
        let mut nodes = self.locked();
        let joined = self.node_of(&mut nodes, node.id)?;
        // From now on it may start without the others, like them.
        joined.seed = true;
        joined.save()?;
        keeper.release()
    }

    pub fn log(&self, id: u16) -> Result<PathBuf, LabError> {
        Ok(self.node(id)?.log())
    }

    pub(crate) fn first_running(&self) -> Result<Node, LabError> {
        self.nodes().into_iter().find(|node| node.running().is_some()).ok_or(LabError::NothingRuns)
    }

    pub(crate) fn running(&self, id: u16) -> Result<Node, LabError> {
        let node = self.node(id)?;
        if node.running().is_some() { Ok(node) } else { Err(LabError::DoesNotRun { id }) }
    }

    fn wait_ended(&self, node: &Node, bound: Duration) -> Result<(), LabError> {
        process::wait_for(bound, || {
            self.bury(node.id);
            node.running().is_none().then_some(())
        })
        .ok_or_else(|| timed_out(node, "it does not end", bound))
    }

    fn bury(&self, id: u16) -> Option<ExitStatus> {
        self.locked().children.bury(id)
    }

    pub(crate) fn install(&self) -> Result<&Install, LabError> {
        if let Some(install) = self.install.get() {
            return Ok(install);
        }
        let install = Install::prepare(&cache_dir(), &mut |_| {})?;
        Ok(self.install.get_or_init(|| install))
    }

    fn node_of<'a>(&self, nodes: &'a mut Nodes, id: u16) -> Result<&'a mut Node, LabError> {
        nodes.known.iter_mut().find(|node| node.id == id).ok_or(LabError::NoNode(id))
    }

    fn locked(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let Some(keeper) = self.keeper.take() else { return };
        drop(keeper);
        self.locked().children.bury_all();
    }
}

/// Runs one node once, which writes down the classes that it has loaded when it ends.
pub(crate) fn archive_classes(install: Install, target: &Path) -> Result<(), LabError> {
    let mut spec = RingSpec::for_tests(1);
    spec.extra_jvm = vec![
        format!("-XX:ArchiveClassesAtExit={}", target.display()),
        "-Xlog:cds=off,cds+dynamic=off".to_owned(),
    ];
    let ring = Ring::guarded(state::temporary_dir()?, &spec, install, AtEnd::Remove, &mut |_| {})?;
    ring.stop(1)
}

pub(crate) fn timed_out(node: &Node, what: &str, waited: Duration) -> LabError {
    LabError::TimedOut {
        who: node.name(),
        what: what.to_owned(),
        waited,
        log: node.log(),
        tail: node.last_words(),
    }
}
