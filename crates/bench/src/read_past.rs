//! Reads of past orders, by their owners: order cards, status histories, and pages of order lists from the
//! newest order to the oldest.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    catalogue::{ask, encoded},
    load::{Load, Request},
    past::{Past, PastOrder},
    server::Server,
};

/// So many users have their lists read.
const LISTS: usize = 100;
/// Of each list so many pages, spread over all of it.
const PAGES_PER_LIST: usize = 5;

/// What is asked for over and over: in turns a card, a status history and a page of so many orders.
pub(crate) fn requests(server: &Server, past: &Past, page_orders: usize) -> Result<Vec<Request>> {
    let mut load = Load::connect(server.address, 1)?;
    let mut pages = Vec::new();
    for token in past.tokens.iter().step_by(past.tokens.len().div_ceil(LISTS)) {
        let all = page_paths(token, page_orders, &mut load)?;
        pages.extend(spread(&all, PAGES_PER_LIST).map(|path| (token, path.clone())));
    }
    let newest = page_path(page_orders, None);
    ensure!(pages.iter().any(|(_, path)| *path != newest), "no list of orders has a second page");
    let read = |order: &PastOrder, path: String| Request::of(&past.tokens[order.owner], "GET", &path, None);
    let orders = past.orders.iter().zip(pages.iter().cycle());
    let requests = orders.flat_map(|(order, (token, page))| {
        [
            read(order, format!("/v1/orders/{}", order.id)),
            read(order, format!("/v1/orders/{}/history", order.id)),
            Request::of(token, "GET", page, None),
        ]
    });
    Ok(requests.collect())
}

/// The paths of all pages of a user's orders. Every page has orders, and no order is on two.
fn page_paths(token: &str, page_orders: usize, load: &mut Load) -> Result<Vec<String>> {
    let (mut paths, mut path) = (Vec::new(), page_path(page_orders, None));
    let mut last: Option<Value> = None;
    loop {
        let page = ask(load, &Request::of(token, "GET", &path, None))?;
        let items = page["items"].as_array().context("a page has items")?;
        let first = items.first().with_context(|| format!("a page without orders: {path}"))?;
        ensure!(last.as_ref() != Some(first), "a page begins as the one before: {path}");
        last = Some(first.clone());
        paths.push(path);
        match page["next"].as_str() {
            Some(next) => path = page_path(page_orders, Some(next)),
            None => return Ok(paths),
        }
    }
}

fn page_path(orders: usize, after: Option<&str>) -> String {
    let after = after.map(|after| format!("&after={}", encoded(after))).unwrap_or_default();
    format!("/v1/orders?limit={orders}{after}")
}

/// So many, or all, from the first to the last.
fn spread<T>(all: &[T], wanted: usize) -> impl Iterator<Item = &T> {
    let wanted = wanted.min(all.len());
    (0..wanted).map(move |at| &all[at * (all.len() - 1) / (wanted - 1).max(1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_from_the_first_to_the_last() {
        let all: Vec<usize> = (0..50).collect();
        assert_eq!(spread(&all, 5).copied().collect::<Vec<_>>(), [0, 12, 24, 36, 49]);
        assert_eq!(spread(&all[..3], 5).copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(spread(&all[..1], 5).copied().collect::<Vec<_>>(), [0]);
        assert_eq!(spread(&all[..0], 5).count(), 0);
    }

    #[test]
    fn a_position_is_encoded() {
        assert_eq!(page_path(20, None), "/v1/orders?limit=20");
        assert_eq!(page_path(20, Some("a+b")), "/v1/orders?limit=20&after=a%2Bb");
    }
}
