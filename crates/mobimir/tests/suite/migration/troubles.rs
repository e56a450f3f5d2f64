//! When shoppers may have been failed, and whether anybody was at another time.

use std::fmt;

use serde_json::Value;

use super::world::{ENTITIES, World, now_ms, tell};

/// So long after the end of a trouble, what it made wait has its answer.
const AFTERMATH_MS: i64 = 20_000;
/// How long a write waits for a handover before it is answered 503, as `docs/migration.md` has it.
const HANDOVER_WAIT_MS_MAX: i64 = 8_000;
/// A handover is given up after 20 s. Going back waits at most for a lease (11 s) and for writes that may
/// still arrive (12 s). Ten times as long for a slow machine: this finds handovers that do not end.
const HANDOVER_MS_MAX: i64 = 10 * (20_000 + 11_000 + 12_000);

/// In so many single seconds requests may be shed for want of processors.
const SHED_SECONDS_MAX: usize = 3;

/// A time in which requests may fail, and why.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    why: String,
    /// The instance that fails; `None` for all.
    host: Option<String>,
    from_ms: i64,
    until_ms: i64,
    /// Nobody loses an answer, but may be told to come again.
    only_refused: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Troubles(Vec<Trouble>);

/// A request that was not done, as far as its shopper knows.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) host: String,
    pub(crate) began_ms: i64,
    pub(crate) ended_ms: i64,
    /// The shop has answered that it cannot now.
    pub(crate) is_refused: bool,
    pub(crate) what: String,
}

impl Troubles {
    /// From now on; [`Troubles::is_over`] ends it.
    pub(crate) fn begins(&mut self, why: String, host: Option<String>) {
        let (from_ms, until_ms) = (now_ms(), i64::MAX);
        self.0.push(Trouble { why, host, from_ms, until_ms, only_refused: false });
    }

    pub(crate) fn is_over(&mut self) {
        for trouble in self.0.iter_mut().filter(|trouble| trouble.until_ms == i64::MAX) {
            trouble.until_ms = now_ms();
        }
    }

    /// Handovers, in which writes wait and may be answered 503, by the timelines of the migrations. One
    /// that was over before any write could have waited too long excuses nothing.
    pub(crate) async fn with_handovers(mut self, world: &World) -> Self {
        let mut handovers = Vec::new();
        for entity in ENTITIES {
            let status = world.status_in_time(entity).await;
            let mut began: Option<i64> = None;
            for line in status["timeline"].as_array().unwrap() {
                let (at_ms, what) = (milliseconds(&line["at"]), line["what"].as_str().unwrap());
                let Some((phase, _)) = what.split_once(" after ") else { continue };
                match (phase, began) {
                    ("handover" | "switch", None) => began = Some(at_ms),
                    ("handover" | "switch", Some(_)) => {}
                    (_, Some(from_ms)) => {
                        let lasted_ms = at_ms - from_ms;
                        tell(&format!("a handover of {entity} of {lasted_ms} ms"));
                        assert!(lasted_ms <= HANDOVER_MS_MAX, "a handover of {entity} lasted {lasted_ms} ms");
                        handovers.push((from_ms, at_ms));
                        began = None;
                    }
                    _ => {}
                }
            }
            assert_eq!(began, None, "a handover of {entity} has not ended");
        }
        assert!(!handovers.is_empty(), "nothing was handed over");
        for (from_ms, until_ms) in joined(handovers) {
            // An instance learns of the end a little later than it is written down.
            if until_ms - from_ms >= HANDOVER_WAIT_MS_MAX / 2 {
                let why = format!("handovers of {} ms", until_ms - from_ms);
                self.0.push(Trouble { why, host: None, from_ms, until_ms, only_refused: true });
            }
        }
        self
    }

    fn excuses(&self, failure: &Failure) -> bool {
        self.0.iter().any(|trouble| {
            trouble.host.as_ref().is_none_or(|host| *host == failure.host)
                && (failure.is_refused || !trouble.only_refused)
                && failure.began_ms <= trouble.until_ms
                && failure.ended_ms >= trouble.from_ms
        })
    }

    /// Nobody was failed but in trouble.
    pub(crate) fn explain(&self, failures: &[Failure]) {
        let unexplained: Vec<String> =
            failures.iter().filter(|failure| !self.excuses(failure)).map(Failure::to_string).collect();
        let troubles: Vec<String> = self.0.iter().map(Trouble::to_string).collect();
        assert!(unexplained.is_empty(), "failed without a reason: {unexplained:#?}\n{troubles:#?}");
    }

    /// The same of a crowd that has counted second by second.
    pub(crate) fn explain_report(&self, host: &str, report: &Value) {
        let started_ms = milliseconds(&report["started_at"]);
        let mut failures = Vec::new();
        let mut count = [0; 2];
        for (second, numbers) in (0..).zip(report["seconds"].as_array().unwrap()) {
            let at_ms = started_ms + second * 1_000;
            for (kind, name) in ["failed", "shed"].into_iter().enumerate() {
                let number = numbers[name].as_u64().unwrap();
                count[kind] += number;
                if number > 0 {
                    failures.push(Failure {
                        host: host.to_owned(),
                        began_ms: at_ms - AFTERMATH_MS,
                        ended_ms: at_ms + 1_000,
                        is_refused: name == "shed",
                        what: format!("{number} {name}"),
                    });
                }
            }
        }
        tell(&format!("of the crowd {} requests failed and {} were told to come again", count[0], count[1]));
        // Admission control sheds what has waited too long, also because other jobs keep the machine busy: a
        // few are no fault of the migration. A gate that stays shut refuses everybody for seconds.
        let refused: Vec<&Failure> =
            failures.iter().filter(|failure| failure.is_refused && !self.excuses(failure)).collect();
        if refused.len() <= SHED_SECONDS_MAX {
            failures = failures.iter().filter(|failure| !failure.is_refused).cloned().collect();
        }
        self.explain(&failures);
    }
}

/// Spans of time, with those that overlap joined: a request may wait for one entity after the other.
fn joined(mut spans: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    spans.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (from, until) in spans {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => joined.push((from, until)),
        }
    }
    joined
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, host, from_ms, until_ms, .. } = self;
        write!(f, "{from_ms} to {until_ms} ms at {}: {why}", host.as_deref().unwrap_or("all"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, began_ms, ended_ms, what, .. } = self;
        write!(f, "{began_ms} to {ended_ms} ms at {host}: {what}")
    }
}

fn milliseconds(text: &Value) -> i64 {
    mobimir_core::time::Timestamp::parse(text.as_str().unwrap()).unwrap().as_millis()
}
