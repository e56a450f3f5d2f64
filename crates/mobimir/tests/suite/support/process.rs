//! The program as a process that does not outlive its test.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::servers::{self, Tables};

pub(crate) const OPERATOR: &str = "test-operator-token";

/// How long a command or a shutdown may take before the test fails. They only end tests that hang.
const START_MAX: Duration = Duration::from_secs(600);
const END_MAX: Duration = Duration::from_secs(600);

/// Limits that no test reaches, however slow the machine is: each of them would turn slowness into a 503 or
/// a cut connection. None is switched off, so that the code behind it runs. A test about a limit sets its
/// own.
const GENEROUS_LIMITS: [(&str, &str); 4] = [
    // `suite/overload.rs` and the unit tests of `http/admission.rs` are about it.
    ("MOBIMIR_LIMITS_LATE_MS_MAX", "300000"),
    ("MOBIMIR_LIMITS_REQUEST_MS_MAX", "300000"),
    ("MOBIMIR_LIMITS_HEADER_READ_MS_MAX", "600000"),
    ("MOBIMIR_LIMITS_SHUTDOWN_MS_MAX", "300000"),
];
/// Of shops that are checked after a crash or a run of `mobimir load`, which waits a minute: what a request
/// has left behind is settled when no request can be running any more.
pub(crate) const SETTLING_REQUEST_LIMIT: (&str, &str) = ("MOBIMIR_LIMITS_REQUEST_MS_MAX", "30000");
/// The policy of embedded shops: no checkout is aborted because the machine is slow.
const GENEROUS_POLICY: &str = "name = \"embedded\"\n[times]\ncheckout_deadline = \"10m\"\n";

pub(crate) struct Process {
    child: Child,
    pub(crate) host: String,
    /// What the process said besides its address.
    pub(crate) said: Vec<String>,
    log: PathBuf,
}

/// The program, with nothing of this process' environment that could configure it.
pub(crate) fn program() -> Command {
    program_after(&[])
}

/// The same, for another program that starts it and takes its place.
fn program_after(prefix: &[String]) -> Command {
    let words = prefix.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_mobimir")]);
    let words: Vec<&str> = words.collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MOBIMIR_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// For `serve` without a policy of the test's own, which comes after this.
fn generous_policy(arguments: &[&str], data: &Path) -> Option<(&'static str, PathBuf)> {
    if arguments.first() != Some(&"serve") || arguments.contains(&"--policy") {
        return None;
    }
    let path = data.with_extension("generous.toml");
    std::fs::write(&path, GENEROUS_POLICY).unwrap();
    Some(("MOBIMIR_POLICY", path))
}

impl Process {
    /// A shop on the data directory, at a free port, or wherever this run keeps its data ([`servers`]).
    pub(crate) fn serve(data: &Path) -> Self {
        let environment = servers::environment(data, Tables::Shared);
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Self::start(&["serve"], data, &environment)
    }

    pub(crate) fn start(arguments: &[&str], data: &Path, environment: &[(&str, &str)]) -> Self {
        Self::start_at("127.0.0.1:0", arguments, data, environment)
    }

    pub(crate) fn start_at(
        listen: &str,
        arguments: &[&str],
        data: &Path,
        environment: &[(&str, &str)],
    ) -> Self {
        Self::start_within(&[], &GENEROUS_LIMITS, listen, arguments, data, environment)
    }

    /// With the limits that a shop has whose operator sets none.
    pub(crate) fn start_in_production(arguments: &[&str], data: &Path, environment: &[(&str, &str)]) -> Self {
        Self::start_within(&[], &[], "127.0.0.1:0", arguments, data, environment)
    }

    /// The same, started by the program that `prefix` names, at an address of its own.
    pub(crate) fn start_after(
        prefix: &[String],
        listen: &str,
        data: &Path,
        environment: &[(&str, &str)],
    ) -> Self {
        Self::start_within(prefix, &[], listen, &["serve"], data, environment)
    }

    fn start_within(
        prefix: &[String],
        limits: &[(&str, &str)],
        listen: &str,
        arguments: &[&str],
        data: &Path,
        environment: &[(&str, &str)],
    ) -> Self {
        let log = data.with_extension("log");
        let mut command = program_after(prefix);
        command
            .args(arguments)
            .args(["--listen", listen, "--data"])
            .arg(data)
            .env("MOBIMIR_OPERATOR_TOKEN", OPERATOR)
            // Cheap passwords: the tests are not about them, and make many.
            .env("MOBIMIR_PASSWORD_MEMORY_KIB", "64")
            .envs(limits.iter().copied())
            .envs((arguments.first() == Some(&"demo")).then_some(SETTLING_REQUEST_LIMIT))
            .envs(generous_policy(arguments, data))
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::options().create(true).append(true).open(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        let host = loop {
            match lines.next() {
                Some(Ok(line)) => match line.strip_prefix("listening on http://") {
                    Some(host) => break host.to_owned(),
                    None => said.push(line),
                },
                _ => {
                    let _ = child.kill();
                    let status = child.wait().unwrap();
                    panic!(
                        "the shop did not start ({status}): {}",
                        std::fs::read_to_string(&log).unwrap_or_default()
                    );
                }
            }
        };
        let mut process = Self { child, host, said, log };
        if arguments.first() == Some(&"demo") {
            process.said.extend(lines.next().and_then(Result::ok));
        }
        // Whatever else it prints must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        process
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < END_MAX, "the shop does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let mut log = self.log();
            let from = log.len().saturating_sub(4_000);
            let from = (from..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
            eprintln!("--- the shop's log ---\n{}", log.split_off(from));
        }
    }
}

/// Runs the program to its end: exit code, standard output, standard error.
pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    let mut child = program().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = err.read_to_string(&mut text);
        text
    });
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > START_MAX {
            let _ = child.kill();
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    (status.code().unwrap_or(-1), out, errors.join().unwrap())
}
