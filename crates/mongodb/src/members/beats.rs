//! The heartbeats of this process that a majority has, with the moment each was sent.
//!
//! Whoever shows beat `n` has everything that was acknowledged, by anyone, before `n` was sent. So what it shows is at
//! most as old as `n`, by this process's own clock: nobody's clocks have to agree.

use std::{collections::VecDeque, time::Instant};

use mobimir_core::reading::Position;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) number: u64,
    /// Where it stands in the history of the replica set.
    pub(crate) at: Position,
    /// Taken before it was sent.
    pub(crate) sent: Instant,
}

/// The newest closely, older ones ever further apart: to find only an older one means to think a member older than it is.
#[derive(Debug, Default)]
pub(super) struct Beats(VecDeque<Beat>);

const BEATS_MAX: usize = 1024;

impl Beats {
    pub(super) fn push(&mut self, beat: Beat) {
        if self.0.back().is_some_and(|newest| newest.number >= beat.number) {
            return;
        }
        if self.0.len() >= BEATS_MAX {
            self.thin_out();
        }
        self.0.push_back(beat);
    }

    /// The newest beat that whoever shows number `shown` has for certain.
    pub(super) fn at_or_before(&self, shown: u64) -> Option<Beat> {
        let older = self.0.partition_point(|beat| beat.number <= shown);
        older.checked_sub(1).and_then(|at| self.0.get(at)).copied()
    }

    pub(super) fn newest(&self) -> Option<Beat> {
        self.0.back().copied()
    }

    /// Every second of the older half goes.
    fn thin_out(&mut self) {
        let half = self.0.len() / 2;
        let mut place = 0;
        self.0.retain(|_| {
            place += 1;
            place > half || place % 2 == 1
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn beat(number: u64, start: Instant) -> Beat {
        Beat { number, at: Position(number * 10), sent: start + Duration::from_millis(number) }
    }

    #[test]
    fn a_number_between_two_beats_is_as_old_as_the_older() {
        let start = Instant::now();
        let mut beats = Beats::default();
        assert_eq!(beats.at_or_before(5), None);
        for number in [2, 3, 7] {
            beats.push(beat(number, start));
        }
        let found = |shown| beats.at_or_before(shown).map(|beat| beat.number);
        assert_eq!([1, 2, 3, 6, 7, 99].map(found), [None, Some(2), Some(3), Some(3), Some(7), Some(7)]);
    }

    #[test]
    fn old_beats_get_further_apart_and_none_is_taken_for_a_newer_one() {
        let start = Instant::now();
        let mut beats = Beats::default();
        for number in 1..=20_000 {
            beats.push(beat(number, start));
            assert!(beats.0.len() <= BEATS_MAX);
        }
        assert_eq!(beats.at_or_before(1).map(|beat| beat.number), Some(1), "the first is never forgotten");
        for shown in 1..=20_000 {
            let found = beats.at_or_before(shown).expect("there is an older one");
            assert!(found.number <= shown);
        }
        assert_eq!(beats.newest().map(|beat| beat.number), Some(20_000));
    }

    #[test]
    fn a_beat_that_comes_late_is_none() {
        let start = Instant::now();
        let mut beats = Beats::default();
        beats.push(beat(5, start));
        beats.push(beat(4, start));
        assert_eq!(beats.at_or_before(4), None);
        assert_eq!(beats.newest().map(|beat| beat.number), Some(5));
    }
}
