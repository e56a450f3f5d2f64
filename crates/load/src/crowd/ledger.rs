//! What the shop has acknowledged, and what it may have done without saying so.

use std::collections::{BTreeMap, BTreeSet};

use mobimir_core::time::Timestamp;

/// How many units of a product are in a cart: between these, as far as can be known when answers are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Units {
    pub(crate) fn exactly(units: u64) -> Self {
        Self { low: units, high: units }
    }

    pub(crate) fn holds(self, units: u64) -> bool {
        (self.low..=self.high).contains(&units)
    }
}

/// A cart as its owner knows it, by the numbers of products.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownCart {
    pub(crate) lines: BTreeMap<u32, Units>,
    /// Units whose answer was lost. They may still come, after anything that happens now: what clears a cart covers what
    /// it sees, and nothing that arrives later.
    late: BTreeMap<u32, u64>,
    /// Products that a change whose answer was lost may still take out: it may be carried out at any time, and covers
    /// what is there then.
    late_covers: LateCovers,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LateCovers {
    everything: bool,
    products: BTreeSet<u32>,
}

/// Whether a change is known to be done, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Surely,
    Perhaps,
}

impl KnownCart {
    pub(crate) fn add(&mut self, product: u32, units: u64, done: Done) {
        match done {
            Done::Surely => {
                let line = self.lines.entry(product).or_default();
                (line.low, line.high) = (line.low + units, line.high + units);
            }
            Done::Perhaps => *self.late.entry(product).or_default() += units,
        }
    }

    /// Sets a line; to nothing takes it out.
    pub(crate) fn set(&mut self, product: u32, units: u64, done: Done) {
        match done {
            Done::Surely if units == 0 => drop(self.lines.remove(&product)),
            Done::Surely => drop(self.lines.insert(product, Units::exactly(units))),
            Done::Perhaps => {
                // What it covers may be gone, now or later; what it puts in may come, now or later.
                self.late_covers.products.insert(product);
                if units > 0 {
                    self.add(product, units, Done::Perhaps);
                }
            }
        }
    }

    pub(crate) fn clear(&mut self, done: Done) {
        match done {
            Done::Surely => self.lines.clear(),
            Done::Perhaps => self.late_covers.everything = true,
        }
    }

    /// The cart of a guest who has logged in.
    pub(crate) fn merge(&mut self, guest: KnownCart, done: Done) {
        let LateCovers { everything, products } = guest.late_covers;
        // A late change of the guest's cart covers what came from there.
        let covered = guest.lines.keys().filter(|_| everything).copied().chain(products);
        self.late_covers.products.extend(covered);
        for (product, units) in guest.lines {
            if done == Done::Surely {
                let line = self.lines.entry(product).or_default();
                (line.low, line.high) = (line.low + units.low, line.high + units.high);
            } else {
                self.add(product, units.high, Done::Perhaps);
            }
        }
        for (product, units) in guest.late {
            self.add(product, units, Done::Perhaps);
        }
    }

    /// How many units of a product there can be.
    pub(crate) fn units(&self, product: u32) -> Units {
        let line = self.lines.get(&product).copied().unwrap_or_default();
        let late = self.late.get(&product).copied().unwrap_or_default();
        let may_be_covered = self.late_covers.everything || self.late_covers.products.contains(&product);
        Units { low: if may_be_covered { 0 } else { line.low }, high: line.high + late }
    }

    /// Whether something is certainly in it.
    pub(crate) fn holds_something(&self) -> bool {
        self.lines.keys().any(|product| self.units(*product).low > 0)
    }

    /// Every product that can be in it, and how many units at most.
    pub(crate) fn at_most(&self) -> Vec<(u32, u64)> {
        let products: BTreeSet<u32> = self.lines.keys().chain(self.late.keys()).copied().collect();
        products.into_iter().map(|product| (product, self.units(product).high)).collect()
    }

    /// Whether a cart with these lines can be this one; the first line that cannot, if not.
    pub(crate) fn differs(&self, lines: &BTreeMap<u32, u64>) -> Option<(u32, Units, u64)> {
        let here = self.lines.keys().chain(lines.keys());
        here.map(|product| (*product, self.units(*product), lines.get(product).copied().unwrap_or_default()))
            .find(|(_, possible, found)| !possible.holds(*found))
    }
}

/// An order that the shop has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) id: Box<str>,
    pub(crate) shopper: u32,
    pub(crate) zone: u16,
    pub(crate) lines: Box<[(u32, u64)]>,
    /// Stands for all that the answer said of it, with its prices and its total.
    pub(crate) digest: u64,
    pub(crate) created_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        Add(u32, u64),
        Set(u32, u64),
        Clear,
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (0..3_u32, 1..5_u64).prop_map(|(product, units)| Change::Add(product, units)),
            (0..3_u32, 0..5_u64).prop_map(|(product, units)| Change::Set(product, units)),
            Just(Change::Clear),
        ]
    }

    /// How a shop keeps a cart: additions by number, and changes that cover those they have seen.
    #[derive(Default)]
    struct RealCart {
        additions: BTreeMap<usize, (u32, u64)>,
    }

    struct Sent {
        number: usize,
        change: Change,
        /// `None` when it covers what it finds on arrival.
        covers: Option<Vec<usize>>,
    }

    impl RealCart {
        fn covers(&self, change: &Change) -> Vec<usize> {
            let seen = self.additions.iter().filter(|(_, (product, _))| match change {
                Change::Add(..) => false,
                Change::Set(set, _) => set == product,
                Change::Clear => true,
            });
            seen.map(|(number, _)| *number).collect()
        }

        fn arrive(&mut self, sent: &Sent) {
            let covers = sent.covers.clone().unwrap_or_else(|| self.covers(&sent.change));
            self.additions.retain(|number, _| !covers.contains(number));
            match sent.change {
                Change::Add(product, units) | Change::Set(product, units) if units > 0 => {
                    self.additions.insert(sent.number, (product, units));
                }
                _ => {}
            }
        }

        fn lines(&self) -> BTreeMap<u32, u64> {
            self.additions.values().fold(BTreeMap::new(), |mut lines, (product, units)| {
                *lines.entry(*product).or_default() += units;
                lines
            })
        }
    }

    proptest! {
        /// Whatever was done of what is not known, and whenever it arrived, the real cart is one of those that are held
        /// possible; and when everything is known there is only one.
        #[test]
        fn the_real_cart_is_always_possible(
            changes in
                prop::collection::vec((change(), any::<bool>(), 0..12_usize, any::<bool>()), 0..30),
        ) {
            let (mut known, mut real) = (KnownCart::default(), RealCart::default());
            let mut under_way: Vec<(usize, Sent)> = Vec::new();
            let mut all_known = true;
            for (number, (change, answered, later, read_on_arrival)) in changes.into_iter().enumerate() {
                let covers = (!read_on_arrival).then(|| real.covers(&change));
                let sent = Sent { number, change: change.clone(), covers };
                let done = if answered { Done::Surely } else { Done::Perhaps };
                all_known &= answered;
                match change {
                    Change::Add(product, units) => known.add(product, units, done),
                    Change::Set(product, units) => known.set(product, units, done),
                    Change::Clear => known.clear(done),
                }
                // Unanswered it arrives some changes later, if ever.
                if answered { real.arrive(&sent) } else { under_way.push((number + later, sent)) }
                let arrived: Vec<(usize, Sent)> =
                    under_way.extract_if(.., |(at, _)| *at <= number).collect();
                arrived.iter().for_each(|(_, sent)| real.arrive(sent));
            }
            prop_assert_eq!(known.differs(&real.lines()), None);
            if all_known {
                let mut lines = real.lines();
                *lines.entry(0).or_default() += 1;
                prop_assert!(known.differs(&lines).is_some(), "a cart with one unit too many");
            }
        }
    }
}
