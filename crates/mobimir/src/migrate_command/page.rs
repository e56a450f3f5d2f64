//! A migration as one page, for somebody who has to answer for it: what happened and when, how fast, what was found and
//! mended, and what the gates were opened by.

mod gates;

use askama::Template;
use mobimir_core::time::Timestamp;
use mobimir_load::report::{
    STYLE,
    svg::{Limit, Line, LineChart, Mark, Scale},
};
use serde_json::Value;

use self::gates::{Gate, gates};
use super::text::{grouped, lasting, word};

/// What is shorter says nothing about how fast it went.
const SAMPLE_MS_MIN: i64 = 500;
/// From here on copying gives way.
const FELT_LIMIT: f64 = 0.8;

#[derive(Template)]
#[template(path = "migration.html")]
struct Page {
    style: &'static str,
    title: String,
    phase: String,
    since: String,
    made: String,
    is_good: bool,
    verdict: String,
    reasons: Vec<String>,
    facts: Vec<(&'static str, String)>,
    phases: Vec<PhaseBar>,
    figures: Vec<Figure>,
    gates: Vec<Gate>,
    tables: Vec<Table>,
}

/// A phase, and where it lies in the time of the whole migration.
struct PhaseBar {
    name: String,
    began: String,
    lasted: String,
    left_percent: String,
    width_percent: String,
}

struct Figure {
    heading: &'static str,
    svg: String,
    caption: String,
}

struct Table {
    heading: &'static str,
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    none: &'static str,
}

pub(super) fn page(status: &Value) -> String {
    let title =
        format!("{}: {} → {}", word(status, "entity"), word(status, "source"), word(status, "target"));
    let reasons = strings(&status["blocked_by"]);
    let (is_good, verdict) = verdict(status);
    let page = Page {
        style: STYLE,
        title,
        phase: word(status, "phase").to_owned(),
        since: word(status, "phase_since").to_owned(),
        made: word(status, "at").to_owned(),
        is_good,
        verdict,
        reasons,
        facts: facts(status),
        phases: phases(status),
        figures: figures(status),
        gates: gates(status),
        tables: tables(status),
    };
    page.render().expect("a string takes everything")
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn total(by_kind: &Value) -> u64 {
    by_kind.as_object().into_iter().flatten().map(|(_, count)| number(count)).sum()
}

fn verdict(status: &Value) -> (bool, String) {
    let phase = word(status, "phase");
    let letters = number(&status["dead_letters_total"]);
    if letters > 0 {
        return (false, format!("{} could not be copied", grouped(letters)));
    }
    let last = outcomes(status).last().map(|last| total(&last["differences"]));
    if let Some(differences) = last.filter(|differences| *differences > 0) {
        return (false, format!("{} differences wait to be seen to", grouped(differences)));
    }
    // Later on reads are the target's, and what was asked before is history.
    let different = number(&status["shadow"]["different"]);
    if phase == "verify" && different > 0 {
        let said =
            format!("{} reads of shoppers were answered differently by the target", grouped(different));
        return (false, said);
    }
    let said = match (last, phase) {
        (None, _) => "Under way; nothing has been compared yet",
        (_, "read-target" | "target") => "Everything has arrived: the last comparison found no difference",
        _ => "So far nothing differs",
    };
    (true, said.to_owned())
}

fn facts(status: &Value) -> Vec<(&'static str, String)> {
    let backfill = &status["backfill"];
    // A repair finds what the comparison before it has found.
    let (repairs, comparisons): (Vec<_>, Vec<_>) =
        outcomes(status).partition(|outcome| outcome["purpose"] == "repair");
    let found: u64 = comparisons.iter().map(|outcome| total(&outcome["differences"])).sum();
    let mended: u64 = repairs.iter().map(|outcome| number(&outcome["mended"])).sum();
    let shadow = &status["shadow"];
    let mut facts = vec![
        ("phase", format!("{} since {}", word(status, "phase"), word(status, "phase_since"))),
        ("copied", format!("{} of the past{}", grouped(number(&backfill["entities"])), mean_rate(backfill))),
        ("differences", format!("{} found, {} mended", grouped(found), grouped(mended))),
        ("dead letters", grouped(number(&status["dead_letters_total"]))),
    ];
    if !shadow.is_null() {
        let (asked, different) = (number(&shadow["asked"]), number(&shadow["different"]));
        facts
            .push(("shadow reads", format!("{} compared, {} different", grouped(asked), grouped(different))));
    }
    facts
}

fn outcomes(status: &Value) -> impl Iterator<Item = &Value> {
    status["outcomes"].as_array().into_iter().flatten()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str().and_then(|text| Timestamp::parse(text).ok())
}

/// Over the whole of it, pauses too.
fn mean_rate(job: &Value) -> String {
    let samples = job["pace"]["samples"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ends = samples.first().zip(samples.last());
    let took_ms = ends.and_then(|(first, last)| Some(time(&last["at"])?.since(time(&first["at"])?)));
    match took_ms.filter(|ms| *ms > 0) {
        Some(ms) => {
            let rate = number(&job["entities"]) as f64 * 1_000.0 / ms as f64;
            format!(" in {}, {} a second", lasting(ms.unsigned_abs() / 1_000), grouped(rate.round() as u64))
        }
        None => String::new(),
    }
}

/// Phases as the timeline has them: a line says `verify after backfill`. The present one lasts until the status was made.
fn phases(status: &Value) -> Vec<PhaseBar> {
    let lines: Vec<(Timestamp, String)> = status["timeline"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|line| Some((time(&line["at"])?, word(line, "what").to_owned())))
        .collect();
    let (Some((start, _)), Some((last, _))) = (lines.first(), lines.last()) else { return Vec::new() };
    // Whoever wrote the last line may have a clock that is ahead.
    let end = time(&status["at"]).map_or(*last, |made| made.max(*last));
    let mut began: Vec<(Timestamp, String)> = vec![(*start, "source".to_owned())];
    for (at, what) in &lines {
        if let Some((phase, rest)) = what.split_once(" after ")
            && !phase.contains(' ')
            && !rest.is_empty()
        {
            began.push((*at, phase.to_owned()));
        }
    }
    let whole_ms = end.since(*start).max(1) as f64;
    let ends = began.iter().skip(1).map(|(at, _)| *at).chain([end]).collect::<Vec<_>>();
    began
        .iter()
        .zip(ends)
        .map(|((at, name), until)| PhaseBar {
            name: name.clone(),
            began: at.to_string(),
            lasted: lasting(until.since(*at).unsigned_abs() / 1_000),
            left_percent: format!("{:.2}", at.since(*start) as f64 * 100.0 / whole_ms),
            width_percent: format!("{:.2}", (until.since(*at) as f64 * 100.0 / whole_ms).max(0.4)),
        })
        .collect()
}

struct Drawn {
    heading: &'static str,
    id: &'static str,
    name: &'static str,
    unit: &'static str,
    caption: &'static str,
    limit: Option<Limit>,
}

fn figures(status: &Value) -> Vec<Figure> {
    let per_second = |before: &Value, after: &Value, ms: f64| {
        let entities = number(&after["entities"]).saturating_sub(number(&before["entities"]));
        Some(entities as f64 * 1_000.0 / ms)
    };
    let felt = |_: &Value, after: &Value, _: f64| after["felt"].as_f64();
    let limit = Limit { value: FELT_LIMIT, label: "copying gives way".to_owned() };
    let copied = Drawn {
        heading: "Copying the past",
        id: "copied",
        name: "copied",
        unit: "entities/s",
        caption: "Entities copied in a second. What is written meanwhile is copied beside this.",
        limit: None,
    };
    let pressure = Drawn {
        heading: "What shoppers felt meanwhile",
        id: "felt",
        name: "felt",
        unit: "share of the limit",
        caption: "The greatest of: p99 of reads and of writes against the policy, lag of MongoDB, overload of Cassandra.",
        limit: Some(limit),
    };
    let compared = Drawn {
        heading: "Comparing",
        id: "compared",
        name: "compared",
        unit: "entities/s",
        caption: "Entities compared with every table of the target in a second.",
        limit: None,
    };
    let (backfill, verification) = (&status["backfill"], &status["verification"]["reached"]);
    [
        figure(copied, backfill, per_second),
        figure(pressure, backfill, felt),
        figure(compared, verification, per_second),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn figure(drawn: Drawn, job: &Value, value: impl Fn(&Value, &Value, f64) -> Option<f64>) -> Option<Figure> {
    let samples = job["pace"]["samples"].as_array()?;
    let start = time(&samples.first()?["at"])?;
    let points: Vec<(f64, Option<f64>)> = samples
        .windows(2)
        .filter_map(|pair| {
            let (before, after) = (time(&pair[0]["at"])?, time(&pair[1]["at"])?);
            // The last one is taken when the work ends, which may be right after another.
            let ms = Some(after.since(before)).filter(|ms| *ms >= SAMPLE_MS_MIN)? as f64;
            Some((after.since(start) as f64 / 1_000.0, value(&pair[0], &pair[1], ms)))
        })
        .collect();
    let lasts_s = points.last()?.0;
    let Drawn { heading, id, name, unit, caption, limit } = drawn;
    let marks: [Mark; 0] = [];
    let lines = vec![Line { name, points }];
    let description = format!("{unit} over {}", lasting(lasts_s as u64));
    let chart = LineChart {
        id,
        title: heading,
        description,
        unit,
        scale: Scale::Linear,
        lasts_s,
        lines,
        limit,
        marks: &marks,
    };
    Some(Figure { heading, svg: chart.to_string(), caption: caption.to_owned() })
}

fn tables(status: &Value) -> Vec<Table> {
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Number(count) => count.as_u64().map_or_else(|| count.to_string(), grouped),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let rows = |list: &Value, fields: &[&str]| -> Vec<Vec<String>> {
        let row = |item: &Value| fields.iter().map(|field| shown(&item[*field])).collect();
        list.as_array().into_iter().flatten().map(row).collect()
    };
    let table = |heading, heads: &[&'static str], list: &Value, fields: &[&str], none| Table {
        heading,
        heads: heads.to_vec(),
        rows: rows(list, fields),
        none,
    };
    let verification = &status["verification"]["first_differences"];
    let recheck = &status["recheck"]["first_differences"];
    let compared = ["at", "purpose", "entities", "rows", "ranges", "ranges_planned", "differences", "mended"];
    let compared_heads =
        ["at", "purpose", "entities", "rows", "ranges and tables", "planned", "differences", "mended"];
    let differing = ["table", "key", "kind", "fields"];
    vec![
        table(
            "Comparisons and repairs",
            &compared_heads,
            &status["outcomes"],
            &compared,
            "Nothing has been compared yet.",
        ),
        table("Differences of the last comparison", &differing, verification, &differing, "None."),
        table("Differences after the switch", &differing, recheck, &differing, "None."),
        table(
            "Shadow reads that differed",
            &["at", "what", "as the source says and as the target does"],
            &status["shadow"]["samples"],
            &["at", "what", "fields"],
            "None.",
        ),
        table(
            "What could not be copied",
            &["key", "reason", "at", "attempts"],
            &status["dead_letters"],
            &["key", "reason", "at", "attempts"],
            "Nothing.",
        ),
        table("What happened", &["at", "what"], &status["timeline"], &["at", "what"], "Nothing."),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migrate_command::text::tests::moving;

    #[test]
    fn the_page_has_what_was_found_and_what_the_gates_say() {
        let page = page(&moving());
        for part in [
            "orders: mongodb → cassandra",
            "1 differences wait to be seen to",
            "120 000 of the past in 60 s, 2 000 a second",
            "orders_by_day",
            "32 of 64 planned ranges and 0 of 3 tables compared, 1 differences",
            "made at 2025-11-28T09:05:00.000Z",
            "40 reads asked of both stores, 1 different",
            "dual-write",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<1>"), "{page}");
        assert_eq!(page.matches("<svg").count(), 2, "{page}");
        assert_eq!(page.matches("class=\"phase\"").count(), 4, "{page}");
    }

    #[test]
    fn what_is_found_by_a_comparison_and_mended_by_a_repair_is_counted_once() {
        let mut status = moving();
        let outcome = |purpose: &str, differences: Value, mended: u64| json!({ "at": "2025-11-28T09:03:00.000Z", "purpose": purpose, "differences": differences, "mended": mended });
        status["outcomes"] = json!([
            outcome("verify", json!({ "missing": 2, "stale": 1 }), 0),
            outcome("repair", json!({}), 3),
            outcome("verify", json!({}), 0),
            outcome("recheck", json!({}), 0),
        ]);
        let found = facts(&status).into_iter().find(|(name, _)| *name == "differences");
        assert_eq!(found, Some(("differences", "3 found, 3 mended".to_owned())));
    }

    #[test]
    fn the_present_phase_lasts_until_the_page_is_made() {
        let mut status = moving();
        let lasted = |status: &Value| phases(status).last().map(|phase| phase.lasted.clone());
        assert_eq!(lasted(&status).as_deref(), Some("2 min 50 s"));
        status["at"] = Value::Null;
        assert_eq!(lasted(&status).as_deref(), Some("0 s"));
    }

    #[test]
    fn reads_that_would_differ_are_bad_while_reads_can_still_move() {
        let mut status = moving();
        status["outcomes"] = json!([]);
        let (is_good, said) = verdict(&status);
        assert!(!is_good && said.starts_with("1 reads of shoppers"), "{said}");
        status["phase"] = json!("read-target");
        assert!(verdict(&status).0);
    }
}
