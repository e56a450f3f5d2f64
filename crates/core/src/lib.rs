//! The middle of mobimir: what a shop is, which promises it keeps, and what it asks of a store.
//!
//! Nothing here knows a database driver, a web server, the wall clock or the disk. Rules are pure functions over
//! values; time arrives as a [`time::Timestamp`], and every store is reached through a trait in [`ports`].

pub mod cart;
pub mod checkout;
pub mod entropy;
pub mod id;
pub mod invariant;
pub mod money;
pub mod moving;
pub mod notes;
pub mod order;
pub mod page;
pub mod policy;
pub mod ports;
pub mod product;
pub mod random;
pub mod reading;
pub mod search;
pub mod secret;
pub mod session;
pub mod tasks;
pub mod time;
pub mod user;
pub mod zone;
