//! What a seed has besides the shop itself. Drawn from a generator of its own, so that seeds without any of it
//! do what they would do if it did not exist.

use mobimir_core::{policy::Entity, random::Random};

use crate::plan::Plan;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Instances live in both data centres, and one of these is lost now and then.
    pub loses_data_centres: bool,
    goes_on: [bool; 3],
    /// Orders stand in MongoDB, and their history in Cassandra.
    pub has_history_apart: bool,
    /// Carts are abandoned soon, visitors never log in, and operators list what was left behind.
    pub lists_abandoned: bool,
    /// Clocks of instances are ahead and behind by minutes.
    pub has_far_clocks: bool,
}

const ENTITIES: [Entity; 3] = [Entity::Orders, Entity::Carts, Entity::Sessions];
/// In how many of a hundred seeds with two data centres each goes on without one (`on_dc_loss`).
const GOES_ON_PERCENT: [u64; 3] = [75, 60, 60];
const CLOCK_OFF_MS_MAX: u64 = 20_000;
/// Three times what a cart's rows wait before they are packed.
const CLOCK_FAR_OFF_MS_MAX: u64 = 180_000;

impl Features {
    /// None of it where something moves.
    pub fn of(plan: &Plan) -> Self {
        let mut random = Random::new(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x00DA_7ACE);
        let kind = random.below(8);
        if plan.migration.is_some() {
            return Self::default();
        }
        let goes_on = GOES_ON_PERCENT.map(|percent| random.below(100) < percent);
        Self {
            loses_data_centres: kind <= 1 && plan.faults.data_centres,
            goes_on,
            has_history_apart: kind == 2 && plan.faults.history_apart,
            lists_abandoned: kind == 3 && plan.faults.abandoned_carts,
            has_far_clocks: kind == 4 && plan.faults.far_clocks,
        }
    }

    pub fn goes_on_without_dc(&self, entity: Entity) -> bool {
        let goes_on = ENTITIES.iter().zip(self.goes_on).find(|(of, _)| **of == entity);
        self.loses_data_centres && goes_on.is_some_and(|(_, goes_on)| goes_on)
    }

    /// How far a clock of an instance may be from the true time, where nothing asks for better ones.
    pub fn clock_off_ms_max(&self) -> u64 {
        if self.has_far_clocks { CLOCK_FAR_OFF_MS_MAX } else { CLOCK_OFF_MS_MAX }
    }

    /// What is owed to a lost data centre is told apart by the stamps of instances, whose clocks have to agree
    /// for it; and when a cart was touched is told by their clocks alone.
    pub fn clocks_better_by(&self) -> i64 {
        match (self.loses_data_centres, self.lists_abandoned) {
            (true, _) => i64::MAX,
            (_, true) => 20,
            _ => 1,
        }
    }
}
