//! Replica sets of real servers.
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::{
    thread,
    time::{Duration, Instant},
};

use mobimir_lab::{Mongo, MongoSpec};
use mongodb::{
    bson::{Document, doc},
    sync::Client,
};

#[test]
fn a_set_is_hurt_and_heals_and_leaves_nothing_behind() {
    let start = Instant::now();
    let mongo = Mongo::ephemeral_with(&MongoSpec::for_tests(3), &mut |step| {
        println!("{:>6} ms {step}", start.elapsed().as_millis())
    })
    .unwrap();
    println!("{:>6} ms up", start.elapsed().as_millis());
}
