//! A product with all its stripes, seen at one moment, and what they come to together.

use mobimir_core::{id::ProductId, ports::StoreResult, product::Product};
use serde::{Deserialize, Serialize};

use super::{
    super::document::{ProductDoc, ZoneDoc},
    document::{Split, StripeDoc, TransferDoc, Transfers, key, read_key},
};
use crate::leaves::id;

/// What the server gives for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Whole {
    pub(in super::super) product: ProductDoc,
    pub(in super::super) stripes: Vec<StripeDoc>,
}

/// Units that were taken out of a stripe; `arrived` says whether the other has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) seq: i64,
    pub(super) zone: String,
    pub(super) units: i64,
    pub(super) arrived: bool,
}

impl Whole {
    pub(in super::super) fn id(&self) -> ProductId {
        id(self.product.id)
    }

    pub(in super::super) fn split(&self) -> Option<Split> {
        self.product.split().map(|split| Split::of(self.product.id, split))
    }

    pub(super) fn transfers_of(&self, n: u16) -> Option<&Transfers> {
        if n == 0 {
            return Some(&self.product.transfers);
        }
        self.stripe(n).map(|stripe| &stripe.transfers)
    }

    pub(super) fn stripe(&self, n: u16) -> Option<&StripeDoc> {
        self.stripes.iter().find(|stripe| stripe.n == i32::from(n))
    }

    pub(super) fn available_in(&self, n: u16, zone: &str) -> i64 {
        let stock = if n == 0 { Some(&self.product.stock) } else { self.stripe(n).map(|it| &it.stock) };
        stock.and_then(|stock| stock.get(zone)).map_or(0, |stock| stock.available)
    }

    /// Every transfer that is not yet cleared.
    pub(super) fn transfers(&self) -> Vec<Transfer> {
        let stripes = self.stripes.iter().filter_map(|it| Some((u16::try_from(it.n).ok()?, &it.transfers)));
        let all = std::iter::once((0, &self.product.transfers)).chain(stripes);
        let sent = |(from, transfers)| {
            let Transfers { out, .. }: &Transfers = transfers;
            out.iter().filter_map(move |(to, it)| Some((from, read_key(to)?, it)))
        };
        let transfer = |(from, to, it): (u16, u16, &TransferDoc)| {
            let got = self.transfers_of(to).and_then(|transfers| transfers.got.get(&key(from)));
            let arrived = got.is_some_and(|got| *got >= it.seq);
            Transfer { from, to, seq: it.seq, zone: it.zone.clone(), units: it.units, arrived }
        };
        all.flat_map(sent).map(transfer).collect()
    }

    /// The product with the stock and the holds of all stripes. Units on their way are available.
    pub(in super::super) fn together(self) -> StoreResult<Product> {
        let mut whole = self.product.clone();
        if whole.split().is_none() {
            return whole.product();
        }
        for transfer in self.transfers().into_iter().filter(|transfer| !transfer.arrived) {
            let stock = whole.stock.entry(transfer.zone).or_default();
            stock.received += transfer.units;
            stock.available += transfer.units;
        }
        for stripe in self.stripes {
            for (zone, stock) in stripe.stock {
                whole.stock.entry(zone).or_default().add(stock);
            }
            whole.holds.extend(stripe.holds);
            whole.version = later(whole.version, stripe.version);
        }
        whole.product()
    }
}

/// The version after the writes of both. A version is the clock in microseconds plus the writes of the same millisecond
/// before; so of the same millisecond all count, and else the later one stands.
pub(super) fn later(one: i64, other: i64) -> i64 {
    let (ms, other_ms) = (one.div_euclid(US_PER_MS), other.div_euclid(US_PER_MS));
    if one == 0 || other == 0 || ms != other_ms {
        return one.max(other);
    }
    one + other.rem_euclid(US_PER_MS) + 1
}

pub(super) const US_PER_MS: i64 = 1_000;

impl ZoneDoc {
    pub(super) fn add(&mut self, other: ZoneDoc) {
        self.received += other.received;
        self.available += other.available;
        self.reserved += other.reserved;
        self.sold += other.sold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_one_millisecond_count_together() {
        assert_eq!(later(5_000_000, 0), 5_000_000);
        // Three writes and two writes in one millisecond are five.
        assert_eq!(later(5_000_002, 5_000_001), 5_000_004);
        assert_eq!(later(5_000_002, 5_001_000), 5_001_000);
        assert_eq!(later(5_001_000, 5_000_999), 5_001_000);
    }
}
