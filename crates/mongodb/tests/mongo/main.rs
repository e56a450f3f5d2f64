//! The stores on real replica sets of MongoDB, which this binary starts and ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod carts;
mod failover;
mod moving;
mod orders;
mod plans;
mod products;
mod reads;
mod sessions;
mod shards;
mod stripes;
mod support;
