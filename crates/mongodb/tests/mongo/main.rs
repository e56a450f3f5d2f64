//! The stores on a real replica set, which this binary starts and ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod products;
mod stripes;
mod support;
