//! The summary for a terminal.

use std::fmt::{self, Write as _};

use super::{
    Report, tables,
    wording::{plain, seconds},
};

/// Of what an event's command has printed, its last lines: they say how it ended.
const OUTPUT_LINES_MAX: usize = 5;

impl Report {
    /// The summary for a terminal: columns, no colours.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        write(self, &mut text).expect("a string takes everything");
        text
    }
}

fn write(report: &Report, out: &mut String) -> fmt::Result {
    writeln!(out, "{} against {}", plain(&report.profile.name), plain(&report.target))?;
    writeln!(out, "{}", tables::conditions(report))?;
    writeln!(out, "started {}, mobimir {}", plain(&report.started_at), plain(&report.version))?;
    writeln!(out, "machine {}", plain(&report.machine))?;
    if !report.operations.is_empty() {
        write!(out, "\n{}", tables::operations(report))?;
    }
    write!(out, "\n{}", tables::classes(report))?;
    writeln!(out)?;
    let facts = tables::facts(report);
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, fact) in facts {
        writeln!(out, "{name:<width$}  {fact}")?;
    }
    let failures = tables::failures(report);
    if !failures.is_empty() {
        write!(out, "\n{failures}")?;
    }
    let steps = tables::steps(report);
    if !steps.is_empty() {
        write!(out, "\n{steps}")?;
    }
    write_events(report, out)?;
    write_findings(report, out)?;
    writeln!(out, "\nverdict: {}", report.verdict())?;
    report.faults().iter().try_for_each(|fault| writeln!(out, "- {}", plain(fault)))
}

fn write_events(report: &Report, out: &mut String) -> fmt::Result {
    if !report.events.is_empty() {
        writeln!(out, "\nevents")?;
    }
    for event in &report.events {
        let ending = tables::ending(event);
        writeln!(out, "at {} s: {} ({ending})", seconds(event.at_s), plain(&event.command))?;
        let lines: Vec<&str> = event.output.lines().collect();
        for line in &lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..] {
            writeln!(out, "    {}", plain(line))?;
        }
    }
    Ok(())
}

fn write_findings(report: &Report, out: &mut String) -> fmt::Result {
    let Some(findings) = &report.findings else {
        return writeln!(out, "\nnobody looked for what was acknowledged");
    };
    write!(out, "\n{}", tables::promises(report, findings))?;
    let broken = tables::rules(findings, true);
    if !broken.is_empty() {
        write!(out, "\n{broken}")?;
    }
    for left_out in &findings.left_out {
        writeln!(out, "\nnot looked at: {}", plain(left_out))?;
    }
    if let Some(reason) = &findings.not_looked {
        writeln!(out, "\nthe look afterwards could not be finished: {}", plain(reason))?;
    }
    let examples: Vec<String> = findings.all_examples().collect();
    if !examples.is_empty() {
        writeln!(out, "\nexamples")?;
    }
    examples.iter().try_for_each(|example| writeln!(out, "- {}", plain(example)))
}

#[cfg(test)]
mod tests {
    use super::super::{Event, sample};
    use crate::rules::{AnswerCheck, Example};

    #[test]
    fn a_good_run_is_told_in_columns() {
        insta::assert_snapshot!(sample::report(10, 1.0).to_text(), @r"
        browsing against http://127.0.0.1:8080
        1,000 requests/s for 10 s at random moments, 64 connections, seed 7
        started 2026-11-27T18:00:00Z, mobimir 0.1.0
        machine 2 cores, 8 GiB

        operation     answers  per s  p50 ms  p90 ms  p99 ms  p99.9 ms  max ms  refused  shed  failed
        product_page    9,000    900    2.00    4.00    8.00      12.0    20.0        0     0       0
        order           1,000    100    8.00    16.0    32.0      48.0    80.0        3     0       0

        class   answers  p50 ms  p90 ms  p99 ms  p99.9 ms  max ms  limit of p99 ms  kept
        reads     9,000    2.00    4.00    8.00      12.0    20.0              200   yes
        writes    1,000    8.00    16.0    32.0      48.0    80.0              500   yes

        sent       10,000 of 10,000 planned (100.0 %) in 10.0 s
        answered   10,000 (1,000 per s), 3 of them refused; 0 shed, 0 failed
        orders     997 acknowledged
        checked    all writes, one of 8 reads
        in time    9,990 (999 per s) within the limits
        sent late  p50 0.05 ms, p99 0.21 ms, max 3.10 ms after they were due
        CPU        12.5 us of the generator for a request sent, 84.5 us of the shop for a request answered
        memory     120.0 MiB before, 144.0 MiB after, of the shop

        check           promise       what                                                   looked at  wrong
        orders          ORD-1         acknowledged orders, by id, as they were acknowledged        997      0
        histories       ORD-1         acknowledged orders, in the history of their owner           997      0
        days            ORD-1         acknowledged orders, in the list of their day                997      0
        unasked_orders  ORD-2         orders in histories, each asked for and there once           997      0
        carts           CRT-1         carts, against what was acknowledged                         600      0
        stock           STK-1, STK-2  stocks of a product in a zone                              3,000      0
        invariants      -             promises, as the shop itself has counted                      12      0
        answers         -             answers, against every rule that applies                   1,200      0
        unsettled       -             orders whose answer was lost, asked for again                  3      0

        verdict: good: sent as planned, nothing failed, limits kept, every promise kept
        ");
    }

    #[test]
    fn what_went_wrong_is_told() {
        let mut report = sample::report(10, 1.0);
        report.interrupted = true;
        let output = (0..9).map(|line| format!("line {line}\n")).collect();
        report.events = vec![
            Event { at_s: 4.0, command: "kill \u{1b}[31m shop".to_owned(), exit_code: Some(1), output },
            Event { at_s: 6.5, command: "sleep 9".to_owned(), exit_code: None, output: String::new() },
        ];
        let findings = report.findings.as_mut().expect("in the sample");
        findings.examples = vec!["CRT-1: the cart of shopper 7 has 2 of it".to_owned()];
        let [request, expected, got] = ["GET /v1/cart of shopper 7", "2 of it", "nothing"].map(str::to_owned);
        let example = Some(Example { request, expected, got });
        let answer = AnswerCheck { checked: 1_812, wrong: 3, example };
        let right = AnswerCheck { checked: 12, ..AnswerCheck::default() };
        findings.answers = [("cart_contents".to_owned(), answer), ("order_total".to_owned(), right)].into();
        findings.answers_wrong = 3;
        findings.not_looked = Some("nobody\nanswers".to_owned());
        findings.left_out = vec!["the lists of days".to_owned()];
        let text = report.to_text();
        for told in [
            "\nevents\nat 4.0 s: kill \u{fffd}[31m shop (exit 1)\n    line 4\n",
            "\n    line 8\nat 6.5 s: sleep 9 (ended by a signal)\n",
            "\n\nthe look afterwards could not be finished: nobody\u{fffd}answers\n",
            "\n\nnot looked at: the lists of days\n",
            "\n\nrule           checked  wrong\ncart_contents    1,812      3\n",
            "\nexamples\n- cart_contents: GET /v1/cart of shopper 7: expected 2 of it, got nothing\n- CRT-1: the cart of shopper 7 has 2 of it\n",
            "\nverdict: not valid: this was not the load that was asked for\n- interrupted after 10.0 s\n",
            "\n- the command at 4.0 s failed: kill \u{fffd}[31m shop (exit 1)\n",
        ] {
            assert!(text.contains(told), "{told:?} is missing in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn without_any_answers_there_is_a_summary_all_the_same() {
        let text = sample::silent().to_text();
        assert!(text.contains("nobody looked for what was acknowledged"), "{text}");
        assert!(
            text.ends_with("- nothing was answered\n- 40 requests failed: 40 no answer in time\n"),
            "{text}"
        );
    }
}
