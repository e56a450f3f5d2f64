//! How much of every product can have been taken: a bound that follows from the stock before the run and from every
//! order that was sent.

use crate::shop::AllStock;

/// By product and zone. Knows nothing until the stock before the run is known.
#[derive(Default)]
pub(crate) struct Taken {
    zones: usize,
    before: Vec<Before>,
    /// Units of orders that were placed, or that are under way or may be.
    held: Vec<u64>,
    /// Units of all orders that were sent, also of those that were refused.
    sent: Vec<u64>,
    /// By product: units of refused orders, which are no longer held.
    released: Vec<u64>,
}

/// Units before the run.
#[derive(Clone, Copy)]
struct Before {
    available: u64,
    /// What a page may show that is a little older than the run: the stock is filled up just before.
    low: u64,
    high: u64,
}

impl Taken {
    /// `earlier` is the stock before it was filled up.
    pub(super) fn new(zones: &[String], earlier: &AllStock, stock: &AllStock) -> Self {
        let of = |all: &AllStock, product: usize, zone: &str| {
            all.get(product).and_then(|by_zone| by_zone.get(zone)).copied().unwrap_or_default()
        };
        let products = 0..stock.len();
        let before: Vec<Before> = products
            .flat_map(|product| zones.iter().map(move |zone| (product, zone)))
            .map(|(product, zone)| {
                let (earlier, now) = (of(earlier, product, zone), of(stock, product, zone));
                Before {
                    available: now.available,
                    low: earlier.available.min(now.available),
                    // What was still held for an earlier crowd may come back.
                    high: (earlier.available + earlier.reserved).max(now.available + now.reserved),
                }
            })
            .collect();
        let none = vec![0; before.len()];
        Self { zones: zones.len(), before, held: none.clone(), sent: none, released: vec![0; stock.len()] }
    }

    /// An order was sent. Each time it is sent it may hold its units once more, until the shop notices.
    pub(super) fn send(&mut self, units: &[(u32, u64)], zone: u16) {
        for (product, units) in units {
            let Some(at) = self.at(*product, zone) else { continue };
            self.held[at] += units;
            self.sent[at] += units;
        }
    }

    /// An order that was sent once was refused: it holds nothing any more.
    pub(super) fn release(&mut self, units: &[(u32, u64)], zone: u16) {
        for (product, units) in units {
            let Some(at) = self.at(*product, zone) else { continue };
            self.held[at] = self.held[at].saturating_sub(*units);
            self.released[*product as usize] += units;
        }
    }

    /// What was released so far, to be kept by whoever sends a request now.
    pub(super) fn released(&self, product: u32) -> u64 {
        self.released.get(product as usize).copied().unwrap_or_default()
    }

    /// So many units were available at least, at every moment since `released` was taken; `None` when nothing is known.
    /// Without a zone in the best one. `own` units are those of the order that asks.
    pub(super) fn available_min(
        &self,
        product: u32,
        zone: Option<u16>,
        released: u64,
        own: u64,
    ) -> Option<u64> {
        let zones = match zone {
            Some(zone) => usize::from(zone)..usize::from(zone) + 1,
            None => 0..self.zones,
        };
        // Whatever was held meanwhile is held now, or was released since.
        let released = self.released(product).saturating_sub(released);
        let available = zones.map(|zone| {
            let at = self.at(product, u16::try_from(zone).ok()?)?;
            let held = (self.held[at] + released).saturating_sub(own);
            Some(self.before[at].available.saturating_sub(held))
        });
        available.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// What a page may show as available, at most a little older than the run; `None` when nothing is known.
    pub(super) fn shown(&self, product: u32, zone: u16) -> Option<(u64, u64)> {
        let at = self.at(product, zone)?;
        let Before { low, high, .. } = self.before[at];
        Some((low.saturating_sub(self.sent[at]), high))
    }

    fn at(&self, product: u32, zone: u16) -> Option<usize> {
        let at = product as usize * self.zones + usize::from(zone);
        (usize::from(zone) < self.zones && at < self.before.len()).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::shop::Stock;

    fn all(available: u64) -> AllStock {
        let stock = Stock { available, ..Stock::default() };
        let by_zone = BTreeMap::from([("MSK".to_owned(), stock), ("SPB".to_owned(), Stock::default())]);
        vec![by_zone.clone(), by_zone]
    }

    fn taken() -> Taken {
        Taken::new(&["MSK".to_owned(), "SPB".to_owned()], &all(4), &all(10))
    }

    #[test]
    fn what_is_sent_may_be_held_and_what_is_refused_may_have_been() {
        let mut taken = taken();
        assert_eq!(taken.available_min(1, Some(0), 0, 0), Some(10));
        taken.send(&[(1, 3)], 0);
        assert_eq!(taken.available_min(1, Some(0), 0, 0), Some(7));
        // Not in the way of itself.
        assert_eq!(taken.available_min(1, Some(0), 0, 3), Some(10));
        assert_eq!(taken.available_min(0, Some(0), 0, 0), Some(10));
        assert_eq!(taken.available_min(1, Some(1), 0, 0), Some(0));
        assert_eq!(taken.available_min(1, None, 0, 0), Some(7));
        let before = taken.released(1);
        taken.release(&[(1, 3)], 0);
        assert_eq!(taken.available_min(1, Some(0), before, 0), Some(7), "it was held meanwhile");
        assert_eq!(taken.available_min(1, Some(0), taken.released(1), 0), Some(10));
    }

    #[test]
    fn a_page_may_be_as_old_as_the_stock_before_it_was_filled_up() {
        let mut taken = taken();
        assert_eq!(taken.shown(0, 0), Some((4, 10)));
        taken.send(&[(0, 3)], 0);
        taken.release(&[(0, 3)], 0);
        assert_eq!(taken.shown(0, 0), Some((1, 10)));
        assert_eq!(taken.shown(0, 7), None);
        assert_eq!(Taken::default().shown(0, 0), None);
        assert_eq!(Taken::default().available_min(0, None, 0, 0), None);
    }
}
