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
    Answer, Lost, Outcome, Ticket,
    answer::{Head, NotHttp},
};

pub(super) struct Connection {
    stream: TcpStream,
    number: u64,
    state: State,
    /// What is left of a request that the system did not take at once.
    unsent: Vec<u8>,
    /// What has come of an answer that did not come at once.
    partial: Vec<u8>,
    refused: Option<ErrorKind>,
    answers: u64,
}

enum State {
    Opening,
    Free,
    Asked { ticket: Ticket, sent_at: Instant },
    Over,
}

/// What a connection is good for after something happened to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Waits,
    Free,
    /// The server said that it would close it, or did so while nobody asked.
    Closed,
    Broken,
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
            state: State::Opening,
            unsent: Vec::new(),
            partial: Vec::new(),
            refused,
            answers: 0,
        })
    }

    /// Why it could not be opened.
    pub(super) fn refusal(&self) -> io::Error {
        self.refused.unwrap_or(ErrorKind::ConnectionReset).into()
    }

    /// Since when it has a request under way.
    pub(super) fn asked(&self) -> Option<Instant> {
        match self.state {
            State::Asked { sent_at, .. } => Some(sent_at),
            _ => None,
        }
    }

    /// Whatever goes wrong here shows when the connection is ready: a broken one always is.
    pub(super) fn send(&mut self, ticket: Ticket, request: &[u8], now: Instant, epoll: &OwnedFd) {
        self.state = State::Asked { ticket, sent_at: now };
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
        seen: &mut impl FnMut(Ticket, Outcome<'_>),
    ) -> Step {
        match self.state {
            State::Over => return Step::Waits,
            State::Opening => return self.opened(epoll),
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
    pub(super) fn end(&mut self, lost: Lost, seen: &mut impl FnMut(Ticket, Outcome<'_>)) -> Step {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        match std::mem::replace(&mut self.state, State::Over) {
            State::Asked { ticket, .. } => {
                seen(ticket, Err(lost));
                Step::Broken
            }
            // One that never was of use is not opened again at once.
            _ if self.answers == 0 => Step::Broken,
            _ => Step::Closed,
        }
    }

    /// A connection that is over would always be ready.
    pub(super) fn forget(&self, epoll: &OwnedFd) {
        let _ = epoll::delete(epoll, &self.stream);
    }

    fn opened(&mut self, epoll: &OwnedFd) -> Step {
        match sockopt::socket_error(&self.stream) {
            Ok(Ok(())) if self.refused.is_none() => {
                self.state = State::Free;
                self.listen(EventFlags::IN, epoll);
                Step::Free
            }
            Ok(Err(error)) | Err(error) => {
                self.refused = Some(io::Error::from(error).kind());
                self.state = State::Over;
                Step::Broken
            }
            Ok(Ok(())) => {
                self.state = State::Over;
                Step::Broken
            }
        }
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

    fn read_on(&mut self, buffer: &mut [u8], seen: &mut impl FnMut(Ticket, Outcome<'_>)) -> Step {
        let read = match self.stream.read(buffer) {
            Ok(0) => return self.end(Lost::HungUp, seen),
            Ok(read) => &buffer[..read],
            Err(error) if is_later(&error) => return Step::Waits,
            Err(_) => return self.end(Lost::HungUp, seen),
        };
        let State::Asked { ticket, .. } = self.state else {
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
    seen: &mut impl FnMut(Ticket, Outcome<'_>),
) -> Result<Option<bool>, NotHttp> {
    let Some(head) = Head::parse(bytes)? else { return Ok(None) };
    let end = head.head_bytes + head.body_bytes;
    if bytes.len() < end {
        return Ok(None);
    }
    let (status, body) = (head.status, &bytes[head.head_bytes..end]);
    seen(ticket, Ok(Answer { status, body, head: &bytes[..head.head_bytes] }));
    // More than was asked for: whatever it is, it is no answer to anything.
    Ok(Some(head.last || bytes.len() > end))
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
