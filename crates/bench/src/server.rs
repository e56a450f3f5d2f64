//! The program that is measured, as a process of its own. It ends with its owner, whatever happens.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::load::{Load, Request, Until};

pub(crate) const OPERATOR_TOKEN: &str = "operator-of-the-benchmark";

const END_TIME_MAX: Duration = Duration::from_secs(30);
const END_POLL: Duration = Duration::from_millis(5);
const INTERRUPTED_EXIT_CODE: i32 = 130;

pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// From the start of the process to the first answer that it is ready.
    pub(crate) ready_after: Duration,
    // A program whose output nobody takes would fail when it says something.
    #[expect(dead_code, reason = "held open for as long as the process runs")]
    output: BufReader<ChildStdout>,
}

impl Server {
    /// A demo shop with its 10,000 products.
    pub(crate) fn demo(binary: &Path, data: &Path) -> Result<Self> {
        Self::start(binary, "demo", data)
    }

    /// A shop that has its data.
    pub(crate) fn serve(binary: &Path, data: &Path) -> Result<Self> {
        Self::start(binary, "serve", data)
    }

    fn start(binary: &Path, command: &str, data: &Path) -> Result<Self> {
        let started = Instant::now();
        let mut process = Command::new(binary);
        process.args([command, "--listen", "127.0.0.1:0", "--data"]).arg(data);
        process.env("MOBIMIR_OPERATOR_TOKEN", OPERATOR_TOKEN).env("MOBIMIR_LOG_LEVEL", "warn");
        process.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = {
            // Locked until it is listed, so that a signal in between cannot miss it.
            let mut running = running();
            let child = process.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
            running.ids.push(child.id());
            child
        };
        let output = child.stdout.take().map(BufReader::new);
        let listening = output.context("the process has no output").and_then(|mut output| {
            let address = listening_on(&mut output)?;
            Ok((address, output))
        });
        let (address, output) = match listening {
            Ok(listening) => listening,
            Err(error) => {
                end(&mut child);
                return Err(error);
            }
        };
        let mut server = Self { child, address, ready_after: Duration::ZERO, output };
        Load::connect(address, 1)?.run(&[Request::get("/readyz")], Until::Each)?;
        server.ready_after = started.elapsed();
        Ok(server)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        signal(self.child.id(), Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < END_TIME_MAX {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(status.success(), "the shop ended with {status}");
                return Ok(());
            }
            thread::sleep(END_POLL);
        }
        bail!("the shop did not end within {} s", END_TIME_MAX.as_secs())
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(self) {}

    /// Time that all its threads have spent on a processor so far, by thread.
    pub(crate) fn cpu(&self) -> Result<Cpu> {
        let mut threads = HashMap::new();
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.id()))? {
            let thread = thread?;
            // A thread may end at any time.
            let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let ns: u64 =
                text.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or_default();
            threads.insert(thread.file_name().to_string_lossy().into_owned(), ns);
        }
        Ok(Cpu { threads })
    }

    /// Resident memory, in MB.
    pub(crate) fn rss_mb(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("the system tells no VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024.0 / 1e6)
    }

    /// A number of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let mut found = None;
        Load::connect(self.address, 1)?.run_and_see(
            &[Request::get("/metrics")],
            Until::Each,
            |_, body| {
                let text = String::from_utf8_lossy(body);
                let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
                found = value.and_then(|value| value.trim().parse().ok());
                Ok(())
            },
        )?;
        found.with_context(|| format!("/metrics has no {name}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

pub(crate) struct Cpu {
    threads: HashMap<String, u64>,
}

impl Cpu {
    /// What a thread spent that has ended meanwhile is missed; in the second that a measurement takes none does.
    pub(crate) fn since(&self, earlier: &Cpu) -> Duration {
        let spent = |(thread, ns): (&String, &u64)| {
            ns.saturating_sub(earlier.threads.get(thread).copied().unwrap_or(0))
        };
        Duration::from_nanos(self.threads.iter().map(spent).sum())
    }
}

fn listening_on(output: &mut BufReader<ChildStdout>) -> Result<SocketAddr> {
    let mut line = String::new();
    loop {
        line.clear();
        if output.read_line(&mut line)? == 0 {
            bail!("the shop ended before it listened");
        }
        if let Some(address) = line.trim().strip_prefix("listening on http://") {
            return address.parse().with_context(|| format!("expected an address, got {address:?}"));
        }
    }
}

/// What a signal has to end and take away.
struct Running {
    ids: Vec<u32>,
    dirs: Vec<PathBuf>,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { ids: Vec::new(), dirs: Vec::new() });

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(child: &mut Child) {
    // Locked, so that a signal cannot hit the id once it is free for others.
    let mut running = running();
    let _ = child.kill();
    let _ = child.wait();
    running.ids.retain(|id| *id != child.id());
}

fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

pub(crate) fn remove_with_signals(dir: &Path) {
    running().dirs.push(dir.to_owned());
}

/// Ctrl-C and SIGTERM end the processes of this run, take its data away and end it.
pub(crate) fn end_with_signals() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal as wait_for};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _context = runtime.enter();
        (wait_for(SignalKind::interrupt())?, wait_for(SignalKind::terminate())?)
    };
    thread::Builder::new().name("signals".into()).spawn(move || {
        let (mut interrupt, mut terminate) = signals;
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        let running = running();
        running.ids.iter().for_each(|id| signal(*id, Signal::KILL));
        running.dirs.iter().for_each(|dir| {
            let _ = std::fs::remove_dir_all(dir);
        });
        std::process::exit(INTERRUPTED_EXIT_CODE);
    })?;
    Ok(())
}
