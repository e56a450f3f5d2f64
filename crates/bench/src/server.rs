//! The shop that is measured, as a process of its own.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    load::{Load, Request, Until},
    process::{self, Cpu, Process},
};

pub(crate) const OPERATOR_TOKEN: &str = "operator-of-the-benchmark";

const END_TIME_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    process: Process,
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
        Self::start(binary, &["demo"], data)
    }

    /// The same, in which tens of thousands can sign up in a minute: a password is hashed with next to no
    /// memory.
    pub(crate) fn demo_with_cheap_passwords(binary: &Path, data: &Path) -> Result<Self> {
        let mut command = Command::new(binary);
        command.env("MOBIMIR_PASSWORD_MEMORY_KIB", "64").arg("demo");
        Self::spawn(command, data)
    }

    /// A demo shop with so many products.
    pub(crate) fn demo_of(binary: &Path, data: &Path, products: usize) -> Result<Self> {
        Self::start(binary, &["demo", "--products", &products.to_string()], data)
    }

    /// A shop that has its data.
    pub(crate) fn serve(binary: &Path, data: &Path) -> Result<Self> {
        Self::start(binary, &["serve"], data)
    }

    /// What the program is asked to do, besides where to listen and where to keep data.
    pub(crate) fn start(binary: &Path, arguments: &[&str], data: &Path) -> Result<Self> {
        Self::start_with(binary, arguments, data, &[])
    }

    /// The same, with variables of the environment.
    pub(crate) fn start_with(
        binary: &Path,
        arguments: &[&str],
        data: &Path,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(arguments).envs(variables.iter().copied());
        Self::spawn(command, data)
    }

    fn spawn(mut command: Command, data: &Path) -> Result<Self> {
        let started = Instant::now();
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(data);
        command.env("MOBIMIR_OPERATOR_TOKEN", OPERATOR_TOKEN).env("MOBIMIR_LOG_LEVEL", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let mut output = BufReader::new(process.output()?);
        let address = listening_on(&mut output)?;
        let mut server = Self { process, address, ready_after: Duration::ZERO, output };
        Load::connect(address, 1)?.run(&[Request::get("/readyz")], Until::Each)?;
        server.ready_after = started.elapsed();
        Ok(server)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to end and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.process.ask_to_end();
        match self.process.wait(END_TIME_MAX)? {
            Some(status) => {
                ensure!(status.success(), "the shop ended with {status}");
                Ok(())
            }
            None => bail!("the shop did not end within {} s", END_TIME_MAX.as_secs()),
        }
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(self) {}

    /// Time that all its threads have spent on a processor so far, by thread.
    pub(crate) fn cpu(&self) -> Result<Cpu> {
        Cpu::of(self.id())
    }

    /// Resident memory, in MB.
    pub(crate) fn rss_mb(&self) -> Result<f64> {
        process::rss_mb(self.id())
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
