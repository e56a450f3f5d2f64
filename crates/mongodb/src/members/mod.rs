//! The members of the replica set: who they are, how far each is, and which may answer a read.
//!
//! [`monitor`] writes heartbeats and looks for them on every secondary; [`beats`] and [`member`] say what follows from
//! that, and are pure. Where anything is unknown, the answer is: the primary.

mod beats;
mod member;
mod monitor;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use mobimir_core::reading::Position;
use mongodb::{
    ServerType,
    bson::DateTime,
    event::sdam::{SdamEvent, TopologyDescription},
    options::{SelectionCriteria, ServerAddress},
};
use tokio::sync::Notify;

use self::{beats::Beats, member::Member};

pub use self::member::MemberRole;
pub(crate) use self::{beats::Beat, monitor::Monitor};

/// What is known of one member, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    pub address: String,
    pub role: MemberRole,
    /// How old an answer of this secondary can be at most; `None` when it is not known, and then nobody asks it.
    pub lag: Option<Duration>,
}

#[derive(Default)]
pub(crate) struct Members {
    known: RwLock<Known>,
    /// Where the next search for a member begins, so that all get their share.
    turn: AtomicUsize,
    changed: Notify,
    /// By how much the primary's clock is ahead of this process', as the last beat said.
    clock_ahead_ms: AtomicI64,
}

#[derive(Default)]
struct Known {
    members: BTreeMap<String, Entry>,
    beats: Beats,
}

struct Entry {
    member: Member,
    criteria: SelectionCriteria,
    /// For those who wait there: it is no longer known, and need not be waited for.
    lost: Arc<Notify>,
}

/// A secondary that fits a read, and the beat it is trusted by.
pub(crate) struct Chosen {
    pub(crate) address: String,
    pub(crate) criteria: SelectionCriteria,
    pub(crate) beat: Beat,
    /// Whoever waits for an answer of this member need not go on.
    pub(crate) lost: Arc<Notify>,
}

impl Members {
    /// A secondary that can answer within the budget with nothing from before `after`; each that can in its turn.
    pub(crate) fn choose(&self, budget: Duration, after: Position, now: Instant) -> Option<Chosen> {
        let known = self.known();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let fit = |(address, entry): (&String, &Entry)| {
            let beat = entry.member.fits(budget, after, now)?;
            Some(Chosen {
                address: address.clone(),
                criteria: entry.criteria.clone(),
                beat,
                lost: entry.lost.clone(),
            })
        };
        let count = known.members.len();
        let mut in_turn = known.members.iter().cycle().skip(turn % count.max(1)).take(count);
        in_turn.find_map(fit)
    }

    /// Somebody read there in vain: it is left alone for a while.
    pub(crate) fn failed(&self, address: &str, now: Instant) {
        if let Some(entry) = self.known_mut().members.get_mut(address) {
            entry.member.failed(now);
            entry.lost.notify_waiters();
        }
    }

    /// The newest beat that a majority has.
    pub(crate) fn newest_beat(&self) -> Option<Beat> {
        self.known().beats.newest()
    }

    /// The server has written `theirs` between `sent` and now, so this is wrong by half of the way at most.
    pub(crate) fn note_clock(&self, theirs: DateTime, sent: DateTime) {
        let here = sent.timestamp_millis().midpoint(DateTime::now().timestamp_millis());
        self.clock_ahead_ms.store(theirs.timestamp_millis() - here, Ordering::Relaxed);
    }

    pub(crate) fn clock_ahead_ms(&self) -> i64 {
        self.clock_ahead_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn states(&self, now: Instant) -> Vec<MemberState> {
        let state = |(address, entry): (&String, &Entry)| MemberState {
            address: address.clone(),
            role: entry.member.role(),
            lag: entry.member.lag(now),
        };
        self.known().members.iter().map(state).collect()
    }

    /// Follows what the driver learns of the replica set.
    pub(crate) fn note(self: &Arc<Self>, event: SdamEvent) {
        if let SdamEvent::TopologyDescriptionChanged(event) = event {
            self.set_members(&event.new_description);
            self.changed.notify_one();
        }
    }

    fn set_members(&self, topology: &TopologyDescription) {
        let mut known = self.known_mut();
        let servers = topology.servers();
        known.members.retain(|address, _| servers.keys().any(|server| server.to_string() == *address));
        for (address, server) in servers {
            let role = match server.server_type() {
                ServerType::RsPrimary => MemberRole::Primary,
                ServerType::RsSecondary => MemberRole::Secondary,
                _ => MemberRole::Other,
            };
            let entry = known.members.entry(address.to_string());
            let entry = entry.or_insert_with(|| Entry::new(address.clone()));
            if entry.member.role() != role {
                entry.member.set_role(role);
                entry.lost.notify_waiters();
            }
        }
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(address: ServerAddress) -> Self {
        let is_it = move |server: &mongodb::ServerInfo<'_>| *server.address() == address;
        Self {
            member: Member::new(MemberRole::Other),
            criteria: SelectionCriteria::Predicate(Arc::new(is_it)),
            lost: Arc::default(),
        }
    }
}
