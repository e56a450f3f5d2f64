//! Every port of the shop on one machine: an LSM engine in the process, durable by group commit.
//!
//! - [`engine`] commits: one thread runs all writes, one after the other, and shares an fsync among those that wait;
//! - `records` says what every stored key and value looks like;
//! - `products`, `users`, `carts`, `orders` and `sessions` implement the ports on top of both;
//! - `moving` shows carts, orders and sessions to a migration;
//! - [`EmbeddedStore`] opens a data directory and puts it all together; [`backup`] copies one that is running.

pub mod backup;
mod cache;
mod carts;
mod catalogue;
mod checkouts;
pub mod directory;
pub mod engine;
mod error;
mod moving;
mod notes;
mod orders;
mod products;
mod readers;
mod records;
mod sessions;
mod store;
mod sweep;
mod users;

pub use backup::{BackupError, Progress, RestoreError, restore};
pub use directory::OpenError;
pub use engine::{Engine, EngineStats, Space, Txn};
pub use store::{EmbeddedStore, Options, Stats};
