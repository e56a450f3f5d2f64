//! `mobimir policy`: check a policy, show what it comes to, list those that come with the program.

use std::{io::Read, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use http_body_util::{BodyExt, Limited};
use mobimir_core::{
    policy::{BUILT_IN, Policy, PolicyError, ReadOperation, text_table},
    reading::Served,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{client, terminal::print};

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
///
/// Of a running shop also what was measured: how each operation was read, and how old the answers were.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  mobimir policy show
  mobimir policy show --policy default
  mobimir policy show --policy shop.toml --json
  mobimir policy show --policy default --toml > shop.toml
  MOBIMIR_OPERATOR_TOKEN=... mobimir policy show --target http://127.0.0.1:8080")]
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
    /// Of a running shop, with what was measured beside the budgets
    #[arg(long, value_name = "URL", conflicts_with_all = ["policy", "toml"], requires = "token")]
    target: Option<String>,
    /// The operator's token of that shop
    #[arg(long, env = "MOBIMIR_OPERATOR_TOKEN", hide_env_values = true)]
    token: Option<String>,
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
    if let Some(target) = &args.target {
        let policy = ask(target, args.token.as_deref().unwrap_or_default())?;
        if args.json {
            print_json(&policy)?;
        } else {
            print(&measured_tables(policy)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
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

/// The policy of a running shop, with what was measured.
fn ask(target: &str, token: &str) -> anyhow::Result<Value> {
    let answer = async {
        let response = client::get(target, "/v1/ops/policy", token).await?;
        let body = Limited::new(response.into_body(), POLICY_BYTES_MAX as usize).collect().await;
        let body = body.map_err(|error| anyhow!("{target} did not finish its answer: {error}"))?;
        serde_json::from_slice(&body.to_bytes()).with_context(|| format!("{target} answered something else"))
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(answer)
}

/// A policy as a shop answers it is a policy file in JSON, except for what was measured.
fn measured_tables(mut policy: Value) -> anyhow::Result<String> {
    let mut served = Vec::new();
    if let Some(Value::Object(reads)) = policy.get_mut("reads") {
        for (name, rule) in reads.iter_mut() {
            let measured = rule.as_object_mut().and_then(|rule| rule.remove("served"));
            let operation = ReadOperation::ALL.iter().find(|operation| operation.as_str() == name);
            if let (Some(measured), Some(operation)) = (measured, operation) {
                served.push(served_of(*operation, &measured));
            }
        }
    }
    let text = toml::to_string(&policy).context("the shop's policy cannot be read")?;
    let policy = Policy::parse(&text, "policy")
        .map_err(|error| anyhow!("the shop's policy cannot be read, is it another version?\n{error}"))?;
    Ok(policy.tables_with(Some(&served)))
}

fn served_of(operation: ReadOperation, measured: &Value) -> Served {
    let number = |key: &str| measured[key].as_u64().unwrap_or_default();
    Served {
        operation,
        reads: number("reads"),
        from_secondaries: number("from_secondaries"),
        again: number("again"),
        p50: Duration::from_millis(number("p50_ms")),
        p99: Duration::from_millis(number("p99_ms")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shop_measured_stands_beside_its_budgets() {
        let policy = Policy::built_in("default").unwrap().unwrap();
        let mut answer = serde_json::to_value(&policy).unwrap();
        answer["reads"]["product_page"]["served"] = json!({
            "reads": 2000, "from_secondaries": 1900, "secondary_share": 0.95, "again": 3, "p50_ms": 230, "p99_ms": 1900,
        });
        let tables = measured_tables(answer).unwrap();
        let line = |operation: &str| {
            let line = tables.lines().find(|line| line.trim_start().starts_with(operation)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("product_page"), "product_page products secondary 2s 2000 95.0 % 230ms 1.9s");
        assert_eq!(line("order_card"), "order_card orders secondary 2s - - - -");
        // Everything else is what it would be without.
        assert_eq!(tables.lines().count(), policy.tables().lines().count());
    }
}
