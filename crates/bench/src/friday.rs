//! Black Friday: how many requests a second the shop answers within the limits of its policy, every write durable, and how
//! near that is to an answer that costs nothing.

use anyhow::{Context, Result};
use mobimir_load::{profile::Profile, report::Report};

use crate::{
    Setting,
    best::{Best, Found},
    catalogue::{self, Product},
    crowd::{
        BLACK_FRIDAY, Crowd,
        saying::{broken_promises, errors, ms, saturated_rate, shop_cpu_us},
    },
    figures::{Figures, maximum, median, minimum, show_rounds},
    load::{Load, Until},
    pages, progress,
    server::Server,
};

const RATE_BAR: f64 = 50_000.0;
const SENT_BAR_PERCENT: f64 = 99.9;
const READ_P99_BAR_MS: f64 = 50.0;
const WRITE_P99_BAR_MS: f64 = 30.0;
const TO_FIXED_BAR: f64 = 0.6;
/// As many as may be without anything being shed, however late everything is.
pub(crate) const SATURATED_CONNECTIONS: usize = 64;

pub(crate) fn measure(setting: &Setting<'_>, best: &mut Best, figures: &mut Figures) -> Result<()> {
    progress("Black Friday: a shop of 10,000 products");
    let data = setting.scratch.dir("friday")?;
    let server = Server::demo(setting.binary, &data).context("the shop did not start")?;
    let crowd = Crowd::of_black_friday(setting, server.address)?;
    let found = best.found(setting, &crowd)?;
    // Nothing holds: no rate was found.
    figures.at_least("friday_rate", found.held.unwrap_or(0.0), "requests/s", RATE_BAR);
    figures.at_least("friday_rate_of_one_step", found.of_step.unwrap_or(0.0), "requests/s", RATE_BAR);
    tell_runs(found, figures)?;

    let products = catalogue::walk(&server)?;
    compare_with_fixed(setting, &server, &products, figures)?;
    server.stop()
}

/// The runs at the rate that holds, or at the last that was tried: of each figure the worst run.
fn tell_runs(found: &Found, figures: &mut Figures) -> Result<()> {
    let of = |value: &dyn Fn(&Report) -> f64| found.runs.iter().map(value).collect::<Vec<f64>>();
    let sent = of(&|run| run.sent_share * 100.0);
    figures.info("friday_runs_rate", found.rate, "requests/s");
    figures.at_least("friday_sent", minimum(&sent), "%", SENT_BAR_PERCENT);
    figures.at_most("friday_errors", maximum(&of(&errors)), "requests", 0.0);
    let [reads, writes] = [of(&|run| ms(run.reads.p99_us)), of(&|run| ms(run.writes.p99_us))];
    figures.at_most("friday_read_p99", maximum(&reads), "ms", READ_P99_BAR_MS);
    figures.at_most("friday_write_p99", maximum(&writes), "ms", WRITE_P99_BAR_MS);
    figures.at_most("friday_oracle", maximum(&of(&broken_promises)), "broken promises", 0.0);
    let costs = found.runs.iter().map(shop_cpu_us).collect::<Result<Vec<f64>>>()?;
    figures.info("friday_shop_cpu_us", median(&costs), "us/request");
    figures.info("friday_generator_cpu_us", median(&of(&|run| run.generator_cpu_us)), "us/request");
    Ok(())
}

/// Both asked for more than they can do, in turns.
fn compare_with_fixed(
    setting: &Setting<'_>,
    server: &Server,
    products: &[Product],
    figures: &mut Figures,
) -> Result<()> {
    progress("Black Friday: the mix and a fixed answer, as fast as they go");
    let bytes = mean_page_bytes(server, products)?;
    let fixed = [pages::fixed(bytes)];
    let crowd = Crowd::of_black_friday(setting, server.address)?.with_connections(SATURATED_CONNECTIONS);
    let (mut ratios, mut mixed, mut fixed_rates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut mixed_costs, mut fixed_costs) = (Vec::new(), Vec::new());
    for _ in 0..setting.pace.visits {
        let fixed_rate = {
            // Ended before the crowd comes: its connections are counted with these.
            let mut load = Load::connect(server.address, SATURATED_CONNECTIONS)?;
            let before = server.cpu()?;
            let done = load.run(&fixed, Until::Over(setting.pace.visit))?;
            let spent = server.cpu()?.since(&before);
            fixed_costs.push(spent.as_secs_f64() * 1e6 / done.requests as f64);
            done.per_second()
        };
        // No mix is answered faster than that.
        let report = crowd.send(fixed_rate, setting.pace.visit)?;
        mixed_costs.push(shop_cpu_us(&report)?);
        mixed.push(saturated_rate(&report));
        fixed_rates.push(fixed_rate);
        ratios.push(saturated_rate(&report) / fixed_rate);
    }
    show_rounds("friday_to_fixed", &ratios);
    figures.at_least("friday_to_fixed", median(&ratios), "ratio", TO_FIXED_BAR);
    figures.info("friday_saturated_rps", median(&mixed), "requests/s");
    figures.info("friday_fixed_rps", median(&fixed_rates), "requests/s");
    figures.info("friday_saturated_cpu_us", median(&mixed_costs), "us/request");
    figures.info("friday_fixed_cpu_us", median(&fixed_costs), "us/request");
    figures.info("friday_fixed_bytes", bytes as f64, "bytes");
    Ok(())
}

/// Of product and category pages, as the mix has them.
fn mean_page_bytes(server: &Server, products: &[Product]) -> Result<usize> {
    let mix = Profile::built_in(BLACK_FRIDAY)?.mix;
    let [of_products, of_categories] = pages::mean_bytes(server, products)?;
    let all = of_products as f64 * mix.product_page + of_categories as f64 * mix.category_page;
    Ok((all / (mix.product_page + mix.category_page)) as usize)
}
