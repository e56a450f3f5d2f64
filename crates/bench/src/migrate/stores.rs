//! Both stores of a migration: a replica set of MongoDB is the source, a ring of Cassandra the target.

use std::sync::Arc;

use anyhow::{Context, Result};
use mobimir_core::{
    moving::Movables,
    notes::NoteStore,
    policy::{Entity, Policy},
};
use mobimir_lab::{Mongo, MongoSpec, Ring};
use mobimir_mongodb::{Deployment, MongoCarts, MongoConfig, MongoNotes, MongoOrders, MongoSessions, schema};
use mongodb::bson::doc;

use crate::{cassandra, mongo, progress};

/// One, as for the figures of MongoDB: two cores show what is measured, and not what copies cost.
const MEMBERS: u16 = 1;
const DATABASE: &str = "source";

/// They end with this process, however it ends.
pub(super) struct Servers {
    pub(super) ring: Ring,
    mongo: Mongo,
}

pub(super) struct Stores<'a> {
    pub(super) servers: &'a Servers,
    pub(super) policy: Policy,
    pub(super) source: Movables,
    pub(super) target: Movables,
    pub(super) notes: Arc<dyn NoteStore>,
}

impl Servers {
    pub(super) fn start() -> Result<Self> {
        let ring = cassandra::start_ring()?;
        Ok(Self { ring, mongo: start_mongo()? })
    }
}

pub(super) fn start_mongo() -> Result<Mongo> {
    progress("starting a replica set of one member");
    let spec = MongoSpec::for_tests(MEMBERS).with("ttlMonitorSleepSecs", mongo::EXPIRY_EVERY_S);
    Mongo::ephemeral(&spec).context("no replica set of MongoDB")
}

/// All that moves in a database, which is made, and the notes there.
pub(super) async fn open_mongo(uri: &str, database: &str) -> Result<(Movables, Arc<dyn NoteStore>)> {
    let config = MongoConfig { uri: uri.to_owned(), database: database.to_owned(), ..MongoConfig::default() };
    let deployment = Deployment::connect(config).await?;
    for entity in [Entity::Products, Entity::Carts, Entity::Orders, Entity::Sessions] {
        schema::apply(&deployment, &schema::collections(entity)).await?;
    }
    let movables = Movables {
        orders: MongoOrders::side(deployment.clone()),
        carts: MongoCarts::side(deployment.clone()),
        sessions: MongoSessions::side(deployment.clone()),
    };
    Ok((movables, Arc::new(MongoNotes::new(deployment))))
}

impl<'a> Stores<'a> {
    pub(super) async fn open(servers: &'a Servers) -> Result<Self> {
        progress("making the tables");
        let policy = cassandra::ring::policy()?;
        cassandra::ring::create(&servers.ring, &policy).await?;
        let port = cassandra::Port::connect(&servers.ring, &policy, None).await?;
        let target =
            Movables { orders: port.orders.side(), carts: port.carts.side(), sessions: port.sessions.side() };
        let (source, notes) = open_mongo(&servers.mongo.uri(), DATABASE).await?;
        Ok(Self { servers, policy, source, target, notes })
    }

    /// Takes everything away from the source, so that the next to be copied is something else.
    pub(super) fn empty_source(&self, collection: &str) -> Result<()> {
        let all = doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }] };
        tokio::task::block_in_place(|| self.servers.mongo.run_on(1, DATABASE, all))?;
        Ok(())
    }
}
