//! Commands at given times of a run: a node is killed, a data centre paused, a migration moved on.

use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use mobimir_load::report;

/// How often a waiting event looks whether the run was ended.
const LOOK: Duration = Duration::from_millis(50);
const OUTPUT_CHARS_MAX: usize = 2_000;

#[derive(Clone, Debug)]
pub(super) struct Event {
    at: Duration,
    command: String,
}

impl Event {
    /// `20s mobimir lab stop-node 2 --kill`
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected a time and a command, like '20s mobimir lab stop-node 2', got {text:?}");
        let (at, command) = text.trim().split_once(char::is_whitespace).ok_or_else(expected)?;
        Ok(Self { at: super::period(at)?, command: command.trim().to_owned() })
    }
}

pub(super) struct Running {
    events: Vec<JoinHandle<Option<report::Event>>>,
    over: Arc<AtomicBool>,
}

/// The run begins now.
pub(super) fn start(events: &[Event]) -> Running {
    let started = Instant::now();
    let over = Arc::new(AtomicBool::new(false));
    let start = |event: &Event| {
        let (event, over) = (event.clone(), over.clone());
        thread::spawn(move || {
            while started.elapsed() < event.at {
                // Not into the look at everything afterwards.
                if over.load(Ordering::Relaxed) {
                    return None;
                }
                thread::sleep(LOOK.min(event.at.saturating_sub(started.elapsed())));
            }
            let at_s = started.elapsed().as_secs_f64();
            let ran = Command::new("sh").args(["-c", &event.command]).stdin(Stdio::null()).output();
            let (exit_code, output) = match ran {
                Ok(output) => {
                    let text = [output.stdout, output.stderr].concat();
                    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
                }
                Err(error) => (None, error.to_string()),
            };
            let output = output.chars().take(OUTPUT_CHARS_MAX).collect();
            Some(report::Event { at_s, command: event.command, exit_code, output })
        })
    };
    let events = events.iter().map(start).collect();
    Running { events, over }
}

impl Running {
    /// The run is over. Waits for those that have begun; the others are not begun any more.
    pub(super) fn end(self) -> Vec<report::Event> {
        self.over.store(true, Ordering::Relaxed);
        self.events.into_iter().filter_map(|event| event.join().ok().flatten()).collect()
    }
}
