//! `mobimir import`: brings data of other shops into this one.

pub(crate) mod online_retail;
mod progress;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use mobimir_core::{ports::Stores, time::Timestamp, zone::Zone};

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Format {
    /// The "Online Retail" data of the UCI Machine Learning Repository
    ///
    /// Products, users and orders in the past are made of the invoice lines. What is there already stays as it is,
    /// so an import may be interrupted and started again, and a second one changes nothing.
    #[command(after_help = EXAMPLES)]
    OnlineRetail(OnlineRetailArgs),
}

const EXAMPLES: &str = "\
Examples:
  mobimir import online-retail online-retail.csv.gz --data ./shop
  mobimir import online-retail online-retail.csv --data ./shop --json

The columns are InvoiceNo, StockCode, Description, Quantity, InvoiceDate, UnitPrice, CustomerID and Country.
The shop must not be running on the same data directory.";

#[derive(Debug, Args)]
struct OnlineRetailArgs {
    /// The CSV file, plain or packed with gzip
    file: PathBuf,

    #[command(flatten)]
    destination: Destination,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Destination {
    /// The data directory of a shop that is not running; created if it is not there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// A running shop (not possible yet: its API takes no orders in the past)
    #[arg(long, value_name = "URL")]
    target: Option<String>,
}

/// Runs the import and prints its summary. `open_store` opens the data directory that was named.
pub(crate) async fn run(
    args: ImportArgs,
    zones: Vec<Zone>,
    now: Timestamp,
    open_store: impl FnOnce(&Path) -> Result<Stores>,
) -> Result<()> {
    let Format::OnlineRetail(args) = args.format;
    let Some(data) = args.destination.data else {
        bail!(
            "a running shop takes no orders in the past: stop it and import into its data directory with --data DIR"
        );
    };
    // Before the store, so that a mistyped name leaves no empty data directory behind.
    let file = File::open(&args.file).with_context(|| format!("{} cannot be opened", args.file.display()))?;
    let stores = open_store(&data)?;

    let options = online_retail::Options { zones, now };
    let mut display = progress::Display::new();
    let loaded = online_retail::load(&stores, file, &options, &mut |progress| display.show(progress)).await;
    display.clear();
    let summary = loaded.with_context(|| format!("{} was not imported completely", args.file.display()))?;

    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &summary)?;
        writeln!(out)?;
    } else {
        write!(out, "{summary}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
