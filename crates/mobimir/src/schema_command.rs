//! `mobimir schema`: the tables and indexes that a policy asks for, printed, compared with the servers, and made there.

use std::{io::IsTerminal, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use mobimir_cassandra::{
    Cluster,
    schema::{self as tables, Keyspace},
};
use mobimir_core::policy::Policy;
use mobimir_mongodb::{
    Deployment, MongoConfig,
    schema::{self as indexes, Wanted as Collection},
};
use serde_json::json;

use crate::{
    cluster::{self, ClusterArgs, DataCentres, apply_command},
    config::Config,
    in_runtime,
    servers::Cassandra,
    terminal::print,
};

const TICK: Duration = Duration::from_millis(100);

/// Make the tables that a policy asks for in Cassandra, and the indexes in MongoDB
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

/// Print the tables as CQL and the indexes as commands of mongosh; no server is needed
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir schema print --policy default
  mobimir schema print --policy bucketed --data-centres dc1=3 --store cassandra > tables.cql
  mobimir schema print --policy default --store mongodb > indexes.js")]
struct PrintArgs {
    #[command(flatten)]
    of: PolicyArgs,
    /// Data centres and their replicas, instead of those that the policy names: dc1=3 or dc1=3,dc2=3
    #[arg(long, value_name = "DC=N")]
    data_centres: Option<DataCentres>,
    /// Only what belongs to one kind of server, so that its shell can take it
    #[arg(long, value_enum)]
    store: Option<ServerKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ServerKind {
    Cassandra,
    Mongodb,
}

/// Say what the servers have otherwise than the policy says; nothing is changed
///
/// Tables, columns and indexes that the policy does not know are left alone, and named.
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

/// Make the servers as the policy says: create what is missing, change what differs, drop nothing
///
/// What cannot be changed in place (a key, the type of a column, an index) is named, the exit code is then 1, and nothing is done.
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
    collections: Vec<Collection>,
}

/// What has to be done, on each kind of server that the policy uses.
#[derive(Default)]
struct Plans {
    tables: Option<(Arc<Cluster>, tables::Plan)>,
    indexes: Option<(Arc<Deployment>, indexes::Plan)>,
}

/// One thing to be done, as it is told.
struct Told {
    what: String,
    command: String,
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
        let keyspaces = tables::keyspaces(&policy, &config.cassandra.keyspace_prefix);
        let collections = indexes::wanted(&policy);
        Ok(Self { config, policy, keyspaces, collections })
    }

    fn is_nothing(&self) -> bool {
        self.keyspaces.is_empty() && self.collections.is_empty()
    }

    fn nothing(&self) -> String {
        format!("nothing to do: the policy {} places nothing in Cassandra or MongoDB\n", self.policy.name)
    }

    async fn plan(&self) -> Result<Plans> {
        let mut plans = Plans::default();
        if !self.collections.is_empty() {
            let config = MongoConfig::from(&self.config.mongodb);
            let deployment = Deployment::connect(config).await.map_err(|error| anyhow!("{error}"))?;
            let plan = indexes::plan(&deployment, &self.collections).await?;
            plans.indexes = Some((deployment, plan));
        }
        if !self.keyspaces.is_empty() {
            let cassandra = Cassandra::connect(&self.config.cassandra, &self.policy).await?;
            let plan = tables::plan(cassandra.cluster(), &self.keyspaces).await?;
            plans.tables = Some((cassandra.cluster().clone(), plan));
        }
        Ok(plans)
    }
}

impl Plans {
    fn changes(&self, database: &str) -> Vec<Told> {
        let tables = self.tables.iter().flat_map(|(_, plan)| &plan.changes);
        let tables = tables.map(|change| Told { what: change.to_string(), command: change.cql() });
        let indexes = self.indexes.iter().flat_map(|(_, plan)| &plan.changes);
        let indexes =
            indexes.map(|change| Told { what: change.to_string(), command: change.script(database) });
        tables.chain(indexes).collect()
    }

    /// Where, and what stands against it.
    fn conflicts(&self) -> Vec<(String, String)> {
        let tables = self.tables.iter().flat_map(|(_, plan)| &plan.conflicts);
        let tables = tables.map(|conflict| (conflict.table.clone(), conflict.what.clone()));
        let indexes = self.indexes.iter().flat_map(|(_, plan)| &plan.conflicts);
        tables.chain(indexes.map(|conflict| (conflict.collection.clone(), conflict.what.clone()))).collect()
    }

    fn left_alone(&self) -> Vec<&String> {
        let tables = self.tables.iter().flat_map(|(_, plan)| &plan.left_alone);
        tables.chain(self.indexes.iter().flat_map(|(_, plan)| &plan.left_alone)).collect()
    }

    /// To be known once the changes are made.
    fn afterwards(&self) -> String {
        let changes = self.tables.iter().flat_map(|(_, plan)| &plan.changes);
        changes.filter_map(tables::Change::afterwards).map(|note| format!("{note}\n")).collect()
    }

    async fn carry_out(&self, progress: &Progress) -> Result<()> {
        let mut before = 0;
        if let Some((cluster, plan)) = &self.tables {
            tables::apply(cluster, plan, |done, change| progress.show(done, change)).await?;
            before = plan.changes.len();
        }
        if let Some((deployment, plan)) = &self.indexes {
            indexes::carry_out(deployment, plan, |done, change| progress.show(before + done, change)).await?;
        }
        Ok(())
    }
}

fn print_script(args: PrintArgs) -> Result<ExitCode> {
    let cluster = ClusterArgs { data_centres: args.data_centres, ..ClusterArgs::default() };
    let wanted = Wanted::new(args.of, cluster)?;
    let name = &wanted.policy.name;
    let asked = |kind| args.store.is_none_or(|store| store == kind);
    let mut text = String::new();
    if asked(ServerKind::Cassandra) {
        text.push_str(&match wanted.keyspaces.is_empty() {
            true => format!("-- the policy {name} places nothing in Cassandra\n"),
            false => format!(
                "-- the tables of the policy {name}; what is there already is left as it is\n\n{}",
                tables::script(&wanted.keyspaces)
            ),
        });
    }
    if asked(ServerKind::Mongodb) {
        text.push_str(&match wanted.collections.is_empty() {
            true => format!("// the policy {name} places nothing in MongoDB\n"),
            false => format!(
                "// the indexes of the policy {name} in MongoDB, for mongosh\n\n{}",
                indexes::script(&wanted.collections, &wanted.config.mongodb.database)
            ),
        });
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

async fn plan(args: PlanArgs) -> Result<ExitCode> {
    let wanted = Wanted::new(args.of, args.cluster)?;
    let plans = wanted.plan().await?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&plan_json(&wanted, &plans))?))?;
    } else {
        print(&plan_text(&wanted, &plans))?;
    }
    let differs = !plans.changes(&wanted.config.mongodb.database).is_empty() || !plans.conflicts().is_empty();
    Ok(if args.check && differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn plan_json(wanted: &Wanted, plans: &Plans) -> serde_json::Value {
    let changes = plans.changes(&wanted.config.mongodb.database);
    let changes: Vec<_> =
        changes.into_iter().map(|told| json!({ "what": told.what, "command": told.command })).collect();
    let conflicts = plans.conflicts();
    let conflicts: Vec<_> =
        conflicts.into_iter().map(|(table, what)| json!({ "table": table, "what": what })).collect();
    json!({
        "policy": wanted.policy.name,
        "changes": changes,
        "conflicts": conflicts,
        "left_alone": plans.left_alone(),
    })
}

fn plan_text(wanted: &Wanted, plans: &Plans) -> String {
    if wanted.is_nothing() {
        return wanted.nothing();
    }
    let (changes, conflicts) = (plans.changes(&wanted.config.mongodb.database), plans.conflicts());
    let mut text = String::new();
    for change in &changes {
        text.push_str(&format!("{}\n", change.what));
    }
    for (table, what) in &conflicts {
        text.push_str(&format!("conflict: {table}: {what}\n"));
    }
    for left_alone in plans.left_alone() {
        text.push_str(&format!("left alone: {left_alone}, which the policy does not know\n"));
    }
    text.push_str(&match (changes.len(), conflicts.len()) {
        (0, 0) => {
            format!("nothing to do: everything is as the policy {} says\n", wanted.policy.name)
        }
        (_, 1..) => "nothing can be applied as long as there is a conflict\n".to_owned(),
        (changes, 0) => format!("{}: {}\n", count(changes), apply_command(&wanted.config)),
    });
    text
}

async fn apply(args: ApplyArgs) -> Result<ExitCode> {
    let wanted = Wanted::new(args.of, args.cluster)?;
    if wanted.is_nothing() {
        print(&wanted.nothing())?;
        return Ok(ExitCode::SUCCESS);
    }
    let plans = wanted.plan().await?;
    let (changes, conflicts) = (plans.changes(&wanted.config.mongodb.database), plans.conflicts());
    if !conflicts.is_empty() {
        for (table, what) in &conflicts {
            eprintln!("mobimir: {table}: {what}");
        }
        eprintln!("mobimir: nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    if changes.is_empty() {
        print(&plan_text(&wanted, &plans))?;
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Progress::new(changes.len());
    let made = plans.carry_out(&progress).await;
    progress.finish();
    made?;
    let done: String = changes.iter().map(|change| format!("{}: done\n", change.what)).collect();
    let ending =
        format!("{} made: everything is as the policy {} says\n", count(changes.len()), wanted.policy.name);
    print(&(done + &plans.afterwards() + &ending))?;
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

    fn show(&self, done: usize, change: &impl std::fmt::Display) {
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
