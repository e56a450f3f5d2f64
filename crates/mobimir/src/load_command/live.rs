//! What people see while a run goes on: a bar and the last second in a terminal, a line now and then elsewhere.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use mobimir_load::{Second, findmax::Step};

/// Elsewhere than in a terminal, a line every so many seconds.
const LINE_EVERY_S: u64 = 10;

pub(super) struct Live {
    bar: ProgressBar,
    terminal: bool,
    lasts: Duration,
}

impl Live {
    pub(super) fn new() -> Self {
        Self {
            bar: ProgressBar::no_length(),
            terminal: std::io::stderr().is_terminal(),
            lasts: Duration::ZERO,
        }
    }

    /// Before a run and after it.
    pub(super) fn prepares(&mut self, what: &str, done: u64, all: u64) {
        self.styled("{msg:<24} {bar:30} {pos}/{len}");
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.bar.set_message(what.to_owned());
        if done == all {
            self.bar.set_message(String::new());
        }
    }

    pub(super) fn begins(&mut self, rate: f64, lasts: Duration) {
        self.lasts = lasts;
        self.styled("{bar:20} {pos}/{len} s  {msg}");
        self.bar.set_length(lasts.as_secs().max(1));
        self.bar.set_position(0);
        self.bar.set_message(String::new());
        self.says(&format!("sending {rate:.0} requests/s for {:.0} s", lasts.as_secs_f64()));
    }

    pub(super) fn second(&mut self, second: &Second, at: Duration) {
        let worst = second.operations.values().map(|latency| latency.p99_us).max().unwrap_or_default();
        let Second { sent, answered, shed, failed, .. } = second;
        let line = format!(
            "{sent}/s sent, {answered}/s answered, p99 at most {:.1} ms, {shed} shed, {failed} failed",
            worst as f64 / 1_000.0
        );
        self.bar.set_position(at.as_secs().min(self.lasts.as_secs()));
        self.bar.set_message(line.clone());
        if !self.terminal && at.as_secs().is_multiple_of(LINE_EVERY_S) {
            eprintln!("{:>4} s: {line}", at.as_secs());
        }
    }

    /// A step of the search for the highest rate.
    pub(super) fn stepped(&mut self, step: &Step) {
        self.says(&format!(
            "{:>8.0} requests/s: {}; p99 {:.1} ms of reads, {:.1} ms of writes, sent {:.2} %",
            step.rate,
            if step.could { "within the limits" } else { "too much" },
            step.read_p99_us as f64 / 1_000.0,
            step.write_p99_us as f64 / 1_000.0,
            step.sent_share * 100.0,
        ));
    }

    pub(super) fn says(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub(super) fn ends(&self) {
        self.bar.finish_and_clear();
    }

    fn styled(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }
}
