//! `mobimir lab cassandra`: a ring of Apache Cassandra.

use std::path::Path;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use mobimir_core::policy::text_table;
use mobimir_lab::{CASSANDRA_VERSION, Lab, Net, NodeState, NodeStatus, Outcome, Profile, Ring, RingSpec};
use serde_json::{Value, json};

use super::show::{or_none, print, print_json, show_steps};

/// Start a ring of Apache Cassandra
///
/// Returns when every node sees all others up. A ring like it that runs already is left alone; one that was ended
/// with `lab down` comes back with its data. Ctrl-C while it starts leaves nothing behind.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab cassandra
  mobimir lab cassandra --nodes 3 --dcs 2
  mobimir lab cassandra --nodes 1 --profile bench
  mobimir lab cassandra --net 127.0.1 --dir ./second
  mobimir lab cassandra --set write_request_timeout=500ms --set phi_convict_threshold=5")]
pub(super) struct CassandraArgs {
    /// Nodes in each data centre
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=32))]
    nodes: u16,
    /// Data centres: dc1, dc2, ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    dcs: u16,
    /// What the servers are for
    #[arg(long, value_enum, default_value_t = ProfileArg::Test)]
    profile: ProfileArg,
    /// The loopback subnet; node 1 is at .1, and so on
    #[arg(long, value_name = "NET", default_value_t = Net::DEFAULT)]
    net: Net,
    /// A setting of cassandra.yaml, over that of the lab; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, Value)>,
    /// Print the nodes as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProfileArg {
    /// Starts fast and stays small
    Test,
    /// Gets fast, after minutes of warming up
    Bench,
}

/// Add a node to the running ring; it takes over its share of the data
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab join
  mobimir lab join --dc dc2")]
pub(super) struct JoinArgs {
    /// The data centre
    #[arg(long, value_name = "DC", default_value = "dc1")]
    pub(super) dc: String,
    /// Print the nodes as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Start a node that was stopped
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab start-node 2")]
pub(super) struct StartNodeArgs {
    /// The number of the node
    #[arg(value_name = "N")]
    pub(super) node: u16,
}

/// Stop a node
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab stop-node 2                       it says goodbye to the others first
  mobimir lab stop-node 2 --kill                the others find out by themselves, in some 20 s")]
pub(super) struct StopNodeArgs {
    /// The number of the node
    #[arg(value_name = "N")]
    pub(super) node: u16,
    /// With SIGKILL: no goodbye
    #[arg(long)]
    pub(super) kill: bool,
}

pub(super) fn run(lab: &Lab, args: &CassandraArgs, other_dir: &str) -> anyhow::Result<()> {
    let profile = match args.profile {
        ProfileArg::Test => Profile::Test,
        ProfileArg::Bench => Profile::Bench,
    };
    let mut spec = RingSpec::new(&vec![args.nodes; usize::from(args.dcs)], profile).on(args.net);
    spec.extra_yaml.extend(args.settings.iter().cloned());
    let (ring, outcome) = show_steps(|progress| lab.start(&spec, progress))?;
    if args.json {
        return print_json(&lab.status()?);
    }
    print(&report(&ring, outcome, lab.dir(), other_dir))
}

pub(super) fn report(ring: &Ring, outcome: Outcome, dir: &Path, other_dir: &str) -> String {
    let what = format!("Apache Cassandra {CASSANDRA_VERSION} ({})", ring.spec());
    let mut text = match outcome {
        Outcome::Started => format!("{what} is up\n"),
        Outcome::WasRunning => format!("{what} was running already, and was left alone\n"),
    };
    for node in ring.nodes().iter().filter(|node| node.running().is_none()) {
        text.push_str(&format!("node {} is stopped: mobimir lab start-node {0}{other_dir}\n", node.id));
    }
    text.push_str(&format!(
        "  contact points  {}\n  look            mobimir lab status{other_dir}\n  end             mobimir lab \
         down{other_dir}\n  logs            {}/ring/node*/log/system.log\n",
        ring.contact_points().join(","),
        dir.display(),
    ));
    text
}

pub(super) fn table(nodes: &[NodeStatus]) -> String {
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|node| {
            let jmx = (node.state != NodeState::Stopped).then_some(u32::from(node.jmx_port));
            vec![
                node.node.to_string(),
                node.address.clone(),
                node.dc.clone(),
                node.rack.clone(),
                or_none(node.pid),
                node.state.to_string(),
                indicatif::HumanBytes(node.data_bytes).to_string(),
                or_none(jmx),
            ]
        })
        .collect();
    text_table(&["node", "address", "dc", "rack", "pid", "state", "data", "jmx"], &rows)
}

/// `500ms` is a text, `5` a number, `true` a truth, and `{"a": 1}` what it looks like.
fn parse_setting(text: &str) -> anyhow::Result<(String, Value)> {
    let (key, value) = text.split_once('=').ok_or_else(|| anyhow!("expected KEY=VALUE, got {text:?}"))?;
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(anyhow!("expected a key of cassandra.yaml, got {key:?}"));
    }
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| json!(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_what_it_looks_like() {
        let value = |text: &str| parse_setting(text).unwrap().1;
        assert_eq!(value("write_request_timeout=500ms"), json!("500ms"));
        assert_eq!(value("phi_convict_threshold=5"), json!(5));
        assert_eq!(value("hinted_handoff_enabled=false"), json!(false));
        assert_eq!(value("authenticator=a=b"), json!("a=b"));
        for bad in ["key", "=value", "two words=1", "a: b=1"] {
            assert!(parse_setting(bad).is_err(), "{bad}");
        }
    }
}
