//! Shows on stderr how far an import is: a bar on a terminal, a line every now and then elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::online_retail::Progress;

const PLAIN_LINE_EVERY: Duration = Duration::from_secs(2);
const BAR: &str = "{msg:26} [{bar:40}] {percent:>3} %, {eta} left";

pub(super) enum Display {
    Bar(ProgressBar),
    Plain { shown_at: Instant },
}

impl Display {
    pub(super) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Plain { shown_at: Instant::now() };
        }
        let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self::Bar(ProgressBar::new(0).with_style(style.progress_chars("=> ")))
    }

    pub(super) fn show(&mut self, progress: Progress) {
        match self {
            Self::Bar(bar) => {
                bar.set_length(progress.bytes_total);
                bar.set_position(progress.bytes);
                bar.set_message(progress.stage);
            }
            Self::Plain { shown_at } if shown_at.elapsed() >= PLAIN_LINE_EVERY => {
                *shown_at = Instant::now();
                eprintln!("import: {} %, {}", percent(progress), progress.stage);
            }
            Self::Plain { .. } => {}
        }
    }

    pub(super) fn clear(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn percent(progress: Progress) -> u64 {
    (u128::from(progress.bytes) * 100 / u128::from(progress.bytes_total.max(1))) as u64
}
