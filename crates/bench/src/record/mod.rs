//! All figures in one piece, and a file about it: what was measured, on what, and everything that was printed.
//!
//! - [`section`]: what is run, one after the other, each as a process of its own, so that one that fails takes nothing along;
//! - [`header`]: the commit, the machine and what else ran on it;
//! - [`summary`]: how many figures are ok and which are short.

mod header;
mod section;
mod summary;

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

pub(crate) use self::section::Section;
use self::{header::Header, section::Left, summary::Summary};
use crate::{
    EXIT_INTERRUPTED,
    process::{self, Process},
    scratch::Scratch,
};

/// What to record, and where.
pub(crate) struct Recording<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) quick: bool,
    pub(crate) mobimir: Option<&'a Path>,
    /// None means all.
    pub(crate) sections: &'a [Section],
}

const POLL: Duration = Duration::from_millis(200);
/// Lines that a section may be ahead of what is recorded.
const LINES_MAX: usize = 1_000;
/// How long something that a section has started may hold its output open after the section has ended.
const OUTPUT_TIME_MAX: Duration = Duration::from_secs(20);
const END_TIME_MAX: Duration = Duration::from_secs(120);

impl Recording<'_> {
    /// Returns the exit code of the whole: see [`Summary::exit_code`].
    pub(crate) fn run(&self) -> Result<ExitCode> {
        process::pass_on_signals()?;
        let header = {
            let scratch = Scratch::new()?;
            Header::of_now(self.dir, self.quick, &scratch)?
        };
        fs::create_dir_all(self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        let path = free_path(self.dir, &header.name());
        let unfinished = path.with_extension("txt.part");
        let mut tee = Tee(File::create(&unfinished)?);
        tee.line(&header.text())?;

        let sections = Section::wanted(self.sections);
        let (mut summary, mut left) = (Summary::default(), Left::new(&sections, self.quick));
        for (at, section) in sections.iter().enumerate() {
            tee.line(&format!("== {} ({} of {}, {left})", section.name(), at + 1, sections.len()))?;
            let started = Instant::now();
            let status = self.run_section(*section, &mut tee, &mut summary)?;
            if process::is_interrupted() {
                tee.line("interrupted")?;
                eprintln!("mobimir-bench: interrupted; {} has what was measured", unfinished.display());
                return Ok(ExitCode::from(EXIT_INTERRUPTED));
            }
            summary.ended(section.name(), status);
            left.done(*section, started.elapsed());
        }
        tee.line(&format!("== summary\n{summary}"))?;
        fs::rename(&unfinished, &path)?;
        eprintln!("recorded in {}", path.display());
        Ok(summary.exit_code())
    }

    /// Shows and records all that it says. `None` when it did not end.
    fn run_section(
        &self,
        section: Section,
        tee: &mut Tee,
        summary: &mut Summary,
    ) -> Result<Option<ExitStatus>> {
        let (output, said) = io::pipe()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(section.arguments());
        if self.quick {
            command.arg("--quick");
        }
        if let Some(binary) = self.mobimir.filter(|_| section.starts_mobimir()) {
            command.arg("--mobimir").arg(binary);
        }
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let mut process = Process::start(&mut command).context("a section cannot be started")?;
        // It has the other ends of the pipe, which closes when they are closed.
        drop(command);

        let lines = lines_of(output)?;
        let mut ended: Option<Instant> = None;
        loop {
            match lines.recv_timeout(POLL) {
                Ok(line) => {
                    tee.line(&line)?;
                    summary.add(&line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if ended.is_none() && process.wait(Duration::ZERO)?.is_some() {
                        ended = Some(Instant::now());
                    }
                    if ended.is_some_and(|ended| ended.elapsed() > OUTPUT_TIME_MAX) {
                        break;
                    }
                }
            }
        }
        process.wait(END_TIME_MAX)
    }
}

/// To standard output and to a file.
struct Tee(File);

impl Tee {
    fn line(&mut self, line: &str) -> Result<()> {
        writeln!(io::stdout(), "{line}")?;
        writeln!(self.0, "{line}")?;
        Ok(())
    }
}

fn lines_of(output: impl io::Read + Send + 'static) -> Result<Receiver<String>> {
    let (sender, lines) = mpsc::sync_channel(LINES_MAX);
    thread::Builder::new().name("output".into()).spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    })?;
    Ok(lines)
}

/// A record is never written over: a second one of the same day and commit gets a number.
fn free_path(dir: &Path, name: &str) -> PathBuf {
    let numbered = |number: usize| match number {
        1 => dir.join(format!("{name}.txt")),
        _ => dir.join(format!("{name}-{number}.txt")),
    };
    let mut number = 1;
    while numbered(number).exists() {
        number += 1;
    }
    numbered(number)
}

/// What a program says, when it ends well.
fn asked(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {} ended with {}: {}", arguments.join(" "), output.status, said.trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert_eq!(free_path(dir.path(), "2026-11-18-a53463f"), path("2026-11-18-a53463f.txt"));
        for name in ["2026-11-18-a53463f.txt", "2026-11-18-a53463f-2.txt"] {
            File::create(path(name)).unwrap();
        }
        assert_eq!(free_path(dir.path(), "2026-11-18-a53463f"), path("2026-11-18-a53463f-3.txt"));
    }

    #[test]
    fn output_is_taken_line_by_line_whatever_it_holds() {
        let lines = lines_of(io::Cursor::new(b"figure a\r\n\n\xff last".to_vec())).unwrap();
        assert_eq!(lines.iter().collect::<Vec<_>>(), ["figure a", "", "\u{fffd} last"]);
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_its_words() {
        let error = asked("sh", &["-c", "echo why >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.ends_with("why"), "{error}");
        assert_eq!(asked("echo", &["fine"]).unwrap(), "fine");
    }
}
