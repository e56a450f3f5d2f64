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

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use mobimir_core::{
    policy::Period,
    time::{Clock, SystemClock},
};
use mobimir_load::{
    Findings, ShopError, Stretch, Target, Visit, VisitSpec,
    findmax::{FindMax, Search},
    profile::{self, Profile, ProfileError},
    report::{self, Limits, Report, compare},
};

use self::{events::Event, live::Live};
use crate::{import::online_retail, terminal::print};

/// Put a shop under load, and see whether it keeps its promises
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    command: LoadCommand,
}

#[derive(Debug, Subcommand)]
enum LoadCommand {
    Run(Box<RunArgs>),
    Replay(ReplayArgs),
    Compare(CompareArgs),
    Profiles(ProfilesArgs),
}

/// Send requests when they are due, look at everything afterwards, and write a report
///
/// Requests leave on a schedule that does not wait for answers, and a request's time counts from the moment when it was
/// due: a shop that stands still for two seconds shows it. Answers are checked while the load runs: every cart after a
/// change, every order, and a sample of the pages. Afterwards every acknowledged order is read back, every cart is
/// compared with what was acknowledged, and the stock of every product is counted. The exit code is 1 when the shop broke a
/// promise, when a request failed or was turned away, when nobody could order, or when less than 99.9 % of the plan could
/// be sent.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_EXAMPLES)]
struct RunArgs {
    /// What the crowd does: a file, or a built-in profile (see `mobimir load profiles`)
    #[arg(long, value_name = "FILE|NAME", default_value = "black-friday", value_parser = chosen_profile)]
    profile: Profile,
    /// Requests a second
    #[arg(long, default_value_t = 1_000.0, value_parser = rate)]
    rate: f64,
    /// How long to send
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = period)]
    lasts: Duration,
    /// Requests at the same distance, instead of at random as people come
    #[arg(long)]
    even: bool,
    /// Search the highest rate that keeps the limits, beginning with --rate; each step lasts as long as --for says
    #[arg(long, conflicts_with = "at")]
    findmax: bool,
    #[command(flatten)]
    visit: VisitArgs,
}

/// Place the orders of a real trade history once more, in less time
///
/// Every order of the file is placed at its time, after a look at each of its products. The shop has to know the products:
/// import the file into it first. What is looked at afterwards, and the exit code, are as for `run`.
#[derive(Debug, Args)]
#[command(after_long_help = REPLAY_EXAMPLES)]
struct ReplayArgs {
    /// The CSV file in the format of UCI's "Online Retail", plain or packed with gzip
    file: PathBuf,
    /// How long the history is made to last
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = period)]
    lasts: Duration,
    /// How many users place the orders
    #[arg(long, default_value_t = 200, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    users: usize,
    #[command(flatten)]
    visit: VisitArgs,
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  mobimir import online-retail online-retail.csv.gz --data ./shop
  mobimir serve --data ./shop &
  mobimir load replay online-retail.csv.gz --for 2m";

#[derive(Debug, Args)]
struct VisitArgs {
    /// The shop
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    target: Target,
    /// Connections, each with one request under way at most
    #[arg(long, default_value_t = 128, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=20_000))]
    connections: usize,
    /// The same seed makes the same people ask for the same things
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    /// Check the answers to one of N reads, chosen by the seed; 1 checks all, 0 none. Answers to writes are always checked
    #[arg(long, value_name = "N", default_value_t = 8)]
    check_reads: u64,
    /// How long the shop may take after the run to finish what it has begun, and how old its daily lists may be
    #[arg(long, value_name = "TIME", default_value = "75s", value_parser = period)]
    settle: Duration,
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
    #[arg(value_parser = built_in_profile)]
    name: Option<&'static str>,
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
        LoadCommand::Run(args) => load(*args),
        LoadCommand::Replay(args) => replay(args),
        LoadCommand::Compare(args) => {
            let comparison = compare(&read(&args.before)?, &read(&args.after)?);
            let text = match args.json {
                true => format!("{}\n", serde_json::to_string_pretty(&comparison)?),
                false => comparison.to_string(),
            };
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        LoadCommand::Profiles(args) => profiles(args.name),
    }
}

fn profiles(text: Option<&str>) -> Result<ExitCode> {
    match text {
        Some(text) => print(text)?,
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
    report::parse(&text).with_context(|| format!("{} is not the report of a run", path.display()))
}

fn chosen_profile(name: &str) -> Result<Profile, ProfileError> {
    match std::fs::read_to_string(name) {
        Ok(text) => Profile::parse(&text, name),
        Err(_) => Profile::built_in(name),
    }
}

/// The text of a built-in profile. An error says which there are.
fn built_in_profile(name: &str) -> Result<&'static str, ProfileError> {
    Profile::built_in(name)?;
    Ok(profile::BUILT_IN.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text))
}

fn load(args: RunArgs) -> Result<ExitCode> {
    if let Some(field) = args.profile.once_only().filter(|_| args.findmax) {
        let why = "every step of the search has to be the same load";
        let message = format!("--findmax cannot be used with a profile that has {field}: {why}\n");
        clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, message).exit();
    }
    let mut loading = Loading::begin(args.visit, args.profile)?;
    let (lasts, even) = (args.lasts, args.even);
    let rate = match args.findmax {
        true => loading.find_max(args.rate, lasts, even)?,
        false => args.rate,
    };
    loading.live.begins(rate, lasts);
    loading.run(|visit, live, stop| visit.run(rate, lasts, even, stop, |second, at| live.second(second, at)))
}

fn replay(args: ReplayArgs) -> Result<ExitCode> {
    let file = std::fs::File::open(&args.file)
        .with_context(|| format!("{} cannot be opened", args.file.display()))?;
    let trades = online_retail::trades(file, SystemClock.now())
        .with_context(|| format!("{} is not a trade history", args.file.display()))?;
    let profile = format!(
        "name = \"replay\"\n[mix]\nproduct_page = 1\norder = 1\n[shoppers]\nusers = {}\nguests = 1\n\
         [goods]\nproducts_max = 1000000\n",
        args.users
    );
    let mut loading = Loading::begin(args.visit, Profile::parse(&profile, "replay")?)?;
    loading.live.says(&format!("{} orders of {}", trades.len(), args.file.display()));
    let lasts = args.lasts;
    let requests: usize = trades.iter().map(|trade| trade.lines.len() + 1).sum();
    loading.live.begins(requests as f64 / lasts.as_secs_f64(), lasts);
    loading.run(|visit, live, stop| visit.replay(&trades, lasts, stop, |second, at| live.second(second, at)))
}

/// A visit from its beginning to its report.
struct Loading {
    args: VisitArgs,
    visit: Visit,
    live: Live,
    stop: Arc<AtomicBool>,
    search: Option<Search>,
}

impl Loading {
    fn begin(args: VisitArgs, profile: Profile) -> Result<Self> {
        let stop = stop_on_signals()?;
        let spec = VisitSpec {
            target: args.target.clone(),
            profile,
            connections: args.connections,
            seed: args.seed,
            operator: args.operator_token.clone(),
            keep_stock: args.keep_stock,
            limits: Limits::new(args.read_p99, args.write_p99),
            answer_time_max: args.timeout,
            check_one_in: args.check_reads,
            settle_time_max: args.settle,
        };
        let mut live = Live::new();
        let visit = Visit::begin(spec, &mut |what, done, all| live.prepares(what, done, all))?;
        Ok(Self { args, visit, live, stop, search: None })
    }

    fn report(
        &self,
        stretch: &Stretch,
        started_at: String,
        events: Vec<report::Event>,
        findings: Option<Findings>,
    ) -> Report {
        let machine = mobimir_load::machine::describe();
        let report = Report::of(self.visit.spec(), stretch, started_at, machine, events, findings);
        Report { findmax: self.search.clone(), ..report }
    }

    /// The highest rate that keeps the limits, or the last that was tried when there is none.
    fn find_max(&mut self, begin: f64, lasts: Duration, even: bool) -> Result<f64> {
        let (mut search, mut steps, mut last) = (FindMax::from(begin), Vec::new(), begin);
        while let Some(rate) = search.next().filter(|_| !self.stop.load(Ordering::Relaxed)) {
            last = rate;
            self.live.begins(rate, lasts);
            let Self { visit, live, stop, .. } = self;
            let stretch = visit.run(rate, lasts, even, stop, |second, at| live.second(second, at))?;
            let step = self.report(&stretch, String::new(), Vec::new(), None).as_step();
            self.live.stepped(&step);
            search.tell(step.could);
            steps.push(step);
            // What one step has left to do is not the next one's.
            self.visit.rest(&self.stop);
        }
        let found = search.found();
        self.search = Some(Search { steps, found });
        self.live.says(&match found {
            Some(found) => format!(
                "the highest rate within the limits: {found:.0} requests/s; once more, with a look at everything"
            ),
            None => "no rate was found that the shop stands within its limits; a look at everything".to_owned(),
        });
        Ok(found.unwrap_or(last))
    }

    /// The run itself, the look at everything afterwards, and what is to be said of both.
    fn run(
        &mut self,
        run: impl FnOnce(&mut Visit, &mut Live, &AtomicBool) -> Result<Stretch, ShopError>,
    ) -> Result<ExitCode> {
        let started_at = SystemClock.now().to_string();
        let events = events::start(&self.args.at);
        let stretch = run(&mut self.visit, &mut self.live, &self.stop)?;
        let events = events.end();
        let Self { visit, live, .. } = self;
        let findings = visit.look(&mut |what, done, all| live.prepares(what, done, all));
        live.ends();
        let report = self.report(&stretch, started_at, events, Some(findings));
        let VisitArgs { out, json, allow_errors, .. } = &self.args;
        write_files(out, &report)?;
        let text = match json {
            true => format!("{}\n", serde_json::to_string_pretty(&report)?),
            false => format!("{}\nreport: {}\n", report.to_text(), named(out, "html").display()),
        };
        print(&text)?;
        Ok(if report.is_good(*allow_errors) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn write_files(out: &Path, report: &Report) -> Result<()> {
    let write = |path: PathBuf, text: String| {
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(named(out, "json"), serde_json::to_string(report)?)?;
    write(named(out, "html"), report.to_html())
}

/// The path with an ending, whatever it ends in already.
fn named(out: &Path, ending: &str) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
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
