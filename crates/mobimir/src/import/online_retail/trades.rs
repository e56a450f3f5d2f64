//! The invoices of a file as trades, to be placed again.

use std::{
    collections::BTreeMap,
    io::{Read, Seek},
};

use anyhow::{Context, Result};
use mobimir_core::time::Timestamp;
use mobimir_load::Trade;

use super::{
    line::Kind,
    parse::{self, BytesRead},
    survey::product_id,
};

/// What was sold, by invoice. Cancellations and bad lines are left out.
pub(crate) fn trades<R: Read + Seek + Send>(mut file: R, now: Timestamp) -> Result<Vec<Trade>> {
    let mut trades = BTreeMap::<String, Trade>::new();
    for line in parse::lines(&mut file, &BytesRead::default(), now)? {
        let Ok(line) = line.context("the file cannot be read to its end")? else { continue };
        if line.kind != Kind::Sale {
            continue;
        }
        let at_ms = line.at.as_millis();
        let trade = trades.entry(line.invoice).or_insert_with(|| Trade { at_ms, lines: Vec::new() });
        trade.lines.push((product_id(&line.stock_code).to_string(), line.quantity));
    }
    Ok(trades.into_values().collect())
}
