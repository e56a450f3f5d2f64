//! `mobimir schema`: the tables that a policy asks for, printed, compared with a cluster, and made there.

use std::{io::IsTerminal, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use mobimir_cassandra::{
    Cluster,
    schema::{self, Change, Keyspace, Plan},
};
use mobimir_core::policy::Policy;
use serde_json::json;

use crate::{
    cluster::{self, ClusterArgs, DataCentres, apply_command},
    config::Config,
    in_runtime,
    terminal::print,
};

const TICK: Duration = Duration::from_millis(100);

/// Make the tables that a policy asks for in Cassandra
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    command: SchemaCommand,
}

#[derive(Debug, Subcommand)]
enum SchemaCommand {
    Print(PrintArgs),
    Plan(PlanArgs),
    Apply(ApplyArgs),
}

/// Print the tables as CQL, as cqlsh takes it; no cluster is needed
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir schema print --policy default
  mobimir schema print --policy bucketed --data-centres dc1=3 > tables.cql")]
struct PrintArgs {
    #[command(flatten)]
    of: PolicyArgs,
    /// Data centres and their replicas, instead of those that the policy names: dc1=3 or dc1=3,dc2=3
    #[arg(long, value_name = "DC=N")]
    data_centres: Option<DataCentres>,
}

/// Say what the cluster has otherwise than the policy says; nothing is changed
///
/// Tables and columns that the policy does not know are left alone, and named.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir schema plan --policy default
  mobimir schema plan --policy default --contact-points 10.0.0.1,10.0.0.2 --json
  mobimir schema plan --policy default --data-centres dc1=3 --check")]
struct PlanArgs {
    #[command(flatten)]
    of: PolicyArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Exit with 1 when something differs
    #[arg(long)]
    check: bool,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Make the cluster as the policy says: create what is missing, change what differs, drop nothing
///
/// What cannot be changed in place (a key, the type of a column) is named, the exit code is then 1, and nothing is done.
/// A second time there is nothing to do.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir schema apply --policy default
  mobimir schema apply --policy default --data-centres dc1=3 --contact-points 127.0.0.1:9042")]
struct ApplyArgs {
    #[command(flatten)]
    of: PolicyArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Args)]
struct PolicyArgs {
    /// Policy: a file, or the name of a built-in one [default: embedded]
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    /// Keyspaces are called <PREFIX>_carts and so on [default: mobimir]
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Configuration file; each key is also a variable MOBIMIR_...
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What a command works with.
struct Wanted {
    config: Config,
    policy: Policy,
    keyspaces: Vec<Keyspace>,
}

pub(crate) fn run(args: SchemaArgs) -> Result<ExitCode> {
    match args.command {
        SchemaCommand::Print(args) => print_script(args),
        SchemaCommand::Plan(args) => in_runtime(plan(args)),
        SchemaCommand::Apply(args) => in_runtime(apply(args)),
    }
}

impl Wanted {
    fn new(of: PolicyArgs, cluster: ClusterArgs) -> Result<Self> {
        let config = cluster::configured(of.config.as_deref(), of.policy, of.prefix, cluster)?;
        let policy = cluster::placed_policy(&config)?;
        let keyspaces = schema::keyspaces(&policy, &config.cassandra.keyspace_prefix);
        Ok(Self { config, policy, keyspaces })
    }

    fn nothing(&self) -> String {
        format!("nothing to do: the policy {} places nothing in Cassandra", self.policy.name)
    }

    async fn plan(&self) -> Result<(std::sync::Arc<Cluster>, Plan)> {
        let cluster = cluster::connect(&self.config.cassandra, &self.policy).await?;
        let plan = schema::plan(&cluster, &self.keyspaces).await?;
        Ok((cluster, plan))
    }
}

fn print_script(args: PrintArgs) -> Result<ExitCode> {
    let cluster = ClusterArgs { data_centres: args.data_centres, ..ClusterArgs::default() };
    let wanted = Wanted::new(args.of, cluster)?;
    let Wanted { policy, keyspaces, .. } = &wanted;
    if keyspaces.is_empty() {
        print(&format!("-- the policy {} places nothing in Cassandra\n", policy.name))?;
        return Ok(ExitCode::SUCCESS);
    }
    let script = schema::script(keyspaces);
    print(&format!(
        "-- the tables of the policy {}; what is there already is left as it is\n\n{script}",
        policy.name
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn plan(args: PlanArgs) -> Result<ExitCode> {
    let wanted = Wanted::new(args.of, args.cluster)?;
    let plan = if wanted.keyspaces.is_empty() { Plan::default() } else { wanted.plan().await?.1 };
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&plan_json(&wanted.policy, &plan))?))?;
    } else {
        print(&plan_text(&wanted, &plan))?;
    }
    Ok(if args.check && !plan.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn plan_json(policy: &Policy, plan: &Plan) -> serde_json::Value {
    let change = |change: &Change| json!({ "what": change.to_string(), "cql": change.cql() });
    json!({
        "policy": policy.name,
        "changes": plan.changes.iter().map(change).collect::<Vec<_>>(),
        "conflicts": plan.conflicts.iter().map(|conflict| json!({ "table": conflict.table, "what": conflict.what })).collect::<Vec<_>>(),
        "left_alone": plan.left_alone,
    })
}

fn plan_text(wanted: &Wanted, plan: &Plan) -> String {
    if wanted.keyspaces.is_empty() {
        return format!("{}\n", wanted.nothing());
    }
    let mut text = String::new();
    for change in &plan.changes {
        text.push_str(&format!("{change}\n"));
    }
    for conflict in &plan.conflicts {
        text.push_str(&format!("conflict: {conflict}\n"));
    }
    for left_alone in &plan.left_alone {
        text.push_str(&format!("left alone: {left_alone}, which the policy does not know\n"));
    }
    text.push_str(&match (plan.changes.len(), plan.conflicts.len()) {
        (0, 0) => {
            format!("nothing to do: the cluster has everything as the policy {} says\n", wanted.policy.name)
        }
        (_, 1..) => "nothing can be applied as long as there is a conflict\n".to_owned(),
        (changes, 0) => format!("{}: {}\n", count(changes), apply_command(&wanted.config)),
    });
    text
}

async fn apply(args: ApplyArgs) -> Result<ExitCode> {
    let wanted = Wanted::new(args.of, args.cluster)?;
    if wanted.keyspaces.is_empty() {
        print(&format!("{}\n", wanted.nothing()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (cluster, plan) = wanted.plan().await?;
    if !plan.conflicts.is_empty() {
        for conflict in &plan.conflicts {
            eprintln!("mobimir: {conflict}");
        }
        eprintln!("mobimir: nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    if plan.changes.is_empty() {
        print(&plan_text(&wanted, &plan))?;
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Progress::new(plan.changes.len());
    let applied = schema::apply(&cluster, &plan, |done, change| progress.show(done, change)).await;
    progress.finish();
    applied?;
    let made: Vec<String> = plan.changes.iter().map(|change| format!("{change}: done\n")).collect();
    let afterwards: Vec<String> =
        plan.changes.iter().filter_map(Change::afterwards).map(|note| format!("{note}\n")).collect();
    let name = &wanted.policy.name;
    let ending =
        format!("{} made: the cluster has everything as the policy {name} says\n", count(plan.changes.len()));
    print(&(made.concat() + &afterwards.concat() + &ending))?;
    Ok(ExitCode::SUCCESS)
}

fn count(changes: usize) -> String {
    if changes == 1 { "1 change".to_owned() } else { format!("{changes} changes") }
}

/// A bar for somebody who watches. A log gets the outcome only.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(changes: usize) -> Self {
        let style = ProgressStyle::with_template("{spinner} {pos}/{len} {wide_msg}");
        let bar = || {
            let bar = ProgressBar::new(changes as u64);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(TICK);
            bar
        };
        Self(std::io::stderr().is_terminal().then(bar))
    }

    fn show(&self, done: usize, change: &Change) {
        if let Some(bar) = &self.0 {
            bar.set_position(done as u64);
            bar.set_message(change.to_string());
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
