//! What the shop has acknowledged, and what it may have done without saying so.

use std::collections::BTreeMap;

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
}

/// Whether a change is known to be done, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Surely,
    Perhaps,
}

impl KnownCart {
    pub(crate) fn add(&mut self, product: u32, units: u64, done: Done) {
        let line = self.lines.entry(product).or_default();
        line.high += units;
        if done == Done::Surely {
            line.low += units;
        }
    }

    /// Sets a line; to nothing takes it out.
    pub(crate) fn set(&mut self, product: u32, units: u64, done: Done) {
        let before = self.lines.get(&product).copied().unwrap_or_default();
        let line = match done {
            Done::Surely => Units::exactly(units),
            Done::Perhaps => Units { low: before.low.min(units), high: before.high.max(units) },
        };
        if line.high == 0 {
            self.lines.remove(&product)
        } else {
            self.lines.insert(product, line)
        };
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
            let line = self.lines.entry(product).or_default();
            line.high += units.high;
            if done == Done::Surely {
                line.low += units.low;
            }
        }
    }

    /// Whether a cart with these lines can be this one; the first line that cannot, if not.
    pub(crate) fn differs(&self, lines: &BTreeMap<u32, u64>) -> Option<(u32, Units, u64)> {
        let here = self.lines.keys().chain(lines.keys());
        here.map(|product| {
            let known = self.lines.get(product).copied().unwrap_or_default();
            (*product, known, lines.get(product).copied().unwrap_or_default())
        })
        .find(|(_, known, found)| !known.holds(*found))
    }
}

/// An order that the shop has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) id: Box<str>,
    pub(crate) shopper: u32,
    pub(crate) zone: u16,
    pub(crate) lines: Box<[(u32, u64)]>,
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

    proptest! {
        /// Whatever was done of what is not known, the real cart is one of those that are held possible; and when
        /// everything is known there is only one.
        #[test]
        fn the_real_cart_is_always_possible(
            changes in prop::collection::vec((change(), any::<bool>(), any::<bool>()), 0..30),
        ) {
            let (mut known, mut real) = (KnownCart::default(), BTreeMap::<u32, u64>::new());
            let mut all_known = true;
            for (change, answered, carried_out) in changes {
                let done = if answered { Done::Surely } else { Done::Perhaps };
                all_known &= answered;
                match change {
                    Change::Add(product, units) => known.add(product, units, done),
                    Change::Set(product, units) => known.set(product, units, done),
                    Change::Clear => known.clear(done),
                }
                if answered || carried_out {
                    match change {
                        Change::Add(product, units) => *real.entry(product).or_default() += units,
                        Change::Set(product, 0) => drop(real.remove(&product)),
                        Change::Set(product, units) => drop(real.insert(product, units)),
                        Change::Clear => real.clear(),
                    }
                }
            }
            prop_assert_eq!(known.differs(&real), None);
            if all_known {
                *real.entry(0).or_default() += 1;
                prop_assert!(known.differs(&real).is_some(), "a cart with one unit too many");
            }
        }
    }
}
