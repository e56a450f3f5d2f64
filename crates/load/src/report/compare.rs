//! Two runs side by side, and which of their differences are more than chance.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use super::{
    Report,
    ranks::{Ranked, mann_whitney},
    tables::Table,
    wording::{number, plain},
};
use crate::{
    operation::Operation,
    record::{Latency, Second},
};

/// The probability of calling any chance a difference, over everything that is compared.
const ALPHA: f64 = 0.01;
/// Connections are still warming up.
const FIRST_SECONDS_LEFT_OUT: usize = 2;
const BLOCK_SECONDS: usize = 5;
/// From here on there are ten blocks: of eight not even a clear difference is significant among all that is compared.
const BLOCKED_SECONDS_MIN: usize = 50;
const SAMPLES_MIN: usize = 8;

/// What differs between run A and run B.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Why the two should not be compared.
    pub warnings: Vec<String>,
    /// How small a probability has to be: shared between all that were tested.
    pub alpha: f64,
    pub changes: Vec<Change>,
}

/// One figure in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    pub what: String,
    pub unit: &'static str,
    pub a: f64,
    pub b: f64,
    /// From A to B; `None` when A is 0.
    pub percent: Option<f64>,
    /// How probable such a difference is by chance, if that could be tested.
    pub p: Option<f64>,
    pub judgement: Judgement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// B is better, and that is significant.
    Better,
    /// B is worse, and that is significant.
    Worse,
    /// It may be chance, or no second differs from another.
    NotSignificant,
    /// So few that even a clear difference could not be significant.
    TooFewSeconds,
    /// There is one value of the whole run, and chance cannot be told from it.
    OneValue,
}

pub fn compare(a: &Report, b: &Report) -> Comparison {
    let mut figures: Vec<Figure> =
        Operation::ALL.into_iter().flat_map(|operation| of_operation(a, b, operation)).collect();
    figures.push(throughput(a, b));
    figures.push(in_time(a, b));
    figures.push(failures(a, b));
    figures.extend(shop_cpu(a, b));
    figures.push(Figure::of_run("generator CPU", "us/request", a.generator_cpu_us, b.generator_cpu_us));
    let tests = figures.iter().filter(|figure| matches!(figure.tested, Tested::Ranked(_))).count();
    let alpha = ALPHA / tests.max(1) as f64;
    let changes = figures.into_iter().map(|figure| figure.judged(alpha)).collect();
    Comparison { warnings: warnings(a, b), alpha, changes }
}

/// A figure of both runs that is not judged yet.
struct Figure {
    what: String,
    unit: &'static str,
    a: f64,
    b: f64,
    more_is_better: bool,
    tested: Tested,
}

enum Tested {
    Ranked(Ranked),
    /// In every second of both runs the same: there is nothing to test.
    AllEqual,
    TooFew,
    OneValue,
}

/// A value for each second; none where there was nothing to measure.
type Series = Vec<Option<f64>>;

impl Figure {
    fn of_run(what: &str, unit: &'static str, a: f64, b: f64) -> Self {
        Self { what: what.to_owned(), unit, a, b, more_is_better: false, tested: Tested::OneValue }
    }

    fn judged(self, alpha: f64) -> Change {
        let Self { what, unit, a, b, more_is_better, tested } = self;
        let percent = (a != 0.0).then(|| (b - a) / a * 100.0);
        let (p, judgement) = match tested {
            Tested::TooFew => (None, Judgement::TooFewSeconds),
            Tested::OneValue => (None, Judgement::OneValue),
            Tested::AllEqual => (None, Judgement::NotSignificant),
            Tested::Ranked(Ranked { p, p_min, .. }) if p_min >= alpha => (Some(p), Judgement::TooFewSeconds),
            Tested::Ranked(Ranked { p, .. }) if p >= alpha => (Some(p), Judgement::NotSignificant),
            Tested::Ranked(Ranked { p, second_is_larger, .. }) => {
                let is_better = second_is_larger == more_is_better;
                (Some(p), if is_better { Judgement::Better } else { Judgement::Worse })
            }
        };
        Change { what, unit, a, b, percent, p, judgement }
    }
}

/// Nothing, if one of the runs has no answer of that kind.
fn of_operation(a: &Report, b: &Report, operation: Operation) -> Vec<Figure> {
    let of =
        |report: &Report| report.operations.get(&operation).filter(|of| of.served() > 0).map(|of| of.latency);
    let Some((latency_a, latency_b)) = of(a).zip(of(b)) else {
        return Vec::new();
    };
    type Quantile = fn(&Latency) -> u64;
    let quantiles: [(&str, Quantile); 2] =
        [("p50", |latency| latency.p50_us), ("p99", |latency| latency.p99_us)];
    quantiles
        .into_iter()
        .map(|(name, us)| {
            let each = |second: &Second| second.operations.get(&operation).map(|latency| us(latency) as f64);
            Figure {
                what: format!("{} {name}", operation.name()),
                unit: "ms",
                a: us(&latency_a) as f64 / 1e3,
                b: us(&latency_b) as f64 / 1e3,
                more_is_better: false,
                tested: tested(series(a, each), series(b, each)),
            }
        })
        .collect()
}

fn throughput(a: &Report, b: &Report) -> Figure {
    let each = |second: &Second| Some(second.served() as f64);
    Figure {
        what: "answered".to_owned(),
        unit: "1/s",
        a: a.answered_per_s(),
        b: b.answered_per_s(),
        more_is_better: true,
        tested: tested(series(a, each), series(b, each)),
    }
}

/// Served within the limits.
fn in_time(a: &Report, b: &Report) -> Figure {
    let each = |second: &Second| Some(second.goodput as f64);
    Figure {
        what: "in time".to_owned(),
        unit: "1/s",
        a: a.per_s(a.goodput()),
        b: b.per_s(b.goodput()),
        more_is_better: true,
        tested: tested(series(a, each), series(b, each)),
    }
}

fn failures(a: &Report, b: &Report) -> Figure {
    let each = |second: &Second| Some(second.failed as f64);
    Figure {
        what: "failed".to_owned(),
        unit: "1/s",
        a: a.per_s(a.failed()),
        b: b.per_s(b.failed()),
        more_is_better: false,
        tested: tested(series(a, each), series(b, each)),
    }
}

fn shop_cpu(a: &Report, b: &Report) -> Option<Figure> {
    Some(Figure::of_run("shop CPU", "us/request", a.shop_cpu_us?, b.shop_cpu_us?))
}

/// Without the beginning, and without the seconds in which the last answers trickle in.
fn series(report: &Report, each: impl Fn(&Second) -> Option<f64>) -> Series {
    let end = report.seconds.len().saturating_sub(1).min(report.lasts_s as usize);
    report.seconds.get(FIRST_SECONDS_LEFT_OUT..end).unwrap_or_default().iter().map(each).collect()
}

/// The test takes its values for independent, and neighbouring seconds are not: a slow second makes the next one slow.
/// Means of a few seconds depend on each other much less, so they are compared where the run is long enough.
fn tested(a: Series, b: Series) -> Tested {
    let known = |series: &Series| series.iter().flatten().count();
    let seconds = known(&a).min(known(&b));
    if seconds < SAMPLES_MIN {
        return Tested::TooFew;
    }
    let mut values = a.iter().chain(&b).flatten();
    let first = values.next();
    if values.all(|value| Some(value) == first) {
        return Tested::AllEqual;
    }
    let block = if seconds >= BLOCKED_SECONDS_MIN { BLOCK_SECONDS } else { 1 };
    mann_whitney(&block_means(&a, block), &block_means(&b, block)).map_or(Tested::TooFew, Tested::Ranked)
}

fn block_means(series: &[Option<f64>], block: usize) -> Vec<f64> {
    let means = series.chunks(block).filter_map(|block| {
        let known: Vec<f64> = block.iter().copied().flatten().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    });
    means.collect()
}

fn warnings(a: &Report, b: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if a.profile.name != b.profile.name {
        warnings.push(format!("other profiles: {} and {}", a.profile.name, b.profile.name));
    } else if a.profile != b.profile {
        warnings.push(format!("the profile {} was not the same in both runs", a.profile.name));
    }
    if a.rate != b.rate {
        warnings.push(format!("other rates: {} and {} requests/s", number(a.rate), number(b.rate)));
    }
    if a.even != b.even {
        warnings.push("one run sent at equal distances, the other at random moments".to_owned());
    }
    if a.connections != b.connections {
        warnings.push(format!("other numbers of connections: {} and {}", a.connections, b.connections));
    }
    if a.machine != b.machine {
        warnings.push(format!("other machines: {} and {}", a.machine, b.machine));
    }
    for (name, report) in [("A", a), ("B", b)] {
        if !report.is_valid() {
            warnings.push(format!("run {name} is not valid: {}", report.faults_of_load().join(", ")));
        }
    }
    let answered = |report: &Report| -> BTreeSet<Operation> {
        let operations = report.operations.iter().filter(|(_, of)| of.served() > 0);
        operations.map(|(operation, _)| *operation).collect()
    };
    for operation in answered(a).symmetric_difference(&answered(b)) {
        warnings.push(format!("only one run has answers of {}", operation.name()));
    }
    warnings
}

impl Judgement {
    fn wording(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NotSignificant => "not significant",
            Self::TooFewSeconds => "not enough seconds to tell",
            Self::OneValue => "one value for each run, not tested",
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {}", plain(warning))?;
        }
        if !self.warnings.is_empty() {
            writeln!(f)?;
        }
        let heads = ["figure", "unit", "judgement", "A", "B", "change", "p"];
        let rows = self.changes.iter().map(|change| {
            [
                change.what.clone(),
                change.unit.to_owned(),
                change.judgement.wording().to_owned(),
                number(change.a),
                number(change.b),
                change.percent.map_or("-".to_owned(), |percent| format!("{percent:+.1} %")),
                change.p.map_or("-".to_owned(), probability),
            ]
        });
        write!(f, "{}", Table::new(3, heads, rows))?;
        writeln!(
            f,
            "\nsignificant is p < {}: {ALPHA} shared between all that were tested",
            probability(self.alpha)
        )
    }
}

fn probability(p: f64) -> String {
    if p < 0.0001 { format!("{p:.1e}") } else { format!("{p:.4}") }
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    fn change<'a>(comparison: &'a Comparison, what: &str) -> &'a Change {
        let found = comparison.changes.iter().find(|change| change.what == what);
        found.unwrap_or_else(|| panic!("no {what} in {comparison:?}"))
    }

    fn judgement(comparison: &Comparison, what: &str) -> Judgement {
        change(comparison, what).judgement
    }

    /// A run with requests of every kind, each as slow as an order.
    fn of_everything(lasts: u64, slower: f64) -> Report {
        let mut report = sample::report(lasts, slower);
        let order = report.operations[&Operation::Order].clone();
        report.operations = Operation::ALL.into_iter().map(|operation| (operation, order.clone())).collect();
        for second in &mut report.seconds {
            let order = second.operations[&Operation::Order];
            second.operations = Operation::ALL.into_iter().map(|operation| (operation, order)).collect();
        }
        report
    }

    /// The same seconds in another order.
    fn shuffled(mut report: Report) -> Report {
        let seconds = &report.seconds;
        let count = seconds.len();
        let shuffled = (0..count).map(|at| seconds[(at * 7 + 3) % count].clone()).collect();
        report.seconds = shuffled;
        report
    }

    #[test]
    fn the_same_distribution_is_not_significant() {
        for lasts in [30, 103] {
            let (a, b) = (sample::report(lasts, 1.0), shuffled(sample::report(lasts, 1.0)));
            let comparison = compare(&a, &b);
            assert_eq!(comparison.warnings, Vec::<String>::new());
            for what in
                ["product_page p50", "product_page p99", "order p50", "order p99", "answered", "failed"]
            {
                assert_eq!(judgement(&comparison, what), Judgement::NotSignificant, "{lasts} s, {what}");
            }
            assert!(comparison.changes.iter().all(|change| matches!(change.percent, None | Some(0.0))));
        }
    }

    #[test]
    fn a_clear_shift_is_significant() {
        let (a, b) = (sample::report(103, 1.0), shuffled(sample::report(103, 1.5)));
        let slower = compare(&a, &b);
        assert_eq!(judgement(&slower, "product_page p50"), Judgement::Worse);
        assert_eq!(judgement(&slower, "order p99"), Judgement::Worse);
        assert_eq!(judgement(&slower, "answered"), Judgement::NotSignificant);
        assert_eq!(judgement(&slower, "shop CPU"), Judgement::OneValue);
        assert_eq!(slower.changes[0].percent, Some(50.0));
        assert_eq!(judgement(&compare(&b, &a), "order p99"), Judgement::Better);
    }

    #[test]
    fn more_answers_are_better_and_more_failures_worse() {
        let (a, mut b) = (sample::report(60, 1.0), sample::report(60, 1.0));
        b.seconds.iter_mut().for_each(|second| second.failed = 100);
        let comparison = compare(&a, &b);
        assert_eq!(judgement(&comparison, "answered"), Judgement::Worse);
        assert_eq!(judgement(&comparison, "failed"), Judgement::Worse);
        assert_eq!(judgement(&compare(&b, &a), "answered"), Judgement::Better);
    }

    #[test]
    fn failures_are_counted_by_the_second() {
        let failing = |lasts: u64| {
            let mut report = sample::report(lasts, 1.0);
            let order = report.operations.get_mut(&Operation::Order).expect("in the sample");
            order.failed = [("status 500".to_owned(), lasts * 2)].into();
            report.seconds.iter_mut().for_each(|second| second.failed = 2);
            report
        };
        // The last answers are waited for, and nothing is sent meanwhile.
        let (short, mut long) = (failing(30), failing(60));
        long.took_s = 75.0;
        let comparison = compare(&short, &long);
        for (what, per_s) in [("failed", 2.0), ("answered", 1_000.0)] {
            let change = change(&comparison, what);
            assert_eq!((change.a, change.b, change.unit), (per_s, per_s, "1/s"), "{what}");
            assert_eq!(change.judgement, Judgement::NotSignificant, "{what}");
        }
    }

    #[test]
    fn what_never_differs_is_not_tested() {
        let comparison = compare(&of_everything(30, 1.0), &of_everything(30, 1.0));
        assert_eq!(change(&comparison, "failed").p, None);
        // Two quantiles of each kind, without those that were answered and those that failed.
        assert_eq!(comparison.alpha, ALPHA / (2 * Operation::ALL.len()) as f64);
    }

    /// Eight seconds against eight cannot be told apart when everything is compared. More can, also where blocks begin
    /// to take the place of seconds.
    #[test]
    fn a_difference_that_cannot_be_significant_is_not_called_chance() {
        for (lasts, expected) in [
            (11, Judgement::TooFewSeconds),
            (40, Judgement::Worse),
            (45, Judgement::Worse),
            (52, Judgement::Worse),
            (53, Judgement::Worse),
            (60, Judgement::Worse),
        ] {
            let comparison = compare(&of_everything(lasts, 1.0), &of_everything(lasts, 3.0));
            for what in ["login p50", "order_history p99"] {
                assert_eq!(judgement(&comparison, what), expected, "{lasts} s, {what}");
            }
        }
    }

    #[test]
    fn small_samples_are_not_judged() {
        // Of 10 seconds 7 are left.
        let comparison = compare(&sample::report(10, 1.0), &sample::report(103, 3.0));
        assert_eq!(judgement(&comparison, "order p50"), Judgement::TooFewSeconds);
        assert_eq!(comparison.alpha, ALPHA);
        let comparison = compare(&sample::report(11, 1.0), &sample::report(103, 3.0));
        assert_eq!(judgement(&comparison, "order p50"), Judgement::Worse);
        for lasts in [1, 2, 3] {
            let comparison = compare(&sample::report(lasts, 1.0), &sample::silent());
            assert_eq!(judgement(&comparison, "answered"), Judgement::TooFewSeconds);
        }
    }

    #[test]
    fn seconds_are_cut_and_put_into_blocks() {
        let mut report = sample::report(60, 1.0);
        let each = |_: &Second| Some(1.0);
        assert_eq!(series(&report, each).len(), 57);
        // Answers that came when the time was up.
        report.seconds.extend([Second::default(), Second::default()]);
        assert_eq!(series(&report, each).len(), 58);
        let values = [Some(1.0), Some(3.0), None, None, Some(5.0)];
        assert_eq!(block_means(&values, 2), [2.0, 5.0]);
        assert_eq!(block_means(&values, 1), [1.0, 3.0, 5.0]);
    }

    #[test]
    fn runs_that_cannot_be_compared_are_named() {
        let a = sample::report(30, 1.0);
        let mut b = a.clone();
        (b.rate, b.connections, b.sent_share) = (500.0, 8, 0.5);
        b.machine = "64 cores".to_owned();
        b.profile.shoppers.users = 9;
        b.operations.remove(&Operation::Order);
        let comparison = compare(&a, &b);
        assert_eq!(
            comparison.warnings,
            [
                "the profile browsing was not the same in both runs",
                "other rates: 1,000 and 500 requests/s",
                "other numbers of connections: 64 and 8",
                "other machines: 2 cores, 8 GiB and 64 cores",
                "run B is not valid: sent 50.0 % of its plan, expected 99.9 %",
                "only one run has answers of order",
            ]
        );
        assert!(comparison.changes.iter().all(|change| !change.what.starts_with("order")));
    }

    #[test]
    fn a_comparison_is_an_aligned_table() {
        let text = compare(&sample::report(5, 1.0), &sample::report(5, 1.5)).to_string();
        insta::assert_snapshot!(text, @r"
        figure            unit        judgement                               A      B   change  p
        product_page p50  ms          not enough seconds to tell              2      3  +50.0 %  -
        product_page p99  ms          not enough seconds to tell              8     12  +50.0 %  -
        order p50         ms          not enough seconds to tell              8     12  +50.0 %  -
        order p99         ms          not enough seconds to tell             32     48  +50.0 %  -
        answered          1/s         not enough seconds to tell          1,000  1,000   +0.0 %  -
        in time           1/s         not enough seconds to tell            999    999   +0.0 %  -
        failed            1/s         not enough seconds to tell              0      0        -  -
        shop CPU          us/request  one value for each run, not tested   84.5    127  +50.0 %  -
        generator CPU     us/request  one value for each run, not tested   12.5   12.5   +0.0 %  -

        significant is p < 0.0100: 0.01 shared between all that were tested
        ");
    }
}
