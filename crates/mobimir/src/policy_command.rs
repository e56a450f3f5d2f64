//! `mobimir policy`: check a policy, show what it comes to, list those that come with the program.

use std::{io::Read, process::ExitCode};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use mobimir_core::policy::{BUILT_IN, Policy, PolicyError, text_table};
use serde::Serialize;
use serde_json::json;

use crate::terminal::print;

/// A policy is a text of some kilobytes; anything larger is the wrong file.
const POLICY_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    Check(CheckArgs),
    Show(ShowArgs),
    List(ListArgs),
}

/// Check policies, and name what each gives up
///
/// Every mistake is printed on a line of its own, with its file, line and key, and the exit code is then 1. A
/// policy without mistakes is `ok`; the invariants that it gives up and what else its owner should know follow.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir policy check policies/quorum.toml
  mobimir policy check default
  mobimir policy check --json shop.toml")]
struct CheckArgs {
    /// A file, or the name of a policy that comes with the program
    #[arg(value_name = "FILE", required = true)]
    policies: Vec<String>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Show the effective policy: every key, whether it is written or not
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir policy show
  mobimir policy show --policy default
  mobimir policy show --policy shop.toml --json
  mobimir policy show --policy default --toml > shop.toml")]
struct ShowArgs {
    /// A file, or the name of a policy that comes with the program
    #[arg(long, value_name = "FILE|NAME", default_value = "embedded")]
    policy: String,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    /// Print it as a policy file that says everything
    #[arg(long, conflicts_with = "json")]
    toml: bool,
}

/// List the policies that come with the program
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir policy list
  mobimir policy list --json")]
struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: PolicyArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        PolicyCommand::Check(args) => check(&args),
        PolicyCommand::Show(args) => show(&args),
        PolicyCommand::List(args) => list(&args),
    }
}

/// The policy that a `--policy` names: one that comes with the program, or a file.
pub(crate) fn load_policy(file_or_name: &str) -> anyhow::Result<Policy> {
    match read_policy(file_or_name)? {
        Ok(policy) => Ok(policy),
        Err(error) => Err(anyhow!("the policy has mistakes:\n{error}")),
    }
}

fn read_policy(file_or_name: &str) -> anyhow::Result<Result<Policy, PolicyError>> {
    if let Some(policy) = Policy::built_in(file_or_name) {
        return Ok(policy);
    }
    let names: Vec<&str> = BUILT_IN.iter().map(|built_in| built_in.name).collect();
    let context = || {
        let names = names.join(", ");
        format!("cannot read the policy {file_or_name:?} (it is no file, and none of {names})")
    };
    let file = std::fs::File::open(file_or_name).with_context(context)?;
    let mut text = String::new();
    file.take(POLICY_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read the policy {file_or_name:?}"))?;
    if text.len() as u64 > POLICY_BYTES_MAX {
        return Err(anyhow!(
            "expected a policy of at most {POLICY_BYTES_MAX} bytes, got more in {file_or_name:?}"
        ));
    }
    Ok(Policy::parse(&text, file_or_name))
}

fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut all_good = true;
    let mut findings = Vec::new();
    for name in &args.policies {
        let result = read_policy(name)?;
        all_good &= result.is_ok();
        if args.json {
            findings.push(findings_json(name, &result));
            continue;
        }
        match result {
            Ok(policy) => print(&findings_text(name, &policy))?,
            Err(error) => eprintln!("{error}"),
        }
    }
    if args.json {
        print_json(&findings)?;
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn findings_text(name: &str, policy: &Policy) -> String {
    let given_up = policy.given_up().into_iter().map(|given_up| format!("  gives up {given_up}\n"));
    let warnings = policy.warnings().into_iter().map(|warning| format!("  warning: {warning}\n"));
    std::iter::once(format!("{name}: ok\n")).chain(given_up).chain(warnings).collect()
}

fn findings_json(name: &str, result: &Result<Policy, PolicyError>) -> serde_json::Value {
    match result {
        Ok(policy) => json!({
            "file": name,
            "ok": true,
            "errors": [],
            "given_up": policy.given_up(),
            "warnings": policy.warnings(),
        }),
        Err(error) => json!({
            "file": name,
            "ok": false,
            "errors": error.issues,
            "given_up": [],
            "warnings": [],
        }),
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let policy = match read_policy(&args.policy)? {
        Ok(policy) => policy,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    if args.json {
        print_json(&policy)?;
    } else if args.toml {
        print(&policy.to_toml()?)?;
    } else {
        print(&policy.tables())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let mut policies = Vec::new();
    for built_in in BUILT_IN {
        policies.push(built_in.policy().with_context(|| format!("the built-in policy {}", built_in.name))?);
    }
    if args.json {
        let entry = |policy: &Policy| {
            json!({
                "name": policy.name,
                "description": policy.description,
                "gives_up": given_up_names(policy),
            })
        };
        print_json(&policies.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = policies
        .iter()
        .map(|policy| {
            let given_up = given_up_names(policy);
            let given_up = if given_up.is_empty() { "-".to_owned() } else { given_up.join(", ") };
            vec![policy.name.clone(), given_up, policy.description.clone()]
        })
        .collect();
    print(&text_table(&["policy", "gives up", "what it is"], &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn given_up_names(policy: &Policy) -> Vec<&'static str> {
    let mut names: Vec<&str> = policy.given_up().iter().map(|given_up| given_up.invariant.name()).collect();
    names.dedup();
    names
}

fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}
