//! Whether two samples differ, by the ranks of their values and by nothing else: latencies follow no normal
//! distribution.

use std::f64::consts::PI;

/// The outcome of a Mann-Whitney U test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ranked {
    /// Pairs in which the value of the first sample is the larger one; a tie counts one half.
    pub(super) u: f64,
    /// How probable it is, on both sides, that the ranks lie as far apart or further without any difference.
    pub(super) p: f64,
    /// What `p` is when all values of one sample lie above all of the other and none are equal. With so few values
    /// nothing smaller is to be had, however large the difference.
    pub(super) p_min: f64,
    /// Whether the values of the second sample tend to be larger.
    pub(super) second_is_larger: bool,
}

/// By the normal approximation, corrected for ties and for continuity; from eight values on each side it is close
/// enough.
pub(super) fn mann_whitney(first: &[f64], second: &[f64]) -> Option<Ranked> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let mut all: Vec<(f64, bool)> = first.iter().map(|value| (*value, true)).collect();
    all.extend(second.iter().map(|value| (*value, false)));
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut rank_sum, mut ties, mut below) = (0.0, 0.0, 0);
    for tied in all.chunk_by(|one, other| one.0 == other.0) {
        // Equal values share the mean of their ranks, which begin at one.
        let count = tied.len() as f64;
        let rank = below as f64 + (count + 1.0) / 2.0;
        rank_sum += rank * tied.iter().filter(|(_, is_first)| *is_first).count() as f64;
        ties += count.powi(3) - count;
        below += tied.len();
    }
    let (n1, n2, n) = (first.len() as f64, second.len() as f64, all.len() as f64);
    let u = rank_sum - n1 * (n1 + 1.0) / 2.0;
    let mean = n1 * n2 / 2.0;
    let variance = n1 * n2 / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    // Without any variance all values are equal.
    let p = if variance > 0.0 { both_tails((u - mean).abs(), variance) } else { 1.0 };
    let p_min = both_tails(mean, n1 * n2 / 12.0 * (n + 1.0));
    Some(Ranked { u, p, p_min, second_is_larger: u < mean })
}

/// How probable it is to lie so far from the mean or further, on one side or the other.
fn both_tails(distance: f64, variance: f64) -> f64 {
    let z = (distance - 0.5).max(0.0) / variance.sqrt();
    (2.0 * upper_tail(z)).min(1.0)
}

/// How much of the normal distribution lies above `z`, which is 0 or more.
fn upper_tail(z: f64) -> f64 {
    const SERIES_Z_MAX: f64 = 3.0;
    const TERMS: u32 = 100;
    let density = (-z * z / 2.0).exp() / (2.0 * PI).sqrt();
    if z < SERIES_Z_MAX {
        // z + z^3/3 + z^5/(3*5) + ...
        let (mut term, mut sum) = (z, z);
        for k in 1..TERMS {
            term *= z * z / f64::from(2 * k + 1);
            sum += term;
        }
        0.5 - density * sum
    } else {
        // Far out the difference above would be lost in rounding: 1/(z + 1/(z + 2/(z + ...)))
        let fraction = (1..TERMS).rev().fold(z, |below, k| z + f64::from(k) / below);
        density / fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-6, "{value} instead of {expected}");
    }

    #[test]
    fn tails_are_as_in_the_tables() {
        for (z, expected) in [
            (0.0, 0.5),
            (1.0, 0.158_655_254),
            (1.959_963_985, 0.025),
            (2.999, 0.001_354_337),
            (3.0, 0.001_349_898),
        ] {
            assert_close(upper_tail(z), expected);
        }
        assert!((upper_tail(6.0) / 9.865_876e-10 - 1.0).abs() < 1e-5);
    }

    /// Hollander and Wolfe, Nonparametric Statistical Methods: how well a membrane lets water through at term, and
    /// between the 12th and the 26th week.
    #[test]
    fn water_through_a_membrane() {
        let at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let before = [1.15, 0.88, 0.90, 0.74, 1.21];
        let ranked = mann_whitney(&at_term, &before).expect("values");
        assert_eq!(ranked.u, 35.0);
        assert!(!ranked.second_is_larger);
        // (35 - 25 - 1/2) / sqrt(10 * 5 * 16 / 12)
        assert_close(ranked.p, 2.0 * upper_tail(9.5 / (800.0_f64 / 12.0).sqrt()));
    }

    /// The example of SciPy's documentation: at which age diabetes is found, in men and in women.
    #[test]
    fn the_age_of_patients() {
        let ranked =
            mann_whitney(&[19.0, 22.0, 16.0, 29.0, 24.0], &[20.0, 11.0, 17.0, 12.0]).expect("values");
        assert_eq!(ranked.u, 17.0);
        assert_close(ranked.p, 0.111_346_886_5);
    }

    #[test]
    fn ties_share_their_ranks() {
        // Ranks 1, 3, 3, 5.5 and 3, 5.5, 7, 8.
        let ranked = mann_whitney(&[1.0, 2.0, 2.0, 3.0], &[2.0, 3.0, 4.0, 5.0]).expect("values");
        assert_eq!(ranked.u, 2.5);
        assert!(ranked.second_is_larger);
        // Sum of t^3 - t: 24 + 6.
        let variance: f64 = 16.0 / 12.0 * (9.0 - 30.0 / 56.0);
        assert_close(ranked.p, 2.0 * upper_tail(5.0 / variance.sqrt()));
        let same = mann_whitney(&[1.0; 9], &[1.0; 9]).expect("values");
        assert_eq!((same.u, same.p), (40.5, 1.0));
        assert_eq!(mann_whitney(&[], &[1.0]), None);
    }

    #[test]
    fn few_values_cannot_be_far_apart() {
        let values = |from: u32| (0..8).map(|at| f64::from(from + at)).collect::<Vec<f64>>();
        let ranked = mann_whitney(&values(0), &values(100)).expect("values");
        assert_close(ranked.p_min, 0.000_939_106);
        assert_eq!(ranked.p, ranked.p_min);
        let between = mann_whitney(&values(0), &values(4)).expect("values");
        assert_eq!(between.p_min, ranked.p_min);
        assert!(between.p > between.p_min);
    }
}
