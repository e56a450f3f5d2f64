//! A writer that stalls, dies and has its clock set, and readers that look and read whenever chance lets
//! them: no entry of a write that began is in a slot that somebody leaves out.

use std::collections::BTreeSet;

use mobimir_core::time::Timestamp;
use proptest::prelude::*;

use super::*;

const FENCE_MS: i64 = 60_000;
const GIVEN_UP_MS: i64 = 180_000;
const READERS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Wait(i64),
    SetClock(i64),
    /// The writer takes a place for this many entries and sends them, with what says that the slot is open.
    Enter(usize),
    /// That slot is said to be open now, whether anybody heard the answer or not.
    SaySlot(usize),
    /// The entry stands, whether anybody heard the answer or not.
    Stand(usize),
    /// The writer has both answers and goes on.
    Begin(usize),
    /// The writer gets no answer.
    Fail(usize),
    /// What was written has been copied.
    Remove(usize),
    Die,
    Hear(usize),
    /// A reader finds out whether its slots are closed, and asks for them.
    Ask(usize),
    /// Answers to the oldest of these questions.
    Read(usize, usize),
    Publish(usize),
    Adopt(usize),
    Forget(usize),
}

struct Sent {
    place: Place,
    opened: Opened,
    is_said: bool,
    stands: bool,
    /// The process that sent it lives, and still waits for it.
    is_awaited: bool,
    is_begun: bool,
    is_removed: bool,
}

#[derive(Default)]
struct Reader {
    readings: BTreeMap<i64, Reading>,
    asked: VecDeque<(SlotId, bool, (i64, i64))>,
}

struct World {
    now_ms: i64,
    wall_ahead_ms: i64,
    generations: i64,
    writer: OpenSlots,
    sent: Vec<Sent>,
    /// What each generation says of itself, and when it said so.
    said: BTreeMap<i64, (Opened, i64)>,
    /// Generations that readers find, and those that their process has listed: it does so once.
    listed: BTreeSet<i64>,
    ever_listed: BTreeSet<i64>,
    published: BTreeMap<i64, SlotSet>,
    readers: [Reader; READERS],
    begun: usize,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now_ms: 1_000_000,
            wall_ahead_ms: 0,
            generations: 1,
            writer: OpenSlots::new(0, Moment { wall: Timestamp::from_millis(0), boot_ms: 0 }),
            sent: Vec::new(),
            said: BTreeMap::new(),
            listed: BTreeSet::new(),
            ever_listed: BTreeSet::new(),
            published: BTreeMap::new(),
            readers: Default::default(),
            begun: 0,
        };
        world.writer = OpenSlots::new(1, world.moment());
        world
    }

    fn moment(&self) -> Moment {
        let wall = Timestamp::from_millis(self.now_ms + self.wall_ahead_ms);
        Moment { wall, boot_ms: self.now_ms }
    }

    /// The smallest and the largest seal among these. Seals are numbers in the order of writing.
    fn seals_in(&self, at: SlotId, (first, last): (i64, i64)) -> Option<(i64, i64)> {
        let stands = |sent: &Sent| sent.place.at == at && sent.stands && !sent.is_removed;
        let all =
            self.sent.iter().zip(0..).filter(|(sent, seal)| stands(sent) && (first..=last).contains(seal));
        let seals: Vec<i64> = all.map(|(_, seal)| seal).collect();
        Some((*seals.first()?, *seals.last()?))
    }

    fn take(&mut self, step: &Step) {
        let now = self.moment();
        match *step {
            Step::Wait(ms) => self.now_ms += ms,
            Step::SetClock(ahead_ms) => self.wall_ahead_ms = ahead_ms,
            Step::Enter(entries) => {
                let next = self.generations + 1;
                let place = self.writer.take(entries, now, || next);
                self.generations = self.generations.max(place.at.generation);
                let opened = Opened { newest: place.at.slot, closed_below: self.writer.closed_below() };
                self.sent.push(Sent {
                    place,
                    opened,
                    is_said: false,
                    stands: false,
                    is_awaited: true,
                    is_begun: false,
                    is_removed: false,
                });
            }
            Step::SaySlot(n) => {
                let now_ms = self.now_ms;
                if let Some(sent) = nth(&mut self.sent, n, |sent| !sent.is_said) {
                    sent.is_said = true;
                    if self.ever_listed.insert(sent.place.at.generation) {
                        self.listed.insert(sent.place.at.generation);
                    }
                    let said = self.said.entry(sent.place.at.generation).or_insert((sent.opened, now_ms));
                    if said.0.newest <= sent.opened.newest {
                        *said = (sent.opened, now_ms);
                    }
                }
            }
            Step::Stand(n) => {
                if let Some(sent) = nth(&mut self.sent, n, |sent| !sent.stands) {
                    sent.stands = true;
                }
            }
            Step::Begin(n) => {
                let answered = |sent: &Sent| sent.is_awaited && sent.is_said && sent.stands;
                if let Some(sent) = nth(&mut self.sent, n, answered) {
                    sent.is_awaited = false;
                    sent.is_begun = sent.place.is_in_time(now, FENCE_MS);
                    self.begun += usize::from(sent.is_begun);
                    self.writer.give_back(sent.place);
                }
            }
            Step::Fail(n) => {
                if let Some(sent) = nth(&mut self.sent, n, |sent| sent.is_awaited) {
                    sent.is_awaited = false;
                    self.writer.give_back(sent.place);
                }
            }
            Step::Remove(n) => {
                if let Some(sent) = nth(&mut self.sent, n, |sent| sent.is_begun && !sent.is_removed) {
                    sent.is_removed = true;
                }
            }
            Step::Die => {
                self.sent.iter_mut().for_each(|sent| sent.is_awaited = false);
                self.generations += 1;
                self.writer = OpenSlots::new(self.generations, now);
            }
            Step::Hear(n) => {
                let said = self.said.clone();
                let listed = |(generation, _): &(i64, _)| self.listed.contains(generation);
                for (generation, (opened, _)) in said.into_iter().filter(listed) {
                    let reader = &mut self.readers[n % READERS];
                    reader.readings.entry(generation).or_default().heard(opened, self.now_ms);
                }
            }
            Step::Ask(n) => {
                let reader = &mut self.readers[n % READERS];
                for (generation, reading) in &mut reader.readings {
                    for slot in reading.slots() {
                        let is_closed = reading.closing(slot, self.now_ms, GIVEN_UP_MS) != Closing::Open;
                        let at = SlotId { generation: *generation, slot };
                        reader.asked.push_back((at, is_closed, reading.seals(slot)));
                    }
                }
            }
            Step::Read(n, many) => {
                for _ in 0..many {
                    let Some((at, is_closed, seals)) = self.readers[n % READERS].asked.pop_front() else {
                        break;
                    };
                    let seals = self.seals_in(at, seals);
                    if is_closed {
                        let reader = &mut self.readers[n % READERS];
                        if let Some(reading) = reader.readings.get_mut(&at.generation) {
                            reading.read_closed(at.slot, seals);
                        }
                    }
                }
            }
            Step::Publish(n) => {
                for (generation, reading) in &self.readers[n % READERS].readings {
                    let text = reading.drained().truncated(3).to_string();
                    self.published.insert(*generation, text.parse().expect("it is read as it was written"));
                }
            }
            Step::Adopt(n) => {
                for (generation, reading) in &mut self.readers[n % READERS].readings {
                    if let Some(drained) = self.published.get(generation) {
                        reading.drain_all(drained);
                    }
                }
            }
            // It is heard of just before.
            Step::Forget(n) => {
                self.take(&Step::Hear(n));
                let now_ms = self.now_ms;
                let readings = &mut self.readers[n % READERS].readings;
                let is_over = |generation: &i64, said_ms: i64| {
                    let reading = readings.get(generation);
                    reading.is_some_and(|reading| reading.newest.is_some() && reading.slots().is_empty())
                        && now_ms - said_ms > GENERATION_FORGOTTEN_AFTER_MS
                };
                self.said.retain(|generation, (_, said_ms)| !is_over(generation, *said_ms));
                self.listed.retain(|generation| self.said.contains_key(generation));
            }
        }
    }

    /// Everybody who looks now finds every entry of a write that began and was not copied.
    fn check(&self) -> Result<(), TestCaseError> {
        let waits = |(sent, _): &(&Sent, i64)| sent.is_begun && !sent.is_removed;
        for (sent, seal) in self.sent.iter().zip(0..).filter(waits) {
            let SlotId { generation, slot } = sent.place.at;
            let said = self.said.get(&generation).filter(|_| self.listed.contains(&generation));
            prop_assert!(
                said.is_some_and(|(opened, _)| slot <= opened.newest),
                "{:?} is not said",
                sent.place
            );
            for (n, reader) in self.readers.iter().enumerate() {
                let Some(reading) = reader.readings.get(&generation) else { continue };
                prop_assert!(!reading.is_drained(slot), "reader {n} leaves {:?} out", sent.place);
                let (first, last) = reading.seals(slot);
                prop_assert!(
                    (first..=last).contains(&seal),
                    "reader {n} leaves a part of {:?} out",
                    sent.place
                );
            }
        }
        Ok(())
    }
}

fn nth(sent: &mut [Sent], n: usize, is_meant: impl Fn(&Sent) -> bool) -> Option<&mut Sent> {
    let meant = sent.iter().filter(|sent| is_meant(sent)).count();
    let n = n.checked_rem(meant)?;
    sent.iter_mut().filter(|sent| is_meant(sent)).nth(n)
}

fn step() -> impl Strategy<Value = Step> {
    let ms = prop::sample::select(vec![10, 3_000, 21_000, 59_000, 181_000, 3_700_000, 11_000_000]);
    let any = 0..100usize;
    prop_oneof![
        4 => ms.prop_map(Step::Wait),
        1 => (-200_000..200_000i64).prop_map(Step::SetClock),
        8 => prop::sample::select(vec![1, 4, 300]).prop_map(Step::Enter),
        7 => any.clone().prop_map(Step::SaySlot),
        7 => any.clone().prop_map(Step::Stand),
        7 => any.clone().prop_map(Step::Begin),
        2 => any.clone().prop_map(Step::Fail),
        5 => any.clone().prop_map(Step::Remove),
        1 => Just(Step::Die),
        5 => any.clone().prop_map(Step::Hear),
        5 => any.clone().prop_map(Step::Ask),
        5 => (any.clone(), 1..20usize).prop_map(|(n, many)| Step::Read(n, many)),
        1 => any.clone().prop_map(Step::Publish),
        1 => any.clone().prop_map(Step::Adopt),
        1 => any.prop_map(Step::Forget),
    ]
}

/// More than usual: they are small.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(1_000), ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_entry_of_a_write_that_began_is_left_out(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.check()?;
        }
        // When everything has been copied, a reader soon has nothing to read any more.
        world.take(&Step::Die);
        for sent in &mut world.sent {
            (sent.is_said, sent.is_removed) = (true, true);
            world.listed.insert(sent.place.at.generation);
            let said = world.said.entry(sent.place.at.generation).or_insert((sent.opened, 0));
            said.0.newest = said.0.newest.max(sent.opened.newest);
        }
        for step in [Step::Hear(0), Step::Wait(GIVEN_UP_MS + 1), Step::Ask(0), Step::Read(0, usize::MAX)] {
            world.take(&step);
        }
        let left: usize = world.readers[0].readings.values().map(|reading| reading.slots().len()).sum();
        prop_assert_eq!(left, 0);
    }

    #[test]
    fn a_set_of_slots_is_what_was_put_into_it(ranges in prop::collection::vec((0..60i64, 0..8i64), 0..20)) {
        let (mut set, mut expected) = (SlotSet::default(), BTreeSet::new());
        for (first, more) in ranges {
            set.insert_range(first, first + more);
            expected.extend(first..=first + more);
        }
        for slot in 0..80 {
            prop_assert_eq!(set.contains(slot), expected.contains(&slot));
        }
        let missing: Vec<i64> = (0..=70).filter(|slot| !expected.contains(slot)).collect();
        prop_assert_eq!(set.missing_up_to(70), missing);
        let ranges: Vec<(i64, i64)> = set.0.iter().map(|(first, last)| (*first, *last)).collect();
        prop_assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "ranges that touch: {set}");
        prop_assert_eq!(set.to_string().parse::<SlotSet>(), Ok(set));
    }
}

/// Else a reader that has given the slot up would have lost it.
#[test]
fn a_writer_that_stalls_begins_nothing_in_a_slot_that_is_given_up() {
    let mut world = World::new();
    for step in [Step::Enter(1), Step::SaySlot(0), Step::Hear(0), Step::Wait(GIVEN_UP_MS + 1)] {
        world.take(&step);
    }
    for step in [Step::Ask(0), Step::Read(0, 1), Step::Stand(0), Step::Begin(0)] {
        world.take(&step);
    }
    assert!(world.readers[0].readings[&1].is_drained(0));
    assert_eq!(world.begun, 0);
    // What it writes then goes to a slot that is read.
    for step in [Step::Enter(1), Step::SaySlot(0), Step::Stand(0), Step::Begin(0), Step::Hear(0)] {
        world.take(&step);
    }
    assert_eq!((world.begun, world.readers[0].readings[&1].slots()), (1, vec![1]));
}

#[test]
fn a_slot_whose_writer_is_only_slow_is_not_given_up() {
    let mut world = World::new();
    for step in [Step::Enter(1), Step::SaySlot(0), Step::Hear(0), Step::Wait(FENCE_MS - 1)] {
        world.take(&step);
    }
    for step in [Step::Ask(0), Step::Read(0, 1), Step::Stand(0), Step::Begin(0)] {
        world.take(&step);
    }
    assert_eq!((world.begun, world.readers[0].readings[&1].slots()), (1, vec![0]));
}

/// A process lists its generation once.
#[test]
fn whoever_comes_back_after_hours_is_found_again() {
    let mut world = World::new();
    let write = [Step::Enter(1), Step::SaySlot(0), Step::Stand(0), Step::Begin(0)];
    for step in write.iter().chain(&[Step::Remove(0), Step::Hear(0), Step::Wait(11_000_000)]) {
        world.take(step);
    }
    for step in [Step::Ask(0), Step::Read(0, 1), Step::Forget(0)].iter().chain(&write) {
        world.take(step);
    }
    assert_eq!((world.begun, &world.ever_listed), (2, &BTreeSet::from([1, 2])));
    world.check().unwrap();
}

/// However much was written and removed, no more than two slots of an instance may still hold an entry.
#[test]
fn what_is_read_does_not_grow_with_what_was_written() {
    let mut world = World::new();
    for n in 0..20_000 {
        for step in [Step::Enter(1), Step::SaySlot(0), Step::Stand(0), Step::Begin(0), Step::Remove(0)] {
            world.take(&step);
        }
        world.sent.retain(|sent| !sent.is_removed);
        world.take(&Step::Wait(1));
        if n % 700 == 0 {
            for step in [Step::Hear(0), Step::Ask(0), Step::Read(0, usize::MAX), Step::Hear(0)] {
                world.take(&step);
            }
            assert!(world.readers[0].readings[&1].slots().len() <= 2);
        }
    }
    assert_eq!(world.begun, 20_000);
    let drained = world.readers[0].readings[&1].drained();
    assert_eq!(drained.0.len(), 1, "{drained}");
}

#[test]
fn what_a_generation_says_is_read_as_it_was_written() {
    let opened = Opened { newest: 91, closed_below: 90 };
    assert_eq!(opened.to_string(), "newest 91, closed below 90");
    assert_eq!(opened.to_string().parse(), Ok(opened));
    for damaged in ["", "newest 91", "newest x, closed below 1", "1,2"] {
        assert_eq!(damaged.parse::<Opened>(), Err(()), "{damaged}");
    }
    for damaged in ["4", "5-4", "-1-3", "a-b"] {
        assert_eq!(damaged.parse::<SlotSet>(), Err(()), "{damaged}");
    }
}
