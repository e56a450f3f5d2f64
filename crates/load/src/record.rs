//! What a run looked like: every request counted and timed, second by second and over all.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{crowd::Verdict, operation::Operation};

const LATENCY_US_MAX: u64 = 600_000_000;
const DIGITS: u8 = 3;

pub(crate) struct Record {
    /// Of the seconds that are over.
    operations: Vec<OfOperation>,
    /// How late requests were sent, after they were due.
    late: Histogram<u64>,
    seconds: Vec<Second>,
    /// The second that is not over yet, and its latencies.
    now: Second,
    latencies: Vec<Histogram<u64>>,
    limits: Limits,
}

struct OfOperation {
    latency: Histogram<u64>,
    verdicts: BTreeMap<Verdict, u64>,
}

/// What the shop has to keep, where that is known: the p99 of reads and that of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub read_p99_us: Option<u64>,
    pub write_p99_us: Option<u64>,
}

impl Limits {
    pub fn new(read_p99: Option<Duration>, write_p99: Option<Duration>) -> Self {
        let us = |limit: Duration| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        Self { read_p99_us: read_p99.map(us), write_p99_us: write_p99.map(us) }
    }

    /// These, and for what they leave open the others.
    pub(crate) fn or(self, others: Self) -> Self {
        Self {
            read_p99_us: self.read_p99_us.or(others.read_p99_us),
            write_p99_us: self.write_p99_us.or(others.write_p99_us),
        }
    }

    pub(crate) fn of(self, operation: Operation) -> Option<u64> {
        if operation.is_write() { self.write_p99_us } else { self.read_p99_us }
    }
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    pub sent: u64,
    /// Answers of every kind, also those that shed and those that are wrong.
    pub answered: u64,
    pub shed: u64,
    /// By the rules of the shop: there was not enough in stock.
    #[serde(default)]
    pub refused: u64,
    /// Requests with a wrong answer or none.
    pub failed: u64,
    /// Of those that failed, the ones without an answer.
    #[serde(default)]
    pub lost: u64,
    /// Sent once more, because their connection was closed before an answer began.
    #[serde(default)]
    pub repeated: u64,
    /// Of those that were acknowledged, the ones within the limit of their kind; where there is none, all.
    #[serde(default)]
    pub goodput: u64,
    /// Of the requests that were served or given up in this second.
    pub operations: BTreeMap<Operation, Latency>,
    /// The same of all operations that only read.
    #[serde(default)]
    pub reads: Latency,
    /// And of all that change something.
    #[serde(default)]
    pub writes: Latency,
}

impl Second {
    /// Requests that were done, or refused by the rules of the shop.
    pub fn served(&self) -> u64 {
        let wrong_answers = self.failed.saturating_sub(self.lost);
        self.answered.saturating_sub(self.shed + wrong_answers)
    }

    /// Requests that were done. What is refused is an answer, and not what was asked for.
    pub fn acknowledged(&self) -> u64 {
        self.served().saturating_sub(self.refused)
    }
}

/// From the moment a request was due to its answer, or to the moment when it was given up, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Requests that were timed, which are not answers alone: those that were served, and those that waited for an
    /// answer in vain. What was shed or answered wrongly is not among them: a quick no would make a shop look fast.
    pub count: u64,
    pub p50_us: u64,
    pub p90_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            count: histogram.len(),
            p50_us: histogram.value_at_quantile(0.5),
            p90_us: histogram.value_at_quantile(0.9),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
        }
    }
}

/// What came of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationResult {
    pub latency: Latency,
    pub fine: u64,
    /// By the rules of the shop.
    pub refused: u64,
    /// Because the shop had too much to do.
    pub shed: u64,
    /// By what went wrong.
    pub failed: BTreeMap<String, u64>,
}

impl OperationResult {
    /// Requests that were done, or refused by the rules of the shop.
    pub fn served(&self) -> u64 {
        self.fine + self.refused
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS).expect("fixed bounds that are right")
}

fn histograms() -> Vec<Histogram<u64>> {
    Operation::ALL.iter().map(|_| histogram()).collect()
}

impl Record {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            operations: histograms()
                .into_iter()
                .map(|latency| OfOperation { latency, verdicts: BTreeMap::new() })
                .collect(),
            late: histogram(),
            seconds: Vec::new(),
            now: Second::default(),
            latencies: histograms(),
            limits,
        }
    }

    pub(crate) fn sent(&mut self, at_ns: u64, late_ns: u64) {
        self.move_to(at_ns);
        self.late.saturating_record(late_ns / 1_000);
        self.now.sent += 1;
    }

    /// A request was sent once more, on another connection.
    pub(crate) fn repeated(&mut self, at_ns: u64) {
        self.move_to(at_ns);
        self.now.repeated += 1;
    }

    /// An answer has come, or none will: then `took_ns` is how long it was waited for.
    pub(crate) fn answered(&mut self, operation: Operation, verdict: Verdict, at_ns: u64, took_ns: u64) {
        self.move_to(at_ns);
        let of = &mut self.operations[operation.index()];
        *of.verdicts.entry(verdict).or_default() += 1;
        // Whoever waits in vain waits, too: without them a shop that stands still would look fast.
        if matches!(verdict, Verdict::Fine | Verdict::Refused | Verdict::Lost(_)) {
            self.latencies[operation.index()].saturating_record(took_ns / 1_000);
        }
        match verdict {
            Verdict::Refused => self.now.refused += 1,
            Verdict::Fine => {
                let in_time = self.limits.of(operation).is_none_or(|limit_us| took_ns <= limit_us * 1_000);
                self.now.goodput += u64::from(in_time);
            }
            Verdict::Shed => self.now.shed += 1,
            Verdict::Status(_) | Verdict::Wrong => self.now.failed += 1,
            Verdict::Lost(_) => {
                self.now.failed += 1;
                self.now.lost += 1;
            }
        }
    }

    /// The last second that is over, and everything that is to be known of it.
    pub(crate) fn last_second(&self) -> Option<&Second> {
        self.seconds.last()
    }

    /// Ends the second that has begun.
    pub(crate) fn end(&mut self) {
        self.cut();
    }

    pub(crate) fn results(&self) -> BTreeMap<Operation, OperationResult> {
        let all = Operation::ALL.iter().zip(&self.operations).filter(|(_, of)| !of.verdicts.is_empty());
        all.map(|(operation, of)| (*operation, of.result())).collect()
    }

    pub(crate) fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    pub(crate) fn late(&self) -> Latency {
        Latency::of(&self.late)
    }

    /// Of all reads, or of all writes.
    pub(crate) fn over(&self, wanted: impl Fn(Operation) -> bool) -> Latency {
        let mut all = histogram();
        for (operation, of) in Operation::ALL.iter().zip(&self.operations) {
            if wanted(*operation) {
                all.add(&of.latency).expect("the same bounds");
            }
        }
        Latency::of(&all)
    }

    fn move_to(&mut self, at_ns: u64) {
        while (self.seconds.len() as u64) < at_ns / 1_000_000_000 {
            self.cut();
        }
    }

    /// The second is over. What is worked out here would be too much for every answer.
    fn cut(&mut self) {
        let mut second = std::mem::take(&mut self.now);
        let (mut reads, mut writes) = (histogram(), histogram());
        let all = Operation::ALL.iter().zip(&mut self.operations).zip(&mut self.latencies);
        for ((operation, of), latency) in all.filter(|(_, latency)| !latency.is_empty()) {
            second.operations.insert(*operation, Latency::of(latency));
            let class = if operation.is_write() { &mut writes } else { &mut reads };
            for sum in [class, &mut of.latency] {
                sum.add(&*latency).expect("the same bounds");
            }
            latency.reset();
        }
        (second.reads, second.writes) = (Latency::of(&reads), Latency::of(&writes));
        let timed = second.reads.count + second.writes.count;
        // The lost ones are among both, and are no answers.
        second.answered = (timed - second.lost) + second.shed + (second.failed - second.lost);
        self.seconds.push(second);
    }
}

impl OfOperation {
    fn result(&self) -> OperationResult {
        let mut result =
            OperationResult { latency: Latency::of(&self.latency), ..OperationResult::default() };
        for (verdict, count) in &self.verdicts {
            let failed = match verdict {
                Verdict::Fine => {
                    result.fine = *count;
                    continue;
                }
                Verdict::Refused => {
                    result.refused = *count;
                    continue;
                }
                Verdict::Shed => {
                    result.shed = *count;
                    continue;
                }
                Verdict::Status(status) => format!("status {status}"),
                Verdict::Lost(lost) => lost.to_string(),
                Verdict::Wrong => "a wrong answer".to_owned(),
            };
            result.failed.insert(failed, *count);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Lost;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn seconds_are_cut_where_they_end() {
        let mut record = Record::new(Limits::default());
        record.sent(0, 0);
        record.sent(SECOND / 2, 5_000_000);
        record.answered(Operation::Order, Verdict::Fine, SECOND - 1, 30_000_000);
        record.answered(Operation::Order, Verdict::Shed, 3 * SECOND, 1_000);
        record.end();
        let counts: Vec<(u64, u64, u64)> =
            record.seconds().iter().map(|second| (second.sent, second.answered, second.shed)).collect();
        assert_eq!(counts, [(2, 1, 0), (0, 0, 0), (0, 0, 0), (0, 1, 1)]);
        let order = &record.results()[&Operation::Order];
        assert_eq!((order.fine, order.shed, order.latency.count), (1, 1, 1));
        assert_eq!(order.latency.p99_us / 100, 300);
        assert!(record.late().max_us >= 5_000);
    }

    #[test]
    fn requests_without_an_answer_are_timed_and_no_answers() {
        let mut record = Record::new(Limits::default());
        for (verdict, took_ns) in [
            (Verdict::Fine, 1_000_000),
            (Verdict::Refused, 1_000_000),
            (Verdict::Shed, 1_000),
            (Verdict::Status(500), 1_000),
            (Verdict::Wrong, 1_000),
            (Verdict::Lost(Lost::TimedOut), 30 * SECOND),
        ] {
            record.answered(Operation::Order, verdict, 0, took_ns);
        }
        record.end();
        let second = &record.seconds()[0];
        assert_eq!((second.answered, second.shed, second.failed, second.lost), (5, 1, 3, 1));
        assert_eq!((second.served(), second.refused, second.acknowledged()), (2, 1, 1));
        let order = &record.results()[&Operation::Order];
        assert_eq!((order.served(), order.failed.values().sum::<u64>()), (2, 3));
        let of_writes = record.over(Operation::is_write);
        for latency in [order.latency, second.operations[&Operation::Order], of_writes] {
            assert_eq!(latency.count, 3);
            assert!(latency.p99_us >= 30_000_000 && latency.p50_us < 2_000, "{latency:?}");
        }
        assert_eq!(record.over(|operation| !operation.is_write()), Latency::default());
        assert_eq!((second.reads, second.writes), (Latency::default(), of_writes));
        // Without a limit everything that is acknowledged comes in time.
        assert_eq!(second.goodput, 1);
    }

    #[test]
    fn what_is_acknowledged_within_the_limit_of_its_kind_is_goodput() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let mut record = Record::new(Limits::new(ms(200), ms(500)));
        for (operation, verdict, took_ms) in [
            (Operation::ProductPage, Verdict::Fine, 200),
            (Operation::ProductPage, Verdict::Fine, 201),
            (Operation::ProductPage, Verdict::Shed, 1),
            (Operation::ProductPage, Verdict::Lost(Lost::HungUp), 1),
            (Operation::Order, Verdict::Fine, 300),
            (Operation::Order, Verdict::Refused, 300),
            (Operation::Order, Verdict::Fine, 501),
            (Operation::Order, Verdict::Status(500), 1),
        ] {
            record.answered(operation, verdict, 0, took_ms * 1_000_000);
        }
        record.end();
        let second = &record.seconds()[0];
        assert_eq!(second.goodput, 2);
        assert_eq!((second.reads.count, second.writes.count), (3, 3));
        assert!((300_000..310_000).contains(&second.writes.p50_us), "{:?}", second.writes);
    }

    #[test]
    fn a_limit_that_was_not_given_is_that_of_others() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let policy = Limits::new(ms(200), ms(500));
        assert_eq!(Limits::new(ms(50), None).or(policy), Limits::new(ms(50), ms(500)));
        assert_eq!(Limits::new(None, ms(50)).or(policy), Limits::new(ms(200), ms(50)));
        assert_eq!(Limits::new(None, ms(50)).or(Limits::default()), Limits::new(None, ms(50)));
    }
}
