//! The clock of one instance: ahead or behind, set by somebody, or standing still as in a paused machine.

use std::sync::Mutex;

use mobimir_core::time::{Clock, Timestamp};

use crate::world::{World, lock};

pub struct InstanceClock {
    world: World,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct State {
    ahead_ms: i64,
    /// How far the boot clock is behind, for the times in which it stood still.
    boot_behind_ms: i64,
}

impl InstanceClock {
    pub fn new(world: World, ahead_ms: i64) -> Self {
        Self { world, state: Mutex::new(State { ahead_ms, boot_behind_ms: 0 }) }
    }

    /// Somebody sets the clock.
    pub fn set_ahead(&self, ahead_ms: i64) {
        lock(&self.state).ahead_ms = ahead_ms;
    }

    /// The machine stood still for so long without its boot clock noticing.
    pub fn boot_stood_still(&self, ms: i64) {
        lock(&self.state).boot_behind_ms += ms;
    }
}

impl Clock for InstanceClock {
    fn now(&self) -> Timestamp {
        self.world.now().plus_ms(lock(&self.state).ahead_ms)
    }

    fn boot_ms(&self) -> i64 {
        self.world.elapsed_ms() - lock(&self.state).boot_behind_ms
    }
}
