//! The page: one file that needs nothing else, and no script.

use askama::Template;

use super::{
    Report,
    charts::{self, Figure},
    tables::{self, Table},
    wording::{plain, seconds},
};
use crate::oracle::Findings;

/// How pages of ours look, charts too.
pub const STYLE: &str = include_str!("../../templates/report.css");
/// Of what an event's command has printed.
const OUTPUT_CHARS_MAX: usize = 4_000;

impl Report {
    /// The page as one file.
    pub fn to_html(&self) -> String {
        Page::of(self).render().expect("a string takes everything")
    }
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page {
    style: &'static str,
    profile_name: String,
    target: String,
    started_at: String,
    conditions: String,
    verdict: String,
    faults: Vec<String>,
    facts: Vec<(&'static str, String)>,
    figures: Vec<Figure>,
    sections: Vec<Section>,
    events: Vec<EventPart>,
    examples: Vec<String>,
    was_looked_at: bool,
    not_looked: Option<String>,
    left_out: Vec<String>,
    profile: String,
    machine: String,
    version: String,
    format: u32,
}

/// A table under its heading.
struct Section {
    heading: &'static str,
    table: Table,
}

struct EventPart {
    at_s: String,
    command: String,
    ending: String,
    output: String,
}

impl Page {
    fn of(report: &Report) -> Self {
        let findings = report.findings.as_ref();
        Self {
            style: STYLE,
            profile_name: plain(&report.profile.name),
            target: plain(&report.target),
            started_at: plain(&report.started_at),
            conditions: tables::conditions(report),
            verdict: report.verdict(),
            faults: report.faults().iter().map(|fault| plain(fault)).collect(),
            facts: tables::facts(report),
            figures: charts::figures(report),
            sections: sections(report),
            events: events(report),
            examples: findings
                .into_iter()
                .flat_map(Findings::all_examples)
                .map(|example| plain(&example))
                .collect(),
            left_out: findings
                .into_iter()
                .flat_map(|findings| &findings.left_out)
                .map(|line| plain(line))
                .collect(),
            was_looked_at: findings.is_some(),
            not_looked: findings.and_then(|findings| findings.not_looked.as_deref()).map(plain),
            profile: toml::to_string(&report.profile).unwrap_or_else(|error| error.to_string()),
            machine: plain(&report.machine),
            version: plain(&report.version),
            format: report.format,
        }
    }
}

fn sections(report: &Report) -> Vec<Section> {
    let findings = report.findings.as_ref();
    let promises = findings.map(|findings| Section {
        heading: "What was acknowledged, looked for",
        table: tables::promises(report, findings),
    });
    let sections = [
        Some(Section { heading: "Operations", table: tables::operations(report) }),
        Some(Section { heading: "Reads and writes", table: tables::classes(report) }),
        Some(Section { heading: "Failures", table: tables::failures(report) }),
        Some(Section { heading: "Rates that were tried before", table: tables::steps(report) }),
        promises,
        findings.map(|findings| Section {
            heading: "Rules that answers were checked against",
            table: tables::rules(findings, false),
        }),
    ];
    sections.into_iter().flatten().filter(|section| !section.table.is_empty()).collect()
}

fn events(report: &Report) -> Vec<EventPart> {
    let parts = report.events.iter().map(|event| {
        let output: Vec<String> = event.output.lines().map(plain).collect();
        EventPart {
            at_s: seconds(event.at_s),
            command: plain(&event.command),
            ending: tables::ending(event),
            output: output.join("\n").chars().take(OUTPUT_CHARS_MAX).collect(),
        }
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Event, sample};
    use crate::rules::{AnswerCheck, Example};

    const EVIL: &str = r#"</pre><script>alert("1")</script>"#;

    /// Every element that is opened is closed, in the right order, and no attribute's quotes are left open.
    fn assert_balanced(html: &str) {
        const VOID: [&str; 2] = ["meta", "br"];
        let html = html.strip_prefix("<!doctype html>").expect("a doctype");
        let mut open: Vec<&str> = Vec::new();
        let mut rest = html;
        while let Some(begin) = rest.find('<') {
            let tag = &rest[begin + 1..];
            let end = tag.find('>').unwrap_or_else(|| panic!("a tag without an end: {tag:.80}"));
            let (tag, after) = (&tag[..end], &tag[end + 1..]);
            assert!(!tag.contains('<') && tag.matches('"').count() % 2 == 0, "in <{tag}>");
            let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or_default();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "closed by <{tag}>");
            } else if !tag.ends_with('/') && !VOID.contains(&name) {
                open.push(name);
            }
            rest = after;
        }
        assert!(open.is_empty(), "left open: {open:?}");
    }

    #[test]
    fn a_page_tells_everything() {
        let html = sample::report(60, 1.0).to_html();
        assert_balanced(&html);
        for told in [
            "good: sent as planned, nothing failed",
            "p99.9 ms",
            "product_page",
            "limit of p99: 200 ms",
            "STK-1, STK-2",
            "requests/s",
            "time, s",
            "2 cores, 8 GiB",
            "weighted by their",
            "cart_contents",
            "prefers-color-scheme: dark",
        ] {
            assert!(html.contains(told), "{told}");
        }
        assert_eq!(html.matches("<svg").count(), 4);
        assert_eq!(html.matches("<desc").count(), 4);
        for foreign in ["<script", "<link", "src=", "url(", "NaN"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn the_profile_stands_as_it_would_in_its_file() {
        let report = sample::report(3, 1.0);
        let text = toml::to_string(&report.profile).expect("toml");
        let parsed = crate::profile::Profile::parse(&text, "page").expect("a profile");
        assert_eq!(parsed, report.profile);
        assert!(report.to_html().contains("[mix]\n"));
    }

    #[test]
    fn short_long_and_silent_runs_have_a_page() {
        for report in [sample::report(1, 1.0), sample::report(3_600, 1.0), sample::silent()] {
            let html = report.to_html();
            assert_balanced(&html);
            assert!(!html.contains("NaN") && !html.contains("inf\""), "{}", report.lasts_s);
        }
        let mut nothing = sample::silent();
        nothing.seconds.clear();
        nothing.operations.clear();
        (nothing.planned, nothing.sent, nothing.sent_share, nothing.lasts_s) = (0, 0, 0.0, 0.0);
        let html = nothing.to_html();
        assert_balanced(&html);
        assert!(html.contains("nothing was measured") && html.contains("not valid"));
    }

    #[test]
    fn nothing_from_outside_is_markup() {
        let mut report = sample::report(5, 1.0);
        let evil = || EVIL.to_owned();
        (report.target, report.machine, report.started_at, report.version) = (evil(), evil(), evil(), evil());
        (report.profile.name, report.profile.description) = (evil(), evil());
        report.events = vec![Event { at_s: 2.0, command: evil(), exit_code: Some(0), output: evil() }];
        let findings = report.findings.as_mut().expect("in the sample");
        (findings.examples, findings.not_looked) = (vec![evil()], Some(evil()));
        findings.left_out = vec![evil()];
        let example = Some(Example { request: evil(), expected: evil(), got: evil() });
        findings.answers = [(evil(), AnswerCheck { checked: 1, wrong: 1, example })].into();
        let product = report.operations.values_mut().next().expect("in the sample");
        product.failed = [(evil(), 1)].into();
        let html = report.to_html();
        assert_balanced(&html);
        assert!(!html.contains("<script"));
        assert!(html.contains("It could not be finished: &"), "{html}");
    }
}
