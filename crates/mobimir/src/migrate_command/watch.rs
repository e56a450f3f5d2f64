//! `mobimir migrate status --watch`: a migration while it goes on.

use std::time::Duration;

use anyhow::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    OfEntity, TICK, show, status,
    text::{grouped, one_line, pace, status_text, word},
};
use crate::client::Refused;

const POLL_PERIOD: Duration = Duration::from_millis(500);
/// Questions that fail one after the other before it is given up: an instance that is started again takes a while.
const FAILED_POLLS_MAX: u32 = 20;
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Shows it until it neither goes anywhere nor has anything to do.
pub(super) async fn watch(of: &OfEntity) -> Result<()> {
    let token = of.token()?;
    let bar = ProgressBar::new(1).with_prefix(of.entity.name());
    // What is last is cut where the line ends.
    bar.set_style(ProgressStyle::with_template("{spinner} {prefix} {bar:30} {elapsed} {wide_msg}")?);
    bar.enable_steady_tick(TICK);
    let (mut was_heard, mut failed) = (false, 0);
    loop {
        match status(of, &token).await {
            Ok(now) if is_at_rest(&now) => {
                bar.finish_and_clear();
                return show(of, &now, status_text);
            }
            Ok(now) => {
                (was_heard, failed) = (true, 0);
                View::of(&now).draw(&bar);
                sleep(POLL_PERIOD).await;
            }
            Err(error) if failed < FAILED_POLLS_MAX && is_passing(&error, was_heard) => {
                failed += 1;
                bar.set_message(format!("asking again ({failed}/{FAILED_POLLS_MAX}): {error:#}"));
                sleep(FAILURE_PAUSE).await;
            }
            Err(error) => {
                bar.finish_and_clear();
                return Err(error);
            }
        }
    }
}

fn is_at_rest(status: &Value) -> bool {
    status["wanted"].is_null() && status["working"].is_null()
}

/// Whether it may go away by itself. Where nobody has answered yet, the address is more likely to be wrong.
fn is_passing(error: &Error, was_heard: bool) -> bool {
    match error.downcast_ref::<Refused>() {
        Some(refused) => refused.status.is_server_error(),
        None => was_heard,
    }
}

/// What stands beside the bar, and how long the bar is.
#[derive(Debug, PartialEq, Eq)]
struct View {
    name: String,
    done: u64,
    planned: u64,
    said: String,
}

impl View {
    fn of(status: &Value) -> Self {
        let working = status["working"].as_str();
        let (entity, phase) = (word(status, "entity"), word(status, "phase"));
        let name = match working {
            Some(working) if working != phase => format!("{entity} {phase}: {working}"),
            _ => format!("{entity} {phase}"),
        };
        let null = Value::Null;
        let (job, tables) = match working {
            Some("backfill" | "months") => (&status["backfill"], &null),
            Some("verify") => (&status["verification"]["reached"], &status["verification"]),
            Some("repair") => (&status["repair"], &status["repair"]),
            Some("recheck") => (&status["recheck"]["reached"], &status["recheck"]),
            Some(_) | None => (&null, &null),
        };
        let count = |of: &Value, name: &str| of[name].as_u64().unwrap_or_default();
        let (ranges, ranges_done) = (count(job, "ranges"), count(job, "ranges_done"));
        let (all, looked_through) = (count(tables, "tables"), count(tables, "tables_done"));
        if working.is_none() {
            let waits = status["blocked_by"].as_array().and_then(|reasons| reasons.first()?.as_str());
            let waits = waits.map(|reason| format!(", waits: {}", one_line(reason))).unwrap_or_default();
            let said = format!("on its way to {}{waits}", word(status, "wanted"));
            Self { name, done: 0, planned: 1, said }
        } else if job.is_null() {
            // Somebody has to take it up first, and to cut it into ranges.
            Self { name, done: 0, planned: 1, said: "is about to begin".to_owned() }
        } else if ranges_done >= ranges && looked_through < all {
            // After the switch the source is the one that is looked through.
            let other = if phase == "read-target" { "source" } else { "target" };
            let rows = grouped(count(tables, "rows"));
            let said = format!("{rows} rows of the {other} looked at, {looked_through}/{all} tables");
            Self { name, done: looked_through, planned: all, said }
        } else {
            let said = [format!("{ranges_done}/{ranges} ranges"), pace(job)];
            let said = said.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
            Self { name, done: ranges_done, planned: ranges, said }
        }
    }

    fn draw(self, bar: &ProgressBar) {
        bar.set_prefix(self.name);
        bar.set_length(self.planned);
        bar.set_position(self.done);
        bar.set_message(self.said);
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use serde_json::json;

    use super::*;
    use crate::migrate_command::text::tests::moving;

    fn shown(status: &Value) -> (u64, u64, String) {
        let View { done, planned, said, .. } = View::of(status);
        (done, planned, said)
    }

    #[test]
    fn it_is_watched_until_it_stands_still() {
        let mut status = moving();
        assert!(!is_at_rest(&status));
        status["wanted"] = Value::Null;
        assert!(!is_at_rest(&status), "the work is not done");
        // Paused in the middle, or rolled back: the job is not done and never will be.
        status["working"] = Value::Null;
        assert!(is_at_rest(&status));
        status["wanted"] = json!("read-target");
        assert!(!is_at_rest(&status), "it is on its way");
    }

    #[test]
    fn the_work_that_is_to_be_done_is_shown() {
        let mut status = moving();
        assert_eq!(View::of(&status).name, "orders verify");
        let pace = "32/64 ranges, 2 000 entities/s, about 30 s left".to_owned();
        assert_eq!(shown(&status), (32, 64, pace));
        let verification = &mut status["verification"];
        verification["reached"] = json!({ "ranges": 64, "ranges_done": 64 });
        (verification["tables_done"], verification["rows"]) = (json!(1), json!(360_000));
        let tables = "360 000 rows of the target looked at, 1/3 tables".to_owned();
        assert_eq!(shown(&status), (1, 3, tables));
        status["verification"]["tables_done"] = json!(3);
        assert_eq!(shown(&status), (64, 64, "64/64 ranges".to_owned()));
        status["verification"] = Value::Null;
        assert_eq!(shown(&status), (0, 1, "is about to begin".to_owned()));
        status["working"] = json!("months");
        assert_eq!(shown(&status), (64, 64, "64/64 ranges".to_owned()));
        status["working"] = Value::Null;
        let waits =
            "on its way to read-target, waits: no comparison has found everything equal since the backfill";
        assert_eq!(shown(&status), (0, 1, waits.to_owned()));
    }

    #[test]
    fn after_the_switch_the_source_is_looked_through() {
        let mut status = moving();
        (status["phase"], status["working"]) = (json!("read-target"), json!("recheck"));
        let reached = json!({ "ranges": 8, "ranges_done": 8 });
        status["recheck"] = json!({ "reached": reached, "tables": 2, "tables_done": 0, "rows": 7 });
        let tables = "7 rows of the source looked at, 0/2 tables".to_owned();
        assert_eq!(shown(&status), (0, 2, tables));
    }

    #[test]
    fn what_passes_is_waited_for_and_what_is_wrong_is_said() {
        let refused = |status| Error::new(Refused { url: String::new(), status, detail: String::new() });
        assert!(is_passing(&refused(StatusCode::SERVICE_UNAVAILABLE), false));
        assert!(!is_passing(&refused(StatusCode::NOT_FOUND), true));
        let silent = Error::msg("no shop answers");
        assert!(is_passing(&silent, true));
        assert!(!is_passing(&silent, false));
    }
}
