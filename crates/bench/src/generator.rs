//! The load itself: how many requests a second it makes and understands, beside wrk with the same connections and address.

use anyhow::{Context, Result};
use mobimir_load::profile::Profile;

use crate::{
    Setting, catalogue,
    crowd::{Crowd, saying::saturated_rate},
    figures::{Figures, median, show_rounds},
    load::{Load, Request},
    progress,
    server::Server,
    wrk,
};

const OF_WRK_BAR: f64 = 0.6;
const CONNECTIONS: usize = 32;
/// So much more becomes due than wrk can ask for: every connection always has a request under way.
const MORE_THAN_WRK: f64 = 2.0;
/// One page of one product, so that wrk asks for the same without a script, which would slow it down.
const PROFILE: &str = "\
name = 'one-page'
[mix]
product_page = 1
[shoppers]
users = 1
guests = 1
[goods]
products_max = 1
";

pub(crate) fn measure(setting: &Setting<'_>, figures: &mut Figures) -> Result<()> {
    if let Some(cause) = wrk::missing() {
        figures.missing("generator_of_wrk", "ratio", OF_WRK_BAR, &cause);
        return Ok(());
    }
    progress("the load beside wrk: a shop of 10,000 products");
    let server =
        Server::demo(setting.binary, &setting.scratch.dir("generator")?).context("the shop did not start")?;
    let url = first_page(&server)?;
    let lasts = setting.pace.visit;
    let warm = wrk::rate(&url, CONNECTIONS, lasts)?;
    let crowd = Crowd::new(setting, server.address, Profile::parse(PROFILE, "one-page")?)
        .with_connections(CONNECTIONS);
    progress("the load beside wrk");
    let (mut ratios, mut rates, mut wrk_rates, mut costs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..setting.pace.visits {
        let report = crowd.send(warm * MORE_THAN_WRK, lasts)?;
        let wrk_rate = wrk::rate(&url, CONNECTIONS, lasts)?;
        ratios.push(saturated_rate(&report) / wrk_rate);
        rates.push(saturated_rate(&report));
        wrk_rates.push(wrk_rate);
        costs.push(report.generator_cpu_us);
    }
    show_rounds("generator_of_wrk", &ratios);
    figures.at_least("generator_of_wrk", median(&ratios), "ratio", OF_WRK_BAR);
    figures.info("generator_rps", median(&rates), "requests/s");
    figures.info("generator_wrk_rps", median(&wrk_rates), "requests/s");
    figures.info("generator_cpu_us", median(&costs), "us/request");
    server.stop()
}

/// The page of the product that the catalogue begins with: the one that the profile knows.
fn first_page(server: &Server) -> Result<String> {
    let page = catalogue::ask(&mut Load::connect(server.address, 1)?, &Request::get("/v1/products?limit=1"))?;
    let id = page["items"][0]["product_id"].as_str().context("the shop has no products")?;
    Ok(format!("http://{}/v1/products/{id}", server.address))
}
