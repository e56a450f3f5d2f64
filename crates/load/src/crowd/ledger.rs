//! What the shop has acknowledged, and what it may have done without saying so.

use std::collections::BTreeMap;

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
                self.lines.get_mut(&product).into_iter().for_each(|line| line.low = 0);
                self.add(product, units, Done::Perhaps);
            }
        }
    }

    pub(crate) fn clear(&mut self, done: Done) {
        match done {
            Done::Surely => self.lines.clear(),
            Done::Perhaps => self.lines.values_mut().for_each(|line| line.low = 0),
        }
    }

    /// The cart of a guest who has logged in.
    pub(crate) fn merge(&mut self, guest: KnownCart, done: Done) {
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

    /// Whether a cart with these lines can be this one; the first line that cannot, if not.
    pub(crate) fn differs(&self, lines: &BTreeMap<u32, u64>) -> Option<(u32, Units, u64)> {
        let here = self.lines.keys().chain(lines.keys());
        here.map(|product| {
            let known = self.lines.get(product).copied().unwrap_or_default();
            let late = self.late.get(product).copied().unwrap_or_default();
            let possible = Units { low: known.low, high: known.high + late };
            (*product, possible, lines.get(product).copied().unwrap_or_default())
        })
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
        covers: Vec<usize>,
        adds: Option<(u32, u64)>,
    }

    impl RealCart {
        fn send(&self, number: usize, change: &Change) -> Sent {
            let seen = |wanted: &dyn Fn(u32) -> bool| -> Vec<usize> {
                self.additions
                    .iter()
                    .filter(|(_, (product, _))| wanted(*product))
                    .map(|(number, _)| *number)
                    .collect()
            };
            match *change {
                Change::Add(product, units) => {
                    Sent { number, covers: Vec::new(), adds: Some((product, units)) }
                }
                Change::Set(product, units) => {
                    let covers = seen(&|other| other == product);
                    Sent { number, covers, adds: (units > 0).then_some((product, units)) }
                }
                Change::Clear => Sent { number, covers: seen(&|_| true), adds: None },
            }
        }

        fn arrive(&mut self, sent: &Sent) {
            self.additions.retain(|number, _| !sent.covers.contains(number));
            self.additions.extend(sent.adds.map(|added| (sent.number, added)));
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
            changes in prop::collection::vec((change(), any::<bool>(), 0..12_usize), 0..30),
        ) {
            let (mut known, mut real) = (KnownCart::default(), RealCart::default());
            let mut under_way: Vec<(usize, Sent)> = Vec::new();
            let mut all_known = true;
            for (number, (change, answered, later)) in changes.into_iter().enumerate() {
                let sent = real.send(number, &change);
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
