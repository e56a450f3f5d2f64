//! What a seed does: who there is, and what may go wrong.

use std::fmt;

use crate::{features::Features, migration::MovingEntity, planted::PlantedFault};

/// Which kinds of trouble a run may have. All of them, but for a run that is made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub crashes: bool,
    pub pauses: bool,
    pub clocks: bool,
    pub fail_overs: bool,
    pub nodes: bool,
    pub lost_answers: bool,
    pub late_requests: bool,
    pub refusals: bool,
    pub slow_messages: bool,
    pub hang_ups: bool,
    /// What seeds may have besides: see [`Features`].
    pub data_centres: bool,
    pub history_apart: bool,
    pub abandoned_carts: bool,
    pub far_clocks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub instances: usize,
    pub shoppers: usize,
    /// What each shopper does, one after the other.
    pub steps: usize,
    pub faults: Trouble,
    /// What moves from one store to the other meanwhile.
    pub migration: Option<MovingEntity>,
    pub planted: Option<PlantedFault>,
}

type Switch = (&'static str, fn(&mut Trouble) -> &mut bool);

impl Trouble {
    const SWITCHES: [Switch; 14] = [
        ("crashes", |trouble| &mut trouble.crashes),
        ("pauses", |trouble| &mut trouble.pauses),
        ("clocks", |trouble| &mut trouble.clocks),
        ("fail-overs", |trouble| &mut trouble.fail_overs),
        ("nodes", |trouble| &mut trouble.nodes),
        ("lost-answers", |trouble| &mut trouble.lost_answers),
        ("late-requests", |trouble| &mut trouble.late_requests),
        ("refusals", |trouble| &mut trouble.refusals),
        ("slow-messages", |trouble| &mut trouble.slow_messages),
        ("hang-ups", |trouble| &mut trouble.hang_ups),
        ("data-centres", |trouble| &mut trouble.data_centres),
        ("history-apart", |trouble| &mut trouble.history_apart),
        ("abandoned-carts", |trouble| &mut trouble.abandoned_carts),
        ("far-clocks", |trouble| &mut trouble.far_clocks),
    ];

    pub const ALL: Self = Self {
        crashes: true,
        pauses: true,
        clocks: true,
        fail_overs: true,
        nodes: true,
        lost_answers: true,
        late_requests: true,
        refusals: true,
        slow_messages: true,
        hang_ups: true,
        data_centres: true,
        history_apart: true,
        abandoned_carts: true,
        far_clocks: true,
    };
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let migration = MovingEntity::of_seed(seed);
        Self { seed, instances: 3, shoppers: 4, steps: 14, faults: Trouble::ALL, migration, planted: None }
    }

    pub fn features(&self) -> Features {
        Features::of(self)
    }

    pub fn with(self, planted: PlantedFault) -> Self {
        Self { planted: Some(planted), ..self }
    }

    /// Smaller plans of the same seed, the smallest steps last.
    pub fn smaller(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        if self.migration.is_some() {
            plans.push(Self { migration: None, ..*self });
        }
        for shoppers in 1..self.shoppers {
            plans.push(Self { shoppers, ..*self });
        }
        for steps in [self.steps / 2, self.steps * 3 / 4, self.steps.saturating_sub(1)] {
            if (1..self.steps).contains(&steps) {
                plans.push(Self { steps, ..*self });
            }
        }
        if self.instances > 1 {
            plans.push(Self { instances: self.instances - 1, ..*self });
        }
        for (_, switch) in Trouble::SWITCHES {
            let mut plan = *self;
            if std::mem::replace(switch(&mut plan.faults), false) {
                plans.push(plan);
            }
        }
        plans
    }

    /// As it is written by `Display`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::of(0);
        let mut migration = None;
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or(("seed", word));
            let number = || value.parse::<u64>().map_err(|_| format!("expected a number, got {word:?}"));
            match name {
                "seed" => plan.seed = number()?,
                "instances" => plan.instances = number()?.clamp(1, 16) as usize,
                "shoppers" => plan.shoppers = number()?.clamp(1, 64) as usize,
                "steps" => plan.steps = number()?.clamp(1, 10_000) as usize,
                "migration" => {
                    let entity = MovingEntity::ALL.into_iter().find(|entity| entity.name() == value);
                    if entity.is_none() && value != "none" {
                        return Err(format!("nothing that moves is called {value:?}"));
                    }
                    migration = Some(entity);
                }
                "without" => {
                    for name in value.split(',') {
                        let switch = Trouble::SWITCHES.iter().find(|(known, _)| *known == name);
                        let (_, switch) = switch.ok_or_else(|| format!("no trouble is called {name:?}"))?;
                        *switch(&mut plan.faults) = false;
                    }
                }
                "planted" => {
                    let planted = PlantedFault::ALL.into_iter().find(|fault| fault.name() == value);
                    plan.planted = Some(planted.ok_or_else(|| format!("no fault is called {value:?}"))?);
                }
                _ => {
                    return Err(format!(
                        "expected seed, instances, shoppers, steps, migration, without or planted, got {word:?}"
                    ));
                }
            }
        }
        plan.migration = migration.unwrap_or_else(|| MovingEntity::of_seed(plan.seed));
        Ok(plan)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, instances, shoppers, steps, mut faults, migration, planted } = *self;
        write!(f, "seed={seed} instances={instances} shoppers={shoppers} steps={steps}")?;
        if migration != MovingEntity::of_seed(seed) {
            write!(f, " migration={}", migration.map_or("none", MovingEntity::name))?;
        }
        let off = Trouble::SWITCHES.iter().filter(|(_, switch)| !*switch(&mut faults));
        let off: Vec<&str> = off.map(|(name, _)| *name).collect();
        if !off.is_empty() {
            write!(f, " without={}", off.join(","))?;
        }
        planted.map_or(Ok(()), |planted| write!(f, " planted={}", planted.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        let plans = [Plan::of(17), Plan::of(3).with(PlantedFault::ALL[2])];
        for plan in plans.iter().flat_map(|plan| [vec![*plan], plan.smaller()].concat()) {
            assert_eq!(Plan::parse(&plan.to_string()), Ok(plan), "{plan}");
        }
        for bad in ["seed=x", "seed=1 without=rain", "planted=nothing", "migration=stock", "speed=1"] {
            assert!(Plan::parse(bad).is_err(), "{bad}");
        }
    }
}
