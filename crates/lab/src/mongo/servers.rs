//! Some mongod processes that belong together: started, hurt on purpose, and ended.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use mongodb::bson::Document;
use rustix::process::Signal;

use super::{ask, install, ports, server::Server};
use crate::{
    LabError, Step, cache_dir,
    keeper::Keeper,
    process::{self, Children, KILL_BOUND, STOP_BOUND},
};

const READY_BOUND: Duration = Duration::from_secs(120);
const CONNECT_BOUND: Duration = Duration::from_millis(500);
const PORT_BOUND: Duration = Duration::from_secs(10);
/// For commands that change something; those that only look have less.
pub(crate) const COMMAND_BOUND: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) root: PathBuf,
    /// Needed to start servers, and not to end them.
    mongod: OnceLock<PathBuf>,
    parameters: BTreeMap<String, String>,
    inner: Mutex<Inner>,
    /// Ends the servers with this process; those of a person have none.
    pub(crate) keeper: Option<Keeper>,
}

#[derive(Debug)]
struct Inner {
    known: Vec<Server>,
    children: Children,
}

impl Servers {
    pub(crate) fn new(root: PathBuf, known: Vec<Server>, parameters: BTreeMap<String, String>) -> Self {
        Servers {
            root,
            mongod: OnceLock::new(),
            parameters,
            inner: Mutex::new(Inner { known, children: Children::default() }),
            keeper: None,
        }
    }

    /// With a program that was prepared, and shown so, before.
    pub(crate) fn with_mongod(mut self, mongod: PathBuf) -> Self {
        self.mongod = OnceLock::from(mongod);
        self
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.root
    }

    /// All of them, as they are now.
    pub(crate) fn all(&self) -> Vec<Server> {
        self.locked().known.clone()
    }

    pub(crate) fn running(&self) -> Vec<Server> {
        self.all().into_iter().filter(|server| server.running().is_some()).collect()
    }

    pub(crate) fn get(&self, id: u16) -> Result<Server, LabError> {
        let inner = self.locked();
        inner.known.iter().find(|server| server.id == id).cloned().ok_or(LabError::NoMember(id))
    }

    pub(crate) fn ask(&self, id: u16, database: &str, command: &Document) -> Result<Document, LabError> {
        ask::ask(&self.get(id)?, database, command, COMMAND_BOUND)
    }

    /// Starts every server that does not run, and waits until each accepts connections.
    pub(crate) fn start_all(&self, progress: &mut dyn FnMut(Step)) -> Result<(), LabError> {
        let stopped: Vec<Server> =
            self.all().into_iter().filter(|server| server.running().is_none()).collect();
        let servers = stopped.len();
        progress(Step::StartingMongo { servers });
        for server in &stopped {
            self.spawn(server.id)?;
        }
        for (ready, server) in (1..).zip(&stopped) {
            self.wait_accepts(server.id)?;
            progress(Step::MongoAccepts { who: server.name.clone(), ready, servers });
        }
        Ok(())
    }

    pub(crate) fn spawn(&self, id: u16) -> Result<(), LabError> {
        let mongod = self.mongod()?;
        let mut inner = self.locked();
        let Inner { known, children } = &mut *inner;
        let server = known.iter_mut().find(|server| server.id == id).ok_or(LabError::NoMember(id))?;
        if server.running().is_some() {
            return Err(LabError::RunsAlready { who: server.name.clone() });
        }
        // The system takes its time with the ports of one that has just ended.
        let bound = if server.pid.is_some() { PORT_BOUND } else { Duration::ZERO };
        let is_free = || server.host.is_some() || ports::check_free(server.port, 1).is_ok();
        process::wait_for(bound, || is_free().then_some(()))
            .ok_or(LabError::PortTaken { port: server.port })?;
        let namespace = server.host.as_ref().map(|host| host.namespace.as_str());
        let arguments = server.arguments(&self.parameters);
        let child = process::spawn_server(namespace, mongod, arguments, &server.dir, &server.output())?;
        server.pid = Some(child.id());
        children.insert(id, child);
        server.save()
    }

    pub(crate) fn wait_accepts(&self, id: u16) -> Result<(), LabError> {
        let server = self.get(id)?;
        let address = SocketAddr::from((server.ip(), server.port));
        let accepts = process::wait_for(READY_BOUND, || {
            if let Some(how) = self.locked().children.bury(id) {
                return Some(Err(how));
            }
            TcpStream::connect_timeout(&address, CONNECT_BOUND).is_ok().then_some(Ok(()))
        });
        match accepts {
            Some(Ok(())) => Ok(()),
            Some(Err(how)) => {
                let (log, tail) = (server.log(), server.last_words());
                Err(LabError::Died { who: server.name, how, log, tail })
            }
            None => Err(timed_out(&server, "it does not accept connections", READY_BOUND)),
        }
    }

    pub(crate) fn stop(&self, id: u16) -> Result<(), LabError> {
        let server = self.get(id)?;
        let pid = pid_of(&server)?;
        process::send(pid, Signal::TERM)?;
        // One that was paused would never notice.
        process::send(pid, Signal::CONT)?;
        self.wait_ended(&server, STOP_BOUND)
    }

    pub(crate) fn kill(&self, id: u16) -> Result<(), LabError> {
        let server = self.get(id)?;
        process::send(pid_of(&server)?, Signal::KILL)?;
        self.wait_ended(&server, KILL_BOUND)
    }

    pub(crate) fn pause(&self, id: u16) -> Result<(), LabError> {
        process::send(pid_of(&self.get(id)?)?, Signal::STOP)
    }

    pub(crate) fn resume(&self, id: u16) -> Result<(), LabError> {
        process::send(pid_of(&self.get(id)?)?, Signal::CONT)
    }

    /// All are asked, and those that do not end in time are killed.
    pub(crate) fn stop_all(&self) -> Result<(), LabError> {
        let running = self.running();
        for pid in running.iter().filter_map(Server::running) {
            process::send(pid, Signal::TERM)?;
            process::send(pid, Signal::CONT)?;
        }
        let start = Instant::now();
        for server in &running {
            let left = STOP_BOUND.saturating_sub(start.elapsed());
            if self.wait_ended(server, left).is_err() {
                if let Some(pid) = server.running() {
                    process::send(pid, Signal::KILL)?;
                }
                self.wait_ended(server, KILL_BOUND)?;
            }
        }
        Ok(())
    }

    fn wait_ended(&self, server: &Server, bound: Duration) -> Result<(), LabError> {
        process::wait_for(bound, || {
            let _ = self.locked().children.bury(server.id);
            server.running().is_none().then_some(())
        })
        .ok_or_else(|| timed_out(server, "it does not end", bound))
    }

    fn mongod(&self) -> Result<&Path, LabError> {
        if let Some(mongod) = self.mongod.get() {
            return Ok(mongod);
        }
        let mongod = install::prepare(&cache_dir(), &mut |_| {})?;
        Ok(self.mongod.get_or_init(|| mongod))
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let Some(keeper) = self.keeper.take() else { return };
        drop(keeper);
        self.locked().children.bury_all();
    }
}

fn pid_of(server: &Server) -> Result<u32, LabError> {
    server.running().ok_or_else(|| LabError::IsStopped { who: server.name.clone(), id: server.id })
}

pub(crate) fn timed_out(server: &Server, what: &str, waited: Duration) -> LabError {
    LabError::TimedOut {
        who: server.name.clone(),
        what: what.to_owned(),
        waited,
        log: server.log(),
        tail: server.last_words(),
    }
}
