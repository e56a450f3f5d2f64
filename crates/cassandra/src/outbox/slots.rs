//! Which slot a new entry goes to, and which slots have to be read to find all entries that wait. No I/O.
//!
//! A *generation* is what one instance writes. Its slots are numbered from 0 and hold a limited number of
//! entries each. A slot is *closed* when it gets no more entries, and *drained* when it was read empty after
//! that; a drained slot is never read again.
//!
//! No clocks of two machines are compared. The writer says which of its slots are closed. If it dies, a
//! reader closes them after `given_up_ms` of its own time. That is safe because a writer begins no write
//! under an entry that was acknowledged later than `fence_ms` after the entry's slot was opened: see
//! [`Place::is_in_time`].

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    str::FromStr,
};

use mobimir_core::time::Moment;

/// So many removed entries a reader meets at most in a slot.
pub(super) const SLOT_ENTRIES_MAX: usize = 512;
/// After this long a new entry goes to a new slot.
const SLOT_OPEN_MS_MAX: i64 = 20_000;
/// An instance that has opened no slot for so long goes on in a new generation.
const GENERATION_IDLE_MS_MAX: i64 = 3_600_000;
/// A drained generation that has opened no slot for so long is forgotten. The difference to the above is for
/// clocks that differ.
pub(super) const GENERATION_FORGOTTEN_AFTER_MS: i64 = 3 * GENERATION_IDLE_MS_MAX;

/// A slot of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SlotId {
    pub(super) generation: i64,
    pub(super) slot: i64,
}

/// Slots of one generation, as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotSet(BTreeMap<i64, i64>);

/// The slots that an instance writes to.
#[derive(Debug)]
pub(super) struct OpenSlots {
    current: SlotId,
    opened_at: Moment,
    /// In the current slot.
    entries: usize,
    /// Places that were given out and not given back, by slot.
    in_flight: BTreeMap<i64, usize>,
}

/// Room for entries in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: SlotId,
    opened_at: Moment,
}

/// What a generation says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The newest slot.
    pub(super) newest: i64,
    /// All slots before this one are closed.
    pub(super) closed_below: i64,
}

/// What a reader knows of a generation.
#[derive(Debug, Default)]
pub(super) struct Reading {
    closed_below: i64,
    /// The same, of slots that were given up.
    given_up_below: i64,
    newest: Option<i64>,
    /// When the newest slot was first heard of, for slots that may still be open.
    heard_of: VecDeque<(i64, i64)>,
    drained: SlotSet,
    /// Of closed slots: the smallest and the largest seal that was found there. No others come.
    found: BTreeMap<i64, (i64, i64)>,
}

/// Whether a slot can still get entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// Its writer says so, to whoever it can reach.
    ByWriter,
    /// Nobody has heard of its writer for long.
    GivenUp,
}

/// All seals there are.
const ANY_SEAL: (i64, i64) = (i64::MIN, i64::MAX);

impl OpenSlots {
    pub(super) fn new(generation: i64, now: Moment) -> Self {
        let current = SlotId { generation, slot: 0 };
        Self { current, opened_at: now, entries: 0, in_flight: BTreeMap::new() }
    }

    /// Room for so many entries. To be given back when they were written, or were not.
    pub(super) fn take(
        &mut self,
        entries: usize,
        now: Moment,
        new_generation: impl FnOnce() -> i64,
    ) -> Place {
        let age_ms = now.since(self.opened_at);
        if age_ms > GENERATION_IDLE_MS_MAX {
            *self = Self::new(new_generation(), now);
        } else if age_ms > SLOT_OPEN_MS_MAX || (self.entries > 0 && self.entries + entries > SLOT_ENTRIES_MAX)
        {
            self.current.slot += 1;
            (self.opened_at, self.entries) = (now, 0);
        }
        self.entries += entries;
        *self.in_flight.entry(self.current.slot).or_default() += 1;
        Place { at: self.current, opened_at: self.opened_at }
    }

    pub(super) fn current(&self) -> SlotId {
        self.current
    }

    pub(super) fn give_back(&mut self, place: Place) {
        if place.at.generation != self.current.generation {
            return;
        }
        if let Some(places) = self.in_flight.get_mut(&place.at.slot) {
            *places -= 1;
            if *places == 0 {
                self.in_flight.remove(&place.at.slot);
            }
        }
    }

    /// Nobody in this instance can write to slots before this one any more.
    pub(super) fn closed_below(&self) -> i64 {
        let in_flight = self.in_flight.keys().next().copied();
        in_flight.map_or(self.current.slot, |oldest| oldest.min(self.current.slot))
    }
}

impl Place {
    /// To be asked when the entry was acknowledged, before its write begins. If not, readers may have given
    /// the slot up.
    pub(super) fn is_in_time(self, now: Moment, fence_ms: i64) -> bool {
        now.since(self.opened_at) < fence_ms
    }
}

impl Reading {
    /// What the generation says now; `now_ms` is this reader's own time, read after that.
    pub(super) fn heard(&mut self, opened: Opened, now_ms: i64) {
        self.closed_below = self.closed_below.max(opened.closed_below);
        if self.newest.is_none_or(|newest| newest < opened.newest) {
            self.newest = Some(opened.newest);
            self.heard_of.push_back((opened.newest, now_ms));
        }
        while self.heard_of.front().is_some_and(|(slot, _)| *slot < self.closed_below) {
            self.heard_of.pop_front();
        }
    }

    /// To be asked before the slot is read.
    pub(super) fn closing(&mut self, slot: i64, now_ms: i64, given_up_ms: i64) -> Closing {
        while let Some((newest, heard_ms)) = self.heard_of.front()
            && now_ms - heard_ms > given_up_ms
        {
            self.given_up_below = self.given_up_below.max(newest + 1);
            self.heard_of.pop_front();
        }
        match slot {
            slot if slot < self.closed_below => Closing::ByWriter,
            slot if slot < self.given_up_below => Closing::GivenUp,
            _ => Closing::Open,
        }
    }

    /// The seals to look for in a slot: a closed one is not read where nothing waits, or what was removed
    /// from it would be met again and again.
    pub(super) fn seals(&self, slot: i64) -> (i64, i64) {
        self.found.get(&slot).copied().unwrap_or(ANY_SEAL)
    }

    /// A slot that had been closed before was read, and these were the smallest and the largest seal.
    pub(super) fn read_closed(&mut self, slot: i64, seals: Option<(i64, i64)>) {
        match seals {
            Some(seals) => {
                self.found.insert(slot, seals);
            }
            None => {
                self.found.remove(&slot);
                self.drained.insert_range(slot, slot);
            }
        }
    }

    /// What others have found drained.
    pub(super) fn drain_all(&mut self, slots: &SlotSet) {
        for (first, last) in &slots.0 {
            self.drained.insert_range(*first, *last);
        }
    }

    pub(super) fn is_drained(&self, slot: i64) -> bool {
        self.drained.contains(slot)
    }

    pub(super) fn drained(&self) -> &SlotSet {
        &self.drained
    }

    /// The slots that may hold entries, oldest first.
    pub(super) fn slots(&self) -> Vec<i64> {
        self.newest.map(|newest| self.drained.missing_up_to(newest)).unwrap_or_default()
    }
}

impl SlotSet {
    fn insert_range(&mut self, mut first: i64, mut last: i64) {
        // Ranges that overlap this one or touch it become one with it.
        while let Some((other_first, other_last)) = self.0.range(..=last.saturating_add(1)).next_back()
            && *other_last >= first.saturating_sub(1)
        {
            let other = *other_first;
            (first, last) = (first.min(other), last.max(*other_last));
            self.0.remove(&other);
        }
        self.0.insert(first, last);
    }

    fn contains(&self, slot: i64) -> bool {
        self.0.range(..=slot).next_back().is_some_and(|(_, last)| slot <= *last)
    }

    fn missing_up_to(&self, newest: i64) -> Vec<i64> {
        let (mut missing, mut next) = (Vec::new(), 0);
        for (first, last) in &self.0 {
            missing.extend(next..*first.min(&(newest + 1)));
            next = next.max(last + 1);
        }
        missing.extend(next..=newest);
        missing
    }

    /// The oldest of these ranges: what is left out is read once more.
    pub(super) fn truncated(&self, ranges_max: usize) -> Self {
        Self(self.0.iter().take(ranges_max).map(|(first, last)| (*first, *last)).collect())
    }
}

/// `0-41,43-90`
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (first, last)) in self.0.iter().enumerate() {
            write!(f, "{}{first}-{last}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for SlotSet {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut set = Self::default();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').ok_or(())?;
            let (first, last) = (first.parse().map_err(|_| ())?, last.parse().map_err(|_| ())?);
            if first < 0 || last < first {
                return Err(());
            }
            set.insert_range(first, last);
        }
        Ok(set)
    }
}

/// `newest 91, closed below 90`
impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "newest {}, closed below {}", self.newest, self.closed_below)
    }
}

impl FromStr for Opened {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (newest, closed_below) =
            text.strip_prefix("newest ").and_then(|text| text.split_once(", closed below ")).ok_or(())?;
        Ok(Self {
            newest: newest.parse().map_err(|_| ())?,
            closed_below: closed_below.parse().map_err(|_| ())?,
        })
    }
}

#[cfg(test)]
mod tests;
