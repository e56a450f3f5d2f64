//! A flash sale: one product, 10,000 units, and 50,000 buyers at once, each of whom orders one.

use std::time::Duration;

use anyhow::{Context, Result};
use mobimir_load::{Operation, OperationResult, profile::Profile};

use crate::{
    Setting,
    crowd::{Crowd, saying::broken_promises},
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
    let data = setting.scratch.dir("flash")?;
    let server =
        Server::demo_with_cheap_passwords(setting.binary, &data).context("the shop did not start")?;
    let mut profile = Profile::built_in(PROFILE)?;
    let divisor = setting.pace.divisor as u64;
    let buyers = profile.requests_max.context("the profile has no end")? / divisor;
    let units = profile.goods.flash_stock.context("the profile has no stock for the sale")? / divisor;
    profile.requests_max = Some(buyers);
    profile.goods.flash_stock = Some(units);
    profile.shoppers.users = usize::try_from(buyers)?;
    profile.shoppers.order_once = true;
    let report =
        Crowd::new(setting, server.address, profile).with_connections(CONNECTIONS).send(RATE, TIME_MAX)?;
    let orders = report.operations.get(&Operation::Order).context("nobody has ordered")?;
    // Whoever has an answer is another user, and an order is one unit.
    figures.at_least("flash_buyers", orders.served() as f64, "users", buyers as f64);
    figures.at_most("flash_sold_astray", orders.fine.abs_diff(units) as f64, "units", 0.0);
    figures.at_most("flash_oracle", broken_promises(&report), "broken promises", 0.0);
    figures.info("flash_errors", (report.failed() + report.shed()) as f64, "requests");
    figures.info("flash_time", report.took_s, "s");
    let per_second = |of: fn(&OperationResult) -> u64| of(orders) as f64 / report.took_s;
    figures.info("flash_rate", per_second(|orders| orders.fine), "acknowledged orders/s");
    figures.info("flash_answered", per_second(OperationResult::served), "answers/s");
    server.stop()
}
