//! A flash sale: one product, 10,000 units, and 50,000 buyers at once.

use std::time::Duration;

use anyhow::{Context, Result};
use mobimir_load::{Operation, profile::Profile};

use crate::{
    Setting,
    crowd::{
        Crowd,
        saying::{broken_promises, errors},
    },
    figures::Figures,
    progress,
    server::Server,
};

const PROFILE: &str = "flash-sale";
/// All are there within a second, and wait for their turn.
const RATE: f64 = 50_000.0;
const TIME_MAX: Duration = Duration::from_secs(600);
/// So many may wait for the disk together.
const CONNECTIONS: usize = 256;

pub(crate) fn measure(setting: &Setting<'_>, figures: &mut Figures) -> Result<()> {
    progress("a flash sale");
    let server =
        Server::demo(setting.binary, &setting.scratch.dir("flash")?).context("the shop did not start")?;
    let mut profile = Profile::built_in(PROFILE)?;
    let divisor = setting.pace.divisor as u64;
    profile.requests_max = profile.requests_max.map(|requests| requests / divisor);
    let units = profile.goods.flash_stock.context("the profile has no stock for the sale")? / divisor;
    profile.goods.flash_stock = Some(units);
    let report =
        Crowd::new(setting, server.address, profile).with_connections(CONNECTIONS).send(RATE, TIME_MAX)?;
    let orders = report.operations.get(&Operation::Order).context("nobody has ordered")?;
    // One unit an order.
    figures.at_most("flash_sold_astray", orders.fine.abs_diff(units) as f64, "units", 0.0);
    figures.at_most("flash_oracle", broken_promises(&report), "broken promises", 0.0);
    figures.info("flash_errors", errors(&report), "requests");
    figures.info("flash_time", report.took_s, "s");
    figures.info("flash_rate", orders.served() as f64 / report.took_s, "orders/s");
    server.stop()
}
