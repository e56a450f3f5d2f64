//! The stores on a real Cassandra ring, which this binary starts and ends.

mod carts;
mod checkout;
mod faults;
mod orders;
mod partitions;
mod policies;
mod schema;
mod sessions;
mod support;
mod two_dcs;
mod world;
