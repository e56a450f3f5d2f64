//! `mobimir migrate`: move orders, their separate history, carts or sessions of a running shop to another store.

mod page;
mod text;
mod watch;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use http_body_util::BodyExt;
use hyper::{Method, Response, body::Incoming};
use indicatif::ProgressBar;
use mobimir_core::time::Month;
use serde_json::{Value, json};

use self::{
    text::{plan_text, status_text},
    watch::watch,
};
use crate::{client, config::Config, in_runtime, terminal::print};

/// Move orders, their history, carts or sessions to another store while the shop sells
///
/// The policy names the other store (`migration_store`), and every instance of the shop runs with `migrations = true`. A migration
/// goes up and down a ladder of phases: source, dual-write, backfill, verify, read-target, target. It goes on only when
/// every instance has come along and what the next phase needs is proven; until `target` every step can be taken back.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir migrate plan orders
  mobimir migrate start orders --target http://127.0.0.1:8080
  mobimir migrate status orders --watch
  mobimir migrate advance orders
  mobimir migrate months orders --from 2025-01 --to 2025-06
  mobimir migrate rollback orders
  mobimir migrate report orders --out orders.html

The operator's token is MOBIMIR_OPERATOR_TOKEN, or operator_token of the configuration.")]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    /// Say what would be moved, how long it would take and how much space; nothing is written
    Plan(OfEntity),
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
    /// Mend what differs, try again what could not be copied, and compare
    Repair(OfEntity),
    /// Choose the months of the past that are copied first
    Months(MonthsArgs),
    /// Write a page about it, to hand to somebody
    Report(ReportArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EntityName {
    Orders,
    #[value(name = "order_history")]
    OrderHistory,
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
#[command(after_help = "Examples:
  mobimir migrate months orders --from 2025-01 --to 2025-06
  mobimir migrate months orders --all")]
struct MonthsArgs {
    #[command(flatten)]
    of: OfEntity,
    /// The first month, like 2025-01
    #[arg(long, value_name = "MONTH", value_parser = Month::parse, requires = "to", required_unless_present = "all")]
    from: Option<Month>,
    /// The last month
    #[arg(long, value_name = "MONTH", value_parser = Month::parse, requires = "from")]
    to: Option<Month>,
    /// Everything that is left
    #[arg(long, conflicts_with_all = ["from", "to"])]
    all: bool,
}

#[derive(Debug, Args)]
struct ReportArgs {
    #[command(flatten)]
    of: OfEntity,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "migration.html")]
    out: PathBuf,
}

/// How often what is shown of something that goes on is drawn.
const TICK: Duration = Duration::from_millis(100);
/// As a shell has it of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(args: MigrateArgs) -> Result<ExitCode> {
    in_runtime(async {
        tokio::select! {
            done = asked(args.command) => done.map(|()| ExitCode::SUCCESS),
            // What is drawn is cleared when what drew it is dropped, so the prompt stands on a line of its own.
            Ok(()) = tokio::signal::ctrl_c() => Ok(ExitCode::from(INTERRUPTED)),
        }
    })
}

async fn asked(command: MigrateCommand) -> Result<()> {
    let (of, action) = match command {
        MigrateCommand::Status(StatusArgs { of, watch: true }) => return watch(&of).await,
        MigrateCommand::Status(StatusArgs { of, watch: false }) => {
            let status = waiting(&of, status(&of, &of.token()?)).await?;
            return show(&of, &status, status_text);
        }
        MigrateCommand::Report(ReportArgs { of, out }) => {
            let page = page::page(&waiting(&of, status(&of, &of.token()?)).await?);
            std::fs::write(&out, page).with_context(|| format!("cannot write {}", out.display()))?;
            return print(&format!("{}\n", out.display()));
        }
        MigrateCommand::Plan(of) => {
            let (path, token) = (of.path("/plan"), of.token()?);
            let plan = waiting(&of, json_of(client::get(&of.target, &path, &token))).await?;
            return show(&of, &plan, plan_text);
        }
        MigrateCommand::Months(MonthsArgs { of, from, to, all: _ }) => {
            let (path, token) = (of.path("/months"), of.token()?);
            let chosen = json!({ "from": from, "to": to });
            let status =
                waiting(&of, json_of(client::ask(Method::PUT, &of.target, &path, &token, Some(&chosen))))
                    .await?;
            return show(&of, &status, status_text);
        }
        MigrateCommand::Start(of) => (of, "/start"),
        MigrateCommand::Advance(of) => (of, "/advance"),
        MigrateCommand::Rollback(of) => (of, "/rollback"),
        MigrateCommand::Pause(of) => (of, "/pause"),
        MigrateCommand::Resume(of) => (of, "/resume"),
        MigrateCommand::Verify(of) => (of, "/verify"),
        MigrateCommand::Repair(of) => (of, "/repair"),
    };
    let (path, token) = (of.path(action), of.token()?);
    let status = waiting(&of, json_of(client::ask(Method::POST, &of.target, &path, &token, None))).await?;
    show(&of, &status, status_text)
}

impl EntityName {
    fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::OrderHistory => "order_history",
            Self::Carts => "carts",
            Self::Sessions => "sessions",
        }
    }
}

impl OfEntity {
    fn path(&self, rest: &str) -> String {
        format!("/v1/ops/migrations/{}{rest}", self.entity.name())
    }

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

async fn status(of: &OfEntity, token: &str) -> Result<Value> {
    json_of(client::get(&of.target, &of.path(""), token)).await
}

async fn json_of(asked: impl Future<Output = Result<Response<Incoming>>>) -> Result<Value> {
    let body = asked.await?.into_body().collect();
    let body = client::within(client::ANSWER_TIME_MAX, body, "the shop did not finish its answer").await?;
    serde_json::from_slice(&body.to_bytes()).context("the shop's answer is no JSON")
}

fn show(of: &OfEntity, answer: &Value, text: fn(&Value) -> String) -> Result<()> {
    if of.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(answer)?));
    }
    print(&text(answer))
}

/// Shows that something goes on: stores are asked, and a slow one takes seconds.
async fn waiting<T>(of: &OfEntity, work: impl Future<Output = Result<T>>) -> Result<T> {
    let bar = ProgressBar::new_spinner().with_message(format!("{}: asking {}", of.entity.name(), of.target));
    bar.enable_steady_tick(TICK);
    let done = work.await;
    bar.finish_and_clear();
    done
}
