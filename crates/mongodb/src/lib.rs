//! Every port on MongoDB: a document an entity, and what changes together in one of them.
//!
//! Read [`link`] first: it is the one way to the servers, and where write concern, time limits, the place of a read and the
//! meaning of failures are dealt with. Each entity is a module with its port.

mod config;
mod deployment;
mod leaves;
mod link;
mod products;
pub mod schema;
mod users;

pub use self::{
    config::MongoConfig,
    deployment::{ConnectError, Deployment},
    products::{MongoProducts, StripeFaults, StripeStep},
    users::MongoUsers,
};
