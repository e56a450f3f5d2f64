//! The stores on real replica sets of MongoDB: the one that all tests of a run share, or else one that this binary starts and
//! ends, and some of another shape. Tests that hurt the shared set have `alone` in their path, so that they can be run by
//! themselves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod alone;
mod carts;
mod moving;
mod orders;
mod plans;
mod products;
mod sessions;
mod shards;
mod stripes;
mod support;
