//! `mobimir`: the shop in one program.

mod backup;
mod client;
mod config;
mod control;
mod demo;
mod import;
mod lab_command;
mod policy_command;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mobimir_core::time::{Clock, SystemClock};

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
    /// Copy the data of a shop, running or not
    Backup(backup::BackupArgs),
    /// Make a data directory from a backup
    Restore(backup::RestoreArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve(args) => serve::serve(args),
        Command::Demo(args) => serve::demo(args),
        Command::Import(args) => in_runtime(import(args)),
        Command::Policy(args) => match policy_command::run(args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Lab(args) => lab_command::run(args),
        Command::Backup(args) => in_runtime(backup::backup(args)),
        Command::Restore(args) => backup::restore(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mobimir: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn import(args: import::ImportArgs) -> anyhow::Result<()> {
    let zones = config::Config::load(None)?.zones;
    import::run(args, zones, SystemClock.now(), serve::open_for_import).await
}

fn in_runtime(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
