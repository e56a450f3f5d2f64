//! Values that servers keep about themselves, read by a small program that stays connected to them.

use std::{
    io::{BufRead, BufReader, Write},
    net::Ipv4Addr,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;

use crate::{Install, LabError};

pub(crate) const SOURCE: &str = include_str!("Probe.java");

/// The server gives itself 10 s to ask all others for their schema.
const ANSWER_BOUND: Duration = Duration::from_secs(30);

/// One value of one of a server's beans.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Reading {
    pub bean: String,
    pub attribute: String,
    pub value: Value,
}

/// Started when first asked; ends with this process, whose questions it reads.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
    #[serde(default)]
    values: Vec<Reading>,
}

impl Probe {
    /// The named attributes of all beans that match the pattern.
    pub(crate) fn read(
        &self,
        install: &Install,
        (host, port): (Ipv4Addr, u16),
        beans: &str,
        attributes: &[&str],
    ) -> Result<Vec<Reading>, LabError> {
        let question = format!("{host}:{port}\t{beans}\t{}\n", attributes.join(","));
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut probe = match running.take() {
            Some(probe) => probe,
            None => Running::start(install)?,
        };
        // One that fails is not kept: its next answer would be to the wrong question.
        let line = probe.ask(&question)?;
        *running = Some(probe);
        let answer: Answer =
            serde_json::from_str(&line).map_err(|error| LabError::Probe(error.to_string()))?;
        match answer.error {
            Some(error) => Err(LabError::Probe(error)),
            None => Ok(answer.values),
        }
    }
}

impl Running {
    fn start(install: &Install) -> Result<Self, LabError> {
        let failed = |error: std::io::Error| LabError::Probe(format!("java: {error}"));
        let mut child = Command::new(&install.java)
            .args(["-Xmx64M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+PerfDisableSharedMem"])
            // A server that was stopped accepts connections and says nothing.
            .args([
                "-Dsun.rmi.transport.tcp.handshakeTimeout=3000",
                "-Dsun.rmi.transport.tcp.responseTimeout=15000",
            ])
            .arg("-cp")
            .arg(&install.probe_classes)
            .arg("Probe")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(LabError::Probe("java has no pipes".to_owned()));
        };
        let (sender, receiver) = sync_channel(1);
        thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Running { child, questions, answers: receiver })
    }

    fn ask(&mut self, question: &str) -> Result<String, LabError> {
        let asked = self.questions.write_all(question.as_bytes());
        asked.map_err(|error| LabError::Probe(error.to_string()))?;
        let answer = self.answers.recv_timeout(ANSWER_BOUND);
        answer.map_err(|_| LabError::Probe(format!("no answer within {} s", ANSWER_BOUND.as_secs())))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It holds nothing that could be lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
