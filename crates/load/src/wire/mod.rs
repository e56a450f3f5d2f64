//! Many connections to one shop, kept by one thread that waits for all of them at once. A request costs one write and,
//! mostly, one read: whoever makes load on the machine of the shop must leave it the processors.

mod answer;
mod connection;

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

pub use self::answer::NotHttp;
use self::connection::{Connection, Step};
use crate::request::Request;

/// How often requests are looked for that have waited too long.
const OVERDUE_PERIOD: Duration = Duration::from_millis(50);
/// After a connection was refused, before it is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
const EVENTS_MAX: usize = 1_024;
const READ_BYTES: usize = 256 * 1024;
const WAIT_MIN: Duration = Duration::from_micros(1);
const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// What the timer is called among the connections.
const TIMER: u64 = u64::MAX;

/// Who asked. Comes back with the answer.
pub type Ticket = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
    head: &'a [u8],
}

impl<'a> Answer<'a> {
    #[cfg(test)]
    pub(crate) fn made_up(status: u16, body: &'a str) -> Self {
        Self { status, body: body.as_bytes(), head: b"" }
    }

    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        answer::header(self.head, name)
    }
}

/// Why there is no answer. The shop may have done what was asked all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Lost {
    #[error("no answer in time")]
    TimedOut,
    #[error("the connection was closed")]
    HungUp,
    #[error("the answer was no HTTP")]
    NotHttp,
}

pub type Outcome<'a> = Result<Answer<'a>, Lost>;

/// What is to be known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News<'a> {
    Outcome(Outcome<'a>),
    /// Its connection was closed before anything came of the answer, as a server does with one that nobody used for a
    /// while. It was sent once more on another. The shop may have done what was asked the first time.
    Again,
}

pub struct Wire {
    address: SocketAddr,
    host: String,
    epoll: OwnedFd,
    /// Ends a wait to the microsecond, which the system's own limit of a wait does not.
    timer: OwnedFd,
    /// When the timer will do so; `None` when it has.
    rings_at: Option<Instant>,
    connections: Vec<Connection>,
    /// Those without a request.
    free: Vec<usize>,
    /// Those to be opened again, and when.
    broken: Vec<(Instant, usize)>,
    buffer: Vec<u8>,
    events: Vec<epoll::Event>,
    next_overdue: Instant,
    next_reopen: Instant,
    answer_time_max: Duration,
}

impl Wire {
    /// Opens all connections, and fails if one cannot be. `host` is what requests call the shop.
    pub fn connect(
        address: SocketAddr,
        host: &str,
        connections: usize,
        answer_time_max: Duration,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        // Told once, so that nobody has to read it.
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        let mut wire = Self {
            address,
            host: host.to_owned(),
            epoll,
            timer,
            rings_at: None,
            connections: Vec::with_capacity(connections),
            free: Vec::with_capacity(connections),
            broken: Vec::new(),
            buffer: vec![0; READ_BYTES],
            events: Vec::with_capacity(EVENTS_MAX),
            next_overdue: Instant::now() + OVERDUE_PERIOD,
            next_reopen: Instant::now() + RECONNECT_PAUSE,
            answer_time_max,
        };
        for at in 0..connections {
            wire.connections.push(Connection::open(address, at as u64, &wire.epoll)?);
        }
        let until = Instant::now() + answer_time_max;
        while wire.free.len() < connections {
            wire.turn(until, &mut |_, _| {})?;
            if let Some((_, at)) = wire.broken.first() {
                return Err(wire.connections[*at].refusal());
            }
            if wire.free.len() < connections && Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(wire)
    }

    /// How many requests may be sent now.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn under_way(&self) -> usize {
        self.connections.iter().filter(|connection| connection.asked().is_some()).count()
    }

    /// An empty request to this shop.
    pub fn request(&self) -> Request {
        Request::to(&self.host)
    }

    /// Sends a request on a connection that is free. Says whether there was one.
    pub fn send(&mut self, ticket: Ticket, request: &Request, now: Instant) -> bool {
        let Some(at) = self.free.pop() else { return false };
        // What fails is told when it is waited for, as if it had failed later.
        self.connections[at].send(ticket, request, now, &self.epoll);
        true
    }

    /// Waits until something has come, at most until `until`, and shows all that came.
    pub fn turn(&mut self, until: Instant, seen: &mut impl FnMut(Ticket, News<'_>)) -> io::Result<()> {
        self.wait(until.min(self.next_overdue))?;
        for index in 0..self.events.len() {
            let (data, flags) = (self.events[index].data, self.events[index].flags);
            if data.u64() == TIMER {
                self.rings_at = None;
                continue;
            }
            let at = data.u64() as usize;
            let step = self.connections[at].ready(flags, &mut self.buffer, &self.epoll, seen);
            self.after(at, step)?;
        }
        let now = Instant::now();
        if now >= self.next_overdue {
            self.next_overdue = now + OVERDUE_PERIOD;
            self.end_overdue(now, seen)?;
        }
        if now >= self.next_reopen {
            self.next_reopen = now + RECONNECT_PAUSE;
            self.reopen(now)?;
        }
        Ok(())
    }

    /// Waits for events. To set the timer is dear, most of all on a virtual machine, so it is only done when nothing
    /// has come yet and when it would not ring soon enough: with much to do it rings a few times in a second.
    fn wait(&mut self, until: Instant) -> io::Result<()> {
        if self.rings_at.is_none_or(|rings_at| rings_at > until) {
            self.take_events(Some(&ZERO))?;
            if !self.events.is_empty() {
                return Ok(());
            }
            // A timer of zero would never ring.
            let wait = until.saturating_duration_since(Instant::now()).max(WAIT_MIN);
            let once = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
            let once = Itimerspec { it_interval: ZERO, it_value: once };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
            self.rings_at = Some(until);
        }
        self.take_events(None)
    }

    fn take_events(&mut self, wait_max: Option<&Timespec>) -> io::Result<()> {
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), wait_max) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn after(&mut self, at: usize, step: Step) -> io::Result<()> {
        let pause = match step {
            Step::Waits => return Ok(()),
            Step::Free => {
                self.free.push(at);
                return Ok(());
            }
            Step::Closed | Step::Again => Duration::ZERO,
            Step::Broken => RECONNECT_PAUSE,
        };
        self.connections[at].forget(&self.epoll);
        if step == Step::Again {
            self.connections[at] = self.connections[at].again(self.address, &self.epoll)?;
            return Ok(());
        }
        self.free.retain(|free| *free != at);
        self.broken.push((Instant::now() + pause, at));
        self.next_reopen = self.next_reopen.min(Instant::now() + pause);
        Ok(())
    }

    fn end_overdue(&mut self, now: Instant, seen: &mut impl FnMut(Ticket, News<'_>)) -> io::Result<()> {
        for at in 0..self.connections.len() {
            let sent_at = self.connections[at].asked();
            if sent_at.is_some_and(|sent_at| now.saturating_duration_since(sent_at) > self.answer_time_max) {
                let step = self.connections[at].end(Lost::TimedOut, seen);
                self.after(at, step)?;
            }
        }
        Ok(())
    }

    fn reopen(&mut self, now: Instant) -> io::Result<()> {
        let due: Vec<(Instant, usize)> = self.broken.extract_if(.., |(when, _)| *when <= now).collect();
        for (_, at) in due {
            self.connections[at] = Connection::open(self.address, at as u64, &self.epoll)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::Ordering};

    use super::*;
    use crate::{
        request::Parts,
        test_server::{Act, TestServer},
    };

    const SOON: Duration = Duration::from_secs(60);

    const KEY: Parts<'_> = Parts { idempotency_key: Some("k"), token: None, read_after: None, body: None };

    /// Asks one thing after the other on one connection, and tells what came of each, and how many were sent again.
    fn ask_in_turn(
        server: &TestServer,
        count: usize,
        answer_time_max: Duration,
        (method, parts): (&str, Parts<'_>),
    ) -> (Vec<Result<String, Lost>>, usize) {
        let mut wire = Wire::connect(server.address, "shop", 1, answer_time_max).expect("a connection");
        let mut request = wire.request();
        request.put(method, &["/"], parts);
        let (mut heard, mut again) = (Vec::new(), 0);
        let until = Instant::now() + SOON;
        for ticket in 0..count {
            while !wire.send(ticket, &request, Instant::now()) {
                assert!(Instant::now() < until, "the connection is not opened again");
                wire.turn(Instant::now() + Duration::from_millis(10), &mut |_, _| {}).expect("a turn");
            }
            while heard.len() <= ticket {
                assert!(Instant::now() < until, "neither an answer nor the loss of it");
                wire.turn(Instant::now() + Duration::from_millis(10), &mut |answered, news| {
                    assert_eq!(answered, ticket);
                    match news {
                        News::Outcome(outcome) => heard
                            .push(outcome.map(|answer| String::from_utf8_lossy(answer.body).into_owned())),
                        News::Again => again += 1,
                    }
                })
                .expect("a turn");
            }
        }
        (heard, again)
    }

    fn get() -> (&'static str, Parts<'static>) {
        ("GET", Parts::default())
    }

    fn fine() -> Result<String, Lost> {
        Ok("{}".to_owned())
    }

    #[test]
    fn one_connection_serves_many_requests() {
        let server = TestServer::start(Arc::new(|_, _| Act::Answer("{}")));
        let (heard, _) = ask_in_turn(&server, 50, SOON, get());
        assert!(heard.iter().all(|heard| *heard == fine()), "{heard:?}");
        assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_is_lost_is_told_and_the_next_request_gets_a_new_connection() {
        let server = TestServer::start(Arc::new(|number, _| match number {
            1 => Act::HangUp,
            3 => Act::Raw(b"nonsense\r\n\r\n"),
            _ => Act::Answer("{}"),
        }));
        // Without a key nobody knows whether it may be sent once more.
        let (heard, again) = ask_in_turn(&server, 5, SOON, ("POST", Parts::default()));
        assert_eq!(heard, [fine(), Err(Lost::HungUp), fine(), Err(Lost::NotHttp), fine()]);
        assert_eq!((again, server.connections.load(Ordering::SeqCst)), (0, 3));
    }

    /// A server that says that it will hang up is taken at its word, and nothing is lost.
    #[test]
    fn the_last_answer_of_a_connection_is_an_answer() {
        let server = TestServer::start(Arc::new(|number, _| match number % 2 {
            0 => Act::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: close\r\n\r\n{}"),
            _ => Act::Answer("{}"),
        }));
        let (heard, again) = ask_in_turn(&server, 10, SOON, ("POST", Parts::default()));
        assert!(heard.iter().all(|heard| *heard == fine()), "{heard:?}");
        assert_eq!((again, server.connections.load(Ordering::SeqCst)), (0, 6));
    }

    #[test]
    fn what_does_no_harm_twice_is_sent_again_when_its_connection_was_closed() {
        for asked in [get(), ("PUT", Parts::default()), ("POST", KEY)] {
            let server = TestServer::start(Arc::new(|number, _| match number {
                2 => Act::HangUp,
                _ => Act::Answer("{}"),
            }));
            let (heard, again) = ask_in_turn(&server, 5, SOON, asked);
            assert_eq!(heard, [fine(), fine(), fine(), fine(), fine()]);
            assert_eq!((again, server.connections.load(Ordering::SeqCst)), (1, 2));
        }
    }

    /// Only a connection that was in use before may have been closed for being idle, and an answer that has begun was
    /// not.
    #[test]
    fn nothing_is_sent_a_third_time_or_for_another_reason() {
        let server = TestServer::start(Arc::new(|number, _| match number {
            0 | 2 | 3 => Act::HangUp,
            5 => Act::Broken(b"HTTP/1.1 200 OK\r\ncontent-le"),
            _ => Act::Answer("{}"),
        }));
        let (heard, again) = ask_in_turn(&server, 5, SOON, get());
        let lost = Err(Lost::HungUp);
        assert_eq!(heard, [lost.clone(), fine(), lost.clone(), fine(), lost]);
        assert_eq!(again, 1);
    }

    #[test]
    fn an_answer_that_never_comes_is_given_up() {
        let server = TestServer::start(Arc::new(|number, _| match number {
            0 => Act::Never,
            _ => Act::Answer("{}"),
        }));
        let (heard, _) = ask_in_turn(&server, 2, Duration::from_millis(200), get());
        assert_eq!(heard[0], Err(Lost::TimedOut));
    }

    #[test]
    fn nobody_there_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let error = Wire::connect(address, "shop", 4, SOON).err().expect("nobody is there");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
