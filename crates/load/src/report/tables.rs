//! What the summary and the page both show.

use std::fmt;

use super::{
    Class, Event, Report,
    wording::{count, mebibytes, ms, number, plain, seconds, share},
};
use crate::{
    oracle::{Check, Findings},
    record::Latency,
    rules::AnswerCheck,
};

const GAP: &str = "  ";

pub(super) struct Table {
    pub(super) heads: Vec<Cell>,
    pub(super) rows: Vec<Vec<Cell>>,
}

pub(super) struct Cell {
    pub(super) text: String,
    /// `text` or `number`: words begin on the left, numbers end on the right.
    pub(super) class: &'static str,
}

impl Table {
    /// The first columns hold words, the others numbers.
    pub(super) fn new<const COLUMNS: usize>(
        words: usize,
        heads: [&str; COLUMNS],
        rows: impl IntoIterator<Item = [String; COLUMNS]>,
    ) -> Self {
        let cells = |texts: [String; COLUMNS]| -> Vec<Cell> {
            let class = |column: usize| if column < words { "text" } else { "number" };
            texts.into_iter().enumerate().map(|(column, text)| Cell { text, class: class(column) }).collect()
        };
        Self { heads: cells(heads.map(str::to_owned)), rows: rows.into_iter().map(cells).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    /// Aligned, one line for each row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.heads).chain(&self.rows);
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|column| lines().map(|line| line[column].text.chars().count()).max().unwrap_or(0))
            .collect();
        for line in lines() {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| cell.padded(*width)).collect();
            writeln!(f, "{}", cells.join(GAP).trim_end())?;
        }
        Ok(())
    }
}

impl Cell {
    fn padded(&self, width: usize) -> String {
        match self.class {
            "number" => format!("{:>width$}", self.text),
            _ => format!("{:<width$}", self.text),
        }
    }
}

/// One check of the oracle.
pub(super) struct Checked {
    /// As in the JSON.
    pub(super) name: &'static str,
    /// `None` when it is no promise by itself.
    pub(super) promise: Option<&'static str>,
    pub(super) what: &'static str,
    pub(super) check: Check,
}

pub(super) fn checks(report: &Report, findings: &Findings) -> Vec<Checked> {
    let Findings { orders, histories, days, unasked_orders, carts, stock, invariants, .. } = findings;
    // Reports of earlier versions do not say how much was checked.
    let checked = findings.answers.values().map(|answer| answer.checked).sum::<u64>();
    let checked = if findings.answers.is_empty() { report.sent } else { checked };
    let answers = Check { looked_at: checked, wrong: findings.answers_wrong };
    let lost = Check { looked_at: findings.settled + findings.unsettled, wrong: findings.unsettled };
    [
        ("orders", Some("ORD-1"), "acknowledged orders, by id, as they were acknowledged", Some(*orders)),
        ("histories", Some("ORD-1"), "acknowledged orders, in the history of their owner", Some(*histories)),
        ("days", Some("ORD-1"), "acknowledged orders, in the list of their day", *days),
        (
            "unasked_orders",
            Some("ORD-2"),
            "orders in histories, each asked for and there once",
            Some(*unasked_orders),
        ),
        ("carts", Some("CRT-1"), "carts, against what was acknowledged", Some(*carts)),
        ("stock", Some("STK-1, STK-2"), "stocks of a product in a zone", Some(*stock)),
        ("invariants", None, "promises, as the shop itself has counted", *invariants),
        ("answers", None, "answers, against every rule that applies", Some(answers)),
        ("unsettled", None, "orders whose answer was lost, asked for again", Some(lost)),
    ]
    .into_iter()
    .filter_map(|(name, promise, what, check)| Some(Checked { name, promise, what, check: check? }))
    .collect()
}

pub(super) fn promises(report: &Report, findings: &Findings) -> Table {
    Table::new(
        3,
        ["check", "promise", "what", "looked at", "wrong"],
        checks(report, findings).into_iter().map(|Checked { name, promise, what, check }| {
            let promise = promise.unwrap_or("-").to_owned();
            [name.to_owned(), promise, what.to_owned(), count(check.looked_at), count(check.wrong)]
        }),
    )
}

/// The rules that answers were checked against: all of them, or those that were broken.
pub(super) fn rules(findings: &Findings, broken_only: bool) -> Table {
    let rules = findings.answers.iter().filter(|(_, answer)| !broken_only || answer.wrong > 0);
    let row =
        |(name, answer): (&String, &AnswerCheck)| [plain(name), count(answer.checked), count(answer.wrong)];
    Table::new(1, ["rule", "checked", "wrong"], rules.map(row))
}

pub(super) fn operations(report: &Report) -> Table {
    let heads = [
        "operation",
        "answers",
        "per s",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "refused",
        "shed",
        "failed",
    ];
    Table::new(
        1,
        heads,
        report.operations.iter().map(|(operation, of)| {
            let answers = of.served();
            let [p50, p90, p99, p999, max] = quantiles(&of.latency, answers);
            [
                operation.name().to_owned(),
                count(answers),
                number(report.per_s(answers)),
                p50,
                p90,
                p99,
                p999,
                max,
                count(of.refused),
                count(of.shed),
                count(of.failed.values().sum()),
            ]
        }),
    )
}

/// Reads and writes, each with its limit.
pub(super) fn classes(report: &Report) -> Table {
    let heads =
        ["class", "answers", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "limit of p99 ms", "kept"];
    Table::new(
        1,
        heads,
        report.classes().iter().map(|class| {
            let Class { name, answers, latency, limit_us, .. } = class;
            let [p50, p90, p99, p999, max] = quantiles(latency, *answers);
            let limit = limit_us.map_or("-".to_owned(), ms);
            let kept = class.keeps_limit().map_or("-", |keeps| if keeps { "yes" } else { "no" });
            [(*name).to_owned(), count(*answers), p50, p90, p99, p999, max, limit, kept.to_owned()]
        }),
    )
}

/// What went wrong with which request.
pub(super) fn failures(report: &Report) -> Table {
    let rows = report.operations.iter().flat_map(|(operation, of)| {
        of.failed.iter().map(|(kind, failed)| [operation.name().to_owned(), plain(kind), count(*failed)])
    });
    Table::new(2, ["operation", "failure", "count"], rows)
}

/// The rates that were tried before this one.
pub(super) fn steps(report: &Report) -> Table {
    let steps = report.findmax.iter().flat_map(|search| &search.steps);
    Table::new(
        1,
        ["verdict", "requests/s", "sent", "p99 of reads ms", "p99 of writes ms", "shed", "failed"],
        steps.map(|step| {
            [
                if step.could { "within the limits" } else { "too much" }.to_owned(),
                number(step.rate.round()),
                share(step.sent_share),
                ms(step.read_p99_us),
                ms(step.write_p99_us),
                count(step.shed),
                count(step.failed),
            ]
        }),
    )
}

/// Everything that is one line.
pub(super) fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let sent = format!(
        "{} of {} planned ({}) in {} s",
        count(report.sent),
        count(report.planned),
        share(report.sent_share),
        seconds(report.sending_s())
    );
    let answered = format!(
        "{} ({} per s), {} of them refused; {} shed, {} failed",
        count(report.answered()),
        number(report.answered_per_s()),
        count(report.refused()),
        count(report.shed()),
        count(report.failed())
    );
    let in_time = format!(
        "{} ({} per s) within the limits",
        count(report.goodput()),
        number(report.per_s(report.goodput()))
    );
    let repeated = Some(report.repeated()).filter(|repeated| *repeated > 0);
    let repeated = repeated
        .map(|repeated| format!("{} on a new connection, because theirs was closed", count(repeated)));
    let [p50, _, p99, _, max] = quantiles(&report.late, report.late.count);
    let late = format!("p50 {p50} ms, p99 {p99} ms, max {max} ms after they were due");
    let shop_cpu = report.shop_cpu_us.map_or("unknown of the shop".to_owned(), |us| {
        format!("{} us of the shop for a request answered", number(us))
    });
    let cpu =
        format!("{} us of the generator for a request sent, {shop_cpu}", number(report.generator_cpu_us));
    let memory = report.shop_memory_bytes.map(|bytes| {
        format!("{} before, {} after, of the shop", mebibytes(bytes.before), mebibytes(bytes.after))
    });
    let orders = match report.orders_acknowledged() {
        0 if !report.has_orders() => "no orders in this profile".to_owned(),
        acknowledged => format!("{} acknowledged", count(acknowledged)),
    };
    let checked = report.findings.as_ref().map(|findings| match findings.reads_checked_one_in {
        0 => "all writes, no reads".to_owned(),
        1 => "all writes, all reads".to_owned(),
        reads => format!("all writes, one of {} reads", count(reads)),
    });
    let found = report.findmax.as_ref().map(|search| match search.found {
        Some(rate) => format!("{} requests/s", number(rate.round())),
        None => "none".to_owned(),
    });
    [
        found.map(|found| ("highest rate within the limits", found)),
        Some(("sent", sent)),
        Some(("answered", answered)),
        Some(("orders", orders)),
        checked.map(|checked| ("checked", checked)),
        report.limits.map(|_| ("in time", in_time)),
        repeated.map(|repeated| ("sent again", repeated)),
        Some(("sent late", late)),
        Some(("CPU", cpu)),
        memory.map(|memory| ("memory", memory)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How the load was made.
pub(super) fn conditions(report: &Report) -> String {
    format!(
        "{} requests/s for {} s {}, {} connections, seed {}",
        number(report.rate),
        number(report.lasts_s),
        if report.even { "at equal distances" } else { "at random moments" },
        report.connections,
        report.seed
    )
}

/// How it ended: `exit 0`, or by a signal.
pub(super) fn ending(event: &Event) -> String {
    match event.exit_code {
        Some(code) => format!("exit {code}"),
        None if event.output.is_empty() => "ended by a signal".to_owned(),
        None => "ended by a signal, or not begun".to_owned(),
    }
}

/// None without any answer: how long nobody was answered is told by what failed.
fn quantiles(latency: &Latency, answers: u64) -> [String; 5] {
    let Latency { p50_us, p90_us, p99_us, p999_us, max_us, .. } = *latency;
    [p50_us, p90_us, p99_us, p999_us, max_us].map(|us| if answers == 0 { "-".to_owned() } else { ms(us) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_they_hold() {
        let rows = [["shed", "1,000"], ["нет", "7"]].map(|row| row.map(str::to_owned));
        let table = Table::new(1, ["what", "n"], rows);
        assert_eq!(table.to_string(), "what      n\nshed  1,000\nнет       7\n");
    }

    #[test]
    fn a_search_is_told_step_by_step() {
        let mut report = super::super::sample::report(3, 1.0);
        assert!(steps(&report).is_empty());
        let could = report.as_step();
        let could_not =
            crate::findmax::Step { rate: 1_600.4, could: false, sent_share: 0.97, shed: 7, ..could };
        report.findmax = Some(crate::findmax::Search { steps: vec![could, could_not], found: Some(1_000.0) });
        let table = steps(&report).to_string();
        assert_eq!(
            table,
            "verdict            requests/s     sent  p99 of reads ms  p99 of writes ms  shed  failed\n\
             within the limits       1,000  100.0 %             8.00              32.0     0       0\n\
             too much                1,600   97.0 %             8.00              32.0     7       0\n"
        );
        for told in [report.to_text(), report.to_html()] {
            assert!(told.contains("too much") && told.contains("highest rate within the limits"), "{told}");
        }
        let json = serde_json::to_value(&report).expect("json");
        assert_eq!(json["findmax"]["steps"][1]["could"], false);
        assert_eq!(json["findmax"]["found"], 1_000.0);
    }

    /// The shop stands what is sent, answered and within the limits.
    #[test]
    fn a_step_is_too_much_for_any_reason() {
        let with = |change: fn(&mut Report)| {
            let mut report = super::super::sample::report(3, 1.0);
            change(&mut report);
            report.as_step().could
        };
        assert!(with(|_| {}));
        assert!(!with(|report| report.sent_share = 0.9));
        assert!(!with(|report| report.reads.p99_us = 250_000));
        assert!(!with(|report| report.operations.values_mut().for_each(|of| of.shed = 1)));
    }

    #[test]
    fn what_nobody_looked_at_is_no_row() {
        let report = super::super::sample::report(3, 1.0);
        let mut findings = report.findings.clone().expect("in the sample");
        assert_eq!(promises(&report, &findings).rows.len(), 9);
        findings.invariants = None;
        assert_eq!(promises(&report, &findings).rows.len(), 8);
    }

    #[test]
    fn without_answers_there_are_no_times() {
        let report = super::super::sample::silent();
        let table = classes(&report).to_string();
        assert!(table.lines().any(|line| line.starts_with("reads         0       -")), "{table}");
        assert!(table.lines().skip(1).all(|line| line.ends_with("     -")), "{table}");
        let table = operations(&report).to_string();
        assert!(
            table.lines().any(|line| line.starts_with("product_page        0      0       -")),
            "{table}"
        );
    }

    #[test]
    fn rates_are_those_of_the_time_in_which_was_sent() {
        let mut report = super::super::sample::report(10, 1.0);
        report.took_s = 40.0;
        let row = operations(&report).rows.swap_remove(0);
        assert_eq!((row[0].text.as_str(), row[2].text.as_str()), ("product_page", "900"));
        report.seconds[3].repeated = 2;
        let facts: std::collections::BTreeMap<&str, String> = facts(&report).into_iter().collect();
        assert_eq!(facts["sent"], "10,000 of 10,000 planned (100.0 %) in 10.0 s");
        assert_eq!(facts["sent again"], "2 on a new connection, because theirs was closed");
    }
}
