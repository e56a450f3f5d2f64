//! Clients at work, one side after the other, and what that says.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use mobimir_core::cart::Owner;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use super::{CLIENTS, Operation, Shop, Side, values::started_carts};
use crate::{
    figures::{Figures, median, show_rounds},
    progress,
};

/// Processor time of the client, to that of the bare driver.
const CPU_BAR: f64 = 1.3;
const THROUGHPUT_BAR: f64 = 0.85;

/// How long to measure.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    /// Until the servers are as fast as they become.
    pub(crate) warm_up: Duration,
    /// Of the warm-up, before it goes on with the other side.
    pub(crate) turn: Duration,
}

/// What the clients of one side did in one round.
pub(crate) struct Done {
    pub(crate) per_second: f64,
    pub(crate) cpu_us: f64,
}

/// Both sides, on one shop.
pub(crate) struct Sides<P, B> {
    /// What the names of the figures begin with.
    pub(crate) store: &'static str,
    pub(crate) port: Arc<P>,
    pub(crate) bare: Arc<B>,
    pub(crate) shop: Arc<Shop>,
    pub(crate) pace: Pace,
}

impl<P: Side, B: Side> Sides<P, B> {
    pub(crate) async fn warm_up(&self, wanted: &[Operation]) -> Result<()> {
        let Self { port, bare, shop, pace, .. } = self;
        progress(&format!("warming up, {} s", pace.warm_up.as_secs()));
        let started = Instant::now();
        while started.elapsed() < pace.warm_up {
            for &operation in wanted {
                round(port, shop, operation, CLIENTS, pace.turn).await?;
                round(bare, shop, operation, CLIENTS, pace.turn).await?;
            }
        }
        Ok(())
    }

    /// What the port costs more than the bare driver.
    pub(crate) async fn compare(&self, operation: Operation, figures: &mut Figures) -> Result<()> {
        let Self { store, port, bare, shop, pace } = self;
        progress(operation.name());
        let (ports, bares) = alternately(
            pace.rounds,
            async || round(port, shop, operation, CLIENTS, pace.round).await,
            async || round(bare, shop, operation, CLIENTS, pace.round).await,
        )
        .await?;
        let name = format!("{store}_{}", operation.name());
        let (cpu_name, throughput_name) = (format!("{name}_cpu"), format!("{name}_throughput"));
        let ratios = |of: fn(&Done) -> f64| -> Vec<f64> {
            ports.iter().zip(&bares).map(|(port, bare)| of(port) / of(bare)).collect()
        };
        let (cpu, throughput) = (ratios(|done| done.cpu_us), ratios(|done| done.per_second));
        show_rounds(&cpu_name, &cpu);
        show_rounds(&throughput_name, &throughput);
        figures.at_most(&cpu_name, median(&cpu), "x", CPU_BAR);
        figures.at_least(&throughput_name, median(&throughput), "x", THROUGHPUT_BAR);
        for (side, done) in [("port", &ports), ("bare", &bares)] {
            let middle = |of: fn(&Done) -> f64| median(&done.iter().map(of).collect::<Vec<_>>());
            figures.info(&format!("{name}_{side}_rps"), middle(|done| done.per_second), "operations/s");
            figures.info(&format!("{name}_{side}_cpu_us"), middle(|done| done.cpu_us), "us/operation");
        }
        Ok(())
    }
}

/// Rounds of one and of the other, in turns.
async fn alternately(
    rounds: usize,
    one: impl AsyncFn() -> Result<Done>,
    other: impl AsyncFn() -> Result<Done>,
) -> Result<(Vec<Done>, Vec<Done>)> {
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for number in 0..rounds {
        // Whoever comes second finds servers that have just been busy.
        if number % 2 == 0 {
            ones.push(one().await?);
            others.push(other().await?);
        } else {
            others.push(other().await?);
            ones.push(one().await?);
        }
    }
    Ok((ones, others))
}

/// All clients at once; each does one thing after the other.
pub(crate) async fn round<S: Side>(
    side: &Arc<S>,
    shop: &Arc<Shop>,
    operation: Operation,
    clients: usize,
    time: Duration,
) -> Result<Done> {
    // New ones each time, so that they have the same length on both sides and were listed a moment ago.
    let carts: Arc<[Owner]> = match operation {
        Operation::CartAdd => started_carts(side.as_ref()).await?.into(),
        _ => Arc::default(),
    };
    let (started, cpu_before) = (Instant::now(), cpu_time());
    let mut working = JoinSet::new();
    for client in 0..clients {
        let (side, shop, carts) = (side.clone(), shop.clone(), carts.clone());
        working.spawn(async move {
            let mut count = 0;
            while started.elapsed() < time {
                operation.carry_out(side.as_ref(), &shop, &carts, client + count * clients).await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut done = 0;
    while let Some(count) = working.join_next().await {
        done += count??;
    }
    let (took, cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu_before));
    ensure!(done > 0, "nothing was done in {time:?}");
    Ok(Done { per_second: done as f64 / took.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / done as f64 })
}

/// What all threads of this process have spent on a processor, in the program and in the kernel.
fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or_default())
}
