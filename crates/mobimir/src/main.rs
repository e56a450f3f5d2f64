//! `mobimir`: the shop in one program.

mod backend;
mod backup;
mod client;
mod cluster;
mod config;
mod control;
mod demo;
mod homes;
mod import;
mod migrations;
#[allow(dead_code, reason = "what a build lacks depends on its features")]
mod not_built_in;
mod policy_command;
mod serve;
mod servers;
mod terminal;

// Groups of commands that a build can do without.
#[cfg(feature = "lab")]
mod lab_command;
#[cfg(not(feature = "lab"))]
use not_built_in::lab as lab_command;
#[cfg(feature = "load")]
mod load_command;
#[cfg(not(feature = "load"))]
use not_built_in::load as load_command;
#[cfg(feature = "migrate")]
mod migrate_command;
#[cfg(not(feature = "migrate"))]
use not_built_in::migrate as migrate_command;
#[cfg(feature = "cassandra")]
mod partitions_command;
#[cfg(not(feature = "cassandra"))]
use not_built_in::partitions as partitions_command;
#[cfg(feature = "schema")]
mod schema_command;
#[cfg(not(feature = "schema"))]
use not_built_in::schema as schema_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mobimir_core::time::{Clock, SystemClock};

/// A request allocates some dozens of times, and what one thread allocated another often frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "mobimir", version, about = "The data platform of the online shop «Мобильный мир»", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mobimir demo                                  a shop with 10,000 products at http://127.0.0.1:8080
  mobimir serve --data ./shop                   your own shop
  mobimir import online-retail FILE --data ./shop
  mobimir policy show                           what is decided for each kind of data
  mobimir lab cassandra --nodes 3               real servers on this machine
  mobimir schema apply --policy default         the policy's tables in Cassandra
  mobimir load run --rate 5000 --for 30s        a crowd of shoppers, and a report
  mobimir backup ./backup-2025-11-28 --data ./shop";

#[derive(Subcommand)]
enum Command {
    /// Serve the shop
    Serve(serve::ServeArgs),
    /// Serve a shop with a generated catalogue
    Demo(serve::DemoArgs),
    /// Bring data of other shops into this one
    Import(import::ImportArgs),
    /// Look at policies, and check them
    Policy(policy_command::PolicyArgs),
    Lab(lab_command::LabArgs),
    Load(load_command::LoadArgs),
    Migrate(migrate_command::MigrateArgs),
    Schema(schema_command::SchemaArgs),
    Partitions(partitions_command::PartitionsArgs),
    /// Copy the data of a shop, running or not
    Backup(backup::BackupArgs),
    /// Make a data directory from a backup
    Restore(backup::RestoreArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    allow_many_open_files();
    let fine = |()| ExitCode::SUCCESS;
    let done = match cli.command {
        Command::Serve(args) => serve::serve(args).map(fine),
        Command::Demo(args) => serve::demo(args).map(fine),
        Command::Import(args) => in_runtime(import(args)).map(fine),
        Command::Policy(args) => policy_command::run(args),
        Command::Schema(args) => schema_command::run(args),
        Command::Partitions(args) => partitions_command::run(args),
        Command::Lab(args) => lab_command::run(args).map(fine),
        Command::Load(args) => load_command::run(args),
        Command::Migrate(args) => migrate_command::run(args),
        Command::Backup(args) => in_runtime(backup::backup(args)).map(fine),
        Command::Restore(args) => backup::restore(args).map(fine),
    };
    done.unwrap_or_else(|error| {
        eprintln!("mobimir: {error:#}");
        ExitCode::FAILURE
    })
}

async fn import(args: import::ImportArgs) -> anyhow::Result<()> {
    let zones = config::Config::load(None)?.zones;
    import::run(args, zones, SystemClock.now(), serve::open_for_import).await
}

fn in_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // The process ends now. A driver that takes leave of its servers in the background would panic if the runtime were taken
    // apart under it.
    std::mem::forget(runtime);
    done
}

/// Every connection is an open file, and many systems allow a process a thousand of them unless it asks for more.
fn allow_many_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, connections beyond it wait, and the log says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
