//! STK-1, STK-2: the stock of every product in every zone, and what became of a flash sale.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Check, Wrong};
use crate::{
    crowd::Crowd,
    shop::{self, AllStock, Progress, ShopError, Stock},
    wire::Wire,
};

const SETTLE_PAUSE: Duration = Duration::from_millis(500);

/// Units of the product that was wanted most, in all zones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashSale {
    pub product_id: String,
    /// Available before.
    pub units_before: u64,
    /// In acknowledged orders.
    pub units_ordered: u64,
    /// As the shop counts; without an operator's token as many as are missing.
    pub units_sold: u64,
}

/// A stock that is not what it must be.
#[derive(Debug, PartialEq, Eq)]
enum Differs {
    /// The shop may be about to finish something.
    Yet(String),
    ForGood(String),
}

/// What a product's stock in a zone must be, when so many units were ordered.
fn stock_differs(before: Stock, after: Stock, ordered: u64, detailed: bool) -> Option<Differs> {
    if !detailed {
        let Stock { available, .. } = before;
        let words = || format!("{available} were available, {ordered} ordered, {} are left", after.available);
        return (available.checked_sub(ordered) != Some(after.available)).then(|| Differs::Yet(words()));
    }
    let sum = |stock: Stock| stock.available + stock.reserved + stock.sold;
    if sum(before) != sum(after) {
        Some(Differs::ForGood(format!("STK-1: {before:?} became {after:?}")))
    } else if after.reserved > 0 {
        Some(Differs::Yet(format!("{} are still reserved", after.reserved)))
    } else if after.sold != before.sold + ordered {
        let sold = after.sold.abs_diff(before.sold);
        Some(Differs::Yet(format!("{ordered} were ordered, and {sold} sold")))
    } else {
        None
    }
}

pub(super) fn stock(
    wire: &mut Wire,
    crowd: &Crowd,
    before: &AllStock,
    operator: Option<&str>,
    patience: Duration,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<(Check, AllStock), ShopError> {
    let mut ordered: BTreeMap<(u32, u16), u64> = BTreeMap::new();
    for order in &crowd.placed {
        for (product, units) in &order.lines {
            *ordered.entry((*product, order.zone)).or_default() += units;
        }
    }
    let until = Instant::now() + patience;
    loop {
        let after = shop::stock(wire, &crowd.goods, operator, progress)?;
        let mut check = Check::default();
        let (mut differences, mut may_settle) = (Vec::new(), false);
        for (product, (before, after)) in before.iter().zip(&after).enumerate() {
            let zones: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for zone in zones {
                let number = crowd.zones.iter().position(|known| known == zone);
                let units = number.and_then(|number| ordered.get(&(product as u32, number as u16)));
                let of = |stock: &BTreeMap<String, Stock>| stock.get(zone).copied().unwrap_or_default();
                let (before, after) = (of(before), of(after));
                check.looked_at += 1;
                let ordered = units.copied().unwrap_or_default();
                if let Some(differs) = stock_differs(before, after, ordered, operator.is_some()) {
                    may_settle |= matches!(differs, Differs::Yet(_));
                    let (Differs::Yet(differs) | Differs::ForGood(differs)) = differs;
                    differences.push(format!("{} in {zone}: {differs}", crowd.goods.products[product].id));
                }
            }
        }
        // What was left half done is finished by the shop itself.
        if !may_settle || Instant::now() >= until {
            check.wrong = differences.len() as u64;
            differences.into_iter().for_each(|difference| wrong.tell(|| difference));
            return Ok((check, after));
        }
        std::thread::sleep(SETTLE_PAUSE);
    }
}

pub(super) fn flash_sale(crowd: &Crowd, before: &AllStock, after: &AllStock, detailed: bool) -> FlashSale {
    let product = crowd.goods.most_wanted();
    let sum =
        |all: &AllStock, units: fn(&Stock) -> u64| -> u64 { all[product as usize].values().map(units).sum() };
    let available = |all: &AllStock| sum(all, |stock| stock.available);
    let sold = |all: &AllStock| sum(all, |stock| stock.sold);
    let lines = crowd.placed.iter().flat_map(|order| &order.lines);
    FlashSale {
        product_id: crowd.goods.product(product).id.clone(),
        units_before: available(before),
        units_ordered: lines.filter(|(ordered, _)| *ordered == product).map(|(_, units)| units).sum(),
        units_sold: match detailed {
            true => sold(after).saturating_sub(sold(before)),
            false => available(before).saturating_sub(available(after)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Stock = Stock { available: 10, reserved: 0, sold: 5 };

    #[test]
    fn every_unit_is_somewhere() {
        let sold = Stock { available: 7, reserved: 0, sold: 8 };
        assert_eq!(stock_differs(BEFORE, sold, 3, true), None);
        for (after, ordered, what) in [
            (Stock { available: 8, ..sold }, 3, "STK-1"),
            (Stock { available: 7, reserved: 3, sold: 5 }, 3, "still reserved"),
            (sold, 2, "2 were ordered, and 3 sold"),
            (BEFORE, 1, "1 were ordered, and 0 sold"),
        ] {
            let differs = stock_differs(BEFORE, after, ordered, true).expect(what);
            assert!(format!("{differs:?}").contains(what), "{differs:?}");
        }
        assert_eq!(stock_differs(BEFORE, sold, 3, false), None);
        assert!(stock_differs(BEFORE, sold, 4, false).is_some());
        assert!(stock_differs(BEFORE, sold, 11, false).is_some());
    }
}
