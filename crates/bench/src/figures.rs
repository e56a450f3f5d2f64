//! The lines that are printed, and whether a figure reached its bar.
#![expect(clippy::print_stdout, reason = "the figures are what a benchmark prints")]

#[derive(Default)]
pub(crate) struct Figures {
    short: usize,
    failed: usize,
}

impl Figures {
    /// A figure that should be at least `bar`.
    pub(crate) fn at_least(&mut self, name: &str, value: f64, unit: &str, bar: f64) {
        self.judged(name, value, unit, bar, value >= bar);
    }

    /// A figure that should be at most `bar`.
    pub(crate) fn at_most(&mut self, name: &str, value: f64, unit: &str, bar: f64) {
        self.judged(name, value, unit, bar, value <= bar);
    }

    /// A figure that could not be measured is short, and `cause` says why.
    pub(crate) fn missing(&mut self, name: &str, unit: &str, bar: f64, cause: &str) {
        self.note(&format!("{name} was not measured: {cause}"));
        println!("figure {name} none {unit} (bar {bar}): short");
        self.short += 1;
    }

    /// A figure without a bar.
    pub(crate) fn info(&mut self, name: &str, value: f64, unit: &str) {
        println!("info {name} {} {unit}", number(value));
    }

    /// What has to be known about all of them.
    pub(crate) fn note(&mut self, text: &str) {
        println!("note {text}");
    }

    /// What another run of this program asked for.
    pub(crate) fn say(&mut self, text: &str) {
        println!("{text}");
    }

    pub(crate) fn machine(&mut self, description: &str) {
        println!("machine {description}");
    }

    /// A group that could not be measured. The others still are.
    pub(crate) fn failed(&mut self, name: &str, error: &anyhow::Error) {
        // The summary of a recorded run has a line for each, so it has to be one.
        println!("failed {name}: {}", format!("{error:#}").replace('\n', " "));
        self.failed += 1;
    }

    /// Whether every group was measured.
    pub(crate) fn all_measured(&self) -> bool {
        self.failed == 0
    }

    pub(crate) fn all_reached(&self) -> bool {
        self.short == 0
    }

    fn judged(&mut self, name: &str, value: f64, unit: &str, bar: f64, reached: bool) {
        // A ratio to nothing is infinite, which says nothing.
        let reached = reached && value.is_finite();
        let verdict = if reached { "ok" } else { "short" };
        println!("figure {name} {} {unit} (bar {bar}): {verdict}", number(value));
        self.short += usize::from(!reached);
    }
}

/// As many places as say something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// What the rounds said, for those who watch: how far they lie apart tells how quiet the machine is.
pub(crate) fn show_rounds(name: &str, values: &[f64]) {
    let values: Vec<String> = values.iter().map(|value| number(*value)).collect();
    eprintln!("... {name} by round: {}", values.join(" "));
}

/// The middle one; of an even number the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

/// The smallest; not a number when there is none, or when one is not.
pub(crate) fn minimum(values: &[f64]) -> f64 {
    extreme(values, f64::min)
}

/// The largest; not a number when there is none, or when one is not.
pub(crate) fn maximum(values: &[f64]) -> f64 {
    extreme(values, f64::max)
}

/// `f64::min` and `f64::max` skip what is not a number: a round that measured nothing would not count.
fn extreme(values: &[f64], of: fn(f64, f64) -> f64) -> f64 {
    match values.iter().any(|value| value.is_nan()) {
        true => f64::NAN,
        false => values.iter().copied().reduce(of).unwrap_or(f64::NAN),
    }
}

/// The one that this share of the others lies below.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(quantile(&[5.0, 1.0, 4.0, 2.0, 3.0], 0.25), 2.0);
        assert_eq!(quantile(&[7.0], 0.25), 7.0);
        assert!(quantile(&[], 0.25).is_nan());
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_worst_round_is_not_hidden_by_the_others() {
        assert_eq!(minimum(&[1.16, 1.42, 0.08]), 0.08);
        assert_eq!(maximum(&[1.0, 7.0, 2.0]), 7.0);
        for nothing in [vec![], vec![1.0, f64::NAN], vec![f64::NAN, 1.0]] {
            assert!(minimum(&nothing).is_nan() && maximum(&nothing).is_nan());
        }
    }

    #[test]
    fn what_was_not_measured_is_short() {
        for measure in [
            (|figures| figures.at_least("ratio", f64::INFINITY, "ratio", 0.8)) as fn(&mut Figures),
            |figures| figures.at_least("ratio", f64::NAN, "ratio", 0.8),
            |figures| figures.at_most("ratio", f64::NAN, "ratio", 0.8),
            |figures| figures.at_most("ratio", f64::INFINITY, "ratio", 0.8),
            |figures| figures.missing("generator_of_wrk", "ratio", 0.6, "wrk is missing"),
        ] {
            let mut figures = Figures::default();
            measure(&mut figures);
            assert!(!figures.all_reached());
        }
    }

    #[test]
    fn one_short_figure_is_remembered() {
        let mut figures = Figures::default();
        figures.at_most("start", 900.0, "ms", 1000.0);
        assert!(figures.all_reached());
        figures.at_least("ratio", 0.69, "ratio", 0.7);
        figures.at_least("ratio", 0.71, "ratio", 0.7);
        assert!(!figures.all_reached());
        assert!(figures.all_measured());
        figures.failed("start", &anyhow::anyhow!("the shop did not start"));
        assert!(!figures.all_measured());
    }
}
