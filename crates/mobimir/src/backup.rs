//! `mobimir backup` and `mobimir restore`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use http_body_util::BodyExt;
use indicatif::{ProgressBar, ProgressStyle};
use mobimir_embedded::{EmbeddedStore, OpenError, Options, Progress, backup::IncomingDump};

use crate::{client, control::Control};

#[derive(Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub(crate) struct BackupArgs {
    /// Where the backup goes: a directory that is empty or not there yet
    dir: PathBuf,
    /// Data directory of the shop, running or not [default: data]
    #[arg(long, value_name = "DIR", conflicts_with = "target")]
    data: Option<PathBuf>,
    /// A running shop elsewhere; the operator's token is taken from MOBIMIR_OPERATOR_TOKEN
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// Print what was copied as JSON
    #[arg(long)]
    json: bool,
}

const BACKUP_EXAMPLES: &str = "\
Examples:
  mobimir backup ./backup-2025-11-28 --data ./shop
  MOBIMIR_OPERATOR_TOKEN=... mobimir backup ./copy --target http://10.0.0.5:8080

The copy is all of the shop's data as it was at one moment; the shop goes on meanwhile.";

#[derive(Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// The directory of a backup
    backup: PathBuf,
    /// The new data directory: empty or not there yet [default: data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print what was restored as JSON
    #[arg(long)]
    json: bool,
}

const RESTORE_EXAMPLES: &str = "\
Examples:
  mobimir restore ./backup-2025-11-28 --data ./shop-again
  mobimir serve --data ./shop-again

The backup is checked as a whole before anything is written.";

pub(crate) async fn backup(args: BackupArgs) -> Result<()> {
    let bar = progress_bar("copying");
    let total = match &args.target {
        Some(url) => {
            let token = std::env::var("MOBIMIR_OPERATOR_TOKEN")
                .context("MOBIMIR_OPERATOR_TOKEN is not set: it opens the shop at --target")?;
            download(url, &token, &args.dir, &bar).await?
        }
        None => {
            let data = args.data.unwrap_or_else(|| PathBuf::from("data"));
            copy(&data, &args.dir, &bar).await?
        }
    };
    bar.finish_and_clear();
    report("copied to", &args.dir, total, args.json)
}

/// From a data directory: opened if nobody has it open, asked of the shop that runs on it otherwise.
async fn copy(data: &Path, dir: &Path, bar: &ProgressBar) -> Result<Progress> {
    if !data.exists() {
        anyhow::bail!("there is no data directory {}: name the shop's with --data", data.display());
    }
    match EmbeddedStore::open(data, &Options::default()) {
        Ok(store) => {
            let (dir, bar) = (dir.to_owned(), bar.clone());
            Ok(tokio::task::spawn_blocking(move || store.backup(&dir, &mut |so_far| show(&bar, so_far)))
                .await??)
        }
        Err(OpenError::InUse { .. }) => {
            let running = Control::read(data)
                .context("the data directory is in use, but by no shop that can be asked")?;
            download(&running.address, &running.token, dir, bar).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn download(url: &str, token: &str, dir: &Path, bar: &ProgressBar) -> Result<Progress> {
    let mut incoming = IncomingDump::create(dir)?;
    let mut body = client::get(url, "/v1/ops/backup", token).await?.into_body();
    let mut received = Progress::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the shop stopped in the middle of the backup")?;
        if let Some(chunk) = frame.data_ref() {
            incoming.write(chunk)?;
            received.bytes += chunk.len() as u64;
            show(bar, received);
        }
    }
    Ok(tokio::task::spawn_blocking(move || incoming.finish()).await??)
}

pub(crate) fn restore(args: RestoreArgs) -> Result<()> {
    let bar = progress_bar("restoring");
    let data = args.data.unwrap_or_else(|| PathBuf::from("data"));
    let total = mobimir_embedded::restore(&args.backup, &data, &mut |so_far| show(&bar, so_far))?;
    bar.finish_and_clear();
    report("restored to", &data, total, args.json)
}

fn progress_bar(doing: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {spinner} {bytes} ({bytes_per_sec})")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style).with_message(doing)
}

fn show(bar: &ProgressBar, so_far: Progress) {
    bar.set_position(so_far.bytes);
    bar.tick();
}

#[expect(clippy::print_stdout, reason = "the command's answer")]
fn report(done: &str, dir: &Path, total: Progress, json: bool) -> Result<()> {
    let (records, bytes) = (total.records, total.bytes);
    if json {
        println!("{}", serde_json::json!({ "directory": dir, "records": records, "bytes": bytes }));
    } else {
        println!("{done} {}: {records} records, {bytes} bytes", dir.display());
    }
    Ok(())
}
