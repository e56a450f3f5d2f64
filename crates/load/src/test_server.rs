//! A server for tests of the load itself: it answers everything alike, and misbehaves when it is told to.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What the server does with a request, by its number.
pub(crate) type Behaviour = Arc<dyn Fn(usize, Instant) -> Act + Send + Sync>;

pub(crate) enum Act {
    Answer(&'static str),
    /// As it comes, without a length of its own.
    Raw(&'static [u8]),
    /// Only after so long.
    AnswerAfter(Duration),
    Never,
    HangUp,
    /// Hangs up after these bytes.
    Broken(&'static [u8]),
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl TestServer {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (requests, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ended = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let server = Self { address, connections: connections.clone(), ended: ended.clone() };
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                connections.fetch_add(1, Ordering::SeqCst);
                let (behaviour, requests) = (behaviour.clone(), requests.clone());
                thread::spawn(move || serve(stream, &behaviour, &requests, started));
            }
        });
        server
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the listener up.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(stream: TcpStream, behaviour: &Behaviour, requests: &AtomicUsize, started: Instant) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        let number = requests.fetch_add(1, Ordering::SeqCst);
        let body = match behaviour(number, started) {
            Act::Answer(body) => body,
            Act::AnswerAfter(time) => {
                thread::sleep(time);
                "{}"
            }
            Act::Raw(bytes) => {
                stream.write_all(bytes).ok()?;
                continue;
            }
            Act::Never => {
                thread::sleep(Duration::from_secs(3_600));
                return None;
            }
            Act::HangUp => return None,
            Act::Broken(bytes) => {
                stream.write_all(bytes).ok()?;
                return None;
            }
        };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).ok()?;
    }
}
