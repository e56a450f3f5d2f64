//! Asking many things, as fast as they are answered: before a run to prepare it, and after it to look.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use crate::{
    request::Request,
    wire::{News, Outcome, Wire},
};

const TURN: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(200);

/// What somebody makes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Done,
    /// Not what was hoped for; it may be another time.
    Again,
}

/// Asks `count` things, as many at once as there are connections, each until it is done, or until none was for so long.
/// Says which are not.
pub(crate) fn ask_all(
    wire: &mut Wire,
    count: usize,
    patience: Duration,
    mut ask: impl FnMut(usize, &mut Request),
    mut heard: impl FnMut(usize, Outcome<'_>) -> Heard,
) -> io::Result<Vec<usize>> {
    let mut until = Instant::now() + patience;
    let mut open: VecDeque<usize> = (0..count).collect();
    let (mut again, mut under_way) = (Vec::new(), 0);
    let mut request = wire.request();
    loop {
        while wire.free() > 0
            && let Some(next) = open.pop_front()
        {
            ask(next, &mut request);
            wire.send(next, &request, Instant::now());
            under_way += 1;
        }
        if under_way == 0 && open.is_empty() {
            if again.is_empty() || Instant::now() >= until {
                return Ok(again);
            }
            std::thread::sleep(PAUSE);
            open.extend(again.drain(..));
            continue;
        }
        wire.turn(Instant::now() + TURN, &mut |ticket, news| {
            let News::Outcome(outcome) = news else { return };
            under_way -= 1;
            match heard(ticket, outcome) {
                Heard::Again => again.push(ticket),
                Heard::Done => until = Instant::now() + patience,
            }
        })?;
        if Instant::now() >= until && under_way == 0 {
            again.extend(open.drain(..));
            again.sort_unstable();
            return Ok(again);
        }
    }
}
