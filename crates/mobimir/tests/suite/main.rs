//! The shop as its users meet it: the program, started as a process, over HTTP and in a browser. One binary, so that
//! it is linked once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod api;
mod browser;
mod commands;
mod concurrency;
mod crash;
mod expiry;
mod instances;
mod lab;
mod lies;
mod load;
mod malformed;
mod migration;
mod orders;
mod overload;
mod partitions;
mod roles;
mod servers;
mod support;
