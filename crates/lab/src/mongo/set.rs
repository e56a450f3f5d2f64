//! A replica set.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use mongodb::bson::{Document, doc, oid::ObjectId};
use serde::{Deserialize, Serialize};

use super::{
    MONGODB_VERSION, MongoSpec, ask, install, ports,
    server::{Role, Server},
    servers::{COMMAND_BOUND, Servers, timed_out},
};
use crate::{
    LabError, Step, cache_dir,
    error::Trying,
    keeper::{AtEnd, Keeper},
    process, state,
};

/// For a first election, or for one after a failure, on a busy machine.
const ELECTION_BOUND: Duration = Duration::from_secs(60);
/// A new member copies all data first.
const READY_BOUND: Duration = Duration::from_secs(120);
const HELLO_BOUND: Duration = Duration::from_secs(2);
/// So long a primary that steps down does not become primary again, if there is no other.
const STEP_DOWN_SECONDS: i32 = 6;
const STEP_DOWN_CATCH_UP_SECONDS: i32 = 5;

/// The fail point that lets a member receive what the primary did, and not apply it.
const STOP_APPLYING: &str = "rsSyncApplyStop";

const ALREADY_INITIALIZED: i32 = 23;

/// Says that the set was told its members, once and for all.
const INITIATED: &str = "initiated";

/// A replica set. Members are named by their number, from 1.
#[derive(Debug)]
pub struct Mongo {
    pub(crate) servers: Servers,
    spec: MongoSpec,
}

/// What is written down about a set besides its servers.
#[derive(Debug, Serialize, Deserialize)]
struct SetFile {
    server: String,
    spec: MongoSpec,
}

/// What a member is, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemberState {
    /// Starting, copying data, or catching up after a failure.
    Other,
    Secondary,
    /// Of two that believe to be primary, the one elected later is right.
    Primary(ObjectId),
}

impl Mongo {
    /// A replica set in a temporary directory on free ports of 127.0.0.1, all of which ends with this value or with this
    /// process, however it ends. With MOBIMIR_LAB_KEEP set, the directory stays. Returns when all members are primary or
    /// secondary.
    pub fn ephemeral(spec: &MongoSpec) -> Result<Self, LabError> {
        Self::ephemeral_with(spec, &mut |_| {})
    }

    pub fn ephemeral_with(spec: &MongoSpec, progress: &mut dyn FnMut(Step)) -> Result<Self, LabError> {
        spec.check()?;
        let mongod = install::prepare(&cache_dir(), progress)?;
        let root = state::temporary_dir()?;
        let (port, held) = match spec.port {
            Some(port) => (port, None),
            None => ports::take_free(spec.size()).map(|(port, held)| (port, Some(held.into())))?,
        };
        let keeper = Keeper::guard(&root, AtEnd::of_tests(), held)?;
        // A name of its own: a server that remembers another set at the same port is told that it is wrong here.
        let mut mongo = Self::create(root, spec, port, &format!("lab{port}"))?.with_mongod(mongod);
        mongo.servers.keeper = Some(keeper);
        mongo.start_all(progress)?;
        Ok(mongo)
    }

    /// Writes down a new set; nothing runs yet.
    pub(crate) fn create(root: PathBuf, spec: &MongoSpec, port: u16, set: &str) -> Result<Self, LabError> {
        spec.check()?;
        if spec.hosts.is_empty() {
            ports::check_free(port, spec.size())?;
        }
        state::claim(&root)?;
        let member = |id: u16| Server {
            host: spec.hosts.get(usize::from(id) - 1).cloned(),
            ..Server::new(&root, id, format!("member {id}"), Role::Member, set, port + id - 1)
        };
        let known: Vec<Server> = (1..=spec.size()).map(member).collect();
        for server in &known {
            server.save()?;
        }
        let file = SetFile { server: format!("mongodb-{MONGODB_VERSION}"), spec: spec.clone() };
        state::save(&root.join("set.json"), &file)?;
        Ok(Mongo { servers: Servers::new(root, known, spec.parameters.clone()), spec: file.spec })
    }

    /// A set that was written down before, whether it runs or not.
    pub(crate) fn load(root: &Path) -> Result<Option<Self>, LabError> {
        let path = root.join("set.json");
        if !path.exists() {
            return Ok(None);
        }
        let spec = state::load::<SetFile>(&path)?.spec;
        let load = |id: u16| Server::load(&root.join(format!("member{id}")));
        let known = (1..=spec.size()).map(load).collect::<Result<Vec<Server>, LabError>>()?;
        Ok(Some(Mongo { servers: Servers::new(root.to_owned(), known, spec.parameters.clone()), spec }))
    }

    pub(crate) fn with_mongod(mut self, mongod: PathBuf) -> Self {
        self.servers = self.servers.with_mongod(mongod);
        self
    }

    /// Starts every member that does not run, tells a new set who belongs to it, and waits until all are ready.
    pub(crate) fn start_all(&self, progress: &mut dyn FnMut(Step)) -> Result<(), LabError> {
        self.servers.start_all(progress)?;
        progress(Step::Electing);
        let initiated = self.servers.root.join(INITIATED);
        if !initiated.exists() {
            initiate(&self.servers.get(1)?, &self.config()?)?;
            fs::write(&initiated, "").trying(|| format!("cannot write {}", initiated.display()))?;
        }
        self.wait_ready()?;
        progress(Step::Elected { who: self.servers.get(self.wait_primary()?)?.name });
        Ok(())
    }

    fn config(&self) -> Result<Document, LabError> {
        let servers = self.servers.all();
        let members = servers.iter().zip(&self.spec.members).map(|(server, member)| {
            let weight = i32::from(member.votes);
            doc! { "_id": i32::from(server.id), "host": server.address(), "votes": weight, "priority": weight }
        });
        let millis = |ms: u32| i32::try_from(ms).unwrap_or(i32::MAX);
        Ok(doc! {
            "_id": self.set(),
            "members": members.collect::<Vec<Document>>(),
            "settings": {
                "electionTimeoutMillis": millis(self.spec.election_timeout_ms),
                "heartbeatIntervalMillis": millis(self.spec.heartbeat_ms),
            },
        })
    }

    pub fn spec(&self) -> &MongoSpec {
        &self.spec
    }

    pub fn dir(&self) -> &Path {
        self.servers.dir()
    }

    /// The name of the set.
    pub fn set(&self) -> String {
        self.servers.all().first().map(|server| server.set.clone()).unwrap_or_default()
    }

    /// Where a driver connects to: `mongodb://127.0.0.1:28401,127.0.0.1:28402/?replicaSet=lab28401`.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?replicaSet={}", self.addresses().join(","), self.set())
    }

    /// For a driver that talks to this member and to no other, whether it is primary or not.
    pub fn member_uri(&self, id: u16) -> Result<String, LabError> {
        Ok(format!("mongodb://{}/?directConnection=true", self.servers.get(id)?.address()))
    }

    /// `127.0.0.1:28401`, …: of every member.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.all().iter().map(Server::address).collect()
    }

    /// The process of a member, if it runs.
    pub fn pid(&self, id: u16) -> Result<Option<u32>, LabError> {
        Ok(self.servers.get(id)?.running())
    }

    pub fn log(&self, id: u16) -> Result<PathBuf, LabError> {
        Ok(self.servers.get(id)?.log())
    }

    /// Runs a command on one member.
    pub fn run_on(&self, id: u16, database: &str, command: Document) -> Result<Document, LabError> {
        self.servers.ask(id, database, &command)
    }

    /// The member that is primary now; an error if none is.
    pub fn primary(&self) -> Result<u16, LabError> {
        self.elected().map(|(id, _)| id).ok_or(LabError::NoPrimary { waited: Duration::ZERO })
    }

    /// Waits until a member is primary.
    pub fn wait_primary(&self) -> Result<u16, LabError> {
        self.wait_elected(|_| true)
    }

    /// A member that is not primary now, and runs.
    pub fn secondary(&self) -> Result<u16, LabError> {
        let states = self.states();
        let secondary = states.iter().find(|(_, state)| *state == MemberState::Secondary);
        secondary.map(|(server, _)| server.id).ok_or(LabError::NoSecondary)
    }

    /// Waits until there is a primary and every member that runs is primary or secondary. Not while one is paused.
    pub fn wait_ready(&self) -> Result<(), LabError> {
        self.wait_primary()?;
        for server in self.servers.running() {
            self.wait_member(&server)?;
        }
        Ok(())
    }

    /// SIGKILL, and waits for the end. The others elect another primary when the election timeout is over.
    pub fn kill(&self, id: u16) -> Result<(), LabError> {
        self.servers.kill(id)
    }

    /// SIGTERM, and waits for the end: a primary hands over to another member first.
    pub fn stop(&self, id: u16) -> Result<(), LabError> {
        self.servers.stop(id)
    }

    /// Starts a member that was stopped or killed, and waits until it is primary or secondary. There must be a majority.
    pub fn start_member(&self, id: u16) -> Result<(), LabError> {
        self.servers.spawn(id)?;
        self.servers.wait_accepts(id)?;
        self.wait_member(&self.servers.get(id)?)
    }

    /// SIGSTOP: the member keeps its connections and says nothing.
    pub fn pause(&self, id: u16) -> Result<(), LabError> {
        self.servers.pause(id)
    }

    /// SIGCONT, after [`Mongo::pause`].
    pub fn resume(&self, id: u16) -> Result<(), LabError> {
        self.servers.resume(id)
    }

    /// From now on a secondary answers reads and does not apply what the primary does: it lags. Majority writes count it
    /// as missing; see [`MongoSpec::for_tests`].
    pub fn stop_applying(&self, id: u16) -> Result<(), LabError> {
        let set =
            self.run_on(id, "admin", doc! { "configureFailPoint": STOP_APPLYING, "mode": "alwaysOn" })?;
        let entered = set.get_i64("count").or_else(|_| set.get_i32("count").map(i64::from)).unwrap_or(0);
        // What it is applying just now is not stopped.
        let bound_ms = i64::try_from(COMMAND_BOUND.as_millis()).unwrap_or(i64::MAX);
        let wait =
            doc! { "waitForFailPoint": STOP_APPLYING, "timesEntered": entered + 1, "maxTimeMS": bound_ms };
        self.run_on(id, "admin", wait).map(drop)
    }

    /// Undoes [`Mongo::stop_applying`]; the member catches up.
    pub fn resume_applying(&self, id: u16) -> Result<(), LabError> {
        self.run_on(id, "admin", doc! { "configureFailPoint": STOP_APPLYING, "mode": "off" }).map(drop)
    }

    /// The primary hands over to a secondary that has caught up. Returns the one that is primary then: another one, if
    /// there is another that may be.
    pub fn step_down(&self) -> Result<u16, LabError> {
        let (id, before) = process::wait_for(ELECTION_BOUND, || self.elected())
            .ok_or(LabError::NoPrimary { waited: ELECTION_BOUND })?;
        let command = doc! {
            "replSetStepDown": STEP_DOWN_SECONDS,
            "secondaryCatchUpPeriodSecs": STEP_DOWN_CATCH_UP_SECONDS,
            // Or a set with one voter would refuse.
            "force": true,
        };
        self.run_on(id, "admin", command)?;
        self.wait_elected(|elected| *elected != before)
    }

    /// What each member that runs is.
    pub(crate) fn states(&self) -> Vec<(Server, MemberState)> {
        states_of(self.servers.running())
    }

    fn elected(&self) -> Option<(u16, ObjectId)> {
        let states = self.states().into_iter();
        let primaries = states.filter_map(|(server, state)| match state {
            MemberState::Primary(elected) => Some((server.id, elected)),
            _ => None,
        });
        primaries.max_by_key(|(_, elected)| *elected)
    }

    fn wait_elected(&self, is_right: impl Fn(&ObjectId) -> bool) -> Result<u16, LabError> {
        process::wait_for(ELECTION_BOUND, || self.elected().filter(|(_, elected)| is_right(elected)))
            .map(|(id, _)| id)
            .ok_or(LabError::NoPrimary { waited: ELECTION_BOUND })
    }

    fn wait_member(&self, server: &Server) -> Result<(), LabError> {
        wait_member(server)
    }
}

/// Tells a new set who belongs to it; one that knows is left alone.
pub(crate) fn initiate(server: &Server, config: &Document) -> Result<(), LabError> {
    match ask::ask(server, "admin", &doc! { "replSetInitiate": config.clone() }, COMMAND_BOUND) {
        Err(LabError::Command { source, .. }) if ask::code(&source) == Some(ALREADY_INITIALIZED) => Ok(()),
        told => told.map(drop),
    }
}

pub(crate) fn states_of(servers: Vec<Server>) -> Vec<(Server, MemberState)> {
    let answers = ask::ask_all(&servers, "admin", &doc! { "hello": 1 }, HELLO_BOUND);
    let state = |answer: Result<Document, LabError>| {
        let Ok(hello) = answer else { return MemberState::Other };
        match (hello.get_bool("isWritablePrimary"), hello.get_bool("secondary")) {
            (Ok(true), _) => {
                hello.get_object_id("electionId").map_or(MemberState::Other, MemberState::Primary)
            }
            (_, Ok(true)) => MemberState::Secondary,
            _ => MemberState::Other,
        }
    };
    servers.into_iter().zip(answers.into_iter().map(state)).collect()
}

/// Waits until a server is primary or secondary.
pub(crate) fn wait_member(server: &Server) -> Result<(), LabError> {
    let found = wait_state(server, |state| *state != MemberState::Other);
    found.ok_or_else(|| timed_out(server, "it is neither primary nor secondary", READY_BOUND))
}

/// Waits until the only member of a set is primary, which it is a moment after it was secondary.
pub(crate) fn wait_only_member(server: &Server) -> Result<(), LabError> {
    let found = wait_state(server, |state| matches!(state, MemberState::Primary(_)));
    found.ok_or_else(|| timed_out(server, "it is not primary", READY_BOUND))
}

fn wait_state(server: &Server, is_right: impl Fn(&MemberState) -> bool) -> Option<()> {
    process::wait_for(READY_BOUND, || {
        states_of(vec![server.clone()]).iter().any(|(_, state)| is_right(state)).then_some(())
    })
}
