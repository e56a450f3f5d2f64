//! Black Friday: how many requests a second the shop answers within the limits of its policy, every write durable, and how
//! near that is to an answer that costs nothing.

use anyhow::{Context, Result};
use mobimir_load::profile::Profile;

use crate::{
    Setting,
    best::Best,
    catalogue::{self, Product},
    crowd::{
        BLACK_FRIDAY, Crowd,
        saying::{broken_promises, errors, ms, saturated_rate, shop_cpu_us},
    },
    figures::{Figures, median, show_rounds},
    load::{Load, Until},
    pages, progress,
    server::Server,
};

const RATE_BAR: f64 = 50_000.0;
const SENT_BAR_PERCENT: f64 = 99.9;
const READ_P99_BAR_MS: f64 = 50.0;
const WRITE_P99_BAR_MS: f64 = 30.0;
const TO_FIXED_BAR: f64 = 0.6;
/// As many as may be without anybody being turned away, however late everything is.
const SATURATED_CONNECTIONS: usize = 64;

pub(crate) fn measure(setting: &Setting<'_>, best: &mut Best, figures: &mut Figures) -> Result<()> {
    progress("Black Friday: a shop of 10,000 products");
    let data = setting.scratch.dir("friday")?;
    let server = Server::demo(setting.binary, &data).context("the shop did not start")?;
    let crowd = Crowd::of_black_friday(setting, server.address)?;
    let found = best.rate(setting, &crowd)?;
    figures.at_least("friday_rate", found, "requests/s", RATE_BAR);

    progress("Black Friday: the rate that was found, for longer");
    let report = crowd.send(found.min(RATE_BAR), setting.pace.friday)?;
    figures.at_least("friday_sent", report.sent_share * 100.0, "%", SENT_BAR_PERCENT);
    figures.at_most("friday_errors", errors(&report), "requests", 0.0);
    figures.at_most("friday_read_p99", ms(report.reads.p99_us), "ms", READ_P99_BAR_MS);
    figures.at_most("friday_write_p99", ms(report.writes.p99_us), "ms", WRITE_P99_BAR_MS);
    figures.at_most("friday_oracle", broken_promises(&report), "broken promises", 0.0);
    figures.info("friday_shop_cpu_us", shop_cpu_us(&report)?, "us/request");
    figures.info("friday_generator_cpu_us", report.generator_cpu_us, "us/request");

    let products = catalogue::walk(&server)?;
    compare_with_fixed(setting, &server, &products, figures)?;
    server.stop()
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
