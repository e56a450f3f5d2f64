//! The way from an instance to a store and back. A request that was sent goes on whatever becomes of its
//! sender.

use std::sync::Arc;

use mobimir_core::{
    ports::{StoreError, StoreResult},
    reading,
};
use tokio::sync::oneshot;

use crate::world::{Watched, World};

/// How an instance reaches the stores.
#[derive(Clone)]
pub struct Network {
    world: World,
    /// Whether the instance stands still: neither sends nor notices anything.
    stands_still: Arc<Watched<bool>>,
}

/// What a request does, and so what a lost answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

const LOST_PERMILLE: u64 = 6;
const REFUSED_PERMILLE: u64 = 4;
const LATE_PERMILLE: u64 = 4;
/// When the driver gives a request up.
const PATIENCE_MS: u64 = 2_000;
/// How late a request may still arrive.
const LATE_MS_MAX: u64 = 15_000;
/// The same where something moves: a migration waits for what is late, and must come to its end.
const LATE_MS_MAX_MOVING: u64 = 5_000;
/// When the deadline of a checkout is near.
const NEAR_DEADLINE_MS: (u64, u64) = (14_800, 16_400);

impl Network {
    pub fn new(world: World) -> Self {
        Self { world, stands_still: Arc::new(Watched::new(false)) }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn stand_still(&self, stands_still: bool) {
        self.stands_still.change(|now| *now = stands_still);
    }

    /// Returns when the instance runs.
    pub async fn running(&self) {
        self.stands_still.wait_for(|stands_still| !stands_still).await;
    }

    /// Sends a request and waits for the answer.
    pub async fn call<T: Send + 'static>(
        &self,
        kind: Kind,
        name: &'static str,
        request: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let world = &self.world;
        self.running().await;
        let trouble = world.plan().faults;
        let is_calm = world.is_calm();
        if !is_calm && trouble.refusals && world.permille(REFUSED_PERMILLE) {
            world.note("store refused", name);
            world.travel().await;
            return Err(unavailable(name));
        }
        let is_lost = !is_calm && trouble.lost_answers && world.permille(LOST_PERMILLE);
        let never_arrives = is_lost && world.permille(300);
        let late_permille = if name == "checkout_update" { 12 * LATE_PERMILLE } else { LATE_PERMILLE };
        let is_late = !is_calm && trouble.late_requests && world.permille(late_permille);
        let (tx, rx) = oneshot::channel();
        let reading = reading::current();
        let sent = world.clone();
        world.spawn(async move {
            if is_late {
                sent.note("request late", name);
                // A decision is likely to meet the one that somebody else takes at the deadline.
                let near_deadline = name == "checkout_update" && sent.permille(750);
                let late_max = sent.plan().migration.map_or(LATE_MS_MAX, |_| LATE_MS_MAX_MOVING);
                let (from, to) = if near_deadline { NEAR_DEADLINE_MS } else { (PATIENCE_MS, late_max) };
                sent.sleep_ms(from, to).await;
            }
            sent.travel().await;
            if never_arrives {
                sent.note("request lost", name);
                return;
            }
            let answer = reading::under(reading, request).await;
            sent.travel().await;
            // What lists many takes long now and then.
            if name == "due_uncommitted" && !sent.is_calm() && sent.permille(700) {
                sent.sleep_ms(50, 1_500).await;
            }
            if is_lost {
                sent.note("answer lost", name);
            } else {
                // Whoever asked may be gone.
                let _ = tx.send(answer);
            }
        });
        let answer = tokio::time::timeout(std::time::Duration::from_millis(PATIENCE_MS), rx).await;
        self.running().await;
        match (answer, kind) {
            (Ok(Ok(answer)), _) => answer,
            (_, Kind::Read) => Err(unavailable(name)),
            (_, Kind::Write) => Err(unknown(name)),
        }
    }
}

pub(crate) fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable { what: format!("simulated: {what}"), source: None }
}

pub(crate) fn unknown(what: &str) -> StoreError {
    StoreError::Unknown { what: format!("simulated: {what}"), source: None }
}
