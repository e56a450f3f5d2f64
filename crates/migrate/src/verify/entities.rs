//! Every entity of the source, as the tables of the target tell it.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    moving::{Range, Unreadable, Whole},
    ports::{StoreError, StoreResult},
};
use tokio::time::sleep;

use super::{
    COPIED_AFTER_GENERATIONS, Comparison, Difference, GENERATION_PAUSE, GENERATIONS_MAX, Kind,
    LOOKED_AT_ONCE, Running, STEP_ENTITIES, differences, is_unsettled, is_written,
};
use crate::job::Step;

impl<W: Whole> Running<W> {
    pub(super) async fn step(&self, range: Range) -> StoreResult<Step> {
        let comparison = &self.comparison;
        let scanned = comparison.source.scan(&range, STEP_ENTITIES).await?;
        let entities = scanned.items.len() as u64;
        let mut wholes = Vec::with_capacity(scanned.items.len());
        for item in scanned.items {
            match item {
                Ok(whole) => wholes.push(whole),
                // Somebody has to look at it, whether it was met by the backfill or only now.
                Err(Unreadable { key, error }) => {
                    comparison.notes.put_aside(&key, error.to_string(), comparison.clock.now()).await?;
                }
            }
        }
        let settled = wholes.into_iter().filter(|whole| comparison.is_settled(whole));
        let suspects: Vec<Option<W::Key>> = stream::iter(settled)
            .map(|whole| async move {
                let in_tables = comparison.in_tables(&whole).await?;
                let differs = !differences(&whole, &in_tables).is_empty();
                StoreResult::Ok(differs.then(|| whole.key()))
            })
            .buffered(LOOKED_AT_ONCE)
            .try_collect()
            .await?;
        let mut looked = stream::iter(suspects.into_iter().flatten())
            .map(|key| comparison.look_again(key))
            .buffer_unordered(LOOKED_AT_ONCE);
        let mut mended = 0;
        while let Some(found) = looked.next().await {
            let (left, made_good) = found?;
            mended += made_good;
            self.note(&left).await?;
        }
        self.give_way(entities).await;
        Ok(Step { entities, mended, next: scanned.next })
    }
}

impl<W: Whole> Comparison<W> {
    /// What still differs when it is looked at until neither side changes and nothing is on its way; and how much of it was
    /// mended.
    async fn look_again(&self, key: W::Key) -> StoreResult<(Vec<Difference>, u64)> {
        let mut last_seen = None;
        for generation in 0..GENERATIONS_MAX {
            let Some(before) = self.in_source(key).await? else { return Ok((Vec::new(), 0)) };
            if generation >= COPIED_AFTER_GENERATIONS && self.is_equal_when_copied(&before, None).await? {
                return Ok((Vec::new(), 0));
            }
            let was_marked = is_written(&before);
            let Some(whole) = before.whole.filter(|whole| self.is_settled(whole)) else {
                return Ok((Vec::new(), 0));
            };
            let left = differences(&whole, &self.in_tables(&whole).await?);
            if left.is_empty() {
                return Ok((left, 0));
            }
            let Some(after) = self.in_source(key).await? else { return Ok((Vec::new(), 0)) };
            let is_marked = was_marked || is_written(&after);
            let has_changed = after.whole.is_none_or(|after| after.version() != whole.version());
            let is_on_its_way = has_changed || is_marked;
            let was_there = last_seen.replace(whole.version()) == Some(whole.version());
            if was_there && !is_on_its_way {
                return if self.mends() { self.mend(key, left).await } else { Ok((left, 0)) };
            }
            sleep(GENERATION_PAUSE).await;
        }
        if self.notes.is_set_aside(&key.to_string()).await? {
            // It is marked because it cannot be copied, which keeps reads where they are.
            return Ok((Vec::new(), 0));
        }
        Err(is_unsettled(key))
    }

    /// Copies it again. What stands there under the same version is met again among the rows, and mended there.
    async fn mend(&self, key: W::Key, found: Vec<Difference>) -> StoreResult<(Vec<Difference>, u64)> {
        let Some(whole) = self.in_source(key).await?.and_then(|found| found.whole) else {
            return Ok((Vec::new(), 0));
        };
        match self.target.put(vec![whole.clone()], self.clock.now()).await {
            // Something unreadable is in its place.
            Ok(()) | Err(StoreError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut left = differences(&whole, &self.in_tables(&whole).await?);
        let made_good = found.len().saturating_sub(left.len()) as u64;
        left.retain(|difference| difference.kind != Kind::Different);
        Ok((left, made_good))
    }
}
