//! A crowd of shoppers, made by the program itself: `mobimir load run` as a process of its own, and its report.
//! [`saying`] is what a report says that a figure is made of.

#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod saying;

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind},
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mobimir_load::{
    profile::Profile,
    report::{self, Report},
};

use crate::{Setting, process::Process, server::OPERATOR_TOKEN};

pub(crate) const BLACK_FRIDAY: &str = "black-friday";

const CONNECTIONS: usize = 128;
/// From the end of what it says to the end of the process.
const END_TIME_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Crowd<'a> {
    setting: &'a Setting<'a>,
    shop: SocketAddr,
    profile: Profile,
    connections: usize,
}

impl<'a> Crowd<'a> {
    pub(crate) fn new(setting: &'a Setting<'a>, shop: SocketAddr, profile: Profile) -> Self {
        Self { setting, shop, profile, connections: CONNECTIONS }
    }

    pub(crate) fn of_black_friday(setting: &'a Setting<'a>, shop: SocketAddr) -> Result<Self> {
        Ok(Self::new(setting, shop, Profile::built_in(BLACK_FRIDAY)?))
    }

    pub(crate) fn with_connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Everybody comes in, sends at this rate for so long, and looks at everything afterwards.
    pub(crate) fn send(&self, rate: f64, lasts: Duration) -> Result<Report> {
        self.visit(rate, lasts, &[])
    }

    /// The highest rate of which one step keeps the limits. `None` when there is no such rate.
    pub(crate) fn find_max(&self, begin: f64, step: Duration) -> Result<Option<f64>> {
        found(&self.visit(begin, step, &["--findmax"])?)
    }

    fn visit(&self, rate: f64, lasts: Duration, more: &[&str]) -> Result<Report> {
        let Setting { binary, scratch, .. } = self.setting;
        let profile = scratch.path().join("profile.toml");
        fs::write(&profile, toml::to_string(&self.profile)?)?;
        let out = scratch.path().join("load");
        let json = out.with_extension("json");
        remove(&json)?;
        let mut command = Command::new(binary);
        // The exit code speaks of failed requests, too, which here are figures; so it is not looked at.
        command.args(["load", "run", "--target", &format!("http://{}", self.shop)]);
        command.args(["--rate", &rate.to_string(), "--for", &format!("{}ms", lasts.as_millis())]);
        command.args(["--connections", &self.connections.to_string()]).args(more);
        command.arg("--profile").arg(&profile).arg("--out").arg(&out);
        command.env("MOBIMIR_OPERATOR_TOKEN", OPERATOR_TOKEN);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process::start(&mut command).context("the load cannot be started")?;
        let mut last_words = String::new();
        for line in BufReader::new(process.errors()?).lines() {
            last_words = line?;
            eprintln!("    {last_words}");
        }
        ensure!(process.wait(END_TIME_MAX)?.is_some(), "the load did not end");
        read(&json)?.with_context(|| format!("the load left no report: {last_words}"))
    }
}

/// What a search has found. A search in vain leaves a report, too, of the last rate that it tried.
fn found(report: &Report) -> Result<Option<f64>> {
    Ok(report.findmax.as_ref().context("the report is not of a search")?.found)
}

fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn read(file: &Path) -> Result<Option<Report>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(report::parse(&text)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use mobimir_load::{findmax::Search, profile::BUILT_IN};

    use super::*;

    /// The last rate that was tried is in the report, and is not one that keeps the limits.
    #[test]
    fn a_search_in_vain_finds_no_rate() {
        let mut report = sample::report();
        assert!(found(&report).is_err());
        report.findmax = Some(Search { steps: Vec::new(), found: None });
        assert_eq!(found(&report).unwrap(), None);
        report.findmax = Some(Search { steps: Vec::new(), found: Some(750.0) });
        assert_eq!(found(&report).unwrap(), Some(750.0));
    }

    #[test]
    fn profiles_are_read_as_they_are_written() {
        for (name, _) in BUILT_IN {
            let profile = Profile::built_in(name).unwrap();
            assert_eq!(Profile::parse(&toml::to_string(&profile).unwrap(), name).unwrap(), profile);
        }
    }
}
