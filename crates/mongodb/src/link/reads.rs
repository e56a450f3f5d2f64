//! The kinds of reads there are. Each can be done again, and wherever it is told to.

use std::marker::PhantomData;

use futures_util::TryStreamExt;
use mongodb::{
    ClientSession, Collection,
    action::Action,
    bson::Document,
    error::Result,
    options::{FindOptions, SelectionCriteria},
};
use serde::de::DeserializeOwned;

use super::Stored;

pub(super) trait Read: Sync {
    type Answer: Send;

    /// Without a place, on the primary.
    fn run(
        &self,
        session: &mut ClientSession,
        place: Option<SelectionCriteria>,
    ) -> impl Future<Output = Result<Self::Answer>> + Send;
}

pub(super) struct FindOne<'a, T: Stored> {
    pub(super) from: &'a Collection<T>,
    pub(super) filter: Document,
}

pub(super) struct Find<'a, T: Stored> {
    pub(super) from: &'a Collection<T>,
    pub(super) filter: Document,
    pub(super) options: FindOptions,
}

pub(super) struct Aggregate<'a, T: Stored, R> {
    pub(super) from: &'a Collection<T>,
    pub(super) pipeline: Vec<Document>,
    pub(super) gives: PhantomData<fn() -> R>,
}

pub(super) struct EstimatedCount<'a, T: Stored> {
    pub(super) of: &'a Collection<T>,
}

impl<T: Stored> Read for FindOne<'_, T> {
    type Answer = Option<T>;

    async fn run(&self, session: &mut ClientSession, place: Option<SelectionCriteria>) -> Result<Option<T>> {
        let find = self.from.find_one(self.filter.clone());
        find.optional(place, |find, place| find.selection_criteria(place)).session(session).await
    }
}

impl<T: Stored> Read for Find<'_, T> {
    type Answer = Vec<T>;

    async fn run(&self, session: &mut ClientSession, place: Option<SelectionCriteria>) -> Result<Vec<T>> {
        let find = self.from.find(self.filter.clone()).with_options(self.options.clone());
        let find = find.optional(place, |find, place| find.selection_criteria(place));
        let mut cursor = find.session(&mut *session).await?;
        cursor.stream(session).try_collect().await
    }
}

impl<T: Stored, R: DeserializeOwned + Unpin + Send + Sync> Read for Aggregate<'_, T, R> {
    type Answer = Vec<R>;

    async fn run(&self, session: &mut ClientSession, place: Option<SelectionCriteria>) -> Result<Vec<R>> {
        let aggregate = self.from.aggregate(self.pipeline.clone());
        let aggregate = aggregate.optional(place, |aggregate, place| aggregate.selection_criteria(place));
        let mut cursor = aggregate.session(&mut *session).with_type::<R>().await?;
        cursor.stream(session).try_collect().await
    }
}

impl<T: Stored> Read for EstimatedCount<'_, T> {
    type Answer = u64;

    /// The driver asks for this outside of sessions.
    async fn run(&self, _session: &mut ClientSession, place: Option<SelectionCriteria>) -> Result<u64> {
        let count = self.of.estimated_document_count();
        count.optional(place, |count, place| count.selection_criteria(place)).await
    }
}
