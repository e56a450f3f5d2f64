//! Processes of this run: they end with their owner, whatever happens. And what the system tells of any process.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::EXIT_INTERRUPTED;

const END_POLL: Duration = Duration::from_millis(5);

/// A process that ends when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> std::io::Result<Self> {
        // Locked until it is listed, so that a signal in between cannot miss it.
        let mut running = running();
        let child = command.spawn()?;
        running.ids.push(child.id());
        Ok(Self(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn output(&mut self) -> Result<ChildStdout> {
        self.0.stdout.take().context("the process has no output")
    }

    pub(crate) fn errors(&mut self) -> Result<ChildStderr> {
        self.0.stderr.take().context("the process has no output of errors")
    }

    pub(crate) fn ask_to_end(&self) {
        signal(self.id(), Signal::TERM);
    }

    /// Waits until it has ended by itself. `None` when that takes longer.
    pub(crate) fn wait(&mut self, time_max: Duration) -> Result<Option<ExitStatus>> {
        let asked = Instant::now();
        loop {
            {
                let mut running = running();
                if let Some(status) = self.0.try_wait()? {
                    running.ids.retain(|id| *id != self.0.id());
                    return Ok(Some(status));
                }
            }
            if asked.elapsed() >= time_max {
                return Ok(None);
            }
            thread::sleep(END_POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Locked, so that a signal cannot hit the id once it is free for others.
        let mut running = running();
        let _ = self.0.kill();
        let _ = self.0.wait();
        running.ids.retain(|id| *id != self.0.id());
    }
}

/// Time on a processor, by thread.
pub(crate) struct Cpu {
    threads: HashMap<String, u64>,
}

impl Cpu {
    /// What all threads of a process have spent so far.
    pub(crate) fn of(id: u32) -> Result<Self> {
        let mut threads = HashMap::new();
        for thread in fs::read_dir(format!("/proc/{id}/task"))? {
            let thread = thread?;
            // A thread may end at any time.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let ns = text.split_whitespace().next().and_then(|text| text.parse().ok());
            let ns = ns.with_context(|| format!("expected the time of a thread, got {text:?}"))?;
            threads.insert(thread.file_name().to_string_lossy().into_owned(), ns);
        }
        ensure!(!threads.is_empty(), "the system tells no times of the threads of process {id}");
        Ok(Self { threads })
    }

    /// What a thread spent that has ended meanwhile is missed; in the second that a measurement takes none does.
    pub(crate) fn since(&self, earlier: &Cpu) -> Duration {
        let spent = |(thread, ns): (&String, &u64)| {
            ns.saturating_sub(earlier.threads.get(thread).copied().unwrap_or(0))
        };
        Duration::from_nanos(self.threads.iter().map(spent).sum())
    }
}

/// What a process has spent on a processor so far, with all its threads, also those that have ended. To a hundredth of a
/// second or so.
pub(crate) fn cpu_s(id: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let ticks = ticks(&stat).with_context(|| format!("the system tells no times of process {id}"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// In the program and in the kernel. The name of a process may hold anything, so counting begins behind it.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Resident memory of a process, in MB.
pub(crate) fn rss_mb(id: u32) -> Result<f64> {
    memory_mb(id, "VmRSS:")
}

/// The most that this process has had, since [`forget_peak`] if that was called, in MB.
pub(crate) fn peak_mb() -> Result<f64> {
    memory_mb(std::process::id(), "VmHWM:")
}

/// From now on the peak is counted anew.
pub(crate) fn forget_peak() -> Result<()> {
    const PEAK_ONLY: &str = "5";
    Ok(fs::write("/proc/self/clear_refs", PEAK_ONLY)?)
}

fn memory_mb(id: u32, name: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("the system tells no {name}"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1e6)
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
    on_signal(|| {
        let running = running();
        running.ids.iter().for_each(|id| signal(*id, Signal::KILL));
        running.dirs.iter().for_each(|dir| {
            let _ = fs::remove_dir_all(dir);
        });
        std::process::exit(i32::from(EXIT_INTERRUPTED));
    })
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Ctrl-C and SIGTERM ask the processes of this run to end, which have processes of their own to end first. Whoever has
/// started them asks [`is_interrupted`] when they have.
pub(crate) fn pass_on_signals() -> Result<()> {
    on_signal(|| {
        INTERRUPTED.store(true, Ordering::Relaxed);
        running().ids.iter().for_each(|id| signal(*id, Signal::TERM));
    })
}

pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The first of Ctrl-C and SIGTERM.
fn on_signal(act: impl FnOnce() + Send + 'static) -> Result<()> {
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
        act();
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let stat = "7 (a) b 1 2) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1234 1 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (shop) S 1 7"), None);
    }

    #[test]
    fn this_process_has_memory_and_spends_time() {
        let id = std::process::id();
        assert!(rss_mb(id).unwrap() > 0.0);
        let (before, threads_before) = (cpu_s(id).unwrap(), Cpu::of(id).unwrap());
        // Until it shows in both: they are counted in steps.
        while cpu_s(id).unwrap() <= before || Cpu::of(id).unwrap().since(&threads_before).is_zero() {}
    }

    #[test]
    fn who_ends_by_itself_is_waited_for_and_who_does_not_is_ended() {
        let mut short = Process::start(&mut Command::new("true")).unwrap();
        assert!(short.wait(Duration::from_secs(60)).unwrap().is_some_and(|status| status.success()));
        let mut long = Process::start(Command::new("sleep").arg("600")).unwrap();
        assert!(long.wait(Duration::from_millis(1)).unwrap().is_none());
        let id = long.id();
        drop(long);
        assert!(!Path::new(&format!("/proc/{id}/stat")).exists());
    }
}
