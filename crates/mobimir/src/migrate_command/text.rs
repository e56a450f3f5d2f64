//! A migration as a person reads it in a terminal.

use serde_json::Value;

/// Differences and dead letters that fit on a screen beside the rest.
const SHOWN_MAX: usize = 5;
/// Of a key or a reason.
const SHOWN_CHARS_MAX: usize = 160;

pub(super) fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("-")
}

/// How fast long work goes, and until when.
pub(super) fn pace(job: &Value) -> String {
    let rate =
        job["entities_per_s"].as_f64().map(|rate| format!("{} entities/s", grouped(rate.round() as u64)));
    let left = job["left_s"].as_u64().map(|seconds| format!("about {} left", lasting(seconds)));
    [rate, left].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Seconds, as they are said.
pub(super) fn lasting(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let (mut size, mut unit) = (bytes as f64, 0);
    while size >= 1_000.0 && unit + 1 < UNITS.len() {
        size /= 1_000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

/// With a space between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(" ")
}

pub(super) fn status_text(status: &Value) -> String {
    let mut lines = vec![format!(
        "{} from {} to {}: {}{}{}",
        word(status, "entity"),
        word(status, "source"),
        word(status, "target"),
        word(status, "phase"),
        status["wanted"].as_str().map(|wanted| format!(", on its way to {wanted}")).unwrap_or_default(),
        if status["is_paused"] == true { ", paused" } else { "" }
    )];
    let instances = &status["instances"];
    lines.push(format!(
        "  instances    {} confirmed, {} behind, {} gone",
        instances["confirmed"], instances["behind"], instances["gone"]
    ));
    for store in ["source", "target"] {
        let backlog = &status["backlog"][store];
        let oldest =
            backlog["oldest"].as_str().map(|since| format!(", the oldest since {since}")).unwrap_or_default();
        lines.push(match backlog["entities"].as_u64() {
            Some(entities) => format!("  not copied   {entities} of the {store}{oldest}"),
            None => format!("  not copied   the {store} cannot be asked"),
        });
    }
    if let (Some(from), Some(to)) = (status["months"]["from"].as_str(), status["months"]["to"].as_str()) {
        let copied = status["months_copied"].as_array().map_or(0, Vec::len);
        lines.push(format!("  months       from {from} to {to} first; {copied} months are copied"));
    }
    let (verification, recheck) = (&status["verification"], &status["recheck"]);
    for (name, job, tables) in [
        ("backfill", &status["backfill"], &Value::Null),
        ("verify", &verification["reached"], verification),
        ("repair", &status["repair"], &Value::Null),
        ("recheck", &recheck["reached"], recheck),
    ] {
        lines.extend(job_line(name, job, tables));
    }
    for (comparison, when) in [(verification, ""), (recheck, " after the switch")] {
        lines.extend(difference_lines(comparison, when));
    }
    let shadow = &status["shadow"];
    if let Some(asked) = shadow["asked"].as_u64() {
        let (alike, different) = (&shadow["alike"], &shadow["different"]);
        lines.push(format!("  shadow reads {asked} asked of both, {alike} alike, {different} different"));
    }
    if let Some(felt) = status["felt"].as_f64().filter(|felt| *felt > 0.0) {
        let by = word(status, "felt_by");
        lines.push(format!("  felt         {:.0}% of what is allowed, by {by}", felt * 100.0));
    }
    let letters = status["dead_letters_total"].as_u64().unwrap_or_default();
    lines.push(format!("  dead letters {}", grouped(letters)));
    lines.extend(first_lines(&status["dead_letters"], letters, |letter| {
        format!("{}: {}", one_line(word(letter, "key")), one_line(word(letter, "reason")))
    }));
    for reason in status["blocked_by"].as_array().into_iter().flatten() {
        lines.push(format!("  not yet      {}", reason.as_str().unwrap_or_default()));
    }
    lines.join("\n") + "\n"
}

fn job_line(name: &str, job: &Value, tables: &Value) -> Option<String> {
    let ranges = job["ranges"].as_u64()?;
    let (done, entities) = (&job["ranges_done"], job["entities"].as_u64().unwrap_or_default());
    let tables =
        tables["tables"].as_u64().map(|all| format!(" and {} of {all} tables", tables["tables_done"]));
    let tables = tables.unwrap_or_default();
    let mended = job["mended"].as_u64().filter(|mended| *mended > 0);
    let mended = mended.map(|mended| format!(", {mended} mended")).unwrap_or_default();
    let pace = pace(job);
    let pace = if pace.is_empty() { pace } else { format!(", {pace}") };
    Some(format!(
        "  {name:<12} {done} of {ranges} ranges{tables}, {} entities{mended}{pace}",
        grouped(entities)
    ))
}

fn difference_lines(comparison: &Value, when: &str) -> Vec<String> {
    let Some(found) = comparison["differences"].as_object() else { return Vec::new() };
    let total: u64 = found.values().filter_map(Value::as_u64).sum();
    let mut lines = vec![format!("  differences  {}{when}", grouped(total))];
    lines.extend(first_lines(&comparison["first_differences"], total, |difference| {
        let [table, key, kind] = ["table", "key", "kind"].map(|name| one_line(word(difference, name)));
        format!("{key} in {table}: {kind}")
    }));
    lines
}

/// The first of so many, and how many are left.
fn first_lines(list: &Value, total: u64, said: impl Fn(&Value) -> String) -> Vec<String> {
    let first = list.as_array().into_iter().flatten().take(SHOWN_MAX);
    let mut lines: Vec<String> = first.map(|item| format!("    {}", said(item))).collect();
    let left = total.saturating_sub(lines.len() as u64);
    if left > 0 {
        lines.push(format!("    ... and {} more: see report or --json", grouped(left)));
    }
    lines
}

/// What was stored may have anything in it, and a terminal obeys some of that.
pub(super) fn one_line(text: &str) -> String {
    let shown = |char: char| if char.is_control() { ' ' } else { char };
    let mut line: String = text.chars().take(SHOWN_CHARS_MAX).map(shown).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

/// A dry run.
pub(super) fn plan_text(plan: &Value) -> String {
    let number = |name: &str| plan[name].as_u64().unwrap_or_default();
    let mut lines = vec![format!(
        "{} from {} to {}: about {} ({} looked at)",
        word(plan, "entity"),
        word(plan, "source"),
        word(plan, "target"),
        grouped(number("entities")),
        grouped(number("sampled"))
    )];
    let names = |name: &str| -> Vec<&str> {
        plan[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let tables = names("tables");
    if !tables.is_empty() {
        lines.push(format!("  tables       {}", tables.join(", ")));
        lines.push(format!(
            "  space        about {} in the target, on each replica and before compression",
            bytes(number("bytes"))
        ));
    }
    let rate = |name: &str| plan[name].as_f64().map(|rate| grouped(rate.round() as u64));
    if let (Some(read), Some(target)) = (rate("read_per_s"), rate("target_per_s")) {
        lines.push(format!("  speed        the source is read at {read}/s, the target answers {target}/s"));
    }
    if let Some(seconds) = plan["copying_s"].as_u64() {
        lines.push(format!(
            "  time         at least {} to copy, estimated from reads alone, and as long again to compare; longer while shoppers need the stores",
            lasting(seconds)
        ));
    }
    if let Some(count) = plan["in_target"].as_u64().filter(|count| *count > 0) {
        lines.push(format!("  target       has {} already; what is newer there stays", grouped(count)));
    }
    for (month, count) in plan["months"].as_object().into_iter().flatten() {
        lines.push(format!("  {month}      {}", grouped(count.as_u64().unwrap_or_default())));
    }
    for problem in names("problems") {
        lines.push(format!("  problem      {problem}"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn moving() -> Value {
        let sample =
            |at: &str, entities: u64, felt: f64| json!({ "at": at, "entities": entities, "felt": felt });
        json!({
            "entity": "orders", "source": "mongodb", "target": "cassandra", "phase": "verify", "wanted": "read-target",
            "at": "2025-11-28T09:05:00.000Z", "working": "verify", "is_paused": false, "months": null, "instances": { "confirmed": 2, "behind": 0, "gone": 1 },
            "backlog": { "source": { "entities": 3, "oldest": "2025-11-28T09:00:00.000Z" }, "target": null },
            "backfill": { "ranges": 64, "ranges_done": 64, "entities": 120_000, "expected": 120_000, "mended": 0,
                "pace": { "samples": [sample("2025-11-28T09:01:00.000Z", 0, 0.2), sample("2025-11-28T09:01:30.000Z", 60_000, 0.9),
                    sample("2025-11-28T09:02:00.000Z", 120_000, 0.4)] } },
            "verification": { "reached": { "ranges": 64, "ranges_done": 32, "entities": 60_500, "expected": 120_000, "mended": 0,
                    "entities_per_s": 2_000.0, "left_s": 30, "pace": { "samples": [] } },
                "tables": 3, "tables_done": 0, "rows": 0, "is_green": false, "differences": { "missing": 1 },
                "first_differences": [{ "table": "orders_by_day", "key": "<1>", "kind": "missing", "fields": [] }] },
            "shadow": { "asked": 40, "alike": 38, "different": 1, "untold": 1, "skipped": 0, "samples": [
                { "at": "2025-11-28T09:03:00.000Z", "what": "an order", "fields": { "status": ["paid", "confirmed"] } }] },
            "felt": 0.4, "felt_by": "writes of shoppers",
            "outcomes": [{ "at": "2025-11-28T09:03:00.000Z", "purpose": "verify", "entities": 120_000, "rows": 360_000,
                "ranges": 67, "ranges_planned": 67, "differences": { "missing": 1 }, "mended": 0 }],
            "dead_letters_total": 0, "dead_letters": [], "phase_since": "2025-11-28T09:02:10.000Z",
            "blocked_by": ["no comparison has found everything equal since the backfill"],
            "timeline": [{ "at": "2025-11-28T09:00:00.000Z", "what": "planned from mongodb to cassandra" },
                { "at": "2025-11-28T09:00:30.000Z", "what": "dual-write after source" },
                { "at": "2025-11-28T09:01:00.000Z", "what": "backfill after dual-write" },
                { "at": "2025-11-28T09:02:10.000Z", "what": "verify after backfill" }]
        })
    }

    #[test]
    fn a_migration_is_told_in_a_few_lines() {
        insta::assert_snapshot!(status_text(&moving()), @r"
        orders from mongodb to cassandra: verify, on its way to read-target
          instances    2 confirmed, 0 behind, 1 gone
          not copied   3 of the source, the oldest since 2025-11-28T09:00:00.000Z
          not copied   the target cannot be asked
          backfill     64 of 64 ranges, 120 000 entities
          verify       32 of 64 ranges and 0 of 3 tables, 60 500 entities, 2 000 entities/s, about 30 s left
          differences  1
            <1> in orders_by_day: missing
          shadow reads 40 asked of both, 38 alike, 1 different
          felt         40% of what is allowed, by writes of shoppers
          dead letters 0
          not yet      no comparison has found everything equal since the backfill
        ");
    }

    #[test]
    fn the_first_of_what_is_wrong_is_shown_and_the_rest_is_counted() {
        let mut status = moving();
        let difference =
            |n: u64| json!({ "table": "orders", "key": format!("o{n}"), "kind": "stale", "fields": [] });
        let differences: Vec<Value> = (0..20).map(difference).collect();
        status["verification"]["first_differences"] = json!(differences);
        status["verification"]["differences"] = json!({ "stale": 1_200, "missing": 34 });
        let at = "2025-11-28T09:01:00.000Z";
        status["dead_letters"] =
            json!([{ "key": "o7", "reason": "an odd\n\u{1b}[2Jstatus", "at": at, "attempts": 2 }]);
        status["dead_letters_total"] = json!(1);
        let text = status_text(&status);
        for part in [
            "  differences  1 234\n    o0 in orders: stale\n",
            "    o4 in orders: stale\n    ... and 1 229 more: see report or --json\n",
            "  dead letters 1\n    o7: an odd  [2Jstatus\n  not yet",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_dry_run_says_how_much_how_long_and_how_much_space() {
        let plan = json!({
            "entity": "orders", "source": "mongodb", "target": "cassandra", "entities": 1_234_567, "sampled": 10_000,
            "unreadable": 1, "months": { "2025-10": 1_000_000, "2025-11": 234_567 },
            "tables": ["orders", "orders_by_user"], "bytes": 1_500_000_000, "read_per_s": 20_000.4, "target_per_s": 3_000.0,
            "copying_s": 412, "in_target": 7, "problems": ["1 of 10000 cannot be read, and would become dead letters"]
        });
        insta::assert_snapshot!(plan_text(&plan), @r"
        orders from mongodb to cassandra: about 1 234 567 (10 000 looked at)
          tables       orders, orders_by_user
          space        about 1.5 GB in the target, on each replica and before compression
          speed        the source is read at 20 000/s, the target answers 3 000/s
          time         at least 6 min 52 s to copy, estimated from reads alone, and as long again to compare; longer while shoppers need the stores
          target       has 7 already; what is newer there stays
          2025-10      1 000 000
          2025-11      234 567
          problem      1 of 10000 cannot be read, and would become dead letters
        ");
    }

    #[test]
    fn numbers_are_said_as_people_say_them() {
        let grouped: Vec<String> = [0, 999, 1_000, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(grouped, ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([0, 119, 120, 7_200].map(lasting), ["0 s", "119 s", "2 min 0 s", "2 h 0 min"]);
        assert_eq!([5, 1_500, 2_000_000_000].map(bytes), ["5 B", "1.5 KB", "2.0 GB"]);
    }
}
