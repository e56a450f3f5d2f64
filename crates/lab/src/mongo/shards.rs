//! A small sharded cluster: a config server and some shards, each a replica set of one.
//!
//! There is no router. What one does about the layout of data, [`MongoShards::run_as_mongos`] does with the commands by
//! which a router talks to the servers; data is read and written on the shards themselves.

use std::path::{Path, PathBuf};

use mongodb::bson::{Bson, Document, doc};
use serde::{Deserialize, Serialize};

use super::{
    MONGODB_VERSION, install, ports,
    server::{Role, Server},
    servers::Servers,
    set::{initiate, wait_only_member},
};
use crate::{
    LabError, Step, cache_dir,
    keeper::{AtEnd, Keeper},
    state,
};

/// A server costs about 200 MB.
pub(crate) const SHARDS_MAX: u16 = 8;
pub(crate) const CONFIG_SERVER: u16 = 0;

/// Shards are named by their number, from 1, as in `shard1`; 0 is the config server.
#[derive(Debug)]
pub struct MongoShards {
    pub(crate) servers: Servers,
    spec: ShardsSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardsSpec {
    pub shards: u16,
    /// Of the config server, the shards follow; `None` is 27017 for a person's, and any that are free for a test's.
    pub port: Option<u16>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ShardsFile {
    server: String,
    spec: ShardsSpec,
}

impl MongoShards {
    /// A cluster in a temporary directory on free ports of 127.0.0.1, all of which ends with this value or with this
    /// process, however it ends. The balancer is off until `balancerStart`.
    pub fn ephemeral(shards: u16) -> Result<Self, LabError> {
        let spec = ShardsSpec { shards, port: None };
        spec.check()?;
        let mongod = install::prepare(&cache_dir(), &mut |_| {})?;
        let root = state::temporary_dir()?;
        let (port, held) = ports::take_free(shards + 1)?;
        let keeper = Keeper::guard(&root, AtEnd::of_tests(), Some(held.into()))?;
        let mut cluster = Self::create(root, &spec, port)?.with_mongod(mongod);
        cluster.servers.keeper = Some(keeper);
        cluster.start_all(&mut |_| {})?;
        Ok(cluster)
    }

    /// Writes down a new cluster; nothing runs yet.
    pub(crate) fn create(root: PathBuf, spec: &ShardsSpec, port: u16) -> Result<Self, LabError> {
        spec.check()?;
        ports::check_free(port, spec.shards + 1)?;
        state::claim(&root)?;
        let config = Server::new(
            &root,
            CONFIG_SERVER,
            "config".to_owned(),
            Role::ConfigServer,
            &format!("config{port}"),
            port,
        );
        let shard = |id: u16| {
            let port = port + id;
            Server::new(&root, id, format!("shard {id}"), Role::Shard, &format!("shard{port}"), port)
        };
        let known: Vec<Server> = std::iter::once(config).chain((1..=spec.shards).map(shard)).collect();
        for server in &known {
            server.save()?;
        }
        let file = ShardsFile { server: format!("mongodb-{MONGODB_VERSION}"), spec: *spec };
        state::save(&root.join("shards.json"), &file)?;
        Ok(Self::with_servers(root, *spec, known))
    }

    /// A cluster that was written down before, whether it runs or not.
    pub(crate) fn load(root: &Path) -> Result<Option<Self>, LabError> {
        let path = root.join("shards.json");
        if !path.exists() {
            return Ok(None);
        }
        let spec = state::load::<ShardsFile>(&path)?.spec;
        let dirs =
            std::iter::once("config".to_owned()).chain((1..=spec.shards).map(|id| format!("shard{id}")));
        let known =
            dirs.map(|dir| Server::load(&root.join(dir))).collect::<Result<Vec<Server>, LabError>>()?;
        Ok(Some(Self::with_servers(root.to_owned(), spec, known)))
    }

    fn with_servers(root: PathBuf, spec: ShardsSpec, known: Vec<Server>) -> Self {
        // A reshard takes five minutes otherwise, however little there is to move.
        let parameters = [("reshardingMinimumOperationDurationMillis".to_owned(), "0".to_owned())];
        MongoShards { servers: Servers::new(root, known, parameters.into()), spec }
    }

    pub(crate) fn with_mongod(mut self, mongod: PathBuf) -> Self {
        self.servers = self.servers.with_mongod(mongod);
        self
    }

    /// Starts every server that does not run, and makes a cluster of them if they are none yet.
    pub(crate) fn start_all(&self, progress: &mut dyn FnMut(Step)) -> Result<(), LabError> {
        self.servers.start_all(progress)?;
        progress(Step::AddingShards);
        let servers = self.servers.all();
        for server in &servers {
            let member = doc! { "_id": 0, "host": server.address() };
            let mut config = doc! { "_id": &server.set, "members": [member] };
            if server.role == Role::ConfigServer {
                config.insert("configsvr", true);
            }
            initiate(server, &config)?;
        }
        for server in &servers {
            wait_only_member(server)?;
        }
        let known = self.find("shards", doc! {})?;
        if known.is_empty() {
            // Before there is anything to balance.
            self.on_config(doc! { "_configsvrBalancerStop": 1 })?;
        }
        for shard in servers.iter().filter(|server| server.role == Role::Shard) {
            let name = shard_name(shard.id);
            if !known.iter().any(|known| known.get_str("_id").is_ok_and(|id| id == name)) {
                let host = format!("{}/{}", shard.set, shard.address());
                self.on_config(majority(doc! { "_configsvrAddShard": host, "name": name }))?;
            }
        }
        progress(Step::ShardsAdded { shards: servers.len() - 1 });
        Ok(())
    }

    pub fn spec(&self) -> &ShardsSpec {
        &self.spec
    }

    pub fn dir(&self) -> &Path {
        self.servers.dir()
    }

    /// For a driver that talks to the config server.
    pub fn config_uri(&self) -> Result<String, LabError> {
        self.shard_uri(CONFIG_SERVER)
    }

    /// For a driver that talks to one shard, and sees what that shard has.
    pub fn shard_uri(&self, id: u16) -> Result<String, LabError> {
        Ok(format!("mongodb://{}/?directConnection=true", self.servers.get(id)?.address()))
    }

    /// `127.0.0.1:28401`, …: of the config server, then of every shard.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.all().iter().map(Server::address).collect()
    }

    /// Runs a command on one server.
    pub fn run_on(&self, id: u16, database: &str, command: Document) -> Result<Document, LabError> {
        self.servers.ask(id, database, &command)
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&self, id: u16) -> Result<(), LabError> {
        self.servers.kill(id)
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&self, id: u16) -> Result<(), LabError> {
        self.servers.stop(id)
    }

    /// Starts a server that was stopped or killed, and waits until it is primary of its set of one.
    pub fn start_server(&self, id: u16) -> Result<(), LabError> {
        self.servers.spawn(id)?;
        self.servers.wait_accepts(id)?;
        wait_only_member(&self.servers.get(id)?)
    }

    /// SIGSTOP: the server keeps its connections and says nothing.
    pub fn pause(&self, id: u16) -> Result<(), LabError> {
        self.servers.pause(id)
    }

    /// SIGCONT, after [`MongoShards::pause`].
    pub fn resume(&self, id: u16) -> Result<(), LabError> {
        self.servers.resume(id)
    }

    /// A command in the words that a router understands. Known are `listShards`, `enableSharding`, `shardCollection`,
    /// `split` (with `middle`), `moveChunk` (with `bounds`, or `find` for a key that is not hashed), `moveRange`,
    /// `reshardCollection`, the commands of the balancer and of zones, and reads of `config`.
    pub fn run_as_mongos(&self, database: &str, command: Document) -> Result<Document, LabError> {
        let Some((name, subject)) = command.iter().next() else {
            return Err(LabError::NotTranslated("an empty one".to_owned()));
        };
        let text = || subject.as_str().unwrap_or_default().to_owned();
        match (database, name.as_str()) {
            ("config", "find" | "aggregate" | "count" | "distinct" | "getMore") => {
                self.run_on(CONFIG_SERVER, "config", command)
            }
            ("admin", "listShards") => Ok(doc! { "shards": self.find("shards", doc! {})?, "ok": 1.0 }),
            ("admin", "enableSharding") => {
                let primary = command.get_str("primaryShard").ok();
                self.create_database(&text(), primary)?;
                Ok(done())
            }
            ("admin", "shardCollection") => self.shard_collection(&text(), &command),
            ("admin", "split") => self.split(&text(), &command),
            ("admin", "moveChunk") => self.move_chunk(&text(), &command),
            ("admin", "moveRange") => self.on_config(majority(renamed("_configsvrMoveRange", &command))),
            ("admin", "reshardCollection") => {
                let (database, _) = halves(&text())?;
                let primary = self.primary_of(&database)?.0;
                let command = majority(renamed("_shardsvrReshardCollection", &command));
                self.run_on(primary, "admin", command)
            }
            ("admin", "balancerStart" | "balancerStop" | "balancerStatus" | "balancerCollectionStatus") => {
                self.on_config(renamed(&internal(name), &command))
            }
            ("admin", "addShardToZone" | "removeShardFromZone" | "updateZoneKeyRange") => {
                self.on_config(majority(renamed(&internal(name), &command)))
            }
            _ => Err(LabError::NotTranslated(format!("{name} on {database}"))),
        }
    }

    fn shard_collection(&self, namespace: &str, command: &Document) -> Result<Document, LabError> {
        let (database, collection) = halves(namespace)?;
        if self.find("databases", doc! { "_id": &database })?.is_empty() {
            self.create_database(&database, None)?;
        }
        let (primary, version) = self.primary_of(&database)?;
        let mut create = doc! { "_shardsvrCreateCollection": collection };
        for (name, value) in command.iter().skip(1) {
            create.insert(if name == "key" { "shardKey" } else { name }, value.clone());
        }
        create.insert("databaseVersion", version);
        self.run_on(primary, &database, majority(create))?;
        Ok(doc! { "collectionsharded": namespace, "ok": 1.0 })
    }

    fn split(&self, namespace: &str, command: &Document) -> Result<Document, LabError> {
        let middle = field(command, "middle")?;
        let collection = self.collection(namespace)?;
        let chunk = self.chunk_with(&collection, middle.clone())?;
        let shard = chunk.get_str("shard").unwrap_or_default();
        let command = doc! {
            "splitChunk": namespace,
            "from": shard,
            "min": field(&chunk, "min")?,
            "max": field(&chunk, "max")?,
            "keyPattern": field(&collection, "key")?,
            "splitKeys": [middle],
            "epoch": field(&collection, "lastmodEpoch")?,
            "timestamp": field(&collection, "timestamp")?,
        };
        self.run_on(shard_id(shard)?, "admin", command)
    }

    fn move_chunk(&self, namespace: &str, command: &Document) -> Result<Document, LabError> {
        let (min, max) = match (command.get_array("bounds"), command.get("find")) {
            (Ok(bounds), _) if bounds.len() == 2 => (bounds[0].clone(), bounds[1].clone()),
            (_, Some(find)) => {
                let chunk = self.chunk_with(&self.collection(namespace)?, find.clone())?;
                (field(&chunk, "min")?, field(&chunk, "max")?)
            }
            _ => return Err(LabError::NotTranslated("moveChunk with neither bounds nor find".to_owned())),
        };
        let wait = command.get_bool("_waitForDelete").or_else(|_| command.get_bool("waitForDelete"));
        self.on_config(majority(doc! {
            "_configsvrMoveRange": namespace,
            "toShard": field(command, "to")?,
            "min": min,
            "max": max,
            "waitForDelete": wait.unwrap_or(false),
        }))
    }

    fn create_database(&self, name: &str, primary: Option<&str>) -> Result<(), LabError> {
        let mut command = doc! { "_configsvrCreateDatabase": name };
        if let Some(primary) = primary {
            command.insert("primaryShardId", primary);
        }
        self.on_config(majority(command)).map(drop)
    }

    /// The shard that holds what is not sharded of a database, and the version by which it knows that it does.
    fn primary_of(&self, database: &str) -> Result<(u16, Bson), LabError> {
        let known = self.find("databases", doc! { "_id": database })?;
        let known = known.first().ok_or_else(|| LabError::NotSharded(database.to_owned()))?;
        Ok((shard_id(known.get_str("primary").unwrap_or_default())?, field(known, "version")?))
    }

    fn collection(&self, namespace: &str) -> Result<Document, LabError> {
        let mut known = self.find("collections", doc! { "_id": namespace })?;
        known.pop().ok_or_else(|| LabError::NotSharded(namespace.to_owned()))
    }

    fn chunk_with(&self, collection: &Document, key: Bson) -> Result<Document, LabError> {
        let hashed = |value: &Bson| value.as_str() == Some("hashed");
        if collection.get_document("key").is_ok_and(|key| key.values().any(hashed)) && !is_hashed(&key) {
            return Err(LabError::NotTranslated(format!("a value of a hashed key: {key}")));
        }
        let uuid = field(collection, "uuid")?;
        let filter = doc! { "uuid": uuid, "min": { "$lte": key.clone() }, "max": { "$gt": key.clone() } };
        self.find("chunks", filter)?.pop().ok_or_else(|| LabError::NotSharded(key.to_string()))
    }

    /// Documents of the config server, no more than fit into its first answer.
    fn find(&self, collection: &str, filter: Document) -> Result<Vec<Document>, LabError> {
        let command = doc! { "find": collection, "filter": filter, "singleBatch": true };
        let answer = self.run_on(CONFIG_SERVER, "config", command)?;
        let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        Ok(batch
            .map(|batch| batch.iter().filter_map(Bson::as_document).cloned().collect())
            .unwrap_or_default())
    }

    fn on_config(&self, command: Document) -> Result<Document, LabError> {
        self.run_on(CONFIG_SERVER, "admin", command)
    }
}

impl ShardsSpec {
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if (1..=SHARDS_MAX).contains(&self.shards) {
            Ok(())
        } else {
            Err(LabError::BadShards { got: self.shards, max: SHARDS_MAX })
        }
    }
}

impl std::fmt::Display for ShardsSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} shard{}", self.shards, if self.shards == 1 { "" } else { "s" })?;
        if let Some(port) = self.port {
            write!(f, ", from port {port}")?;
        }
        Ok(())
    }
}

fn done() -> Document {
    doc! { "ok": 1.0 }
}

fn shard_name(id: u16) -> String {
    format!("shard{id}")
}

fn shard_id(name: &str) -> Result<u16, LabError> {
    let id = name.strip_prefix("shard").and_then(|id| id.parse().ok());
    id.ok_or_else(|| LabError::NotTranslated(format!("the shard {name:?}")))
}

fn halves(namespace: &str) -> Result<(String, String), LabError> {
    let halves = namespace.split_once('.').map(|(database, rest)| (database.to_owned(), rest.to_owned()));
    halves.ok_or_else(|| LabError::NotTranslated(format!("expected DATABASE.COLLECTION, got {namespace:?}")))
}

/// Bounds of a hashed key are 64-bit numbers, or the ends of all values.
fn is_hashed(key: &Bson) -> bool {
    let is_bound = |value: &Bson| matches!(value, Bson::Int64(_) | Bson::MinKey | Bson::MaxKey);
    key.as_document().is_some_and(|key| key.values().all(is_bound))
}

fn internal(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase()).unwrap_or_default();
    format!("_configsvr{first}{}", letters.as_str())
}

/// The same command by another name.
fn renamed(name: &str, command: &Document) -> Document {
    let mut named = Document::new();
    for (index, (key, value)) in command.iter().enumerate() {
        named.insert(if index == 0 { name } else { key }, value.clone());
    }
    named
}

/// Servers refuse to change the layout with less.
fn majority(mut command: Document) -> Document {
    command.insert("writeConcern", doc! { "w": "majority" });
    command
}

fn field(document: &Document, name: &str) -> Result<Bson, LabError> {
    document
        .get(name)
        .cloned()
        .ok_or_else(|| LabError::NotTranslated(format!("there is no {name} in {document}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_router_have_names_for_the_config_server() {
        let command = doc! { "updateZoneKeyRange": "a.b", "zone": "MSK" };
        let told = majority(renamed(&internal("updateZoneKeyRange"), &command));
        assert_eq!(
            told,
            doc! { "_configsvrUpdateZoneKeyRange": "a.b", "zone": "MSK", "writeConcern": { "w": "majority" } }
        );
        assert_eq!(halves("shop.things.more").unwrap(), ("shop".to_owned(), "things.more".to_owned()));
        assert_eq!(shard_id(&shard_name(2)).unwrap(), 2);
        assert!(halves("shop").is_err() && shard_id("config").is_err());
    }
}
