//! Rings of real servers. They are heavy, so there are few.
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use mobimir_lab::{Net, Ring, RingSpec, Sight};

const WRITES: u64 = 20;

/// How long something may take that is quick on a machine with nothing else to do.
const PATIENCE: Duration = Duration::from_secs(180);

/// The variable that makes the test below a process that can be killed.
const VICTIM: &str = "MOBIMIR_LAB_TEST_VICTIM";

#[test]
fn a_ring_is_hurt_and_heals_and_leaves_nothing_behind() {
    // So long that nobody who is only late gets hints.
    let ring = Ring::ephemeral(&RingSpec::for_tests(2).with("write_request_timeout", "15s")).unwrap();
    let dir = ring.dir().to_owned();
    assert_ne!(ring.net(), Net::DEFAULT, "a person's ring may be there");
    assert_eq!(ring.contact_points().len(), 2);
    for node in ring.nodes() {
        // One that pauses is seen down for a moment.
        within("all are seen up", || {
            let seen = ring.seen_from(node.id).unwrap();
            seen.len() == 2 && seen.iter().all(|seen| seen.sight == Sight::Up)
        });
    }
    within("nodetool sees all up", || {
        let status = ring.nodetool(1, &["status"]).unwrap();
        status.lines().filter(|line| line.starts_with("UN ")).count() == 2
    });
    let timeout = ring.nodetool(2, &["gettimeout", "write"]).unwrap();
    assert!(timeout.contains("15000"), "{timeout}");

    let mut cql = Cql::connect(&ring.contact_points()[0]);
    cql.run("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 2}");
    cql.run("CREATE TABLE k.t (id int PRIMARY KEY, text text)");
    ring.wait_one_schema().unwrap();

    ring.kill(2).unwrap();
    assert_eq!(ring.node(2).unwrap().running(), None);
    ring.wait_until_seen(1, 2, Sight::Down).unwrap();
    ring.wait_until_up(1, 1).unwrap();
    assert!(ring.nodetool(2, &["status"]).is_err(), "there is nobody to ask");

    for id in 0..WRITES {
        cql.run(&format!("INSERT INTO k.t (id, text) VALUES ({id}, 'for a node that is not there')"));
    }
    // A hint is stored after its write was answered.
    within("all hints are stored", || {
        let hints = ring.hints(1).unwrap();
        hints.total >= WRITES && hints.created.values().sum::<u64>() >= WRITES
    });
    let hints = ring.hints(1).unwrap();
    assert_eq!((hints.total, hints.succeeded), (WRITES, 0), "{hints:?}");
    assert_eq!(hints.created, [(ring.node(2).unwrap().address, WRITES)].into(), "{hints:?}");

    ring.start_node(2).unwrap();
    ring.wait_formed().unwrap();
    assert!(ring.start_node(2).is_err(), "it runs already");
    within("all hints are delivered", || ring.hints(1).unwrap().succeeded >= WRITES);
    assert_eq!(ring.data_bytes(2, "k").unwrap(), 0, "all is in memory");
    ring.flush(2, "k").unwrap();
    assert!(ring.data_bytes(2, "k").unwrap() > 0);

    ring.stop(1).unwrap();
    ring.pause(2).unwrap();
    drop(ring);
    assert_eq!(nodes_below(&dir), Vec::<PathBuf>::new());
    assert!(!dir.exists());
}

#[test]
fn the_nodes_end_with_the_process_that_started_them_even_if_it_is_killed() {
    let this_test = "the_nodes_end_with_the_process_that_started_them_even_if_it_is_killed";
    if std::env::var_os(VICTIM).is_some() {
        let ring = Ring::ephemeral(&RingSpec::for_tests(1)).unwrap();
        println!("\nring in {}", ring.dir().display());
        thread::sleep(Duration::from_secs(600));
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this_test, "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let dir = lines.into_iter().find_map(|line| line.strip_prefix("ring in ").map(PathBuf::from));
    let dir = dir.expect("the ring was started");
    assert_eq!(nodes_below(&dir).len(), 1);

    victim.kill().unwrap();
    victim.wait().unwrap();
    within("nothing is left", || !dir.exists() && nodes_below(&dir).is_empty());
}

fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// As much of the server's protocol (version 4) as it takes to run a statement with consistency ONE.
struct Cql {
    stream: TcpStream,
}

impl Cql {
    fn connect(contact_point: &str) -> Self {
        let mut cql = Cql { stream: TcpStream::connect(contact_point).unwrap() };
        cql.call(1, b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0");
        cql
    }

    fn run(&mut self, statement: &str) {
        let length = u32::try_from(statement.len()).unwrap();
        self.call(7, &[&length.to_be_bytes()[..], statement.as_bytes(), &[0, 1, 0]].concat());
    }

    fn call(&mut self, opcode: u8, body: &[u8]) {
        let length = u32::try_from(body.len()).unwrap();
        self.stream.write_all(&[&[4, 0, 0, 0, opcode][..], &length.to_be_bytes(), body].concat()).unwrap();
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).unwrap();
        let mut answer = vec![0; u32::from_be_bytes([header[5], header[6], header[7], header[8]]) as usize];
        self.stream.read_exact(&mut answer).unwrap();
        assert_ne!(header[4], 0, "{}", String::from_utf8_lossy(&answer));
    }
}

/// The processes that name the directory, found without the help of the library.
fn nodes_below(dir: &Path) -> Vec<PathBuf> {
    let dir = format!("-Dcassandra.storagedir={}", dir.display());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes
        .filter(|process| {
            let cmdline = std::fs::read(process.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&cmdline).contains(&dir)
        })
        .collect()
}
