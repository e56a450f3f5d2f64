//! What tests of mobimir share: a plain model of every store, strategies that make up shop data, and the
//! conformance suite that every store must pass.
//!
//! [`model::ModelStore`] is the oracle: maps behind a lock and the rules of `mobimir-core`, nothing clever.
//! [`conformance`] compares a store with it, step by step, and then tries to break the numbered promises by racing.

pub mod arbitrary;
pub mod conformance;
pub mod model;
pub mod strategies;
