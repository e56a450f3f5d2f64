//! Live migration of an entity from one store to another while the shop sells, there and back.
//!
//! Knows only the ports of `mobimir-core`, so it works between any two stores.
//!
//! - [`phase`]: the ladder that a migration climbs, as pure functions;
//! - [`record`]: what stands about it in the notes; [`lease`]: who follows, and who is gone;
//! - [`follow`]: how an instance follows, and how the migration is moved on; [`standing`]: what an instance may do now;
//! - [`migrating`]: the ports, made of two others; [`mirror`]: what was written here is copied there;
//! - [`service`]: all of it for one entity in one process, with what operators ask for;
//! - [`backfill`] copies the past, [`verify`] compares and mends, each as a [`job`] that can be stopped and goes on, at a
//!   [`pace`] that is measured; [`throttle`] makes them give way to shoppers; [`dead_letters`]: what could not be copied;
//! - [`shadow`]: shoppers' reads, asked of both stores before the switch; [`dry_run`]: what a migration would be;
//! - [`environment`]: where time and tasks come from.

pub mod backfill;
pub mod dead_letters;
pub mod dry_run;
pub mod environment;
pub mod follow;
pub mod job;
pub mod lease;
pub mod migrating;
pub mod mirror;
pub mod pace;
pub mod phase;
pub mod record;
pub mod service;
pub mod shadow;
pub mod standing;
pub mod throttle;
pub mod timing;
pub mod verify;
