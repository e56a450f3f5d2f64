//! Whether a run was good, and if not, why.

use std::collections::BTreeMap;

use super::{
    Class, Event, Report, tables,
    wording::{count, ms, seconds, share},
};
use crate::oracle::Findings;

/// A run that sent less of its plan measured something else than it was asked to.
const SENT_SHARE_MIN: f64 = 0.999;
/// So many kinds of failure are named in a sentence.
const FAILURES_NAMED_MAX: usize = 3;

impl Report {
    /// Whether the load was the one that was asked for. If not, the run says nothing about the shop.
    pub fn is_valid(&self) -> bool {
        !self.interrupted && self.sent_share >= SENT_SHARE_MIN
    }

    /// Whether the shop kept its promises and everything went as planned, for an exit code. Where errors are allowed,
    /// requests may fail and be turned away. Limits do not enter: the verdict judges them, the exit code is about
    /// promises and the plan.
    pub fn is_good(&self, errors_allowed: bool) -> bool {
        self.findings.as_ref().is_none_or(Findings::is_right)
            && self.is_valid()
            && !self.lacks_orders()
            && !self.searched_in_vain()
            && !self.events.iter().any(Event::has_failed)
            && (errors_allowed || self.failed() + self.shed() == 0)
    }

    /// A shop that sells nothing keeps every promise about orders.
    fn lacks_orders(&self) -> bool {
        self.has_orders() && self.orders_acknowledged() == 0
    }

    fn searched_in_vain(&self) -> bool {
        self.findmax.as_ref().is_some_and(|search| search.found.is_none())
    }

    /// `None` when no limits are known, and when nothing was answered.
    pub fn keeps_limits(&self) -> Option<bool> {
        self.classes().iter().filter_map(Class::keeps_limit).reduce(|reads, writes| reads && writes)
    }

    /// One sentence for each reason why the run is not good.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.faults_of_load();
        if self.searched_in_vain() {
            faults.push("no rate was found that the shop stands within its limits".to_owned());
        }
        if self.sent > 0 && self.answered() == 0 {
            faults.push("nothing was answered".to_owned());
        }
        if self.lacks_orders() {
            faults.push("no order was acknowledged".to_owned());
        }
        if self.failed() > 0 {
            faults.push(format!("{} requests failed: {}", count(self.failed()), self.failures_named()));
        }
        if self.shed() > 0 {
            faults.push(format!("{} requests were turned away", count(self.shed())));
        }
        faults.extend(self.classes().iter().filter_map(Class::fault));
        faults.extend(self.events.iter().filter_map(Event::fault));
        if let Some(findings) = &self.findings {
            faults.extend(self.faults_found(findings));
        }
        faults
    }

    /// In a few words, good or not.
    pub fn verdict(&self) -> String {
        match (self.is_valid(), self.faults().len()) {
            (false, _) => "not valid: this was not the load that was asked for".to_owned(),
            (true, 0) => {
                let limits = if self.keeps_limits().is_some() { "limits kept" } else { "no limits known" };
                let promises =
                    if self.findings.is_some() { "every promise kept" } else { "promises not looked at" };
                let no_orders = self.orders_acknowledged() == 0;
                let orders = if no_orders { ", no orders in this profile" } else { "" };
                format!("good: sent as planned, nothing failed, {limits}, {promises}{orders}")
            }
            (true, 1) => "not good, for one reason".to_owned(),
            (true, reasons) => format!("not good, for {reasons} reasons"),
        }
    }

    pub(super) fn faults_of_load(&self) -> Vec<String> {
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

    fn faults_found(&self, findings: &Findings) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(reason) = &findings.not_looked {
            faults.push(format!("the look afterwards could not be finished: {reason}"));
        }
        // Rules have a sentence each.
        let has_rules = !findings.answers.is_empty();
        let wrong = tables::checks(self, findings)
            .into_iter()
            .filter(|checked| checked.check.wrong > 0 && !(has_rules && checked.name == "answers"));
        faults.extend(wrong.map(|checked| {
            let broken = checked.promise.map(|promise| format!("{promise} broken: ")).unwrap_or_default();
            let (wrong, looked_at) = (count(checked.check.wrong), count(checked.check.looked_at));
            format!("{broken}{wrong} wrong of {looked_at} {}", checked.what)
        }));
        let broken = findings.answers.iter().filter(|(_, answer)| answer.wrong > 0);
        faults.extend(broken.map(|(rule, answer)| {
            let (wrong, checked) = (count(answer.wrong), count(answer.checked));
            format!("{rule} broken: {wrong} wrong of {checked} checked")
        }));
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

impl Event {
    /// Whether its command failed. One that a signal ended without a word may have been meant to end so.
    pub fn has_failed(&self) -> bool {
        match self.exit_code {
            Some(code) => code != 0,
            None => !self.output.is_empty(),
        }
    }

    fn fault(&self) -> Option<String> {
        let (at, ending) = (seconds(self.at_s), tables::ending(self));
        self.has_failed().then(|| format!("the command at {at} s failed: {} ({ending})", self.command))
    }
}

impl Class {
    fn fault(&self) -> Option<String> {
        let limit_us = self.limit_us.filter(|_| self.keeps_limit() == Some(false))?;
        let (name, took, limit) = (self.name, ms(self.latency.p99_us), ms(limit_us));
        Some(format!("p99 of {name} was {took} ms, expected {limit} ms at most"))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::sample::{report, silent},
        *,
    };
    use crate::{
        findmax::Search, operation::Operation, oracle::Check, profile::Profile, record::OperationResult,
        rules::AnswerCheck,
    };

    fn event(exit_code: Option<i32>, output: &str) -> Event {
        Event { at_s: 20.0, command: "kill shop".to_owned(), exit_code, output: output.to_owned() }
    }

    fn of_pages(report: &mut Report) -> &mut OperationResult {
        report.operations.get_mut(&Operation::ProductPage).expect("in the sample")
    }

    #[test]
    fn a_good_run_has_no_faults() {
        let report = report(60, 1.0);
        assert_eq!(report.faults(), Vec::<String>::new());
        assert!(report.is_valid() && report.is_good(false));
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
        let product = of_pages(&mut report);
        product.failed = [("status 500".to_owned(), 10), ("timed out".to_owned(), 1200)].into();
        product.shed = 12_345;
        report.events = vec![event(Some(0), "done"), event(Some(1), "no such process")];
        let findings = report.findings.as_mut().expect("in the sample");
        findings.carts = Check { looked_at: 500, wrong: 2 };
        findings.unsettled = 1;
        let answer = AnswerCheck { checked: 1_812, wrong: 3, example: None };
        findings.answers = [("cart_contents".to_owned(), answer)].into();
        findings.answers_wrong = 3;
        findings.not_looked = Some("nobody answers".to_owned());
        assert_eq!(
            report.faults(),
            [
                "interrupted after 12.3 s",
                "sent 97.2 % of its plan, expected 99.9 %",
                "1,210 requests failed: 1,200 timed out, 10 status 500",
                "12,345 requests were turned away",
                "p99 of reads was 250 ms, expected 200 ms at most",
                "the command at 20.0 s failed: kill shop (exit 1)",
                "the look afterwards could not be finished: nobody answers",
                "CRT-1 broken: 2 wrong of 500 carts, against what was acknowledged",
                "1 wrong of 4 orders whose answer was lost, asked for again",
                "cart_contents broken: 3 wrong of 1,812 checked",
            ]
        );
        assert!(!report.is_valid());
        assert_eq!(report.keeps_limits(), Some(false));
        assert_eq!((report.failed(), report.shed()), (1_210, 12_345));
    }

    /// Unless nobody was to order: then the verdict says so.
    #[test]
    fn a_run_without_an_order_is_not_good() {
        let mut without = report(60, 1.0);
        without.operations.remove(&Operation::Order);
        assert!(without.is_good(false));
        assert!(without.verdict().ends_with(", every promise kept, no orders in this profile"));
        without.profile = Profile::built_in("black-friday").expect("a profile");
        assert_eq!(without.faults(), ["no order was acknowledged"]);
        assert_eq!(without.verdict(), "not good, for one reason");
        assert!(!without.is_good(false) && !without.is_good(true));
        // Refused ones are none.
        let refused = OperationResult { refused: 5, ..OperationResult::default() };
        without.operations.insert(Operation::Order, refused);
        assert!(!without.is_good(true));
        let mut with = report(60, 1.0);
        with.profile = without.profile;
        assert!(with.is_good(false));
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
    fn a_class_without_answers_neither_keeps_its_limit_nor_breaks_it() {
        let mut report = report(5, 1.0);
        report.operations.remove(&Operation::Order);
        report.writes = silent().reads;
        assert_eq!(report.keeps_limits(), Some(true));
        assert_eq!(report.faults(), Vec::<String>::new());
        report.reads.p99_us = 250_000;
        assert_eq!(report.keeps_limits(), Some(false));
        assert_eq!(silent().keeps_limits(), None);
        assert_eq!(silent().faults(), ["nothing was answered", "40 requests failed: 40 no answer in time"]);
    }

    #[test]
    fn commands_fail_unless_they_end_well_or_are_ended() {
        let ends = [(Some(0), "done"), (None, ""), (Some(3), ""), (None, "no sh")];
        let failed = ends.map(|(exit_code, output)| event(exit_code, output).has_failed());
        assert_eq!(failed, [false, false, true, true]);
    }

    #[test]
    fn errors_may_be_allowed_and_nothing_else() {
        let with = |change: fn(&mut Report)| {
            let mut changed = report(5, 1.0);
            change(&mut changed);
            (changed.is_good(false), changed.is_good(true))
        };
        assert_eq!(with(|report| of_pages(report).shed = 1), (false, true));
        let failed = with(|report| of_pages(report).failed = [("status 500".to_owned(), 1)].into());
        assert_eq!(failed, (false, true));
        assert_eq!(with(|report| report.interrupted = true), (false, false));
        assert_eq!(with(|report| report.findmax = Some(Search::default())), (false, false));
        let found = Search { found: Some(700.0), ..Search::default() };
        let mut report = report(5, 1.0);
        report.findmax = Some(found);
        assert!(report.is_good(false));
        assert_eq!(with(|report| report.events = vec![event(Some(1), "")]), (false, false));
        let unfinished = with(|report| {
            report.findings.as_mut().expect("in the sample").not_looked = Some("nobody answers".to_owned());
        });
        assert_eq!(unfinished, (false, false));
        // Limits are judged elsewhere, and nobody has to look.
        assert_eq!(with(|report| report.reads.p99_us = 250_000), (true, true));
        assert_eq!(with(|report| report.findings = None), (true, true));
    }
}
