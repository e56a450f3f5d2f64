//! What a page costs beside a fixed answer of the same size: both are asked for in turns, by the same connections.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::{
    Pace,
    catalogue::{Product, encoded},
    figures::{Figures, median, show_rounds},
    load::{Load, Request, Until},
    progress,
    server::Server,
};

const CONNECTIONS: usize = 32;
const PRODUCT_PAGE_BAR: f64 = 0.7;
const CATEGORY_PAGE_BAR: f64 = 0.35;
const CATEGORY_QUERIES: usize = 1_000;
const CATEGORY_PAGE_ITEMS: usize = 20;
/// How many products of a category a query's prices span.
const SPANS: [usize; 4] = [10, 30, 60, 120];

/// The product page, over all products.
pub(crate) fn product(
    server: &Server,
    products: &[Product],
    pace: Pace,
    figures: &mut Figures,
) -> Result<()> {
    progress("the product page");
    let mut load = Load::connect(server.address, CONNECTIONS)?;
    let requests = product_requests(&mut load, products)?;
    compare("product_page", PRODUCT_PAGE_BAR, server, &mut load, &requests, pace, figures)
}

/// Pages of a category with a range of prices.
pub(crate) fn category(
    server: &Server,
    products: &[Product],
    pace: Pace,
    figures: &mut Figures,
) -> Result<()> {
    progress("the category page");
    let mut load = Load::connect(server.address, CONNECTIONS)?;
    let (requests, items) = category_requests(&mut load, products)?;
    figures.info("category_page_items", items as f64 / CATEGORY_QUERIES as f64, "items");
    compare("category_page", CATEGORY_PAGE_BAR, server, &mut load, &requests, pace, figures)
}

/// How long product pages and category pages are, in the mean.
pub(crate) fn mean_bytes(server: &Server, products: &[Product]) -> Result<[usize; 2]> {
    let mut load = Load::connect(server.address, CONNECTIONS)?;
    let of_products = product_requests(&mut load, products)?;
    let (of_categories, _) = category_requests(&mut load, products)?;
    Ok([of_products, of_categories].map(|requests| mean_expected(&requests)))
}

/// An answer of the same server that costs nothing but HTTP.
pub(crate) fn fixed(bytes: usize) -> Request {
    Request::get(&format!("/healthz/fixed?bytes={bytes}")).sized(bytes)
}

fn mean_expected(requests: &[Request]) -> usize {
    requests.iter().filter_map(Request::expected_bytes).sum::<usize>() / requests.len()
}

/// All product pages, each read once.
fn product_requests(load: &mut Load, products: &[Product]) -> Result<Vec<Request>> {
    let requests =
        products.iter().map(|product| Request::get(&format!("/v1/products/{}", product.id))).collect();
    // In an order in which neighbours have nothing to do with each other.
    let mut order: Vec<usize> = (0..products.len()).collect();
    order.sort_by_key(|index| &products[*index].id);
    let requests = with_sizes(load, requests, |index, body| {
        let starts_with = format!("{{\"product_id\":\"{}\"", products[index].id);
        ensure!(body.starts_with(starts_with.as_bytes()), "the page of another product");
        Ok(())
    })?;
    let mut requests: Vec<Option<Request>> = requests.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|index| requests[index].take()).collect())
}

/// Different pages of categories, each read once, and how many products they show.
fn category_requests(load: &mut Load, products: &[Product]) -> Result<(Vec<Request>, usize)> {
    let paths = category_paths(products);
    ensure!(
        paths.len() == CATEGORY_QUERIES,
        "the catalogue is too small for {CATEGORY_QUERIES} different queries"
    );
    let requests = paths.iter().map(|path| Request::get(path)).collect();
    let mut items = 0;
    let requests = with_sizes(load, requests, |_, body| {
        let page: serde_json::Value = serde_json::from_slice(body)?;
        let found = page["items"].as_array().context("a page has items")?.len();
        ensure!(found > 0, "a page without products");
        items += found;
        Ok(())
    })?;
    Ok((requests, items))
}

/// Different queries, as many from each category, from narrow to wide ranges of prices.
pub(crate) fn category_paths(products: &[Product]) -> Vec<String> {
    let categories: Vec<&[Product]> = products.chunk_by(|a, b| a.category == b.category).collect();
    let mut paths = BTreeSet::new();
    let mut step = 0;
    while paths.len() < CATEGORY_QUERIES && step < CATEGORY_QUERIES * 10 {
        let category = categories[step % categories.len()];
        let span = SPANS[step / categories.len() % SPANS.len()].min(category.len() - 1);
        // A step that shares no factor with most lengths, so that the ranges start everywhere.
        let start = step * 7_919 % (category.len() - span);
        let (low, high) = (&category[start].price, &category[start + span].price);
        let name = encoded(&category[start].category);
        paths.insert(format!(
            "/v1/products?category={name}&price_min={low}&price_max={high}&limit={CATEGORY_PAGE_ITEMS}"
        ));
        step += 1;
    }
    paths.into_iter().collect()
}

/// Asks each once, looks at the answer, and from then on expects one of the same length.
fn with_sizes(
    load: &mut Load,
    mut requests: Vec<Request>,
    mut look: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<Vec<Request>> {
    let mut sizes = vec![0; requests.len()];
    load.run_and_see(&requests, Until::Each, |index, body| {
        sizes[index] = body.len();
        look(index, body)
    })?;
    requests.iter_mut().zip(sizes).for_each(|(request, size)| request.expect_bytes(size));
    Ok(requests)
}

fn compare(
    name: &str,
    bar: f64,
    server: &Server,
    load: &mut Load,
    requests: &[Request],
    pace: Pace,
    figures: &mut Figures,
) -> Result<()> {
    let mean_bytes = mean_expected(requests);
    let fixed = [fixed(mean_bytes)];
    let sides: [&[Request]; 2] = [requests, &fixed];
    for side in sides {
        load.run(side, Until::Over(pace.warm_up))?;
    }
    let (mut ratios, mut rates, mut costs) = (Vec::new(), [Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..pace.rounds {
        for (at, side) in sides.into_iter().enumerate() {
            let before = server.cpu()?;
            let done = load.run(side, Until::Over(pace.round))?;
            let spent = server.cpu()?.since(&before);
            rates[at].push(done.per_second());
            costs[at].push(spent.as_secs_f64() * 1e6 / done.requests as f64);
        }
        let last = rates[0].len() - 1;
        ratios.push(rates[0][last] / rates[1][last]);
    }
    show_rounds(&format!("{name}_ratio"), &ratios);
    figures.at_least(&format!("{name}_ratio"), median(&ratios), "ratio", bar);
    figures.info(&format!("{name}_bytes"), mean_bytes as f64, "bytes");
    figures.info(&format!("{name}_rps"), median(&rates[0]), "requests/s");
    figures.info(&format!("{name}_fixed_rps"), median(&rates[1]), "requests/s");
    figures.info(&format!("{name}_cpu_us"), median(&costs[0]), "us/request");
    figures.info(&format!("{name}_fixed_cpu_us"), median(&costs[1]), "us/request");
    Ok(())
}
