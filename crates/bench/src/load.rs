//! A load generator that costs next to nothing, since it shares the machine with what it measures: requests are
//! bytes made beforehand, and a request costs one write and, mostly, one read.
//!
//! One thread serves all connections in turn: it waits for a connection's answer, sends its next request, and goes
//! to the next connection. So every connection but one always has a request under way.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
const BUFFER_BYTES: usize = 64 * 1024;
/// Far more than the largest answer of the API.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
const SHOWN_BODY_BYTES: usize = 300;

/// A request as it goes over the wire, and what a right answer to it looks like.
pub(crate) struct Request {
    bytes: Vec<u8>,
    status: u16,
    body_bytes: Option<usize>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Self {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            text.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        text.push_str(body.unwrap_or_default());
        Self { bytes: text.into_bytes(), status: 200, body_bytes: None }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path, &[], None)
    }

    /// With the token of a guest, a user or the operator.
    pub(crate) fn of(token: &str, method: &str, path: &str, body: Option<&str>) -> Self {
        Self::new(method, path, &[("authorization", &format!("Bearer {token}"))], body)
    }

    /// The status of a right answer, when it is not 200.
    pub(crate) fn answered(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// The body of a right answer has exactly this length.
    pub(crate) fn sized(self, body_bytes: usize) -> Self {
        Self { body_bytes: Some(body_bytes), ..self }
    }

    pub(crate) fn expect_bytes(&mut self, body_bytes: usize) {
        self.body_bytes = Some(body_bytes);
    }

    pub(crate) fn expected_bytes(&self) -> Option<usize> {
        self.body_bytes
    }

    fn check(&self, status: u16, body: &[u8]) -> Result<()> {
        let length_fits = match self.body_bytes {
            Some(expected) => body.len() == expected,
            None => status == 204 || !body.is_empty(),
        };
        if status == self.status && length_fits {
            return Ok(());
        }
        let request = String::from_utf8_lossy(&self.bytes);
        let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BODY_BYTES)]);
        bail!(
            "a wrong answer to {:?}: expected {} and {} bytes, got {status} and {} bytes: {shown}",
            request.lines().next().unwrap_or_default(),
            self.status,
            self.body_bytes.map_or("some".to_owned(), |bytes| bytes.to_string()),
            body.len(),
        )
    }
}

/// When a run ends.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// The requests are sent over and over.
    Over(Duration),
    /// Each request is sent once.
    Each,
}

pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) took: Duration,
}

impl Done {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }
}

/// Connections to one server.
pub(crate) struct Load {
    connections: Vec<TcpStream>,
    // One for all: an answer is read to its end before the next is looked at.
    buffer: Vec<u8>,
}

impl Load {
    pub(crate) fn connect(address: SocketAddr, connections: usize) -> Result<Self> {
        let connect = |_| {
            let stream = TcpStream::connect(address).context("no connection to the shop")?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
            Ok(stream)
        };
        let connections = (0..connections).map(connect).collect::<Result<_>>()?;
        Ok(Self { connections, buffer: vec![0; BUFFER_BYTES] })
    }

    pub(crate) fn run(&mut self, requests: &[Request], until: Until) -> Result<Done> {
        self.run_and_see(requests, until, |_, _| Ok(()))
    }

    /// Shows every right answer's body, with the number of its request.
    pub(crate) fn run_and_see(
        &mut self,
        requests: &[Request],
        until: Until,
        mut see: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<Done> {
        ensure!(!requests.is_empty(), "there is nothing to ask");
        let started = Instant::now();
        let goes_on = |sent: usize| match until {
            Until::Over(time) => started.elapsed() < time,
            Until::Each => sent < requests.len(),
        };
        let Self { connections, buffer } = self;
        let mut under_way: Vec<Option<usize>> = vec![None; connections.len()];
        let (mut sent, mut answered) = (0, 0);
        for (stream, asked) in connections.iter_mut().zip(&mut under_way) {
            if goes_on(sent) {
                *asked = Some(send(stream, requests, &mut sent)?);
            }
        }
        while answered < sent {
            for (stream, asked) in connections.iter_mut().zip(&mut under_way) {
                let Some(index) = asked.take() else { continue };
                let (status, body) = receive(stream, buffer)?;
                requests[index].check(status, body)?;
                see(index, body)?;
                answered += 1;
                if goes_on(sent) {
                    *asked = Some(send(stream, requests, &mut sent)?);
                }
            }
        }
        Ok(Done { requests: answered as u64, took: started.elapsed() })
    }
}

fn send(stream: &mut TcpStream, requests: &[Request], sent: &mut usize) -> Result<usize> {
    let index = *sent % requests.len();
    stream.write_all(&requests[index].bytes).context("the shop hung up")?;
    *sent += 1;
    Ok(index)
}

/// The next answer's status and body.
fn receive<'a>(stream: &mut TcpStream, buffer: &'a mut Vec<u8>) -> Result<(u16, &'a [u8])> {
    let mut filled = read_more(stream, buffer, 0)?;
    let head = loop {
        match Head::parse(&buffer[..filled])? {
            Some(head) => break head,
            None => filled += read_more(stream, buffer, filled)?,
        }
    };
    let end = head.bytes + head.body_bytes;
    ensure!(end <= ANSWER_BYTES_MAX, "an answer of {end} bytes");
    if buffer.len() < end {
        buffer.resize(end, 0);
    }
    while filled < end {
        filled += read_more(stream, buffer, filled)?;
    }
    ensure!(filled == end, "more came than was asked for");
    Ok((head.status, &buffer[head.bytes..end]))
}

fn read_more(stream: &mut TcpStream, buffer: &mut [u8], filled: usize) -> Result<usize> {
    ensure!(filled < buffer.len(), "the head of an answer is longer than {} bytes", buffer.len());
    match stream.read(&mut buffer[filled..]) {
        Ok(0) => bail!("the shop hung up"),
        Ok(count) => Ok(count),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            bail!("no answer within {} s", ANSWER_TIME_MAX.as_secs())
        }
        Err(error) => Err(error).context("the shop's answer could not be read"),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    bytes: usize,
    body_bytes: usize,
}

impl Head {
    /// `None` when it is not all there yet.
    fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        const LENGTH: &[u8] = b"content-length:";
        let mut start = 0;
        let mut body_bytes = 0;
        while let Some(length) = bytes[start..].iter().position(|byte| *byte == b'\n') {
            let line = bytes[start..start + length].trim_ascii_end();
            start += length + 1;
            if line.is_empty() {
                let status = bytes.get(9..12).and_then(digits).context("not an HTTP answer")?;
                return Ok(Some(Self { status: status as u16, bytes: start, body_bytes }));
            }
            if line.len() > LENGTH.len() && line[..LENGTH.len()].eq_ignore_ascii_case(LENGTH) {
                let value = line[LENGTH.len()..].trim_ascii();
                body_bytes = digits(value).context("a strange content-length")?;
            }
        }
        Ok(None)
    }
}

fn digits(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_status_and_length() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\ndate: now\r\n\r\nbody";
        let head = Head { status: 200, bytes: answer.len() - 4, body_bytes: 12 };
        assert_eq!(Head::parse(answer).unwrap(), Some(head));
        assert_eq!(Head::parse(&answer[..30]).unwrap(), None);
        assert!(Head::parse(b"nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn a_wrong_answer_is_no_answer() {
        let request = Request::get("/").sized(4);
        assert!(request.check(200, b"body").is_ok());
        assert!(request.check(200, b"bodies").is_err());
        assert!(request.check(500, b"body").is_err());
        assert!(Request::get("/").check(200, b"").is_err());
        assert!(Request::get("/").answered(204).check(204, b"").is_ok());
    }
}
