//! Every entity of the source, as the tables of the target tell it.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use mobimir_core::{
    moving::{Range, Unreadable, Whole},
    ports::StoreResult,
};
use tokio::time::sleep;

use super::{
    Comparison, Difference, GENERATION_PAUSE, GENERATIONS_MAX, Kind, LOOKED_AT_ONCE, Running, STEP_ENTITIES,
    differences,
};
use crate::{backfill::put_or_set_aside, job::Step};

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
                let in_tables = comparison.target.in_tables(&whole).await?;
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
        let mut left = Vec::new();
        for generation in 0..GENERATIONS_MAX {
            let before = self.source.whole(key).await?;
            let Some(whole) = before.whole.filter(|whole| self.is_settled(whole)) else {
                return Ok((Vec::new(), 0));
            };
            left = differences(&whole, &self.target.in_tables(&whole).await?);
            if left.is_empty() {
                return Ok((left, 0));
            }
            let after = self.source.whole(key).await?;
            let has_changed = after.whole.is_none_or(|after| after.version() != whole.version());
            let is_on_its_way = has_changed || !before.marks.is_empty() || !after.marks.is_empty();
            if !is_on_its_way && generation > 0 {
                break;
            }
            sleep(GENERATION_PAUSE).await;
        }
        if self.mends() { self.mend(key, left).await } else { Ok((left, 0)) }
    }

    /// Copies it again. What stands there under the same version is met again among the rows, and mended there.
    async fn mend(&self, key: W::Key, found: Vec<Difference>) -> StoreResult<(Vec<Difference>, u64)> {
        let Some(whole) = self.source.whole(key).await?.whole else { return Ok((Vec::new(), 0)) };
        put_or_set_aside(&*self.target, &self.notes, whole.clone(), &*self.clock).await?;
        let mut left = differences(&whole, &self.target.in_tables(&whole).await?);
        let made_good = found.len().saturating_sub(left.len()) as u64;
        left.retain(|difference| difference.kind != Kind::Different);
        Ok((left, made_good))
    }
}
