//! What came of a run, for people and for programs: a file of its own, a summary for a terminal, a page, and two of
//! them compared.

mod charts;
mod compare;
mod html;
mod ranks;
#[cfg(test)]
mod sample;
mod svg;
mod tables;
mod text;
mod wording;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::compare::{Change, Comparison, Judgement, compare};
use self::wording::{count, ms, seconds, share};
use crate::{
    operation::Operation,
    oracle::Findings,
    profile::Profile,
    record::{Latency, OperationResult, Second},
    visit::{Stretch, VisitSpec},
};

/// Counts up when a field gets another meaning.
pub const FORMAT: u32 = 1;
/// A run that sent less of its plan measured something else than it was asked to.
const SENT_SHARE_MIN: f64 = 0.999;
/// So many kinds of failure are named in a sentence.
const FAILURES_NAMED_MAX: usize = 3;

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
    pub took_s: f64,
    pub interrupted: bool,
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
    pub events: Vec<Event>,
    /// `None` when nobody looked.
    pub findings: Option<Findings>,
}

/// What the shop has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub read_p99_us: u64,
    pub write_p99_us: u64,
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
    /// `None` when a signal ended it.
    pub exit_code: Option<i32>,
    pub output: String,
}

impl From<(Duration, Duration)> for Limits {
    fn from((read, write): (Duration, Duration)) -> Self {
        let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self { read_p99_us: us(read), write_p99_us: us(write) }
    }
}

impl Report {
    pub fn of(
        spec: &VisitSpec,
        stretch: &Stretch,
        started_at: String,
        machine: String,
        limits: Option<Limits>,
        events: Vec<Event>,
        findings: Option<Findings>,
    ) -> Self {
        let Stretch { ran, rate, lasts, even, usage } = stretch;
        let operations = ran.record.results();
        let answered: u64 = operations.values().map(|of| of.latency.count).sum();
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at,
            target: spec.target.clone(),
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
            late: ran.record.late(),
            reads: ran.record.over(|operation| !operation.is_write()),
            writes: ran.record.over(Operation::is_write),
            limits,
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
            events,
            findings,
        }
    }

    /// Whether the load was the one that was asked for. If not, the run says nothing about the shop.
    pub fn is_valid(&self) -> bool {
        !self.interrupted && self.sent_share >= SENT_SHARE_MIN
    }

    /// `None` when no limits are known.
    pub fn keeps_limits(&self) -> Option<bool> {
        let limits = self.limits?;
        Some(self.reads.p99_us <= limits.read_p99_us && self.writes.p99_us <= limits.write_p99_us)
    }

    /// Requests that were done, or refused by the rules of the shop.
    pub fn answered(&self) -> u64 {
        self.operations.values().map(|of| of.latency.count).sum()
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

    pub fn answered_per_s(&self) -> f64 {
        per(self.answered() as f64, self.took_s).unwrap_or(0.0)
    }

    /// One sentence for each reason why the run is not good.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.faults_of_load();
        if self.sent > 0 && self.answered() == 0 {
            faults.push("nothing was answered".to_owned());
        }
        if self.failed() > 0 {
            faults.push(format!("{} requests failed: {}", count(self.failed()), self.failures_named()));
        }
        if let Some(limits) = self.limits {
            let classes =
                [("reads", self.reads, limits.read_p99_us), ("writes", self.writes, limits.write_p99_us)];
            for (class, latency, limit_us) in classes {
                if latency.p99_us > limit_us {
                    let (took, limit) = (ms(latency.p99_us), ms(limit_us));
                    faults.push(format!("p99 of {class} was {took} ms, expected {limit} ms at most"));
                }
            }
        }
        if let Some(findings) = &self.findings {
            let wrong = tables::checks(self, findings).into_iter().filter(|checked| checked.check.wrong > 0);
            faults.extend(wrong.map(|checked| {
                let broken = checked.promise.map(|promise| format!("{promise} broken: ")).unwrap_or_default();
                let (wrong, looked_at) = (count(checked.check.wrong), count(checked.check.looked_at));
                format!("{broken}{wrong} wrong of {looked_at} {}", checked.what)
            }));
        }
        faults
    }

    /// In a few words, good or not.
    pub fn verdict(&self) -> String {
        match (self.is_valid(), self.faults().len()) {
            (false, _) => "not valid: this was not the load that was asked for".to_owned(),
            (true, 0) => {
                let limits = if self.limits.is_some() { "limits kept" } else { "no limits known" };
                let promises =
                    if self.findings.is_some() { "every promise kept" } else { "promises not looked at" };
                format!("good: sent as planned, nothing failed, {limits}, {promises}")
            }
            (true, 1) => "not good, for one reason".to_owned(),
            (true, reasons) => format!("not good, for {reasons} reasons"),
        }
    }

    fn faults_of_load(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.interrupted {
            faults.push(format!("interrupted after {} s", seconds(self.took_s)));
        }
        if self.planned == 0 {
            faults.push("no request was due in its time".to_owned());
        } else if self.sent_share < SENT_SHARE_MIN {
            let (sent, expected) = (share(self.sent_share), share(SENT_SHARE_MIN));
            faults.push(format!("sent {sent} of its plan, expected {expected}"));
        }
        faults
    }

    /// The most frequent first.
    fn failures_named(&self) -> String {
        let mut by_kind: BTreeMap<&str, u64> = BTreeMap::new();
        for (kind, failed) in self.operations.values().flat_map(|of| &of.failed) {
            *by_kind.entry(kind).or_default() += failed;
        }
        let mut kinds: Vec<(&str, u64)> = by_kind.into_iter().collect();
        kinds.sort_by_key(|(_, failed)| std::cmp::Reverse(*failed));
        let more = kinds.len().saturating_sub(FAILURES_NAMED_MAX);
        kinds.truncate(FAILURES_NAMED_MAX);
        let mut named: Vec<String> =
            kinds.into_iter().map(|(kind, failed)| format!("{} {kind}", count(failed))).collect();
        if more > 0 {
            named.push(format!("and {more} more kinds"));
        }
        named.join(", ")
    }
}

fn per(amount: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| amount / of)
}

#[cfg(test)]
mod tests {
    use super::{sample::report, *};
    use crate::oracle::Check;

    #[test]
    fn a_good_run_has_no_faults() {
        let report = report(60, 1.0);
        assert_eq!(report.faults(), Vec::<String>::new());
        assert!(report.is_valid());
        assert_eq!(report.keeps_limits(), Some(true));
        assert_eq!(
            report.verdict(),
            "good: sent as planned, nothing failed, limits kept, every promise kept"
        );
    }

    #[test]
    fn every_fault_is_a_sentence() {
        let mut report = report(60, 1.0);
        (report.sent_share, report.interrupted, report.took_s) = (0.972, true, 12.34);
        report.reads.p99_us = 250_000;
        let product = report.operations.get_mut(&Operation::ProductPage).expect("in the sample");
        product.failed = [("status 500".to_owned(), 10), ("timed out".to_owned(), 1200)].into();
        let findings = report.findings.as_mut().expect("in the sample");
        findings.carts = Check { looked_at: 500, wrong: 2 };
        findings.unsettled = 1;
        assert_eq!(
            report.faults(),
            [
                "interrupted after 12.3 s",
                "sent 97.2 % of its plan, expected 99.9 %",
                "1,210 requests failed: 1,200 timed out, 10 status 500",
                "p99 of reads was 250 ms, expected 200 ms at most",
                "CRT-1 broken: 2 wrong of 500 carts, against what was acknowledged",
                "1 wrong of 4 orders whose answer was lost, asked for again",
            ]
        );
        assert!(!report.is_valid());
        assert_eq!(report.keeps_limits(), Some(false));
        assert_eq!((report.failed(), report.shed()), (1_210, 5));
    }

    #[test]
    fn just_below_the_least_share_is_not_rounded_up() {
        let mut report = report(5, 1.0);
        report.sent_share = 0.998_96;
        assert_eq!(report.faults(), ["sent 99.8 % of its plan, expected 99.9 %"]);
        (report.sent_share, report.sent, report.planned) = (0.0, 0, 0);
        assert_eq!(report.faults(), ["no request was due in its time"]);
        assert!(!report.is_valid());
    }

    #[test]
    fn without_limits_none_are_kept() {
        let mut report = report(5, 1.0);
        (report.limits, report.findings) = (None, None);
        assert_eq!(report.keeps_limits(), None);
        assert!(report.verdict().ends_with("no limits known, promises not looked at"));
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for report in [report(3, 1.0), sample::silent()] {
            let json = serde_json::to_string(&report).expect("json");
            assert_eq!(serde_json::from_str::<Report>(&json).expect("a report"), report);
        }
    }
}
