//! One entity's way to the servers: every request goes out through here, within its time, and comes back as what it means.
//!
//! - *Reads* go where [`mobimir_core::reading`] and the policy allow: to the primary, unless a secondary is known to be
//!   fresh enough.
//! - *Writes* are acknowledged by a majority, on disk. The driver sends one whose answer was lost once more under the same
//!   number, so it counts once; if that does not help the caller is told [`StoreError::Unknown`].
//!
//! Every document changes by one conditional update of its own. There are no transactions over several.

mod failure;
mod meter;
mod reads;
mod route;

use std::{
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

use mobimir_core::{
    policy::Entity,
    ports::{StoreError, StoreResult},
    reading,
};
use mongodb::{
    ClientSession, Collection,
    bson::Document,
    error::ErrorKind,
    options::{
        Acknowledgment, CollectionOptions, FindOptions, ReturnDocument, UpdateModifications, WriteConcern,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use crate::deployment::Deployment;

use self::{
    failure::{Failure, is_duplicate},
    meter::Meter,
    reads::{Aggregate, EstimatedCount, Find, FindOne, Read},
};

pub(crate) use self::meter::Meters;

pub(crate) struct Link {
    deployment: Arc<Deployment>,
    entity: Entity,
    timeout: Duration,
    meter: Meter,
}

/// What an update found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Updated {
    /// Whether a document met the condition.
    pub(crate) matched: bool,
    /// Whether one was made, because none did.
    pub(crate) inserted: bool,
}

/// What a document must be to be stored.
pub(crate) trait Stored: Serialize + DeserializeOwned + Unpin + Send + Sync {}

impl<T: Serialize + DeserializeOwned + Unpin + Send + Sync> Stored for T {}

impl Link {
    pub(crate) fn new(deployment: Arc<Deployment>, entity: Entity) -> Self {
        let timeout = deployment.config().timeout;
        let meter = deployment.meters().of(entity);
        Self { deployment, entity, timeout, meter }
    }

    pub(crate) fn collection<T: Stored>(&self, name: &str) -> Collection<T> {
        if self.deployment.config().primary_writes.contains(&self.entity) {
            let primary = WriteConcern::builder().w(Acknowledgment::Nodes(1)).journal(true).build();
            let options = CollectionOptions::builder().write_concern(primary).build();
            return self.deployment.database().collection_with_options(name, options);
        }
        self.majority_collection(name)
    }

    /// One whose writes a failover cannot take back.
    pub(crate) fn majority_collection<T: Stored>(&self, name: &str) -> Collection<T> {
        self.deployment.database().collection(name)
    }

    pub(crate) fn clock_ahead_ms(&self) -> i64 {
        self.deployment.members_known().clock_ahead_ms()
    }

    /// The document that meets `filter`.
    pub(crate) async fn find_one<T: Stored>(
        &self,
        name: &'static str,
        from: &Collection<T>,
        filter: Document,
    ) -> StoreResult<Option<T>> {
        self.read(name, FindOne { from, filter }).await
    }

    /// All documents that meet `filter`, as `options` order and limit them.
    pub(crate) async fn find<T: Stored>(
        &self,
        name: &'static str,
        from: &Collection<T>,
        filter: Document,
        options: FindOptions,
    ) -> StoreResult<Vec<T>> {
        self.read(name, Find { from, filter, options }).await
    }

    /// What an aggregation gives.
    pub(crate) async fn aggregate<T: Stored, R: DeserializeOwned + Unpin + Send + Sync>(
        &self,
        name: &'static str,
        from: &Collection<T>,
        pipeline: Vec<Document>,
    ) -> StoreResult<Vec<R>> {
        self.read(name, Aggregate { from, pipeline, gives: PhantomData }).await
    }

    /// About how many documents there are, as the server counts along.
    pub(crate) async fn estimated_count<T: Stored>(
        &self,
        name: &'static str,
        of: &Collection<T>,
    ) -> StoreResult<u64> {
        self.read(name, EstimatedCount { of }).await
    }

    /// Inserts a document, unless a unique index has one like it; says whether it did.
    pub(crate) async fn insert_one<T: Stored>(
        &self,
        name: &'static str,
        into: &Collection<T>,
        document: &T,
    ) -> StoreResult<bool> {
        let inserted =
            self.write(name, async |session| match into.insert_one(document).session(session).await {
                Ok(_) => Ok(true),
                Err(error) if is_duplicate(&error) => Ok(false),
                Err(error) => Err(error),
            });
        inserted.await
    }

    /// Inserts the documents that no unique index has one like; returns how many it did.
    pub(crate) async fn insert_many<T: Stored>(
        &self,
        name: &'static str,
        into: &Collection<T>,
        documents: &[T],
    ) -> StoreResult<usize> {
        if documents.is_empty() {
            return Ok(0);
        }
        let inserted = self.write(name, async |session| {
            match into.insert_many(documents).ordered(false).session(session).await {
                Ok(result) => Ok(result.inserted_ids.len()),
                Err(error) => match only_duplicates(&error) {
                    Some(duplicates) => Ok(documents.len() - duplicates),
                    None => Err(error),
                },
            }
        });
        inserted.await
    }

    /// Changes the document that meets `filter`; with `upsert` makes one where none does. A race of two who make the same
    /// one ends as an update that found nothing.
    pub(crate) async fn update_one<T: Stored>(
        &self,
        name: &'static str,
        of: &Collection<T>,
        filter: Document,
        update: impl Into<UpdateModifications>,
        upsert: bool,
    ) -> StoreResult<Updated> {
        let update = update.into();
        let updated = self.write(name, async |session| {
            match of.update_one(filter, update).upsert(upsert).session(session).await {
                Ok(result) => {
                    let inserted = result.upserted_id.is_some();
                    Ok(Updated { matched: result.matched_count > 0, inserted })
                }
                Err(error) if upsert && is_duplicate(&error) => {
                    Ok(Updated { matched: false, inserted: false })
                }
                Err(error) => Err(error),
            }
        });
        updated.await
    }

    /// Changes the document that meets `older`, or makes one where there is none by that `_id`.
    pub(crate) async fn overtake<T: Stored>(
        &self,
        name: &'static str,
        of: &Collection<T>,
        older: Document,
        update: impl Into<UpdateModifications>,
    ) -> StoreResult<()> {
        let update = update.into();
        let written = self.update_one(name, of, older.clone(), update.clone(), true).await?;
        if !written.matched && !written.inserted {
            // One is there that is no older, or somebody was first to write it: then it may have been an older one.
            self.update_one(name, of, older, update, false).await?;
        }
        Ok(())
    }

    /// Changes all documents that meet `filter`. The driver does not send this again by itself.
    pub(crate) async fn update_many<T: Stored>(
        &self,
        name: &'static str,
        of: &Collection<T>,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> StoreResult<()> {
        let update = update.into();
        let updated = self
            .write(name, async |session| of.update_many(filter, update).session(session).await.map(|_| ()));
        updated.await
    }

    /// Changes the document that meets `filter`, and returns it as it was before or is then.
    pub(crate) async fn find_one_and_update<T: Stored>(
        &self,
        name: &'static str,
        of: &Collection<T>,
        filter: Document,
        update: impl Into<UpdateModifications>,
        returned: ReturnDocument,
    ) -> StoreResult<Option<T>> {
        let update = update.into();
        let changed = self.write(name, async |session| {
            of.find_one_and_update(filter, update).return_document(returned).session(session).await
        });
        changed.await
    }

    /// Replaces the document that meets `filter`; says whether there was one.
    pub(crate) async fn replace_one<T: Stored>(
        &self,
        name: &'static str,
        of: &Collection<T>,
        filter: Document,
        by: &T,
    ) -> StoreResult<bool> {
        let replaced = self.write(name, async |session| {
            of.replace_one(filter, by).session(session).await.map(|result| result.matched_count > 0)
        });
        replaced.await
    }

    /// Removes the document that meets `filter`; says whether there was one.
    pub(crate) async fn delete_one<T: Stored>(
        &self,
        name: &'static str,
        of: &Collection<T>,
        filter: Document,
    ) -> StoreResult<bool> {
        let deleted = self.write(name, async |session| {
            of.delete_one(filter).session(session).await.map(|result| result.deleted_count > 0)
        });
        deleted.await
    }

    async fn read<R: Read>(&self, name: &'static str, read: R) -> StoreResult<R::Answer> {
        let (reading, started) = (reading::current(), Instant::now());
        let answer = self.routed(reading, started, &read).await;
        self.meter.ended(name, started.elapsed(), answer.as_ref().err());
        let (answer, from) = answer.map_err(|failure| failure.of_read(name))?;
        self.meter.read(reading.operation, from);
        Ok(answer)
    }

    async fn write<T>(
        &self,
        name: &'static str,
        write: impl AsyncFnOnce(&mut ClientSession) -> mongodb::error::Result<T>,
    ) -> StoreResult<T> {
        let started = Instant::now();
        let within = async {
            let mut session = self.deployment.client().start_session().await?;
            let written = write(&mut session).await;
            self.deployment.note_position(session.operation_time());
            written
        };
        let written = self.within(within).await;
        self.meter.ended(name, started.elapsed(), written.as_ref().err());
        written.map_err(|failure| failure.of_write(name))
    }

    async fn within<T>(
        &self,
        request: impl Future<Output = mongodb::error::Result<T>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, request).await {
            Ok(answer) => answer.map_err(Failure::Driver),
            Err(_) => Err(Failure::TooLate),
        }
    }
}

/// How many documents were there already, if nothing else went wrong.
fn only_duplicates(error: &mongodb::error::Error) -> Option<usize> {
    let ErrorKind::InsertMany(failed) = &*error.kind else { return None };
    if failed.write_concern_error.is_some() {
        return None;
    }
    let errors = failed.write_errors.as_ref()?;
    errors.iter().all(failure::is_duplicate_of).then_some(errors.len())
}

/// Something that is stored and makes no sense.
pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Corrupt { what: what.into(), source: None }
}
