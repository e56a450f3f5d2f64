//! wrk, a generator that does nothing but ask.

use std::{
    io::{ErrorKind, Read},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::process::Process;

const PROGRAM: &str = "wrk";
const END_TIME_MAX: Duration = Duration::from_secs(30);

/// Why there is no wrk, and how to get it; `None` when there is.
pub(crate) fn missing() -> Option<String> {
    cause(PROGRAM)
}

fn cause(program: &str) -> Option<String> {
    // Without an address it says how to use it, and ends.
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Some(format!("{program} is missing: `make bench` installs it, or apt-get install wrk"))
        }
        Err(error) => Some(format!("{program} cannot be started: {error}")),
    }
}

/// Requests a second for one address, by one thread.
pub(crate) fn rate(url: &str, connections: usize, lasts: Duration) -> Result<f64> {
    let mut command = Command::new(PROGRAM);
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{}s", lasts.as_secs().max(1)), url]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Process::start(&mut command).context("wrk cannot be started")?;
    let mut said = String::new();
    process.output()?.read_to_string(&mut said)?;
    let status = process.wait(END_TIME_MAX)?.context("wrk did not end")?;
    ensure!(status.success(), "wrk ended with {status}: {said}");
    parse(&said)
}

fn parse(said: &str) -> Result<f64> {
    let is_wrong = |line: &&str| line.contains("Non-2xx") || line.contains("Socket errors");
    if let Some(wrong) = said.lines().find(is_wrong) {
        anyhow::bail!("wrk had wrong answers: {}", wrong.trim());
    }
    let rate = said.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    rate.and_then(|rate| rate.trim().parse().ok()).with_context(|| format!("wrk told no rate: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_how_to_get_it() {
        let cause = cause("wrk-that-nobody-has").unwrap();
        assert!(cause.contains("apt-get install wrk"), "{cause}");
        assert_eq!(super::cause("true"), None);
    }

    #[test]
    fn the_rate_is_what_it_says_and_wrong_answers_are_none() {
        let said = "Running 2s test\n  96000 requests in 2.00s, 58.1MB read\nRequests/sec:  47985.32\nTransfer/sec: 29MB\n";
        assert_eq!(parse(said).unwrap(), 47_985.32);
        assert!(parse(&format!("  Non-2xx or 3xx responses: 7\n{said}")).is_err());
        assert!(parse("unable to connect").is_err());
    }
}
