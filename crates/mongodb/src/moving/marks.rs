//! The mark of a document that was written and not copied since: a field that says since when.
//!
//! An index holds the marked ones alone, so to ask for them costs nothing where there are none.

use mobimir_core::{
    moving::Mark,
    ports::StoreResult,
    time::{Clock, SystemClock, Timestamp, Version},
};
use mongodb::{
    bson::{Bson, DateTime, Document, RawDocument, doc},
    options::FindOptions,
};
use serde::Deserialize;

use crate::{
    leaves::{date, number, time, version},
    link::damaged,
};

/// Whether a view of a store marks what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    Off,
    On,
}

/// Marks that one request removes.
pub(super) const REMOVED_AT_ONCE: usize = 256;

/// Since when a document is marked.
pub(crate) const UNMIRRORED: &str = "unmirrored";

impl Tracking {
    /// What a new document says. By the real clock: how long something waits is no matter of when it happened.
    pub(crate) fn since(self) -> Option<DateTime> {
        (self == Self::On).then(|| date(SystemClock.now()))
    }

    /// Adds the mark to the fields that an update computes. One that is there stays.
    pub(crate) fn mark(self, fields: &mut Document) {
        if let Some(since) = self.since() {
            fields.insert(UNMIRRORED, doc! { "$ifNull": [format!("${UNMIRRORED}"), since] });
        }
    }
}

/// What was marked when this was read.
pub(super) fn of<K>(key: K, stored: &RawDocument) -> StoreResult<Option<Mark<K>>> {
    let wrong = |what: &str| damaged(format!("expected {what} in a marked document"));
    let Some(mark) = stored.get(UNMIRRORED).map_err(|_| wrong("fields"))? else { return Ok(None) };
    let since = mark.as_datetime().ok_or_else(|| wrong("a date"))?;
    let stored = stored.get_i64("version").map_err(|_| wrong("a version"))?;
    Ok(Some(Mark { key, since: time(since), seal: version(stored).0 }))
}

/// All that are marked. By its range, which the index answers alone; that the field exists is told by documents only.
pub(super) fn marked() -> Document {
    doc! { UNMIRRORED: { "$gte": DateTime::MIN } }
}

/// As much of them as [`of`] and their keys need, the longest marked first.
pub(super) fn oldest(limit: i64, key_fields: &[&str]) -> FindOptions {
    let mut fields = doc! { UNMIRRORED: 1, "version": 1 };
    fields.extend(key_fields.iter().map(|field| ((*field).to_owned(), Bson::Int32(1))));
    FindOptions::builder().sort(doc! { UNMIRRORED: 1 }).limit(limit).projection(fields).build()
}

/// What [`sum`] gives, if anything is marked.
#[derive(Debug, Deserialize)]
pub(super) struct Sum {
    pub(super) entities: u64,
    pub(super) oldest: DateTime,
}

pub(super) fn sum() -> Vec<Document> {
    let oldest = doc! { "$min": format!("${UNMIRRORED}") };
    let all = doc! { "_id": null, "entities": { "$sum": 1_i64 }, "oldest": oldest };
    vec![doc! { "$match": marked() }, doc! { "$group": all }]
}

/// The documents that were copied, as far as they are still marked.
pub(super) fn any_of(copied: &[(Bson, u64)]) -> Document {
    let ids: Vec<Bson> = copied.iter().map(|(id, _)| id.clone()).collect();
    doc! { "_id": { "$in": ids }, UNMIRRORED: { "$exists": true } }
}

/// The mark goes where nobody has written since it was seen. Elsewhere what was written until `read_at` is
/// copied, and only the rest still waits.
pub(super) fn copied(copied: &[(Bson, u64)], read_at: Timestamp) -> Vec<Document> {
    let seen: Vec<Document> = copied
        .iter()
        .map(|(id, seal)| doc! { "id": id.clone(), "version": number(Version(*seal)) })
        .collect();
    let is_as_seen = doc! { "$in": [{ "id": "$_id", "version": "$version" }, { "$literal": seen }] };
    let later = doc! { "$max": [format!("${UNMIRRORED}"), date(read_at)] };
    vec![doc! { "$set": { UNMIRRORED: { "$cond": [is_as_seen, "$$REMOVE", later] } } }]
}
