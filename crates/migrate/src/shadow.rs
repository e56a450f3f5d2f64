//! Shadow reads: before reads move, some of those that shoppers make are asked of both stores, and compared.
//!
//! The shopper has the source's answer by then and hears nothing of it. What is asked at the same time is limited, and what
//! is not answered soon is let go, so that a target that hangs or fails costs nobody anything. The target is given every write
//! a moment later, so an answer that differs is asked for again when everything written before has been copied.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    cart::StoredCart,
    moving::{Backlog, Facts, Movable, Side, Whole, cart_facts, order_facts, session_facts},
    notes::Expected,
    order::{Order, StatusChange},
    page::Page,
    ports::StoreResult,
    session::Session,
    time::{Clock, Timestamp},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use crate::{
    phase::Phase,
    record::{Notes, Record},
};

/// Reads that one instance asks of the target at the same time.
const ASKED_AT_ONCE: usize = 16;
/// An answer that takes longer is not waited for.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How often an answer that differs is asked for again, when the source changes meanwhile.
const ROUNDS_MAX: u32 = 4;
/// How often it is looked whether everything written before has been copied.
const LOOKS_MAX: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Marks have the time of whoever wrote, by his own clock.
const CLOCKS_APART_MS_MAX: i64 = 2_000;
/// Differences that are shown in full.
const SAMPLES_MAX: usize = 20;
/// What is shown of one.
const SAMPLE_FIELDS_MAX: usize = 10;
const SAMPLE_TEXT_CHARS_MAX: usize = 200;
const INSTANCES_MAX: usize = 10_000;
/// Of a share.
const WHOLE: u32 = 1_000;

pub struct Shadow {
    /// Of a thousand reads.
    share_permille: u32,
    dice: AtomicU32,
    /// Of the comparison that the reads belong to; none is numbered 0.
    number: AtomicU64,
    turns: Arc<Semaphore>,
    counted: Mutex<Counted>,
    /// What waited to be copied when somebody last looked: to look is not free for the store that shoppers use.
    looked: tokio::sync::Mutex<Option<(Instant, Backlog)>>,
}

/// What shadow reads came to, in one instance or in all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub asked: u64,
    /// Answered alike, at once or as soon as everything written before had been copied.
    pub alike: u64,
    pub different: u64,
    /// The target failed, or took too long, or the source changed too often to tell.
    pub untold: u64,
    /// Not asked, because enough were being asked.
    pub skipped: u64,
    pub samples: VecDeque<Sample>,
}

/// A read that was answered differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub at: Timestamp,
    pub what: String,
    /// What differs, as the source says it and as the target does.
    pub fields: BTreeMap<String, [String; 2]>,
}

/// A read that may be asked of both stores.
pub(crate) struct Turn {
    number: u64,
    _one_of: OwnedSemaphorePermit,
}

pub(crate) struct Question<W: Whole, P: ?Sized, F> {
    pub(crate) what: &'static str,
    pub(crate) read: F,
    pub(crate) sides: [Side<W, P>; 2],
    pub(crate) clock: Arc<dyn Clock>,
}

/// What an answer says, in words that do not depend on the store.
pub(crate) type Answer = BTreeMap<String, String>;

pub(crate) trait Told: Send + 'static {
    fn told(&self) -> Answer;
}

enum Outcome {
    Alike,
    Different(Answer, Answer),
    Untold,
}

impl Shadow {
    pub fn new(share_permille: u32) -> Arc<Self> {
        Arc::new(Self {
            share_permille,
            dice: AtomicU32::new(0),
            number: AtomicU64::new(0),
            turns: Arc::new(Semaphore::new(ASKED_AT_ONCE)),
            counted: Mutex::default(),
            looked: tokio::sync::Mutex::default(),
        })
    }

    /// Reads are compared while everything is: the target is complete, and the source still decides.
    pub fn follow(&self, record: &Record) {
        let control = &record.control;
        let is_on = control.phase == Phase::Verify && control.backfilled;
        let number = if is_on { record.comparison_number() } else { 0 };
        if self.number.swap(number, Ordering::Relaxed) != number {
            *self.counted() = Counted::default();
        }
    }

    /// What this instance has counted for the present comparison, if there is one.
    pub fn current(&self) -> Option<(u64, Counted)> {
        let number = self.number.load(Ordering::Relaxed);
        (number != 0).then(|| (number, self.counted().clone()))
    }

    /// Whether the read that is going on is one of those.
    pub(crate) fn turn(&self) -> Option<Turn> {
        let number = self.number.load(Ordering::Relaxed);
        if number == 0 || !self.roll() {
            return None;
        }
        match self.turns.clone().try_acquire_owned() {
            Ok(one_of) => Some(Turn { number, _one_of: one_of }),
            Err(_) => {
                self.counted().skipped += 1;
                None
            }
        }
    }

    /// Each as often as any other, neighbours far apart.
    fn roll(&self) -> bool {
        let number = self.dice.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9);
        ((u64::from(number) * u64::from(WHOLE)) >> 32) < u64::from(self.share_permille)
    }

    pub(crate) async fn ask<W, P, T, F, Fut>(
        self: Arc<Self>,
        turn: Turn,
        first: Answer,
        question: Question<W, P, F>,
    ) where
        W: Whole,
        P: ?Sized + Send + Sync,
        T: Told,
        F: Fn(Arc<P>) -> Fut + Send + Sync,
        Fut: Future<Output = StoreResult<T>> + Send,
    {
        let outcome = question.ask(first, &self).await;
        let mut counted = self.counted();
        if self.number.load(Ordering::Relaxed) != turn.number {
            // It belongs to a comparison that is over.
            return;
        }
        counted.asked += 1;
        match outcome {
            Outcome::Alike => counted.alike += 1,
            Outcome::Untold => counted.untold += 1,
            Outcome::Different(source, target) => {
                counted.different += 1;
                if counted.samples.len() >= SAMPLES_MAX {
                    counted.samples.pop_front();
                }
                let fields = differing(&source, &target);
                counted.samples.push_back(Sample {
                    at: question.clock.now(),
                    what: question.what.to_owned(),
                    fields,
                });
            }
        }
    }

    /// What waits to be copied, as it was no earlier than then, and a moment ago at most: the others who want to know wait
    /// for the same answer.
    async fn backlog<W: Whole>(&self, of: &dyn Movable<W>, no_earlier: Instant) -> Option<Backlog> {
        let mut looked = self.looked.lock().await;
        if let Some((at, backlog)) = *looked
            && at >= no_earlier
            && at.elapsed() < LOOK_PAUSE
        {
            return Some(backlog);
        }
        let began = Instant::now();
        let backlog = timeout(ANSWER_MAX, of.backlog()).await.ok()?.ok()?;
        *looked = Some((began, backlog));
        Some(backlog)
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W, P, T, F, Fut> Question<W, P, F>
where
    W: Whole,
    P: ?Sized + Send + Sync,
    T: Told,
    F: Fn(Arc<P>) -> Fut + Send + Sync,
    Fut: Future<Output = StoreResult<T>> + Send,
{
    async fn ask(&self, first: Answer, shadow: &Shadow) -> Outcome {
        let [source, target] = &self.sides;
        match self.answer(target).await {
            None => return Outcome::Untold,
            Some(answer) if answer == first => return Outcome::Alike,
            Some(_) => {}
        }
        for _ in 0..ROUNDS_MAX {
            let before = self.answer(source).await;
            if !self.is_copied(source, self.clock.now(), shadow).await {
                return Outcome::Untold;
            }
            let candidate = self.answer(target).await;
            let after = self.answer(source).await;
            let (Some(before), Some(candidate), Some(after)) = (before, candidate, after) else {
                return Outcome::Untold;
            };
            if candidate == before || candidate == after {
                return Outcome::Alike;
            }
            if before == after {
                return Outcome::Different(before, candidate);
            }
        }
        Outcome::Untold
    }

    /// Waits until everything that was written by then is copied, but not for ever.
    async fn is_copied(&self, source: &Side<W, P>, by: Timestamp, shadow: &Shadow) -> bool {
        let asked_at = Instant::now();
        for _ in 0..LOOKS_MAX {
            if let Some(backlog) = shadow.backlog(&*source.moving, asked_at).await
                && backlog.oldest.is_none_or(|oldest| oldest > by.plus_ms(CLOCKS_APART_MS_MAX))
            {
                return true;
            }
            sleep(LOOK_PAUSE).await;
        }
        false
    }

    /// Through the tracked view, which writes nothing when it is read.
    async fn answer(&self, side: &Side<W, P>) -> Option<Answer> {
        let answer = timeout(ANSWER_MAX, (self.read)(side.tracked.clone())).await;
        answer.ok()?.ok().map(|answer| answer.told())
    }
}

fn differing(source: &Answer, target: &Answer) -> BTreeMap<String, [String; 2]> {
    let cut = |text: Option<&String>| -> String {
        text.map_or("nothing".to_owned(), |text| text.chars().take(SAMPLE_TEXT_CHARS_MAX).collect())
    };
    let fields: std::collections::BTreeSet<&String> = source.keys().chain(target.keys()).collect();
    let differing = fields.into_iter().filter(|field| source.get(*field) != target.get(*field));
    differing
        .take(SAMPLE_FIELDS_MAX)
        .map(|field| (field.clone(), [cut(source.get(field)), cut(target.get(field))]))
        .collect()
}

impl Notes {
    /// What an instance has counted, for all to see.
    pub async fn tell_shadow(&self, number: u64, instance: Uuid, counted: &Counted) -> StoreResult<()> {
        let name = format!("{}{instance}", prefix(number));
        self.put(&name, Expected::Anything, counted).await.map(|_| ())
    }

    /// What all instances have counted for a comparison.
    pub async fn shadow(&self, number: u64) -> StoreResult<Counted> {
        let all = self.list::<Counted>(&prefix(number), None, INSTANCES_MAX).await?;
        let mut sum = Counted::default();
        for (_, counted) in all {
            sum.asked += counted.asked;
            sum.alike += counted.alike;
            sum.different += counted.different;
            sum.untold += counted.untold;
            sum.skipped += counted.skipped;
            sum.samples.extend(counted.samples);
        }
        sum.samples.truncate(SAMPLES_MAX);
        Ok(sum)
    }
}

fn prefix(number: u64) -> String {
    format!("/shadow/{number:020}/")
}

fn of_facts(facts: &Facts) -> Answer {
    facts.iter().map(|(field, value)| (field.to_owned(), value.to_owned())).collect()
}

impl<T: Told> Told for Option<T> {
    fn told(&self) -> Answer {
        self.as_ref().map(Told::told).unwrap_or_default()
    }
}

impl<T: Told, P: Send + 'static> Told for Page<T, P> {
    fn told(&self) -> Answer {
        let items = self.items.iter().enumerate();
        let told = items.flat_map(|(n, item)| {
            let fields = item.told().into_iter();
            fields.map(move |(field, value)| (format!("{n} {field}"), value))
        });
        told.collect()
    }
}

impl Told for Order {
    fn told(&self) -> Answer {
        let mut answer = of_facts(&order_facts(self));
        answer.insert("order_id".to_owned(), self.id.to_string());
        answer
    }
}

impl Told for Vec<StatusChange> {
    fn told(&self) -> Answer {
        let line =
            |change: &StatusChange| format!("{} at {} by {:?}", change.status, change.at, change.operator);
        self.iter().enumerate().map(|(n, change)| (format!("move {n}"), line(change))).collect()
    }
}

impl Told for StoredCart {
    fn told(&self) -> Answer {
        of_facts(&cart_facts(self))
    }
}

impl Told for Session {
    fn told(&self) -> Answer {
        let mut answer = of_facts(&session_facts(self));
        answer.insert("session_id".to_owned(), self.id.to_string());
        answer
    }
}
