//! An entity on its way, as the shop has it, with what an instance does beside it.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use mobimir_core::{
    moving::{Side, Whole},
    time::{Clock, SystemClock},
};
use mobimir_migrate::{
    migrating::Migrating,
    phase::{Control, Phase, Which},
    record::Record,
    shadow::Shadow,
    standing::Standing,
    timing::Timing,
};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep},
};

/// For longer than anything is measured.
const LEASE: Duration = Duration::from_secs(86_400);
/// Of a thousand reads in the phase `verify`, those that are asked of the target, too: all.
const SHADOW_PERMILLE: u32 = 1_000;
/// How often what is marked is looked for, as instances do.
const RECONCILE_PERIOD: Duration = Duration::from_millis(500);
const DRAINED_POLL: Duration = Duration::from_millis(50);
const DRAINED_TIME_MAX: Duration = Duration::from_secs(300);

pub(super) struct Moved<W: Whole, P: ?Sized> {
    pub(super) port: Arc<Migrating<W, P>>,
    reconciling: AbortHandle,
}

impl<W: Whole, P: ?Sized + Send + Sync + 'static> Moved<W, P> {
    pub(super) fn in_phase(phase: Phase, source: Side<W, P>, target: Side<W, P>) -> Result<Self> {
        let standing = Standing::new(&Timing::default());
        let port = Migrating::new(source, standing, Arc::new(SystemClock));
        let port = Arc::new(port.with_shadow(Shadow::new(SHADOW_PERMILLE)));
        port.set_target(target);
        let mirror = port.mirror_of(Which::Source)?.clone();
        let reconciling = tokio::spawn(async move {
            loop {
                // What fails is still marked.
                let _ = mirror.reconcile().await;
                sleep(RECONCILE_PERIOD).await;
            }
        });
        let moved = Self { port, reconciling: reconciling.abort_handle() };
        moved.follow(phase);
        Ok(moved)
    }

    pub(super) fn follow(&self, phase: Phase) {
        let control = Control { phase, epoch: 1, backfilled: true, ..Control::default() };
        self.port.standing().follow(&control, Instant::now() + LEASE);
        self.port.shadow().follow(&Record { control, ..Record::new("source", "target", SystemClock.now()) });
    }

    /// Waits until everything is copied; says how long that took.
    pub(super) async fn drained(&self) -> Result<Duration> {
        let started = Instant::now();
        let moving = &self.port.side(Which::Source)?.moving;
        while moving.backlog().await?.entities > 0 {
            ensure!(started.elapsed() < DRAINED_TIME_MAX, "what is marked is not copied");
            sleep(DRAINED_POLL).await;
        }
        Ok(started.elapsed())
    }
}

impl<W: Whole, P: ?Sized> Drop for Moved<W, P> {
    fn drop(&mut self) {
        self.reconciling.abort();
    }
}
