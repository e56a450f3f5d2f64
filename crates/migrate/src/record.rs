//! What stands in the notes about a migration: one record that all follow, and a lease for each instance.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mobimir_core::{
    notes::{Expected, Note, NoteStore},
    ports::{StoreError, StoreResult},
    time::{Month, Timestamp},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{
    backfill::Months,
    lease::Lease,
    phase::{Control, Phase, Writes},
    verify::{Kind, Purpose},
};

/// Lines of the timeline that are kept. A migration has far fewer, unless it goes up and down all the time.
const TIMELINE_LINES_MAX: usize = 1_000;
/// Comparisons that are remembered.
const OUTCOMES_MAX: usize = 200;
/// Comparisons of one epoch: more than anybody waits for.
const PER_EPOCH_MAX: u64 = 1_000_000;
/// Leases that are read: more instances than anybody runs.
const LEASES_MAX: usize = 10_000;

/// How far a migration is, and how it came there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub control: Control,
    /// As the policy calls the stores.
    pub source: String,
    pub target: String,
    /// Where the migration is to go by itself, a step at a time, as soon as nothing speaks against it.
    #[serde(default)]
    pub wanted: Option<Phase>,
    /// Raised to have everything compared anew.
    #[serde(default)]
    pub comparison: u64,
    /// How often everything was to be copied once more, and how often that was done.
    #[serde(default)]
    pub repair: u64,
    #[serde(default)]
    pub repaired: u64,
    /// Nothing is copied or compared until somebody says so.
    #[serde(default)]
    pub is_paused: bool,
    /// The comparison that opened the gate of the switch.
    #[serde(default)]
    pub verified_number: Option<u64>,
    /// The epoch that the backfill belongs to.
    #[serde(default)]
    pub backfill_epoch: Option<u64>,
    /// What of the past is to be copied now, if not everything; raised with it is its number.
    #[serde(default)]
    pub months: Option<Months>,
    #[serde(default)]
    pub selection: u64,
    /// Months that are in the target already.
    #[serde(default)]
    pub months_copied: BTreeSet<Month>,
    /// Raised to have everything compared again after the switch; and when that was last done.
    #[serde(default)]
    pub recheck: u64,
    #[serde(default)]
    pub rechecked_at: Option<Timestamp>,
    /// The target had nothing at the beginning, and has not decided since: all that is there are copies.
    #[serde(default)]
    pub into_nothing: bool,
    /// While everybody waits.
    #[serde(default)]
    pub handover: Option<HandoverRecord>,
    /// What comparisons and repairs came to.
    #[serde(default)]
    pub outcomes: Vec<Outcome>,
    pub timeline: Vec<Line>,
}

/// A handover under way, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverRecord {
    pub since: Timestamp,
    /// It took too long, and goes back to where it came from.
    pub is_given_up: bool,
}

/// What a comparison or a repair came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub at: Timestamp,
    pub purpose: Purpose,
    pub entities: u64,
    pub rows: u64,
    /// Ranges of the one store and tables of the other that were looked through, and those that were to be.
    pub ranges: u64,
    #[serde(default)]
    pub ranges_planned: u64,
    pub differences: BTreeMap<Kind, u64>,
    pub mended: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub at: Timestamp,
    pub what: String,
}

/// The notes of one entity's migration.
#[derive(Clone)]
pub struct Notes {
    store: Arc<dyn NoteStore>,
    entity: &'static str,
}

/// A value and the revision under which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    pub value: T,
    pub revision: u64,
}

impl Record {
    pub fn new(source: &str, target: &str, at: Timestamp) -> Self {
        let what = format!("planned from {source} to {target}");
        Self {
            control: Control::default(),
            source: source.to_owned(),
            target: target.to_owned(),
            wanted: None,
            comparison: 0,
            repair: 0,
            repaired: 0,
            is_paused: false,
            verified_number: None,
            backfill_epoch: None,
            months: None,
            selection: 0,
            months_copied: BTreeSet::new(),
            recheck: 0,
            rechecked_at: None,
            into_nothing: false,
            handover: None,
            outcomes: Vec::new(),
            timeline: vec![Line { at, what }],
        }
    }

    #[must_use]
    pub fn with(mut self, control: Control, at: Timestamp, what: String) -> Self {
        if control.phase <= Phase::DualWrite && control.phase < self.control.phase {
            // What is written from here on is not copied, so nothing that was copied counts any more.
            (self.months, self.months_copied) = (None, BTreeSet::new());
        }
        if (self.control.phase, control.phase) == (Phase::Verify, Phase::Handover) {
            self.verified_number = Some(self.comparison_number());
        }
        if control.phase == Phase::Backfill && !control.backfilled {
            self.backfill_epoch = Some(control.epoch);
        }
        if control.phase != self.control.phase {
            self.rechecked_at = None;
        }
        self.into_nothing &= control.phase < Phase::ReadTarget;
        self.handover = match control.phase.rights().writes {
            Writes::Wait => self.handover.or(Some(HandoverRecord { since: at, is_given_up: false })),
            Writes::To { .. } => None,
        };
        self.control = control;
        if self.wanted == Some(control.phase) {
            self.wanted = None;
        }
        self.note(at, what);
        self
    }

    /// Remembers what a comparison came to.
    pub fn came_to(&mut self, outcome: Outcome) {
        if self.outcomes.len() >= OUTCOMES_MAX {
            self.outcomes.remove(0);
        }
        self.outcomes.push(outcome);
    }

    /// Each comparison of each epoch has a number of its own.
    pub fn comparison_number(&self) -> u64 {
        self.control.epoch * PER_EPOCH_MAX + self.comparison
    }

    /// Of the comparison that people look at: the one under way, or the one that reads moved by.
    pub fn shown_comparison_number(&self) -> Option<u64> {
        match self.control.phase {
            phase if phase < Phase::Verify => None,
            Phase::Verify => Some(self.comparison_number()),
            _ => self.verified_number,
        }
    }

    pub fn repair_number(&self) -> u64 {
        self.control.epoch * PER_EPOCH_MAX + self.repair
    }

    pub fn recheck_number(&self) -> u64 {
        self.control.epoch * PER_EPOCH_MAX + self.recheck
    }

    /// Of the recheck that people look at: the one under way, or the last one if none is.
    pub fn shown_recheck_number(&self) -> u64 {
        self.recheck_number() - u64::from(self.rechecked_at.is_some() && self.recheck > 0)
    }

    pub fn selection_number(&self) -> u64 {
        self.control.epoch * PER_EPOCH_MAX + self.selection
    }

    /// The months that are still to be copied before anything else is.
    pub fn months_to_copy(&self) -> Option<Months> {
        self.months.filter(|months| months.all().any(|month| !self.months_copied.contains(&month)))
    }

    pub fn note(&mut self, at: Timestamp, what: String) {
        if self.timeline.len() >= TIMELINE_LINES_MAX {
            self.timeline.remove(1);
        }
        self.timeline.push(Line { at, what });
    }

    /// Whether the entity has arrived, and the policy says so, too.
    pub fn is_over(&self, home: &str) -> bool {
        self.control.phase == Phase::Target && self.target == home
    }

    /// Whether it is on its way to an earlier phase.
    pub fn goes_back(&self) -> bool {
        self.wanted.is_some_and(|wanted| wanted < self.control.phase)
    }

    /// Since when the migration is in its phase.
    pub fn phase_since(&self) -> Option<Timestamp> {
        let began = format!("{} after", self.control.phase);
        let line = self.timeline.iter().rev().find(|line| line.what.starts_with(&began));
        line.or(self.timeline.first()).map(|line| line.at)
    }
}

impl Notes {
    pub fn new(store: Arc<dyn NoteStore>, entity: &'static str) -> Self {
        Self { store, entity }
    }

    pub fn entity(&self) -> &'static str {
        self.entity
    }

    pub async fn record(&self) -> StoreResult<Option<Read<Record>>> {
        self.get("").await
    }

    /// Replaces the record if it is still the one that was read, or makes the first one; says whether it did.
    pub async fn replace_record(&self, read: Option<u64>, record: &Record) -> StoreResult<bool> {
        let expected = read.map_or(Expected::Nothing, Expected::Revision);
        Ok(self.put("", expected, record).await?.is_some())
    }

    pub async fn renew(&self, lease: &Lease) -> StoreResult<()> {
        self.put(&lease_name(lease.instance), Expected::Anything, lease).await.map(|_| ())
    }

    /// The instance has ended well and will not write any more.
    pub async fn end_lease(&self, instance: Uuid) -> StoreResult<()> {
        self.remove(&lease_name(instance)).await
    }

    pub async fn leases(&self) -> StoreResult<Vec<Lease>> {
        let notes = self.list("/lease/", None, LEASES_MAX).await?;
        Ok(notes.into_iter().map(|(_, lease)| lease).collect())
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, name: &str) -> StoreResult<Option<Read<T>>> {
        let note = self.store.get(&self.name(name)).await?;
        note.map(|note| Ok(Read { value: decode(&note)?, revision: note.revision })).transpose()
    }

    pub(crate) async fn put<T: Serialize>(
        &self,
        name: &str,
        expected: Expected,
        value: &T,
    ) -> StoreResult<Option<u64>> {
        let body = serde_json::to_vec(value).map_err(|error| damaged(name, error))?;
        self.store.write(&self.name(name), expected, body).await
    }

    /// What stands under names that begin so, with the rest of the name.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreResult<Vec<(String, T)>> {
        let prefix = self.name(prefix);
        let after = after.map(|after| format!("{prefix}{after}"));
        let notes = self.store.list(&prefix, after.as_deref(), limit).await?;
        notes.iter().map(|note| Ok((note.name[prefix.len()..].to_owned(), decode(note)?))).collect()
    }

    pub(crate) async fn remove(&self, name: &str) -> StoreResult<()> {
        self.store.remove(&self.name(name), Expected::Anything).await.map(|_| ())
    }

    /// Removes it if it is still the one that was read.
    pub(crate) async fn remove_revision(&self, name: &str, revision: u64) -> StoreResult<()> {
        self.store.remove(&self.name(name), Expected::Revision(revision)).await.map(|_| ())
    }

    fn name(&self, rest: &str) -> String {
        format!("migration/{}{rest}", self.entity)
    }
}

fn lease_name(instance: Uuid) -> String {
    format!("/lease/{instance}")
}

fn decode<T: DeserializeOwned>(note: &Note) -> StoreResult<T> {
    serde_json::from_slice(&note.body).map_err(|error| damaged(&note.name, error))
}

fn damaged(name: &str, error: serde_json::Error) -> StoreError {
    StoreError::Corrupt { what: format!("the note {name}: {error}"), source: Some(Box::new(error)) }
}
