//! `mobimir lab`: real servers on this machine.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use mobimir_core::policy::text_table;
use mobimir_lab::{
    CASSANDRA_VERSION, Lab, Net, NodeState, NodeStatus, Outcome, Profile, Ring, RingSpec, Step,
};
use serde_json::{Value, json};

const TICK: Duration = Duration::from_millis(100);

/// Start real servers on this machine, look at them, hurt them
///
/// A lab is a ring of Apache Cassandra nodes on loopback addresses, each a process of its own that goes on when the
/// command is done. It needs Java 17 and Maven (apt-get install openjdk-17-jdk-headless maven), and about half a
/// gigabyte of memory a node. The server is fetched once, into the lab directory of MOBIMIR_LAB_DIR or of the cache.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
    /// Where the ring lives [default: lab in MOBIMIR_LAB_DIR, or else in ~/.cache/mobimir]
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  mobimir lab cassandra --nodes 3               a ring at 127.0.0.1:9042 and so on
  mobimir lab stop-node 2 --kill                see how the others do without it
  mobimir lab status
  mobimir lab start-node 2
  mobimir lab down";

#[derive(Debug, Subcommand)]
enum LabCommand {
    Cassandra(CassandraArgs),
    Status(StatusArgs),
    Join(JoinArgs),
    StartNode(StartNodeArgs),
    StopNode(StopNodeArgs),
    Down(DownArgs),
}

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
struct CassandraArgs {
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

/// Show the nodes: where each is, how the others see it, how much it has on disk
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab status
  mobimir lab status --json

UN is up, UJ is joining, DN runs and cannot be reached by the others, stopped does not run.")]
struct StatusArgs {
    /// Print the nodes as JSON
    #[arg(long)]
    json: bool,
}

/// Add a node to the running ring; it takes over its share of the data
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab join
  mobimir lab join --dc dc2")]
struct JoinArgs {
    /// The data centre
    #[arg(long, value_name = "DC", default_value = "dc1")]
    dc: String,
    /// Print the nodes as JSON
    #[arg(long)]
    json: bool,
}

/// Start a node that was stopped
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab start-node 2")]
struct StartNodeArgs {
    /// The number of the node
    #[arg(value_name = "N")]
    node: u16,
}

/// Stop a node
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab stop-node 2                       it says goodbye to the others first
  mobimir lab stop-node 2 --kill                the others find out by themselves, in some 20 s")]
struct StopNodeArgs {
    /// The number of the node
    #[arg(value_name = "N")]
    node: u16,
    /// With SIGKILL: no goodbye
    #[arg(long)]
    kill: bool,
}

/// End all nodes
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab down                              lab cassandra brings them back with their data
  mobimir lab down --wipe")]
struct DownArgs {
    /// Remove their data, too
    #[arg(long)]
    wipe: bool,
}

pub(crate) fn run(args: LabArgs) -> anyhow::Result<()> {
    let other_dir = args.dir.as_deref().map(|dir| format!(" --dir {}", dir.display())).unwrap_or_default();
    let lab = Lab::open(args.dir.unwrap_or_else(mobimir_lab::cache_dir));
    match args.command {
        LabCommand::Cassandra(args) => cassandra(&lab, &args, &other_dir),
        LabCommand::Status(args) => show(&lab, args.json),
        LabCommand::Join(args) => {
            waiting("the new node takes over its share of the data", || lab.join(&args.dc))?;
            show(&lab, args.json)
        }
        LabCommand::StartNode(args) => {
            waiting(&format!("starting node {}", args.node), || lab.start_node(args.node))?;
            print(&format!("node {} is up\n", args.node))
        }
        LabCommand::StopNode(args) => {
            waiting(&format!("ending node {}", args.node), || lab.stop_node(args.node, args.kill))?;
            print(&format!("node {} is stopped: mobimir lab start-node {0}{other_dir}\n", args.node))
        }
        LabCommand::Down(args) => down(&lab, &args, &other_dir),
    }
}

fn cassandra(lab: &Lab, args: &CassandraArgs, other_dir: &str) -> anyhow::Result<()> {
    let profile = match args.profile {
        ProfileArg::Test => Profile::Test,
        ProfileArg::Bench => Profile::Bench,
    };
    let mut spec = RingSpec::new(&vec![args.nodes; usize::from(args.dcs)], profile).on(args.net);
    spec.extra_yaml.extend(args.settings.iter().cloned());
    let steps = Steps::new();
    let started = lab.start(&spec, &mut |step| steps.show(&step));
    steps.finish();
    let (ring, outcome) = started?;
    if args.json {
        return print_json(&lab.status()?);
    }
    print(&report(&ring, outcome, lab.dir(), other_dir))
}

fn report(ring: &Ring, outcome: Outcome, dir: &Path, other_dir: &str) -> String {
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

fn show(lab: &Lab, json: bool) -> anyhow::Result<()> {
    let nodes = lab.status()?;
    if json { print_json(&nodes) } else { print(&table(&nodes)) }
}

fn table(nodes: &[NodeStatus]) -> String {
    let or_none = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
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

fn down(lab: &Lab, args: &DownArgs, other_dir: &str) -> anyhow::Result<()> {
    let ended = waiting("ending all nodes", || lab.down(args.wipe))?;
    let ended = match ended.len() {
        0 => "no node was running".to_owned(),
        1 => "1 node ended".to_owned(),
        nodes => format!("{nodes} nodes ended"),
    };
    let data = if args.wipe {
        "the data is removed".to_owned()
    } else {
        format!("the data stays, and mobimir lab down --wipe{other_dir} removes it")
    };
    print(&format!("{ended}; {data}\n"))
}

/// `500ms` is a text, `5` a number, `true` a truth, and `{"a": 1}` what it looks like.
fn parse_setting(text: &str) -> anyhow::Result<(String, Value)> {
    let (key, value) = text.split_once('=').ok_or_else(|| anyhow!("expected KEY=VALUE, got {text:?}"))?;
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(anyhow!("expected a key of cassandra.yaml, got {key:?}"));
    }
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| json!(value))))
}

/// What a start does: one line that changes for people who watch, one line a step for a log.
struct Steps {
    bar: Option<ProgressBar>,
}

impl Steps {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| spinner(String::new()));
        Steps { bar }
    }

    fn show(&self, step: &Step) {
        match &self.bar {
            Some(bar) if step.is_done() => bar.println(format!("✓ {step}")),
            Some(bar) => bar.set_message(step.to_string()),
            // Each file would be a line.
            None if matches!(step, Step::Fetching { files } if *files > 0) => {}
            None => eprintln!("{step}"),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows that something goes on that takes seconds.
fn waiting<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        eprintln!("{what}");
        return work();
    }
    let bar = spinner(what.to_owned());
    let done = work();
    bar.finish_and_clear();
    done
}

fn spinner(message: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner().with_style(style).with_message(message);
    bar.enable_steady_tick(TICK);
    bar
}

fn print_json(nodes: &[NodeStatus]) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(nodes)?))
}

/// A reader who has seen enough (`| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the answer")
        }
        _ => Ok(()),
    }
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
