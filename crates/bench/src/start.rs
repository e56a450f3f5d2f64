//! How soon a shop with a past is ready, and how much memory it takes when nothing happens.

use std::{path::Path, thread};

use anyhow::{Context, Result};

use crate::{
    Pace, catalogue,
    figures::{Figures, median},
    load::{Load, Request, Until},
    operations,
    past::{self, PastOrder},
    progress,
    scratch::Scratch,
    server::{OPERATOR_TOKEN, Server},
};

const START_BAR_MS: f64 = 1_000.0;
const IDLE_RSS_BAR_MB: f64 = 150.0;
const ORDERS: usize = 100_000;
const CONNECTIONS: usize = 16;
/// Cart changes before a crash, so that there is something to recover.
const ADDS_BEFORE_CRASH: usize = 2_000;
const ORDERS_READ: usize = 1_000;

pub(crate) fn measure(binary: &Path, scratch: &Scratch, pace: Pace, figures: &mut Figures) -> Result<()> {
    progress("making a shop of 10,000 products and 100,000 orders");
    let data = scratch.dir("start")?;
    Server::demo(binary, &data).context("the shop did not start")?.stop()?;
    let past = past::fill(&data, ORDERS / pace.divisor)?;

    progress("starting it again and again");
    let mut clean_ms = Vec::new();
    for _ in 0..pace.starts {
        let server = Server::serve(binary, &data)?;
        clean_ms.push(server.ready_after.as_secs_f64() * 1e3);
        server.stop()?;
    }
    figures.at_most("start_to_ready_ms", median(&clean_ms), "ms", START_BAR_MS);

    let mut crash_ms = Vec::new();
    for _ in 0..pace.starts {
        let server = Server::serve(binary, &data)?;
        fill_carts(&server, ADDS_BEFORE_CRASH / pace.divisor)?;
        server.kill();
        let server = Server::serve(binary, &data)?;
        crash_ms.push(server.ready_after.as_secs_f64() * 1e3);
        server.stop()?;
    }
    figures.info("start_to_ready_after_kill_ms", median(&crash_ms), "ms");

    progress("idling");
    let server = Server::serve(binary, &data)?;
    figures.info("started_rss_mb", server.rss_mb()?, "MB");
    look_around(&server, &past.orders)?;
    figures.info("busy_rss_mb", server.rss_mb()?, "MB");
    thread::sleep(pace.idle);
    figures.at_most("idle_rss_mb", server.rss_mb()?, "MB", IDLE_RSS_BAR_MB);
    server.stop()
}

fn fill_carts(server: &Server, adds: usize) -> Result<()> {
    let mut load = Load::connect(server.address, CONNECTIONS)?;
    let page = catalogue::ask(
        &mut load,
        &Request::get(&format!("/v1/products?zone={}&limit=100", catalogue::ZONE)),
    )?;
    let products = page["items"].as_array().context("a page has items")?;
    let guests = operations::guests(&mut load, adds.div_ceil(10))?;
    let requests: Vec<Request> = (0..adds)
        .map(|number| {
            let product = products[number % products.len()]["product_id"].as_str().unwrap_or_default();
            let body = format!("{{\"product_id\":\"{product}\",\"quantity\":1}}");
            Request::of(&guests[number % guests.len()], "POST", "/v1/cart/items", Some(&body))
        })
        .collect();
    load.run(&requests, Until::Each).map(|_| ())
}

/// Looks at every product, at pages of the catalogue and at some orders.
fn look_around(server: &Server, orders: &[PastOrder]) -> Result<()> {
    let products = catalogue::walk(server)?;
    let mut load = Load::connect(server.address, CONNECTIONS)?;
    let pages: Vec<Request> =
        products.iter().map(|product| Request::get(&format!("/v1/products/{}", product.id))).collect();
    load.run(&pages, Until::Each)?;
    let cards: Vec<Request> = orders
        .iter()
        .step_by(orders.len().div_ceil(ORDERS_READ))
        .map(|order| Request::of(OPERATOR_TOKEN, "GET", &format!("/v1/orders/{}", order.id), None))
        .collect();
    load.run(&cards, Until::Each).map(|_| ())
}
