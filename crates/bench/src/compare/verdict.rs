//! What rounds of two builds say about one operation. Pure.

use crate::figures::{median, number, quantile};

/// What one build did in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) cpu_us: f64,
}

/// Rounds of both builds; those of the same number were measured one right after the other.
#[derive(Default)]
pub(crate) struct Rounds {
    this: Vec<Measured>,
    other: Vec<Measured>,
}

/// This build to the other.
#[derive(Debug, PartialEq)]
struct Ratio {
    median: f64,
    /// A quarter of the rounds lies below, and a quarter above.
    low: f64,
    high: f64,
}

const WIDTHS: [usize; 6] = [14, 11, 15, 15, 21, 0];

pub(crate) fn heading() -> String {
    columns(["operation", "median of 9", "this", "other", "ratio", "difference"].map(str::to_owned))
}

/// A line of its own: counted once, and the same in every round.
pub(crate) fn commits([this, other]: [f64; 2]) -> String {
    columns(["", "commits", &format!("{this:.2}"), &format!("{other:.2}"), "", ""].map(str::to_owned))
}

impl Rounds {
    pub(crate) fn push(&mut self, (this, other): (Measured, Measured)) {
        self.this.push(this);
        self.other.push(other);
    }

    /// One for the rate and one for the processor time.
    pub(crate) fn lines(&self, operation: &str) -> [String; 2] {
        [
            self.line(operation, "requests/s", |measured| measured.per_second),
            self.line("", "cpu us", |measured| measured.cpu_us),
        ]
    }

    fn line(&self, operation: &str, unit: &str, of: fn(&Measured) -> f64) -> String {
        let values = |side: &[Measured]| -> Vec<f64> { side.iter().map(of).collect() };
        let (this, other) = (values(&self.this), values(&self.other));
        let ratio = Ratio::of(&this, &other);
        columns([
            operation.to_owned(),
            unit.to_owned(),
            with_spread(&this),
            with_spread(&other),
            format!("{:.3} ({:.3} - {:.3})", ratio.median, ratio.low, ratio.high),
            ratio.verdict(),
        ])
    }
}

impl Ratio {
    /// Of each pair, because what disturbs the machine for longer than a round disturbs both of it.
    fn of(this: &[f64], other: &[f64]) -> Self {
        let ratios: Vec<f64> = this.iter().zip(other).map(|(this, other)| this / other).collect();
        Self { median: median(&ratios), low: quantile(&ratios, 0.25), high: quantile(&ratios, 0.75) }
    }

    /// A difference counts when it is larger than the spread of the rounds.
    fn verdict(&self) -> String {
        let (difference, spread) = (self.median - 1.0, self.high - self.low);
        if difference.abs() > spread {
            format!("{:+.1} %", difference * 100.0)
        } else {
            "within the spread".to_owned()
        }
    }
}

/// The median, and half of what the middle half of the rounds spans, in per cent of it.
fn with_spread(values: &[f64]) -> String {
    let (middle, spans) = (median(values), quantile(values, 0.75) - quantile(values, 0.25));
    format!("{} ±{:.1} %", number(middle), spans / middle * 50.0)
}

fn columns(cells: [String; 6]) -> String {
    let line: String = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$} ")).collect();
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(this: [f64; 9], other: [f64; 9]) -> Rounds {
        let measured = |cpu_us: f64| Measured { per_second: 1e6 / cpu_us, cpu_us };
        let mut rounds = Rounds::default();
        this.into_iter().zip(other).for_each(|(this, other)| rounds.push((measured(this), measured(other))));
        rounds
    }

    #[test]
    fn a_difference_that_every_round_shows_is_one() {
        // Twice as slow in the middle, because of somebody else: both were.
        let other = [10.0, 10.2, 9.9, 20.0, 20.4, 20.2, 10.1, 10.0, 10.0];
        let [rate, cpu] = rounds(other.map(|us| us * 0.9), other).lines("cart_add");
        assert!(rate.starts_with("cart_add") && rate.ends_with("+11.1 %"), "{rate}");
        assert!(cpu.trim_start().starts_with("cpu us") && cpu.ends_with("-10.0 %"), "{cpu}");
    }

    #[test]
    fn what_goes_this_way_and_that_is_chance() {
        let this = [10.0, 11.0, 9.0, 10.5, 9.5, 10.2, 9.8, 10.9, 9.1];
        let [rate, cpu] = rounds(this, [10.0; 9]).lines("cart_add");
        assert!(rate.ends_with("within the spread"), "{rate}");
        assert!(cpu.ends_with("within the spread"), "{cpu}");
    }

    #[test]
    fn a_ratio_is_that_of_the_pairs() {
        let ratio = Ratio::of(&[2.0, 6.0, 12.0, 20.0, 30.0], &[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ratio, Ratio { median: 4.0, low: 3.0, high: 5.0 });
    }
}
