//! Whether cost grows as the work does and not as the shop: the same load on a small shop and on a large one.

use anyhow::{Context, Result};
use mobimir_load::profile::Profile;

use crate::{
    Setting,
    crowd::{BLACK_FRIDAY, Crowd, saying::shop_cpu_us},
    figures::{Figures, median, show_rounds},
    past, progress,
    server::Server,
};

const GROWTH_BAR: f64 = 1.3;
const RATE: f64 = 2_000.0;
const PRODUCTS: [usize; 2] = [10_000, 200_000];
const PRODUCTS_LARGE: [usize; 2] = [10_000, 1_000_000];
const ORDERS: [usize; 2] = [100_000, 1_000_000];
const ORDERS_LARGE: [usize; 2] = [100_000, 5_000_000];

pub(crate) fn measure(setting: &Setting<'_>, large: bool, figures: &mut Figures) -> Result<()> {
    let (products, orders) = if large { (PRODUCTS_LARGE, ORDERS_LARGE) } else { (PRODUCTS, ORDERS) };
    let divisor = setting.pace.divisor;
    compare("products", products.map(|count| count / divisor), with_products, setting, figures)?;
    compare("orders", orders.map(|count| count / divisor), with_orders, setting, figures)
}

/// A shop, and how many products it has.
struct Sized {
    server: Server,
    products: usize,
}

fn with_products(setting: &Setting<'_>, products: usize) -> Result<Sized> {
    progress(&format!("sizes: a shop of {products} products"));
    let data = setting.scratch.dir(&format!("products-{products}"))?;
    let server = Server::demo_of(setting.binary, &data, products).context("the shop did not start")?;
    Ok(Sized { server, products })
}

fn with_orders(setting: &Setting<'_>, orders: usize) -> Result<Sized> {
    progress(&format!("sizes: a shop of {orders} past orders"));
    let (data, products) = (setting.scratch.dir(&format!("orders-{orders}"))?, PRODUCTS[0]);
    Server::demo_of(setting.binary, &data, products).context("the shop did not start")?.stop()?;
    past::fill(&data, orders)?;
    Ok(Sized { server: Server::serve(setting.binary, &data)?, products })
}

/// Both shops run all the time, and are visited in turns.
fn compare(
    name: &str,
    counts: [usize; 2],
    open: fn(&Setting<'_>, usize) -> Result<Sized>,
    setting: &Setting<'_>,
    figures: &mut Figures,
) -> Result<()> {
    let shops = [open(setting, counts[0])?, open(setting, counts[1])?];
    let rate = RATE / setting.pace.divisor as f64;
    let crowds = [crowd(setting, &shops[0])?, crowd(setting, &shops[1])?];
    // The first to come sign up and fill up the stock.
    for crowd in &crowds {
        crowd.send(rate, setting.pace.visit)?;
    }
    let (mut ratios, mut costs) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..setting.pace.visits {
        let [small, large] =
            [&crowds[0], &crowds[1]].map(|crowd| shop_cpu_us(&crowd.send(rate, setting.pace.visit)?));
        let (small, large) = (small?, large?);
        ratios.push(large / small);
        costs[0].push(small);
        costs[1].push(large);
    }
    let figure = format!("{name}_cost_growth");
    show_rounds(&figure, &ratios);
    figures.at_most(&figure, median(&ratios), "ratio", GROWTH_BAR);
    for (count, costs) in counts.iter().zip(&costs) {
        figures.info(&format!("{name}_{count}_cpu_us"), median(costs), "us/request");
    }
    for Sized { server, .. } in shops {
        server.stop()?;
    }
    Ok(())
}

/// Looks at all products that there are.
fn crowd<'a>(setting: &'a Setting<'a>, shop: &Sized) -> Result<Crowd<'a>> {
    let mut profile = Profile::built_in(BLACK_FRIDAY)?;
    profile.goods.products_max = shop.products;
    Ok(Crowd::new(setting, shop.server.address, profile))
}
