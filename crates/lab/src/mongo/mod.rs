//! Replica sets of MongoDB, and a small sharded cluster.

mod ask;
mod install;
mod ports;
mod server;
mod servers;
mod set;
mod spec;

pub use install::MONGODB_VERSION;
pub use set::Mongo;
pub use spec::{MemberSpec, MongoSpec};
