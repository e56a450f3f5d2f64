//! A visit to a shop: everybody comes in, one or more runs, and a look at everything when they are over.

use std::{collections::BTreeSet, io, sync::atomic::AtomicBool, time::Duration};

use mobimir_core::random::Random;

use crate::{
    crowd::Crowd,
    oracle::{self, Before, Findings},
    profile::Profile,
    record::{Limits, Second},
    replay::{self, Trade},
    rules::Checks,
    run::{self, Plan, Ran},
    shop::{self, Progress, ShopError, Target},
    wire::Wire,
};

/// Between two runs at least; a shop that still has much to do then gets it once more.
const REST: Duration = Duration::from_secs(1);

/// Who comes, and how.
#[derive(Clone, Debug)]
pub struct VisitSpec {
    pub target: Target,
    pub profile: Profile,
    pub connections: usize,
    /// The same seed makes the same people ask for the same things in the same order.
    pub seed: u64,
    /// Without it nobody fills up the stock, and of the stock only what is available can be looked at.
    pub operator: Option<String>,
    /// Leave the stock as it is.
    pub keep_stock: bool,
    /// What is not among them is taken from the shop's policy, if the operator may know it.
    pub limits: Limits,
    pub answer_time_max: Duration,
    /// One of so many reads is checked, and none if 0. All writes are.
    pub check_one_in: u64,
    /// How long the shop may take to finish what it has begun, when everything is looked at.
    pub settle_time_max: Duration,
}

pub struct Visit {
    spec: VisitSpec,
    wire: Wire,
    crowd: Crowd,
    before: Before,
    limits: Limits,
    runs: u64,
}

/// One run, and what the shop used for it.
pub struct Stretch {
    pub(crate) ran: Ran,
    pub(crate) rate: f64,
    pub(crate) lasts: Duration,
    pub(crate) even: bool,
    pub(crate) usage: Option<Usage>,
    pub(crate) limits: Limits,
}

/// What the process of the shop has used, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_s: f64,
    pub(crate) memory_bytes_before: f64,
    pub(crate) memory_bytes_after: f64,
}

impl Visit {
    /// Everybody comes in: this takes as long as it takes, and no run has begun.
    pub fn begin(spec: VisitSpec, progress: Progress<'_>) -> Result<Self, ShopError> {
        if spec.operator.is_none() && !spec.keep_stock {
            return Err(ShopError::NoOperator);
        }
        let refused = |reason| ShopError::NoConnection { address: spec.target.to_string(), reason };
        let address = spec.target.address().map_err(refused)?;
        let mut wire = Wire::connect(address, spec.target.host(), spec.connections, spec.answer_time_max)
            .map_err(refused)?;
        let (profile, operator) = (&spec.profile, spec.operator.as_deref());
        let goods = shop::goods(&mut wire, profile, &mut Random::new(spec.seed), progress)?;
        let zones: BTreeSet<&String> = goods.products.iter().flat_map(|product| &product.zones).collect();
        let zones: Vec<String> = zones.into_iter().cloned().collect();
        if zones.is_empty() {
            return Err(ShopError::NoProducts);
        }
        let violations = match operator {
            Some(operator) => oracle::violations(&mut wire, operator)?,
            None => Default::default(),
        };
        let shoppers = shop::shoppers(&mut wire, profile, zones.len(), spec.seed, progress)?;
        let earlier = shop::settled_stock(&mut wire, &goods, operator, progress)?;
        let mut stock = earlier.clone();
        if let Some(operator) = operator.filter(|_| !spec.keep_stock) {
            shop::fill_stock(&mut wire, profile, &goods, &zones, &earlier, operator, progress)?;
            stock = shop::stock(&mut wire, &goods, Some(operator), progress)?;
        }
        // No key of an earlier run may be met again.
        let nonce = mobimir_core::secret::random_bytes::<8>().map(|byte| format!("{byte:02x}")).concat();
        let mut crowd = Crowd::new(profile.clone(), goods, zones, shoppers, nonce, spec.seed);
        crowd.check_one_in(spec.check_one_in);
        crowd.know_stock(&earlier, &stock);
        let mut checks = Checks::default();
        let orders = oracle::known_orders(&mut wire, &crowd, &mut checks, progress)?;
        crowd.checks = checks;
        let limits = match operator {
            Some(operator) => spec.limits.or(shop::limits(&mut wire, operator)?),
            None => spec.limits,
        };
        let before = Before { stock, orders, violations };
        Ok(Self { spec, wire, crowd, before, limits, runs: 0 })
    }

    pub fn spec(&self) -> &VisitSpec {
        &self.spec
    }

    /// Sends what the profile makes due, until the time is up or somebody stops it.
    pub fn run(
        &mut self,
        rate: f64,
        lasts: Duration,
        even: bool,
        stop: &AtomicBool,
        each_second: impl FnMut(&Second, Duration),
    ) -> Result<Stretch, ShopError> {
        self.runs += 1;
        let seed = self.spec.seed.wrapping_add(self.runs);
        let plan = run::of_profile(&self.spec.profile, rate, lasts, even, seed);
        let plan = plan.ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        self.carry_out(plan, rate, lasts, even, stop, each_second)
    }

    /// Sends what a trade history makes due, which is made to last so long.
    pub fn replay(
        &mut self,
        trades: &[Trade],
        lasts: Duration,
        stop: &AtomicBool,
        each_second: impl FnMut(&Second, Duration),
    ) -> Result<Stretch, ShopError> {
        let plan =
            replay::plan(trades, lasts, |id| self.crowd.number(id)).ok_or(ShopError::NothingToReplay)?;
        let rate = plan.len() as f64 / lasts.as_secs_f64();
        self.carry_out(plan.into_iter(), rate, lasts, false, stop, each_second)
    }

    fn carry_out(
        &mut self,
        plan: impl Plan,
        rate: f64,
        lasts: Duration,
        even: bool,
        stop: &AtomicBool,
        each_second: impl FnMut(&Second, Duration),
    ) -> Result<Stretch, ShopError> {
        let before = shop::usage(&mut self.wire);
        let limits = self.limits;
        let ran = run::run(plan, lasts, &mut self.wire, &mut self.crowd, limits, stop, each_second)?;
        let after = shop::usage(&mut self.wire);
        let usage = before.zip(after).map(|(before, after)| Usage {
            cpu_s: after.cpu_s - before.cpu_s,
            memory_bytes_before: before.memory_bytes,
            memory_bytes_after: after.memory_bytes,
        });
        Ok(Stretch { ran, rate, lasts, even, usage, limits })
    }

    /// Waits between two runs until the shop has nothing to do any more.
    pub fn rest(&mut self, stop: &AtomicBool) {
        shop::rest(&mut self.wire, REST, stop);
    }

    /// Looks for everything that the shop has acknowledged since the visit began.
    pub fn look(&mut self, progress: Progress<'_>) -> Findings {
        let (operator, patience) = (self.spec.operator.as_deref(), self.spec.settle_time_max);
        let Self { wire, crowd, before, .. } = self;
        oracle::look(wire, crowd, before, operator, patience, progress).unwrap_or_else(|error| Findings {
            not_looked: Some(error.to_string()),
            ..Findings::of_answers(crowd)
        })
    }
}
