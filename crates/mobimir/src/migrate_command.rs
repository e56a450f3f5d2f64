//! `mobimir migrate`: move orders, carts or sessions of a running shop to another store.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use http_body_util::BodyExt;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::{client, config::Config, in_runtime, terminal::print};

/// Move orders, carts or sessions to another store while the shop sells
///
/// The policy names the other store (`migration_store`), and every instance of the shop runs with `migrations = true`. A migration
/// goes up and down a ladder of phases: source, dual-write, backfill, verify, read-target, target. It goes on only when
/// every instance has come along and what the next phase needs is proven; until `target` every step can be taken back.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir migrate start orders --target http://127.0.0.1:8080
  mobimir migrate status orders --watch
  mobimir migrate advance orders
  mobimir migrate rollback orders
  mobimir migrate report orders --out orders.html

The operator's token is MOBIMIR_OPERATOR_TOKEN, or operator_token of the configuration.")]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    /// Begin: nothing moves before `advance`
    Start(OfEntity),
    /// Show how far it is, what is not copied yet, and why the next phase cannot begin
    Status(StatusArgs),
    /// Set out for the next phase
    Advance(OfEntity),
    /// Set out for the phase before
    Rollback(OfEntity),
    /// Hold copying and comparing
    Pause(OfEntity),
    /// Go on with copying and comparing
    Resume(OfEntity),
    /// Compare everything anew
    Verify(OfEntity),
    /// Copy everything once more, with what could not be copied, and compare
    Repair(OfEntity),
    /// Write a page about it, to hand to somebody
    Report(ReportArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EntityName {
    Orders,
    Carts,
    Sessions,
}

#[derive(Debug, Args)]
struct OfEntity {
    /// What moves
    entity: EntityName,
    /// A running instance of the shop
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    target: String,
    /// Configuration file; each key is also a variable MOBIMIR_...
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mobimir migrate status orders
  mobimir migrate status carts --watch --target http://10.0.0.11:8080")]
struct StatusArgs {
    #[command(flatten)]
    of: OfEntity,
    /// Go on showing it until it stands still
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, Args)]
struct ReportArgs {
    #[command(flatten)]
    of: OfEntity,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "migration.html")]
    out: PathBuf,
}

const WATCH_PERIOD: Duration = Duration::from_millis(500);

pub(crate) fn run(args: MigrateArgs) -> Result<ExitCode> {
    in_runtime(asked(args.command)).map(|()| ExitCode::SUCCESS)
}

async fn asked(command: MigrateCommand) -> Result<()> {
    let (of, action) = match command {
        MigrateCommand::Status(StatusArgs { of, watch: true }) => return watch(&of).await,
        MigrateCommand::Status(StatusArgs { of, watch: false }) => return show(&of, &status(&of).await?),
        MigrateCommand::Report(ReportArgs { of, out }) => {
            let page = page(&status(&of).await?);
            std::fs::write(&out, page).with_context(|| format!("cannot write {}", out.display()))?;
            return print(&format!("{}\n", out.display()));
        }
        MigrateCommand::Start(of) => (of, "start"),
        MigrateCommand::Advance(of) => (of, "advance"),
        MigrateCommand::Rollback(of) => (of, "rollback"),
        MigrateCommand::Pause(of) => (of, "pause"),
        MigrateCommand::Resume(of) => (of, "resume"),
        MigrateCommand::Verify(of) => (of, "verify"),
        MigrateCommand::Repair(of) => (of, "repair"),
    };
    let path = format!("/v1/ops/migrations/{}/{action}", of.entity.name());
    let answer = client::post(&of.target, &path, &of.token()?).await?;
    show(&of, &json_of(answer).await?)
}

impl EntityName {
    fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Carts => "carts",
            Self::Sessions => "sessions",
        }
    }
}

impl OfEntity {
    fn token(&self) -> Result<String> {
        let config = Config::load(self.config.as_deref())?;
        match config.operator_token {
            Some(token) => Ok(token.0),
            None => {
                bail!("who asks has to be an operator: set MOBIMIR_OPERATOR_TOKEN to the token of the shop")
            }
        }
    }
}

async fn status(of: &OfEntity) -> Result<Value> {
    let path = format!("/v1/ops/migrations/{}", of.entity.name());
    json_of(client::get(&of.target, &path, &of.token()?).await?).await
}

async fn json_of(answer: hyper::Response<hyper::body::Incoming>) -> Result<Value> {
    let body = answer.into_body().collect().await?.to_bytes();
    serde_json::from_slice(&body).context("the shop's answer is no JSON")
}

fn show(of: &OfEntity, status: &Value) -> Result<()> {
    if of.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(status)?));
    }
    print(&text(status))
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("-")
}

/// A migration as a person reads it in a terminal.
fn text(status: &Value) -> String {
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
    for (name, of) in [("backfill", &status["backfill"]), ("verify", &status["verification"]["reached"])] {
        if let Some(ranges) = of["ranges"].as_u64() {
            lines.push(format!(
                "  {name:<12} {} of {ranges} ranges, {} entities",
                of["ranges_done"], of["entities"]
            ));
        }
    }
    if let Some(found) = status["verification"]["differences"].as_object() {
        let total: u64 = found.values().filter_map(Value::as_u64).sum();
        lines.push(format!("  differences  {total}"));
    }
    let letters = status["dead_letters"].as_array().map_or(0, Vec::len);
    lines.push(format!("  dead letters {letters}"));
    for reason in status["blocked_by"].as_array().into_iter().flatten() {
        lines.push(format!("  not yet      {}", reason.as_str().unwrap_or_default()));
    }
    lines.join("\n") + "\n"
}

/// Shows it until it neither goes anywhere nor works on anything.
async fn watch(of: &OfEntity) -> Result<()> {
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} ranges, {elapsed}")?);
    loop {
        let now = status(of).await?;
        let working = [&now["backfill"], &now["verification"]["reached"]]
            .into_iter()
            .find(|of| of["ranges"].as_u64().is_some_and(|ranges| of["ranges_done"] != ranges));
        if let Some(of) = working {
            bar.set_length(of["ranges"].as_u64().unwrap_or(1));
            bar.set_position(of["ranges_done"].as_u64().unwrap_or(0));
        }
        bar.set_message(format!("{} {}", word(&now, "entity"), word(&now, "phase")));
        if now["wanted"].is_null() && working.is_none() {
            bar.finish_and_clear();
            return show(of, &now);
        }
        tokio::time::sleep(WATCH_PERIOD).await;
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A page for somebody who has to answer for it.
fn page(status: &Value) -> String {
    let row = |cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let of = |list: &Value, fields: &[&str]| -> String {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let line = |item: &Value| row(&fields.iter().map(|field| text(&item[field])).collect::<Vec<_>>());
        list.as_array().into_iter().flatten().map(line).collect()
    };
    let title =
        format!("{}: {} → {}", word(status, "entity"), word(status, "source"), word(status, "target"));
    let timeline = of(&status["timeline"], &["at", "what"]);
    let differences = of(&status["verification"]["first_differences"], &["table", "key", "kind", "fields"]);
    let letters = of(&status["dead_letters"], &["key", "reason", "at", "attempts"]);
    let none =
        |rows: &str| if rows.is_empty() { "<tr><td>none</td></tr>".to_owned() } else { rows.to_owned() };
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
        <style>body{{font:15px sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}td{{border-bottom:1px solid #ddd;padding:.3rem .8rem .3rem 0;vertical-align:top}}pre{{background:#f4f4f4;padding:1rem;overflow:auto}}</style>\n\
        <h1>{}</h1>\n<pre>{}</pre>\n<h2>What happened</h2>\n<table>{}</table>\n\
        <h2>Differences of the last comparison</h2>\n<table>{}</table>\n<h2>What could not be copied</h2>\n<table>{}</table>\n</html>\n",
        escaped(&title),
        escaped(&text(status)),
        none(&timeline),
        none(&differences),
        none(&letters),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn moving() -> Value {
        json!({
            "entity": "orders", "source": "mongodb", "target": "cassandra", "phase": "verify", "wanted": "read-target",
            "is_paused": false, "instances": { "confirmed": 2, "behind": 0, "gone": 1 },
            "backlog": { "source": { "entities": 3, "oldest": "2025-11-28T09:00:00.000Z" }, "target": null },
            "backfill": null,
            "verification": { "reached": { "ranges": 64, "ranges_done": 64, "entities": 1000 }, "differences": { "missing": 1 },
                "first_differences": [{ "table": "orders_by_day", "key": "<1>", "kind": "missing", "fields": [] }] },
            "dead_letters": [], "blocked_by": ["no comparison has found everything equal since the backfill"],
            "timeline": [{ "at": "2025-11-28T09:00:00.000Z", "what": "planned from mongodb to cassandra" }]
        })
    }

    #[test]
    fn a_migration_is_told_in_a_few_lines() {
        insta::assert_snapshot!(text(&moving()), @r"
        orders from mongodb to cassandra: verify, on its way to read-target
          instances    2 confirmed, 0 behind, 1 gone
          not copied   3 of the source, the oldest since 2025-11-28T09:00:00.000Z
          not copied   the target cannot be asked
          verify       64 of 64 ranges, 1000 entities
          differences  1
          dead letters 0
          not yet      no comparison has found everything equal since the backfill
        ");
    }

    #[test]
    fn the_page_has_what_was_found() {
        let page = page(&moving());
        for part in ["orders: mongodb → cassandra", "planned from mongodb", "orders_by_day", "&lt;1&gt;"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
