//! Hosts of one's own on one machine: network namespaces on a bridge, whose network is delayed and cut.
//!
//! One process of a machine has them at a time: whoever holds the lock removes what a killed one has left.

use std::{
    fs::{self, OpenOptions},
    net::Ipv4Addr,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{LabError, error::Trying, process};

const SCRIPT: &str = include_str!("namespaces.sh");
const LOCK: &str = "/run/lock/mobimir-namespaces.lock";
/// Of namespaces and of the bridge's ends of their links, whose names have 15 letters at most.
const PREFIX: &str = "mobimir-";
const BRIDGE: &str = "mobimir0";
/// In every namespace.
const DEVICE: &str = "eth0";
/// Of the block that RFC 2544 keeps for tests of networks, which no real network uses.
const SUBNET: [u8; 3] = [198, 18, 77];
const BRIDGE_HOST: u8 = 254;
const HOSTS_MAX: usize = 64;
/// Nobody has it: what is sent there is lost, and the sender is not told.
const NOBODY: &str = "02:00:00:00:00:00";
const COMMAND_BOUND: Duration = Duration::from_secs(30);
/// Ends some servers first.
const REMOVE_BOUND: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Namespaces {
    hosts: Vec<Host>,
    keeper: Child,
}

/// A namespace with an address that all others and this one reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub namespace: String,
    pub address: Ipv4Addr,
}

/// What the network of a host does to the packets that it sends, in the words of `tc netem`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather {
    pub delay_ms: u32,
    pub jitter_ms: u32,
    pub loss_percent: f64,
    pub reorder_percent: f64,
}

impl Namespaces {
    /// One of each name, which has at most 7 letters. They and all that runs in them end with this value, or with
    /// this process, however it ends. Waits for another process that has such.
    pub fn open(names: &[String]) -> Result<Self, LabError> {
        if let Some(missing) = missing() {
            return Err(LabError::NoNamespaces { missing });
        }
        if names.len() > HOSTS_MAX || names.iter().any(|name| PREFIX.len() + name.len() > 15) {
            return Err(LabError::NoNamespaces { missing: format!("names that fit, not {names:?}") });
        }
        let trying = || format!("cannot lock {LOCK}");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(LOCK).trying(trying)?;
        lock.lock().trying(trying)?;
        let mut leftovers = keeper(Stdio::null(), Stdio::null())?;
        process::end_within(&mut leftovers, REMOVE_BOUND)
            .trying(|| "cannot remove the namespaces of an earlier run".to_owned())?;
        let keeper = keeper(Stdio::piped(), Stdio::from(lock))?;
        let host = |(number, name): (u8, &String)| Host {
            namespace: format!("{PREFIX}{name}"),
            address: Ipv4Addr::new(SUBNET[0], SUBNET[1], SUBNET[2], number),
        };
        let namespaces = Self { hosts: (1..).zip(names).map(host).collect(), keeper };
        namespaces.make()?;
        Ok(namespaces)
    }

    fn make(&self) -> Result<(), LabError> {
        let [a, b, c] = SUBNET;
        run("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
        run("ip", &["addr", "add", &format!("{a}.{b}.{c}.{BRIDGE_HOST}/24"), "dev", BRIDGE])?;
        run("ip", &["link", "set", BRIDGE, "up"])?;
        for Host { namespace, address } in &self.hosts {
            run("ip", &["netns", "add", namespace])?;
            let peer = ["peer", "name", DEVICE, "netns", namespace];
            run("ip", &[&["link", "add", namespace, "type", "veth"][..], &peer].concat())?;
            run("ip", &["link", "set", namespace, "master", BRIDGE, "up"])?;
            run("ip", &["-n", namespace, "link", "set", "lo", "up"])?;
            run("ip", &["-n", namespace, "addr", "add", &format!("{address}/24"), "dev", DEVICE])?;
            run("ip", &["-n", namespace, "link", "set", DEVICE, "up"])?;
        }
        Ok(())
    }

    /// In the order of their names.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// What the first sends to the second is lost from now on, and nobody is told. The other way stays open.
    pub fn cut(&self, from: &Host, to: &Host) -> Result<(), LabError> {
        let to = to.address.to_string();
        let to_nobody = ["lladdr", NOBODY, "dev", DEVICE, "nud", "permanent"];
        run("ip", &[&["-n", &from.namespace, "neigh", "replace", &to][..], &to_nobody].concat())
    }

    /// Undoes [`Namespaces::cut`]; does nothing where nothing is cut.
    pub fn heal(&self, from: &Host, to: &Host) -> Result<(), LabError> {
        let shown = ["-n", &from.namespace, "neigh", "show", "nud", "permanent", "dev", DEVICE];
        let to = to.address.to_string();
        if !output("ip", &shown)?.lines().any(|line| line.starts_with(&format!("{to} "))) {
            return Ok(());
        }
        run("ip", &["-n", &from.namespace, "neigh", "del", &to, "dev", DEVICE])
    }

    /// From now on packets that a host sends are late, lost and overtaken, as `tc netem` has it.
    pub fn set_weather(&self, host: &Host, weather: Weather) -> Result<(), LabError> {
        let Weather { delay_ms, jitter_ms, loss_percent, reorder_percent } = weather;
        let words = format!(
            "-n {} qdisc replace dev {DEVICE} root netem delay {delay_ms}ms {jitter_ms}ms \
             loss {loss_percent}% reorder {reorder_percent}%",
            host.namespace
        );
        run("tc", &words.split(' ').collect::<Vec<&str>>())
    }

    /// Whether the kernel knows netem: some that are built without modules do not.
    pub fn have_weather(&self) -> Result<bool, LabError> {
        let Some(host) = self.hosts.first() else { return Ok(false) };
        let calm = Weather { delay_ms: 1, jitter_ms: 0, loss_percent: 0.0, reorder_percent: 0.0 };
        match self.set_weather(host, calm) {
            Ok(()) => {
                run("tc", &["-n", &host.namespace, "qdisc", "del", "dev", DEVICE, "root"]).map(|()| true)
            }
            Err(LabError::Network { output, .. }) if output.contains("qdisc kind is unknown") => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // There is nobody to tell; what is left is removed by the next run.
        let _ = process::end_within(&mut self.keeper, REMOVE_BOUND);
    }
}

impl Host {
    /// What a command line begins with that is to run there. The program takes the place of it, so the id of the
    /// process stays.
    pub fn prefix(&self) -> [String; 4] {
        ["ip", "netns", "exec", &self.namespace].map(str::to_owned)
    }
}

/// What this machine lacks, and how to get it.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root: run it as root, in a machine that is yours".to_owned());
    }
    let has = |program: &str| {
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists())
    };
    let tools = ["ip", "tc"].into_iter().find(|program| !has(program));
    tools.map(|program| format!("the program {program}: apt-get install iproute2"))
}

/// Removes the namespaces when its input ends.
fn keeper(input: Stdio, held: Stdio) -> Result<Child, LabError> {
    Command::new("sh")
        .args(["-c", SCRIPT, "mobimir-namespaces", PREFIX, BRIDGE])
        .stdin(input)
        .stdout(held)
        .stderr(Stdio::null())
        // Ctrl-C in the terminal is for us, and not for the one that cleans up after us.
        .process_group(0)
        .spawn()
        .trying(|| "cannot start sh".to_owned())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), LabError> {
    output(program, arguments).map(drop)
}

fn output(program: &str, arguments: &[&str]) -> Result<String, LabError> {
    let command = || format!("{program} {}", arguments.join(" "));
    let ran = process::output_within(Command::new(program).args(arguments), COMMAND_BOUND);
    let (status, output) = ran.trying(|| format!("cannot run {}", command()))?;
    if status.is_some_and(|status| status.success()) {
        return Ok(output);
    }
    Err(LabError::Network { command: command(), output })
}

/// Whether anything of the lab's namespaces is on this machine.
pub fn namespaces_are_left() -> bool {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let ours = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
    named.into_iter().any(ours) || Path::new("/sys/class/net").join(BRIDGE).exists()
}
