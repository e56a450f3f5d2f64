//! The way of one instance to a ring and a replica set, behind proxies.
//!
//! Both drivers ask their servers for the addresses of the others, so the proxies must be what they find:
//!
//! - A node of Cassandra tells the addresses of its peers without a port, and the driver takes the port of
//!   the node that it asked. So the proxies listen on the addresses of the nodes, all on one other port.
//! - A member of a replica set tells names with ports. The proxies listen on those ports of another loopback
//!   address, and [replace](Rewrite::MongoNames) the names in what members say.
//!
//! So neither servers nor clients need any setting for it.

use std::net::{Ipv4Addr, SocketAddr};

use super::{Path, Proxy, Rewrite};
use crate::{LabError, Mongo, Ring, net::CQL_PORT};

/// Above the ports of tests that choose their own, and below those of mongod.
const FIRST_PORT: u16 = 21_000;
const LAST_PORT: u16 = 27_999;
/// The last number of the loopback address, of one digit as that of the members.
const MONGO_HOSTS: std::ops::RangeInclusive<u8> = 2..=9;

/// A proxy before every server, for one client. They end with this value.
#[derive(Debug)]
pub struct StoreProxies {
    cassandra: Vec<Proxy>,
    mongodb: Vec<Proxy>,
    set: String,
}

impl StoreProxies {
    /// For the nodes and members that there are now.
    pub fn start(ring: &Ring, mongo: &Mongo) -> Result<Self, LabError> {
        Ok(Self { cassandra: before_nodes(ring)?, mongodb: before_members(mongo)?, set: mongo.set() })
    }

    /// As [`Ring::contact_points`].
    pub fn contact_points(&self) -> Vec<String> {
        self.cassandra.iter().map(|proxy| proxy.address().to_string()).collect()
    }

    /// As [`Mongo::uri`].
    pub fn uri(&self) -> String {
        let addresses: Vec<String> = self.mongodb.iter().map(|proxy| proxy.address().to_string()).collect();
        format!("mongodb://{}/?replicaSet={}", addresses.join(","), self.set)
    }

    /// The way to every server.
    pub fn set(&self, path: Path) {
        self.set_cassandra(path);
        self.set_mongodb(path);
    }

    pub fn set_cassandra(&self, path: Path) {
        self.cassandra.iter().for_each(|proxy| proxy.set(path));
    }

    pub fn set_mongodb(&self, path: Path) {
        self.mongodb.iter().for_each(|proxy| proxy.set(path));
    }

    /// How many connections were made so far, to Cassandra and to MongoDB.
    pub fn connections(&self) -> (usize, usize) {
        let sum = |proxies: &[Proxy]| proxies.iter().map(Proxy::connections).sum();
        (sum(&self.cassandra), sum(&self.mongodb))
    }
}

/// On one port that is free on all their addresses.
fn before_nodes(ring: &Ring) -> Result<Vec<Proxy>, LabError> {
    let nodes: Vec<Ipv4Addr> = ring.nodes().iter().map(|node| node.address).collect();
    let ports = u32::from(LAST_PORT - FIRST_PORT) + 1;
    // Processes that start together begin at different places.
    let first = std::process::id() % ports;
    for step in 0..ports {
        let port = FIRST_PORT + u16::try_from((first + step) % ports).unwrap_or(0);
        let start = |address: &Ipv4Addr| {
            let server = SocketAddr::from((*address, CQL_PORT));
            Proxy::start(SocketAddr::from((*address, port)), &[server], Rewrite::Nothing)
        };
        if let Ok(proxies) = nodes.iter().map(start).collect() {
            return Ok(proxies);
        }
    }
    Err(LabError::NoFreePorts { ports: 1, first: FIRST_PORT, last: LAST_PORT })
}

/// On one loopback address where all their ports are free.
fn before_members(mongo: &Mongo) -> Result<Vec<Proxy>, LabError> {
    let members: Vec<SocketAddr> =
        mongo.addresses().iter().filter_map(|address| address.parse().ok()).collect();
    for host in MONGO_HOSTS {
        let proxy_of =
            |member: &SocketAddr| SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), member.port()));
        let names: Vec<(String, String)> =
            members.iter().map(|member| (member.to_string(), proxy_of(member).to_string())).collect();
        let start = |member: &SocketAddr| {
            Proxy::start(proxy_of(member), &[*member], Rewrite::MongoNames(names.clone()))
        };
        if let Ok(proxies) = members.iter().map(start).collect() {
            return Ok(proxies);
        }
    }
    Err(LabError::NoFreePorts { ports: mongo.spec().size(), first: FIRST_PORT, last: LAST_PORT })
}
