//! Whether cost grows as the work does and not as the shop: the same load on a small shop and on a large one.
//!
//! Both shops are saturated: at a low rate most of what a request costs is that threads go to sleep and wake
//! up. The low rate, which the figures were first measured at, is measured beside it.

use anyhow::{Context, Result};
use mobimir_load::profile::Profile;

use crate::{
    Setting,
    crowd::{BLACK_FRIDAY, Crowd, saying::shop_cpu_us},
    figures::{Figures, maximum, median, show_rounds},
    friday::SATURATED_CONNECTIONS,
    load::{Load, Request, Until},
    past::{self, Past},
    progress, read_past,
    server::Server,
};

const GROWTH_BAR: f64 = 1.3;
/// More than any shop of this size can answer on a machine of a few cores, so that no connection is ever
/// idle.
const SATURATED_RATE: f64 = 60_000.0;
const LOW_RATE: f64 = 2_000.0;
const PRODUCTS: [usize; 2] = [10_000, 200_000];
const PRODUCTS_LARGE: [usize; 2] = [10_000, 1_000_000];
const ORDERS: [usize; 2] = [100_000, 1_000_000];
const ORDERS_LARGE: [usize; 2] = [100_000, 5_000_000];
/// On a page of past orders. Everybody has more, in the smaller shop, too.
const PAGE_ORDERS: usize = 20;

pub(crate) fn measure(setting: &Setting<'_>, large: bool, figures: &mut Figures) -> Result<()> {
    let (products, orders) = if large { (PRODUCTS_LARGE, ORDERS_LARGE) } else { (PRODUCTS, ORDERS) };
    let divisor = setting.pace.divisor;
    compare("products", products.map(|count| count / divisor), with_products, setting, figures)?;
    compare("orders", orders.map(|count| count / divisor), with_orders, setting, figures)
}

/// A shop, how many products it has, and what its past is read by.
struct Sized {
    server: Server,
    products: usize,
    past: Vec<Request>,
}

fn with_products(setting: &Setting<'_>, products: usize) -> Result<Sized> {
    progress(&format!("sizes: a shop of {products} products"));
    let data = setting.scratch.dir(&format!("products-{products}"))?;
    let server = Server::demo_of(setting.binary, &data, products).context("the shop did not start")?;
    Ok(Sized { server, products, past: Vec::new() })
}

fn with_orders(setting: &Setting<'_>, orders: usize) -> Result<Sized> {
    progress(&format!("sizes: a shop of {orders} past orders"));
    let (data, products) = (setting.scratch.dir(&format!("orders-{orders}"))?, PRODUCTS[0]);
    Server::demo_of(setting.binary, &data, products).context("the shop did not start")?.stop()?;
    let past: Past = past::fill(&data, orders)?;
    let server = Server::serve(setting.binary, &data)?;
    let past = read_past::requests(&server, &past, (PAGE_ORDERS / setting.pace.divisor).max(1))?;
    Ok(Sized { server, products, past })
}

/// What a request costs the shop, in microseconds of processor time.
#[derive(Clone, Copy)]
struct Costs {
    /// Of the mix, as fast as it goes.
    mix: f64,
    /// Of reads of the past, as fast as they go; `None` when there is no past.
    past: Option<f64>,
    /// Of the mix at the low rate.
    low: f64,
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
    // The first to come sign up and fill up the stock.
    for shop in &shops {
        costs(setting, shop)?;
    }
    let mut rounds = Vec::with_capacity(setting.pace.visits);
    for _ in 0..setting.pace.visits {
        rounds.push([costs(setting, &shops[0])?, costs(setting, &shops[1])?]);
    }
    tell(name, counts, &rounds, figures);
    for Sized { server, .. } in shops {
        server.stop()?;
    }
    Ok(())
}

fn costs(setting: &Setting<'_>, shop: &Sized) -> Result<Costs> {
    let visit = setting.pace.visit;
    // Looks at all products that there are.
    let mut profile = Profile::built_in(BLACK_FRIDAY)?;
    profile.goods.products_max = shop.products;
    let crowd = Crowd::new(setting, shop.server.address, profile);
    let low = shop_cpu_us(&crowd.send(LOW_RATE / setting.pace.divisor as f64, visit)?)?;
    let mix = shop_cpu_us(&crowd.with_connections(SATURATED_CONNECTIONS).send(SATURATED_RATE, visit)?)?;
    let past = match shop.past.as_slice() {
        [] => None,
        past => {
            let mut load = Load::connect(shop.server.address, SATURATED_CONNECTIONS)?;
            let before = shop.server.cpu()?;
            let done = load.run(past, Until::Over(visit))?;
            Some(shop.server.cpu()?.since(&before).as_secs_f64() * 1e6 / done.requests as f64)
        }
    };
    Ok(Costs { mix, past, low })
}

/// A kind of cost, by its name.
type Kind = (&'static str, fn(&Costs) -> Option<f64>);

/// The figure is the growth of the mix, or of reads of the past if that is more.
fn tell(name: &str, counts: [usize; 2], rounds: &[[Costs; 2]], figures: &mut Figures) {
    let kinds: [Kind; 3] = [
        ("mix", |costs| Some(costs.mix)),
        ("past", |costs| costs.past),
        ("low_rate", |costs| Some(costs.low)),
    ];
    let mut growths = Vec::new();
    for (kind, of) in kinds {
        let pairs: Vec<(f64, f64)> =
            rounds.iter().filter_map(|[small, large]| of(small).zip(of(large))).collect();
        if pairs.is_empty() {
            continue;
        }
        let ratios: Vec<f64> = pairs.iter().map(|(small, large)| large / small).collect();
        show_rounds(&format!("{name}_{kind}_cost_growth"), &ratios);
        figures.info(&format!("{name}_{kind}_cost_growth"), median(&ratios), "ratio");
        let (small, large): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        for (count, costs) in counts.iter().zip([small, large]) {
            figures.info(&format!("{name}_{count}_{kind}_cpu_us"), median(&costs), "us/request");
        }
        if kind != "low_rate" {
            growths.push(median(&ratios));
        }
    }
    figures.at_most(&format!("{name}_cost_growth"), maximum(&growths), "ratio", GROWTH_BAR);
}
