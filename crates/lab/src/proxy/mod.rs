//! A TCP proxy for tests of partitions: it delays, holds and cuts what goes through it, and needs no root.

mod rewrite;
mod stores;

use std::{
    net::{SocketAddr, TcpListener as Bound},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    time::Instant,
};

use self::rewrite::Rewriter;
pub use self::{rewrite::Rewrite, stores::StoreProxies};
use crate::{LabError, error::Trying};

const CHUNK_BYTES: usize = 64 * 1_024;
/// Chunks of one direction of a connection that are delayed at the same time. The sender waits for the rest.
const CHUNKS_MAX: usize = 256;
/// Before the address is bound again after a cut, if somebody else has it.
const REBIND_PAUSE: Duration = Duration::from_millis(20);

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Open,
    /// Every byte arrives that much later.
    Delayed(Duration),
    /// Nothing arrives until this ends; then everything does, in order, as after a partition that TCP has
    /// outlived.
    Held,
}

/// What a proxy does with its connections, old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    pub to_server: Flow,
    pub to_client: Flow,
    /// Connections are closed, what they have not delivered is lost, and new ones are refused.
    pub is_cut: bool,
}

impl Path {
    pub const OPEN: Path = Path { to_server: Flow::Open, to_client: Flow::Open, is_cut: false };
    pub const CUT: Path = Path { is_cut: true, ..Path::OPEN };
    pub const REQUESTS_HELD: Path = Path { to_server: Flow::Held, ..Path::OPEN };
    /// The server does what it is asked, and nobody hears of it.
    pub const ANSWERS_HELD: Path = Path { to_client: Flow::Held, ..Path::OPEN };

    /// By so much in each direction.
    pub fn delayed(by: Duration) -> Path {
        Path { to_server: Flow::Delayed(by), to_client: Flow::Delayed(by), is_cut: false }
    }
}

/// A listener whose connections go to one of some servers, each to the next one. It ends with this value.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    path: watch::Sender<Path>,
    connections: Arc<AtomicUsize>,
}

struct Shared {
    address: SocketAddr,
    servers: Vec<SocketAddr>,
    rewrite: Rewrite,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    /// Listens on `address`; port 0 takes a free one.
    pub fn start(address: SocketAddr, servers: &[SocketAddr], rewrite: Rewrite) -> Result<Self, LabError> {
        let trying = || format!("cannot listen on {address}");
        let bound = Bound::bind(address).trying(trying)?;
        let address = bound.local_addr().trying(trying)?;
        bound.set_nonblocking(true).trying(trying)?;
        // The thread of its own lets a test block as it likes.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().trying(trying)?;
        let (path, followed) = watch::channel(Path::OPEN);
        let connections = Arc::<AtomicUsize>::default();
        let shared = Shared { address, servers: servers.to_vec(), rewrite, connections: connections.clone() };
        thread::spawn(move || {
            runtime.block_on(async {
                if let Ok(listener) = TcpListener::from_std(bound) {
                    accept(listener, Arc::new(shared), followed).await;
                }
            });
        });
        Ok(Self { address, path, connections })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, also for the connections that are there.
    pub fn set(&self, path: Path) {
        self.path.send_replace(path);
    }

    /// How many connections it has accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Returns when nobody can change the path any more.
async fn accept(listener: TcpListener, shared: Arc<Shared>, mut path: watch::Receiver<Path>) {
    let mut listening = Some(listener);
    loop {
        if path.borrow_and_update().is_cut {
            // Who connects is refused by the kernel.
            listening = None;
            if path.changed().await.is_err() {
                return;
            }
            continue;
        }
        let listener = match listening.take() {
            Some(listener) => listener,
            None => match TcpListener::bind(shared.address).await {
                Ok(listener) => listener,
                Err(_) => {
                    tokio::time::sleep(REBIND_PAUSE).await;
                    continue;
                }
            },
        };
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(carry(client, number, shared.clone(), path.clone()));
            },
            changed = path.changed() => if changed.is_err() {
                return;
            },
        }
        listening = Some(listener);
    }
}

/// One connection, until both sides have closed it or it is cut.
async fn carry(client: TcpStream, number: usize, shared: Arc<Shared>, path: watch::Receiver<Path>) {
    let mut cut = path.clone();
    let carried = async {
        let Some(address) = shared.servers.get(number % shared.servers.len().max(1)) else { return };
        let Ok(server) = TcpStream::connect(address).await else { return };
        // Without it small messages would wait for each other; a proxy that cannot set it is only slower.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (requests, answers) = shared.rewrite.of_connection();
        tokio::join!(
            pump(from_client, to_server, requests, |path| path.to_server, path.clone()),
            pump(from_server, to_client, answers, |path| path.to_client, path.clone()),
        );
    };
    tokio::select! {
        () = carried => {}
        // An error means that the proxy ends.
        _ = cut.wait_for(|path| path.is_cut) => {}
    }
}

/// One direction of a connection.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut rewriter: Rewriter,
    flow: fn(&Path) -> Flow,
    mut path: watch::Receiver<Path>,
) {
    let (queue, mut queued) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let reading = async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            // Whatever ends the reading ends the direction.
            let read = from.read(&mut chunk).await.unwrap_or(0);
            let bytes = if read == 0 { rewriter.rest() } else { rewriter.rewritten(&chunk[..read]) };
            if queue.send((Instant::now(), bytes)).await.is_err() || read == 0 {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((came_at, bytes)) = queued.recv().await {
            if until_due(came_at, flow, &mut path).await.is_err() || to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // The other side may be gone already.
        let _ = to.shutdown().await;
    };
    tokio::join!(reading, writing);
}

async fn until_due(
    came_at: Instant,
    flow: fn(&Path) -> Flow,
    path: &mut watch::Receiver<Path>,
) -> Result<(), watch::error::RecvError> {
    loop {
        let now = flow(&path.borrow_and_update());
        match now {
            Flow::Open => return Ok(()),
            Flow::Delayed(by) => tokio::select! {
                () = tokio::time::sleep_until(came_at + by) => return Ok(()),
                changed = path.changed() => changed?,
            },
            Flow::Held => path.changed().await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{Ipv4Addr, TcpListener, TcpStream},
    };

    use super::*;

    const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
    /// It only ends a test that hangs.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// Nothing comes however long one waits; this is how long the tests do.
    const NOTHING_COMES: Duration = Duration::from_millis(200);

    /// Says back what it is told, after its own letter.
    fn echo(letter: u8) -> SocketAddr {
        let listener = TcpListener::bind(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut bytes = [0; 16];
                    while let Ok(read @ 1..) = stream.read(&mut bytes) {
                        stream.write_all(&[letter]).unwrap();
                        stream.write_all(&bytes[..read]).unwrap();
                    }
                });
            }
        });
        address
    }

    fn proxy(servers: &[SocketAddr]) -> Proxy {
        Proxy::start(ANY.into(), servers, Rewrite::Nothing).unwrap()
    }

    fn connected(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        stream.read_exact(&mut read).unwrap();
        read
    }

    fn nothing_comes(stream: &mut TcpStream) {
        stream.set_read_timeout(Some(NOTHING_COMES)).unwrap();
        let error = stream.read(&mut [0; 1]).unwrap_err();
        assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    #[test]
    fn connections_go_to_the_servers_in_turn() {
        let proxy = proxy(&[echo(b'1'), echo(b'2')]);
        for expected in [b"1x", b"2x", b"1x", b"2x"] {
            let mut stream = connected(&proxy);
            stream.write_all(b"x").unwrap();
            assert_eq!(read(&mut stream, 2), expected);
        }
        assert_eq!(proxy.connections(), 4);
    }

    #[test]
    fn what_was_held_arrives_in_order_when_it_is_let_go() {
        for held in [Path::REQUESTS_HELD, Path::ANSWERS_HELD] {
            let proxy = proxy(&[echo(b'1')]);
            let mut stream = connected(&proxy);
            stream.write_all(b"a").unwrap();
            assert_eq!(read(&mut stream, 2), b"1a");
            proxy.set(held);
            stream.write_all(b"b").unwrap();
            nothing_comes(&mut stream);
            stream.write_all(b"c").unwrap();
            nothing_comes(&mut stream);
            proxy.set(Path::OPEN);
            let mut letters = read(&mut stream, 3);
            if letters != b"1bc" {
                letters.extend(read(&mut stream, 1));
                assert_eq!(letters, b"1b1c");
            }
        }
    }

    /// A path that is held one way only still carries the other way.
    #[test]
    fn a_request_whose_answer_is_held_is_done() {
        let listener = TcpListener::bind(ANY).unwrap();
        let proxy = proxy(&[listener.local_addr().unwrap()]);
        proxy.set(Path::ANSWERS_HELD);
        let mut stream = connected(&proxy);
        let (mut server, _) = listener.accept().unwrap();
        stream.write_all(b"do it").unwrap();
        assert_eq!(read(&mut server, 5), b"do it");
        server.write_all(b"done").unwrap();
        nothing_comes(&mut stream);
        proxy.set(Path::OPEN);
        assert_eq!(read(&mut stream, 4), b"done");
    }

    #[test]
    fn a_cut_closes_connections_and_refuses_new_ones_until_it_is_over() {
        let proxy = proxy(&[echo(b'1')]);
        let mut stream = connected(&proxy);
        stream.write_all(b"x").unwrap();
        assert_eq!(read(&mut stream, 2), b"1x");
        proxy.set(Path::CUT);
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "the connection is closed");
        let refused = std::iter::repeat_with(|| TcpStream::connect(proxy.address()))
            .take_while(|connected| {
                thread::sleep(Duration::from_millis(1));
                connected.is_ok()
            })
            .take(10_000)
            .count();
        assert!(refused < 10_000, "new connections are refused");
        proxy.set(Path::OPEN);
        let mut stream = loop {
            match TcpStream::connect(proxy.address()) {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        stream.write_all(b"y").unwrap();
        assert_eq!(read(&mut stream, 2), b"1y");
    }

    #[test]
    fn a_delay_is_at_least_as_long_as_it_says() {
        let proxy = proxy(&[echo(b'1')]);
        let mut stream = connected(&proxy);
        let by = Duration::from_millis(50);
        proxy.set(Path::delayed(by));
        let started = Instant::now();
        stream.write_all(b"x").unwrap();
        assert_eq!(read(&mut stream, 2), b"1x");
        assert!(started.elapsed() >= 2 * by);
    }
}
