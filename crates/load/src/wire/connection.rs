//! One connection: at most one request under way.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    time::Instant,
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt},
};

use super::{
    Answer, Lost, News, Ticket,
    answer::{Head, NotHttp},
};
use crate::request::Request;

pub(super) struct Connection {
    stream: TcpStream,
    number: u64,
    state: State,
    /// What is left of a request that the system did not take at once.
    unsent: Vec<u8>,
    /// The request, when it is to be sent once more if the connection was closed before it came.
    kept: Vec<u8>,
    /// What has come of an answer that did not come at once.
    partial: Vec<u8>,
    refused: Option<ErrorKind>,
    answers: u64,
}

enum State {
    /// Perhaps for a request, which is sent as soon as it is open.
    Opening(Option<Question>),
    Free,
    Asked(Question),
    Over,
}

#[derive(Clone, Copy)]
struct Question {
    ticket: Ticket,
    /// For the first time.
    sent_at: Instant,
}

/// What a connection is good for after something happened to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Waits,
    Free,
    /// The server said that it would close it, or did so while nobody asked.
    Closed,
    Broken,
    /// The server has closed it before anything came of the answer: the request is for another connection.
    Again,
}

impl Connection {
    /// Begins to open it; it becomes free when it is open.
    pub(super) fn open(address: SocketAddr, number: u64, epoll: &OwnedFd) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        let refused = match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => None,
            Err(error) => Some(io::Error::from(error).kind()),
        };
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        epoll::add(epoll, &stream, EventData::new_u64(number), EventFlags::IN | EventFlags::OUT)?;
        Ok(Self {
            stream,
            number,
            state: State::Opening(None),
            unsent: Vec::new(),
            kept: Vec::new(),
            partial: Vec::new(),
            refused,
            answers: 0,
        })
    }

    /// Another one, which asks the same once more.
    pub(super) fn again(&mut self, address: SocketAddr, epoll: &OwnedFd) -> io::Result<Self> {
        let mut fresh = Self::open(address, self.number, epoll)?;
        fresh.state = State::Opening(self.question());
        fresh.unsent = std::mem::take(&mut self.kept);
        Ok(fresh)
    }

    /// Why it could not be opened.
    pub(super) fn refusal(&self) -> io::Error {
        self.refused.unwrap_or(ErrorKind::ConnectionReset).into()
    }

    /// Since when it has a request under way.
    pub(super) fn asked(&self) -> Option<Instant> {
        self.question().map(|question| question.sent_at)
    }

    fn question(&self) -> Option<Question> {
        match self.state {
            State::Opening(question) => question,
            State::Asked(question) => Some(question),
            State::Free | State::Over => None,
        }
    }

    /// Whatever goes wrong here shows when the connection is ready: a broken one always is.
    pub(super) fn send(&mut self, ticket: Ticket, request: &Request, now: Instant, epoll: &OwnedFd) {
        self.state = State::Asked(Question { ticket, sent_at: now });
        self.kept.clear();
        // Servers close connections that nobody used for a while, and a request may be on its way then. One that never
        // had an answer was not closed for that.
        if self.answers > 0 && request.is_repeatable() {
            self.kept.extend_from_slice(request.bytes());
        }
        let request = request.bytes();
        let written = match self.stream.write(request) {
            Ok(written) => written,
            Err(error) if is_later(&error) => 0,
            Err(_) => request.len(),
        };
        if written < request.len() {
            self.unsent.extend_from_slice(&request[written..]);
            self.listen(EventFlags::IN | EventFlags::OUT, epoll);
        }
    }

    pub(super) fn ready(
        &mut self,
        flags: EventFlags,
        buffer: &mut [u8],
        epoll: &OwnedFd,
        seen: &mut impl FnMut(Ticket, News<'_>),
    ) -> Step {
        match self.state {
            State::Over => return Step::Waits,
            State::Opening(first) => return self.opened(first, epoll, seen),
            _ => {}
        }
        if flags.contains(EventFlags::OUT) && self.write_on(epoll).is_err() {
            return self.end(Lost::HungUp, seen);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return self.read_on(buffer, seen);
        }
        Step::Waits
    }

    /// Gives the request up, and the connection with it.
    pub(super) fn end(&mut self, lost: Lost, seen: &mut impl FnMut(Ticket, News<'_>)) -> Step {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let question = self.question();
        if let Some(Question { ticket, .. }) = question {
            if lost == Lost::HungUp && self.partial.is_empty() && !self.kept.is_empty() {
                seen(ticket, News::Again);
                return Step::Again;
            }
            seen(ticket, News::Outcome(Err(lost)));
        }
        self.state = State::Over;
        // One that never was of use is not opened again at once.
        if question.is_some() || self.answers == 0 { Step::Broken } else { Step::Closed }
    }

    /// A connection that is over would always be ready.
    pub(super) fn forget(&self, epoll: &OwnedFd) {
        let _ = epoll::delete(epoll, &self.stream);
    }

    fn opened(
        &mut self,
        first: Option<Question>,
        epoll: &OwnedFd,
        seen: &mut impl FnMut(Ticket, News<'_>),
    ) -> Step {
        if let Ok(Err(error)) | Err(error) = sockopt::socket_error(&self.stream) {
            self.refused = Some(io::Error::from(error).kind());
        }
        if self.refused.is_some() {
            return self.end(Lost::HungUp, seen);
        }
        self.state = first.map_or(State::Free, State::Asked);
        // As with every request, what goes wrong shows when the connection is ready.
        let _ = self.write_on(epoll);
        if first.is_some() { Step::Waits } else { Step::Free }
    }

    fn write_on(&mut self, epoll: &OwnedFd) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.listen(EventFlags::IN, epoll);
        Ok(())
    }

    fn read_on(&mut self, buffer: &mut [u8], seen: &mut impl FnMut(Ticket, News<'_>)) -> Step {
        let read = match self.stream.read(buffer) {
            Ok(0) => return self.end(Lost::HungUp, seen),
            Ok(read) => &buffer[..read],
            Err(error) if is_later(&error) => return Step::Waits,
            Err(_) => return self.end(Lost::HungUp, seen),
        };
        let State::Asked(Question { ticket, .. }) = self.state else {
            // Bytes that nobody asked for.
            return self.end(Lost::NotHttp, seen);
        };
        let whole = if self.partial.is_empty() {
            answered(ticket, read, seen)
        } else {
            self.partial.extend_from_slice(read);
            answered(ticket, &self.partial, seen)
        };
        match whole {
            Ok(Some(last)) => {
                // One that came before the request was sent leaves half of it on the way.
                let last = last || !self.unsent.is_empty();
                self.partial.clear();
                self.answers += 1;
                self.state = if last { State::Over } else { State::Free };
                if last { Step::Closed } else { Step::Free }
            }
            Ok(None) => {
                if self.partial.is_empty() {
                    self.partial.extend_from_slice(read);
                }
                Step::Waits
            }
            Err(_) => self.end(Lost::NotHttp, seen),
        }
    }

    fn listen(&self, flags: EventFlags, epoll: &OwnedFd) {
        // Only fails for a descriptor that is not there.
        let _ = epoll::modify(epoll, &self.stream, EventData::new_u64(self.number), flags);
    }
}

/// Shows the answer if it is all there. Says whether it was the connection's last.
fn answered(
    ticket: Ticket,
    bytes: &[u8],
    seen: &mut impl FnMut(Ticket, News<'_>),
) -> Result<Option<bool>, NotHttp> {
    let Some(head) = Head::parse(bytes)? else { return Ok(None) };
    let end = head.head_bytes + head.body_bytes;
    if bytes.len() < end {
        return Ok(None);
    }
    let (status, body) = (head.status, &bytes[head.head_bytes..end]);
    seen(ticket, News::Outcome(Ok(Answer { status, body, head: &bytes[..head.head_bytes] })));
    // More than was asked for: whatever it is, it is no answer to anything.
    Ok(Some(head.last || bytes.len() > end))
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
