//! Small records that instances share: a document each, under its name.

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    notes::{Expected, Note, NoteStore},
    policy::Entity,
    ports::{StoreError, StoreResult},
    reading,
};
use mongodb::{
    Collection,
    bson::{Binary, Document, doc, spec::BinarySubtype},
    options::{FindOptions, ReturnDocument},
};
use serde::{Deserialize, Serialize};

use crate::{deployment::Deployment, link::Link};

pub struct MongoNotes {
    link: Link,
    notes: Collection<NoteDoc>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct NoteDoc {
    #[serde(rename = "_id")]
    name: String,
    revision: i64,
    body: Binary,
}

/// Names lie below this, whatever they begin with.
const LAST_CHARACTER: char = char::MAX;
/// How often a note is written that was there when it was to be made, and gone when it was to be replaced.
const WRITES_MAX: u32 = 4;

impl MongoNotes {
    /// Always acknowledged by a majority, whatever the policy says of other data.
    pub fn new(deployment: Arc<Deployment>) -> Self {
        let notes = deployment.database().collection("notes");
        Self { notes, link: Link::new(deployment, Entity::Products) }
    }
}

#[async_trait]
impl NoteStore for MongoNotes {
    async fn get(&self, name: &str) -> StoreResult<Option<Note>> {
        let find = self.link.find_one("note", &self.notes, doc! { "_id": name });
        Ok(reading::newest(find).await?.map(NoteDoc::note))
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Vec<Note>> {
        let mut names = doc! { "$gte": prefix, "$lt": format!("{prefix}{LAST_CHARACTER}") };
        if let Some(after) = after {
            names.insert("$gt", after);
        }
        let options = FindOptions::builder()
            .sort(doc! { "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .build();
        let find = self.link.find("notes", &self.notes, doc! { "_id": names }, options);
        let found = reading::newest(find).await?;
        Ok(found.into_iter().map(NoteDoc::note).filter(|note| note.name.starts_with(prefix)).collect())
    }

    async fn write(&self, name: &str, expected: Expected, body: Vec<u8>) -> StoreResult<Option<u64>> {
        let body = Binary { subtype: BinarySubtype::Generic, bytes: body };
        for _ in 0..WRITES_MAX {
            if matches!(expected, Expected::Anything | Expected::Revision(_)) {
                let update = vec![doc! { "$set": {
                    "revision": { "$add": ["$revision", 1] },
                    "body": { "$literal": body.clone() },
                } }];
                let replaced = self.link.find_one_and_update(
                    "replace_note",
                    &self.notes,
                    filter(name, expected),
                    update,
                    ReturnDocument::After,
                );
                match (replaced.await?, expected) {
                    (Some(note), _) => return Ok(Some(note.revision.cast_unsigned())),
                    (None, Expected::Revision(_)) => return Ok(None),
                    (None, _) => {}
                }
            }
            // A name that is used again must not meet a revision of before, so the first one follows from the clock.
            let revision = first_revision();
            let note = NoteDoc { name: name.to_owned(), revision, body: body.clone() };
            match self.link.insert_one("make_note", &self.notes, &note).await? {
                true => return Ok(Some(revision.cast_unsigned())),
                false if expected == Expected::Nothing => return Ok(None),
                false => {}
            }
        }
        let what =
            format!("MongoDB, replace_note: the note was made and removed by others {WRITES_MAX} times");
        Err(StoreError::Unavailable { what, source: None })
    }

    async fn remove(&self, name: &str, expected: Expected) -> StoreResult<bool> {
        if expected == Expected::Nothing {
            return Ok(self.get(name).await?.is_none());
        }
        let removed = self.link.delete_one("remove_note", &self.notes, filter(name, expected)).await?;
        Ok(removed || expected == Expected::Anything)
    }
}

fn filter(name: &str, expected: Expected) -> Document {
    match expected {
        Expected::Revision(revision) => doc! { "_id": name, "revision": revision.cast_signed() },
        _ => doc! { "_id": name },
    }
}

/// Microseconds, which pass faster than anybody writes notes.
fn first_revision() -> i64 {
    use mobimir_core::time::{Clock, SystemClock};
    SystemClock.now().as_millis() * 1_000
}

impl NoteDoc {
    fn note(self) -> Note {
        Note { name: self.name, revision: self.revision.cast_unsigned(), body: self.body.bytes }
    }
}
