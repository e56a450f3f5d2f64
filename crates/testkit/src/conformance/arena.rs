//! Where cases live side by side in the same stores without meeting.
//!
//! Each case gets a universe: ids and words that no other has, and a window of time of its own. Windows run
//! backwards, the first lies latest. Lists that take everything up to some moment (due checkouts, abandoned carts,
//! orders of a day) therefore never show what an earlier case has left behind. All of them lie in the future, so
//! that a server which expires data by its own clock does not do so before the test does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use mobimir_core::{
    id::{self, AttemptId, ChangeId, OrderId, ProductId, SessionId, UserId},
    moving::{HistorySide, Movables},
    notes::NoteStore,
    ports::{OrderHistoryStore, Stores},
    secret::SecretHash,
    time::{Day, Timestamp, Version},
    user::Email,
    zone::Zone,
};
use uuid::Uuid;

use crate::{model::ModelStore, strategies::ZONES};

/// About the year 4000: where the latest window starts.
const LATEST_WINDOW_DAY: i32 = 741_000;
/// Windows must stay ahead of the real time: 2100-01-01.
const EARLIEST_WINDOW_DAY: i32 = 47_482;
const WINDOW_DAYS: i32 = 120;
/// At the end of a window nothing may happen, so that deadlines and days of one do not reach into the next.
const WINDOW_MARGIN_DAYS: i32 = 40;

pub(super) struct Arena<S = Stores> {
    stores: S,
    patience: Duration,
    seed: u64,
    windows: AtomicI32,
}

/// What one case works with.
pub(super) struct Bench<S = Stores> {
    pub(super) store: S,
    pub(super) model: S,
    pub(super) universe: Universe,
    /// For how long something may be observed that differs. Nothing but `eventually` looks at it.
    pub(super) patience: Duration,
}

/// Ports that the model has too.
pub(super) trait Modelled: Clone {
    /// New and empty.
    fn model() -> Self;
}

impl Modelled for Stores {
    fn model() -> Self {
        ModelStore::stores()
    }
}

impl Modelled for Movables {
    fn model() -> Self {
        ModelStore::movables()
    }
}

impl Modelled for HistorySide {
    fn model() -> Self {
        ModelStore::default().movable_history()
    }
}

impl Modelled for Arc<dyn NoteStore> {
    fn model() -> Self {
        Arc::new(ModelStore::default())
    }
}

impl Modelled for Arc<dyn OrderHistoryStore> {
    fn model() -> Self {
        ModelStore::order_history()
    }
}

#[derive(Clone)]
pub(super) struct Universe {
    seed: [u8; 16],
    /// Part of every name and category here, and of none elsewhere.
    pub(super) word: String,
    pub(super) start: Timestamp,
}

/// The time within a case. It only moves forward, and not beyond the window.
pub(super) struct CaseClock {
    pub(super) now: Timestamp,
    end: Timestamp,
}

impl<S: Modelled> Arena<S> {
    pub(super) fn new(stores: S, patience: Duration, seed: u64) -> Self {
        Self { stores, patience, seed, windows: AtomicI32::new(0) }
    }

    pub(super) fn bench(&self) -> Bench<S> {
        let window = self.windows.fetch_add(1, Ordering::Relaxed);
        let day = LATEST_WINDOW_DAY - window * WINDOW_DAYS;
        assert!(day > EARLIEST_WINDOW_DAY, "too many cases for one set of stores");
        let seed = id::derived("universe", &[&self.seed.to_le_bytes(), &window.to_le_bytes()]).into_bytes();
        let start = Day::from_number(day).start();
        let word = format!("u{}", &Uuid::from_bytes(seed).simple().to_string()[..16]);
        Bench {
            store: self.stores.clone(),
            model: S::model(),
            universe: Universe { seed, word, start },
            patience: self.patience,
        }
    }
}

impl Universe {
    pub(super) fn clock(&self) -> CaseClock {
        let days = WINDOW_DAYS - WINDOW_MARGIN_DAYS;
        CaseClock { now: self.start, end: self.start.plus_s(i64::from(days) * 86_400) }
    }

    pub(super) fn product(&self, n: usize) -> ProductId {
        ProductId(self.uuid("product", n))
    }

    pub(super) fn user(&self, n: usize) -> UserId {
        UserId(self.uuid("user", n))
    }

    pub(super) fn session(&self, n: usize) -> SessionId {
        SessionId(self.uuid("session", n))
    }

    pub(super) fn order(&self, n: usize) -> OrderId {
        OrderId(self.uuid("order", n))
    }

    pub(super) fn attempt(&self, n: usize) -> AttemptId {
        AttemptId(self.uuid("attempt", n))
    }

    pub(super) fn change(&self, n: usize) -> ChangeId {
        ChangeId(self.uuid("change", n))
    }

    pub(super) fn secret(&self, n: usize) -> SecretHash {
        SecretHash::of(self.uuid("secret", n).as_bytes())
    }

    pub(super) fn email(&self, n: usize) -> Email {
        Email::parse(&format!("почта+{n}@{}.example", self.word)).expect("this is an address")
    }

    /// Ids of one kind stand in no order that their numbers would tell.
    fn uuid(&self, kind: &str, n: usize) -> Uuid {
        id::derived(kind, &[&self.seed, &(n as u64).to_be_bytes()])
    }
}

impl CaseClock {
    pub(super) fn advance_ms(&mut self, ms: i64) {
        let later = self.now.plus_ms(ms);
        if later < self.end {
            self.now = later;
        }
    }
}

pub(super) fn zone(n: usize) -> Zone {
    Zone::parse(ZONES[n % ZONES.len()]).expect("these are zones")
}

pub(super) fn first_version(now: Timestamp) -> Version {
    Version::default().next(now)
}
