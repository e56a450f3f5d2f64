//! Several instances of a shop over models of replicated stores, and everything that can go wrong between
//! them, decided by one seed.
//!
//! - [`world`]: virtual time, randomness and the record of what happened; [`clock`]: what an instance believes
//!   the time to be.
//! - [`network`]: between an instance and the stores requests are late, answers are lost, and an instance that
//!   stands still notices nothing.
//! - [`mongodb`]: a replica set with a primary, fail-over that rolls back what no majority had, and members
//!   that lag. [`cassandra`]: replicas with their own deliveries in two data centres, last write wins,
//!   conditional writes whose outcome may be unknown, hints, tombstones, time to live. How carts are gathered
//!   and packed is the code of the real adapter.
//! - [`instance`]: a shop that crashes, stands still and starts again. [`shoppers`]: clients that ask, hang up
//!   and come back.
//! - [`migration`]: an entity that moves from one store to the other meanwhile.
//! - [`history`]: what each client asked and was answered; [`checker`]: whether all of it can be true.
//! - [`features`]: what some seeds have besides: two data centres of which one is lost, a history of orders
//!   with a home of its own, carts that are left behind. [`reach`]: what a reader in another data centre may miss.
//! - [`history_only`]: the separate history of orders; [`abandoned`]: carts that are left behind.
//! - [`plan`]: what a seed does, and how a failing one is made smaller.
//! - [`planted`]: faults that are put back, to see that they are found.
//!
//! Tasks run on one thread of tokio with its clock paused: the next task is the one that was woken first, and
//! time jumps to the next timer. How long everything takes comes from the seed, so the seed decides the order.

pub mod abandoned;
pub mod cassandra;
pub mod checker;
pub mod clock;
pub mod features;
pub mod history;
pub mod history_only;
pub mod instance;
pub mod migration;
pub mod mongodb;
pub mod network;
pub mod plan;
pub mod planted;
pub mod reach;
pub mod run;
pub mod shoppers;
pub mod world;
