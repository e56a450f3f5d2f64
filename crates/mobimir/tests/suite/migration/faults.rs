//! What can go wrong while data moves, and where on the way.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::Method;
use mobimir_lab::{LabError, Ring, Sight};
use serde_json::json;

use super::{
    troubles::Troubles,
    world::{ENTITIES, MANY, NODES, PATIENCE, World, blocking, tell},
};
use crate::support::{Client, servers::Servers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of a process of the shop.
    KillInstance,
    /// Of the one that copies and compares.
    KillMigrator,
    /// One of three.
    KillCassandraNode,
    /// The primary: until another one is elected nothing is sold.
    KillPrimary,
    /// All nodes keep their connections and say nothing.
    PauseTarget,
    /// Somebody thinks better of it.
    Rollback,
}

/// Where a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    DualWrite,
    Backfill,
    Verify,
    /// Everybody waits for the target.
    Handover,
    ReadTarget,
    /// Everybody waits for the source again.
    WayBack,
}

impl Fault {
    pub(crate) const ALL: [Self; 6] = [
        Self::PauseTarget,
        Self::KillMigrator,
        Self::KillCassandraNode,
        Self::KillInstance,
        Self::KillPrimary,
        Self::Rollback,
    ];
}

impl When {
    /// In the order of the way.
    pub(crate) const ALL: [Self; 6] =
        [Self::DualWrite, Self::Backfill, Self::Verify, Self::Handover, Self::ReadTarget, Self::WayBack];

    /// Whether only the source is asked by shoppers. Then nobody feels what becomes of the target.
    fn source_decides(self) -> bool {
        matches!(self, Self::DualWrite | Self::Backfill | Self::Verify)
    }

    /// Brings the shop there. What is over before anybody looks is begun anew.
    pub(crate) async fn reach(self, world: &World) {
        let started = Instant::now();
        loop {
            if let Some(caught) = self.try_to_reach(world).await {
                return tell(&format!("{self:?}: {caught}"));
            }
            tell(&format!("{self:?} was over before anybody looked"));
            assert!(started.elapsed() < PATIENCE, "{self:?} is always over before anybody looks");
        }
    }

    async fn try_to_reach(self, world: &World) -> Option<String> {
        match self {
            Self::DualWrite => {
                world.bring_all("dual-write").await;
                Some("all".to_owned())
            }
            Self::ReadTarget => {
                world.bring_all("read-target").await;
                Some("all".to_owned())
            }
            Self::Backfill => {
                world.bring_all("dual-write").await;
                world.act_on_all("advance").await;
                world.catch(&["backfill"]).await
            }
            Self::Verify => {
                world.bring_all("backfill").await;
                self.leave_backfill(world).await;
                world.catch(&["verify"]).await
            }
            Self::Handover => {
                world.bring_all("verify").await;
                world.compare_all().await;
                world.act_on_all("advance").await;
                world.catch(&["handover", "switch"]).await
            }
            Self::WayBack => {
                world.bring_all("read-target").await;
                world.act_on_all("rollback").await;
                world.catch(&["handover", "switch"]).await
            }
        }
    }

    /// Nobody goes on before all is copied, so it is asked until one is.
    async fn leave_backfill(self, world: &World) {
        let started = Instant::now();
        loop {
            for entity in ENTITIES {
                let now = world.record(entity).await;
                if now.is_some_and(|now| now.phase != "backfill" || now.is_on_its_way) {
                    return;
                }
                world.act(entity, "advance").await;
            }
            assert!(started.elapsed() < PATIENCE, "nothing is copied");
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}

/// Before something is looked at again.
const LOOK_PAUSE: Duration = Duration::from_millis(300);
/// How long a process is away.
const INSTANCE_AWAY: Duration = Duration::from_secs(2);
const MONGOD_AWAY: Duration = Duration::from_millis(1_500);
/// Longer than any request waits for an answer of Cassandra.
const PAUSE_LASTS: Duration = Duration::from_secs(12);

/// Does something wrong, and mends it.
pub(crate) async fn strike(
    world: &mut World,
    troubles: &mut Troubles,
    fault: Fault,
    when: When,
    round: usize,
) {
    let why = format!("{fault:?} in {when:?}");
    tell(&why);
    // While the source decides, nobody may feel what becomes of the target.
    let is_felt = !when.source_decides();
    let servers = world.servers.clone();
    match fault {
        Fault::KillInstance => kill_instance(world, troubles, why, 1 - round % 2).await,
        Fault::KillMigrator => {
            let entity = if when == When::Backfill { MANY } else { ENTITIES[round % ENTITIES.len()] };
            if when == When::Backfill {
                world.be_in_the_middle_of_copying(entity).await;
            }
            let worker = world.worker(entity).await;
            tell(&format!("the one that works at {entity}: {worker}"));
            kill_instance(world, troubles, why, worker).await;
        }
        Fault::KillCassandraNode => {
            if is_felt {
                troubles.begins(why, None);
            }
            let node = NODES[round % NODES.len()];
            on(servers, move |servers| lose_node(&servers.ring, node)).await;
            sells_again(world).await;
        }
        Fault::KillPrimary => {
            troubles.begins(why, None);
            on(servers, |servers| {
                let primary = servers.mongo.wait_primary()?;
                servers.mongo.kill(primary)?;
                std::thread::sleep(MONGOD_AWAY);
                servers.mongo.start_member(primary)?;
                servers.mongo.wait_ready()
            })
            .await;
            sells_again(world).await;
        }
        Fault::PauseTarget => {
            if is_felt {
                troubles.begins(why, None);
            }
            on(servers, |servers| {
                let paused: Result<Vec<()>, LabError> =
                    NODES.into_iter().map(|node| servers.ring.pause(node)).collect();
                std::thread::sleep(PAUSE_LASTS);
                let resumed: Result<Vec<()>, LabError> =
                    NODES.into_iter().map(|node| servers.ring.resume(node)).collect();
                paused.and(resumed).map(drop)
            })
            .await;
            sells_again(world).await;
        }
        Fault::Rollback => {
            let action = if when == When::WayBack { "advance" } else { "rollback" };
            world.act_on_all(action).await;
        }
    }
    troubles.is_over();
    tell("mended");
    world.come_to_rest().await;
    tell("at rest");
}

async fn kill_instance(world: &mut World, troubles: &mut Troubles, why: String, number: usize) {
    troubles.begins(why, Some(world.host(number).to_owned()));
    world.kill(number);
    tokio::time::sleep(INSTANCE_AWAY).await;
    world.restart(number).await;
    sells_again(world).await;
}

fn lose_node(ring: &Ring, node: u16) -> Result<(), LabError> {
    ring.kill(node)?;
    let survivors: Vec<u16> = NODES.into_iter().filter(|other| *other != node).collect();
    for survivor in survivors {
        ring.wait_until_seen(survivor, node, Sight::Down)?;
    }
    ring.start_node(node)?;
    NODES.into_iter().try_for_each(|other| ring.wait_until_up(other, NODES.len()))
}

async fn on(servers: Arc<Servers>, work: impl FnOnce(&Servers) -> Result<(), LabError> + Send + 'static) {
    blocking(move || work(&servers).unwrap()).await;
}

/// Waits until somebody who comes in can put something into a cart, at every instance.
async fn sells_again(world: &World) {
    let started = Instant::now();
    for host in world.hosts() {
        while !sells(&host).await {
            assert!(started.elapsed() < PATIENCE, "{host} does not sell any more");
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}

async fn sells(host: &str) -> bool {
    let mut visitor = Client::new(host);
    let Ok(session) = visitor.send(Method::POST, "/v1/sessions", &[], Some(json!({}))).await else {
        return false;
    };
    let Some(products) = visitor.send(Method::GET, "/v1/products?limit=1", &[], None).await.ok() else {
        return false;
    };
    if session.status != 201 || products.status != 200 {
        return false;
    }
    let product = products.json()["items"][0]["product_id"].clone();
    let mut guest = Client::with_token(host, session.json()["token"].as_str().unwrap());
    let line = json!({ "product_id": product, "quantity": 1 });
    let added = guest.send(Method::POST, "/v1/cart/items", &[], Some(line)).await;
    added.is_ok_and(|added| added.status == 200 || added.status == 409)
}
