//! `mobimir lab`: real servers on this machine.

mod cassandra;
mod mongo;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mobimir_lab::{
    Lab, LabError, MemberStatus, MongoShape, MongoSpec, Net, NodeStatus, Profile, RingSpec, Up,
};
use serde::Serialize;

use self::{
    cassandra::{CassandraArgs, JoinArgs, StartNodeArgs, StopNodeArgs},
    mongo::{MongoArgs, StartMemberArgs, StopMemberArgs},
    show::{print, print_json, show_steps, waiting},
};

/// Start real servers on this machine, look at them, hurt them
///
/// A lab is a ring of Apache Cassandra, a replica set of MongoDB, or both, on loopback addresses; each server is a process
/// of its own that goes on when the command is done. Cassandra needs Java 17 and Maven (apt-get install
/// openjdk-17-jdk-headless maven) and about half a gigabyte of memory a node, MongoDB needs Python's pip (apt-get install
/// python3-pip) and about 200 MB a member. The servers are fetched once, into the lab directory of MOBIMIR_LAB_DIR or of
/// the cache.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
    /// Where the servers live [default: lab in MOBIMIR_LAB_DIR, or else in ~/.cache/mobimir]
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  mobimir lab up                                both of the following
  mobimir lab cassandra --nodes 3               a ring at 127.0.0.1:9042 and so on
  mobimir lab mongo --members 3                 a replica set at 127.0.0.1:27017 and so on
  mobimir lab stop-node 2 --kill                see how the others do without it
  mobimir lab stop-member 1 --kill
  mobimir lab status
  mobimir lab start-node 2
  mobimir lab start-member 1
  mobimir lab down";

#[derive(Debug, Subcommand)]
enum LabCommand {
    Up(UpArgs),
    Cassandra(CassandraArgs),
    Mongo(MongoArgs),
    Status(StatusArgs),
    Join(JoinArgs),
    StartNode(StartNodeArgs),
    StopNode(StopNodeArgs),
    StartMember(StartMemberArgs),
    StopMember(StopMemberArgs),
    Down(DownArgs),
}

/// Start a ring of Apache Cassandra and a replica set of MongoDB
///
/// Like `lab cassandra` and `lab mongo`, one after the other. What runs already is left alone. Ctrl-C while they start
/// leaves nothing behind of either.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab up
  mobimir lab up --nodes 1 --members 1
  mobimir lab up --net 127.0.1 --port 28017 --dir ./second")]
struct UpArgs {
    /// Nodes of the ring
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=32))]
    nodes: u16,
    /// Members of the replica set
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=7))]
    members: u16,
    /// The loopback subnet of the ring; node 1 is at .1, and so on
    #[arg(long, value_name = "NET", default_value_t = Net::DEFAULT)]
    net: Net,
    /// The port of member 1; the others follow
    #[arg(long, value_name = "PORT", default_value_t = 27017, value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    port: u16,
}

/// Show the servers: where each is, how it does, how much it has on disk
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab status
  mobimir lab status --json

Of nodes, UN is up, UJ is joining, DN runs and cannot be reached by the others, stopped does not run. Of members, busy is
one that runs and is neither primary nor secondary: it starts, copies data, or does not answer.")]
struct StatusArgs {
    /// Print the servers as JSON
    #[arg(long)]
    json: bool,
}

/// End all servers
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab down                              lab cassandra and lab mongo bring them back with their data
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
        LabCommand::Up(args) => up(&lab, &args, &other_dir),
        LabCommand::Cassandra(args) => cassandra::run(&lab, &args, &other_dir),
        LabCommand::Mongo(args) => mongo::run(&lab, &args, &other_dir),
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
        LabCommand::StartMember(args) => {
            waiting(&format!("starting member {}", args.member), || lab.start_member(args.member))?;
            print(&format!("member {} is up\n", args.member))
        }
        LabCommand::StopMember(args) => {
            let stop = || lab.stop_member(args.member, args.kill);
            waiting(&format!("ending member {}", args.member), stop)?;
            print(&format!("member {} is stopped: mobimir lab start-member {0}{other_dir}\n", args.member))
        }
        LabCommand::Down(args) => down(&lab, &args, &other_dir),
    }
}

fn up(lab: &Lab, args: &UpArgs, other_dir: &str) -> anyhow::Result<()> {
    let ring = RingSpec::new(&[args.nodes], Profile::Test).on(args.net);
    let set = MongoShape::Set(MongoSpec::new(args.members).on_port(args.port));
    let Up { ring, mongo: cluster } = show_steps(|progress| lab.up(&ring, &set, progress))?;
    print(&cassandra::report(&ring.0, ring.1, lab.dir(), other_dir))?;
    print(&mongo::report(&cluster.0, cluster.1, lab.dir(), other_dir))
}

/// A line of the status as JSON; `server` says what it is.
#[derive(Debug, Serialize)]
#[serde(tag = "server", rename_all = "lowercase")]
enum ServerStatus {
    Cassandra(NodeStatus),
    MongoDb(MemberStatus),
}

fn show(lab: &Lab, json: bool) -> anyhow::Result<()> {
    let nodes = match lab.status() {
        Err(LabError::NoRing { .. }) => Vec::new(),
        nodes => nodes?,
    };
    let members = match lab.mongo_status() {
        Err(LabError::NoMongo { .. }) => Vec::new(),
        members => members?,
    };
    if nodes.is_empty() && members.is_empty() {
        return Err(LabError::Nothing { dir: lab.dir().to_owned() }.into());
    }
    if json {
        let nodes = nodes.into_iter().map(ServerStatus::Cassandra);
        return print_json(&nodes.chain(members.into_iter().map(ServerStatus::MongoDb)).collect::<Vec<_>>());
    }
    let mut tables = Vec::new();
    if !nodes.is_empty() {
        tables.push(cassandra::table(&nodes));
    }
    if !members.is_empty() {
        tables.push(mongo::table(&members));
    }
    print(&tables.join("\n"))
}

fn down(lab: &Lab, args: &DownArgs, other_dir: &str) -> anyhow::Result<()> {
    let (nodes, members) = waiting("ending all servers", || {
        // A ring that does not end must not keep the others.
        let (nodes, members) = (lab.down(args.wipe), lab.mongo_down(args.wipe));
        anyhow::Ok((nodes?.len(), members?.len()))
    })?;
    let ended = match (nodes, members) {
        (0, 0) => "no server was running".to_owned(),
        (nodes, 0) => format!("{} ended", counted(nodes, "node")),
        (0, members) => format!("{} ended", counted(members, "mongod")),
        (nodes, members) => format!("{} and {} ended", counted(nodes, "node"), counted(members, "mongod")),
    };
    let data = if args.wipe {
        "the data is removed".to_owned()
    } else {
        format!("the data stays, and mobimir lab down --wipe{other_dir} removes it")
    };
    print(&format!("{ended}; {data}\n"))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
