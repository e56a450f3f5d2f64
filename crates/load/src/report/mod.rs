//! What came of a run, for people and for programs: a file of its own, a summary for a terminal, a page, and two of
//! them compared.

mod charts;
mod compare;
mod html;
mod ranks;
#[cfg(test)]
mod sample;
pub mod svg;
mod tables;
mod text;
mod verdict;
mod wording;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    compare::{Change, Comparison, Judgement, compare},
    html::STYLE,
};
pub use crate::record::Limits;
use crate::{
    findmax::{Search, Step},
    operation::Operation,
    oracle::Findings,
    profile::Profile,
    record::{Latency, OperationResult, Second},
    visit::{Stretch, VisitSpec},
};

/// Counts up when a field gets another meaning.
pub const FORMAT: u32 = 2;

/// One run, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub format: u32,
    /// Of the program that made the load.
    pub version: String,
    /// RFC 3339.
    pub started_at: String,
    pub target: String,
    pub profile: Profile,
    /// Requests in a second.
    pub rate: f64,
    pub lasts_s: f64,
    /// Requests at equal distances, instead of at random moments.
    pub even: bool,
    pub connections: usize,
    pub seed: u64,
    pub machine: String,
    /// Requests that were due.
    pub planned: u64,
    pub sent: u64,
    pub sent_share: f64,
    /// With the time in which the last answers were waited for.
    pub took_s: f64,
    pub interrupted: bool,
    /// Told for programs; all of it follows from the operations and the seconds.
    #[serde(default)]
    pub totals: Totals,
    /// How late requests were sent, after they were due.
    pub late: Latency,
    pub reads: Latency,
    pub writes: Latency,
    pub limits: Option<Limits>,
    pub operations: BTreeMap<Operation, OperationResult>,
    pub seconds: Vec<Second>,
    /// Time on a processor for one request that was sent.
    pub generator_cpu_us: f64,
    /// Time on a processor for one request that was answered, as the shop tells.
    pub shop_cpu_us: Option<f64>,
    pub shop_memory_bytes: Option<MemoryBytes>,
    /// The search that led to this rate, if there was one.
    #[serde(default)]
    pub findmax: Option<Search>,
    pub events: Vec<Event>,
    /// `None` when nobody looked.
    pub findings: Option<Findings>,
}

/// Counts of a whole run, and how many of them in a second of the time in which was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that were done, or refused by the rules of the shop.
    pub answered: u64,
    pub answered_per_s: f64,
    /// Requests that were done within the limit of their kind; where there is none, all that were done.
    pub goodput: u64,
    pub goodput_per_s: f64,
    pub refused: u64,
    pub shed: u64,
    pub failed: u64,
    /// Sent once more, because their connection was closed before an answer began.
    pub repeated: u64,
}

/// Of the shop's process, around the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryBytes {
    pub before: u64,
    pub after: u64,
}

/// Something that was done to the shop during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at_s: f64,
    pub command: String,
    /// `None` when a signal ended it, or when it could not be begun: then `output` says why.
    pub exit_code: Option<i32>,
    pub output: String,
}

/// Why a text is not a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("expected a report of format {expected}, got {0}", expected = FORMAT)]
    OtherFormat(u32),
    #[error(transparent)]
    NotAReport(#[from] serde_json::Error),
}

/// Reads a report as it is stored.
pub fn parse(text: &str) -> Result<Report, ReportError> {
    #[derive(Deserialize)]
    struct Formatted {
        format: u32,
    }
    // First of all: one of another format may lack a field, which would not say why.
    let Formatted { format } = serde_json::from_str(text)?;
    if format != FORMAT {
        return Err(ReportError::OtherFormat(format));
    }
    Ok(serde_json::from_str(text)?)
}

impl Report {
    pub fn of(
        spec: &VisitSpec,
        stretch: &Stretch,
        started_at: String,
        machine: String,
        events: Vec<Event>,
        findings: Option<Findings>,
    ) -> Self {
        let Stretch { ran, rate, lasts, even, usage, limits } = stretch;
        let operations = ran.record.results();
        let answered: u64 = operations.values().map(OperationResult::served).sum();
        let mut report = Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at,
            target: spec.target.to_string(),
            profile: spec.profile.clone(),
            rate: *rate,
            lasts_s: lasts.as_secs_f64(),
            even: *even,
            connections: spec.connections,
            seed: spec.seed,
            machine,
            planned: ran.planned,
            sent: ran.sent,
            sent_share: per(ran.sent as f64, ran.planned as f64).unwrap_or(0.0),
            took_s: ran.took.as_secs_f64(),
            interrupted: ran.interrupted,
            totals: Totals::default(),
            late: ran.record.late(),
            reads: ran.record.over(|operation| !operation.is_write()),
            writes: ran.record.over(Operation::is_write),
            limits: Some(*limits).filter(|limits| *limits != Limits::default()),
            operations,
            seconds: ran.record.seconds().to_vec(),
            generator_cpu_us: per(ran.cpu.as_secs_f64() * 1e6, ran.sent as f64).unwrap_or(0.0),
            // A shop that was started again counts from zero.
            shop_cpu_us: usage
                .filter(|usage| usage.cpu_s >= 0.0)
                .and_then(|usage| per(usage.cpu_s * 1e6, answered as f64)),
            shop_memory_bytes: usage.map(|usage| MemoryBytes {
                before: usage.memory_bytes_before as u64,
                after: usage.memory_bytes_after as u64,
            }),
            findmax: None,
            events,
            findings,
        };
        report.totals = report.totalled();
        report
    }

    /// The run as a step of a search: whether the shop could stand its rate.
    pub fn as_step(&self) -> Step {
        Step {
            rate: self.rate,
            sent_share: self.sent_share,
            read_p99_us: self.reads.p99_us,
            write_p99_us: self.writes.p99_us,
            shed: self.shed(),
            failed: self.failed(),
            could: self.is_valid() && self.failed() + self.shed() == 0 && self.keeps_limits() != Some(false),
        }
    }

    fn totalled(&self) -> Totals {
        Totals {
            answered: self.answered(),
            answered_per_s: self.answered_per_s(),
            goodput: self.goodput(),
            goodput_per_s: self.per_s(self.goodput()),
            refused: self.refused(),
            shed: self.shed(),
            failed: self.failed(),
            repeated: self.repeated(),
        }
    }

    /// Requests that were done, or refused by the rules of the shop.
    pub fn answered(&self) -> u64 {
        self.operations.values().map(OperationResult::served).sum()
    }

    pub fn refused(&self) -> u64 {
        self.operations.values().map(|of| of.refused).sum()
    }

    /// Requests that the shop turned away because it had too much to do.
    pub fn shed(&self) -> u64 {
        self.operations.values().map(|of| of.shed).sum()
    }

    /// Requests with a wrong answer or none.
    pub fn failed(&self) -> u64 {
        self.operations.values().flat_map(|of| of.failed.values()).sum()
    }

    /// Requests that were sent once more, because their connection was closed before an answer began.
    pub fn repeated(&self) -> u64 {
        self.seconds.iter().map(|second| second.repeated).sum()
    }

    /// Requests that were done within the limit of their kind.
    pub fn goodput(&self) -> u64 {
        self.seconds.iter().map(|second| second.goodput).sum()
    }

    /// Orders of the run that the shop acknowledged, as they have to be.
    pub fn orders_acknowledged(&self) -> u64 {
        self.operations.get(&Operation::Order).map_or(0, |of| of.fine)
    }

    /// Whether anybody orders in this profile at all.
    pub fn has_orders(&self) -> bool {
        self.profile.mix.share(Operation::Order) > 0.0
    }

    pub fn answered_per_s(&self) -> f64 {
        self.per_s(self.answered())
    }

    fn per_s(&self, count: u64) -> f64 {
        per(count as f64, self.sending_s()).unwrap_or(0.0)
    }

    /// The time in which was sent, without that in which the last answers were waited for.
    fn sending_s(&self) -> f64 {
        self.took_s.min(self.lasts_s)
    }

    /// Reads, then writes.
    fn classes(&self) -> [Class; 2] {
        let class = |name: &'static str, is_write: bool, latency: Latency, limit_us: Option<u64>| {
            let of = self.operations.iter().filter(|(operation, _)| operation.is_write() == is_write);
            Class { name, is_write, answers: of.map(|(_, of)| of.served()).sum(), latency, limit_us }
        };
        [
            class("reads", false, self.reads, self.limits.and_then(|limits| limits.read_p99_us)),
            class("writes", true, self.writes, self.limits.and_then(|limits| limits.write_p99_us)),
        ]
    }
}

/// Operations with a limit in common.
struct Class {
    name: &'static str,
    is_write: bool,
    answers: u64,
    latency: Latency,
    /// Of the p99.
    limit_us: Option<u64>,
}

impl Class {
    /// `None` without a limit, and without any answer: then there is no p99.
    fn keeps_limit(&self) -> Option<bool> {
        let limit_us = self.limit_us.filter(|_| self.answers > 0)?;
        Some(self.latency.p99_us <= limit_us)
    }
}

fn per(amount: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| amount / of)
}

#[cfg(test)]
mod tests {
    use super::{sample::report, *};

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for report in [report(3, 1.0), sample::silent()] {
            let json = serde_json::to_string(&report).expect("json");
            assert_eq!(parse(&json).expect("a report"), report);
        }
    }

    #[test]
    fn what_is_not_a_report_is_said() {
        let error = |text: &str| parse(text).expect_err("not a report").to_string();
        assert_eq!(error(r#"{"format": 1, "target": 7}"#), "expected a report of format 2, got 1");
        assert!(error(r#"{"format": 2}"#).starts_with("missing field `version`"));
        assert!(error("{}").starts_with("missing field `format`"));
        assert!(error("<html>").starts_with("expected value"));
    }

    #[test]
    fn answers_are_counted_over_the_time_in_which_was_sent() {
        let mut report = report(10, 1.0);
        assert_eq!(report.answered_per_s(), 1_000.0);
        // Until the last answer.
        report.took_s = 40.0;
        assert_eq!(report.answered_per_s(), 1_000.0);
        // It was interrupted.
        report.took_s = 5.0;
        assert_eq!(report.answered_per_s(), 2_000.0);
        let silent = sample::silent();
        assert_eq!((silent.answered(), silent.failed()), (0, 40));
    }

    /// What a benchmark reads.
    #[test]
    fn totals_stand_in_the_file() {
        let mut report = report(10, 1.0);
        report.totals = report.totalled();
        let json = serde_json::to_value(&report).expect("json");
        let totals = serde_json::json!({
            "answered": 10_000, "answered_per_s": 1_000.0, "goodput": 9_990, "goodput_per_s": 999.0,
            "refused": 3, "shed": 0, "failed": 0, "repeated": 0,
        });
        assert_eq!(json["totals"], totals);
        assert_eq!(json["seconds"][9]["goodput"], 999);
        assert!(json["seconds"][9]["writes"]["p99_us"].is_u64());
        assert!(json["limits"]["read_p99_us"].is_u64());
    }
}
