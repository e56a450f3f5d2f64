//! Replica sets of MongoDB, and a small sharded cluster.

mod ask;
mod install;
mod lab;
mod ports;
mod server;
mod servers;
mod set;
mod shards;
mod spec;

pub(crate) use lab::PLACE;

pub use install::MONGODB_VERSION;
pub use lab::{MemberSight, MemberStatus, MongoCluster, MongoShape};
pub use set::Mongo;
pub use shards::{MongoShards, ShardsSpec};
pub use spec::{MemberSpec, MongoSpec};
