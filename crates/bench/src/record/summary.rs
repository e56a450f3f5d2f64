//! How many figures are ok, which are short, and what failed, from what the sections print.

use std::{
    fmt,
    process::{ExitCode, ExitStatus},
};

use crate::{EXIT_FAILED, EXIT_SHORT};

#[derive(Default)]
pub(crate) struct Summary {
    ok: usize,
    short: Vec<String>,
    failed: Vec<String>,
    /// Of the section that runs.
    failed_in_section: usize,
}

impl Summary {
    /// A line that a section has printed: see [`crate::figures::Figures`].
    pub(crate) fn add(&mut self, line: &str) {
        if let Some(failed) = line.strip_prefix("failed ") {
            self.failed.push(failed.to_owned());
            self.failed_in_section += 1;
        } else if let Some((figure, verdict)) =
            line.strip_prefix("figure ").and_then(|line| line.rsplit_once(": "))
        {
            match verdict {
                "ok" => self.ok += 1,
                // An unknown verdict is not taken for a good one.
                _ => self.short.push(figure.to_owned()),
            }
        }
    }

    /// `None` when the section did not end.
    pub(crate) fn ended(&mut self, section: &str, status: Option<ExitStatus>) {
        let code = status.and_then(|status| status.code());
        let is_known = matches!(code, Some(0)) || code == Some(i32::from(EXIT_SHORT));
        if !is_known && self.failed_in_section == 0 {
            let how = status.map_or("did not end".to_owned(), |status| format!("ended with {status}"));
            self.failed.push(format!("{section}: {how}"));
        }
        self.failed_in_section = 0;
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match (self.failed.is_empty(), self.short.is_empty()) {
            (false, _) => ExitCode::from(EXIT_FAILED),
            (true, false) => ExitCode::from(EXIT_SHORT),
            (true, true) => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ok, short, failed, .. } = self;
        write!(f, "{ok} figures ok, {} short, {} parts failed", short.len(), failed.len())?;
        short.iter().try_for_each(|figure| write!(f, "\nshort {figure}"))?;
        failed.iter().try_for_each(|part| write!(f, "\nfailed {part}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn exited(code: i32) -> Option<ExitStatus> {
        Some(ExitStatus::from_raw(code << 8))
    }

    #[test]
    fn figures_are_counted_and_the_short_ones_named() {
        let mut summary = Summary::default();
        for line in [
            "... the product page",
            "figure product_page_ratio 0.900 ratio (bar 0.7): ok",
            "info product_page_rps 46333 requests/s",
            "figure friday_oracle 0 broken promises (bar 0): ok",
            "figure friday_rate 13107 requests/s (bar 50000): short",
        ] {
            summary.add(line);
        }
        summary.ended("pages", exited(1));
        assert_eq!(
            summary.to_string(),
            "2 figures ok, 1 short, 0 parts failed\nshort friday_rate 13107 requests/s (bar 50000)"
        );
        assert_eq!(summary.exit_code(), ExitCode::from(EXIT_SHORT));
    }

    #[test]
    fn a_section_that_failed_is_named_once() {
        let mut summary = Summary::default();
        summary.add("failed friday: the shop did not start");
        summary.ended("friday", exited(2));
        summary.ended("mongo", exited(101));
        summary.ended("cassandra", None);
        summary.ended("start", exited(0));
        assert_eq!(summary.failed[0], "friday: the shop did not start");
        assert!(summary.failed[1].starts_with("mongo: ended with exit status: 101"));
        assert_eq!(summary.failed[2..], ["cassandra: did not end"]);
        assert_eq!(summary.exit_code(), ExitCode::from(EXIT_FAILED));
    }

    #[test]
    fn a_run_without_short_figures_is_a_success() {
        let mut summary = Summary::default();
        summary.add("figure start_to_ready_ms 328 ms (bar 1000): ok");
        summary.ended("start", exited(0));
        assert_eq!(summary.exit_code(), ExitCode::SUCCESS);
    }
}
