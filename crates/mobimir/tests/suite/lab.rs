//! `mobimir lab`: one real server, through its life.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::program;

/// Ends its node however the test ends.
struct Lab {
    dir: TempDir,
    net: String,
}

impl Lab {
    fn new() -> Self {
        // Beside a person's lab, and beside those that other tests take.
        let net = format!("127.1.{}", std::process::id() % 250);
        Lab { dir: TempDir::new().unwrap(), net }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        // Where the server is fetched to is no matter of this test.
        if let Some(cache) = std::env::var_os("MOBIMIR_LAB_DIR") {
            command.env("MOBIMIR_LAB_DIR", cache);
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

    fn state(&self) -> Value {
        let (code, out, err) = self.run(&["status", "--json"]);
        assert_eq!(code, 0, "{err}");
        let nodes: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(nodes.as_array().unwrap().len(), 1);
        nodes[0]["state"].clone()
    }

    fn assert_nothing_is_left(&self) {
        let ring = self.dir.path().canonicalize().unwrap().join("ring");
        let start = Instant::now();
        while ring.exists() || !processes_of(&ring).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", processes_of(&ring));
            thread::sleep(Duration::from_millis(50));
        }
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
    assert_eq!(lab.state(), "UN");

    let (code, out, _) = lab.start("1");
    assert!(code == 0 && out.contains("was left alone"), "{out}");
    let (code, _, err) = lab.start("2");
    assert!(code == 1 && err.contains("mobimir lab down"), "{err}");
    assert_eq!(lab.run(&["start-node", "1"]).0, 1);

    assert_eq!(lab.run(&["stop-node", "1", "--kill"]).0, 0);
    assert_eq!(lab.state(), "stopped");
    assert_eq!(lab.run(&["stop-node", "1"]).0, 1);
    let (code, _, err) = lab.run(&["start-node", "1"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(lab.state(), "UN");

    let (code, out, err) = lab.run(&["down", "--wipe"]);
    assert!(code == 0 && out.contains("1 node ended"), "{out}{err}");
    lab.assert_nothing_is_left();
    assert_eq!(lab.run(&["down", "--wipe"]).0, 0);
}

#[test]
fn a_start_that_is_interrupted_leaves_nothing_behind() {
    let mut lab = Lab::new();
    lab.net = lab.net.replace("127.1.", "127.2.");
    let mut command = lab.command(&["cassandra", "--nodes", "1", "--net", &lab.net]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.into_iter().any(|line| line == "starting 1 node"));
    let ring = lab.dir.path().canonicalize().unwrap().join("ring");
    let start = Instant::now();
    while processes_of(&ring).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
    lab.assert_nothing_is_left();
}

#[test]
fn what_is_missing_is_said_in_one_line_with_the_way_to_get_it() {
    let cache = TempDir::new().unwrap();
    let mut command = program();
    command.args(["lab", "cassandra"]).env("PATH", "/nowhere").env("MOBIMIR_LAB_DIR", cache.path());
    let (code, _, err) = said(command.output().unwrap());
    assert_eq!((code, err.lines().count()), (1, 1), "{err}");
    assert!(err.contains("apt-get install") && err.contains("maven"), "{err}");
}

fn said(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Nodes whose directory is below this one.
fn processes_of(ring: &Path) -> Vec<PathBuf> {
    let argument = format!("-Dcassandra.storagedir={}/", ring.display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|process| {
            let cmdline = std::fs::read(process.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&cmdline).contains(&argument)
        })
        .collect()
}
