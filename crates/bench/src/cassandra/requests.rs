//! How many round trips an operation takes, one after the other, counted by the driver.
//!
//! On one thread: what an operation leaves to the background (an order's note is removed so) does not run before the
//! operation is over and its round trips are counted. With several it may be answered before the one that counts gets
//! its processor back, and would be taken for a round trip that somebody waited for.

use std::sync::Arc;

use anyhow::{Result, ensure};
use mobimir_cassandra::RequestLog;
use mobimir_core::{
    policy::Policy,
    time::{Clock, SystemClock},
};
use mobimir_lab::Ring;
use tokio::runtime::Builder;

use super::port::Port;
use crate::{
    figures::Figures,
    progress,
    sides::{self, Operation, Shop},
};

/// Each of them must take no more.
const TIMES: usize = 16;

pub(super) fn count(
    ring: &Ring,
    policy: &Policy,
    shop: &Shop,
    wanted: &[Operation],
    figures: &mut Figures,
) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(count_all(ring, policy, shop, wanted, figures))
}

async fn count_all(
    ring: &Ring,
    policy: &Policy,
    shop: &Shop,
    wanted: &[Operation],
    figures: &mut Figures,
) -> Result<()> {
    progress("counting round trips");
    // The cluster traces what is logged, so this has a connection of its own.
    let log = Arc::new(RequestLog::default());
    let port = Port::connect(ring, policy, Some(log.clone())).await?;
    for &operation in wanted {
        // Of new carts, so that the first change of a cart counts as well.
        let carts: Vec<_> = (0..TIMES).map(|_| sides::new_cart(SystemClock.now())).collect();
        let (mut rounds, mut requests) = (0, 0);
        for number in 0..TIMES {
            let (before, _) = log.counts();
            log.take_rounds();
            operation.carry_out(&port, shop, &carts, number).await?;
            rounds = rounds.max(log.take_rounds());
            // In the steady state: the first of all also writes what all later ones find.
            requests = log.counts().0 - before;
        }
        ensure!(rounds > 0, "no request of {} was seen", operation.name());
        progress(&format!("{} takes {requests} requests in {rounds} rounds", operation.name()));
        let figure = format!("cassandra_{}_rounds", operation.name());
        figures.at_most(&figure, rounds as f64, "round trips", f64::from(rounds_max(operation)));
    }
    Ok(())
}

fn rounds_max(operation: Operation) -> u32 {
    match operation {
        // A note and whether it is there, then all its rows.
        Operation::OrderInsert => 2,
        _ => 1,
    }
}
