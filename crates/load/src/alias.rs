//! Draws by weight, each in constant time however many there are (Walker's and Vose's alias method).

use mobimir_core::random::Random;

#[derive(Clone, Debug)]
pub(crate) struct Alias {
    /// How likely a place stands for itself, and who it stands for otherwise.
    places: Vec<(f32, u32)>,
}

impl Alias {
    /// `None` when there is nothing to draw: no weight, none above zero, or one that is no number.
    pub(crate) fn new(weights: &[f64]) -> Option<Self> {
        let sum: f64 = weights.iter().sum();
        let fine = weights.iter().all(|weight| *weight >= 0.0) && sum > 0.0 && sum.is_finite();
        if !fine || u32::try_from(weights.len()).is_err() {
            return None;
        }
        let mut scaled: Vec<f64> = weights.iter().map(|weight| weight * weights.len() as f64 / sum).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..weights.len() as u32).partition(|at| scaled[*at as usize] < 1.0);
        let mut places: Vec<(f32, u32)> = (0..weights.len() as u32).map(|at| (1.0, at)).collect();
        while let (Some(less), Some(more)) = (small.pop(), large.pop()) {
            places[less as usize] = (scaled[less as usize] as f32, more);
            scaled[more as usize] -= 1.0 - scaled[less as usize];
            if scaled[more as usize] < 1.0 { small.push(more) } else { large.push(more) }
        }
        Some(Self { places })
    }

    /// The first is wanted most: the weight of rank `r` (from 1) is `1 / r^exponent`.
    pub(crate) fn zipf(count: usize, exponent: f64) -> Option<Self> {
        let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
        Self::new(&weights)
    }

    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        let at = random.below(self.places.len() as u64) as usize;
        let (itself, other) = self.places[at];
        if random.unit() < f64::from(itself) { at } else { other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(alias: &Alias, count: usize) -> Vec<f64> {
        const DRAWS: usize = 200_000;
        let (mut random, mut drawn) = (Random::new(1), vec![0_usize; count]);
        (0..DRAWS).for_each(|_| drawn[alias.draw(&mut random)] += 1);
        drawn.into_iter().map(|drawn| drawn as f64 / DRAWS as f64).collect()
    }

    #[test]
    fn draws_follow_the_weights() {
        let alias = Alias::new(&[58.0, 20.0, 0.0, 12.0, 10.0]).expect("weights");
        for (share, expected) in shares(&alias, 5).into_iter().zip([0.58, 0.2, 0.0, 0.12, 0.1]) {
            assert!((share - expected).abs() < 0.01, "{share} instead of {expected}");
        }
    }

    #[test]
    fn the_first_is_wanted_most() {
        let shares = shares(&Alias::zipf(1_000, 1.0).expect("ranks"), 1_000);
        // 1 / H(1000), and half of it.
        assert!((shares[0] - 0.1336).abs() < 0.01 && (shares[1] - 0.0668).abs() < 0.01, "{shares:?}");
    }

    #[test]
    fn nothing_cannot_be_drawn() {
        for weights in [&[][..], &[0.0], &[1.0, -1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(Alias::new(weights).is_none(), "{weights:?}");
        }
    }
}
