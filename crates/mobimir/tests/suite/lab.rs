//! `mobimir lab`: one real server of each kind, through its life.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::program;

/// How long to wait for what is certain to come.
const PATIENCE: Duration = Duration::from_secs(300);

/// Ends its servers however the test ends.
struct Lab {
    dir: TempDir,
    net: String,
    port: String,
}

impl Lab {
    fn new() -> Self {
        // Beside a person's lab, and beside those that other tests take.
        let net = format!("127.1.{}", std::process::id() % 250);
        Lab { dir: TempDir::new().unwrap(), net, port: free_port().to_string() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        // Where the server is fetched to is no matter of this test.
        for name in ["MOBIMIR_LAB_DIR", "MOBIMIR_MONGOD"] {
            if let Some(place) = std::env::var_os(name) {
                command.env(name, place);
            }
        }
        command.arg("lab").args(arguments).arg("--dir").arg(self.dir.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        said(self.command(arguments).output().unwrap())
    }

    fn start(&self, nodes: &str) -> (i32, String, String) {
        self.run(&["cassandra", "--nodes", nodes, "--net", &self.net])
    }

    fn start_mongo(&self, members: &str) -> (i32, String, String) {
        self.run(&["mongo", "--members", members, "--port", &self.port])
    }

    fn status(&self) -> Vec<Value> {
        let (code, out, err) = self.run(&["status", "--json"]);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }

    /// The servers and how they are, in this order. One that is busy may not say so at once.
    fn shows(&self, expected: &[(&str, &str)]) {
        let start = Instant::now();
        loop {
            let servers = self.status();
            let is_expected = |(server, (kind, state)): (&Value, &(&str, &str))| {
                server["server"] == *kind && server["state"] == *state
            };
            if servers.len() == expected.len() && servers.iter().zip(expected).all(is_expected) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{servers:?} should be {expected:?}");
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn assert_nothing_is_left(&self) {
        let start = Instant::now();
        for place in [self.place("ring"), self.place("mongo")] {
            while place.exists() || !processes_of(&place).is_empty() {
                assert!(start.elapsed() < PATIENCE, "{:?}", processes_of(&place));
                thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Ctrl-C when the first process is there.
    fn interrupt(&self, arguments: &[&str], place: &str) {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line.starts_with("starting ")));
        let start = Instant::now();
        while processes_of(&self.place(place)).is_empty() {
            assert!(start.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert!(!child.wait().unwrap().success());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.command(&["down", "--wipe"]).output();
    }
}

#[test]
fn a_node_is_started_killed_started_again_and_ended() {
    let lab = Lab::new();
    let (code, _, err) = lab.run(&["status"]);
    assert!(code == 1 && err.contains("mobimir lab cassandra"), "{err}");

    let (code, out, err) = lab.start("1");
    assert_eq!(code, 0, "{err}");
    assert!(out.contains(&format!("{}.1:9042", lab.net)) && out.contains("mobimir lab down --dir"), "{out}");
    assert!(err.contains("starting 1 node\n"), "{err}");
    lab.shows(&[("cassandra", "UN")]);

    let (code, out, _) = lab.start("1");
    assert!(code == 0 && out.contains("was left alone"), "{out}");
    let (code, _, err) = lab.start("2");
    assert!(code == 1 && err.contains("mobimir lab down"), "{err}");
    assert_eq!(lab.run(&["start-node", "1"]).0, 1);

    assert_eq!(lab.run(&["stop-node", "1", "--kill"]).0, 0);
    lab.shows(&[("cassandra", "stopped")]);
    assert_eq!(lab.run(&["stop-node", "1"]).0, 1);
    let (code, _, err) = lab.run(&["start-node", "1"]);
    assert_eq!(code, 0, "{err}");
    lab.shows(&[("cassandra", "UN")]);

    let (code, out, err) = lab.run(&["down", "--wipe"]);
    assert!(code == 0 && out.contains("1 node ended"), "{out}{err}");
    lab.assert_nothing_is_left();
    assert_eq!(lab.run(&["down", "--wipe"]).0, 0);
}

#[test]
fn a_replica_set_is_started_killed_started_again_and_ended() {
    let lab = Lab::new();
    let (code, _, err) = lab.run(&["status"]);
    assert!(code == 1 && err.contains("mobimir lab mongo"), "{err}");
    let (code, _, err) = lab.run(&["stop-member", "1"]);
    assert!(code == 1 && err.contains("mobimir lab mongo"), "{err}");

    let (code, out, err) = lab.start_mongo("1");
    assert_eq!(code, 0, "{err}");
    let uri = format!("mongodb://127.0.0.1:{}/?replicaSet=lab", lab.port);
    assert!(out.contains(&uri) && out.contains("mobimir lab down --dir"), "{out}");
    assert!(err.contains("starting 1 mongod\n") && err.contains("member 1 is primary\n"), "{err}");
    lab.shows(&[("mongodb", "primary")]);

    let (code, out, _) = lab.start_mongo("1");
    assert!(code == 0 && out.contains("was left alone"), "{out}");
    let (code, _, err) = lab.start_mongo("2");
    assert!(code == 1 && err.contains("mobimir lab down"), "{err}");
    assert_eq!(lab.run(&["start-member", "1"]).0, 1);
    let (code, _, err) = lab.run(&["stop-member", "2"]);
    assert!(code == 1 && err.contains("there is no member 2"), "{err}");

    assert_eq!(lab.run(&["stop-member", "1", "--kill"]).0, 0);
    lab.shows(&[("mongodb", "stopped")]);
    let (code, _, err) = lab.run(&["stop-member", "1"]);
    assert!(code == 1 && err.contains("member 1 does not run: mobimir lab start-member 1"), "{err}");
    let (code, _, err) = lab.run(&["start-member", "1"]);
    assert_eq!(code, 0, "{err}");
    lab.shows(&[("mongodb", "primary")]);
    let start = Instant::now();
    loop {
        let (_, out, _) = lab.run(&["status"]);
        if out.contains("member 1") && out.contains("primary") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{out}");
    }

    let (code, out, err) = lab.run(&["down"]);
    assert!(code == 0 && out.contains("1 mongod ended; the data stays"), "{out}{err}");
    let (code, out, err) = lab.start_mongo("1");
    assert!(code == 0 && out.contains("is up"), "{out}{err}");
    assert_eq!(lab.run(&["down", "--wipe"]).0, 0);
    lab.assert_nothing_is_left();
}

#[test]
fn both_kinds_are_started_shown_and_ended_together() {
    let mut lab = Lab::new();
    lab.net = lab.net.replace("127.1.", "127.3.");
    let up = ["up", "--nodes", "1", "--members", "1", "--net", &lab.net, "--port", &lab.port];
    let (code, out, err) = lab.run(&up);
    assert!(
        code == 0 && out.contains(&format!("{}.1:9042", lab.net)) && out.contains("mongodb://"),
        "{out}{err}"
    );
    lab.shows(&[("cassandra", "UN"), ("mongodb", "primary")]);
    let (code, out, _) = lab.run(&up);
    assert_eq!((code, out.matches("was left alone").count()), (0, 2), "{out}");
    let (code, out, err) = lab.run(&["down", "--wipe"]);
    assert!(code == 0 && out.contains("1 node and 1 mongod ended"), "{out}{err}");
    lab.assert_nothing_is_left();
}

#[test]
fn a_start_that_is_interrupted_leaves_nothing_behind() {
    let mut lab = Lab::new();
    lab.net = lab.net.replace("127.1.", "127.2.");
    lab.interrupt(&["cassandra", "--nodes", "1", "--net", &lab.net], "ring");
    lab.assert_nothing_is_left();
    lab.interrupt(&["mongo", "--shards", "2", "--port", &lab.port], "mongo");
    lab.assert_nothing_is_left();
}

#[test]
fn what_is_missing_is_said_in_one_line_with_the_way_to_get_it() {
    let cache = TempDir::new().unwrap();
    for (kind, package) in [("cassandra", "maven"), ("mongo", "python3-pip")] {
        let mut command = program();
        command.args(["lab", kind]).env("PATH", "/nowhere").env("MOBIMIR_LAB_DIR", cache.path());
        let (code, _, err) = said(command.output().unwrap());
        assert_eq!((code, err.lines().count()), (1, 1), "{err}");
        assert!(err.contains("apt-get install") && err.contains(package), "{err}");
    }
}

fn said(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// With two more after it. Below those that the system gives to clients, so that a server can come back to it.
fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 500).unwrap() * 8;
    loop {
        let port = 20_000 + (start + TAKEN.fetch_add(4, Ordering::Relaxed)) % 4_000;
        if (port..port + 3).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
}

/// Servers whose directory is below this one.
fn processes_of(place: &Path) -> Vec<PathBuf> {
    let arguments =
        ["-Dcassandra.storagedir=", "--dbpath="].map(|option| format!("{option}{}/", place.display()));
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|process| {
            let cmdline = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let cmdline = String::from_utf8_lossy(&cmdline);
            arguments.iter().any(|argument| cmdline.contains(argument))
        })
        .collect()
}
