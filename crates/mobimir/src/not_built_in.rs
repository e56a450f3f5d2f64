//! What a build without some features says when somebody asks for them: what is missing, and how to get it.

use anyhow::{Error, Result, anyhow};
use mobimir_core::policy::{Entity, Policy, Store};

/// Builds everything.
const INSTEAD: &str = "`cargo build --release --package mobimir` builds everything";

/// Stands in for a group of commands. It takes whatever is written after it, so that the answer is never about arguments.
macro_rules! command {
    ($module:ident, $args:ident, $name:literal) => {
        pub(crate) mod $module {
            use std::ffi::OsString;

            /// Not part of this build
            #[derive(Debug, clap::Args)]
            #[command(disable_help_flag = true)]
            pub(crate) struct $args {
                #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
                _rest: Vec<OsString>,
            }

            pub(crate) fn run<T>(_: $args) -> anyhow::Result<T> {
                let instead = super::INSTEAD;
                Err(anyhow::anyhow!("`mobimir {}` is not part of this build: {instead}", $name))
            }
        }
    };
}

command!(lab, LabArgs, "lab");
command!(load, LoadArgs, "load");
command!(migrate, MigrateArgs, "migrate");
command!(partitions, PartitionsArgs, "partitions");
command!(schema, SchemaArgs, "schema");

/// Refuses a policy that needs a store without a driver: as a home, or as where something can move.
pub(crate) fn check_stores(policy: &Policy, has_migrations: bool) -> Result<()> {
    let built_in = [
        (Store::Mongodb, "MongoDB", cfg!(feature = "mongodb")),
        (Store::Cassandra, "Cassandra", cfg!(feature = "cassandra")),
    ];
    let is_needed = |store| {
        let placements = Entity::ALL.iter().filter_map(|entity| policy.placement(*entity));
        placements.into_iter().any(|placement| match has_migrations {
            true => placement.uses(store),
            false => placement.home == store,
        })
    };
    match built_in.into_iter().find(|(store, _, is_built_in)| !is_built_in && is_needed(*store)) {
        Some((_, name, _)) => Err(store(name, policy)),
        None => Ok(()),
    }
}

/// A policy needs a store that this build has no driver for.
pub(crate) fn store(name: &str, policy: &Policy) -> Error {
    anyhow!("the policy {} needs {name}, which is not part of this build: {INSTEAD}", policy.name)
}

/// `migrations = true` without the code that moves data.
pub(crate) fn migrations() -> Error {
    anyhow!("migrations = true: moving data is not part of this build: {INSTEAD}")
}

#[cfg(test)]
mod tests {
    use clap::{Parser, Subcommand};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        Lab(lab::LabArgs),
        Load(load::LoadArgs),
        Migrate(migrate::MigrateArgs),
        Partitions(partitions::PartitionsArgs),
        Schema(schema::SchemaArgs),
    }

    #[test]
    fn a_command_that_is_not_built_in_says_so_whatever_follows_it() {
        for line in [
            "lab",
            "lab up",
            "lab --help",
            "load run --rate 2000 --for=30s",
            "migrate status orders --watch",
            "partitions top",
            "schema apply -h -- --policy",
        ] {
            let cli = Cli::try_parse_from(["mobimir"].into_iter().chain(line.split(' '))).unwrap();
            let answer: Result<()> = match cli.command {
                Command::Lab(args) => lab::run(args),
                Command::Load(args) => load::run(args),
                Command::Migrate(args) => migrate::run(args),
                Command::Partitions(args) => partitions::run(args),
                Command::Schema(args) => schema::run(args),
            };
            let name = line.split(' ').next().unwrap();
            assert_eq!(
                answer.unwrap_err().to_string(),
                format!(
                    "`mobimir {name}` is not part of this build: `cargo build --release --package mobimir` builds everything"
                )
            );
        }
    }

    #[test]
    fn a_policy_is_refused_by_a_build_without_its_stores() {
        let has_all = cfg!(all(feature = "cassandra", feature = "mongodb"));
        for (name, needs_servers) in [("embedded", false), ("default", true)] {
            let policy = Policy::built_in(name).unwrap().unwrap();
            for has_migrations in [false, true] {
                let refused = check_stores(&policy, has_migrations).is_err();
                assert_eq!(refused, needs_servers && !has_all, "{name}");
            }
        }
    }

    #[test]
    fn a_store_that_is_not_built_in_is_named_with_its_policy() {
        let policy = Policy::built_in("default").unwrap().unwrap();
        assert_eq!(
            store("MongoDB", &policy).to_string(),
            "the policy default needs MongoDB, which is not part of this build: \
             `cargo build --release --package mobimir` builds everything"
        );
    }
}
