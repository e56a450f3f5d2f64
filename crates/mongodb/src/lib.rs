//! Every port on MongoDB: a document an entity, and what changes together in one of them.
//!
//! Read [`link`] first: it is the one way to the servers, and where write concern, time limits, the place of a read and the
//! meaning of failures are dealt with. Each entity is a module with its port.

mod carts;
mod config;
mod deployment;
mod expiry;
mod leaves;
mod link;
mod members;
mod moving;
mod notes;
mod orders;
mod paging;
mod products;
pub mod schema;
mod sessions;
mod users;

pub use self::{
    carts::MongoCarts,
    config::MongoConfig,
    deployment::{ConnectError, Deployment},
    members::{MemberRole, MemberState},
    notes::MongoNotes,
    orders::{MongoOrderHistory, MongoOrders},
    products::{MongoProducts, StripeFaults, StripeStep},
    sessions::MongoSessions,
    users::MongoUsers,
};
