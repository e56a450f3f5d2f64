//! `mobimir backup` and `mobimir restore`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use http_body_util::BodyExt;
use indicatif::{ProgressBar, ProgressStyle};
use mobimir_embedded::{EmbeddedStore, OpenError, Options, Progress, backup::IncomingDump};

use crate::{client, control::Control, homes::noted_elsewhere};

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

The copy is all of the shop's data as it was at one moment; the shop goes on meanwhile.
What the policy places in Cassandra is not in it, and is named: nodetool snapshot copies that.";

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

/// What was copied, and what of the shop's data was not.
struct Copied {
    total: Progress,
    not_included: Option<String>,
}

pub(crate) async fn backup(args: BackupArgs) -> Result<()> {
    let bar = progress_bar("copying");
    let copied = match &args.target {
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
    report("copied to", &args.dir, &copied, args.json)
}

/// From a data directory: opened if nobody has it open, asked of the shop that runs on it otherwise.
async fn copy(data: &Path, dir: &Path, bar: &ProgressBar) -> Result<Copied> {
    if !data.exists() {
        anyhow::bail!("there is no data directory {}: name the shop's with --data", data.display());
    }
    match EmbeddedStore::open(data, &Options::default()) {
        Ok(store) => {
            let (dir, bar) = (dir.to_owned(), bar.clone());
            let copying = move || store.backup(&dir, &mut |so_far| show(&bar, so_far));
            let total = tokio::task::spawn_blocking(copying).await??;
            Ok(Copied { total, not_included: noted_elsewhere(data) })
        }
        Err(OpenError::InUse { .. }) => {
            let running = Control::read(data)
                .context("the data directory is in use, but by no shop that can be asked")?;
            download(&running.address, &running.token, dir, bar).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn download(url: &str, token: &str, dir: &Path, bar: &ProgressBar) -> Result<Copied> {
    let mut incoming = IncomingDump::create(dir)?;
    let answer = client::get(url, "/v1/ops/backup", token).await?;
    let not_included = answer.headers().get(mobimir_http::NOT_INCLUDED);
    let not_included = not_included.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut body = answer.into_body();
    let mut received = Progress::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the shop stopped in the middle of the backup")?;
        if let Some(chunk) = frame.data_ref() {
            incoming.write(chunk)?;
            received.bytes += chunk.len() as u64;
            show(bar, received);
        }
    }
    let total = tokio::task::spawn_blocking(move || incoming.finish()).await??;
    Ok(Copied { total, not_included })
}

pub(crate) fn restore(args: RestoreArgs) -> Result<()> {
    let bar = progress_bar("restoring");
    let data = args.data.unwrap_or_else(|| PathBuf::from("data"));
    let total = mobimir_embedded::restore(&args.backup, &data, &mut |so_far| show(&bar, so_far))?;
    bar.finish_and_clear();
    report("restored to", &data, &Copied { total, not_included: None }, args.json)
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
fn report(done: &str, dir: &Path, copied: &Copied, json: bool) -> Result<()> {
    let Copied { total: Progress { records, bytes }, not_included } = copied;
    if json {
        let mut answer = serde_json::json!({ "directory": dir, "records": records, "bytes": bytes });
        if let Some(not_included) = not_included {
            answer["not_included"] = serde_json::json!(not_included);
        }
        println!("{answer}");
        return Ok(());
    }
    println!("{done} {}: {records} records, {bytes} bytes", dir.display());
    if let Some(not_included) = not_included {
        println!("not in this copy: {not_included}; copy that with nodetool snapshot");
    }
    Ok(())
}
