//! A repeatable source of numbers: the same seed gives the same sequence on every machine and in every release.

/// SplitMix64. Good enough to make goods and shoppers up, and ten lines that nobody upgrades under us.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// From 0 up to, but not, 1.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something that happens in `percent` of all cases happens now.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T: ?Sized>(&mut self, list: &'a [&'a T]) -> &'a T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Between -1 and 1, mostly near 0: the sum of three even draws.
    pub fn bell(&mut self) -> f64 {
        let sum: u64 = (0..3).map(|_| self.below(1_001)).sum();
        sum as f64 / 1_500.0 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.number(), 6_457_827_717_110_365_317);
        assert_eq!(random.number(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            assert!(random.below(3) < 3);
            assert!((0.0..1.0).contains(&random.unit()));
            assert!((-1.0..=1.0).contains(&random.bell()));
        }
    }
}
