//! Everything that is left to chance, from one seed.

use std::sync::{Arc, Mutex};

#[derive(Clone)]
pub(crate) struct Chance(Arc<Mutex<u64>>);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)))
    }

    /// splitmix64
    pub(crate) fn next(&self) -> u64 {
        let mut state = self.0.lock().expect("nobody panics while drawing");
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True so many times out of a thousand.
    pub(crate) fn permille(&self, times: u64) -> bool {
        self.below(1_000) < times
    }
}
