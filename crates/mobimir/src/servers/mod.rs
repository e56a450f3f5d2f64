//! The servers that data can live on. Each module is the real thing or, in a build without the driver, its absence.

#[cfg_attr(not(feature = "cassandra"), path = "no_cassandra.rs")]
#[allow(dead_code, reason = "what is asked of a server depends on the other features")]
mod cassandra;
#[cfg_attr(not(feature = "mongodb"), path = "no_mongodb.rs")]
#[allow(dead_code, reason = "what is asked of a server depends on the other features")]
mod mongodb;

pub(crate) use self::{cassandra::Cassandra, mongodb::Mongodb};

/// The servers that something lives on.
#[derive(Clone, Default)]
pub(crate) struct Servers {
    pub(crate) cassandra: Option<Cassandra>,
    pub(crate) mongodb: Option<Mongodb>,
}
