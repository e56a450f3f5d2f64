//! Live migration of an entity from one store to another while the shop sells, there and back.
//!
//! Knows only the ports of `mobimir-core`, so it works between any two stores.

pub mod phase;
