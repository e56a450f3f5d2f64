//! What the commands of the lab show.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use mobimir_lab::Step;
use serde::Serialize;

const TICK: Duration = Duration::from_millis(100);

/// Shows each step of a start.
pub(super) fn show_steps<T>(start: impl FnOnce(&mut dyn FnMut(Step)) -> T) -> T {
    let steps = Steps::new();
    let started = start(&mut |step| steps.show(&step));
    steps.finish();
    started
}

/// What a start does: one line that changes for people who watch, one line a step for a log.
struct Steps {
    bar: Option<ProgressBar>,
}

impl Steps {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| spinner(String::new()));
        Steps { bar }
    }

    fn show(&self, step: &Step) {
        match &self.bar {
            Some(bar) if step.is_done() => bar.println(format!("✓ {step}")),
            Some(bar) => bar.set_message(step.to_string()),
            None if step.is_detail() => {}
            None => eprintln!("{step}"),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows that something goes on that takes seconds.
pub(super) fn waiting<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        eprintln!("{what}");
        return work();
    }
    let bar = spinner(what.to_owned());
    let done = work();
    bar.finish_and_clear();
    done
}

fn spinner(message: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner().with_style(style).with_message(message);
    bar.enable_steady_tick(TICK);
    bar
}

pub(super) fn print_json(servers: &impl Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(servers)?))
}

/// A reader who has seen enough (`| head`) is no failure.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the answer")
        }
        _ => Ok(()),
    }
}

pub(super) fn or_none(value: Option<u32>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
