//! Random schedules of a migration over model stores that lag, lose, repeat and reorder, with instances that are killed and
//! a migrator that is, too. Every run follows from its seed; a failure names it, and
//! `MOBIMIR_MIGRATION_SEED=<seed> cargo test -p mobimir-migrate --test seeds` runs it alone.

#![expect(clippy::disallowed_methods, reason = "the runtime of a seed is its own")]

mod between_reads;
mod busy;
mod chance;
mod faulty;
mod service;
mod trade;
mod world;

use mobimir_migrate::phase::Phase;

use crate::{
    trade::{CartTrade, HistoryTrade, OrderTrade, SessionTrade},
    world::Reached,
};

const SEEDS_DEFAULT: u64 = 2_000;
const SEEDS_VARIABLE: &str = "MOBIMIR_MIGRATION_SEEDS";
const SEED_VARIABLE: &str = "MOBIMIR_MIGRATION_SEED";

const THREADS: usize = 2;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("expected a number in {variable}, got {text:?}")))
}

fn run(seed: u64) -> Result<Reached, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be started");
    match seed % 4 {
        0 => runtime.block_on(world::run::<OrderTrade>(seed)),
        1 => runtime.block_on(world::run::<CartTrade>(seed)),
        2 => runtime.block_on(world::run::<SessionTrade>(seed)),
        _ => runtime.block_on(world::run::<HistoryTrade>(seed)),
    }
}

fn run_or_panic(seed: u64) -> Reached {
    run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}\nagain: {SEED_VARIABLE}={seed}"))
}

#[test]
fn nothing_is_lost_whatever_happens_in_whatever_order() {
    let seeds = match number(SEED_VARIABLE) {
        Some(seed) => seed..seed + 1,
        None => 0..number(SEEDS_VARIABLE).unwrap_or(SEEDS_DEFAULT),
    };
    let (is_one, runs, threads) = (seeds.end - seeds.start == 1, seeds.end - seeds.start, THREADS);
    let all: Vec<Reached> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let seeds = seeds.clone().skip(thread).step_by(threads);
                scope.spawn(move || seeds.map(run_or_panic).collect::<Vec<Reached>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a seed failed")).collect()
    });
    let reached_target = all.iter().filter(|run| run.highest == Some(Phase::ReadTarget)).count() as u64;
    let rollbacks: u64 = all.iter().map(|run| run.rollbacks).sum();
    let late_writes: u64 = all.iter().map(|run| run.late_writes).sum();
    let shadow_reads: u64 = all.iter().map(|run| run.shadow_reads).sum();
    println!(
        "{runs} seeds: {reached_target} reached read-target, {rollbacks} steps back, {late_writes} late writes, \
         {shadow_reads} shadow reads"
    );
    // A simulation in which nothing happens proves nothing.
    assert!(
        is_one
            || (reached_target * 4 > runs && rollbacks > runs && late_writes > runs && shadow_reads > runs)
    );
}

#[test]
fn a_seed_replays_exactly() {
    let once = format!("{:?}", run(4));
    assert_eq!(once, format!("{:?}", run(4)));
}
