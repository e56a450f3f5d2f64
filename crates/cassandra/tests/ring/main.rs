//! The stores on a real Cassandra ring, which this binary starts and ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod carts;
mod checkout;
mod faults;
mod moving;
mod order_lists;
mod orders;
mod partitions;
mod policies;
mod schema;
mod sessions;
mod support;
mod two_dcs;
mod world;
