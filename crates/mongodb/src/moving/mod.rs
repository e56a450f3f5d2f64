//! Entities as a migration sees them: whole, one after the other by `_id`, and marked where they were written and not
//! copied since.
//!
//! An entity is a document, and its mark is a field of it ([`marks`]), set by the same update that changes the rest: no
//! write is without its mark, whenever the process dies. What the mark is about is told by the document's version, which
//! every write raises.
//!
//! Everything is read from the primary: a copy of what a secondary has may be of before the mark that is then removed.

mod marks;
mod place;
mod sampling;

use std::{marker::PhantomData, sync::Arc};

use async_trait::async_trait;
use futures_util::stream::{self, TryStreamExt};
use mobimir_core::{
    moving::{
        Backlog, Facts, Found, InTable, Mark, Movable, Place, Range, Row, Rows, Scanned, Unreadable, Whole,
    },
    policy::Entity,
    ports::{StoreError, StoreResult},
    reading,
    time::Timestamp,
};
use mongodb::{
    Collection,
    bson::{Bson, Document, RawDocument, RawDocumentBuf, deserialize_from_slice, doc},
    options::{FindOptions, UpdateModifications},
};
use serde::de::DeserializeOwned;

use self::place::{Spot, between};
use crate::{
    deployment::Deployment,
    link::{Link, damaged},
};

pub(crate) use self::marks::{Tracking, UNMIRRORED};

/// A kind of entity that moves: how it is told from documents, and they from it.
pub(crate) trait InDocuments: Whole {
    const ENTITY: Entity;
    /// What they are in. A scan goes through one after the other.
    const COLLECTIONS: &'static [&'static str];

    /// In which of the collections an entity is, and under which `_id`.
    fn spot(key: Self::Key) -> (usize, Bson);

    /// Fields besides `_id` that a key is made of.
    const KEY_FIELDS: &'static [&'static str] = &[];

    /// The other way round; nothing, if no entity has such an `_id`, or the document lacks what else the key is made of.
    fn key_at(collection: usize, id: Bson, stored: &RawDocument) -> Option<Self::Key>;

    fn of_document(collection: usize, stored: &RawDocument) -> StoreResult<Self>;

    /// Its document, whatever that says; found in one shard.
    fn document(&self) -> Document;

    /// How its document comes to say what this says.
    fn put(self, now: Timestamp) -> StoreResult<Put>;
}

/// A change of a document that says less than what is put, and how one is made that is not there.
pub(crate) struct Put {
    /// The document, if it is to be changed.
    pub(crate) older: Document,
    pub(crate) update: UpdateModifications,
}

/// Entities of one kind in their collections.
pub(crate) struct Moving<W> {
    link: Link,
    collections: Vec<Collection<RawDocumentBuf>>,
    moves: PhantomData<fn() -> W>,
}

/// Entities that one call writes at the same time.
const PUT_AT_ONCE: usize = 16;

/// A document, and which collection it is from.
type Stored = (usize, RawDocumentBuf);

impl<W: InDocuments> Moving<W> {
    pub(crate) fn new(deployment: Arc<Deployment>) -> Self {
        let link = Link::new(deployment, W::ENTITY);
        // Acknowledged by a majority, whatever the policy says of writes of its own: the mark goes when a copy is there.
        let collections = W::COLLECTIONS.iter().map(|name| link.majority_collection(name)).collect();
        Self { link, collections, moves: PhantomData }
    }

    async fn stored(&self, collection: usize, filter: Document) -> StoreResult<Option<RawDocumentBuf>> {
        let find = self.link.find_one("moving_one", &self.collections[collection], filter);
        reading::newest(find).await
    }

    /// Documents of a range, as far as they are in some of the collections; and where to go on.
    async fn documents(
        &self,
        collections: std::ops::Range<usize>,
        range: &Range,
        limit: usize,
    ) -> StoreResult<(Vec<Stored>, Option<Place>)> {
        // A step that gives nothing would not get anywhere.
        let limit = limit.max(1);
        let (after, to) = (Spot::read(range.after.as_ref())?, Spot::read(range.to.as_ref())?);
        let mut found: Vec<Stored> = Vec::new();
        for collection in collections {
            let Some(filter) = between(collection, after.as_ref(), to.as_ref()) else { continue };
            // One more tells whether there are more.
            let wanted = limit.saturating_add(1) - found.len();
            if wanted == 0 {
                break;
            }
            let options = FindOptions::builder().sort(doc! { "_id": 1 }).limit(at_most(wanted)).build();
            let find = self.link.find("moving_scan", &self.collections[collection], filter, options);
            found.extend(reading::newest(find).await?.into_iter().map(|stored| (collection, stored)));
        }
        let has_more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| has_more);
        let next = last.map(|(collection, stored)| Spot::of(*collection, stored)?.place()).transpose()?;
        Ok((found, next))
    }

    async fn put_one(&self, whole: W, now: Timestamp) -> StoreResult<()> {
        let (collection, _) = W::spot(whole.key());
        let Put { older, update } = whole.put(now)?;
        self.link.overtake("moving_put", &self.collections[collection], older, update).await
    }

    /// A row, or how to find what is none.
    fn row((collection, stored): &Stored) -> StoreResult<Result<Row<W::Key>, String>> {
        let spot = Spot::of(*collection, stored)?;
        let Some(key) = W::key_at(*collection, spot.id.clone(), stored) else {
            return Ok(Err(format!("_id {}", spot.id)));
        };
        // One that makes no sense says nothing, and is there.
        let facts =
            W::of_document(*collection, stored).map_or_else(|_| Facts::unreadable(), |whole| whole.facts());
        Ok(Ok(Row { key, facts, place: spot.with_version(stored)?.place()? }))
    }
}

#[async_trait]
impl<W: InDocuments> Movable<W> for Moving<W> {
    fn tables(&self) -> &'static [&'static str] {
        W::COLLECTIONS
    }

    async fn whole(&self, key: W::Key) -> StoreResult<Found<W>> {
        let (collection, id) = W::spot(key);
        let Some(stored) = self.stored(collection, doc! { "_id": id }).await? else {
            return Ok(Found::nothing());
        };
        let marks = marks::of(key, &stored)?.into_iter().collect();
        Ok(Found { whole: Some(W::of_document(collection, &stored)?), marks, is_being_written: false })
    }

    async fn count(&self) -> StoreResult<u64> {
        let mut all = 0;
        for documents in &self.collections {
            all += self.link.estimated_count("moving_size", documents).await?;
        }
        Ok(all)
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        reading::newest(sampling::ranges(&self.link, &self.collections, parts)).await
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<W>> {
        let (found, next) = self.documents(0..self.collections.len(), range, limit).await?;
        Ok(Scanned { items: found.iter().map(readable).collect(), next })
    }

    async fn put(&self, wholes: Vec<W>, now: Timestamp) -> StoreResult<()> {
        let is_over = |whole: &W| whole.expires_at().is_some_and(|expires_at| expires_at <= now);
        let writes = wholes.into_iter().filter(|whole| !is_over(whole));
        let writes = writes.map(|whole| Ok(self.put_one(whole, now)));
        stream::iter(writes).try_buffer_unordered(PUT_AT_ONCE).try_collect().await
    }

    async fn in_tables(&self, whole: &W) -> StoreResult<Vec<InTable>> {
        let (collection, _) = W::spot(whole.key());
        let stored = self.stored(collection, whole.document()).await?;
        let stored = stored.map(|stored| W::of_document(collection, &stored)).transpose()?;
        let facts = stored.map(|stored| stored.facts());
        Ok(vec![InTable { table: W::COLLECTIONS[collection], facts }])
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<W::Key>> {
        let collection = collection_of::<W>(table)?;
        let range = Range { after: after.cloned(), to: None };
        let (found, next) = self.documents(collection..collection + 1, &range, limit).await?;
        let (mut items, mut nameless) = (Vec::new(), Vec::new());
        for stored in &found {
            match Self::row(stored)? {
                Ok(row) => items.push(row),
                Err(place) => nameless.push(place),
            }
        }
        Ok(Rows { items, nameless, next })
    }

    /// Only as it was seen: somebody may have put a newer one there since.
    async fn remove(&self, table: &'static str, row: &Row<W::Key>) -> StoreResult<()> {
        let collection = &self.collections[collection_of::<W>(table)?];
        let seen = Spot::read(Some(&row.place))?.map(Spot::filter).unwrap_or_default();
        let (_, id) = W::spot(row.key);
        let as_seen = seen.into_iter().chain([("_id".to_owned(), id)]).collect();
        self.link.delete_one("moving_remove", collection, as_seen).await?;
        Ok(())
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<W::Key>>> {
        let mut all = Vec::new();
        for (collection, documents) in self.collections.iter().enumerate() {
            let options = marks::oldest(at_most(limit), W::KEY_FIELDS);
            let find = self.link.find("unmirrored", documents, marks::marked(), options);
            for stored in reading::newest(find).await? {
                match W::key_at(collection, Spot::of(collection, &stored)?.id, &stored) {
                    Some(key) => all.extend(marks::of(key, &stored)?),
                    // It is counted, so somebody will ask. All others go on.
                    None => {
                        let table = W::COLLECTIONS[collection];
                        tracing::warn!(table, "something is marked that is of no entity");
                    }
                }
            }
        }
        all.sort_by_key(|mark| mark.since);
        all.truncate(limit);
        Ok(all)
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let mut all = Backlog::default();
        for documents in &self.collections {
            let sum = self.link.aggregate("moving_backlog", documents, marks::sum());
            for marks::Sum { entities, oldest } in reading::newest(sum).await? {
                let oldest = crate::leaves::time(oldest);
                all.entities += entities;
                all.oldest = Some(all.oldest.map_or(oldest, |other| other.min(oldest)));
            }
        }
        Ok(all)
    }

    async fn mirrored(&self, marks: &[Mark<W::Key>], read_at: Timestamp) -> StoreResult<()> {
        for (collection, documents) in self.collections.iter().enumerate() {
            let here = marks.iter().map(|mark| (W::spot(mark.key), mark.seal));
            let here = here.filter(|((other, _), _)| *other == collection);
            let copied: Vec<(Bson, u64)> = here.map(|((_, id), seal)| (id, seal)).collect();
            for copied in copied.chunks(marks::REMOVED_AT_ONCE) {
                let (any, update) = (marks::any_of(copied), marks::copied(copied, read_at));
                self.link.update_many("mirrored", documents, any, update).await?;
            }
        }
        Ok(())
    }
}

/// The `_id` is looked at first: what stands under another than an entity has is none, and would not be found by its key.
fn readable<W: InDocuments>((collection, stored): &Stored) -> Result<W, Unreadable> {
    let table = W::COLLECTIONS[*collection];
    let id = match Spot::of(*collection, stored) {
        Ok(spot) => spot.id,
        Err(error) => return Err(Unreadable { key: format!("something in {table}"), error }),
    };
    let Some(key) = W::key_at(*collection, id.clone(), stored) else {
        let error = damaged(format!("MongoDB, {table}: expected the id of an entity"));
        return Err(Unreadable { key: format!("{id} in {table}"), error });
    };
    W::of_document(*collection, stored).map_err(|error| Unreadable { key: key.to_string(), error })
}

/// Reads one document, so that another's damage does not matter.
pub(crate) fn document<D: DeserializeOwned>(table: &str, stored: &RawDocument) -> StoreResult<D> {
    deserialize_from_slice(stored.as_bytes()).map_err(|error| StoreError::Corrupt {
        what: format!("MongoDB, {table}: {error}"),
        source: Some(Box::new(error)),
    })
}

fn collection_of<W: InDocuments>(table: &str) -> StoreResult<usize> {
    let known = W::COLLECTIONS.iter().position(|name| *name == table);
    known.ok_or_else(|| damaged(format!("expected one of {:?}, got {table:?}", W::COLLECTIONS)))
}

/// As a limit of a query, where none would mean all.
fn at_most(limit: usize) -> i64 {
    i64::try_from(limit.max(1)).unwrap_or(i64::MAX)
}
