//! What has to be so before the next phase, and what is known of it.

use mobimir_migrate::phase::{HANDOVER_BACKLOG_MAX, Phase};
use serde::Deserialize;
use serde_json::Value;

use super::{number, total};
use crate::migrate_command::text::grouped;

pub(super) struct Gate {
    pub(super) name: &'static str,
    pub(super) evidence: String,
    pub(super) is_met: bool,
}

pub(super) fn gates(status: &Value) -> Vec<Gate> {
    let letters = number(&status["dead_letters_total"]);
    let mut gates = vec![
        followed(&status["instances"]),
        copied(status),
        Gate {
            name: "nothing was left out",
            evidence: format!("{} dead letters", grouped(letters)),
            is_met: letters == 0,
        },
        equal(&status["verification"]),
    ];
    let shadow = &status["shadow"];
    if !shadow.is_null() {
        let (asked, different) = (number(&shadow["asked"]), number(&shadow["different"]));
        gates.push(Gate {
            name: "shoppers would read the same",
            evidence: format!(
                "{} reads asked of both stores, {} different",
                grouped(asked),
                grouped(different)
            ),
            is_met: different == 0,
        });
    }
    for (store, name) in
        [("source", "the target has what is written"), ("target", "the source has what is written")]
    {
        let waiting = status["backlog"][store]["entities"].as_u64();
        gates.push(Gate {
            name,
            evidence: waiting
                .map_or("unknown".to_owned(), |count| format!("{} wait to be copied", grouped(count))),
            // Under load some always wait; the handover itself sees to it that none does.
            is_met: waiting.is_some_and(|waiting| waiting <= HANDOVER_BACKLOG_MAX),
        });
    }
    gates
}

fn followed(instances: &Value) -> Gate {
    let (confirmed, behind) = (number(&instances["confirmed"]), number(&instances["behind"]));
    Gate {
        name: "every instance follows",
        evidence: format!("{confirmed} confirmed the phase, {behind} are behind"),
        // Where nobody is known to follow, nobody is known to be behind either.
        is_met: confirmed > 0 && behind == 0,
    }
}

fn copied(status: &Value) -> Gate {
    let job = &status["backfill"];
    let (done, planned) = (number(&job["ranges_done"]), number(&job["ranges"]));
    let phase = Phase::deserialize(&status["phase"]).ok();
    // After a rollback the job of the time before is still shown, but what it copied has grown old.
    let counts = phase.is_some_and(|phase| phase > Phase::DualWrite);
    // Chosen months are done with when everything is copied.
    let is_part = !status["months"].is_null();
    Gate {
        name: "the past is copied",
        evidence: match (counts, is_part) {
            (false, _) => "not yet".to_owned(),
            (true, false) => format!("{done} of {planned} ranges"),
            (true, true) => format!("{done} of {planned} ranges, of the chosen months only"),
        },
        is_met: counts && !is_part && planned > 0 && done == planned,
    }
}

fn equal(verification: &Value) -> Gate {
    let name = "everything is equal";
    if verification.is_null() {
        return Gate { name, evidence: "nothing has been compared yet".to_owned(), is_met: false };
    }
    let job = &verification["reached"];
    let (compared, planned) = (number(&job["ranges_done"]), number(&job["ranges"]));
    let (seen, tables) = (number(&verification["tables_done"]), number(&verification["tables"]));
    let differences = grouped(total(&verification["differences"]));
    Gate {
        name,
        evidence: format!(
            "{compared} of {planned} planned ranges and {seen} of {tables} tables compared, {differences} differences"
        ),
        is_met: verification["is_green"] == true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migrate_command::text::tests::moving;

    fn gate(status: &Value, name: &str) -> (String, bool) {
        let gate = gates(status).into_iter().find(|gate| gate.name == name).unwrap();
        (gate.evidence, gate.is_met)
    }

    #[test]
    fn what_was_copied_before_a_rollback_does_not_count() {
        let mut status = moving();
        let past = "the past is copied";
        assert_eq!(gate(&status, past), ("64 of 64 ranges".to_owned(), true));
        for phase in ["source", "dual-write"] {
            status["phase"] = json!(phase);
            assert_eq!(gate(&status, past), ("not yet".to_owned(), false));
        }
        status["phase"] = json!("backfill");
        assert!(gate(&status, past).1);
        status["months"] = json!({ "from": "2025-01", "to": "2025-02" });
        assert!(!gate(&status, past).1);
        status["months"] = Value::Null;
        status["backfill"]["ranges_done"] = json!(63);
        assert!(!gate(&status, past).1);
    }

    #[test]
    fn everything_is_equal_only_when_the_comparison_says_so() {
        let mut status = moving();
        let equal = "everything is equal";
        let verification = &mut status["verification"];
        verification["differences"] = json!({});
        verification["reached"]["ranges_done"] = json!(64);
        let said = "64 of 64 planned ranges and 0 of 3 tables compared, 0 differences";
        assert_eq!(gate(&status, equal), (said.to_owned(), false));
        status["verification"]["tables_done"] = json!(3);
        status["verification"]["is_green"] = json!(true);
        let said = "64 of 64 planned ranges and 3 of 3 tables compared, 0 differences";
        assert_eq!(gate(&status, equal), (said.to_owned(), true));
        status["verification"] = Value::Null;
        assert!(!gate(&status, equal).1);
    }

    #[test]
    fn where_nobody_confirmed_nobody_follows() {
        let mut status = moving();
        let follows = "every instance follows";
        assert!(gate(&status, follows).1);
        status["instances"] = json!({ "confirmed": 0, "behind": 0, "gone": 0 });
        assert!(!gate(&status, follows).1);
        status["instances"] = json!({ "confirmed": 2, "behind": 1, "gone": 0 });
        assert!(!gate(&status, follows).1);
    }
}
