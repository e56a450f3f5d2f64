//! Processes by id. An id is believed only if the command line of the process names the node.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::{LabError, error::Trying};

/// A server writes its memory to the disk before it ends.
pub(crate) const STOP_BOUND: Duration = Duration::from_secs(60);
pub(crate) const KILL_BOUND: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// A machine that is busy takes its time to load a program of 200 MB.
const EXEC_BOUND: Duration = Duration::from_secs(20);
/// The flag of the kernel's own threads, which never have a command line.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The argument by which the process of a Java server is known. It does nothing else.
pub(crate) fn marker(node_dir: &Path) -> String {
    format!("-Dmobimir.lab.node={}/", node_dir.display())
}

/// The argument by which a mongod, which takes none that does nothing, is known: its data is below its directory.
pub(crate) fn data_marker(node_dir: &Path) -> String {
    format!("--dbpath={}/", node_dir.display())
}

/// The process is there and is the node of that directory; an id that was given to another program since is not, and
/// neither is one that has ended and waits for its parent.
pub(crate) fn is_node(pid: u32, node_dir: &Path) -> bool {
    let cmdline = wait_for(EXEC_BOUND, || {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // Empty for those that have ended, and for a moment while one program takes the place of another.
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (!cmdline.is_empty() || will_say_nothing(&stat())).then_some(cmdline)
    });
    names_node(&cmdline.unwrap_or_default(), node_dir)
}

/// Whether a process with such a line of `stat` has ended, or is the kernel's.
fn will_say_nothing(stat: &str) -> bool {
    // The name in parentheses may be anything; the state is the letter after it.
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    let is_over = fields.next().is_none_or(|state| matches!(state, "" | "Z" | "X"));
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok());
    let is_kernels = flags.is_some_and(|flags| flags & KERNEL_THREAD != 0);
    // As long as one thread lives, so do the ports.
    let threads = fields.nth(10).and_then(|threads| threads.parse::<u32>().ok());
    is_kernels || is_over && threads.is_none_or(|threads| threads <= 1)
}

fn names_node(cmdline: &[u8], node_dir: &Path) -> bool {
    let (marker, data_marker) = (marker(node_dir), data_marker(node_dir));
    cmdline
        .split(|byte| *byte == 0)
        .any(|argument| argument == marker.as_bytes() || argument.starts_with(data_marker.as_bytes()))
}

pub(crate) fn send(pid: u32, signal: Signal) -> Result<(), LabError> {
    let trying = || format!("cannot signal the process {pid}");
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let id =
        id.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no such process id")).trying(trying)?;
    match kill_process(id, signal) {
        // It has just ended, which is what signals are for here.
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(io::Error::from(error)).trying(trying),
    }
}

/// Starts a server in a session of its own: neither Ctrl-C nor the end of the terminal is for it. The program takes the
/// place of setsid, so the id stays. What it prints goes into a file. In a network namespace it is alone.
pub(crate) fn spawn_server(
    namespace: Option<&str>,
    program: &Path,
    arguments: impl IntoIterator<Item = String>,
    dir: &Path,
    output: &Path,
) -> Result<Child, LabError> {
    let trying = || format!("cannot write {}", output.display());
    let output = File::create(output).trying(trying)?;
    Command::new("setsid")
        .args(namespace.iter().flat_map(|namespace| ["ip", "netns", "exec", namespace]))
        .arg(program)
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone().trying(trying)?)
        .stderr(output)
        .spawn()
        .trying(|| "cannot start setsid (of the package util-linux)".to_owned())
}

/// The servers that this process started and has to bury, by their number.
#[derive(Debug, Default)]
pub(crate) struct Children {
    by_id: HashMap<u16, Child>,
}

impl Children {
    pub(crate) fn insert(&mut self, id: u16, child: Child) {
        self.by_id.insert(id, child);
    }

    /// Takes the exit code of a child that has ended, so that nothing of it is left.
    pub(crate) fn bury(&mut self, id: u16) -> Option<ExitStatus> {
        let ended = self.by_id.get_mut(&id)?.try_wait();
        if !matches!(ended, Ok(None)) {
            self.by_id.remove(&id);
        }
        ended.ok().flatten()
    }

    /// Waits for children that were killed just now.
    pub(crate) fn bury_all(&mut self) {
        for child in self.by_id.values_mut() {
            // There is nobody to tell.
            let _ = end_within(child, KILL_BOUND);
        }
    }
}

/// Calls until the answer is there or the time is over.
pub(crate) fn wait_for<T>(bound: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = poll() {
            return Some(found);
        }
        if start.elapsed() >= bound {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// What a command printed, both streams in one, and how it ended: it is killed when its time is over.
pub(crate) fn output_within(
    command: &mut Command,
    bound: Duration,
) -> io::Result<(Option<ExitStatus>, String)> {
    let (mut reader, writer) = io::pipe()?;
    let mut child = {
        command.stdin(std::process::Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        command.spawn()?
    };
    // The command holds the writing ends until it is told otherwise, and the reader would wait for ever.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let reading = thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before the failure is all there is to show.
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let status = end_within(&mut child, bound)?;
    Ok((status, reading.join().unwrap_or_default()))
}

/// Waits for the end of a child, and kills it when its time is over.
pub(crate) fn end_within(child: &mut Child, bound: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= bound {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// The last of those lines of a log that matter, for an error message.
pub(crate) fn tail(path: &Path, matters: impl Fn(&&str) -> bool) -> String {
    const LINES: usize = 20;
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(matters).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_node_only_if_its_command_line_says_so() {
        let dir = Path::new("/tmp/ring/node1");
        let cmdline = |argument: &str| format!("java\0-Xmx1G\0{argument}\0Daemon\0").into_bytes();
        assert!(names_node(&cmdline("-Dmobimir.lab.node=/tmp/ring/node1/"), dir));
        assert!(!names_node(&cmdline("-Dmobimir.lab.node=/tmp/ring/node11/"), dir));
        assert!(!names_node(&cmdline("-Dmobimir.lab.node=/tmp/ring2/node1/"), dir));
        assert!(!names_node(&cmdline("/tmp/ring/node1/"), dir));
        assert!(names_node(&cmdline("--dbpath=/tmp/ring/node1/data"), dir));
        assert!(!names_node(&cmdline("--dbpath=/tmp/ring/node11/data"), dir));
        assert!(!names_node(b"", dir), "a process that has ended has an empty command line");
        assert!(!is_node(std::process::id(), dir), "an id that was given to another program");
    }

    #[test]
    fn a_command_line_is_not_waited_for_where_there_will_be_none() {
        let stat = |name: &str, state: &str, flags: u64, threads: u32| {
            format!("77 ({name}) {state} 1 77 77 0 -1 {flags} 0 0 0 0 5 5 0 0 20 0 {threads} 0 25 0")
        };
        let ordinary = 0x0040_0000;
        assert!(!will_say_nothing(&stat("mongod) Z (", "S", ordinary, 40)));
        assert!(!will_say_nothing(&stat("java", "Z", ordinary, 2)), "a thread of it still holds the ports");
        assert!(will_say_nothing(&stat("java", "Z", ordinary, 1)));
        assert!(will_say_nothing(&stat("kthreadd", "S", KERNEL_THREAD | ordinary, 1)));
        assert!(will_say_nothing(""), "it is not there any more");
    }

    #[test]
    fn a_command_that_takes_too_long_is_ended() {
        let start = Instant::now();
        let mut command = Command::new("sleep");
        let (status, _) = output_within(command.arg("60"), Duration::from_millis(100)).unwrap();
        assert!(status.is_none() && start.elapsed() < Duration::from_secs(50));
        let (status, text) =
            output_within(Command::new("sh").args(["-c", "echo out; echo err >&2"]), Duration::from_secs(60))
                .unwrap();
        assert!(status.unwrap().success());
        assert_eq!(text, "out\nerr\n");
    }
}
