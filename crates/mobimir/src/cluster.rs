//! Which servers a command is about, and how its policy is placed there.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use mobimir_core::policy::{Policy, Replication, Store};
use serde::{Deserialize, Deserializer};

use crate::{
    config::{CassandraConfig, Config, MongodbConfig, Secret},
    policy_command,
};

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClusterArgs {
    /// Some nodes of Cassandra, divided by commas [default: 127.0.0.1:9042]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub(crate) contact_points: Option<Vec<String>>,
    /// Data centres and their replicas, instead of those that the policy names: dc1=3 or dc1=3,dc2=3
    #[arg(long, value_name = "DC=N")]
    pub(crate) data_centres: Option<DataCentres>,
    /// Where MongoDB is [default: mongodb://127.0.0.1:27017]
    #[arg(long, value_name = "URI")]
    pub(crate) mongodb: Option<String>,
}

/// Data centres with the number of replicas in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataCentres(pub(crate) Replication);

const REPLICAS_MAX: u8 = 9;

impl ClusterArgs {
    /// Flags come before what is configured.
    pub(crate) fn over(self, config: &mut Config) {
        if let Some(contact_points) = self.contact_points {
            config.cassandra.contact_points = contact_points;
        }
        if self.data_centres.is_some() {
            config.cassandra.data_centres = self.data_centres;
        }
        if let Some(uri) = self.mongodb {
            config.mongodb.uri = Secret(uri);
        }
    }
}

impl FromStr for DataCentres {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let expected = || anyhow!("expected data centres like dc1=3,dc2=3, got {text:?}");
        let mut replication = Replication::new();
        for part in text.split(',') {
            let (name, replicas) = part.trim().split_once('=').ok_or_else(expected)?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || !name.chars().all(is_name) {
                return Err(expected());
            }
            let replicas: u8 = replicas.parse().map_err(|_| expected())?;
            if !(1..=REPLICAS_MAX).contains(&replicas) {
                bail!("expected 1 to {REPLICAS_MAX} replicas in {name}, got {replicas}");
            }
            if replication.insert(name.to_owned(), replicas).is_some() {
                bail!("expected {name} once, got it twice in {text:?}");
            }
        }
        Ok(Self(replication))
    }
}

impl std::fmt::Display for DataCentres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, replicas)| format!("{name}={replicas}")).collect();
        f.write_str(&parts.join(","))
    }
}

impl<'de> Deserialize<'de> for DataCentres {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The policy that is configured, in the data centres that are.
pub(crate) fn placed_policy(config: &Config) -> Result<Policy> {
    let policy = policy_command::load_policy(&config.policy)?;
    let Some(data_centres) = config.cassandra.data_centres.as_ref().filter(|_| policy.uses(Store::Cassandra))
    else {
        return Ok(policy);
    };
    // Read once more, because what was right for three replicas may be wrong for one.
    let text = policy.in_data_centres(&data_centres.0).to_toml()?;
    let name = format!("{} on {data_centres}", config.policy);
    let placed = Policy::parse(&text, &name);
    placed.map_err(|error| anyhow!("the policy does not fit these data centres:\n{error}"))
}

/// The command that brings the cluster's tables up to date.
pub(crate) fn apply_command(config: &Config) -> String {
    let default = CassandraConfig::default();
    let mut command = format!("mobimir schema apply --policy {}", config.policy);
    if config.cassandra.contact_points != default.contact_points {
        command.push_str(&format!(" --contact-points {}", config.cassandra.contact_points.join(",")));
    }
    if let Some(data_centres) = &config.cassandra.data_centres {
        command.push_str(&format!(" --data-centres {data_centres}"));
    }
    if config.cassandra.keyspace_prefix != default.keyspace_prefix {
        command.push_str(&format!(" --prefix {}", config.cassandra.keyspace_prefix));
    }
    let uri = &config.mongodb.uri.0;
    // Not one with a password in it.
    let is_secret = uri.contains('@') || uri.to_lowercase().contains("password");
    if *uri != MongodbConfig::default().uri.0 && !is_secret {
        command.push_str(&format!(" --mongodb '{uri}'"));
    }
    command
}

/// What a command is told about its policy and cluster, over what is configured.
pub(crate) fn configured(
    file: Option<&std::path::Path>,
    policy: Option<String>,
    prefix: Option<String>,
    cluster: ClusterArgs,
) -> Result<Config> {
    let mut config = Config::load(file)?;
    if let Some(policy) = policy {
        config.policy = policy;
    }
    if let Some(prefix) = prefix {
        config.cassandra.keyspace_prefix = prefix;
    }
    cluster.over(&mut config);
    config.cassandra.check().context("the command line")?;
    config.mongodb.check().context("the command line")?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_centres_are_read_as_they_are_written() {
        for text in ["dc1=3", "dc1=3,dc2=3", "eu-west_1=9,x=1"] {
            assert_eq!(text.parse::<DataCentres>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "dc1",
            "dc1=",
            "dc1=x",
            "dc1=0",
            "dc1=10",
            "=3",
            "dc1=3,",
            "dc1=3,dc1=2",
            "d c=3",
            "dc1=3;dc2=3",
        ] {
            assert!(bad.parse::<DataCentres>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_policy_has_to_fit_its_data_centres() {
        let mut config = Config { policy: "default".to_owned(), ..Config::default() };
        config.cassandra.data_centres = Some("east=1".parse().unwrap());
        let policy = placed_policy(&config).unwrap();
        assert_eq!(policy.name, "default");
        let settings = policy.carts.placement.cassandra.unwrap();
        assert_eq!((settings.home_dc.as_str(), settings.replication.len()), ("east", 1));
        let command = "mobimir schema apply --policy default --data-centres east=1";
        assert_eq!(apply_command(&config), command);
    }
}
