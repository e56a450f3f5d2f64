//! The policy `default`: a shop on a replica set of MongoDB and a ring of Cassandra, and whose processors its requests take.
//!
//! - [`servers`]: the servers, and the tables and indexes on them.

mod servers;

use std::time::Duration;

use anyhow::{Context, Result};
use mobimir_load::report::Report;

use self::servers::Servers;
use crate::{
    Setting,
    crowd::{
        Crowd,
        saying::{broken_promises, errors, ms},
    },
    figures::Figures,
    process, progress,
    samples::Samples,
    server::Server,
};

const SHOP_SHARE_BAR: f64 = 0.25;
/// Until the servers have compiled what they run.
const WARM_UP: Duration = Duration::from_secs(180);
const WARM_UP_QUICK: Duration = Duration::from_secs(10);
const WARM_UP_RATE: f64 = 100.0;
const BEGIN: f64 = 50.0;
/// Below this there is no load to speak of, and the servers' own upkeep is most of what they do.
const RATE_MIN: f64 = 100.0;
const RUN: Duration = Duration::from_secs(30);
const RUN_QUICK: Duration = Duration::from_secs(5);
const PRODUCTS: usize = 10_000;

pub(crate) fn measure(setting: &Setting<'_>, quick: bool, figures: &mut Figures) -> Result<()> {
    let (warm_up, run) = if quick { (WARM_UP_QUICK, RUN_QUICK) } else { (WARM_UP, RUN) };
    let servers = Servers::start()?;
    servers.make_tables(setting.binary)?;
    let products = (PRODUCTS / setting.pace.divisor).to_string();
    progress(&format!("a shop of {products} products on them"));
    let data = setting.scratch.dir("cluster")?;
    let arguments = [&["demo", "--products", &products], servers.arguments().as_slice()].concat();
    let server = Server::start(setting.binary, &arguments, &data).context("the shop did not start")?;
    let crowd = Crowd::of_black_friday(setting, server.address)?;

    progress(&format!("warming up, {} s", warm_up.as_secs()));
    crowd.send(WARM_UP_RATE, warm_up)?;
    progress("the highest rate within the limits");
    let found = crowd.find_max(BEGIN, setting.pace.visit)?.unwrap_or(0.0);
    if found < RATE_MIN {
        figures.note(&format!(
            "{found:.0} requests/s keep the limits of the policy on these servers: what follows is at {RATE_MIN} requests/s"
        ));
    }

    progress("the split between the shop and the servers");
    let mut processes = vec![("shop".to_owned(), server.id())];
    processes.extend(servers.processes()?);
    let spent = || processes.iter().map(|(_, id)| process::cpu_s(*id)).collect::<Result<Vec<f64>>>();
    let visit = || crowd.send(found.max(RATE_MIN), run);
    let (report, samples) = Samples::during(visit, spent)?;
    let samples = samples.of_part(&report, 0.0, 1.0)?;
    let (first, last) = samples.first().zip(samples.last()).context("the run was too short")?;
    let costs: Vec<f64> = first.iter().zip(last.iter()).map(|(before, after)| after - before).collect();
    tell(&report, found, &processes, &costs, figures);
    server.stop()
}

/// The first of the processes is the shop.
fn tell(report: &Report, found: f64, processes: &[(String, u32)], costs: &[f64], figures: &mut Figures) {
    figures.at_most("cluster_shop_share", costs[0] / costs.iter().sum::<f64>(), "ratio", SHOP_SHARE_BAR);
    figures.at_most("cluster_oracle", broken_promises(report), "broken promises", 0.0);
    figures.info("cluster_rate", found, "requests/s");
    figures.info("cluster_errors", errors(report), "requests");
    figures.info("cluster_read_p99", ms(report.reads.p99_us), "ms");
    figures.info("cluster_write_p99", ms(report.writes.p99_us), "ms");
    for ((name, _), cpu_s) in processes.iter().zip(costs) {
        figures.info(&format!("cluster_{name}_cpu_us"), cpu_s * 1e6 / report.answered() as f64, "us/request");
    }
    figures.info("cluster_generator_cpu_us", report.generator_cpu_us, "us/request");
}
