//! `mobimir load`: a crowd of shoppers, and what the shop makes of it.

mod events;
mod live;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use mobimir_core::{
    policy::Period,
    time::{Clock, SystemClock},
};
use mobimir_load::{
    Stretch, Visit, VisitSpec,
    findmax::FindMax,
    profile::{self, Profile},
    report::{Limits, Report, compare},
};

use self::{events::Event, live::Live};
use crate::terminal::print;

/// Put a shop under load, and see whether it keeps its promises
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    command: LoadCommand,
}

#[derive(Debug, Subcommand)]
enum LoadCommand {
    Run(RunArgs),
    Compare(CompareArgs),
    Profiles(ProfilesArgs),
}

/// Send requests when they are due, look at everything afterwards, and write a report
///
/// Requests leave on a schedule that does not wait for answers, and a request's time counts from the moment when it was
/// due: a shop that stands still for two seconds shows it. Afterwards every acknowledged order is read back, every cart is
/// compared with what was acknowledged, and the stock of every product is counted. The exit code is 1 when the shop broke a
/// promise, when a request failed, or when less than 99.9 % of the plan could be sent.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_EXAMPLES)]
struct RunArgs {
    /// The shop
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    target: String,
    /// What the crowd does: a file, or a built-in profile (see `mobimir load profiles`)
    #[arg(long, value_name = "FILE|NAME", default_value = "black-friday")]
    profile: String,
    /// Requests a second
    #[arg(long, default_value_t = 1_000.0, value_parser = rate)]
    rate: f64,
    /// How long to send
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = period)]
    lasts: Duration,
    /// Connections, each with one request under way at most
    #[arg(long, default_value_t = 128, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=20_000))]
    connections: usize,
    /// The same seed makes the same people ask for the same things
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests at the same distance, instead of at random as people come
    #[arg(long)]
    even: bool,
    /// Search the highest rate that keeps the limits, beginning with --rate; each step lasts as long as --for says
    #[arg(long)]
    findmax: bool,
    /// Limit of the p99 of reads [default: that of the shop's policy]
    #[arg(long, value_name = "TIME", value_parser = period)]
    read_p99: Option<Duration>,
    /// Limit of the p99 of writes [default: that of the shop's policy]
    #[arg(long, value_name = "TIME", value_parser = period)]
    write_p99: Option<Duration>,
    /// The operator's token: fills up the stock before, and sees all of it afterwards
    #[arg(long, value_name = "TOKEN", env = "MOBIMIR_OPERATOR_TOKEN", hide_env_values = true)]
    operator_token: Option<String>,
    /// Do not fill up the stock: shoppers buy what there is
    #[arg(long)]
    keep_stock: bool,
    /// A command to run at a time of the run, for a fault; may be given more than once
    #[arg(long, value_name = "TIME COMMAND", value_parser = Event::parse)]
    at: Vec<Event>,
    /// Requests may fail, as they do when servers are killed; promises may not
    #[arg(long)]
    allow_errors: bool,
    /// Without an answer for so long a request counts as lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = period)]
    timeout: Duration,
    /// The report is written to <PATH>.html and <PATH>.json
    #[arg(long, value_name = "PATH", default_value = "load-report")]
    out: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

const RUN_EXAMPLES: &str = "\
Examples:
  mobimir load run --rate 5000 --for 30s
  mobimir load run --profile flash-sale --rate 20000 --target http://127.0.0.1:8080
  mobimir load run --findmax --rate 2000 --for 10s
  mobimir load run --profile ./evening.toml --rate 500 --at '20s mobimir lab stop-node 2 --kill' --allow-errors

The operator's token is MOBIMIR_OPERATOR_TOKEN; `mobimir demo` prints the one it has made.";

/// Say what changed between two runs, and whether that may be chance
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir load compare before.json after.json")]
struct CompareArgs {
    /// The report of the first run, as JSON
    before: PathBuf,
    /// The report of the second run, as JSON
    after: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Show the built-in profiles, or one of them as a file to begin with
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir load profiles
  mobimir load profiles black-friday > evening.toml")]
struct ProfilesArgs {
    name: Option<String>,
}

const RATE_MAX: f64 = 10_000_000.0;

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(rate),
        _ => Err("expected requests a second, above 0 and at most 10000000".to_owned()),
    }
}

fn period(text: &str) -> Result<Duration, String> {
    let ms = Period::parse(text).and_then(|period| u64::try_from(period.as_ms()).ok()).filter(|ms| *ms > 0);
    ms.map(Duration::from_millis)
        .ok_or_else(|| format!("expected a time like 500ms, 10s or 5m, got {text:?}"))
}

pub(crate) fn run(args: LoadArgs) -> Result<ExitCode> {
    match args.command {
        LoadCommand::Run(args) => load(args),
        LoadCommand::Compare(args) => {
            let comparison = compare(&read(&args.before)?, &read(&args.after)?);
            let text = match args.json {
                true => format!("{}\n", serde_json::to_string_pretty(&comparison)?),
                false => comparison.to_string(),
            };
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        LoadCommand::Profiles(args) => profiles(args.name.as_deref()),
    }
}

fn profiles(name: Option<&str>) -> Result<ExitCode> {
    match name {
        Some(name) => {
            let known = profile::BUILT_IN.iter().find(|(known, _)| *known == name);
            // Says which there are.
            let Some((_, text)) = known else {
                bail!(Profile::built_in(name).err().context("no such profile")?)
            };
            print(text)?;
        }
        None => {
            for (name, _) in profile::BUILT_IN {
                print(&format!("{name:<16}{}\n", Profile::built_in(name)?.description))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not the report of a run", path.display()))
}

fn chosen_profile(name: &str) -> Result<Profile> {
    match std::fs::read_to_string(name) {
        Ok(text) => Ok(Profile::parse(&text, name)?),
        Err(_) => Ok(Profile::built_in(name)?),
    }
}

fn load(args: RunArgs) -> Result<ExitCode> {
    let stop = stop_on_signals()?;
    let spec = VisitSpec {
        target: args.target.clone(),
        profile: chosen_profile(&args.profile)?,
        connections: args.connections,
        seed: args.seed,
        operator: args.operator_token.clone(),
        keep_stock: args.keep_stock,
        answer_time_max: args.timeout,
    };
    let mut live = Live::new();
    let mut visit = Visit::begin(spec, &mut |what, done, all| live.prepares(what, done, all))?;
    let of_policy = visit.limits()?;
    let read_p99 = args.read_p99.or(of_policy.map(|(read, _)| read));
    let write_p99 = args.write_p99.or(of_policy.map(|(_, write)| write));
    let limits = read_p99.zip(write_p99).map(Limits::from);
    let machine = mobimir_load::machine::describe();
    let started_at = SystemClock.now().to_string();
    let report = |visit: &Visit, stretch: &Stretch, events, findings| {
        Report::of(visit.spec(), stretch, started_at.clone(), machine.clone(), limits, events, findings)
    };

    let mut rate = args.rate;
    if args.findmax {
        let mut search = FindMax::from(args.rate);
        while let Some(next) = search.next().filter(|_| !stop.load(Ordering::Relaxed)) {
            live.begins(next, args.lasts);
            let stretch =
                visit.run(next, args.lasts, args.even, &stop, |second, at| live.second(second, at))?;
            let step = report(&visit, &stretch, Vec::new(), None);
            let could =
                step.is_valid() && step.failed() + step.shed() == 0 && step.keeps_limits() != Some(false);
            live.stepped(next, could, &step);
            search.tell(could);
        }
        let Some(found) = search.found() else { bail!("the shop stands no rate at all within its limits") };
        live.says(&format!(
            "the highest rate within the limits: {found:.0} requests/s; once more, with a look at everything"
        ));
        rate = found;
    }

    live.begins(rate, args.lasts);
    let events = events::start(&args.at, &stop);
    let stretch = visit.run(rate, args.lasts, args.even, &stop, |second, at| live.second(second, at))?;
    let events = events.end();
    let findings = visit.look(&mut |what, done, all| live.prepares(what, done, all))?;
    live.ends();
    let report = report(&visit, &stretch, events, Some(findings));
    write_files(&args.out, &report)?;
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => format!("{}\nreport: {}\n", report.to_text(), args.out.with_extension("html").display()),
    };
    print(&text)?;
    let right = report.findings.as_ref().is_none_or(|findings| findings.is_right());
    let fine = right && report.is_valid() && (args.allow_errors || report.failed() == 0);
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_files(out: &Path, report: &Report) -> Result<()> {
    let write = |path: PathBuf, text: String| {
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(out.with_extension("json"), serde_json::to_string(report)?)?;
    write(out.with_extension("html"), report.to_html())
}

/// Ctrl-C ends the run early, and everything is looked at all the same; a second one ends at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    use tokio::signal::unix::{SignalKind, signal};
    const INTERRUPTED: i32 = 130;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let asked = stop.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            eprintln!("ending the run; once more to end without a look at the shop");
            asked.store(true, Ordering::Relaxed);
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        std::process::exit(INTERRUPTED);
    })?;
    Ok(stop)
}
