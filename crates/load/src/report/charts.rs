//! Which charts a run has.

use super::{
    Class, Report,
    svg::{BarChart, Limit, Line, LineChart, Mark, Scale},
    wording::{ms, ms_of, number, plain},
};
use crate::record::{Latency, Second};

/// More than this on a line cannot be told apart.
const POINTS_MAX: usize = 300;

/// A chart and what has to be known about it.
pub(super) struct Figure {
    pub(super) heading: &'static str,
    pub(super) svg: String,
    pub(super) caption: String,
}

pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let marks: Vec<Mark> =
        report.events.iter().map(|event| Mark { at_s: event.at_s, label: plain(&event.command) }).collect();
    let over_time = OverTime::of(report, &marks);
    let [reads, writes] = report.classes();
    vec![
        over_time.requests(),
        over_time.latencies("How long reads took", &reads),
        over_time.latencies("How long writes took", &writes),
        by_operation(report),
    ]
}

struct OverTime<'a> {
    report: &'a Report,
    marks: &'a [Mark],
    lasts_s: f64,
    /// Seconds that one point stands for.
    width: usize,
    points: Vec<Point<'a>>,
}

/// Seconds that are drawn as one.
struct Point<'a> {
    /// Their middle.
    at_s: f64,
    seconds: &'a [Second],
}

impl<'a> OverTime<'a> {
    fn of(report: &'a Report, marks: &'a [Mark]) -> Self {
        let width = report.seconds.len().div_ceil(POINTS_MAX).max(1);
        let points = report.seconds.chunks(width).enumerate().map(|(number, seconds)| Point {
            at_s: (number * width) as f64 + seconds.len() as f64 / 2.0,
            seconds,
        });
        // The last answers may have come when the time was up.
        let lasts_s = report.lasts_s.max(report.seconds.len() as f64);
        Self { report, marks, lasts_s, width, points: points.collect() }
    }

    fn requests(&self) -> Figure {
        let report = self.report;
        let lines = vec![
            self.line("sent", |point| Some(point.mean(|second| second.sent))),
            self.line("answered", |point| Some(point.mean(Second::served))),
            self.line("shed", |point| Some(point.mean(|second| second.shed))),
            self.line("failed", |point| Some(point.mean(|second| second.failed))),
        ];
        let heading = "Requests in a second";
        let description = format!(
            "{} requests were sent and {} answered, {} in a second; {} were shed, {} failed",
            report.sent,
            report.answered(),
            number(report.answered_per_s()),
            report.shed(),
            report.failed()
        );
        let means = if self.width > 1 {
            format!(" Each point is the mean of {} s.", self.width)
        } else {
            String::new()
        };
        let caption = format!(
            "Answered are requests that were done, or refused by the rules of the shop; shed those it turned away \
             because it had too much to do.{means}"
        );
        let chart = LineChart {
            id: "requests",
            title: heading,
            description,
            unit: "requests/s",
            scale: Scale::Linear,
            lasts_s: self.lasts_s,
            lines,
            limit: None,
            marks: self.marks,
        };
        Figure { heading, svg: chart.to_string(), caption }
    }

    fn latencies(&self, heading: &'static str, class: &Class) -> Figure {
        let Class { name, is_write, answers, latency: whole, limit_us } = *class;
        let lines = vec![
            self.line("p50", |point| point.p50_ms(is_write)),
            self.line("p99", |point| point.p99_ms(is_write)),
        ];
        let limit = limit_us
            .map(|us| Limit { value: us as f64 / 1e3, label: format!("limit of p99: {} ms", ms(us)) });
        let limited = limit.as_ref().map(|limit| format!(", {}", limit.label)).unwrap_or_default();
        let times = if answers == 0 {
            String::new()
        } else {
            let [p50, p99, max] = [whole.p50_us, whole.p99_us, whole.max_us].map(ms);
            format!(": p50 {p50} ms, p99 {p99} ms, max {max} ms over the whole run")
        };
        let description = format!("{answers} answers{times}{limited}");
        let of = if self.width > 1 { format!("{} s", self.width) } else { "one second".to_owned() };
        let caption = format!(
            "From the moment a request was due to its answer, or until it was given up, on a logarithmic axis. Each \
             point is made of the operations in {of}: for p99 the largest p99 among them, for p50 the mean of their \
             p50 weighted by their requests."
        );
        let chart = LineChart {
            id: name,
            title: heading,
            description,
            unit: "ms",
            scale: Scale::Logarithmic,
            lasts_s: self.lasts_s,
            lines,
            limit,
            marks: self.marks,
        };
        Figure { heading, svg: chart.to_string(), caption }
    }

    fn line(&self, name: &'static str, value: impl Fn(&Point<'_>) -> Option<f64>) -> Line {
        Line { name, points: self.points.iter().map(|point| (point.at_s, value(point))).collect() }
    }
}

impl Point<'_> {
    fn mean(&self, count: impl Fn(&Second) -> u64) -> f64 {
        self.seconds.iter().map(count).sum::<u64>() as f64 / self.seconds.len() as f64
    }

    fn latencies(&self, is_write: bool) -> impl Iterator<Item = &Latency> {
        let all = self.seconds.iter().flat_map(|second| &second.operations);
        all.filter(move |(operation, _)| operation.is_write() == is_write).map(|(_, latency)| latency)
    }

    fn p50_ms(&self, is_write: bool) -> Option<f64> {
        let requests: u64 = self.latencies(is_write).map(|latency| latency.count).sum();
        let weighted: f64 =
            self.latencies(is_write).map(|latency| latency.count as f64 * latency.p50_us as f64).sum();
        (requests > 0).then(|| weighted / requests as f64 / 1e3)
    }

    fn p99_ms(&self, is_write: bool) -> Option<f64> {
        self.latencies(is_write).map(|latency| latency.p99_us).max().map(|us| us as f64 / 1e3)
    }
}

fn by_operation(report: &Report) -> Figure {
    let answered = report.operations.iter().filter(|(_, of)| of.served() > 0);
    let groups: Vec<(String, Vec<f64>)> = answered
        .map(|(operation, of)| {
            let Latency { p50_us, p99_us, max_us, .. } = of.latency;
            (operation.name().to_owned(), [p50_us, p99_us, max_us].map(|us| us as f64 / 1e3).to_vec())
        })
        .collect();
    let slowest = groups.iter().max_by(|one, other| one.1[1].total_cmp(&other.1[1]));
    let description = slowest.map_or("no operation was answered".to_owned(), |(name, values)| {
        format!("{} operations; the largest p99 is that of {name}, {} ms", groups.len(), ms_of(values[1]))
    });
    let heading = "How long each operation took";
    let svg = BarChart {
        id: "operations",
        title: heading,
        description,
        unit: "ms, logarithmic",
        kinds: &["p50", "p99", "max"],
        groups,
    }
    .to_string();
    let caption = "Over the whole run, in milliseconds; the axis is logarithmic.".to_owned();
    Figure { heading, svg, caption }
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};
    use crate::operation::Operation;

    #[test]
    fn a_long_run_has_few_points() {
        for (lasts, width, points) in [(1, 1, 1), (300, 1, 300), (301, 2, 151), (3_600, 12, 300)] {
            let report = sample::report(lasts, 1.0);
            let over_time = OverTime::of(&report, &[]);
            assert_eq!((over_time.width, over_time.points.len()), (width, points));
        }
        let report = sample::report(301, 1.0);
        let last = OverTime::of(&report, &[]).points.pop().expect("points");
        assert_eq!((last.at_s, last.seconds.len()), (300.5, 1));
    }

    #[test]
    fn a_class_is_made_of_its_operations() {
        let latency = |count, p50_us, p99_us| Latency { count, p50_us, p99_us, ..Latency::default() };
        let operations = [
            (Operation::ProductPage, latency(30, 1_000, 4_000)),
            (Operation::CartRead, latency(10, 5_000, 9_000)),
            (Operation::Order, latency(1, 70_000, 80_000)),
        ];
        let seconds = [Second { operations: operations.into(), ..Second::default() }, Second::default()];
        let point = Point { at_s: 1.0, seconds: &seconds };
        assert_eq!((point.p50_ms(false), point.p99_ms(false)), (Some(2.0), Some(9.0)));
        assert_eq!((point.p50_ms(true), point.p99_ms(true)), (Some(70.0), Some(80.0)));
        let silent = Point { at_s: 1.0, seconds: &seconds[1..] };
        assert_eq!((silent.p50_ms(false), silent.p99_ms(false)), (None, None));
    }

    #[test]
    fn who_waits_in_vain_is_drawn_and_no_answer() {
        let report = sample::silent();
        let over_time = OverTime::of(&report, &[]);
        let point = &over_time.points[0];
        assert_eq!((point.mean(Second::served), point.p99_ms(false)), (0.0, Some(30_000.0)));
        let [reads, _] = report.classes();
        let svg = over_time.latencies("reads", &reads).svg;
        assert!(svg.contains(">0 answers, limit of p99: 200 ms<"), "{svg}");
        assert!(by_operation(&report).svg.contains("no operation was answered"));
    }
}
