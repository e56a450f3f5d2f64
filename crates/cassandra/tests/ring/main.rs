//! The stores on a real Cassandra ring: the one that all tests of a run share, or else one that this binary starts and ends.
//! Tests that hurt nodes have `alone` in their path, so that they can be run by themselves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod alone;
mod carts;
mod checkout;
mod moving;
mod order_crashes;
mod order_lists;
mod orders;
mod outbox;
mod partitions;
mod policies;
mod schema;
mod sessions;
mod support;
mod world;
