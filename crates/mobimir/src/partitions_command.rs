//! `mobimir partitions`: which partitions in Cassandra are the largest.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};
use mobimir_cassandra::{NodeStat, PartitionReport, PartitionStat, measure};
use mobimir_core::policy::{Policy, text_table};
use serde_json::json;

use crate::{
    cluster::{self, ClusterArgs},
    in_runtime,
    servers::Cassandra,
    terminal::print,
};

/// See which partitions in Cassandra are the largest
#[derive(Debug, Args)]
pub(crate) struct PartitionsArgs {
    #[command(subcommand)]
    command: PartitionsCommand,
}

#[derive(Debug, Subcommand)]
enum PartitionsCommand {
    Top(TopArgs),
}

/// Measure the largest partitions of each table, and those of each node
///
/// Candidates are the partitions that the shop's instances wrote most to; their rows are counted now. What the nodes say
/// about their own tables stands below. A partition over the policy's limits (alerts.cassandra.partition_rows and
/// partition_size) is marked.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir partitions top --policy default
  mobimir partitions top --policy bucketed --data-centres dc1=3 --limit 3 --json")]
struct TopArgs {
    /// Policy: a file, or the name of a built-in one [default: embedded]
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    /// Keyspaces are called <PREFIX>_carts and so on [default: mobimir]
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Configuration file; each key is also a variable MOBIMIR_...
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Partitions of each table
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// The longest bar of the picture.
const BAR_CHARS: u64 = 20;

pub(crate) fn run(args: PartitionsArgs) -> Result<ExitCode> {
    match args.command {
        PartitionsCommand::Top(args) => in_runtime(top(args)),
    }
}

async fn top(args: TopArgs) -> Result<ExitCode> {
    let config = cluster::configured(args.config.as_deref(), args.policy, args.prefix, args.cluster)?;
    let policy = cluster::placed_policy(&config)?;
    let cassandra = Cassandra::connect(&config.cassandra, &policy).await?;
    let report = measure(cassandra.cluster(), &policy, usize::from(args.limit)).await?;
    let text = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&json!({ "policy": policy.name, "report": report }))?)
    } else {
        report_text(&report, &policy)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn report_text(report: &PartitionReport, policy: &Policy) -> String {
    if report.partitions.is_empty() {
        return "nothing was written to yet\n".to_owned();
    }
    let most = report.partitions.iter().map(|stat| stat.rows).max().unwrap_or(1).max(1);
    let row = |stat: &PartitionStat| {
        vec![
            stat.entity.to_string(),
            stat.table.clone(),
            stat.key.clone(),
            format!("{}{}", stat.rows, if stat.has_more_rows { "+" } else { "" }),
            bytes(stat.estimated_bytes),
            format!(
                "{}{}",
                "█".repeat(usize::try_from(stat.rows * BAR_CHARS / most).unwrap_or(0)),
                mark(stat, policy)
            ),
        ]
    };
    let partitions: Vec<Vec<String>> = report.partitions.iter().map(row).collect();
    let of_node = |stat: &NodeStat| {
        let largest = stat.largest_partition_mib.map_or_else(|| "-".to_owned(), |mib| format!("{mib} MiB"));
        let mean = bytes(stat.mean_partition_bytes.max(0).unsigned_abs());
        let dc = stat.dc.clone().unwrap_or_default();
        vec![
            stat.node.clone(),
            dc,
            stat.entity.to_string(),
            stat.table.clone(),
            largest,
            stat.partitions_estimated.to_string(),
            mean,
        ]
    };
    let nodes: Vec<Vec<String>> = report.nodes.iter().map(of_node).collect();
    format!(
        "{}\n{}",
        text_table(&["entity", "table", "partition", "rows", "about", ""], &partitions),
        text_table(&["node", "dc", "entity", "table", "largest", "partitions", "mean"], &nodes)
    )
}

fn mark(stat: &PartitionStat, policy: &Policy) -> &'static str {
    let limits = &policy.alerts.cassandra;
    let over = stat.rows > limits.partition_rows || stat.estimated_bytes > limits.partition_size.get();
    if over { " over the policy's limit" } else { "" }
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
